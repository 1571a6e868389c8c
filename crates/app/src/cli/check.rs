//! `check`: is the configuration right, and will its certificates work?

use std::path::Path;
use std::time::SystemTime;

use clap::Args;
use isthmus_certs::{Examination, Role, TlsFiles, examine};
use isthmus_config::{Loaded, Tls};

use super::exit::{Exit, Failure};
use super::output::{self, errln};

/// Arguments of `check`.
#[derive(Args, Debug)]
pub struct Arguments<C: Args> {
    #[command(flatten)]
    pub configuration: C,

    /// Do not look at the certificates, for example on another machine than the proxy's
    #[arg(long)]
    no_certificates: bool,
}

/// Prints the effective configuration to standard output, and what is wrong or doubtful to standard error.
pub fn run<L, C: Args>(
    loaded: &Loaded<L>,
    tls: &Tls,
    role: Role,
    arguments: &Arguments<C>,
) -> Result<(), Failure> {
    output::out(format_args!("{}", loaded.effective))?;
    for warning in &loaded.warnings {
        errln!("warning: {warning}");
    }
    if arguments.no_certificates {
        return Ok(());
    }
    let files =
        TlsFiles { certificate: &tls.certificate, key: &tls.key, ca: &tls.ca, crl: tls.crl.as_deref() };
    report(&examine(&files, role, SystemTime::now()))
}

fn report(found: &Examination) -> Result<(), Failure> {
    for warning in &found.warnings {
        errln!("warning: {warning}");
    }
    let Some(first) = found.problems.first() else { return Ok(()) };
    let exit = first.io.map_or(Exit::Usage, Exit::of);
    let line = |path: &Path, text: &str| {
        if path.as_os_str().is_empty() { text.to_string() } else { format!("{}: {text}", path.display()) }
    };
    let lines: Vec<String> =
        found.problems.iter().map(|problem| line(&problem.path, &problem.text)).collect();
    Err(Failure::new(exit, lines.join("\n")))
}
