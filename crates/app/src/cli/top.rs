//! `top`: connections, reduction and reasons in the terminal, again and again.

mod frame;
mod screen;

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::Value;

use super::exit::Failure;
use super::http;
use super::output::{self};

/// Columns of a frame that is not for a terminal.
const COLUMNS_DEFAULT: usize = 132;
/// Rows of connections in such a frame, unless another number is asked for.
const ROWS_DEFAULT: usize = 20;
/// Most rows: what the admin port gives at once.
const ROWS_MAX: usize = 500;

/// Arguments of `top`.
#[derive(Args, Debug)]
pub struct Arguments<C: Args> {
    #[command(flatten)]
    pub configuration: C,

    /// Ask this address instead of the configuration's admin.listen
    #[arg(long, value_name = "ADDRESS:PORT")]
    address: Option<SocketAddr>,

    /// Print one frame and end; also what happens where standard output is no terminal
    #[arg(long)]
    once: bool,

    /// Seconds between two frames
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,

    /// What connections are sorted by
    #[arg(long, value_enum, default_value_t = Sort::Lan)]
    sort: Sort,

    /// Least first
    #[arg(long)]
    reverse: bool,

    /// Only connections that are not optimised, also those that have ended
    #[arg(long)]
    not_optimised: bool,

    /// Only connections with this text in an address, name, rule, state, reason or user
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,

    /// Rows of connections in a single frame
    #[arg(long, value_name = "ROWS", default_value_t = ROWS_DEFAULT as u64, value_parser = clap::value_parser!(u64).range(1..=ROWS_MAX as u64))]
    rows: u64,
}

/// A column to sort by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// LAN bytes
    Lan,
    /// WAN bytes
    Wan,
    /// Data reduction
    Reduction,
    /// Time since it was opened
    Age,
    /// Address of the client
    Client,
    /// The server it wants
    Target,
    /// State
    State,
}

/// What is to be seen.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub sort: Sort,
    pub is_reversed: bool,
    pub not_optimised: bool,
    pub filter: String,
}

/// What the proxy has answered.
pub(crate) struct Answers {
    pub summary: Value,
    pub peers: Value,
    pub connections: Value,
}

impl Sort {
    /// The admin port's name of it, and whether its largest is what people want to see first.
    fn parameter(self) -> (&'static str, bool) {
        match self {
            Sort::Lan => ("lan_bytes", true),
            Sort::Wan => ("wan_bytes", true),
            Sort::Reduction => ("data_reduction", true),
            Sort::Age => ("age", true),
            Sort::Client => ("client", false),
            Sort::Target => ("target", false),
            Sort::State => ("state", false),
        }
    }
}

impl View {
    /// The question to the admin port for so many rows.
    fn path(&self, rows: usize) -> String {
        let (sort, is_descending) = self.sort.parameter();
        let order = if is_descending != self.is_reversed { "descending" } else { "ascending" };
        let state = if self.not_optimised { "not_optimised" } else { "open" };
        let mut path = format!(
            "/api/connections?state={state}&sort={sort}&order={order}&limit={}",
            rows.clamp(1, ROWS_MAX)
        );
        if !self.filter.is_empty() {
            path.push_str("&q=");
            // RFC 3986 2.1.
            for byte in self.filter.bytes() {
                if byte.is_ascii_alphanumeric() {
                    path.push(char::from(byte));
                } else {
                    path.push_str(&format!("%{byte:02X}"));
                }
            }
        }
        path
    }
}

impl Answers {
    /// Asks for what one frame shows.
    pub fn ask(address: SocketAddr, view: &View, rows: usize) -> Result<Answers, Failure> {
        Ok(Answers {
            summary: http::json(address, "/api/summary")?,
            peers: http::json(address, "/api/peers")?,
            connections: http::json(address, &view.path(rows))?,
        })
    }
}

/// Shows one frame, or frames until the user has had enough.
pub fn run<C: Args>(
    arguments: &Arguments<C>,
    configured: impl FnOnce() -> Result<Option<SocketAddr>, Failure>,
) -> Result<(), Failure> {
    let address = http::admin(arguments.address, configured)?;
    let view = View {
        sort: arguments.sort,
        is_reversed: arguments.reverse,
        not_optimised: arguments.not_optimised,
        filter: arguments.filter.clone(),
    };
    if !arguments.once && io::stdout().is_terminal() && io::stdin().is_terminal() {
        return screen::run(address, view, Duration::from_secs(arguments.interval));
    }
    let rows = usize::try_from(arguments.rows).unwrap_or(ROWS_MAX);
    let columns = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).unwrap_or(COLUMNS_DEFAULT);
    let answers = Answers::ask(address, &view, rows)?;
    for line in frame::frame(&answers, &view, columns, rows) {
        output::out(format_args!("{}\n", line.trim_end()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_says_what_to_show() {
        let mut view =
            View { sort: Sort::Lan, is_reversed: false, not_optimised: false, filter: String::new() };
        assert_eq!(view.path(7), "/api/connections?state=open&sort=lan_bytes&order=descending&limit=7");
        view.sort = Sort::Client;
        assert_eq!(view.path(0), "/api/connections?state=open&sort=client&order=ascending&limit=1");
        (view.is_reversed, view.not_optimised, view.filter) = (true, true, "a b&ü".into());
        assert_eq!(
            view.path(9_000),
            "/api/connections?state=not_optimised&sort=client&order=descending&limit=500&q=a%20b%26%C3%BC"
        );
    }
}
