//! Standard output and standard error, without the panic that `println!` has when nobody reads any more.

use std::fmt::Arguments;
use std::io::{self, Write};

use super::exit::{Exit, Failure};

/// Writes to standard output. A reader that went away ends the program without a word, as it does to other tools.
pub fn out(text: Arguments<'_>) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_fmt(text).and_then(|()| stdout.flush()).map_err(|error| {
        let gone = error.kind() == io::ErrorKind::BrokenPipe;
        let text = if gone { String::new() } else { format!("standard output: {error}") };
        Failure::new(Exit::Io, text)
    })
}

/// Writes a line to standard error. If that fails there is nobody left to tell.
pub fn err(text: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// `println!` that returns its error from the function it stands in.
macro_rules! outln {
    ($($part:tt)*) => {
        $crate::cli::output::out(format_args!("{}\n", format_args!($($part)*)))?
    };
}

/// `eprintln!` that cannot panic.
macro_rules! errln {
    ($($part:tt)*) => {
        $crate::cli::output::err(format_args!($($part)*))
    };
}

pub(super) use {errln, outln};
