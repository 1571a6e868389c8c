//! Every key of both files: its shape, its default and what it does. Reading, the documentation, the environment
//! variables and "did you mean" all follow this one table.

use crate::sections::{LogFormat, LogLevel};
use crate::units::{Size, format_duration};
use crate::words::{Action, WhenUnavailable};
use std::time::Duration;

/// One key.
#[derive(Debug)]
pub struct Key {
    /// Section it stands in, without brackets.
    pub section: &'static str,
    pub name: &'static str,
    pub shape: Shape,
    pub default: DefaultValue,
    /// What it does, one or two sentences in Markdown.
    pub doc: &'static str,
}

/// What a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Free text for people.
    Text,
    /// Path of a file or directory.
    Path,
    /// Host and port; the port may be left out.
    HostPort(u16),
    /// The name or address in a certificate.
    ServerName,
    /// Address and port to listen on.
    Listen,
    /// As `Listen`, or `"off"`.
    ListenOrOff,
    Boolean,
    /// A whole number in a range, both ends included.
    Integer(i64, i64),
    /// A size in a range, both ends included.
    Size(Size, Size),
    /// A duration in a range, both ends included.
    Duration(Duration, Duration),
    /// One of a few words.
    Word(&'static [&'static str]),
    /// A zstd level or `"auto"`.
    Level,
    /// A reduction domain.
    Domain,
    /// A list of ports and port ranges.
    Ports,
    /// A list of networks.
    Networks,
    /// A list of networks, host names and globs.
    Destinations,
    /// A list of host names.
    Names,
}

/// What holds when a key is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// It must be there.
    Required,
    /// It is then not set.
    Unset,
    /// TOML text of the value.
    Value(&'static str),
    /// Computed from other keys, in these words.
    Computed(&'static str),
}

/// One side's file.
#[derive(Debug)]
pub struct Schema {
    /// "client" or "server".
    pub side: &'static str,
    pub keys: &'static [&'static Key],
    /// Sections that are lists of tables.
    pub repeated: &'static [&'static str],
}

impl Schema {
    /// Sections in the order of the keys, each once.
    pub fn sections(&self) -> Vec<&'static str> {
        let mut sections: Vec<&'static str> = Vec::new();
        for key in self.keys {
            if !sections.contains(&key.section) {
                sections.push(key.section);
            }
        }
        sections
    }

    /// The key with this section and name.
    pub fn key(&self, section: &str, name: &str) -> Option<&'static Key> {
        self.keys.iter().copied().find(|key| key.section == section && key.name == name)
    }

    /// Whether `section` is a list of tables (`[[section]]`).
    pub fn is_repeated(&self, section: &str) -> bool {
        self.repeated.contains(&section)
    }
}

impl Key {
    /// `section.name`.
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }
}

impl Shape {
    /// What a value of this shape looks like, for "expected …".
    pub fn expected(&self) -> String {
        let or = |words: &[&str]| words.iter().map(|w| format!("{w:?}")).collect::<Vec<_>>().join(", ");
        match self {
            Shape::Text => "a short text".into(),
            Shape::Path => "the path of a file or directory".into(),
            Shape::HostPort(port) => {
                format!("a host, with a port unless it is {port}, such as \"server.example:{port}\"")
            }
            Shape::ServerName => "a host name or an address".into(),
            Shape::Listen => "an IP address and a port to listen on, such as \"127.0.0.1:4450\"".into(),
            Shape::ListenOrOff => {
                "an IP address and a port to listen on, such as \"127.0.0.1:4450\", or \"off\"".into()
            }
            Shape::Boolean => "true or false".into(),
            Shape::Integer(least, most) => format!("a whole number from {least} to {most}"),
            Shape::Size(least, most) => format!("a size with its unit from \"{least}\" to \"{most}\""),
            Shape::Duration(least, most) => format!(
                "a duration with its unit from \"{}\" to \"{}\"",
                format_duration(*least),
                format_duration(*most)
            ),
            Shape::Word(words) => format!("one of {}", or(words)),
            Shape::Level => "a level from 1 to 9, or \"auto\"".into(),
            Shape::Domain => "\"peer\", \"server\" or a label such as \"label:finance\"".into(),
            Shape::Ports => "ports or port ranges, such as [445, \"8000-8010\"]".into(),
            Shape::Networks => "addresses or networks, such as [\"10.1.0.0/16\", \"192.0.2.7\"]".into(),
            Shape::Destinations => {
                "networks, host names or globs, such as [\"10.1.0.0/16\", \"fs1.example\", \"*.corp.example\"]".into()
            }
            Shape::Names => "host names, such as [\"proxy.example\"]".into(),
        }
    }

