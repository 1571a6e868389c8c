//! The programs `nft` and `ip`, which every Linux gateway has.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::InterceptError;

/// Most bytes of an answer that are read. Rule sets of a busy gateway have a few megabytes.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Most bytes of an error message that are shown.
const MESSAGE_BYTES_MAX: usize = 1_000;

pub(crate) const NFT: Tool = Tool { program: "nft", package: "nftables" };
pub(crate) const IP: Tool = Tool { program: "ip", package: "iproute2" };
pub(crate) const IPTABLES_LEGACY_SAVE: Tool = Tool { program: "iptables-legacy-save", package: "iptables" };
pub(crate) const IP6TABLES_LEGACY_SAVE: Tool = Tool { program: "ip6tables-legacy-save", package: "iptables" };

/// A program and the Debian package that brings it.
#[derive(Clone, Copy)]
pub(crate) struct Tool {
    pub program: &'static str,
    package: &'static str,
}

/// What a program said, and whether it succeeded.
pub(crate) struct Answer {
    pub succeeded: bool,
    pub output: String,
    pub message: String,
}

impl Tool {
    /// The program, with messages in English. Services often have a path without the folders of system programs.
    pub fn command(self) -> Command {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let system = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
        let found = std::env::split_paths(&path)
            .chain(system)
            .map(|folder| folder.join(self.program))
            .find(|file| file.is_file());
        let mut command = Command::new(found.unwrap_or_else(|| self.program.into()));
        command.env("LC_ALL", "C");
        command
    }

    pub fn missing(self, error: std::io::Error) -> InterceptError {
        InterceptError::Tool { program: self.program, package: self.package, error }
    }

    /// Runs it to its end with `input` on its standard input.
    pub fn run(self, arguments: &[&str], input: &str) -> Result<Answer, InterceptError> {
        let mut child = self
            .command()
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| self.missing(error))?;
        let io = exchange(&mut child, input);
        let status = child.wait().map_err(|error| self.missing(error))?;
        let (output, message) = io.map_err(|error| self.missing(error))?;
        Ok(Answer { succeeded: status.success(), output, message })
    }

    /// As [`Tool::run`]; an end without success is an error.
    pub fn done(self, arguments: &[&str], input: &str) -> Result<String, InterceptError> {
        let answer = self.run(arguments, input)?;
        if answer.succeeded { Ok(answer.output) } else { Err(self.refused(arguments, &answer.message)) }
    }

    /// The answer as JSON; nothing printed counts as an empty list.
    pub fn json(self, arguments: &[&str]) -> Result<Value, InterceptError> {
        let output = self.done(arguments, "")?;
        if output.trim().is_empty() {
            return Ok(Value::Array(Vec::new()));
        }
        serde_json::from_str(&output).map_err(|error| InterceptError::Answer {
            command: self.shown(arguments),
            detail: error.to_string(),
        })
    }

    pub fn refused(self, arguments: &[&str], message: &str) -> InterceptError {
        let message: String = message.trim().chars().take(MESSAGE_BYTES_MAX).collect();
        if message.contains("Operation not permitted") || message.contains("must be root") {
            return InterceptError::Permission(message);
        }
        InterceptError::Refused { command: self.shown(arguments), output: message }
    }

    fn shown(self, arguments: &[&str]) -> String {
        format!("{} {}", self.program, arguments.join(" "))
    }
}

/// Writes the input, and reads both outputs at the same time so that neither side waits for the other for ever.
fn exchange(child: &mut Child, input: &str) -> std::io::Result<(String, String)> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let read = |source: Option<Box<dyn std::io::Read + Send>>| -> std::io::Result<String> {
        let mut bytes = Vec::new();
        if let Some(source) = source {
            source.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes)?;
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    std::thread::scope(|scope| {
        let message = scope.spawn(|| read(stderr.map(|pipe| Box::new(pipe) as _)));
        let output = scope.spawn(|| read(stdout.map(|pipe| Box::new(pipe) as _)));
        if let Some(mut stdin) = stdin {
            // A program that ends without reading it says why itself.
            let _ = stdin.write_all(input.as_bytes());
        }
        let joined = |thread: std::thread::ScopedJoinHandle<'_, std::io::Result<String>>| {
            thread.join().unwrap_or_else(|_| Err(std::io::Error::other("a reading thread ended early")))
        };
        Ok((joined(output)?, joined(message)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_its_input_and_gives_its_output() {
        let cat = Tool { program: "cat", package: "coreutils" };
        let long = "line\n".repeat(100_000);
        assert_eq!(cat.done(&[], &long).unwrap(), long);
    }

    #[test]
    fn errors_name_the_program_and_what_it_said() {
        let missing = Tool { program: "no-such-program-here", package: "nothing" };
        let error = missing.done(&[], "").unwrap_err().to_string();
        assert!(error.contains("no-such-program-here") && error.contains("the package nothing"), "{error}");
        let ls = Tool { program: "ls", package: "coreutils" };
        let error = ls.done(&["/no/such/folder"], "").unwrap_err().to_string();
        assert!(error.starts_with("ls /no/such/folder: ") && error.contains("No such file"), "{error}");
        let denied = ls.refused(&[], "Error: Operation not permitted (you must be root)");
        assert!(matches!(denied, InterceptError::Permission(_)));
    }
}
