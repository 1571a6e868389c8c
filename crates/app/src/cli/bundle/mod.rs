//! `support-bundle`: what others need to help, in one file, without secrets, names or content.

mod scrub;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use isthmus_certs::{Details, read_certificates};
use isthmus_config::schema::{Key, Shape};
use isthmus_config::{ClientConfig, Loaded, ServerConfig, Store, Tls};
use serde_json::Value;
use zeroize::Zeroizing;

use super::doctor::{self, Examined};
use super::exit::{Exit, Failure};
use super::output::outln;
use super::{http, version};
use scrub::{Kind, Scrubber};

/// What is asked of the admin port, and the name of the file for the answer.
const ANSWERS: [(&str, &str); 10] = [
    ("/api/summary", "summary.json"),
    ("/api/peers", "peers.json"),
    ("/api/connections?state=all&limit=500", "connections.json"),
    ("/api/store", "store.json"),
    ("/api/links", "links.json"),
    ("/api/process", "process.json"),
    ("/api/events", "events.json"),
    ("/api/history?span=1h", "history-1h.json"),
    ("/api/history?span=24h", "history-24h.json"),
    ("/metrics", "metrics.txt"),
];
/// Files of this machine that say how it is set up, and name nothing.
const SYSTEM_FILES: [&str; 16] = [
    "/proc/sys/kernel/osrelease",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/net/sockstat",
    "/proc/net/sockstat6",
    "/proc/net/snmp",
    "/proc/net/netstat",
    "/proc/self/limits",
    "/proc/sys/fs/file-nr",
    "/proc/sys/net/core/rmem_max",
    "/proc/sys/net/core/wmem_max",
    "/proc/sys/net/core/default_qdisc",
    "/proc/sys/net/ipv4/tcp_rmem",
    "/proc/sys/net/ipv4/tcp_wmem",
    "/proc/sys/net/ipv4/tcp_congestion_control",
    "/proc/sys/net/ipv4/tcp_available_congestion_control",
];
/// Most bytes that are taken of one of these.
const SYSTEM_FILE_BYTES_MAX: usize = 64 << 10;
/// Largest key file from which pseudonyms are derived.
const KEY_FILE_BYTES_MAX: u64 = 4 << 10;
/// Words of `doctor` that look like host names or paths.
const KEPT_WORDS: [&str; 10] = [
    "docs/keys.md",
    "docs/configuration.md",
    "crl.pem",
    "rule.listen",
    "rule.server",
    "keys.release",
    "keys.command",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_rmem",
    "cifs/NAME",
];

/// Arguments of `support-bundle`.
#[derive(Args, Debug)]
pub struct Arguments<C: Args> {
    #[command(flatten)]
    pub configuration: C,

    /// The file to write; it must not be there yet [default: isthmus-SIDE-TIME.tar.gz]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Ask this address instead of the configuration's admin.listen
    #[arg(long, value_name = "ADDRESS:PORT")]
    address: Option<SocketAddr>,

    /// Do not write to the store's disk to see how fast it is
    #[arg(long)]
    no_disk_test: bool,
}

/// What both sides' configurations give.
struct Subject<'c> {
    side: &'static str,
    tls: &'c Tls,
    store: &'c Store,
    effective: &'c isthmus_config::Effective,
    warnings: &'c [isthmus_config::Warning],
    address: Option<SocketAddr>,
    examined: Examined,
}

/// The files of a bundle, by name.
type Files = BTreeMap<String, String>;

/// Writes the client side's bundle.
pub fn client<C: Args>(arguments: &Arguments<C>, loaded: &Loaded<ClientConfig>) -> Result<(), Failure> {
    let config = &loaded.config;
    let address = arguments.address.or(config.admin.listen);
    let examined = doctor::examine_client(loaded, arguments.address, !arguments.no_disk_test);
    let (effective, warnings) = (&loaded.effective, loaded.warnings.as_slice());
    let (tls, store) = (&config.tls, &config.store);
    write(arguments, &Subject { side: "client", tls, store, effective, warnings, address, examined })
}

