//! Processes of the lab: started anywhere, logged to a file, measured through /proc, stopped by their own id.

use crate::cleanup::{Entry, Leftover};
use crate::error::{Context as _, LabError, Result};
use crate::place::Place;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, SysconfVar, sysconf};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a process may take to end after SIGTERM before it is killed.
const STOP_GRACE: Duration = Duration::from_secs(8);

/// How often a condition is looked at while waiting for it.
const POLL: Duration = Duration::from_millis(10);

/// How much of a log or of a command's output an error message shows.
const TAIL_BYTES: u64 = 2_000;

/// How to start a process.
#[derive(Clone, Debug)]
pub struct ProcSpec {
    /// Name in messages.
    pub name: String,
    /// Program, then its arguments.
    pub command: Vec<OsString>,
    /// Environment variables in addition to this process's own.
    pub environment: Vec<(String, String)>,
    /// Where it runs.
    pub place: Place,
    /// Where its output goes (appended).
    pub log: PathBuf,
}

/// A running process; dropping it stops it.
pub struct Proc {
    name: String,
    child: Child,
    log: PathBuf,
    entry: Option<Entry>,
}

/// What a process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// User and system time of all its threads, ended ones included.
    pub cpu_seconds: f64,
    /// Resident memory now.
    pub rss_bytes: u64,
    /// Largest resident memory so far.
    pub rss_peak_bytes: u64,
}

impl ProcSpec {
    /// A process in the local place without extra environment.
    pub fn new(name: &str, program: impl AsRef<OsStr>, log: impl Into<PathBuf>) -> ProcSpec {
        ProcSpec {
            name: name.into(),
            command: vec![program.as_ref().into()],
            environment: Vec::new(),
            place: Place::Local,
            log: log.into(),
        }
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> ProcSpec {
        self.command.extend(args.into_iter().map(|arg| arg.as_ref().into()));
        self
    }

    /// Adds an environment variable.
    pub fn env(mut self, key: &str, value: &str) -> ProcSpec {
        self.environment.push((key.into(), value.into()));
        self
    }

    /// Sets where it runs.
    pub fn place(mut self, place: &Place) -> ProcSpec {
        self.place = place.clone();
        self
    }
}

impl Proc {
    /// Starts the process.
    ///
    /// # Errors
    /// The log cannot be opened or the program not started.
    pub fn spawn(spec: &ProcSpec) -> Result<Proc> {
        let out = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&spec.log)
            .context(|| format!("opening {}", spec.log.display()))?;
        let err = out.try_clone().context(|| "sharing a log file".into())?;
        let child = command_in(&spec.place, &spec.command)?
            .envs(spec.environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            // A group of its own: Ctrl-C reaches only this process, which then ends its children in order; and a
            // server that signals its whole group when it ends (smbd does) does not hit this process.
            .process_group(0)
            .spawn()
            .context(|| format!("starting {}", spec.name))?;
        let entry = Entry::new(Leftover::Process(child.id() as i32));
        Ok(Proc { name: spec.name.clone(), child, log: spec.log.clone(), entry: Some(entry) })
    }

    /// Its process id. (`ip netns exec` replaces itself by the program, so this is the program in any place.)
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The file that takes its output.
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// The last lines of its output.
    pub fn log_tail(&self) -> String {
        tail(&self.log)
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// The system cannot tell.
    pub fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        let status = self.child.try_wait().context(|| format!("waiting for {}", self.name))?;
        if status.is_some() {
            self.entry = None;
        }
        Ok(status)
    }

