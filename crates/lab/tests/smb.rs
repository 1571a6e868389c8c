//! Real Samba with real clients, without any proxy: the lab's own instruments must work before they measure.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use isthmus_lab::corpus::{awkward_names, random_bytes, write_folder};
use isthmus_lab::smb::{
    KernelClient, MountOptions, Protection, Samba, SambaOptions, Signing, SmbClient, compare_folders,
};
use isthmus_lab::wan::WanShape;
use isthmus_lab::{LabError, Place, Result, Scratch, WanLab};
use std::net::SocketAddr;
use std::time::Duration;

/// The value, or `None` with the reason printed when something is not installed here.
fn or_skip<T>(result: Result<T>) -> Option<T> {
    match result {
        Err(reason @ LabError::Unavailable { .. }) => {
            println!("skipped: {reason}");
            None
        }
        other => Some(other.unwrap()),
    }
}

fn free_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

#[test]
fn smbclient_copies_files_with_awkward_names_both_ways() {
    let Some(samba) = or_skip(Samba::start(&Place::Local, free_address(), &SambaOptions::default())) else {
        return;
    };
    let Some(client) = or_skip(SmbClient::new(&Place::Local, samba.address(), &samba)) else { return };
    let scratch = Scratch::new("test").unwrap();
    let (sent, back) = (scratch.make_dir("sent").unwrap(), scratch.make_dir("back").unwrap());
    let files = awkward_names(3);
    write_folder(&sent, &files).unwrap();
    client.put_folder(&sent, "names").unwrap();
    compare_folders(&sent, &samba.share_path().join("names")).unwrap();
    client.clone().protected(Protection::Sign).get_folder("names", &back).unwrap();
    let total = compare_folders(&sent, &back).unwrap();
    assert_eq!(total, files.iter().map(|file| file.content.len() as u64).sum::<u64>());
}

#[test]
fn a_server_that_wants_encryption_gets_it() {
    let options = SambaOptions { signing: Signing::Mandatory, encrypt: true, ..SambaOptions::default() };
    let Some(samba) = or_skip(Samba::start(&Place::Local, free_address(), &options)) else { return };
    let Some(client) = or_skip(SmbClient::new(&Place::Local, samba.address(), &samba)) else { return };
    let scratch = Scratch::new("test").unwrap();
    let local = scratch.write("file", random_bytes(300_000, 1)).unwrap();
    client.clone().protected(Protection::Encrypt).put(&local, "file").unwrap();
    assert_eq!(std::fs::read(samba.share_path().join("file")).unwrap(), random_bytes(300_000, 1));
    client.protected(Protection::Encrypt).get("file", &scratch.join("copy")).unwrap();
    assert_eq!(std::fs::read(scratch.join("copy")).unwrap(), random_bytes(300_000, 1));
}

#[test]
fn the_kernel_client_reads_and_writes_over_the_emulated_wan() {
    let Some(lab) = or_skip(WanLab::start(WanShape::symmetric(Duration::from_millis(4), None))) else {
        return;
    };
    let server = SocketAddr::from((WanLab::SERVER, 445));
    let Some(samba) = or_skip(Samba::start(&lab.server(), server, &SambaOptions::default())) else { return };
    let Some(kernel) = or_skip(KernelClient::new(&lab)) else { return };
    let content = random_bytes(2_000_000, 4);
    std::fs::write(samba.share_path().join("日本.bin"), &content).unwrap();
    let mount = MountOptions::new(server, &samba).command("/mnt/s");
    let script = format!(
        "set -e\n{mount}\nsha256sum < /mnt/s/日本.bin\ncp /mnt/s/日本.bin /mnt/s/copy.bin\numount /mnt/s\n"
    );
    let output = kernel.run(&script, Duration::from_secs(120)).unwrap();
    println!("kernel client: {output}");
    assert_eq!(std::fs::read(samba.share_path().join("copy.bin")).unwrap(), content);
    assert!(lab.wan().stats().down.bytes_out > 2_000_000);
    let error = kernel.run("exit 5", Duration::from_secs(60)).unwrap_err().to_string();
    assert!(error.contains("status 5"), "{error}");
}