/// Writes the server side's bundle.
pub fn server<C: Args>(arguments: &Arguments<C>, loaded: &Loaded<ServerConfig>) -> Result<(), Failure> {
    let config = &loaded.config;
    let address = arguments.address.or(config.admin.listen);
    let examined = doctor::examine_server(loaded, arguments.address, !arguments.no_disk_test);
    let (effective, warnings) = (&loaded.effective, loaded.warnings.as_slice());
    let (tls, store) = (&config.tls, &config.store);
    write(arguments, &Subject { side: "server", tls, store, effective, warnings, address, examined })
}

fn write<C: Args>(arguments: &Arguments<C>, subject: &Subject<'_>) -> Result<(), Failure> {
    let now = SystemTime::now();
    let stamp = humantime::format_rfc3339_seconds(now).to_string().replace(':', "");
    let name = format!("isthmus-{}-{stamp}", subject.side);
    let path = arguments.out.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.tar.gz")));
    let files = collect(subject);
    let cannot =
        |error: io::Error| Failure::new(Exit::of(error.kind()), format!("{}: {error}", path.display()));
    // Never over a file that is there, and for nobody else's eyes.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(cannot)?;
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    for (file, text) in &files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs());
        archive.append_data(&mut header, format!("{name}/{file}"), text.as_bytes()).map_err(cannot)?;
    }
    let mut file = archive.into_inner().and_then(GzEncoder::finish).map_err(cannot)?;
    file.flush().and_then(|()| file.sync_all()).map_err(cannot)?;
    outln!(
        "Wrote {} with {} files. Look into it before you pass it on; README.txt in it says what it holds.",
        path.display(),
        files.len()
    );
    Ok(())
}

fn collect(subject: &Subject<'_>) -> Files {
    let mut files = Files::new();
    let mut answers: Vec<(&str, Result<String, String>)> = Vec::new();
    for (path, file) in ANSWERS {
        let answer = match subject.address {
            Some(address) => http::get(address, path).map_err(|failure| failure.text),
            None => Err("the admin port is off".to_owned()),
        };
        answers.push((file, answer));
    }
    let (key, is_stable) = pseudonym_key(&subject.store.key_file);
    let mut scrubber = Scrubber::new(*key, kept());
    learn(&mut scrubber, subject, &answers);
    for (file, answer) in answers {
        let text = match answer {
            Ok(text) if file.ends_with(".txt") => scrubber.metrics(&text),
            Ok(text) => match serde_json::from_str::<Value>(&text) {
                Ok(mut value) => {
                    scrubber.json(&mut value, "");
                    format!("{value:#}\n")
                }
                Err(_) => "the answer is not JSON\n".to_owned(),
            },
            Err(why) => format!("{}\n", scrubber.text(&why)),
        };
        files.insert(file.to_owned(), text);
    }
    files.insert("configuration.toml".into(), configuration(subject, &scrubber));
    let doctor = subject.examined.report.for_people();
    let doctor: String = doctor.lines().map(|line| format!("{}\n", scrubber.text(line))).collect();
    files.insert("doctor.txt".into(), doctor);
    for path in SYSTEM_FILES {
        let name = path.trim_start_matches('/').replace('/', "-");
        files.insert(format!("system/{name}"), system_file(path));
    }
    files.insert("version.txt".into(), format!("{}\n", version(&format!("isthmus-{}", subject.side))));
    files.insert("README.txt".into(), readme(is_stable));
    files
}

/// The key of the pseudonyms: from the store key, so that they are the same in every bundle of this proxy; or, where that
/// cannot be read, random. Also whether they are the same.
fn pseudonym_key(file: &Path) -> (Zeroizing<[u8; 32]>, bool) {
    let is_small =
        std::fs::metadata(file).is_ok_and(|data| data.is_file() && data.len() <= KEY_FILE_BYTES_MAX);
    if is_small && let Ok(bytes) = std::fs::read(file).map(Zeroizing::new) {
        return (Zeroizing::new(blake3::derive_key("isthmus support bundle pseudonyms v1", &bytes)), true);
    }
    let mut key = Zeroizing::new([0; 32]);
    // Without random bytes pseudonyms could be tried out; they are still no names.
    let _ = getrandom::fill(key.as_mut_slice());
    (key, false)
}

/// Names of keys look like host names.
fn kept() -> impl Iterator<Item = String> {
    let schemas = [&isthmus_config::schema::CLIENT, &isthmus_config::schema::SERVER];
    let keys = schemas.into_iter().flat_map(|schema| schema.keys.iter().map(|key| key.path()));
    keys.chain(KEPT_WORDS.map(str::to_owned))
}

