//! Session keys on the server side: worked out from what the administrator gave, and released to a peer if a rule of his
//! says so.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use isthmus_keys::{
    Decision, KeyStore, KeysConfig, KeysError, Observer, PeerIdentity, Refusal, Release, ReleasePolicy,
    SourceKind, SourceStatus, Watch,
};
use isthmus_smb_auth::{Exchange, Loaded, Recovered};
use isthmus_telemetry::{KeySourceKind, KeySourceStatus, Level, Telemetry, clean};

use crate::AppError;

/// Longest name from the network that is logged, in characters.
const NAME_CHARS_MAX: usize = 200;

/// The secrets of this proxy, kept up to date, and the rules by which session keys are released.
pub(crate) struct Keys {
    telemetry: Arc<Telemetry>,
    policy: ReleasePolicy,
    /// `None` if no source is configured.
    held: Option<Held>,
}

struct Held {
    store: Arc<KeyStore>,
    /// Stops, and ends commands that are running, when it is dropped.
    _watch: Watch,
}

/// Why a session's keys are not released, in fixed words that may be shown to the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefusedText {
    /// One word for metrics and JSON, out of a fixed set.
    pub label: &'static str,
    /// The same for people.
    pub text: String,
}

impl fmt::Display for RefusedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Keys {
    /// Loads every configured file, and begins to watch the files and to run the commands. A file that is bad or missing is
    /// an error.
    pub fn start(config: &KeysConfig, telemetry: Arc<Telemetry>) -> Result<Keys, AppError> {
        let policy = ReleasePolicy::new(&config.releases)?;
        let sources = config.keytabs.len() + config.password_hashes.len() + config.commands.len();
        if sources == 0 {
            return Ok(Keys { telemetry, policy, held: None });
        }
        isthmus_keys::deny_core_dumps()?;
        let store = Arc::new(KeyStore::open(config, Box::new(Teller(telemetry.clone())))?);
        let watch = Watch::start(&store)?;
        let rules = policy.rules().len();
        tracing::info!(sources, rules, "session keys can be released");
        Ok(Keys { telemetry, policy, held: Some(Held { store, _watch: watch }) })
    }

    /// Works out the key of a session that `server` has just accepted, and decides whether the peer whose certificate names
    /// it `peer` may be given it; names the rule that allows it. `client` is what the peer says of the SMB client,
    /// `server` the host as the peer asked for it.
    ///
    /// Each outcome is logged, without any key, and counted.
    #[allow(dead_code, reason = "the SMB stage of a session calls it")]
    pub fn release(
        &self,
        peer: &str,
        client: SocketAddr,
        server: &str,
        exchange: &Exchange,
    ) -> Result<(Recovered, String), RefusedText> {
        let outcome = self.decide(peer, client, server, exchange);
        let shown = |text: &str| clean(text, NAME_CHARS_MAX);
        let (peer_shown, server) = (shown(peer), shown(server));
        let client = client.ip().to_canonical();
        match outcome {
            Ok((recovered, rule)) => {
                let user = shown(&account(&recovered.domain, &recovered.user));
                let secret = shown(&recovered.secret);
                tracing::info!(peer = %peer_shown, %user, %server, %client, %rule, %secret, "session keys released");
                self.telemetry.count_key_release(peer, None);
                Ok((recovered, rule))
            }
            Err(Refused { text, rule, user }) => {
                let user = shown(&user.unwrap_or_else(|| claimed(exchange)));
                let (rule, reason) = (rule.as_deref().unwrap_or("none"), &text.text);
                tracing::info!(peer = %peer_shown, %user, %server, %client, %rule, %reason, "session keys not released");
                self.telemetry.count_key_release(peer, Some(text.label));
                Err(text)
            }
        }
    }

    /// State of all sources, for the console.
    pub fn sources(&self) -> Vec<KeySourceStatus> {
        let held = self.held.as_ref();
        held.map(|held| held.store.sources().into_iter().map(shown).collect()).unwrap_or_default()
    }

    fn decide(
        &self,
        peer: &str,
        client: SocketAddr,
        server: &str,
        exchange: &Exchange,
    ) -> Result<(Recovered, String), Refused> {
        let Some(held) = &self.held else {
            return Err(Refused::because("no_source", "no key source is configured"));
        };
        // A peer that no rule names costs no work.
        let Some(kind) = self.policy.peer_kind(peer) else {
            return Err(Refused::because(Refusal::NoRule.label(), Refusal::NoRule));
        };
        let recovered = exchange
            .recover(&*held.store.secrets())
            .map_err(|failure| Refused::because(failure.label(), failure))?;
        let release = Release::of(&recovered, server, client.ip());
        match self.policy.decide(&PeerIdentity { name: peer, kind }, &release, Instant::now()) {
            Decision::Release { rule } => Ok((recovered, rule)),
            Decision::Refuse { reason, rule } => {
                let user = Some(account(&recovered.domain, &recovered.user));
                Err(Refused { rule, user, ..Refused::because(reason.label(), reason) })
            }
        }
    }
}

