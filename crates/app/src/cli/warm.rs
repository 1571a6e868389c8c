//! `warm`: reads a share through the running pair, so that the first user's copy is warm.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use isthmus_config::{ClientConfig, ShareLocation, Size, SmbUser, TimeWindow};
use isthmus_warm::{Job, Progress, Totals};
use serde_json::Value;
use zeroize::Zeroizing;

use super::exit::{Exit, Failure};
use super::output::{errln, outln};
use super::status::{bytes, span};
use super::{http, reachable};
use crate::warm::{self, describe, is_from_here, minute, notes, password, usefulness};

/// Where the password may stand instead of a file. Not with the prefix of the configuration's variables.
const PASSWORD_VARIABLE: &str = "SMB_PASSWORD";
/// Pause between two pictures of the progress bar.
const BAR_PAUSE: Duration = Duration::from_millis(200);
/// How often, and how long apart, the proxy is asked what it makes of the session. What it knows comes a moment after the
/// session itself; with smb.enabled = false, never.
const LOOKS_MAX: u32 = 20;
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// Characters of the bar.
const BAR_COLUMNS: u64 = 30;

/// Arguments of `warm`.
#[derive(Args, Debug)]
pub struct Arguments<C: Args> {
    #[command(flatten)]
    pub configuration: C,

    /// What to read: //server/share or //server/share/folder, with the server as a rule calls it
    #[arg(value_name = "LOCATION")]
    location: ShareLocation,

    /// Who to read as: DOMAIN\\user, user@domain or user. The password is read from --password-file, from the variable
    /// SMB_PASSWORD, or asked for
    #[arg(long, value_name = "USER")]
    user: SmbUser,

    /// A file with the password as its first line, with mode 0600 or 0400
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,

    /// Most bytes a second, such as "2 MiB"
    #[arg(long, value_name = "SIZE")]
    rate: Option<Size>,

    /// When to read, in local time, such as 22:00-06:00; it waits while the window is closed
    #[arg(long, value_name = "FROM-UNTIL")]
    window: Option<TimeWindow>,

    /// The listener to connect to, instead of the one of the rule for that server
    #[arg(long, value_name = "ADDRESS:PORT")]
    via: Option<SocketAddr>,

    /// Also read what was read before and has not changed, for example since the stores have dropped it
    #[arg(long)]
    again: bool,

    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

/// Reads what is asked for.
pub fn run<C: Args>(arguments: &Arguments<C>, config: &ClientConfig) -> Result<(), Failure> {
    let usage = |text: String| Failure::new(Exit::Usage, text);
    let location = &arguments.location;
    let via = match arguments.via {
        Some(via) => via,
        None => {
            config.rules.listener_for(&location.server).map(|listener| listener.address).ok_or_else(|| {
                usage(format!(
                    "no rule listens for {:?}; use the name that a rule has as its server, or --via",
                    location.server
                ))
            })?
        }
    };
    let admin = http::admin(None, || Ok(config.admin.listen))?;
    let store = http::json(admin, "/api/store")?;
    let job = Job {
        location: warm::location(location),
        via: reachable(via),
        account: warm::account(&arguments.user, secret(arguments)?),
        rate: arguments.rate.map(Size::bytes),
        notes: notes(config),
        store: store["identity"].as_str().unwrap_or_default().to_owned(),
        again: arguments.again,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Software, format!("the runtime cannot be started: {error}")))?;
    let mut bar = Bar::new(admin, job.via, arguments.window, arguments.quiet);
    let start = Instant::now();
    let outcome = runtime.block_on(isthmus_warm::run(&job, &mut bar));
    bar.clear();
    let totals = outcome?;
    outln!("{location}: {}, in {}", describe(&totals), span(start.elapsed().as_secs_f64()));
    if totals.failed_files > 0 {
        return Err(Failure::new(Exit::Io, format!("{} files could not be read", totals.failed_files)));
    }
    Ok(())
}

/// The password: from a file, a variable, or whoever sits before the terminal. Never an argument, which all can see.
fn secret<C: Args>(arguments: &Arguments<C>) -> Result<Zeroizing<String>, Failure> {
    if let Some(file) = &arguments.password_file {
        return password(file).map_err(|why| Failure::new(Exit::NoPermission, why));
    }
    if let Ok(text) = std::env::var(PASSWORD_VARIABLE) {
        return Ok(Zeroizing::new(text));
    }
    if !io::stdin().is_terminal() {
        let text = format!("there is no password: use --password-file, or the variable {PASSWORD_VARIABLE}");
        return Err(Failure::new(Exit::Usage, text));
    }
    rpassword::prompt_password(format!("Password of {}: ", arguments.user))
        .map(Zeroizing::new)
        .map_err(|error| Failure::new(Exit::Io, format!("the password cannot be read: {error}")))
}

