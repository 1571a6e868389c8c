use crate::{ServerPattern, UserPattern, limits};
use ipnet::IpNet;
use std::path::PathBuf;
use std::time::Duration;

/// Everything about keys that can be configured. The default holds no secret and releases nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeysConfig {
    /// Keytab files, version 0x502; each must be there when the proxy starts.
    pub keytabs: Vec<PathBuf>,
    /// Files of NT hashes in smbpasswd form; each must be there when the proxy starts.
    pub password_hashes: Vec<PathBuf>,
    /// Commands that bring secrets or refresh their files.
    pub commands: Vec<CommandConfig>,
    /// Who may be given session keys.
    pub releases: ReleasesConfig,
}

/// What a file or a command's output holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceKind {
    /// Kerberos keys in a keytab; its RC4-HMAC keys of users serve as NT hashes too.
    Keytab,
    /// NT hashes in smbpasswd form.
    PasswordHashes,
}

/// A command that is run when the proxy starts and then on a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandConfig {
    /// How messages call it.
    pub name: String,
    /// Program, by its absolute path, and its arguments; no shell reads them. It runs with an empty standard input and
    /// an environment of `PATH` and `LANG` alone.
    pub argv: Vec<String>,
    /// What it brings.
    pub kind: SourceKind,
    /// Where it leaves it.
    pub output: CommandOutput,
    /// Time from the end of one run to the start of the next.
    pub interval: Duration,
    /// Time after which it is killed, with everything it has started in its process group.
    pub timeout: Duration,
}

/// Where a command leaves secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandOutput {
    /// On its standard output: nothing is written to disk.
    StandardOutput,
    /// In this file, which need not be there before the first run. The file is not read while the command runs.
    File(PathBuf),
}

/// Who may be given session keys. Without a rule that says so, nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleasesConfig {
    /// Looked at in this order; the first one that fits a session in every respect releases it.
    pub rules: Vec<ReleaseRule>,
    /// Administrators, beside the built-in ones. They are released only by a rule that says so.
    pub administrators: Vec<UserPattern>,
    /// Groups of administrators by security identifier (`S-1-5-21-…-1105`), beside the built-in ones: the group to
    /// which the file server gives administrative rights, for example. Only Kerberos tickets tell the groups.
    pub administrator_groups: Vec<String>,
    /// How many releases each gateway gets.
    pub gateway_rate: RateLimit,
    /// How many releases each laptop gets.
    pub laptop_rate: RateLimit,
}

impl Default for ReleasesConfig {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            administrators: Vec::new(),
            administrator_groups: Vec::new(),
            gateway_rate: limits::GATEWAY_RATE,
            laptop_rate: limits::LAPTOP_RATE,
        }
    }
}

/// One permission to release session keys to one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseRule {
    /// How logs and counters call it.
    pub name: String,
    /// Name in the peer's certificate, letter by letter.
    pub peer: String,
    /// What kind of peer it is, and what that kind is bound to.
    pub scope: Scope,
    /// Users whose sessions are released. For a laptop these are its enrolled users: each must be named.
    pub users: Vec<UserPattern>,
    /// File servers, as the proxy's allow list names them; empty for all.
    pub servers: Vec<ServerPattern>,
    /// Whether administrators among the users are released too.
    pub administrators: bool,
    /// Whether machine accounts and services among the users are released too.
    pub machine_accounts: bool,
}

/// What a rule's peer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The agent on one person's machine.
    Laptop,
    /// A branch's gateway; sessions are released only for clients in these subnets.
    Gateway {
        /// At least one. `0.0.0.0/0` and `::/0` stand for all addresses.
        subnets: Vec<IpNet>,
    },
}

/// What a peer is, for the decision on a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerKind {
    /// A branch's gateway, which stands for many clients.
    Gateway,
    /// The agent on one person's machine.
    Laptop,
}

impl Scope {
    /// The kind of peer it is for.
    pub fn kind(&self) -> PeerKind {
        match self {
            Self::Laptop => PeerKind::Laptop,
            Self::Gateway { .. } => PeerKind::Gateway,
        }
    }
}

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Releases that may come at once.
    pub burst: u32,
    /// Releases that are added each minute, up to the burst.
    pub per_minute: u32,
}