/// A refusal with what only the log is told.
struct Refused {
    text: RefusedText,
    /// The rule that came closest.
    rule: Option<String>,
    /// The user, where the authentication has proved it.
    user: Option<String>,
}

impl Refused {
    fn because(label: &'static str, text: impl fmt::Display) -> Refused {
        Refused { text: RefusedText { label, text: text.to_string() }, rule: None, user: None }
    }
}

/// Tells people what becomes of the sources.
struct Teller(Arc<Telemetry>);

impl Observer for Teller {
    fn loaded(&self, source: &str, loaded: Loaded) {
        let Loaded { service_keys, nt_hashes, skipped } = loaded;
        let text = format!(
            "keys loaded from {source}: {service_keys} service keys, {nt_hashes} NT hashes, {skipped} entries of no use"
        );
        self.0.event(Level::Info, text);
    }

    fn failed(&self, _: &str, error: &KeysError) {
        // The error names the source.
        let text = format!("keys cannot be loaded, what was loaded before stays in use: {error}");
        self.0.event(Level::Error, text);
    }
}

pub(crate) fn shown(source: SourceStatus) -> KeySourceStatus {
    let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    KeySourceStatus {
        name: source.name,
        kind: match source.kind {
            SourceKind::Keytab => KeySourceKind::Keytab,
            SourceKind::PasswordHashes => KeySourceKind::PasswordHashes,
        },
        by_command: source.by_command,
        service_keys: count(source.loaded.service_keys),
        nt_hashes: count(source.loaded.nt_hashes),
        skipped: count(source.loaded.skipped),
        loaded_at: source.loaded_at,
        error: source.error,
        loads: source.loads,
        failures: source.failures,
    }
}

fn account(domain: &str, user: &str) -> String {
    if domain.is_empty() { user.to_owned() } else { format!("{domain}\\{user}") }
}

/// Who the client says it is; nothing of it is proven.
fn claimed(exchange: &Exchange) -> String {
    let claim = exchange.claim();
    let names = claim.and_then(|claim| Some((claim.domain.unwrap_or_default(), claim.user?)));
    names.map_or_else(|| "not known".to_owned(), |(domain, user)| account(&domain, &user))
}

#[cfg(test)]
mod tests {
    use super::*;
    use isthmus_keys::{ReleaseRule, Scope, limits};
    use isthmus_smb_auth::Failure;
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::{Path, PathBuf};

    /// `WANTEST\alice` logs on with `Passw0rd!`.
    const NTLM: [&[u8]; 4] = [
        include_bytes!("../../proto/smb-auth/tests/vectors/ntlm-1.bin"),
        include_bytes!("../../proto/smb-auth/tests/vectors/ntlm-2.bin"),
        include_bytes!("../../proto/smb-auth/tests/vectors/ntlm-3.bin"),
        include_bytes!("../../proto/smb-auth/tests/vectors/ntlm-4.bin"),
    ];

    fn exchange() -> Exchange {
        let mut exchange = Exchange::new();
        for pair in NTLM.chunks(2) {
            exchange.client(pair[0]);
            exchange.server(pair[1]);
        }
        exchange
    }

