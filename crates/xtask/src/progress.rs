//! What is going on: one line that is rewritten on a terminal, a line for each step otherwise.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::Instant;

/// Columns that a status line may fill; a longer one would wrap and could not be rewritten.
const WIDTH: usize = 100;

/// Prints steps and status to standard error.
pub struct Progress {
    is_terminal: bool,
    has_status: bool,
    start: Instant,
}

impl Progress {
    /// Starts the clock.
    pub fn new() -> Progress {
        Progress { is_terminal: stderr().is_terminal(), has_status: false, start: Instant::now() }
    }

    /// A step that stays visible.
    pub fn step(&mut self, text: &str) {
        self.clear();
        eprintln!("[{:>4.0} s] {text}", self.start.elapsed().as_secs_f64());
    }

    /// What is being done right now; on a terminal it is rewritten by the next one, otherwise it is not shown.
    pub fn status(&mut self, text: &str) {
        if !self.is_terminal {
            return;
        }
        let line: String = text.chars().take(WIDTH).collect();
        eprint!("\r[{:>4.0} s] {line:<WIDTH$}", self.start.elapsed().as_secs_f64());
        // A terminal that has gone needs no status.
        let _ = stderr().flush();
        self.has_status = true;
    }

    /// Removes the status line, so that something else can be printed.
    pub fn clear(&mut self) {
        if self.has_status {
            eprint!("\r{:WIDTH$}            \r", "");
            self.has_status = false;
        }
    }
}

/// A number of bytes for people, in powers of ten.
pub fn human_bytes(bytes: f64) -> String {
    match bytes {
        b if b >= 1e9 => format!("{:.2} GB", b / 1e9),
        b if b >= 1e6 => format!("{:.1} MB", b / 1e6),
        b if b >= 1e3 => format!("{:.1} kB", b / 1e3),
        b => format!("{b:.0} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_digits_or_so() {
        assert_eq!(human_bytes(999.0), "999 B");
        assert_eq!(human_bytes(60_123.0), "60.1 kB");
        assert_eq!(human_bytes(96_300_000.0), "96.3 MB");
        assert_eq!(human_bytes(1.95e9), "1.95 GB");
    }
}
