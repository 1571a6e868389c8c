//! `intercept install`, `remove` and `show`: the rules that bring connections to the proxy.

use clap::{Args, Subcommand};
use isthmus_intercept::{Flow, Form, Found, Held, Plan, State, install, look, remove};
use serde_json::json;

use super::exit::{Exit, Failure};
use super::output::{self, errln, outln};

/// The `intercept` sub-commands.
#[derive(Subcommand, Debug)]
pub enum Command<C: Args> {
    /// Put the packet filter and routing rules in for good, for a proxy with intercept.install = false
    Install(#[command(flatten)] InstallArguments<C>),
    /// Remove the rules
    Remove(#[command(flatten)] RemoveArguments<C>),
    /// Print the rules, whether they are in place, and what is in their way
    Show(#[command(flatten)] ShowArguments<C>),
}

#[derive(Args, Debug)]
pub struct InstallArguments<C: Args> {
    #[command(flatten)]
    configuration: C,

    /// Also rules that refuse connections while no proxy runs: `intercept remove` must be run when it ends
    #[arg(long)]
    unattended: bool,
}

#[derive(Args, Debug)]
pub struct RemoveArguments<C: Args> {
    #[command(flatten)]
    configuration: C,
}

#[derive(Args, Debug)]
pub struct ShowArguments<C: Args> {
    #[command(flatten)]
    configuration: C,

    /// As JSON
    #[arg(long)]
    json: bool,
}

impl<C: Args> Command<C> {
    /// The configuration's arguments.
    pub fn configuration(&self) -> &C {
        match self {
            Command::Install(arguments) => &arguments.configuration,
            Command::Remove(arguments) => &arguments.configuration,
            Command::Show(arguments) => &arguments.configuration,
        }
    }
}

/// Carries the command out. `plan` is what the configuration wants, if anything; `any` is enough of a plan to remove what
/// an earlier configuration has left. `key` is what switches interception on.
pub fn run<C: Args>(command: &Command<C>, plan: Option<&Plan>, any: &Plan, key: &str) -> Result<(), Failure> {
    let wanted =
        plan.ok_or_else(|| Failure::new(Exit::Usage, format!("nothing is to be intercepted: {key} says so")));
    match command {
        Command::Install(arguments) => {
            let plan = wanted?;
            let found = install(plan, arguments.unattended)?;
            warn(&found);
            let what = match found.state {
                State::Installed => "was installed already",
                State::Other => "installed in place of that of another configuration",
                State::Absent | State::Held => "installed",
            };
            outln!("table inet {}: {what}", plan.table);
        }
        Command::Remove(_) => {
            let what = if remove(any)? { "removed" } else { "was not there" };
            outln!("table inet {}: {what}", any.table);
        }
        Command::Show(arguments) => return show(wanted?, arguments.json),
    }
    Ok(())
}

fn show(plan: &Plan, as_json: bool) -> Result<(), Failure> {
    let found = look(plan)?;
    let is_held = found.state == State::Held;
    let flows = if is_held && plan.form != Form::Answers { Held::passing_by(plan)? } else { Vec::new() };
    if as_json {
        let conflicts: Vec<String> = found.conflicts.iter().map(ToString::to_string).collect();
        let ends =
            |flow: &Flow| json!({ "client": flow.client.to_string(), "target": flow.target.to_string() });
        outln!(
            "{:#}",
            json!({
                "table": plan.table,
                "state": state(found.state),
                "conflicts": conflicts,
                "warnings": found.warnings,
                "pre_existing": flows.iter().map(ends).collect::<Vec<_>>(),
                "rules": plan.script(is_held),
            })
        );
    } else {
        outln!("# table inet {}: {}", plan.table, state(found.state).replace('_', " "));
        for flow in &flows {
            outln!("# pre-existing: {} to {}", flow.client, flow.target);
        }
        output::out(format_args!("{}", plan.script(is_held)))?;
        warn(&found);
        for conflict in &found.conflicts {
            errln!("conflict: {conflict}");
        }
    }
    // They have been told.
    if found.conflicts.is_empty() { Ok(()) } else { Err(Failure::new(Exit::Unavailable, "")) }
}

fn state(state: State) -> &'static str {
    match state {
        State::Absent => "not_installed",
        State::Installed => "installed",
        State::Other => "installed_for_another_configuration",
        State::Held => "held_by_a_running_proxy",
    }
}

fn warn(found: &Found) {
    for warning in &found.warnings {
        errln!("warning: {warning}");
    }
}
