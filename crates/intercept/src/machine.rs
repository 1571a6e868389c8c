//! Putting rules in, removing them, and looking at what is there.

use std::path::Path;

use serde_json::Value;

use crate::InterceptError;
use crate::conflict::{Conflict, Conflicts, items, word};
use crate::plan::{FAMILY, Family, Plan};
use crate::tool::{IP, IP6TABLES_LEGACY_SAVE, IPTABLES_LEGACY_SAVE, NFT, Tool};

/// Tables that are looked at.
const TABLES_MAX: usize = 1_000;

/// What there is of a plan's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    Absent,
    /// Everything, put in for good.
    Installed,
    /// A table of the name, made from another plan, or without its routing rule.
    Other,
    /// A process holds the table: a running proxy.
    Held,
}

/// What the machine has, beside a plan.
#[derive(Clone, Debug)]
pub struct Found {
    pub state: State,
    /// What is in the plan's way.
    pub conflicts: Vec<Conflict>,
    /// What keeps it from working, though rules can be put in: settings of the machine that are not touched.
    pub warnings: Vec<String>,
}

/// Looks at the machine and changes nothing.
///
/// # Errors
/// `nft` or `ip` cannot be run, or may not look.
pub fn look(plan: &Plan) -> Result<Found, InterceptError> {
    let tables = tables()?;
    let mut conflicts = Conflicts::new(plan);
    let mut warnings = warnings(plan);
    for table in tables.iter().filter(|table| table.name != plan.table) {
        match NFT.json(&["-j", "list", "table", &table.family, &table.name]) {
            Ok(listed) => conflicts.nftables(&listed),
            Err(InterceptError::Answer { .. }) => warnings.push(format!(
                "the rules of table {} {} cannot be looked at: nft lists them in a form that cannot be read",
                table.family, table.name
            )),
            Err(error) => return Err(error),
        }
    }
    let mut routed = true;
    for family in plan.families().iter().filter(|_| plan.form.routes()) {
        let rules = IP.json(&["-j", family.option(), "rule"])?;
        let routes = routes(plan, *family)?;
        conflicts.rules(family.option(), &rules);
        conflicts.routes(family.option(), &routes);
        routed &= has_rule(plan, &rules) && !items(&routes).is_empty();
    }
    for tool in [IPTABLES_LEGACY_SAVE, IP6TABLES_LEGACY_SAVE] {
        match legacy(tool) {
            Legacy::None => {}
            Legacy::Saved(saved) => conflicts.legacy(tool.program, &saved),
            Legacy::Unreadable => warnings.push(format!(
                "this machine has rules of iptables-legacy, and {} is not there to look at them",
                tool.program
            )),
        }
    }
    let state = state(plan, own_table(plan)?.as_deref(), routed);
    Ok(Found { state, conflicts: conflicts.found, warnings })
}

/// Puts the rules in for good, in place of those of an earlier plan. What is there already stays.
///
/// # Errors
/// [`InterceptError::Conflicts`] before anything is changed; [`InterceptError::Unattended`] for a form that needs an
/// owner, unless `unattended`; what `nft` or `ip` refuse.
pub fn install(plan: &Plan, unattended: bool) -> Result<Found, InterceptError> {
    if !unattended && !plan.form.falls_through() {
        return Err(InterceptError::Unattended);
    }
    let found = checked(plan)?;
    let table = plan.nft_commands(false).join("\n");
    NFT.done(&["-c", "-f", "-"], &table)?;
    // The route first: a marked packet without one would go astray.
    add_routing(plan)?;
    NFT.done(&["-f", "-"], &table)?;
    Ok(found)
}

/// Removes the rules. Says whether there was anything.
///
/// # Errors
/// A running proxy holds the table; what `nft` or `ip` refuse.
pub fn remove(plan: &Plan) -> Result<bool, InterceptError> {
    let table = own_table(plan)?;
    if table.as_deref().is_some_and(is_held) {
        return Err(InterceptError::Conflicts(vec![held(plan)]));
    }
    let was_there = table.is_some();
    if was_there {
        NFT.done(&["delete", "table", FAMILY, plan.table], "")?;
    }
    Ok(remove_routing(plan)? || was_there)
}

