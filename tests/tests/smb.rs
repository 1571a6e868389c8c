//! SMB sessions of a real server and a real client through a pair: understood or not, no byte differs, and with keys an encrypted
//! session costs no more than a clear one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use isthmus_lab::pair::KeyOptions;
use isthmus_lab::proc::find_program;
use isthmus_lab::smb::{
    Account, Protection, SHARE, Samba, SambaOptions, Signing, SmbClient, compare_folders,
};
use isthmus_lab::wan::WanShape;
use isthmus_lab::{Place, Scratch, free_address};
use isthmus_lab_coherence::client::{self, Connection};
use isthmus_smb_crypto::Dialect;
use isthmus_smb_wire::create_context::LeaseState;
use isthmus_smb_wire::messages::{AccessMask, CreateDisposition, CreateOptions, ShareAccess};
use isthmus_tests::{Bed, ECHO, Plan, eventually, random};
use isthmus_types::Side;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// A file server behind a pair, and a file.
struct Site {
    bed: Bed,
    samba: Samba,
    scratch: Scratch,
    file: PathBuf,
    content: Vec<u8>,
}

/// Which key material the server-side proxy has.
enum Material {
    None,
    Right,
    Wrong,
}

impl Site {
    /// `None`, with the reason, where there is no Samba.
    fn start(options: &SambaOptions, material: &Material, seed: u64) -> Option<Site> {
        Site::plan(options, material, Plan::new(MIB, seed), seed, |server| server)
    }

    /// The same with a link that takes its time.
    fn start_far(options: &SambaOptions, seed: u64) -> Option<Site> {
        Site::plan(options, &Material::Right, Plan::new(MIB, seed).slow(400), seed, |server| server)
    }

    /// `reached` says where a server is reached.
    fn plan(
        options: &SambaOptions,
        material: &Material,
        mut plan: Plan,
        seed: u64,
        reached: impl Fn(SocketAddr) -> SocketAddr,
    ) -> Option<Site> {
        for program in ["smbd", "smbclient"] {
            if find_program(program).is_none() {
                println!("skipped: {program} is not installed");
                return None;
            }
        }
        let samba = Samba::start(&Place::Local, free_address().unwrap(), options).unwrap();
        let scratch = Scratch::new("smb").unwrap();
        let hashes = match material {
            Material::None => None,
            Material::Right => Some(samba.password_hashes()),
            Material::Wrong => Some(wrong_hashes(&scratch, &samba)),
        };
        if let Some(hashes) = hashes {
            plan = plan.keys(KeyOptions { keytabs: Vec::new(), password_hashes: vec![hashes] });
        }
        let mut bed = plan.prepare();
        let (old, new) = (bed.spec.carried[ECHO].target, reached(samba.address()));
        bed.edit(Side::Client, |text| text.replace(&old.to_string(), &new.to_string()));
        bed.edit(Side::Server, |text| {
            format!("{text}\n[[allow]]\ndestination = [\"{}\"]\nports = [{}]\n", new.ip(), new.port())
        });
        bed.start_both();
        let content = random(8 * MIB, seed).to_vec();
        let file = scratch.write("file", &content).unwrap();
        Some(Site { bed, samba, scratch, file, content })
    }

    fn client(&self, protection: Protection) -> SmbClient {
        SmbClient::new(&Place::Local, self.bed.through(ECHO), &self.samba).unwrap().protected(protection)
    }

    /// Writes the file to the share and reads it back; both are compared. What the two cost on the WAN.
    fn round_trip(&self, protection: Protection) -> (u64, u64) {
        let client = self.client(protection);
        let up = self.bed.wan_cost(|| client.put(&self.file, "file").unwrap());
        assert!(std::fs::read(self.samba.share_path().join("file")).unwrap() == self.content, "written");
        let back = self.scratch.join("back");
        let down = self.bed.wan_cost(|| client.get("file", &back).unwrap());
        assert!(std::fs::read(&back).unwrap() == self.content, "read");
        (up, down)
    }

