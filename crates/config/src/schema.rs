//! Every key of both files: its shape, its default and what it does. Reading, the documentation, the environment
//! variables and "did you mean" all follow this one table.

use crate::sections::{LogFormat, LogLevel};
use crate::smb::PATTERNS_MAX;
use crate::units::{Size, format_duration};
use crate::words::{Acceleration, Action, InterceptMode, ReleaseKind, SecretKind, WhenUnavailable};
use isthmus_keys::limits::{
    COMMAND_ARGUMENTS_MAX, COMMAND_INTERVAL_MIN, COMMAND_TIMEOUT_MAX, RULE_ENTRIES_MAX,
};
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
    /// A list of those.
    HostPorts(u16),
    /// A list of branch gateways: name and address.
    Gateways,
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
    /// A list of names of network interfaces.
    Interfaces,
    /// A list of paths of files.
    Paths,
    /// A program by its absolute path and its arguments.
    Arguments,
    /// A list of users: `DOMAIN\user`, `user@domain`, all of a domain, all.
    Users,
    /// A list of groups by security identifier.
    Groups,
    /// A list of file servers, by name or address, or all below a name.
    Servers,
    /// A list of patterns of names of shares or files.
    Patterns,
    /// A share, and a folder in it.
    Share,
    /// A user.
    User,
    /// Two times of day.
    TimeWindow,
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

    /// Sections that stand directly within `section`: `keys.command` within `keys`. The empty name is the whole file.
    pub fn within(&self, section: &str) -> Vec<&'static str> {
        let is_within = |name: &&str| name.rsplit_once('.').map_or("", |(outer, _)| outer) == section;
        self.sections().into_iter().filter(is_within).collect()
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
            Shape::HostPorts(port) => {
                format!("hosts, with a port unless it is {port}, such as [\"server.example:{port}\"]")
            }
            Shape::Gateways => format!(
                "names and addresses of gateways, with a port unless it is {PROBE_PORT}, such as [\"branch-7@10.1.0.1\"]"
            ),
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
            Shape::Interfaces => "names of network interfaces, such as [\"eth1\", \"wg*\"]".into(),
            Shape::Paths => "paths of files, such as [\"/etc/isthmus/files.keytab\"]".into(),
            Shape::Arguments => "a program's absolute path and its arguments, such as [\"/usr/bin/pdbedit\", \"-Lw\"]".into(),
            Shape::Users => {
                "users, such as ['CORP\\alice', \"alice@corp.example\", \"alice\", 'CORP\\*', \"*@corp.example\", \"*\"]".into()
            }
            Shape::Groups => "security identifiers of groups, such as [\"S-1-5-21-1-2-3-1105\"]".into(),
            Shape::Patterns => "patterns of names, such as [\"*.mdb\", \"audit/*\"]".into(),
            Shape::Share => "a share, or a folder in one, such as \"//fs1.example/projects/plans\"".into(),
            Shape::User => "a user, such as 'CORP\\alice', \"alice@corp.example\" or \"alice\"".into(),
            Shape::TimeWindow => "two times of day, such as \"22:00-06:00\"".into(),
            Shape::Servers => "host names, addresses or domains, such as [\"fs1.example\", \"*.corp.example\"]".into(),
        }
    }

    /// Whether the shape is a list.
    pub fn is_list(&self) -> bool {
        matches!(
            self,
            Shape::Ports
                | Shape::HostPorts(_)
                | Shape::Gateways
                | Shape::Networks
                | Shape::Destinations
                | Shape::Names
                | Shape::Interfaces
                | Shape::Paths
                | Shape::Arguments
                | Shape::Users
                | Shape::Groups
                | Shape::Servers
                | Shape::Patterns
        )
    }

    /// Most entries of a list of this shape.
    pub fn entries_max(&self) -> usize {
        match self {
            Shape::Users | Shape::Groups | Shape::Servers => RULE_ENTRIES_MAX,
            Shape::Arguments => COMMAND_ARGUMENTS_MAX,
            Shape::Patterns => PATTERNS_MAX,
            _ => LIST_LEN_MAX,
        }
    }
}