    fn hash_file(folder: &Path, hash: &str) -> PathBuf {
        let path = folder.join("hashes");
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&path).unwrap();
        std::io::Write::write_all(&mut file, format!("alice:1000:X:{hash}:[U]:\n").as_bytes()).unwrap();
        path
    }

    fn rule(peer: &str, users: &str) -> ReleaseRule {
        ReleaseRule {
            name: format!("rule of {peer}"),
            peer: peer.to_owned(),
            scope: Scope::Gateway { subnets: vec!["10.1.0.0/16".parse().unwrap()] },
            users: vec![users.parse().unwrap()],
            servers: vec!["files.example".parse().unwrap()],
            administrators: false,
            machine_accounts: false,
        }
    }

    fn config(folder: &Path, hash: &str) -> KeysConfig {
        let mut config =
            KeysConfig { password_hashes: vec![hash_file(folder, hash)], ..KeysConfig::default() };
        config.releases.rules = vec![rule("branch-1", "WANTEST\\*"), rule("branch-2", "bob")];
        config
    }

    fn start(config: &KeysConfig) -> (Keys, Arc<Telemetry>) {
        let telemetry = Telemetry::new(Instant::now()).unwrap();
        (Keys::start(config, telemetry.clone()).unwrap(), telemetry)
    }

    fn refused(keys: &Keys, peer: &str, client: &str, server: &str) -> RefusedText {
        keys.release(peer, client.parse().unwrap(), server, &exchange()).map(|_| ()).unwrap_err()
    }

    const HASH: &str = "FC525C9683E8FE067095BA2DDC971889";
    const CLIENT: &str = "10.1.2.3:50000";

    #[test]
    fn a_session_is_released_to_the_peer_whose_rule_says_so_and_to_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let (keys, telemetry) = start(&config(folder.path(), HASH));
        let (recovered, rule) =
            keys.release("branch-1", CLIENT.parse().unwrap(), "FILES.example", &exchange()).unwrap();
        assert_eq!((recovered.user.as_str(), rule.as_str()), ("alice", "rule of branch-1"));
        assert_eq!(recovered.session_key.as_bytes()[..2], [0xa6, 0xf7]);
        for (peer, client, server, label) in [
            ("branch-2", CLIENT, "files.example", "user"),
            ("branch-3", CLIENT, "files.example", "no_rule"),
            ("branch-1", "10.2.0.1:1", "files.example", "client_address"),
            ("branch-1", CLIENT, "nas.example", "server"),
        ] {
            assert_eq!(refused(&keys, peer, client, server).label, label, "{peer} {client} {server}");
        }
        let text = telemetry.metrics_text().unwrap();
        for line in [
            "isthmus_key_releases_total{peer=\"branch-1\",result=\"released\",reason=\"none\"} 1",
            "isthmus_key_releases_total{peer=\"branch-1\",result=\"refused\",reason=\"server\"} 1",
            "isthmus_key_releases_total{peer=\"branch-3\",result=\"refused\",reason=\"no_rule\"} 1",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn what_cannot_be_recovered_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let (keys, _) = start(&config(folder.path(), "00000000000000000000000000000001"));
        let found = refused(&keys, "branch-1", CLIENT, "files.example");
        assert_eq!(found.to_string(), Failure::WrongHash.to_string());
        let nothing = keys.release("branch-1", CLIENT.parse().unwrap(), "files.example", &Exchange::new());
        assert_eq!(nothing.map(|_| ()).unwrap_err().label, "incomplete");
    }

    #[test]
    fn without_a_source_nothing_is_released() {
        let (keys, telemetry) = start(&KeysConfig::default());
        assert_eq!(refused(&keys, "branch-1", CLIENT, "files.example").text, "no key source is configured");
        assert!(keys.sources().is_empty());
        assert!(telemetry.metrics_text().unwrap().contains("reason=\"no_source\"} 1"));
    }

    #[test]
    fn a_bad_file_keeps_the_proxy_from_starting() {
        let folder = tempfile::tempdir().unwrap();
        let bad = config(folder.path(), "not a hash");
        let telemetry = Telemetry::new(Instant::now()).unwrap();
        let error = Keys::start(&bad, telemetry.clone()).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("hashes") && !error.to_string().contains("not a hash"), "{error}");
        assert_eq!(telemetry.events().totals(), [0, 0, 1]);
        let (keys, _) = start(&config(folder.path(), HASH));
        let sources = keys.sources();
        assert_eq!((sources.len(), sources[0].nt_hashes, sources[0].loads), (1, 1, 1));
    }

    #[test]
    fn the_document_lists_every_reason() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        let text = std::fs::read_to_string(path).unwrap();
        let refusals = [
            Refusal::NoRule,
            Refusal::PeerKind,
            Refusal::Server,
            Refusal::ClientAddress,
            Refusal::User,
            Refusal::MachineAccount,
            Refusal::Administrator,
            Refusal::RateLimit,
        ];
        let failures = [
            Failure::Incomplete,
            Failure::Anonymous,
            Failure::Guest,
            Failure::NtlmV1,
            Failure::UnknownUser,
            Failure::WrongHash,
            Failure::NoServiceKey,
            Failure::NoKeyType,
            Failure::NoKeyVersion,
            Failure::WrongServiceKey,
            Failure::UnsupportedEncryption,
            Failure::UserToUser,
            Failure::NegoEx,
            Failure::IaKerb,
            Failure::UnknownMechanism,
        ];
        let refusals = refusals.map(|refusal| (refusal.label(), refusal.to_string()));
        let failures = failures.map(|failure| (failure.label(), failure.to_string()));
        for (label, words) in refusals.iter().chain(&failures) {
            assert!(text.contains(&format!("| `{label}` | {words} |\n")), "{label}: {words}");
        }
    }

    #[test]
    fn a_peers_rate_is_that_of_its_kind() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path(), HASH);
        config.releases.gateway_rate = limits::GATEWAY_RATE;
        config.releases.gateway_rate.burst = 1;
        let (keys, _) = start(&config);
        let ask = || keys.release("branch-1", CLIENT.parse().unwrap(), "files.example", &exchange());
        assert!(ask().is_ok());
        assert_eq!(ask().map(|_| ()).unwrap_err().label, "rate_limit");
    }
}
