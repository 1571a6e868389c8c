//! Rules that belong to this process: when it ends, however it ends, they are gone.

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::InterceptError;
use crate::conflict::Conflict;
use crate::machine::{State, add_routing, checked, remove_routing};
use crate::plan::{FAMILY, Plan, TAKING};
use crate::tool::NFT;

/// Time within which the table has to be there.
const READY_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two looks at it.
const READY_POLL: Duration = Duration::from_millis(10);
/// Time for the holder to end by itself.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Most bytes of what the holder says that are kept.
const MESSAGE_BYTES_MAX: u64 = 4_000;
/// A service manager that stops a proxy signals everything that the proxy has started; the holder must stay until the
/// proxy lets go, since open connections need the rules.
const SHELL: &str = "trap '' TERM INT HUP; exec \"$0\" -i";

/// The rules of a plan, held. The table has the `owner` flag: the kernel ties it to the socket of an `nft` that this
/// process has started, which ends when its standard input does. So the rules go with this process even when it is
/// killed. (What a killed process leaves is the routing rule, without effect since nothing sets its mark any more.)
pub struct Held {
    plan: Plan,
    child: Child,
    stdin: Option<ChildStdin>,
    /// What a gateway needs and lacks.
    pub warnings: Vec<String>,
}

impl Held {
    /// Puts the rules in. `on_end` is called, from a thread of its own, when the holder has ended, with what it said:
    /// then nothing is intercepted any more. It is called after an end that was wanted, too.
    ///
    /// # Errors
    /// [`InterceptError::Conflicts`] before anything is changed; what `nft` or `ip` refuse.
    pub fn start(plan: &Plan, on_end: impl FnOnce(String) + Send + 'static) -> Result<Held, InterceptError> {
        let found = checked(plan)?;
        if matches!(found.state, State::Installed | State::Other) {
            return Err(InterceptError::Conflicts(vec![Conflict {
                place: format!("nftables, table {FAMILY} {}", plan.table),
                what: "was put in by `intercept install`; run `intercept remove`, or set intercept.install = false"
                    .into(),
            }]));
        }
        let commands = plan.nft_commands(true);
        NFT.done(&["-c", "-f", "-"], &commands.join("\n"))?;
        add_routing(plan)?;
        let mut child = holder().spawn().map_err(|error| NFT.missing(error))?;
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        let mut held = Held { plan: plan.clone(), child, stdin, warnings: found.warnings };
        std::thread::spawn(move || {
            let mut message = Vec::new();
            if let Some(mut stderr) = stderr {
                // An error is an end as well.
                let _ = stderr.by_ref().take(MESSAGE_BYTES_MAX).read_to_end(&mut message);
                let _ = std::io::copy(&mut stderr, &mut std::io::sink());
            }
            on_end(String::from_utf8_lossy(&message).trim().to_owned());
        });
        // In one line, so that it is one transaction.
        held.tell(&commands.join("; "))?;
        held.wait_until_ready()?;
        Ok(held)
    }

    /// Takes no new connections any more; those that are open keep what they need.
    ///
    /// # Errors
    /// The holder has ended, and the rules with it.
    pub fn take_no_more(&mut self) -> Result<(), InterceptError> {
        let table = format!("{FAMILY} {}", self.plan.table);
        // The rules behind it stay: with the last one that translates addresses, the kernel would stop to do so for connections
        // that are open. What passes by from now on is meant to.
        self.tell(&format!("flush chain {table} older; insert rule {table} {TAKING} return"))
    }

    /// The plan whose rules these are.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    fn tell(&mut self, line: &str) -> Result<(), InterceptError> {
        let gone = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let stdin = self.stdin.as_mut().ok_or_else(|| NFT.missing(gone()))?;
        stdin
            .write_all(format!("{line}\n").as_bytes())
            .and_then(|()| stdin.flush())
            .map_err(|error| NFT.missing(error))
    }

    fn wait_until_ready(&mut self) -> Result<(), InterceptError> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            let arguments = ["list", "chain", FAMILY, self.plan.table, self.plan.last_chain()];
            let answer = NFT.run(&arguments, "")?;
            if answer.succeeded {
                return Ok(());
            }
            let ended = self.child.try_wait().ok().flatten();
            if ended.is_some() || Instant::now() >= deadline {
                return Err(NFT.refused(&["-i"], &format!("the table does not come up: {}", answer.message)));
            }
            std::thread::sleep(READY_POLL);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let deadline = Instant::now() + END_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                // What does not end by itself is ended; if that fails, it has ended.
                let _ = self.child.kill();
                let _ = self.child.wait();
                break;
            }
            std::thread::sleep(READY_POLL);
        }
        // What is left does nothing, and the next start takes it over.
        let _ = remove_routing(&self.plan);
    }
}

fn holder() -> Command {
    let nft = NFT.command();
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", SHELL])
        .arg(nft.get_program())
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}
