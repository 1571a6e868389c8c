//! Commands that bring secrets, run within limits of time and output.

use crate::config::CommandConfig;
use crate::error::seconds;
use crate::file::fill;
use crate::limits::{
    COMMAND_ARGUMENTS_MAX, COMMAND_INTERVAL_MIN, COMMAND_MESSAGE_CHARS_MAX, COMMAND_STDERR_BYTES_MAX,
    COMMAND_TIMEOUT_MAX,
};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::collections::VecDeque;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};
use zeroize::Zeroizing;

/// Why a command brought nothing.
#[derive(Debug)]
pub enum CommandProblem {
    /// It cannot be started.
    Start(io::Error),
    /// It was killed after its time was up.
    Timeout(Duration),
    /// It ended with an error; the last line of its standard error, made harmless and short, tells why.
    Failed {
        /// How it ended.
        status: ExitStatus,
        /// The line, possibly empty.
        message: String,
    },
    /// It wrote more than the limit in bytes to its standard output.
    TooMuchOutput(usize),
    /// It ended, but something it left running keeps its output open.
    LeftRunning,
    /// Its output cannot be read.
    Output(io::Error),
    /// It was killed since the proxy stops.
    Stopped,
}

impl fmt::Display for CommandProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => write!(f, "cannot be started: {error}"),
            Self::Timeout(limit) => write!(f, "killed after its time limit of {}", seconds(*limit)),
            Self::Failed { status, message } => {
                match (status.code(), status.signal()) {
                    (Some(code), _) => write!(f, "ended with status {code}")?,
                    (None, Some(signal)) => write!(f, "killed by signal {signal}")?,
                    (None, None) => f.write_str("ended with an error")?,
                }
                if message.is_empty() { Ok(()) } else { write!(f, ": {message}") }
            }
            Self::TooMuchOutput(limit) => write!(f, "wrote more than {limit} bytes"),
            Self::LeftRunning => f.write_str("left a process running that keeps its output open"),
            Self::Output(error) => write!(f, "output cannot be read: {error}"),
            Self::Stopped => f.write_str("stopped with the proxy"),
        }
    }
}

/// What is wrong with a command's configuration.
pub(crate) fn problem_of(config: &CommandConfig) -> Option<&'static str> {
    if config.name.is_empty() {
        Some("expected a name")
    } else if !config.argv.first().is_some_and(|program| program.starts_with('/')) {
        Some("expected the program's absolute path as first argument")
    } else if config.argv.len() > COMMAND_ARGUMENTS_MAX || config.argv.iter().any(|it| it.contains('\0')) {
        Some("expected at most 64 arguments without NUL bytes")
    } else if config.interval < COMMAND_INTERVAL_MIN {
        Some("expected an interval of at least 10 s")
    } else if config.timeout.is_zero() || config.timeout > COMMAND_TIMEOUT_MAX {
        Some("expected a time limit above zero and of at most 30 min")
    } else {
        None
    }
}

/// Runs a command to its end and gives its standard output, of at most `output_bytes_max`. `stopped` is asked now and
/// then whether to give up. `reading` is the command's own, from one run to the next: whatever still reads the output of
/// an earlier run has a share of it.
pub(crate) fn run(
    config: &CommandConfig,
    output_bytes_max: usize,
    reading: &Arc<()>,
    stopped: &dyn Fn() -> bool,
) -> Result<Zeroizing<Vec<u8>>, CommandProblem> {
    if Arc::strong_count(reading) > 1 {
        return Err(CommandProblem::LeftRunning);
    }
    let mut child = start(config).map_err(CommandProblem::Start)?;
    let result = follow(&mut child, config, output_bytes_max, reading, stopped);
    if result.is_err() {
        kill_group(&child);
    }
    let status = child.wait().map_err(CommandProblem::Output)?;
    let (output, errors) = result?;
    if output.is_cut {
        Err(CommandProblem::TooMuchOutput(output_bytes_max))
    } else if let Some(error) = output.error {
        Err(CommandProblem::Output(error))
    } else if !status.success() {
        Err(CommandProblem::Failed { status, message: last_line(&errors.joined()) })
    } else {
        Ok(output.joined())
    }
}

