//! NFS through a pair, as bytes: the Linux kernel's client and server, versions 3 and 4. Nothing understands the protocol, and
//! what was carried once is referred to all the same.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use isthmus_lab::nfs::NfsServer;
use isthmus_lab::pair::PairOptions;
use isthmus_lab::proc::find_program;
use isthmus_lab::smb::KernelClient;
use isthmus_lab::wan::WanShape;
use isthmus_lab::{Level, Network, WanLab};
use isthmus_tests::{is_full, programs};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(400);
/// The name of the file is not ASCII, and its time has nanoseconds.
const FILE: &str = "日本語 №1.bin";
const TIME: &str = "2001-02-03 04:05:06.789012345";

#[test]
fn nfs_is_carried_as_bytes_and_reduced() {
    if let Err(missing) = WanLab::available() {
        println!("skipped: {missing}");
        return;
    }
    for program in ["linux.uml", "mount.cifs", "mount.nfs", "rpc.mountd", "rpcbind"] {
        if find_program(program).is_none() {
            println!("skipped: {program} is not installed");
            return;
        }
    }
    let (mib, reduction) = if is_full() { (100, 500.0) } else { (16, 300.0) };
    let shape = WanShape::symmetric(Duration::from_millis(20), Some(200_000_000));
    let network = Network::start(Level::Ip, shape).unwrap();
    let lab = network.lab().unwrap();
    let _server = NfsServer::start(lab).unwrap();
    let client = KernelClient::new(lab).unwrap();
    let rig = network.start_pair(programs(), &NfsServer::addresses(), &PairOptions::default()).unwrap();
    let through = [rig.through(0).unwrap(), rig.through(1).unwrap()];
    let run = |script: &str| rig.measure(|| client.run(&format!("set -e\n{script}"), LIMIT)).unwrap();

    let mount = NfsServer::mount("3", through, "/mnt/n");
    let write = format!(
        "{mount}\nhead -c {mib}M /dev/urandom > /mnt/new\ntouch -d \"{TIME}\" /mnt/new\n\
         mkdir \"/mnt/n/フォルダ\"\ncp -p /mnt/new \"/mnt/n/フォルダ/{FILE}\"\nsha256sum < /mnt/new\numount /mnt/n"
    );
    let (written, _) = run(&write);
    let sum = written.split_whitespace().next().unwrap().to_owned();
    assert_eq!(sum.len(), 64, "{written}");
    for version in ["3", "4.0", "4.2"] {
        let mount = NfsServer::mount(version, through, "/mnt/n");
        let read = format!(
            "{mount}\ncd \"/mnt/n/フォルダ\"\nstat -c \"%y %n\" *\nsha256sum < \"{FILE}\"\n\
             mv \"{FILE}\" moved\nmv moved \"{FILE}\"\ncd /\numount /mnt/n"
        );
        let (read, cost) = run(&read);
        assert!(read.contains(&format!("{TIME} +0000 {FILE}")), "version {version}: {read}");
        assert!(read.contains(&sum), "version {version}: another content: {read}");
        let factor = cost.lan_bytes as f64 / cost.wan_bytes as f64;
        println!(
            "NFS {version}: {} bytes on the LAN, {} on the WAN: {factor:.0}",
            cost.lan_bytes, cost.wan_bytes
        );
        assert!(cost.lan_bytes > mib << 20, "version {version}: {} bytes", cost.lan_bytes);
        assert!(factor >= reduction, "version {version}: reduced only {factor:.0} times");
    }
}