/// Most entries of one list, but for those whose own limit is another.
const LIST_LEN_MAX: usize = 1024;

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
    PEER_BACKUPS: "peer" "backups", Shape::HostPorts(PEER_PORT), Value("[]"),
        "Further server-side proxies, in this order, for new connections while `peer.address` does not answer. Each must have \
         its own host in its certificate.";

    LOCATION_SERVER: "location" "server", Shape::HostPort(SMB_PORT), Unset,
        "The file server that the way to is measured. While it is near, nothing is optimised.";
    LOCATION_NEAR: "location" "near", Shape::Duration(Duration::from_micros(100), seconds(1)), Value("\"5 ms\""),
        "It is near while a connection to it is made sooner than this.";
    LOCATION_GATEWAYS: "location" "gateways", Shape::Gateways, Value("[]"),
        "Branch gateways, each as the name in its certificate and where it answers probes (`location.answer`). While one answers, \
         connections go straight, for the gateway to optimise.";
    LOCATION_GATEWAY_NEAR: "location" "gateway_near", Shape::Duration(Duration::from_millis(1), seconds(1)),
        Value("\"20 ms\""),
        "A gateway that answers later than this is reached from elsewhere, and does not count.";
    LOCATION_ANSWER: "location" "answer", Shape::Listen, Unset,
        "UDP address where this proxy, as the gateway of a branch, answers the probes of laptops.";

    FLEET_CA: "fleet" "ca", Shape::Path, Unset,
        "Directory of the certificate authority, with its key. Lets this proxy enrol laptops, renew their certificates and \
         sign their policies. Needs `tls.crl`.";
    FLEET_PATH: "fleet" "path", Shape::Path, Value("\"/var/lib/isthmus/server/fleet\""),
        "Directory of the register: tokens, policies, agents.";
    FLEET_DAYS: "fleet" "days", Shape::Integer(1, 825), Value("30"),
        "Days that an agent's certificate is valid. It is renewed when a third of them is left.";

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

    INTERCEPT_MODE: "intercept" "mode", Shape::Word(InterceptMode::WORDS), Value("\"off\""),
        "How connections come here without clients knowing. `tproxy`: this gateway takes what it forwards, and keeps the \
         clients' addresses. `redirect`: the same by rewriting destinations. `local`: this machine's own connections. See \
         docs/interception.md.";
    INTERCEPT_PORT: "intercept" "port", Shape::Integer(1, 65_535), Value("7813"),
        "Port on which intercepted connections arrive. What connects to it directly is closed.";
    INTERCEPT_INTERFACES: "intercept" "interfaces", Shape::Interfaces, Value("[]"),
        "Interfaces that clients are behind; with `local`, that connections leave by. Empty: all but loopback.";
    INTERCEPT_PORTS: "intercept" "ports", Shape::Ports, Value("[445]"),
        "Target ports that are intercepted. What is done with a connection is then for the rules to say.";
    INTERCEPT_SOURCE: "intercept" "source", Shape::Networks, Value("[]"),
        "Clients that are intercepted. Empty: all.";
    INTERCEPT_DESTINATION: "intercept" "destination", Shape::Networks, Value("[]"),
        "Targets that are intercepted. Empty: all.";
    INTERCEPT_EXCEPT: "intercept" "except", Shape::Networks, Value("[]"),
        "Targets that are never intercepted.";
    INTERCEPT_RESET_PREEXISTING: "intercept" "reset_preexisting", Shape::Boolean, Value("false"),
        "Whether connections that were made while they could not be optimised are reset, once, when they can: clients make \
         them anew, and they come back optimised.";
    INTERCEPT_INSTALL: "intercept" "install", Shape::Boolean, Value("true"),
        "Whether `run` puts the packet filter and routing rules in, and takes them with it however it ends. If not, \
         `intercept install` does.";
    INTERCEPT_MARK_CLIENT: "intercept" "mark", Shape::Integer(1, MARK_MAX), Value("30739"),
        "Mark (0x7813) of packets that belong to the proxy. Nothing else on the machine may use it.";
    INTERCEPT_TABLE_CLIENT: "intercept" "table", Shape::Integer(256, TABLE_MAX), Value("7813"),
        "Number of the routing table that delivers marked packets here. Nothing else on the machine may use it.";
    INTERCEPT_PRIORITY_CLIENT: "intercept" "priority", Shape::Integer(1, 32_765), Value("100"),
        "Priority of the routing rule that leads marked packets to this table.";
    INTERCEPT_SOURCE_SERVER: "intercept" "source", Shape::Networks, Value("[]"),
        "Clients that targets see under their own addresses, and ports if they are free, in place of the proxy's. Their \
         answers must come back through this machine. Empty: none. See docs/interception.md.";
    INTERCEPT_MARK_SERVER: "intercept" "mark", Shape::Integer(1, MARK_MAX), Value("30740"),
        "Mark (0x7814) of packets that belong to the proxy. Nothing else on the machine may use it.";
    INTERCEPT_TABLE_SERVER: "intercept" "table", Shape::Integer(256, TABLE_MAX), Value("7814"),
        "Number of the routing table that delivers marked packets here. Nothing else on the machine may use it.";
    INTERCEPT_PRIORITY_SERVER: "intercept" "priority", Shape::Integer(1, 32_765), Value("101"),
        "Priority of the routing rule that leads marked packets to this table.";

    ALLOW_DESTINATION: "allow" "destination", Shape::Destinations, Required,
        "Targets that may be connected to. Networks decide on the resolved address, names on the name asked for.";
    ALLOW_PORTS: "allow" "ports", Shape::Ports, Value("[445]"),
        "Ports that may be connected to on these targets.";

    KEYS_KEYTABS: "keys" "keytabs", Shape::Paths, Value("[]"),
        "Keytabs with the keys of file servers, by which Kerberos sessions are opened. Read again when they change. Each \
         must be there when the proxy starts, with mode 0600 or 0400.";
    KEYS_PASSWORD_HASHES: "keys" "password_hashes", Shape::Paths, Value("[]"),
        "Files of users' NT hashes in the form of smbpasswd, by which NTLM sessions are opened. As `keys.keytabs`.";
    KEYS_ADMINISTRATORS: "keys" "administrators", Shape::Users, Value("[]"),
        "Administrators beside the built-in ones, whose keys no rule releases unless it says so.";
    KEYS_ADMINISTRATOR_GROUPS: "keys" "administrator_groups", Shape::Groups, Value("[]"),
        "Groups of administrators beside the built-in ones. Only Kerberos tickets tell the groups.";
    KEYS_GATEWAY_BURST: "keys" "gateway_burst", Shape::Integer(1, RATE_MAX), Value("2000"),
        "Sessions whose keys one gateway may be given at once.";
    KEYS_GATEWAY_PER_MINUTE: "keys" "gateway_per_minute", Shape::Integer(1, RATE_MAX), Value("600"),
        "Sessions whose keys it may be given each minute after that.";
    KEYS_LAPTOP_BURST: "keys" "laptop_burst", Shape::Integer(1, RATE_MAX), Value("60"),
        "Sessions whose keys one laptop may be given at once.";
    KEYS_LAPTOP_PER_MINUTE: "keys" "laptop_per_minute", Shape::Integer(1, RATE_MAX), Value("30"),
        "Sessions whose keys it may be given each minute after that.";

    COMMAND_NAME: "keys.command" "name", Shape::Text, Computed("`command N`, counted from 1"),
        "Shown in logs and on the console.";
    COMMAND_ARGV: "keys.command" "argv", Shape::Arguments, Required,
        "What is run when the proxy starts and then on a schedule, without a shell. Anyone on the machine can see \
         arguments: no secret belongs here.";
    COMMAND_KIND: "keys.command" "kind", Shape::Word(SecretKind::WORDS), Required,
        "What it brings: `keytab`, or `password-hashes` in the form of smbpasswd.";
    COMMAND_FILE: "keys.command" "file", Shape::Path, Unset,
        "The file that it writes. Without it, what it brings is taken from its standard output and touches no disk.";
    COMMAND_INTERVAL: "keys.command" "interval", Shape::Duration(COMMAND_INTERVAL_MIN, seconds(30 * 86_400)), Value("\"1 h\""),
        "Time from the end of one run to the start of the next.";
    COMMAND_TIMEOUT: "keys.command" "timeout", Shape::Duration(seconds(1), COMMAND_TIMEOUT_MAX), Value("\"1 min\""),
        "Time after which it is killed, with all that it has started.";

    RELEASE_NAME: "keys.release" "name", Shape::Text, Computed("`release N`, counted from 1"),
        "Shown in logs. No two rules may have the same.";
    RELEASE_PEER: "keys.release" "peer", Shape::Text, Required,
        "Name in the certificate of the client-side proxy that may be given session keys, letter by letter.";
    RELEASE_KIND: "keys.release" "kind", Shape::Word(ReleaseKind::WORDS), Required,
        "`gateway`: serves a branch. `laptop`: serves one person's machine. All rules of one peer say the same.";
    RELEASE_SUBNETS: "keys.release" "subnets", Shape::Networks, Value("[]"),
        "A gateway's clients; at least one network. Not for a laptop.";
    RELEASE_USERS: "keys.release" "users", Shape::Users, Required,
        "Users whose sessions' keys are released. A laptop's users are each named.";
    RELEASE_SERVERS: "keys.release" "servers", Shape::Servers, Value("[]"),
        "File servers, as clients ask for them through the proxy. Empty: all.";
    RELEASE_ADMINISTRATORS: "keys.release" "administrators", Shape::Boolean, Value("false"),
        "Whether administrators among the users are released too.";
    RELEASE_MACHINE_ACCOUNTS: "keys.release" "machine_accounts", Shape::Boolean, Value("false"),
        "Whether machine accounts and services among the users are released too.";

    WARM_LOCATION: "warm" "location", Shape::Share, Required,
        "What to read, so that both stores know it before users ask. A rule must listen for that server.";
    WARM_USER: "warm" "user", Shape::User, Required,
        "The user to read as. One that may read and nothing else is enough.";
    WARM_PASSWORD_FILE: "warm" "password_file", Shape::Path, Required,
        "A file with the user's password as its first line, with mode 0600 or 0400. Read each time.";
    WARM_WINDOW: "warm" "window", Shape::TimeWindow, Value("\"22:00-06:00\""),
        "When to read, in local time. Each time it opens, what is new or has changed is read; what is left when it closes \
         waits for the next time.";
    WARM_RATE: "warm" "rate", Shape::Size(Size::from_bytes(64 << 10), Size::from_gib(16)), Unset,
        "Most bytes a second that are read. Unset: as fast as it goes.";

    SMB_ENABLED: "smb" "enabled", Shape::Boolean, Value("true"),
        "Whether SMB is understood on optimised connections. If not, it is reduced as plain bytes. Both sides must have \
         it on.";
    SMB_ACCELERATION: "smb" "acceleration", Shape::Word(Acceleration::WORDS), Value("\"bounded\""),
        "How far round trips are removed. `bounded`: shared leases and watches are used too, so that what a client sees is \
         as old as the news of a change takes to come, never older than two seconds. `strict`: only leases that the client \
         has itself. `off`: every request goes to the server. The stricter side decides.";
    SMB_EARLY_CLOSE: "smb" "early_close", Shape::Boolean, Value("false"),
        "Client side: whether a client that has written a file under an exclusive lease has its end confirmed before the \
         server has the last bytes. Uploads of many files take half the time; an error that comes late is in the log alone.";

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

    SMB_NEVER_BEHIND: "smb" "never_behind", Shape::Patterns,
        Value("[\"*.mdb\", \"*.accdb\", \"*.ldb\", \"*.laccdb\", \"*.pst\", \"*.ost\", \"*.nsf\", \"*.sqlite*\", \"*.db\", \"*.db-*\", \"*.dbf\", \
               \"*.mdf\", \"*.ldf\", \"*.ndf\", \"*.edb\", \"*.fdb\", \"*.qbw\", \"*.tdb\", \"*.tps\", \"*.vhd*\", \"*.vmdk\"]"),
        "Files whose writes are never answered before the server has them, unless an `[[smb.rule]]` says that they are: \
         databases and mail files.";

    SMB_RULE_SHARES: "smb.rule" "shares", Shape::Patterns, Value("[]"),
        "Names of shares that the rule is for. `*` is any run of characters, `?` is one, case makes no difference. Empty: all.";
    SMB_RULE_NAMES: "smb.rule" "names", Shape::Patterns, Value("[]"),
        "Files that the rule is for. A pattern with `/` is for the whole name from the share's root on, so that `audit/*` is all \
         below a folder; any other is for the last part of the name. Empty: all.";
    SMB_RULE_ACCELERATION: "smb.rule" "acceleration", Shape::Word(Acceleration::WORDS), Unset,
        "As `smb.acceleration`, for these. Unset: what a later rule or `smb.acceleration` says.";
    SMB_RULE_WRITE_BEHIND: "smb.rule" "write_behind", Shape::Boolean, Unset,
        "Whether writes under an exclusive lease may be answered before the server has them. Unset: what a later rule or \
         `smb.never_behind` says.";
    SMB_RULE_OPEN_AHEAD: "smb.rule" "open_ahead", Shape::Boolean, Unset,
        "Whether the server-side proxy may open, read and query these before a client asks for them. `false` for what is \
         audited: the server's log then shows what users did and nothing else. Unset: what a later rule says, else true.";

    DRAIN_DEADLINE: "drain" "deadline", Shape::Duration(seconds(0), seconds(86_400)), Value("\"30 s\""),
        "After SIGTERM no new connections are taken; those that are open may finish for this long.";

    COMPRESSION_LEVEL: "compression" "level", Shape::Level, Value("\"auto\""),
        "zstd level for new data. `auto` goes by what more effort saves of the time spent waiting for the WAN.";
}

