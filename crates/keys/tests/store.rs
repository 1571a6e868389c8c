//! Files and commands that change while the store is open.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use isthmus_keys::{
    CommandConfig, CommandOutput, KeyStore, KeysConfig, KeysError, Observer, SourceKind, Watch,
};
use isthmus_smb_auth::{Loaded, Secrets};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Writes down what it is told.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Observer for Notes {
    fn loaded(&self, _: &str, loaded: Loaded) {
        self.0.lock().unwrap().push(format!("{} hashes, {} keys", loaded.nt_hashes, loaded.service_keys));
    }

    fn failed(&self, _: &str, error: &KeysError) {
        self.0.lock().unwrap().push(error.to_string());
    }
}

impl Notes {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn hashes(users: &[&str]) -> String {
    users.iter().map(|user| format!("{user}:1000:X:FC525C9683E8FE067095BA2DDC971889:[U]:\n")).collect()
}

/// Puts a file in place of another, as programs that care do.
fn replace(path: &Path, content: impl AsRef<[u8]>) {
    let new = path.with_extension("new");
    fs::write(&new, content).unwrap();
    fs::set_permissions(&new, Permissions::from_mode(0o600)).unwrap();
    fs::rename(&new, path).unwrap();
}

fn open(config: &KeysConfig) -> (Arc<KeyStore>, Notes) {
    let notes = Notes::default();
    (Arc::new(KeyStore::open(config, Box::new(notes.clone())).unwrap()), notes)
}

fn knows(store: &KeyStore, user: &str) -> bool {
    !store.secrets().nt_hashes(user).is_empty()
}

fn hash_file(folder: &Path) -> (PathBuf, KeysConfig) {
    let path = folder.join("hashes");
    replace(&path, hashes(&["alice"]));
    let config = KeysConfig { password_hashes: vec![path.clone()], ..KeysConfig::default() };
    (path, config)
}

fn look_until_settled(store: &KeyStore) {
    store.look();
    store.look();
}

#[test]
fn a_changed_file_is_loaded_at_the_second_look() {
    let folder = tempfile::tempdir().unwrap();
    let (path, config) = hash_file(folder.path());
    let (store, notes) = open(&config);
    assert_eq!(notes.take(), ["1 hashes, 0 keys"]);
    look_until_settled(&store);
    assert!(notes.take().is_empty(), "an unchanged file is not read again");
    let before = store.secrets();
    replace(&path, hashes(&["bob", "carol"]));
    store.look();
    assert!(knows(&store, "alice") && !knows(&store, "bob"), "it may still be written");
    store.look();
    assert!(!knows(&store, "alice") && knows(&store, "bob") && knows(&store, "CAROL"));
    assert!(!before.nt_hashes("alice").is_empty(), "a session that is being set up keeps what it began with");
    assert_eq!(notes.take(), ["2 hashes, 0 keys"]);
}

#[test]
fn a_bad_file_leaves_the_old_secrets_and_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let (path, config) = hash_file(folder.path());
    let (store, notes) = open(&config);
    notes.take();
    for (content, mode, expected) in [
        ("alice:1000", 0o600, "line 1: there are fewer than four fields"),
        ("bob:1:X:FC525C9683E8FE067095BA2DDC971889:", 0o644, "mode is 0644; expected 0600 or 0400"),
    ] {
        replace(&path, content);
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        (0..5).for_each(|_| store.look());
        let told = notes.take();
        assert!(told.len() == 1 && told[0].contains(expected), "{told:?}");
        assert!(told[0].starts_with(&path.display().to_string()), "{told:?}");
        assert!(knows(&store, "alice") && !knows(&store, "bob"));
    }
    assert_eq!(store.sources()[0].failures, 2);
    assert!(store.sources()[0].error.as_ref().unwrap().contains("0644"));
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    look_until_settled(&store);
    assert!(knows(&store, "bob"), "new permissions are noticed");
    assert_eq!(store.sources()[0].error, None);
}

#[test]
fn a_file_that_is_gone_leaves_the_old_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let (path, config) = hash_file(folder.path());
    let (store, notes) = open(&config);
    notes.take();
    fs::remove_file(&path).unwrap();
    (0..5).for_each(|_| store.look());
    assert_eq!(notes.take().len(), 1);
    assert!(knows(&store, "alice"));
    replace(&path, hashes(&["bob"]));
    look_until_settled(&store);
    assert!(knows(&store, "bob"));
}

#[test]
fn a_bad_file_at_the_start_is_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let (path, mut config) = hash_file(folder.path());
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    let error = KeyStore::open(&config, Box::<Notes>::default()).err().unwrap().to_string();
    assert!(error.starts_with(&format!("{}: mode is 0640", path.display())), "{error}");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    config.keytabs = vec![path];
    let error = KeyStore::open(&config, Box::<Notes>::default()).err().unwrap().to_string();
    assert!(error.contains("at byte 0: this is not a keytab of version 0x502"), "{error}");
    assert!(!error.contains("alice"), "nothing of the content is told: {error}");
}

fn command(script: &str, output: CommandOutput) -> CommandConfig {
    CommandConfig {
        name: "refresh".to_owned(),
        argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        kind: SourceKind::PasswordHashes,
        output,
        interval: Duration::from_secs(3_600),
        timeout: Duration::from_secs(60),
    }
}

