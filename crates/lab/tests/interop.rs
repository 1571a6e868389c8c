//! The interop rig without any proxy: servers with users of their own, Samba's test suite, the probe, Kerberos.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use bytes::Bytes;
use isthmus_lab::corpus::random_bytes;
use isthmus_lab::smb::{
    Account, Cipher, Dialect, Domain, Login, Open, Outcome, Probe, Protected, SHARE, SHARE_SEALED, Samba,
    SambaOptions, ShareWork, Signing, SigningAlgorithm, Torture, work_with_smbclient,
};
use isthmus_lab::wan::WanShape;
use isthmus_lab::{LabError, Place, Result, Scratch, WanLab, free_address};
use std::net::IpAddr;
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

/// Whether this machine allows it, with the reason printed when it does not.
fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        println!("skipped: serving several users needs root");
    }
    is_root
}

fn server() -> Option<Samba> {
    let options = SambaOptions {
        signing: Signing::Mandatory,
        accounts: vec![Account::alice(), Account::new("bob", "another")],
        is_like_windows: true,
        ..SambaOptions::default()
    };
    or_skip(Samba::start(&Place::Local, free_address().unwrap(), &options))
}

#[test]
fn suites_tell_what_passes_and_what_does_not() {
    if !is_root() {
        return;
    }
    let Some(samba) = server() else { return };
    let Some(torture) = or_skip(Torture::new(&Place::Local, samba.address(), &samba)) else { return };
    let subtests = torture.run("smb2.compound", &["related1"], Duration::from_secs(60)).unwrap();
    let outcome = |name: &str| subtests.iter().find(|test| test.name == name).map(|test| test.outcome);
    assert_eq!(outcome("related2"), Some(Outcome::Passed), "{subtests:?}");
    assert_eq!(outcome("related1"), None, "it was left out");
    assert_eq!(outcome("interim2"), Some(Outcome::Failed), "this one fails with every Samba");
    samba.empty_share().unwrap();
    assert_eq!(std::fs::read_dir(samba.share_path()).unwrap().count(), 0);
}

#[test]
fn the_probe_sends_what_it_is_told_to() {
    if !is_root() {
        return;
    }
    let Some(samba) = server() else { return };
    let address = samba.address();
    for (share, is_sealed) in [(SHARE, false), (SHARE, true), (SHARE_SEALED, true)] {
        let account = samba.accounts()[1].clone();
        let work = move || async move {
            let probe = Probe::connect(address, share, &account, is_sealed).await?;
            assert_eq!(probe.is_sealed(), is_sealed);
            let content = Bytes::from(random_bytes(150_000, 3));
            probe.write_serially("file", 65_536, &content).await?;
            let before = probe.messages();
            assert_eq!(probe.small_set("file", 4_096).await?, content[..4_096]);
            assert_eq!(probe.messages() - before, 8, "four requests and four answers");
            probe.read_serially("file", 65_536, &content).await?;
            let wrong = Bytes::from(random_bytes(150_000, 4));
            assert!(probe.read_serially("file", 65_536, &wrong).await.is_err());
            let file = probe.open("file", Open::Delete).await?;
            probe.close(file).await?;
            assert!(probe.open("file", Open::Read).await.is_err());
            Ok(())
        };
        Place::Local.block_on(work).unwrap();
    }
    let stranger = Account::new("alice", "wrong");
    let refused = Place::Local
        .block_on(move || async move { Probe::connect(address, SHARE, &stranger, false).await.map(drop) });
    assert!(refused.is_err());
}

#[test]
fn a_domain_controller_gives_tickets_with_which_clients_work() {
    let Some(lab) = or_skip(WanLab::start(WanShape::open())) else { return };
    let address = IpAddr::V4(WanLab::SERVER);
    let account = Account::alice();
    let Some(domain) = or_skip(Domain::start(&lab.server(), address, std::slice::from_ref(&account))) else {
        return;
    };
    let Some(kerberos) = or_skip(domain.log_on(&lab.client(), &account, address)) else { return };
    assert!(std::fs::metadata(domain.keytab()).unwrap().len() > 100);
    let scratch = Scratch::new("test").unwrap();
    let (sent, back) = (scratch.make_dir("sent").unwrap(), scratch.make_dir("back").unwrap());
    ShareWork::make_folder(&sent, 5).unwrap();
    let protections = [Protected::Signed(SigningAlgorithm::AesGmac), Protected::Sealed(Cipher::Aes256Gcm)];
    for protected in protections {
        let login = Login {
            server: domain.address(),
            share: SHARE.into(),
            account: account.clone(),
            kerberos: Some(kerberos.clone()),
            dialect: Dialect::Smb311,
            protected,
        };
        let work = ShareWork::new(&sent, &back, protected.as_str());
        let mut steps = work_with_smbclient(&lab.client(), &login, &work).unwrap();
        work.judge(&domain.share_path(), &mut steps).unwrap();
        assert!(steps.by_name.values().all(Option::is_none) && steps.is_done("stored"), "{steps:?}");
    }
}