/// What a command wrote, once it has ended. It stays a zombie, so that its number is its group's until it is waited for.
fn follow(
    child: &mut Child,
    config: &CommandConfig,
    output_bytes_max: usize,
    reading: &Arc<()>,
    stopped: &dyn Fn() -> bool,
) -> Result<(Gathered, Gathered), CommandProblem> {
    let output = gather(child.stdout.take(), Keep::AllUpTo(output_bytes_max), reading)
        .map_err(CommandProblem::Start)?;
    let errors = gather(child.stderr.take(), Keep::End, reading).map_err(CommandProblem::Start)?;
    let end = Instant::now() + config.timeout;
    while !has_ended(child).map_err(CommandProblem::Output)? {
        if stopped() {
            return Err(CommandProblem::Stopped);
        }
        if Instant::now() >= end {
            return Err(CommandProblem::Timeout(config.timeout));
        }
        thread::sleep(LOOK_INTERVAL);
    }
    let whole = |stream: Receiver<Gathered>| stream.recv_timeout(OUTPUT_WAIT);
    let both = whole(output).and_then(|output| whole(errors).map(|errors| (output, errors)));
    both.map_err(|_| CommandProblem::LeftRunning)
}

/// How long output may stay open after the command has ended.
const OUTPUT_WAIT: Duration = Duration::from_secs(1);
/// How often a running command is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
const PIECE_BYTES: usize = 64 << 10;

fn start(config: &CommandConfig) -> io::Result<Child> {
    let (program, arguments) = config.argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LANG", "C.UTF-8")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
}

fn has_ended(child: &Child) -> io::Result<bool> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    match waitid(Id::Pid(number(child)?), flags) {
        Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => Ok(false),
        Ok(_) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Kills a command, which has not been waited for, and everything in its process group.
fn kill_group(child: &Child) {
    if let Ok(leader) = number(child) {
        let _ = killpg(leader, Signal::SIGKILL); // All of them may have ended just now.
    }
}

fn number(child: &Child) -> io::Result<Pid> {
    i32::try_from(child.id()).map(Pid::from_raw).map_err(io::Error::other)
}

/// Which part of a stream is wanted.
#[derive(Clone, Copy)]
enum Keep {
    /// All, if it is no more than this many bytes; reading stops when it is.
    AllUpTo(usize),
    /// The last [`COMMAND_STDERR_BYTES_MAX`] bytes at least, and no more than twice as many.
    End,
}

/// Content of one stream, in pieces that never move, so that none is left behind in freed memory.
#[derive(Default)]
struct Gathered {
    pieces: VecDeque<Zeroizing<Vec<u8>>>,
    /// There was more than was wanted.
    is_cut: bool,
    error: Option<io::Error>,
}

impl Gathered {
    fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }

    fn joined(&self) -> Zeroizing<Vec<u8>> {
        let mut whole = Zeroizing::new(Vec::with_capacity(self.bytes()));
        self.pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
        whole
    }

    /// Adds a piece, and says whether more is wanted.
    fn push(&mut self, piece: Zeroizing<Vec<u8>>, keep: Keep) -> bool {
        self.pieces.push_back(piece);
        match keep {
            Keep::AllUpTo(limit) => self.is_cut = self.bytes() > limit,
            Keep::End if self.pieces.len() > 2 => drop(self.pieces.pop_front()),
            Keep::End => {}
        }
        !self.is_cut
    }
}

/// Reads a stream to its end on a thread of its own, so that the command never waits for a reader.
fn gather(
    stream: Option<impl Read + Send + 'static>,
    keep: Keep,
    reading: &Arc<()>,
) -> io::Result<Receiver<Gathered>> {
    let (sender, receiver) = sync_channel(1);
    let reading = Arc::clone(reading);
    thread::Builder::new().name("keys-output".to_owned()).spawn(move || {
        let gathered = gather_all(stream, keep);
        drop(reading);
        let _ = sender.send(gathered); // Nobody waits any more when the command was killed.
    })?;
    Ok(receiver)
}