    /// Waits until it has ended by itself.
    ///
    /// # Errors
    /// It has not ended within `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.exit_status()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                return Err(LabError::Timeout {
                    what: format!("the end of {}", self.name),
                    seconds: limit.as_secs(),
                });
            }
            std::thread::sleep(POLL);
        }
    }

    /// Sends SIGTERM without waiting.
    ///
    /// # Errors
    /// The process has been waited for already.
    pub fn terminate(&mut self) -> Result<()> {
        self.signal(Signal::SIGTERM)
    }

    /// Sends SIGTERM, then SIGKILL if it does not end; returns how it ended.
    ///
    /// # Errors
    /// It cannot be signalled or does not end even then.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        if let Some(status) = self.exit_status()? {
            return Ok(status);
        }
        self.terminate()?;
        match self.wait(STOP_GRACE) {
            Err(LabError::Timeout { .. }) => self.kill9(),
            other => other,
        }
    }

    /// Sends SIGKILL and waits for the end: nothing is flushed, as at a power cut of the process.
    ///
    /// # Errors
    /// It cannot be signalled or does not end.
    pub fn kill9(&mut self) -> Result<ExitStatus> {
        if let Some(status) = self.exit_status()? {
            return Ok(status);
        }
        self.signal(Signal::SIGKILL)?;
        self.wait(STOP_GRACE)
    }

    /// Sends any signal (SIGSTOP and SIGCONT make a slow process).
    ///
    /// # Errors
    /// The process has ended.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if let Some(status) = self.exit_status()? {
            // A reaped id may belong to somebody else by now, so it is never signalled.
            let detail = format!("it has ended: {status}; {}", self.log_tail());
            return Err(LabError::Format { what: format!("the state of {}", self.name), detail });
        }
        kill(Pid::from_raw(self.child.id() as i32), signal).context(|| format!("signalling {}", self.name))
    }

    /// What it has used so far.
    ///
    /// # Errors
    /// It has ended.
    pub fn usage(&self) -> Result<Usage> {
        usage_of(self.pid())
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        // An error means that it has gone or cannot be reached; a drop can do no more about either.
        let _ = self.stop();
    }
}

/// What the process with this id has used so far, read from /proc.
///
/// # Errors
/// There is no such process.
pub fn usage_of(pid: u32) -> Result<Usage> {
    let read = |file: &str| {
        let path = format!("/proc/{pid}/{file}");
        std::fs::read_to_string(&path).context(|| format!("reading {path}"))
    };
    let unreadable = |file: &str| LabError::Format {
        what: format!("/proc/{pid}/{file}"),
        detail: "a field is missing; the process may have ended".into(),
    };
    let ticks_per_second = sysconf(SysconfVar::CLK_TCK)
        .context(|| "asking for the clock tick".into())?
        .ok_or_else(|| unreadable("stat"))? as f64;
    let ticks = cpu_ticks(&read("stat")?).ok_or_else(|| unreadable("stat"))?;
    let status = read("status")?;
    let kib = |key| status_kib(&status, key).ok_or_else(|| unreadable("status"));
    Ok(Usage {
        cpu_seconds: ticks as f64 / ticks_per_second,
        rss_bytes: kib("VmRSS:")? * 1024,
        rss_peak_bytes: kib("VmHWM:")? * 1024,
    })
}