/// A progress bar on a terminal; elsewhere only what fails.
struct Bar {
    admin: SocketAddr,
    via: SocketAddr,
    window: Option<TimeWindow>,
    is_shown: bool,
    start: Instant,
    drawn: Option<Instant>,
}

impl Bar {
    fn new(admin: SocketAddr, via: SocketAddr, window: Option<TimeWindow>, quiet: bool) -> Bar {
        Bar {
            admin,
            via,
            window,
            is_shown: !quiet && io::stderr().is_terminal(),
            start: Instant::now(),
            drawn: None,
        }
    }

    /// What the proxy says of the job's connection: the youngest from an address that it may have.
    fn own_connection(&self) -> Result<Value, String> {
        let path = "/api/connections?sort=age&order=ascending&limit=500";
        let mut rows = http::json(self.admin, path).map_err(|failure| failure.text)?;
        let rows =
            rows.get_mut("connections").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
        let is_own = |row: &Value| {
            let client = row["client"].as_str().and_then(|text| text.parse::<SocketAddr>().ok());
            client.is_some_and(|client| is_from_here(client.ip(), self.via.ip()))
        };
        rows.into_iter().find(is_own).ok_or_else(|| {
            format!("the proxy knows of no connection at {}; is that a listener of its own?", self.via)
        })
    }

    fn clear(&mut self) {
        if self.drawn.take().is_some() {
            // If standard error has gone away there is nothing to clear.
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    fn line(totals: &Totals, seconds: f64) -> String {
        let all = totals.bytes.max(1);
        let done = totals.done_bytes.min(all);
        let filled = (done.saturating_mul(BAR_COLUMNS) / all) as usize;
        let rest = BAR_COLUMNS as usize - filled;
        let rate = totals.done_bytes as f64 / seconds.max(0.001);
        let left = if rate > 0.0 { span((all - done) as f64 / rate) } else { "?".to_owned() };
        format!(
            "[{}{}] {:>3} %  {}/{} files  {}/s  {left} left",
            "#".repeat(filled),
            "-".repeat(rest),
            done.saturating_mul(100) / all,
            totals.done_files,
            totals.files,
            bytes(rate)
        )
    }
}

#[async_trait::async_trait]
impl Progress for Bar {
    async fn connected(&mut self) -> Result<(), String> {
        let mut looks = 0;
        loop {
            let row = self.own_connection()?;
            looks += 1;
            if row["smb"]["state"].is_null() && looks < LOOKS_MAX {
                tokio::time::sleep(LOOK_PAUSE).await;
                continue;
            }
            let why = row["detail"].as_str().filter(|why| !why.is_empty()).or(row["reason_text"].as_str());
            let (state, smb) = (row["state"].as_str().unwrap_or("?"), row["smb"]["state"].as_str());
            return usefulness(state, smb, why.unwrap_or("no reason is known"));
        }
    }

    fn moved(&mut self, totals: &Totals) {
        if !self.is_shown || self.drawn.is_some_and(|drawn| drawn.elapsed() < BAR_PAUSE) {
            return;
        }
        self.drawn = Some(Instant::now());
        let line = Bar::line(totals, self.start.elapsed().as_secs_f64());
        // A bar that cannot be drawn is no reason to stop reading.
        let _ = write!(io::stderr(), "\r{line}\x1b[K");
    }

    fn failed(&mut self, path: &str, why: &str) {
        self.clear();
        let path: String = path.chars().filter(|c| !c.is_control()).collect();
        errln!("{path}: {why}");
    }

    fn waits(&mut self, why: &str) {
        self.clear();
        errln!("{why}");
    }

    fn is_open(&self) -> bool {
        self.window.is_none_or(|window| window.contains(minute()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_shows_how_far_and_how_fast() {
        let totals = Totals { files: 4, bytes: 400, done_files: 1, done_bytes: 100, ..Totals::default() };
        assert_eq!(
            Bar::line(&totals, 2.0),
            "[#######-----------------------]  25 %  1/4 files  50 B/s  6 s left"
        );
        assert!(Bar::line(&Totals::default(), 0.0).contains("  0 %"));
    }
}