/// Looks, and fails on whatever is in the way.
pub(crate) fn checked(plan: &Plan) -> Result<Found, InterceptError> {
    let mut found = look(plan)?;
    if found.state == State::Held {
        found.conflicts.push(held(plan));
    }
    if found.conflicts.is_empty() { Ok(found) } else { Err(InterceptError::Conflicts(found.conflicts)) }
}

/// The routing rule and its route, where they are not there yet.
pub(crate) fn add_routing(plan: &Plan) -> Result<(), InterceptError> {
    for family in plan.families().iter().filter(|_| plan.form.routes()) {
        let option = family.option();
        if items(&routes(plan, *family)?).is_empty() {
            run_ip(option, "route", "add", &plan.route_arguments())?;
        }
        if !has_rule(plan, &IP.json(&["-j", option, "rule"])?) {
            run_ip(option, "rule", "add", &plan.rule_arguments())?;
        }
    }
    Ok(())
}

/// Removes them. Says whether there were any.
pub(crate) fn remove_routing(plan: &Plan) -> Result<bool, InterceptError> {
    let mut was_there = false;
    for family in plan.families().iter().filter(|_| plan.form.routes()) {
        let option = family.option();
        if has_rule(plan, &IP.json(&["-j", option, "rule"])?) {
            run_ip(option, "rule", "del", &plan.rule_arguments())?;
            was_there = true;
        }
        let routes = routes(plan, *family)?;
        if items(&routes).iter().any(|route| word(&route["type"]) == "local") {
            run_ip(option, "route", "del", &plan.route_arguments())?;
            was_there = true;
        }
    }
    Ok(was_there)
}

fn run_ip(option: &str, object: &str, verb: &str, arguments: &[String]) -> Result<(), InterceptError> {
    let mut all = vec![option, object, verb];
    all.extend(arguments.iter().map(String::as_str));
    IP.done(&all, "").map(drop)
}

fn routes(plan: &Plan, family: Family) -> Result<Value, InterceptError> {
    let table = plan.routing_table.to_string();
    let arguments = ["-j", family.option(), "route", "show", "table", &table];
    let answer = IP.run(&arguments, "")?;
    if !answer.succeeded && answer.message.contains("does not exist") {
        return Ok(Value::Array(Vec::new()));
    }
    IP.json(&arguments)
}

fn has_rule(plan: &Plan, rules: &Value) -> bool {
    let (mark, table) = (format!("{:#x}", plan.mark), plan.routing_table.to_string());
    items(rules).iter().any(|rule| {
        word(&rule["fwmark"]) == mark
            && word(&rule["table"]) == table
            && rule["priority"].as_u64() == Some(u64::from(plan.priority))
    })
}

/// A table that there is.
#[derive(Debug, PartialEq, Eq)]
struct Table {
    family: String,
    name: String,
}

/// Every table. As text, since some versions of nft print no sound JSON of tables that have an owner.
fn tables() -> Result<Vec<Table>, InterceptError> {
    Ok(read_tables(&NFT.done(&["list", "tables"], "")?))
}

fn read_tables(listed: &str) -> Vec<Table> {
    let read = |line: &str| {
        let mut words = line.strip_prefix("table ")?.split_whitespace();
        Some(Table { family: words.next()?.into(), name: words.next()?.into() })
    };
    listed.lines().filter_map(read).take(TABLES_MAX).collect()
}

/// The text of the plan's own table, if it is there.
fn own_table(plan: &Plan) -> Result<Option<String>, InterceptError> {
    if !tables()?.iter().any(|table| table.family == FAMILY && table.name == plan.table) {
        return Ok(None);
    }
    // It may have gone this moment.
    let answer = NFT.run(&["list", "table", FAMILY, plan.table], "")?;
    Ok(answer.succeeded.then_some(answer.output))
}

fn state(plan: &Plan, listed: Option<&str>, routed: bool) -> State {
    match listed {
        None => State::Absent,
        Some(listed) if is_held(listed) => State::Held,
        Some(listed) if routed && listed.contains(&format!("comment \"{}\"", plan.comment())) => {
            State::Installed
        }
        Some(_) => State::Other,
    }
}

