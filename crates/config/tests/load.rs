//! Files, environment and flags together: precedence, examples, round trips, limits.

#![allow(clippy::unwrap_used, reason = "a failed test is what a panic here means")]

use std::path::{Path, PathBuf};

use isthmus_config::{
    Action, ClientConfig, CompressionLevel, ConfigErrors, FILE_BYTES_MAX, LoadError, Loaded, Origin,
    Overrides, Problem, ServerConfig, Size,
};

const CLIENT: &str = r#"
[peer]
address = "proxy.example"
[tls]
certificate = "c.pem"
key = "c.key"
ca = "ca.pem"
[[rule]]
listen = "127.0.0.1:4450"
server = "fs1.example"
"#;

const SERVER: &str = r#"
tls = { certificate = "c.pem", key = "c.key", ca = "ca.pem" }
allow = [{ destination = "10.0.0.0/8" }]
"#;

fn client(text: &str, overrides: &Overrides) -> Result<Loaded<ClientConfig>, ConfigErrors> {
    ClientConfig::parse(text.as_bytes(), Path::new("/etc/isthmus/client.toml"), overrides)
}

fn server(text: &str) -> Result<Loaded<ServerConfig>, ConfigErrors> {
    ServerConfig::parse(text.as_bytes(), Path::new("/etc/isthmus/server.toml"), &Overrides::none())
}

fn variables(pairs: &[(&str, &str)]) -> Overrides {
    Overrides::none().with_environment(pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())))
}

#[test]
fn a_small_file_is_enough() {
    let config = client(CLIENT, &Overrides::none()).unwrap().config;
    assert_eq!(config.peer.address.to_string(), "proxy.example:7810");
    assert_eq!(config.peer.server_name, "proxy.example");
    assert_eq!(config.tls.key, PathBuf::from("/etc/isthmus/c.key"), "relative to the file");
    assert_eq!(config.tls.crl, None);
    assert_eq!(config.store.key_file, PathBuf::from("/var/lib/isthmus/client/store.key"));
    assert_eq!(config.limits.admission_off, 5400);
    let (index, listener) = config.rules.listeners().next().unwrap();
    assert_eq!((index, listener.target.to_string().as_str()), (0, "fs1.example:445"));
    assert_eq!(config.rules.decide_listener("127.0.0.1".parse().unwrap(), 0).action, Action::Optimise);

    let config = server(SERVER).unwrap().config;
    assert_eq!(config.listen.to_string(), "0.0.0.0:7810");
    let host = "fs1".parse().unwrap();
    assert!(config.allow.permits(&host, "10.1.2.3".parse().unwrap(), 445));
    assert!(!config.allow.permits(&host, "10.1.2.3".parse().unwrap(), 80), "port 445 is the default");
}

#[test]
fn flags_stand_over_the_environment_and_that_over_the_file() {
    let text = format!("{CLIENT}[store]\nsize = \"1 GiB\"\n");
    let size = |overrides: &Overrides| {
        let loaded = client(&text, overrides).unwrap();
        (loaded.config.store.size, loaded.effective.value("store", "size").unwrap().1.clone())
    };
    let (from_file, origin) = size(&Overrides::none());
    assert_eq!(from_file, Size::from_gib(1));
    assert_eq!(origin.to_string(), "/etc/isthmus/client.toml:12");
    let mut overrides = variables(&[("ISTHMUS_STORE_SIZE", "2 GiB"), ("OTHER", "x")]);
    let (from_environment, origin) = size(&overrides);
    assert_eq!(
        (from_environment, origin),
        (Size::from_gib(2), Origin::Environment("ISTHMUS_STORE_SIZE".into()))
    );
    overrides.set("store.size=3GiB");
    overrides.set("store.size = 4GiB");
    let (from_flag, origin) = size(&overrides);
    assert_eq!(
        (from_flag, origin),
        (Size::from_gib(4), Origin::Flag("--set store.size = 4GiB".into())),
        "the last wins"
    );
}

#[test]
fn every_shape_can_be_set_from_outside() {
    let mut overrides = variables(&[
        ("ISTHMUS_ADMIN_NAMES", "a.example, b.example"),
        ("ISTHMUS_STORE_ENCRYPTION", "false"),
        ("ISTHMUS_COMPRESSION_LEVEL", "7"),
        ("ISTHMUS_LIMITS_ADMISSION_ON", "10"),
        ("ISTHMUS_RULE", r#"[{ listen = "[::1]:4450", server = "192.0.2.9:1445", ports = [] }]"#),
        ("ISTHMUS_TLS_CA", "other/ca.pem"),
        ("ISTHMUS_PEER_ADRESS", "slip"),
        ("ISTHMUS_SERVER_PORT", "tcp://10.0.0.1:7810"),
    ]);
    overrides.flag("--log-level", "log.level", "debug");
    let loaded = client(CLIENT, &overrides).unwrap();
    let config = loaded.config;
    assert_eq!(config.admin.names, ["a.example", "b.example"]);
    assert!(!config.store.encryption);
    assert_eq!(config.compression.level, CompressionLevel::Fixed(7));
    assert_eq!((config.limits.admission_on, config.limits.admission_off), (10, 9));
    assert_eq!(config.rules.listeners().next().unwrap().1.target.to_string(), "192.0.2.9:1445");
    assert_eq!(
        config.tls.ca,
        std::env::current_dir().unwrap().join("other/ca.pem"),
        "relative to the current folder"
    );
    assert_eq!(config.log.level.as_str(), "debug");
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].contains("ISTHMUS_PEER_ADRESS")
            && warnings[0].contains("did you mean ISTHMUS_PEER_ADDRESS")
    );
}