fn with_command(command: CommandConfig) -> KeysConfig {
    KeysConfig { commands: vec![command], ..KeysConfig::default() }
}

#[test]
fn a_commands_output_takes_the_place_of_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = hash_file(folder.path());
    let script = format!("cat {}", path.display());
    let (store, notes) = open(&with_command(command(&script, CommandOutput::StandardOutput)));
    assert!(!knows(&store, "alice"));
    assert!(store.run_command(0, &|| false));
    assert!(knows(&store, "alice"));
    replace(&path, hashes(&["bob"]));
    assert!(store.run_command(0, &|| false));
    assert!(!knows(&store, "alice") && knows(&store, "bob"));
    replace(&path, "nonsense");
    assert!(!store.run_command(0, &|| false));
    fs::remove_file(&path).unwrap();
    assert!(!store.run_command(0, &|| false));
    assert!(knows(&store, "bob"), "a failed run leaves the old secrets");
    let told = notes.take();
    assert!(told[2].starts_with("refresh: line 1: there are fewer than four fields"), "{told:?}");
    assert!(told[3].starts_with("command \"refresh\": ended with status 1: cat: "), "{told:?}");
    assert!(!store.run_command(1, &|| false), "there is no such command");
}

#[test]
fn a_file_that_a_command_writes_is_read_when_it_has_succeeded_and_only_then() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("written");
    let line = hashes(&["alice"]);
    let script = format!("umask 077; printf '{}' > {}; test -e {}", line.trim(), path.display(), "/dev/null");
    let config = with_command(command(&script, CommandOutput::File(path.clone())));
    let (store, notes) = open(&config);
    look_until_settled(&store);
    assert!(notes.take().is_empty(), "it is no error that the file is not there yet");
    assert!(store.run_command(0, &|| false));
    assert!(knows(&store, "alice"));
    replace(&path, hashes(&["bob"]));
    look_until_settled(&store);
    assert!(knows(&store, "bob"), "the file is watched too");

    let half = format!("umask 077; printf '{}' > {}; exit 1", hashes(&["mallory"]).trim(), path.display());
    let (store, _) = open(&with_command(command(&half, CommandOutput::File(path.clone()))));
    assert!(!store.run_command(0, &|| false));
    (0..5).for_each(|_| store.look());
    assert!(knows(&store, "bob") && !knows(&store, "mallory"), "what a failed command has left is not read");
}

#[test]
fn a_long_command_holds_up_neither_files_nor_the_console() {
    let folder = tempfile::tempdir().unwrap();
    let (path, mut config) = hash_file(folder.path());
    let mark = folder.path().join("running");
    let script = format!("touch {}; sleep 600", mark.display());
    config.commands.push(command(&script, CommandOutput::File(folder.path().join("never"))));
    let (store, _) = open(&config);
    let watch = Watch::start(&store).unwrap();
    while !mark.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    replace(&path, hashes(&["bob"]));
    look_until_settled(&store);
    // The watch's own look may have come between.
    look_until_settled(&store);
    assert!(knows(&store, "bob"));
    assert_eq!(store.sources().len(), 2);
    drop(watch); // Kills the command; the test would hang otherwise.
}

#[test]
fn commands_run_at_once_when_the_watch_starts() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = hash_file(folder.path());
    let script = format!("cat {}", path.display());
    let (store, _) = open(&with_command(command(&script, CommandOutput::StandardOutput)));
    let watch = Watch::start(&store).unwrap();
    while !knows(&store, "alice") {
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(watch);
}

#[test]
fn commands_that_cannot_be_meant_so_are_refused() {
    type Change = fn(&mut CommandConfig);
    let cases: [(Change, &str); 5] = [
        (|it| it.name.clear(), "expected a name"),
        (|it| it.argv = vec!["sh".to_owned()], "absolute path"),
        (|it| it.argv = vec!["/bin/sh".to_owned(); 65], "at most 64 arguments"),
        (|it| it.interval = Duration::from_secs(9), "at least 10 s"),
        (|it| it.timeout = Duration::ZERO, "time limit above zero"),
    ];
    for (change, expected) in cases {
        let mut bad = command("true", CommandOutput::StandardOutput);
        change(&mut bad);
        let error = KeyStore::open(&with_command(bad), Box::<Notes>::default()).err().unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let many = KeysConfig { keytabs: vec![PathBuf::from("/x"); 33], ..KeysConfig::default() };
    let error = KeyStore::open(&many, Box::<Notes>::default()).err().unwrap().to_string();
    assert_eq!(error, "33 key files and commands; expected at most 32");
}

/// Replaced many times while others read: every reader sees one whole set or the other.
#[test]
fn readers_always_see_a_whole_set() {
    let folder = tempfile::tempdir().unwrap();
    let (path, config) = hash_file(folder.path());
    replace(&path, hashes(&["alice", "bob"]));
    let (store, _) = open(&config);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
            std::thread::spawn(move || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let ring = store.secrets();
                    let (old, new) = (ring.nt_hashes("alice").len(), ring.nt_hashes("carol").len());
                    assert_eq!((old + new, ring.users()), (1, 2));
                }
            })
        })
        .collect();
    for round in 0..200 {
        replace(&path, hashes(if round % 2 == 0 { &["carol", "dave"] } else { &["alice", "bob"] }));
        look_until_settled(&store);
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
}
