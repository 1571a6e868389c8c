use std::io;

use thiserror::Error;

use crate::Conflict;

/// Why rules could not be put in, looked at or removed.
#[derive(Debug, Error)]
pub enum InterceptError {
    /// A program that is needed is not there, or cannot be run.
    #[error("{program} cannot be run: {error}; it comes with the package {package}")]
    Tool { program: &'static str, package: &'static str, error: io::Error },
    /// A program says no.
    #[error("{command}: {output}")]
    Refused { command: String, output: String },
    /// A program's answer is not what it should be.
    #[error("the answer of {command} cannot be used: {detail}")]
    Answer { command: String, detail: String },
    /// Something on the machine is in the way. Nothing was changed.
    #[error("{}", shown(.0))]
    Conflicts(Vec<Conflict>),
    /// The right to change rules is missing.
    #[error("the right to change packet filter rules is missing (CAP_NET_ADMIN): {0}")]
    Permission(String),
    /// Rules of a form that do not fall through must belong to somebody who removes them.
    #[error(
        "without a running proxy these rules would refuse connections, so they cannot be left to themselves: let `run` put \
         them in (intercept.install = true), or give --unattended and make sure that `intercept remove` is run when the proxy \
         ends"
    )]
    Unattended,
}

fn shown(conflicts: &[Conflict]) -> String {
    let lines: Vec<String> = conflicts.iter().map(|conflict| format!("  {conflict}")).collect();
    format!("nothing was changed, since these are in the way:\n{}", lines.join("\n"))
}