/// Whether a table has the flag that ties it to a process.
fn is_held(listed: &str) -> bool {
    let flags = listed.lines().find_map(|line| line.trim().strip_prefix("flags "));
    flags.is_some_and(|flags| flags.split(',').any(|flag| flag.trim() == "owner"))
}

fn held(plan: &Plan) -> Conflict {
    Conflict {
        place: format!("nftables, table {FAMILY} {}", plan.table),
        what: "is held by a running proxy, and goes when that ends; stop it first".into(),
    }
}

enum Legacy {
    None,
    Saved(String),
    Unreadable,
}

/// Rules of the old kernel interface. Asking for them where there are none would load its modules.
fn legacy(tool: Tool) -> Legacy {
    let names = if tool.program.starts_with("ip6") { "ip6_tables_names" } else { "ip_tables_names" };
    let tables = std::fs::read_to_string(Path::new("/proc/net").join(names)).unwrap_or_default();
    if tables.trim().is_empty() {
        return Legacy::None;
    }
    match tool.done(&[], "") {
        Ok(saved) => Legacy::Saved(saved),
        Err(_) => Legacy::Unreadable,
    }
}

/// Settings that a gateway needs and that are the administrator's.
fn warnings(plan: &Plan) -> Vec<String> {
    let is_off = |setting: &str| {
        std::fs::read_to_string(Path::new("/proc/sys/net").join(setting))
            .is_ok_and(|value| value.trim() == "0")
    };
    let mut warnings = Vec::new();
    let forwards = plan.form != crate::Form::Local;
    if forwards && is_off("ipv4/ip_forward") && is_off("ipv6/conf/all/forwarding") {
        warnings.push(
            "this machine forwards nothing (net.ipv4.ip_forward and net.ipv6.conf.all.forwarding are 0): \
             without the proxy, connections will not go on"
                .into(),
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Form, tests::plan};

    #[test]
    fn the_state_is_read_from_the_own_table() {
        let plan = plan(Form::Tproxy);
        let text = |inner: &str| format!("table inet {} {{{inner}\n\n\tchain own {{\n\t}}\n}}\n", plan.table);
        let comment = format!("\n\tcomment \"{}\"", plan.comment());
        assert_eq!(state(&plan, Some(&text(&comment)), true), State::Installed);
        assert_eq!(state(&plan, Some(&text(&comment)), false), State::Other, "no route");
        assert_eq!(state(&plan, Some(&text("\n\tcomment \"isthmus 0\"")), true), State::Other);
        let held = text(&format!(" # progname nft\n\tflags owner{comment}"));
        assert_eq!(state(&plan, Some(&held), true), State::Held);
        assert_eq!(state(&plan, None, true), State::Absent);
    }

    /// Checks every kind of rule against the kernel, and changes nothing.
    #[test]
    fn nft_takes_every_plan() {
        if !nix::unistd::geteuid().is_root() || NFT.run(&["list", "tables"], "").is_err() {
            return println!("skipped: needs root and the program nft (package nftables)");
        }
        for form in [Form::Tproxy, Form::Redirect, Form::Local, Form::Answers] {
            for (ipv6, reset_preexisting, held) in
                [(false, false, false), (true, false, true), (true, true, true)]
            {
                let interfaces = if held { vec![] } else { vec!["lan0".into(), "wg*".into()] };
                let plan = Plan { ipv6, reset_preexisting, interfaces, source: vec![], ..plan(form) };
                let commands = plan.nft_commands(held).join(if held { "; " } else { "\n" });
                let checked = NFT.done(&["-c", "-f", "-"], &commands);
                assert!(checked.is_ok(), "{}\n{commands}", checked.unwrap_err());
            }
        }
    }

    #[test]
    fn tables_are_read_by_family_and_name() {
        let tables = read_tables("table ip filter\ntable inet isthmus_client\n\n");
        let names: Vec<_> = tables.iter().map(|table| (table.family.as_str(), table.name.as_str())).collect();
        assert_eq!(names, [("ip", "filter"), ("inet", "isthmus_client")]);
    }
}