fn gather_all(stream: Option<impl Read>, keep: Keep) -> Gathered {
    let mut gathered = Gathered::default();
    let Some(mut stream) = stream else { return gathered };
    let piece_bytes = match keep {
        Keep::AllUpTo(_) => PIECE_BYTES,
        Keep::End => COMMAND_STDERR_BYTES_MAX,
    };
    loop {
        let mut piece = Zeroizing::new(vec![0; piece_bytes]);
        let (filled, error) = fill(&mut stream, &mut piece);
        piece.truncate(filled);
        gathered.error = error;
        let wants_more = gathered.push(piece, keep);
        if filled < piece_bytes || !wants_more {
            return gathered;
        }
    }
}

/// Last line that is not empty, without control characters, cut to what fits a log line.
fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().filter(|letter| !letter.is_control()).take(COMMAND_MESSAGE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{CommandOutput, SourceKind};

    fn shell(script: &str, timeout: Duration) -> CommandConfig {
        CommandConfig {
            name: "test".to_owned(),
            argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            kind: SourceKind::Keytab,
            output: CommandOutput::StandardOutput,
            interval: Duration::from_secs(60),
            timeout,
        }
    }

    fn told(script: &str, limit: usize, timeout: Duration) -> String {
        run(&shell(script, timeout), limit, &Arc::default(), &|| false).unwrap_err().to_string()
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn output_is_whole_whatever_its_size_up_to_the_limit() {
        let output =
            run(&shell("head -c 300000 /dev/zero", LONG), 300_000, &Arc::default(), &|| false).unwrap();
        assert_eq!(output.len(), 300_000);
        assert_eq!(told("head -c 300001 /dev/zero", 300_000, LONG), "wrote more than 300000 bytes");
    }

    #[test]
    fn nothing_of_this_processs_environment_is_passed_on() {
        let output = run(
            &shell("env | cut -d= -f1 | sort | tr '\\n' ' '; pwd", LONG),
            1_000,
            &Arc::default(),
            &|| false,
        )
        .unwrap();
        assert_eq!(String::from_utf8_lossy(&output), "LANG PATH PWD /\n");
    }

    #[test]
    fn a_failure_is_told_with_the_last_line_of_its_errors() {
        let script = "echo first >&2; printf 'cannot reach \\033[1mdc1\\n\\n' >&2; exit 3";
        assert_eq!(told(script, 100, LONG), "ended with status 3: cannot reach [1mdc1");
        assert_eq!(told("kill -9 $$", 100, LONG), "killed by signal 9");
        let noisy = "head -c 100000 /dev/zero >&2; echo >&2; echo last >&2; exit 1";
        assert_eq!(told(noisy, 100, LONG), "ended with status 1: last");
        let mut config = shell("", LONG);
        config.argv = vec!["/nowhere/at/all".to_owned()];
        assert!(
            run(&config, 1, &Arc::default(), &|| false)
                .unwrap_err()
                .to_string()
                .starts_with("cannot be started: No such file")
        );
    }

    #[test]
    fn a_command_that_takes_too_long_is_killed() {
        let limit = Duration::from_millis(100);
        assert_eq!(told("sleep 600", 100, limit), "killed after its time limit of 0.1 s");
    }

    #[test]
    fn a_command_is_killed_with_all_it_started_when_the_proxy_stops() {
        let folder = tempfile::tempdir().unwrap();
        let mark = folder.path().join("child");
        let script = format!("sleep 600 & echo $! > {}; wait", mark.display());
        let child = || std::fs::read_to_string(&mark).unwrap_or_default().trim().parse::<i32>();
        let result = run(&shell(&script, LONG), 100, &Arc::default(), &|| child().is_ok());
        assert!(matches!(result, Err(CommandProblem::Stopped)));
        let child = child().unwrap();
        // The kernel may take a moment to end it.
        let gone = (0..500).any(|_| {
            thread::sleep(Duration::from_millis(10));
            let state = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            state.is_empty() || state.contains(") Z ")
        });
        assert!(gone, "process {child} still runs");
    }

    #[test]
    fn a_command_that_leaves_its_output_open_is_no_success() {
        let expected = "left a process running that keeps its output open";
        assert_eq!(told("sleep 600 & exit 0", 100, LONG), expected);
        let reading = Arc::default();
        let escaped = shell("setsid sleep 2 & exit 0", LONG);
        for _ in 0..2 {
            assert_eq!(run(&escaped, 100, &reading, &|| false).unwrap_err().to_string(), expected);
        }
        assert!(Arc::strong_count(&reading) <= 3, "the second run was not started");
    }
}