    /// Starts to write the file to the share over a slow link, and goes on when a part of it has crossed.
    fn writing(&self, protection: Protection) -> JoinHandle<bool> {
        self.slow();
        let before = self.bed.wan_bytes();
        let (client, file) = (self.client(protection), self.file.clone());
        let writing = std::thread::spawn(move || client.put(&file, "file").is_ok());
        eventually("the transfer is in its middle", || self.bed.wan_bytes() > before + (1 << 20));
        assert!(!writing.is_finished());
        writing
    }

    /// From now on the file takes many seconds to cross.
    fn slow(&self) {
        self.bed.wan.set_shape(WanShape::symmetric(Duration::from_millis(20), Some(6_000_000)));
    }

    /// Nothing is left of connections, at either proxy.
    fn all_over(&self) {
        eventually("the connections are over", || self.bed.open_connections() == 0);
    }

    /// Waits until that many sessions in a state have been counted.
    #[track_caller]
    fn has_had(&self, sessions: f64, side: Side, state: &str) {
        eventually(&format!("{sessions} sessions are {state} at the {side} proxy"), || {
            self.sessions(side, state) >= sessions
        });
    }

    fn sessions(&self, side: Side, state: &str) -> f64 {
        self.bed.metric(side, "isthmus_smb_sessions_total", &[("state", state)])
    }
}

/// Another password's hash for the server's user.
fn wrong_hashes(scratch: &Scratch, samba: &Samba) -> PathBuf {
    let text = std::fs::read_to_string(samba.password_hashes()).unwrap();
    let user = text.split(':').next().unwrap().to_owned();
    let line =
        format!("{user}:0:{}:{}:[U          ]:LCT-00000000:\n", "X".repeat(32), "0123456789ABCDEF".repeat(2));
    keys_file(scratch, line.as_bytes())
}

/// Puts a key file in place, of which nobody ever sees a part.
fn keys_file(scratch: &Scratch, content: &[u8]) -> PathBuf {
    let new = scratch.write("keys.new", content).unwrap();
    std::fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let path = scratch.join("keys");
    std::fs::rename(&new, &path).unwrap();
    path
}

fn signed() -> SambaOptions {
    let accounts = vec![Account::new("ana", "isthmus-lab-0")];
    SambaOptions { accounts, signing: Signing::Mandatory, ..SambaOptions::default() }
}

fn encrypted() -> SambaOptions {
    SambaOptions { encrypt: true, signing: Signing::Auto, ..signed() }
}

#[test]
fn with_keys_signed_and_encrypted_sessions_cost_what_clear_ones_do() {
    for (options, protection, seed) in
        [(signed(), Protection::Sign, 71), (encrypted(), Protection::Encrypt, 72)]
    {
        let Some(site) = Site::start(&options, &Material::Right, seed) else { return };
        let (cold, cross) = site.round_trip(protection);
        assert!(cold > 8 << 20, "{protection:?}: random bytes cannot shrink: {cold}");
        assert!(cross < 60_000, "{protection:?}: what was written is known when it is read: {cross}");
        let (warm, again) = site.round_trip(protection);
        assert!(warm < 60_000 && again < 60_000, "{protection:?}: {warm}, {again}");
        for side in [Side::Client, Side::Server] {
            assert!(
                site.sessions(side, "signed_keys") + site.sessions(side, "encrypted_keys") >= 4.0,
                "{side:?} knows that it has the keys: {} signed, {} encrypted",
                site.sessions(side, "signed_keys"),
                site.sessions(side, "encrypted_keys")
            );
        }
        let released = [("result", "released")];
        site.bed.counts(Side::Server, "isthmus_key_releases_total", &released);
    }
}

#[test]
fn without_keys_or_with_wrong_ones_sessions_go_on() {
    for (material, seed) in [(Material::None, 73), (Material::Wrong, 74)] {
        let Some(site) = Site::start(&signed(), &material, seed) else { return };
        site.round_trip(Protection::Sign);
        let (up, down) = site.round_trip(Protection::Sign);
        assert!(up < 80_000 && down < 80_000, "signed sessions are reduced without keys, too: {up}, {down}");
        assert!(site.sessions(Side::Client, "signed_no_keys") >= 4.0);
        drop(site);
        let Some(site) = Site::start(&encrypted(), &material, seed) else { return };
        let (up, down) = site.round_trip(Protection::Encrypt);
        assert!(up > 8 << 20 && down > 8 << 20, "nobody can read this: {up}, {down}");
        eventually("the connection is said to be relayed", || {
            let state = |state| site.sessions(Side::Client, state);
            state("encrypted_no_keys") + state("signed_no_keys") >= 2.0
        });
    }
}