/// The port on which a server-side proxy listens by default.
pub const PEER_PORT: u16 = 7810;
/// The UDP port on which a branch gateway answers probes by default.
pub const PROBE_PORT: u16 = 7815;
/// The port of SMB, the default target port.
pub const SMB_PORT: u16 = 445;
/// Most releases that a rate may allow.
const RATE_MAX: i64 = 1_000_000;
const WINDOW_MAX: Size = Size::from_bytes(isthmus_types::limits::WINDOW_LAN_BYTES);

/// Largest mark of a packet.
const MARK_MAX: i64 = 0xffff_ffff;
/// Largest number of a routing table.
const TABLE_MAX: i64 = 0x7fff_ffff;

/// The client-side proxy's file.
pub static CLIENT: Schema = Schema {
    side: "client",
    repeated: &["rule", "warm", "smb.rule"],
    keys: &[
        &PEER_ADDRESS,
        &PEER_SERVER_NAME,
        &PEER_BACKUPS,
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
        &WARM_LOCATION,
        &WARM_USER,
        &WARM_PASSWORD_FILE,
        &WARM_WINDOW,
        &WARM_RATE,
        &INTERCEPT_MODE,
        &INTERCEPT_PORT,
        &INTERCEPT_INTERFACES,
        &INTERCEPT_PORTS,
        &INTERCEPT_SOURCE,
        &INTERCEPT_DESTINATION,
        &INTERCEPT_EXCEPT,
        &INTERCEPT_RESET_PREEXISTING,
        &INTERCEPT_INSTALL,
        &INTERCEPT_MARK_CLIENT,
        &INTERCEPT_TABLE_CLIENT,
        &INTERCEPT_PRIORITY_CLIENT,
        &LOCATION_SERVER,
        &LOCATION_NEAR,
        &LOCATION_GATEWAYS,
        &LOCATION_GATEWAY_NEAR,
        &LOCATION_ANSWER,
        &SMB_ENABLED,
        &SMB_ACCELERATION,
        &SMB_EARLY_CLOSE,
        &SMB_NEVER_BEHIND,
        &SMB_RULE_SHARES,
        &SMB_RULE_NAMES,
        &SMB_RULE_ACCELERATION,
        &SMB_RULE_WRITE_BEHIND,
        &SMB_RULE_OPEN_AHEAD,
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
    repeated: &["allow", "smb.rule", "keys.command", "keys.release"],
    keys: &[
        &LISTEN_ADDRESS,
        &TLS_CERTIFICATE,
        &TLS_KEY,
        &TLS_CA,
        &TLS_CRL,
        &ALLOW_DESTINATION,
        &ALLOW_PORTS,
        &INTERCEPT_SOURCE_SERVER,
        &INTERCEPT_INSTALL,
        &INTERCEPT_MARK_SERVER,
        &INTERCEPT_TABLE_SERVER,
        &INTERCEPT_PRIORITY_SERVER,
        &FLEET_CA,
        &FLEET_PATH,
        &FLEET_DAYS,
        &SMB_ENABLED,
        &SMB_ACCELERATION,
        &SMB_EARLY_CLOSE,
        &SMB_NEVER_BEHIND,
        &SMB_RULE_SHARES,
        &SMB_RULE_NAMES,
        &SMB_RULE_ACCELERATION,
        &SMB_RULE_WRITE_BEHIND,
        &SMB_RULE_OPEN_AHEAD,
        &KEYS_KEYTABS,
        &KEYS_PASSWORD_HASHES,
        &KEYS_ADMINISTRATORS,
        &KEYS_ADMINISTRATOR_GROUPS,
        &KEYS_GATEWAY_BURST,
        &KEYS_GATEWAY_PER_MINUTE,
        &KEYS_LAPTOP_BURST,
        &KEYS_LAPTOP_PER_MINUTE,
        &COMMAND_NAME,
        &COMMAND_ARGV,
        &COMMAND_KIND,
        &COMMAND_FILE,
        &COMMAND_INTERVAL,
        &COMMAND_TIMEOUT,
        &RELEASE_NAME,
        &RELEASE_PEER,
        &RELEASE_KIND,
        &RELEASE_SUBNETS,
        &RELEASE_USERS,
        &RELEASE_SERVERS,
        &RELEASE_ADMINISTRATORS,
        &RELEASE_MACHINE_ACCOUNTS,
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