    /// Whether the shape is a list.
    pub fn is_list(&self) -> bool {
        matches!(self, Shape::Ports | Shape::Networks | Shape::Destinations | Shape::Names)
    }
}

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Declares keys as statics, so that reading cannot name one that does not exist.
macro_rules! keys {
    ($($id:ident: $section:literal $name:literal, $shape:expr, $default:expr, $doc:literal;)+) => {
        $(pub(crate) static $id: Key =
            Key { section: $section, name: $name, shape: $shape, default: $default, doc: $doc };)+
    };
}

use DefaultValue::{Computed, Required, Unset, Value};

keys! {
    PEER_ADDRESS: "peer" "address", Shape::HostPort(PEER_PORT), Required,
        "The server-side proxy.";
    PEER_SERVER_NAME: "peer" "server_name", Shape::ServerName, Computed("the host of `peer.address`"),
        "The name or address that the peer's certificate must carry.";

    LISTEN_ADDRESS: "listen" "address", Shape::Listen, Value("\"0.0.0.0:7810\""),
        "Where client-side proxies connect to. `[::]:7810` listens on IPv6, and on most systems on IPv4 too.";

    TLS_CERTIFICATE: "tls" "certificate", Shape::Path, Required,
        "This proxy's certificate (PEM), followed by intermediates if there are any.";
    TLS_KEY: "tls" "key", Shape::Path, Required,
        "The certificate's private key (PEM). Only the proxy's user should be able to read it.";
    TLS_CA: "tls" "ca", Shape::Path, Required,
        "The authority (PEM) that the peer's certificate must come from.";
    TLS_CRL: "tls" "crl", Shape::Path, Unset,
        "The authority's revocation list (PEM). Without it nothing counts as revoked.";

    RULE_NAME: "rule" "name", Shape::Text, Computed("`rule N`, counted from 1"),
        "Shown in logs and on the console.";
    RULE_ACTION: "rule" "action", Shape::Word(Action::WORDS), Value("\"optimise\""),
        "`optimise`: carried by the pair. `reduce-only`: carried, reduced as plain bytes whatever the protocol. \
         `pass-through`: relayed straight to the target. `deny`: closed.";
    RULE_LISTEN: "rule" "listen", Shape::Listen, Unset,
        "An explicit listener. The rule then matches what this listener accepts and nothing else, and needs `server`.";
    RULE_SERVER: "rule" "server", Shape::HostPort(SMB_PORT), Unset,
        "The target behind `listen`. The server-side proxy resolves its name.";
    RULE_SOURCE: "rule" "source", Shape::Networks, Value("[]"),
        "Clients the rule is for. Empty: all.";
    RULE_DESTINATION: "rule" "destination", Shape::Destinations, Value("[]"),
        "Targets the rule is for. Nothing is resolved: a network matches addresses, a name matches names. Empty: all. \
         Not together with `listen`.";
    RULE_PORTS: "rule" "ports", Shape::Ports, Value("[]"),
        "Target ports the rule is for. Empty: all. Not together with `listen`.";
    RULE_DOMAIN: "rule" "domain", Shape::Domain, Value("\"peer\""),
        "How far content may be matched: within everything for this peer, for each target server, or among the rules \
         that carry the same label.";
    RULE_WHEN_UNAVAILABLE: "rule" "when_unavailable", Shape::Word(WhenUnavailable::WORDS), Value("\"pass-through\""),
        "What happens when the pair cannot carry the connection: `pass-through` relays it straight to the target, \
         `refuse` closes it.";

    ALLOW_DESTINATION: "allow" "destination", Shape::Destinations, Required,
        "Targets that may be connected to. Networks decide on the resolved address, names on the name asked for.";
    ALLOW_PORTS: "allow" "ports", Shape::Ports, Value("[445]"),
        "Ports that may be connected to on these targets.";

    STORE_PATH_CLIENT: "store" "path", Shape::Path, Value("\"/var/lib/isthmus/client/store\""),
        "Directory of the chunk store. Made at the first start; one process at a time.";
    STORE_PATH_SERVER: "store" "path", Shape::Path, Value("\"/var/lib/isthmus/server/store\""),
        "Directory of the chunk store. Made at the first start; one process at a time.";
    STORE_SIZE: "store" "size", Shape::Size(Size::from_mib(16), Size::from_gib(16 << 10)), Value("\"10 GiB\""),
        "Most bytes the store's files may take. The least recently used content makes room.";
    STORE_ENCRYPTION: "store" "encryption", Shape::Boolean, Value("true"),
        "Whether new content is written encrypted (AES-256-GCM). Switching keeps what is there.";
    STORE_KEY_FILE: "store" "key_file", Shape::Path, Computed("`store.path` with `.key` appended"),
        "The store key. Made at the first start, readable by its owner only.";
    STORE_CACHE: "store" "cache", Shape::Size(Size::from_mib(1), Size::from_gib(64)), Value("\"16 MiB\""),
        "Memory for content read or written lately.";
    STORE_RESERVE: "store" "reserve", Shape::Size(Size::from_bytes(0), Size::from_gib(16 << 10)), Value("\"256 MiB\""),
        "The store learns nothing new while its disk has less free space than this.";

    LIMITS_ADMISSION_ON: "limits" "admission_on", Shape::Integer(1, 1_000_000), Value("6000"),
        "At this many optimised connections, new ones are treated as `when_unavailable` says.";
    LIMITS_ADMISSION_OFF: "limits" "admission_off", Shape::Integer(0, 1_000_000),
        Computed("nine tenths of `limits.admission_on`"),
        "At this many, new connections are optimised again.";
    LIMITS_WINDOW: "limits" "window", Shape::Size(Size::from_mib(1), WINDOW_MAX), Value("\"64 MiB\""),
        "How many LAN bytes one direction of a connection may be ahead of what the far application has taken.";
    LIMITS_CONNECT_TIMEOUT: "limits" "connect_timeout", Shape::Duration(Duration::from_millis(100), seconds(300)),
        Value("\"10 s\""),
        "How long connecting to a target may take.";
    LIMITS_KEEPALIVE: "limits" "keepalive", Shape::Duration(seconds(1), seconds(86_400)), Value("\"2 min\""),
        "Idle time after which the kernel probes whether an application is still there.";

    CHANNELS_POOL_MIN: "channels" "pool_min", Shape::Integer(0, 1_024), Value("2"),
        "Idle channels kept connected, so that a new connection needs no handshake on the WAN.";
    CHANNELS_POOL_MAX: "channels" "pool_max", Shape::Integer(1, 4_096), Value("16"),
        "Idle channels above this are closed.";
    CHANNELS_RESUME_WINDOW: "channels" "resume_window", Shape::Duration(seconds(1), seconds(86_400)), Value("\"10 min\""),
        "How long connections stay open, waiting to resume, when the WAN is gone.";
    CHANNELS_HEARTBEAT: "channels" "heartbeat", Shape::Duration(Duration::from_millis(100), seconds(300)), Value("\"2 s\""),
        "Time between heartbeats to the peer, by which a dead link is noticed.";

    ADMIN_LISTEN_CLIENT: "admin" "listen", Shape::ListenOrOff, Value("\"127.0.0.1:7811\""),
        "Console, metrics and health, over plain HTTP without a password: keep it on loopback or a management network.";
    ADMIN_LISTEN_SERVER: "admin" "listen", Shape::ListenOrOff, Value("\"127.0.0.1:7812\""),
        "Console, metrics and health, over plain HTTP without a password: keep it on loopback or a management network.";
    ADMIN_NAMES: "admin" "names", Shape::Names, Value("[]"),
        "Host names, besides `localhost` and addresses, under which a browser may open the console.";

    LOG_FORMAT: "log" "format", Shape::Word(LogFormat::WORDS), Value("\"text\""),
        "Log lines for people or for machines.";
    LOG_LEVEL: "log" "level", Shape::Word(LogLevel::WORDS), Value("\"info\""),
        "Least severe level that is logged.";

    DRAIN_DEADLINE: "drain" "deadline", Shape::Duration(seconds(0), seconds(86_400)), Value("\"30 s\""),
        "After SIGTERM no new connections are taken; those that are open may finish for this long.";

    COMPRESSION_LEVEL: "compression" "level", Shape::Level, Value("\"auto\""),
        "zstd level for new data. `auto` follows whether the WAN or the processor is the bottleneck.";
}