#[test]
fn an_administrators_keys_are_not_released_unless_a_rule_says_so() {
    let accounts = vec![Account::new("administrator", "isthmus-lab-1")];
    let options = SambaOptions { accounts, ..signed() };
    let Some(site) = Site::start(&options, &Material::Right, 75) else { return };
    site.round_trip(Protection::Sign);
    let released = [("result", "released")];
    assert_eq!(site.bed.metric(Side::Server, "isthmus_key_releases_total", &released), 0.0);
    site.bed.counts(Side::Server, "isthmus_key_releases_total", &[("result", "refused")]);
}

#[test]
fn a_folder_that_is_copied_is_opened_and_read_ahead() {
    for (options, protection, seed) in
        [(encrypted(), Protection::Encrypt, 75), (signed(), Protection::Sign, 76)]
    {
        let Some(site) = Site::start_far(&options, seed) else { return };
        let folder = site.samba.share_path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        let all = random(4 * MIB, seed + 100);
        let mut at = 0;
        for (index, length) in (0..60).map(|index| index * index * 37 % 90_000).enumerate() {
            std::fs::write(folder.join(format!("file {index} ä文.bin")), &all[at..at + length]).unwrap();
            at += length;
        }
        // What others have just changed is not opened ahead.
        std::thread::sleep(Duration::from_secs(4));
        let client = site.client(protection);
        let back = site.scratch.join("copy");
        std::fs::create_dir(&back).unwrap();
        client.get_folder("folder", &back).unwrap();
        compare_folders(&folder, &back).unwrap();
        let local = |request| {
            site.bed.metric(Side::Client, "isthmus_smb_local_answers_total", &[("request", request)])
        };
        if protection == Protection::Sign {
            // AES-GMAC, whose nonces are the message identifiers: nothing may be altered.
            assert!(local("open") + local("read") + local("close") + local("query") < 1.0);
            continue;
        }
        eventually("answers near the client are counted", || local("open") > 0.0);
        // The first files are not, and on a busy machine others come too late.
        assert!(local("open") >= 5.0, "{protection:?}: {} opens near the client", local("open"));
        assert!(local("read") >= 5.0 && local("close") >= 20.0, "{protection:?}: {}", local("close"));
        assert!(site.bed.metric(Side::Server, "isthmus_smb_ahead_total", &[]) > 100.0);
    }
}

#[test]
fn keys_that_are_replaced_while_the_proxy_runs_count_for_the_next_session() {
    let Some(site) = Site::start(&encrypted(), &Material::Wrong, 76) else { return };
    let (up, _) = site.round_trip(Protection::Encrypt);
    assert!(up > 8 << 20, "nobody can read this: {up}");
    let with_keys = || site.sessions(Side::Client, "encrypted_keys");
    assert_eq!(with_keys(), 0.0);
    // A session that is there when the keys change goes on as it was.
    let writing = site.writing(Protection::Encrypt);
    keys_file(&site.scratch, &std::fs::read(site.samba.password_hashes()).unwrap());
    eventually("the file is loaded anew", || {
        let log = site.bed.pair.end(Side::Server).log().unwrap();
        log.lines().filter(|line| line.contains("keys loaded from")).count() >= 2
    });
    site.bed.hurry();
    assert!(writing.join().unwrap());
    assert_eq!(with_keys(), 0.0);
    site.round_trip(Protection::Encrypt);
    let (up, down) = site.round_trip(Protection::Encrypt);
    assert!(up < 60_000 && down < 60_000, "{up}, {down}");
    site.has_had(4.0, Side::Client, "encrypted_keys");
    // And when they are taken away again, sessions are relayed.
    wrong_hashes(&site.scratch, &site.samba);
    eventually("the keys are not used any more", || {
        let before = with_keys();
        site.round_trip(Protection::Encrypt);
        with_keys() == before
    });
}