/// Every name that there is a place to learn it from.
fn learn(scrubber: &mut Scrubber, subject: &Subject<'_>, answers: &[(&str, Result<String, String>)]) {
    for (key, text) in subject.effective.texts() {
        if let Some(kind) = kind_of(key) {
            scrubber.learn(kind, &text);
        }
        // Both parts stand in events by themselves.
        if let Some((name, address)) = text.split_once('@').filter(|_| key.shape == Shape::Gateways) {
            scrubber.learn(Kind::Name, name);
            scrubber.learn(Kind::Host, address);
        }
    }
    for file in [&subject.tls.certificate, &subject.tls.ca] {
        for certificate in read_certificates(file).unwrap_or_default() {
            if let Ok(details) = Details::of(&certificate) {
                scrubber.learn(Kind::Name, &details.name);
                details.dns.iter().for_each(|name| scrubber.learn(Kind::Host, name));
            }
        }
    }
    if let Some(host) = nix::unistd::gethostname().ok().and_then(|host| host.into_string().ok()) {
        scrubber.learn(Kind::Host, &host);
    }
    for (_, answer) in answers {
        if let Ok(value) = answer.as_ref().map_or(Ok(Value::Null), |text| serde_json::from_str(text)) {
            scrubber.learn_json(&value, "");
        }
    }
}

/// What the text of a key of the configuration names, if anything.
fn kind_of(key: &Key) -> Option<Kind> {
    match key.shape {
        Shape::Text | Shape::Domain | Shape::Groups | Shape::Gateways => Some(Kind::Name),
        Shape::Path | Shape::Paths | Shape::Arguments => Some(Kind::Path),
        Shape::HostPort(_)
        | Shape::HostPorts(_)
        | Shape::ServerName
        | Shape::Destinations
        | Shape::Names
        | Shape::Servers => Some(Kind::Host),
        Shape::Listen | Shape::ListenOrOff | Shape::Networks => Some(Kind::Address),
        Shape::Users | Shape::User => Some(Kind::User),
        Shape::Share | Shape::Patterns => Some(Kind::Path),
        _ => None,
    }
}

fn configuration(subject: &Subject<'_>, scrubber: &Scrubber) -> String {
    let mut text = String::new();
    for warning in subject.warnings {
        text.push_str(&format!("# warning: {}: {}\n", warning.key, scrubber.text(&warning.text)));
    }
    text + &subject.effective.with_texts(&mut |key, text| match kind_of(key) {
        Some(kind) => scrubber.field(kind, text),
        None => text.to_owned(),
    })
}

fn system_file(path: &str) -> String {
    match std::fs::read(path) {
        Ok(mut bytes) => {
            bytes.truncate(SYSTEM_FILE_BYTES_MAX);
            String::from_utf8_lossy(&bytes).into_owned()
        }
        Err(error) => format!("{error}\n"),
    }
}

fn readme(is_stable: bool) -> String {
    let stable = if is_stable {
        "They are the same in every bundle of this proxy, as long as its store key is the same."
    } else {
        "The store key could not be read, so they are other ones in another bundle."
    };
    format!(
        "What this is: the state of an Isthmus proxy, for somebody who is to help with it.\n\n\
         configuration.toml   as it holds, from file, environment and command line\n\
         doctor.txt           what the program found wrong, with remedies\n\
         summary.json and others   the answers of the admin API (docs/api.md)\n\
         metrics.txt          all metrics\n\
         system/              kernel, memory, limits, settings of TCP\n\n\
         There are no keys, no passwords, no file names and no content in it. Names and addresses are replaced by \
         pseudonyms: the same name has the same one everywhere. {stable} Loopback addresses, ports and numbers are as they \
         are. Still, look through it before you pass it on.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pseudonyms_depend_on_the_key_file_alone_and_never_show_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("store.key");
        assert!(!pseudonym_key(&file).1);
        assert_ne!(*pseudonym_key(&file).0, *pseudonym_key(&file).0, "random without a key file");
        std::fs::write(&file, [5; 32]).unwrap();
        let (key, is_stable) = pseudonym_key(&file);
        assert!(is_stable);
        assert_eq!(*key, *pseudonym_key(&file).0);
        assert_ne!(*key, [5; 32]);
    }
}