/// The port on which a server-side proxy listens by default.
pub const PEER_PORT: u16 = 7810;
/// The port of SMB, the default target port.
pub const SMB_PORT: u16 = 445;
const WINDOW_MAX: Size = Size::from_bytes(isthmus_types::limits::WINDOW_LAN_BYTES);

/// The client-side proxy's file.
pub static CLIENT: Schema = Schema {
    side: "client",
    repeated: &["rule"],
    keys: &[
        &PEER_ADDRESS,
        &PEER_SERVER_NAME,
        &TLS_CERTIFICATE,
        &TLS_KEY,
        &TLS_CA,
        &TLS_CRL,
        &RULE_NAME,
        &RULE_ACTION,
        &RULE_LISTEN,
        &RULE_SERVER,
        &RULE_SOURCE,
        &RULE_DESTINATION,
        &RULE_PORTS,
        &RULE_DOMAIN,
        &RULE_WHEN_UNAVAILABLE,
        &STORE_PATH_CLIENT,
        &STORE_SIZE,
        &STORE_ENCRYPTION,
        &STORE_KEY_FILE,
        &STORE_CACHE,
        &STORE_RESERVE,
        &LIMITS_ADMISSION_ON,
        &LIMITS_ADMISSION_OFF,
        &LIMITS_WINDOW,
        &LIMITS_CONNECT_TIMEOUT,
        &LIMITS_KEEPALIVE,
        &CHANNELS_POOL_MIN,
        &CHANNELS_POOL_MAX,
        &CHANNELS_RESUME_WINDOW,
        &CHANNELS_HEARTBEAT,
        &ADMIN_LISTEN_CLIENT,
        &ADMIN_NAMES,
        &LOG_FORMAT,
        &LOG_LEVEL,
        &DRAIN_DEADLINE,
        &COMPRESSION_LEVEL,
    ],
};

/// The server-side proxy's file.
pub static SERVER: Schema = Schema {
    side: "server",
    repeated: &["allow"],
    keys: &[
        &LISTEN_ADDRESS,
        &TLS_CERTIFICATE,
        &TLS_KEY,
        &TLS_CA,
        &TLS_CRL,
        &ALLOW_DESTINATION,
        &ALLOW_PORTS,
        &STORE_PATH_SERVER,
        &STORE_SIZE,
        &STORE_ENCRYPTION,
        &STORE_KEY_FILE,
        &STORE_CACHE,
        &STORE_RESERVE,
        &LIMITS_ADMISSION_ON,
        &LIMITS_ADMISSION_OFF,
        &LIMITS_WINDOW,
        &LIMITS_CONNECT_TIMEOUT,
        &LIMITS_KEEPALIVE,
        &CHANNELS_RESUME_WINDOW,
        &CHANNELS_HEARTBEAT,
        &ADMIN_LISTEN_SERVER,
        &ADMIN_NAMES,
        &LOG_FORMAT,
        &LOG_LEVEL,
        &DRAIN_DEADLINE,
        &COMPRESSION_LEVEL,
    ],
};