#[test]
fn an_encrypted_session_goes_on_over_a_new_link() {
    let Some(site) = Site::start(&encrypted(), &Material::Right, 77) else { return };
    let writing = site.writing(Protection::Encrypt);
    for _ in 0..3 {
        site.bed.wan.kill_connections();
        std::thread::sleep(Duration::from_millis(300));
    }
    site.bed.counts(Side::Client, "isthmus_resumes_total", &[]);
    site.bed.hurry();
    assert!(writing.join().unwrap(), "the outer connection survives");
    assert!(std::fs::read(site.samba.share_path().join("file")).unwrap() == site.content);
    site.has_had(1.0, Side::Server, "encrypted_keys");
    site.all_over();
    let (up, down) = site.round_trip(Protection::Encrypt);
    assert!(up < 60_000 && down < 60_000, "{up}, {down}");
}

#[test]
fn after_a_restart_of_the_server_sessions_begin_anew() {
    for (options, protection, state) in
        [(signed(), Protection::Sign, "signed_keys"), (encrypted(), Protection::Encrypt, "encrypted_keys")]
    {
        let Some(mut site) = Site::start(&options, &Material::Right, 78) else { return };
        let writing = site.writing(protection);
        site.samba.process().kill9().unwrap();
        assert!(!writing.join().unwrap(), "the client hears of it");
        site.all_over();
        // What is left of the first one stays, since its key file is in use.
        let samba = Samba::start(&Place::Local, site.samba.address(), &options).unwrap();
        let _first = std::mem::replace(&mut site.samba, samba);
        site.bed.hurry();
        let before = site.sessions(Side::Server, state);
        site.round_trip(protection);
        let (up, down) = site.round_trip(protection);
        assert!(up < 60_000 && down < 60_000, "{protection:?}: {up}, {down}");
        site.has_had(before + 4.0, Side::Server, state);
    }
}

#[test]
fn a_client_that_is_killed_with_requests_pending_leaves_nothing_behind() {
    let Some(site) = Site::start(&encrypted(), &Material::Right, 79) else { return };
    site.round_trip(Protection::Encrypt);
    site.slow();
    let through = site.bed.through(ECHO);
    let (user, password) = site.samba.credentials();
    let (service, login) = (format!("//{}/{SHARE}", through.ip()), format!("{user}%{password}"));
    let fresh = site.scratch.write("fresh", random(8 * MIB, 80)).unwrap();
    std::fs::write(site.samba.share_path().join("unread"), random(8 * MIB, 82)).unwrap();
    for command in [format!("put {} fresh", fresh.display()), "get unread /dev/null".to_owned()] {
        let before = site.bed.wan_bytes();
        let mut client = Command::new(find_program("smbclient").unwrap())
            .args(["-s", "/dev/null", &service, "-p", &through.port().to_string(), "-U", &login])
            .args(["-m", "SMB3_11", "--client-protection=encrypt", "-c", &command])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("the transfer is in its middle", || site.bed.wan_bytes() > before + (1 << 20));
        client.kill().unwrap();
        assert!(!client.wait().unwrap().success(), "{command}: it was done already");
        site.all_over();
    }
    site.bed.hurry();
    // Whatever the first one held is free, and the keys are held as before.
    let (up, down) = site.round_trip(Protection::Encrypt);
    assert!(up < 60_000 && down < 60_000, "{up}, {down}");
}

#[test]
fn a_server_that_gives_few_credits_is_served_as_well() {
    for credits in ["1", "3"] {
        let global = vec![("smb2 max credits".to_owned(), credits.to_owned())];
        let Some(site) = Site::start(&SambaOptions { global, ..encrypted() }, &Material::Right, 81) else {
            return;
        };
        site.round_trip(Protection::Encrypt);
        let (up, down) = site.round_trip(Protection::Encrypt);
        assert!(up < 250_000 && down < 250_000, "{credits}: {up}, {down}");
        site.has_had(4.0, Side::Client, "encrypted_keys");
    }
}

/// Relays connections to `to`. The first bytes of either direction go one by one, as they may on a bad line or from a client
/// that writes every field by itself.
fn in_pieces(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let far = TcpStream::connect(to).unwrap();
            let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            std::thread::spawn(move || piecewise(near, far));
            std::thread::spawn(move || piecewise(far_too, near_too));
        }
    });
    address
}