#[test]
fn what_check_prints_parses_to_the_same_configuration() {
    let full = include_str!("full/client.toml");
    for text in [CLIENT, full] {
        let first = client(text, &Overrides::none()).unwrap();
        let printed = first.effective.to_string();
        let elsewhere = Path::new("/somewhere/else.toml");
        let second = ClientConfig::parse(printed.as_bytes(), elsewhere, &Overrides::none());
        assert_eq!(second.unwrap_or_else(|e| panic!("{e}\n{printed}")).config, first.config, "{printed}");
    }
    for text in [SERVER, include_str!("full/server.toml")] {
        let first = server(text).unwrap();
        let printed = first.effective.to_string();
        let second = ServerConfig::parse(printed.as_bytes(), Path::new("/x.toml"), &Overrides::none());
        assert_eq!(second.unwrap_or_else(|e| panic!("{e}\n{printed}")).config, first.config, "{printed}");
    }
}

/// The full files set every key to something else than its default, so the round trip above covers every key.
#[test]
fn the_full_files_set_every_key() {
    let client = client(include_str!("full/client.toml"), &Overrides::none()).unwrap();
    let server = server(include_str!("full/server.toml")).unwrap();
    for (schema, effective) in [
        (&isthmus_config::schema::CLIENT, &client.effective),
        (&isthmus_config::schema::SERVER, &server.effective),
    ] {
        for key in schema.keys {
            let (value, origin) = effective
                .value(key.section, key.name)
                .unwrap_or_else(|| panic!("{} is never read", key.path()));
            assert!(
                matches!(origin, Origin::File { .. }),
                "{} stands in full/{}.toml",
                key.path(),
                schema.side
            );
            if let isthmus_config::schema::DefaultValue::Value(default) = key.default {
                assert_ne!(value, default, "{} has its default in full/{}.toml", key.path(), schema.side);
            }
        }
    }
}

#[test]
fn environment_variables_are_unambiguous() {
    for schema in [&isthmus_config::schema::CLIENT, &isthmus_config::schema::SERVER] {
        let mut names: Vec<String> = schema.keys.iter().map(|key| key.path().replace('.', "_")).collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "{}", schema.side);
    }
}

#[test]
fn the_example_files_are_valid() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/examples");
    let client = ClientConfig::load(&examples.join("client.toml"), &Overrides::none()).unwrap();
    let server = ServerConfig::load(&examples.join("server.toml"), &Overrides::none()).unwrap();
    assert_eq!(client.warnings, []);
    assert_eq!(server.warnings, []);
}

#[test]
fn keys_come_with_everything_that_they_need() {
    let text = include_str!("full/server.toml");
    let keys = server(text).unwrap().config.keys;
    assert_eq!(keys.keytabs[0], PathBuf::from("/etc/isthmus/keys/files.keytab"), "relative to the file");
    assert_eq!(keys.releases.rules[1].name, "release 2");
    assert_eq!(keys.commands[1].name, "command 2");
    assert_eq!(keys.commands[1].output, isthmus_keys::CommandOutput::StandardOutput);
    isthmus_keys::ReleasePolicy::new(&keys.releases).unwrap();
    let defaults = server(SERVER).unwrap().config.keys;
    assert_eq!(
        defaults,
        isthmus_keys::KeysConfig::default(),
        "nothing is held or released unless it is configured"
    );
    assert!(
        server(SERVER).unwrap().config.smb.enabled
            && client(CLIENT, &Overrides::none()).unwrap().config.smb.enabled
    );
}

