//! `isthmus-server fleet`: every agent and gateway, as the running proxy knows them; without one, what the register holds.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use isthmus_config::ServerConfig;
use serde_json::Value;

use super::exit::{Exit, Failure};
use super::fleet::{Load, register};
use super::output::{errln, outln};
use super::{http, status};

/// Arguments of `fleet` alone.
#[derive(Args, Debug)]
pub struct RosterArguments<C: Args> {
    #[command(flatten)]
    configuration: C,

    /// Ask this address instead of the configuration's admin.listen
    #[arg(long, value_name = "ADDRESS:PORT")]
    address: Option<SocketAddr>,

    /// As JSON, as the admin port gives it
    #[arg(long)]
    json: bool,
}

pub fn run<C: Args>(arguments: &RosterArguments<C>, load: Load<'_, C>) -> Result<(), Failure> {
    let config = load(&arguments.configuration)?;
    let members = match arguments.address.or(config.admin.listen).map(|at| http::json(at, "/api/fleet")) {
        Some(Ok(members)) => members,
        Some(Err(failure)) if arguments.address.is_some() => return Err(failure),
        Some(Err(failure)) => {
            errln!("{}; this is what the register holds", failure.text);
            offline(&config)?
        }
        None => offline(&config)?,
    };
    if arguments.json {
        outln!("{members:#}");
        return Ok(());
    }
    show(&members)
}

/// What can be said without a running proxy.
fn offline(config: &ServerConfig) -> Result<Value, Failure> {
    let fleet = register(config)?;
    let seen = fleet.seen()?;
    let agents = fleet.agents()?;
    let members = agents.iter().map(|agent| crate::fleet::member(agent, seen.get(&agent.name))).collect();
    serde_json::to_value(isthmus_control::fleet_view(members))
        .map_err(|error| Failure::new(Exit::Software, format!("the list cannot be written: {error}")))
}

fn show(value: &Value) -> Result<(), Failure> {
    let members: Vec<&Value> = value["members"].as_array().into_iter().flatten().collect();
    if members.is_empty() {
        outln!("Nobody has enrolled or connected yet.");
        return Ok(());
    }
    let rows: Vec<BTreeMap<&str, String>> = members.iter().map(|member| row(member)).collect();
    let mut line = String::new();
    let widths: Vec<(&str, usize)> = COLUMNS
        .iter()
        .map(|column| {
            let longest = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            (*column, longest.max(column.len()))
        })
        .collect();
    for (column, width) in &widths {
        line.push_str(&format!("{column:<width$}  "));
    }
    outln!("{}", line.trim_end());
    for row in &rows {
        let mut line = String::new();
        for (column, width) in &widths {
            line.push_str(&format!("{:<width$}  ", row[column]));
        }
        outln!("{}", line.trim_end());
    }
    Ok(())
}

const COLUMNS: [&str; 9] =
    ["NAME", "KIND", "STATE", "SEEN", "VERSION", "POLICY", "LOCATION", "REDUCTION", "CERTIFICATE"];

fn row(member: &Value) -> BTreeMap<&'static str, String> {
    let text = |key: &str| status::plain(member[key].as_str().unwrap_or("-"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let policy = match (member["policy"].as_str(), member["policy_version"].as_u64()) {
        (Some(name), Some(has)) if Some(has) == member["policy_current"].as_u64() => {
            format!("{} v{has}", status::plain(name))
        }
        (Some(name), has) => format!(
            "{} v{} (has v{})",
            status::plain(name),
            member["policy_current"].as_u64().unwrap_or(0),
            has.unwrap_or(0)
        ),
        (None, _) => "-".into(),
    };
    let seen = match (member["connected"].as_bool(), member["seen"].as_f64()) {
        (Some(true), _) => "now".into(),
        (_, Some(at)) => format!("{} ago", status::span(now - at)),
        _ => "never".into(),
    };
    let certificate = match (member["revoked"].as_f64(), member["certificate_until"].as_f64()) {
        (Some(_), _) => "revoked".into(),
        (None, Some(end)) if end <= now => "expired".into(),
        (None, Some(end)) => format!("{} left", status::span(end - now)),
        _ => "-".into(),
    };
    let reduction = match (member["lan_bytes"].as_f64(), member["wan_bytes"].as_f64()) {
        (Some(lan), Some(wan)) if lan > 0.0 => format!("{:.1} %", (1.0 - wan / lan) * 100.0),
        _ => "-".into(),
    };
    let values = [
        text("name"),
        text("kind"),
        text("state"),
        seen,
        text("version"),
        policy,
        text("location"),
        reduction,
        certificate,
    ];
    COLUMNS.into_iter().zip(values).collect()
}