/// Until either end is gone.
fn piecewise(mut from: TcpStream, mut to: TcpStream) {
    let mut left = 200;
    to.set_nodelay(true).unwrap();
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read) = from.read(&mut buffer)
        && read > 0
    {
        let (slow, rest) = buffer[..read].split_at(read.min(left));
        left -= slow.len();
        for byte in slow {
            if to.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        if to.write_all(rest).is_err() {
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[test]
fn a_session_is_understood_however_its_bytes_arrive() {
    let plan = Plan::new(MIB, 84);
    let Some(site) = Site::plan(&encrypted(), &Material::Right, plan, 84, in_pieces) else { return };
    let address = in_pieces(site.bed.through(ECHO));
    let client = SmbClient::new(&Place::Local, address, &site.samba).unwrap().protected(Protection::Encrypt);
    std::fs::write(site.samba.share_path().join("file"), &site.content).unwrap();
    let back = site.scratch.join("back");
    for _ in 0..3 {
        client.get("file", &back).unwrap();
        assert!(std::fs::read(&back).unwrap() == site.content);
    }
    for side in [Side::Client, Side::Server] {
        site.has_had(3.0, side, "encrypted_keys");
        assert_eq!(site.sessions(side, "encrypted_no_keys"), 0.0);
    }
}

#[test]
fn bytes_that_might_become_smb_are_not_held_back_for_long() {
    let bed = Plan::new(MIB, 85).start();
    let mut stream = TcpStream::connect(bed.through(ECHO)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    for bytes in [&[0, 0, 0, 100][..], &[0xfe, b'S'], &[1, 2, 3]] {
        stream.write_all(bytes).unwrap();
        let mut answer = vec![0; bytes.len()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, bytes);
    }
}

/// Logs on as the first user with an encrypted session, and opens the file with everything that can be cached.
async fn held(site: &Site, server: SocketAddr, key: u8) -> (Connection, client::Created) {
    let account = site.samba.accounts().first().cloned().unwrap();
    let (share, dialect) = (SHARE.to_owned(), Dialect::Smb311);
    let settings =
        client::Settings { server, share, account, dialect, protection: client::Protection::Sealed };
    let connection = Connection::log_on(&settings).await.unwrap();
    let all = LeaseState::READ_CACHING.with(LeaseState::HANDLE_CACHING).with(LeaseState::WRITE_CACHING);
    let open = client::OpenRequest {
        path: "held".to_owned(),
        access: AccessMask::READ_DATA.with(AccessMask::WRITE_DATA),
        share: ShareAccess::READ.with(ShareAccess::WRITE),
        disposition: CreateDisposition::OPEN_IF,
        options: CreateOptions::NON_DIRECTORY_FILE,
        caching: client::Caching::Lease { key: [key; 16], state: all },
    };
    let created = connection.open(&open).await.unwrap();
    (connection, created)
}

#[test]
fn others_wait_for_a_client_that_cannot_be_reached_once_and_for_less_than_half_a_minute() {
    let Some(site) = Site::start(&encrypted(), &Material::Right, 81) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (asleep, created) = runtime.block_on(held(&site, site.bed.through(ECHO), 1));
    assert!(created.granted.state.contains(LeaseState::WRITE_CACHING), "{:?}", created.granted);
    site.bed.wan.cut(true);
    for longest in [30, 10] {
        let start = Instant::now();
        let (other, opened) = runtime.block_on(held(&site, site.samba.address(), 2));
        let waited = start.elapsed();
        assert!(waited < Duration::from_secs(longest), "somebody waited for {waited:?}");
        runtime.block_on(other.close(opened.file_id)).unwrap();
    }
    site.bed.wan.cut(false);
    site.bed.hurry();
    runtime.block_on(asleep.write(created.file_id, 0, b"awake")).unwrap();
    runtime.block_on(asleep.close(created.file_id)).unwrap();
    assert_eq!(std::fs::read(site.samba.share_path().join("held")).unwrap(), b"awake");
    site.bed.logs(Side::Server, &["of which nothing was heard"]);
}
