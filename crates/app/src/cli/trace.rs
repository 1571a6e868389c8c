//! `trace`: shows what becomes of each request of one connection, through the admin port.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;

use super::exit::Failure;
use super::http;
use super::output::outln;
use super::status::plain;

/// Time between two questions. The proxy forgets a trace that nobody asks for within ten seconds.
const INTERVAL: Duration = Duration::from_millis(500);

/// Arguments of `trace`.
#[derive(Args, Debug)]
pub struct Arguments<C: Args> {
    #[command(flatten)]
    pub configuration: C,

    /// Number of the connection, as `top` and the console have it
    connection: u64,

    /// Stop after so many seconds; without it, at the connection's end
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,

    /// Ask this address instead of the configuration's admin.listen
    #[arg(long, value_name = "ADDRESS:PORT")]
    address: Option<SocketAddr>,

    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

/// Asks and prints until it is time. `configured` gives `admin.listen`, and is only called when no address was given.
pub fn run<C: Args>(
    arguments: &Arguments<C>,
    configured: impl FnOnce() -> Result<Option<SocketAddr>, Failure>,
) -> Result<(), Failure> {
    let address = http::admin(arguments.address, configured)?;
    let until = arguments.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut after = 0;
    loop {
        let path = format!("/api/trace?connection={}&after={after}", arguments.connection);
        let view = http::json(address, &path)?;
        for request in view["requests"].as_array().into_iter().flatten() {
            let number = request["number"].as_u64().unwrap_or(after);
            if after > 0 && number > after + 1 {
                outln!("({} requests came too fast to be kept)", number - after - 1);
            }
            after = after.max(number);
            if arguments.json { outln!("{request}") } else { outln!("{}", line(request)) }
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            return Ok(());
        }
        std::thread::sleep(INTERVAL);
    }
}

/// One request for people: when, how long, where, what, by which permit.
fn line(request: &Value) -> String {
    let text = |key: &str| plain(request[key].as_str().unwrap_or(""));
    let number = |key: &str| request[key].as_f64().unwrap_or(0.0);
    let permit = match text("permit") {
        permit if permit.is_empty() => String::new(),
        permit => format!("  by {permit}"),
    };
    let status = match request["status"].as_str() {
        Some("0x00000000") | None => String::new(),
        Some(status) => format!("  {}", plain(status)),
    };
    format!(
        "{:10.3} s {:9.1} ms  {:6}  {:12} {}{status}{permit}",
        number("at_seconds"),
        number("seconds") * 1000.0,
        text("answered"),
        text("request"),
        text("name"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_where_by_what_and_how_long() {
        let request = serde_json::json!({
            "number": 3, "at_seconds": 1.5, "request": "READ", "name": "a\\b\u{1b}[2J", "answered": "ahead",
            "permit": "lease", "status": "0xc0000011", "seconds": 0.0123,
        });
        let line = line(&request);
        for part in ["1.500 s", "12.3 ms", "ahead", "READ", "a\\b", "0xc0000011", "by lease"] {
            assert!(line.contains(part), "{part} in {line}");
        }
        assert!(!line.contains('\u{1b}'), "nothing of a name acts on a terminal");
    }
}
