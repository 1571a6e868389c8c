//! Prepopulation by the running proxy, on the schedule of its configuration.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use isthmus_config::{ClientConfig, ShareLocation, SmbUser, TimeWindow, Warm};
use isthmus_telemetry::{ConnectionSnapshot, Level, SmbState};
use isthmus_warm::{Account, Job, Location, Progress, Totals, WarmError};
use zeroize::Zeroizing;

use crate::cli::{Exit, Failure, reachable};
use crate::client::Client;

/// How often the end of a time window is looked for.
const LOOK: Duration = Duration::from_secs(20);
/// Pauses before a job that has failed is tried again within its window: the first, as when the peer is not up yet, and the
/// longest.
const RETRY_MIN: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_secs(300);
/// How often, and how long apart, it is looked what the session's state is; without `smb.enabled` there is none.
const LOOKS_MAX: u32 = 20;
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// Longest file with a password, in bytes.
const PASSWORD_BYTES_MAX: u64 = 4 << 10;

/// Reads one share whenever its window opens. Never ends.
pub(crate) async fn keep_warm(client: Arc<Client>, warm: Warm) {
    let mut pause = RETRY_MIN;
    loop {
        let outcome = match job(&client, &warm) {
            Ok(job) => {
                let mut teller = Teller { client: &client, via: job.via.ip(), window: warm.window };
                isthmus_warm::run(&job, &mut teller).await.map_err(|error| error.to_string())
            }
            Err(why) => Err(why),
        };
        let telemetry = &client.core.telemetry;
        match outcome {
            Ok(totals) => {
                pause = RETRY_MIN;
                let level = if totals.failed_files > 0 { Level::Warning } else { Level::Info };
                telemetry.event(level, format!("{} is warm: {}", warm.location, describe(&totals)));
                while warm.window.contains(minute()) {
                    tokio::time::sleep(LOOK).await;
                }
            }
            Err(why) => {
                telemetry.event(Level::Warning, format!("{} was not read: {why}", warm.location));
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(RETRY_MAX);
            }
        }
        while !warm.window.contains(minute()) {
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn job(client: &Client, warm: &Warm) -> Result<Job, String> {
    let config = client.config.load();
    let listener =
        config.rules.listener_for(&warm.location.server).ok_or("no rule listens for this server")?;
    let (store, _) = client.core.identity().ok_or("the store cannot be used")?;
    Ok(Job {
        location: location(&warm.location),
        via: reachable(listener.address),
        account: account(&warm.user, password(&warm.password_file)?),
        rate: warm.rate.map(isthmus_config::Size::bytes),
        notes: notes(&config),
        store: store.to_string(),
        again: false,
    })
}

/// A location of the configuration as the job takes it.
pub(crate) fn location(of: &ShareLocation) -> Location {
    Location { server: of.server.clone(), share: of.share.clone(), folder: of.folder.clone() }
}

/// A user of the configuration with a password.
pub(crate) fn account(of: &SmbUser, password: Zeroizing<String>) -> Account {
    Account { user: of.user.clone(), domain: of.domain.clone(), password }
}

/// Folder for the notes of what was read: beside the store, which they are about.
pub(crate) fn notes(config: &ClientConfig) -> PathBuf {
    let mut folder = config.store.path.clone().into_os_string();
    folder.push(".warm");
    folder.into()
}

/// The first line of a file that nobody else may read.
pub(crate) fn password(path: &Path) -> Result<Zeroizing<String>, String> {
    use std::os::unix::fs::PermissionsExt;
    let named = |why: String| format!("{}: {why}", path.display());
    let data = std::fs::metadata(path).map_err(|error| named(error.to_string()))?;
    if !data.is_file() || data.len() > PASSWORD_BYTES_MAX {
        return Err(named(format!("is no file of at most {PASSWORD_BYTES_MAX} bytes")));
    }
    if data.permissions().mode() & 0o077 != 0 {
        return Err(named("others may read this password; chmod 600".into()));
    }
    let text = Zeroizing::new(std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?);
    match text.lines().next().unwrap_or("") {
        "" => Err(named("its first line is empty".into())),
        line => Ok(Zeroizing::new(line.to_owned())),
    }
}

/// Minute of the day, local time.
pub(crate) fn minute() -> u16 {
    let now = jiff::Zoned::now();
    u16::from(now.hour().unsigned_abs()) * 60 + u16::from(now.minute().unsigned_abs())
}

/// Totals in words.
pub(crate) fn describe(totals: &Totals) -> String {
    let Totals { done_files, done_bytes, known_files, failed_files, .. } = totals;
    let megabytes = *done_bytes as f64 / 1e6;
    format!(
        "{done_files} files with {megabytes:.1} MB were read, {known_files} were known already, {failed_files} could not be read"
    )
}

/// Whether reading over a connection in this state fills the stores; if not, why.
pub(crate) fn usefulness(state: &str, smb: Option<&str>, why: &str) -> Result<(), String> {
    let is_carried = ["optimised", "reduce_only", "resuming"].contains(&state);
    if !is_carried {
        return Err(format!(
            "the connection is {}, so nothing would be learned: {why}",
            state.replace('_', " ")
        ));
    }
    if smb == Some(SmbState::EncryptedNoKeys.label()) {
        return Err(
            "the session is encrypted and the pair has no keys for it, so nothing would be learned; see isthmus-server \
             keys check --user"
                .into(),
        );
    }
    Ok(())
}

/// Whether a client may be this machine: whoever connects to an address of its own machine does so from that address, or,
/// on loopback, from any.
pub(crate) fn is_from_here(client: IpAddr, listener: IpAddr) -> bool {
    client == listener || (client.is_loopback() && listener.is_loopback())
}

/// Tells events. Names of files stay out of them.
struct Teller<'c> {
    client: &'c Client,
    via: IpAddr,
    window: TimeWindow,
}

#[async_trait::async_trait]
impl Progress for Teller<'_> {
    async fn connected(&mut self) -> Result<(), String> {
        let mut looks = 0;
        loop {
            let live = self.client.core.telemetry.connections().live();
            let own = |row: &&ConnectionSnapshot| is_from_here(row.client.ip(), self.via);
            let Some(row) = live.iter().filter(own).min_by_key(|row| row.age) else { return Ok(()) };
            looks += 1;
            if row.smb.is_none() && looks < LOOKS_MAX {
                tokio::time::sleep(LOOK_PAUSE).await;
                continue;
            }
            let why = row.reason.map(|reason| reason.to_string()).unwrap_or_default();
            return usefulness(row.state.label(), row.smb.as_ref().map(|smb| smb.state.label()), &why);
        }
    }

    fn moved(&mut self, _: &Totals) {}

    fn failed(&mut self, _: &str, _: &str) {}

    fn waits(&mut self, why: &str) {
        tracing::info!("prepopulation: {why}");
    }

    fn is_open(&self) -> bool {
        self.window.contains(minute())
    }
}

/// The status for a job that came to nothing.
impl From<WarmError> for Failure {
    fn from(error: WarmError) -> Failure {
        let exit = match &error {
            error if error.is_refusal() => Exit::NoPermission,
            WarmError::Connect { .. } | WarmError::Useless(_) | WarmError::Lost(_) => Exit::Unavailable,
            WarmError::List { .. } => Exit::NoInput,
            WarmError::TooManyFiles => Exit::Usage,
            WarmError::Notes(error) => Exit::of(error.kind()),
            WarmError::Task(_) => Exit::Software,
        };
        Failure::new(exit, error.to_string())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_password_file_is_for_its_owner_and_has_one_in_its_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "geheim \nmore\n").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        assert!(password(&file).unwrap_err().contains("chmod 600"));
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o400)).unwrap();
        assert_eq!(*password(&file).unwrap(), "geheim ");
        let empty = folder.path().join("empty");
        std::fs::write(&empty, "").unwrap();
        std::fs::set_permissions(&empty, PermissionsExt::from_mode(0o600)).unwrap();
        assert!(password(&empty).unwrap_err().contains("empty") && password(folder.path()).is_err());
    }

    #[test]
    fn only_a_connection_that_is_carried_and_readable_is_of_use() {
        assert!(usefulness("optimised", None, "").is_ok());
        assert!(usefulness("optimised", Some("encrypted_keys"), "").is_ok());
        assert!(usefulness("optimised", Some("encrypted_no_keys"), "").unwrap_err().contains("keys check"));
        assert!(usefulness("pass_through", None, "no peer").unwrap_err().contains("pass through"));
        assert!(minute() < 24 * 60);
    }
}