/// How often the threads of the process with this id have waited for something and gone on, ever since: its voluntary context
/// switches.
///
/// # Errors
/// There is no such process.
pub fn wakeups_of(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/task");
    let mut sum = 0;
    for thread in std::fs::read_dir(&path).context(|| format!("reading {path}"))? {
        let file = thread.context(|| format!("reading {path}"))?.path().join("status");
        // A thread may have ended meanwhile.
        let Ok(status) = std::fs::read_to_string(&file) else { continue };
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sum += line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}

/// Runs a command in a place to its end and returns its standard output.
///
/// # Errors
/// It cannot be started, or ends with a status other than 0; the error shows the end of its output.
pub fn run<S: AsRef<OsStr>>(place: &Place, command: &[S]) -> Result<String> {
    let words: Vec<OsString> = command.iter().map(|word| word.as_ref().into()).collect();
    let child = command_in(place, &words)?
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .context(|| format!("starting {}", shown(&words)))?;
    let entry = Entry::new(Leftover::Process(child.id() as i32));
    let output = child.wait_with_output().context(|| format!("waiting for {}", shown(&words)))?;
    drop(entry);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let mut text = stdout;
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Err(LabError::Command {
        program: shown(&words),
        status: output.status.to_string(),
        output: last_bytes(&text),
    })
}

/// Looks for a program in PATH and in the system's own folders.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// Finds a program or says which package brings it.
pub(crate) fn required(program: &str, package: &str) -> Result<PathBuf> {
    find_program(program).ok_or_else(|| LabError::Unavailable {
        what: format!("the program {program}"),
        remedy: format!("install the package {package}"),
    })
}

/// Waits until `condition` holds.
///
/// # Errors
/// Its own, or that it does not hold within `limit`.
pub fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + limit;
    while !condition()? {
        if Instant::now() >= deadline {
            return Err(LabError::Timeout { what: what.into(), seconds: limit.as_secs() });
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

pub(crate) fn tail(path: &Path) -> String {
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_else(|error| format!("({}: {error})", path.display()))
}

fn command_in(place: &Place, words: &[OsString]) -> Result<Command> {
    let mut all: Vec<OsString> = place.command_prefix().into_iter().map(OsString::from).collect();
    all.extend_from_slice(words);
    let Some((program, args)) = all.split_first() else {
        return Err(LabError::Format { what: "a command".into(), detail: "it is empty".into() });
    };
    let resolved = find_program(&program.to_string_lossy()).unwrap_or_else(|| program.into());
    let mut command = Command::new(resolved);
    command.args(args);
    Ok(command)
}

fn shown(words: &[OsString]) -> String {
    words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ").chars().take(200).collect()
}

fn last_bytes(text: &str) -> String {
    let start = text.len().saturating_sub(TAIL_BYTES as usize);
    let start = (start..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    text[start..].trim().to_string()
}

/// utime + stime; the command's name before them may hold spaces and brackets, so fields count from its last bracket.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let after_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn status_kib(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with(key))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, log: &Path) -> Proc {
        Proc::spawn(&ProcSpec::new("shell", "sh", log).args(["-c", script])).unwrap()
    }

    #[test]
    fn output_goes_to_the_log_and_the_status_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut proc = shell("echo out; echo err >&2; exit 3", &log);
        assert_eq!(proc.wait(Duration::from_secs(10)).unwrap().code(), Some(3));
        assert_eq!(proc.log_tail(), "out\nerr\n");
        assert!(proc.signal(Signal::SIGTERM).is_err(), "an ended process is not signalled");
    }

    #[test]
    fn stop_is_gentle_and_kill9_is_not() {
        use std::os::unix::process::ExitStatusExt as _;
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done";
        let started = |proc: &Proc| proc.log_tail().contains("up");
        let mut gentle = shell(script, &log);
        wait_until("start", Duration::from_secs(10), || Ok(started(&gentle))).unwrap();
        assert_eq!(gentle.stop().unwrap().code(), Some(0));
        assert!(gentle.log_tail().contains("bye"));
        let mut killed = shell("sleep 60", &dir.path().join("second"));
        assert_eq!(killed.kill9().unwrap().signal(), Some(9));
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let proc = shell("exec sleep 60", &dir.path().join("log"));
        let pid = proc.pid();
        assert!(usage_of(pid).unwrap().rss_peak_bytes > 0);
        drop(proc);
        assert!(usage_of(pid).is_err());
    }

    #[test]
    fn processor_time_is_counted() {
        let before = usage_of(std::process::id()).unwrap();
        let mut x = 1_u64;
        wait_until("some work", Duration::from_secs(20), || {
            for i in 0..5_000_000_u64 {
                x = std::hint::black_box(x.wrapping_mul(i | 1));
            }
            Ok(usage_of(std::process::id())?.cpu_seconds >= before.cpu_seconds + 0.05)
        })
        .unwrap();
    }

    #[test]
    fn names_with_brackets_do_not_shift_the_fields() {
        let stat = "12 (a) b) c) S 1 2 3 4 5 6 7 8 9 10 70 30 0 0";
        assert_eq!(cpu_ticks(stat), Some(100));
        assert_eq!(cpu_ticks("nonsense"), None);
    }

    #[test]
    fn a_failed_command_shows_what_it_printed() {
        let error = run(&Place::Local, &["sh", "-c", "echo why >&2; exit 4"]).unwrap_err().to_string();
        assert!(error.contains("why") && error.contains('4'), "{error}");
        assert_eq!(run(&Place::Local, &["echo", "yes"]).unwrap(), "yes\n");
        assert!(find_program("sh").is_some() && find_program("no-such-program-here").is_none());
    }
}
