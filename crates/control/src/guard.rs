//! What every request must pass, and what every response carries.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Nothing from elsewhere, nothing inline, no framing.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const RESPONSE_HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Host names that are allowed beside `localhost` and literal addresses.
#[derive(Clone)]
pub(crate) struct Hosts(Arc<[String]>);

impl Hosts {
    pub(crate) fn new(names: &[String]) -> Hosts {
        Hosts(names.iter().map(|name| name.trim_end_matches('.').to_ascii_lowercase()).collect())
    }

    /// Whether a `Host` header names this proxy. A literal address is always good: a page of another site cannot have
    /// one of ours as its origin.
    fn permit(&self, host: &str) -> bool {
        let Some(name) = host_name(host) else { return false };
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        name.parse::<IpAddr>().is_ok() || name == "localhost" || self.0.contains(&name)
    }
}

/// The middleware around all routes.
pub(crate) async fn guard(State(hosts): State<Hosts>, request: Request, next: Next) -> Response {
    let head_only = request.method() == Method::HEAD;
    let mut response = match refusal(&hosts, &request) {
        Some((status, text)) => (status, text).into_response(),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in RESPONSE_HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    if head_only && response.status().is_client_error() {
        *response.body_mut() = Body::empty();
    }
    response
}

fn refusal(hosts: &Hosts, request: &Request) -> Option<(StatusCode, &'static str)> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Some((StatusCode::METHOD_NOT_ALLOWED, "this port answers GET and HEAD only\n"));
    }
    if has_body(request.headers()) {
        return Some((StatusCode::PAYLOAD_TOO_LARGE, "this port takes no request body\n"));
    }
    let mut named = request.headers().get_all(header::HOST).iter();
    let host = named.next().and_then(|value| value.to_str().ok());
    match host {
        Some(host) if named.next().is_none() && hosts.permit(host) => None,
        _ => Some((
            StatusCode::MISDIRECTED_REQUEST,
            "this name is not one of the admin port's hosts; use its address, or add the name to the configuration\n",
        )),
    }
}

fn has_body(headers: &HeaderMap) -> bool {
    let length = headers.get(header::CONTENT_LENGTH);
    headers.contains_key(header::TRANSFER_ENCODING) || length.is_some_and(|length| length != "0")
}

/// The name in `name`, `name:port`, `[v6]` or `[v6]:port` (RFC 9110 7.2).
fn host_name(host: &str) -> Option<&str> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (name, port) = rest.split_once(']')?;
            name.parse::<Ipv6Addr>().ok()?;
            (name, port)
        }
        None => match host.find(':') {
            Some(colon) => host.split_at(colon),
            None => (host, ""),
        },
    };
    let port = if port.is_empty() { Some("0") } else { port.strip_prefix(':') };
    (!name.is_empty() && port?.parse::<u16>().is_ok()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_addresses_localhost_and_what_is_configured() {
        let hosts = Hosts::new(&["Proxy.Example.".to_owned()]);
        for good in [
            "127.0.0.1:7811",
            "127.0.0.1",
            "192.0.2.9:80",
            "[::1]:7811",
            "[::1]",
            "localhost:7811",
            "LOCALHOST",
            "proxy.example",
            "proxy.example.:7811",
        ] {
            assert!(hosts.permit(good), "{good}");
        }
        for bad in [
            "",
            "evil.example",
            "evil.example:7811",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[::1].evil.example",
            "localhost:",
            "localhost:http",
            "localhost:99999",
            "[evil]",
            ":80",
        ] {
            assert!(!hosts.permit(bad), "{bad}");
        }
    }
}