#[test]
fn keys_are_set_from_outside_as_other_keys_are() {
    let mut overrides = variables(&[
        ("ISTHMUS_KEYS_KEYTABS", "/a.keytab,/b.keytab"),
        ("ISTHMUS_KEYS_RELEASE", r#"[{ peer = "l", kind = "laptop", users = "alice" }]"#),
        ("ISTHMUS_SMB_ENABLED", "false"),
    ]);
    overrides.set(r#"keys.command=[{ argv = ["/bin/true"], kind = "keytab" }]"#);
    let loaded = ServerConfig::parse(SERVER.as_bytes(), Path::new("s.toml"), &overrides).unwrap();
    assert_eq!(loaded.warnings, []);
    let keys = loaded.config.keys;
    assert_eq!((keys.keytabs.len(), keys.commands.len(), keys.releases.rules.len()), (2, 1, 1));
    assert!(!loaded.config.smb.enabled);
    overrides.set("keys.command.kind=keytab");
    let error = ServerConfig::parse(SERVER.as_bytes(), Path::new("s.toml"), &overrides).unwrap_err();
    assert!(error.to_string().contains("a list of sections is set as a whole: keys.command=[{"), "{error}");
}

#[test]
fn a_branch_has_no_keys_wherever_they_come_from() {
    let why = "secrets that open sessions are kept by the server-side proxy alone";
    let mut flag = Overrides::none();
    flag.set("keys.keytabs=/etc/krb5.keytab");
    let variable = variables(&[("ISTHMUS_KEYS_PASSWORD_HASHES", "/etc/hashes")]);
    let errors = [
        client(&format!("{CLIENT}[keys]\n"), &Overrides::none()).unwrap_err(),
        client(&format!("{CLIENT}[[keys.command]]\n"), &Overrides::none()).unwrap_err(),
        client(CLIENT, &flag).unwrap_err(),
        client(CLIENT, &variable).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.0.len(), 1, "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn keys_that_are_of_no_use_give_a_warning() {
    let texts = |text: &str| -> Vec<String> {
        server(&format!("{SERVER}{text}")).unwrap().warnings.iter().map(ToString::to_string).collect()
    };
    assert!(texts("[keys]\nkeytabs = \"a\"\n")[0].contains("no [[keys.release]] allows any peer"));
    let rule = "[[keys.release]]\npeer = \"l\"\nkind = \"laptop\"\nusers = \"alice\"\n";
    assert!(texts(rule)[0].contains("there is nothing to release"));
    assert_eq!(texts(&format!("[keys]\nkeytabs = \"a\"\n{rule}")), [""; 0]);
}

#[test]
fn files_that_cannot_be_read_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing.toml");
    let error = ClientConfig::load(&missing, &Overrides::none()).unwrap_err();
    assert!(
        matches!(&error, LoadError::Unreadable { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
    );
    assert!(error.to_string().contains("missing.toml"));

    let long = dir.path().join("long.toml");
    std::fs::write(&long, vec![b'#'; FILE_BYTES_MAX as usize + 1]).unwrap();
    assert!(matches!(ServerConfig::load(&long, &Overrides::none()), Err(LoadError::TooLong { .. })));

    let latin1 = dir.path().join("latin1.toml");
    std::fs::write(&latin1, b"[peer]\n# caf\xe9\n").unwrap();
    let error = ClientConfig::load(&latin1, &Overrides::none()).unwrap_err().to_string();
    assert!(error.contains("latin1.toml:2: ") && error.contains("UTF-8"), "{error}");
}

#[test]
fn a_private_key_in_the_wrong_place_is_not_repeated() {
    let secret = "MC4CAQAwBQYDK2VwBCIEIH";
    let pem = format!("-----BEGIN PRIVATE KEY-----\\n{secret}\\n-----END PRIVATE KEY-----");
    for key in ["peer.address", "tls.key", "log.level", "limits.admission_on", "compression.level", "no.such"]
    {
        let mut overrides = variables(&[]);
        overrides.set(&format!("{key}={pem}"));
        let error = client(CLIENT, &overrides).unwrap_err().to_string();
        assert!(!error.contains(secret), "{key}: {error}");
        overrides = variables(&[(&format!("ISTHMUS_{}", key.replace('.', "_").to_uppercase()), &pem)]);
        if let Err(error) = client(CLIENT, &overrides) {
            assert!(!error.to_string().contains(secret), "{key}: {error}");
        }
    }
    let line = "alice:1000:X:FC525C9683E8FE067095BA2DDC971889:[U ]:";
    for value in [line, &line[13..45]] {
        for key in
            ["keys.password_hashes", "keys.gateway_burst", "keys.administrator_groups", "log.level", "x"]
        {
            let mut overrides = Overrides::none();
            overrides.set(&format!("{key}={value}"));
            let file = Path::new("server.toml");
            match ServerConfig::parse(SERVER.as_bytes(), file, &overrides) {
                Ok(_) => assert_eq!((key, value.len()), ("keys.password_hashes", 32), "it could be a path"),
                Err(error) => assert!(!error.to_string().contains("FC525C"), "{key}: {error}"),
            }
        }
    }
    let error = client(&CLIENT.replace("c.key", &pem), &Overrides::none()).unwrap_err();
    assert!(matches!(error.0[0].problem, Problem::Impossible { .. }));
    assert!(!error.to_string().contains(secret), "{error}");
}
