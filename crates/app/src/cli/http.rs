//! One GET request to a proxy's admin port.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::exit::{Exit, Failure};

/// How long connecting, and then each read, may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Longest response that is read, in bytes.
const RESPONSE_BYTES_MAX: u64 = 4 << 20;

/// The body of `path` at `address`, which must be answered with status 200.
pub fn get(address: SocketAddr, path: &str) -> Result<String, Failure> {
    let address = reachable(address);
    let failed = |error: std::io::Error| {
        let hint =
            if error.kind() == std::io::ErrorKind::ConnectionRefused { "; is it running?" } else { "" };
        Failure::new(
            Exit::Unavailable,
            format!("the proxy's admin port {address} does not answer: {error}{hint}"),
        )
    };
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).map_err(failed)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    stream.set_write_timeout(Some(TIMEOUT)).map_err(failed)?;
    // HTTP/1.0 ends the body with the connection, so there is nothing to decode.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nAccept: application/json\r\n\r\n")
        .map_err(failed)?;
    let mut response = Vec::new();
    stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut response).map_err(failed)?;
    body(&response)
        .map_err(|why| Failure::new(Exit::Unavailable, format!("the proxy's admin port {address} {why}")))
}

/// The same as JSON.
pub fn json(address: SocketAddr, path: &str) -> Result<Value, Failure> {
    serde_json::from_str(&get(address, path)?).map_err(|error| {
        Failure::new(Exit::Unavailable, format!("the admin port's answer is not JSON: {error}"))
    })
}

/// Whom to ask: the address given, or else `admin.listen`, which `configured` gives.
pub fn admin(
    given: Option<SocketAddr>,
    configured: impl FnOnce() -> Result<Option<SocketAddr>, Failure>,
) -> Result<SocketAddr, Failure> {
    let off = "the admin port is off (admin.listen), so the proxy cannot be asked";
    match given {
        Some(address) => Ok(address),
        None => configured()?.ok_or_else(|| Failure::new(Exit::Unavailable, off)),
    }
}

fn body(response: &[u8]) -> Result<String, String> {
    let response = std::str::from_utf8(response).map_err(|_| "answers with something that is not text")?;
    let (head, body) = response.split_once("\r\n\r\n").ok_or("answers with something that is not HTTP")?;
    let mut words = head.lines().next().unwrap_or("").split(' ');
    match (words.next(), words.next()) {
        (Some("HTTP/1.0" | "HTTP/1.1"), Some("200")) => Ok(body.to_string()),
        (Some("HTTP/1.0" | "HTTP/1.1"), Some(status)) => Err(format!("answers with status {status}")),
        _ => Err("answers with something that is not HTTP".into()),
    }
}

/// A port that listens everywhere is connected to on loopback.
pub(crate) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_good_answer_is_taken() {
        assert_eq!(body(b"HTTP/1.0 200 OK\r\nA: b\r\n\r\n{}"), Ok("{}".into()));
        assert!(body(b"HTTP/1.1 503 No\r\n\r\n{}").unwrap_err().contains("503"));
        for bad in [&b""[..], b"SSH-2.0-x\r\n", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.0 200 OK\r\n", b"\xff\r\n\r\n"]
        {
            assert!(body(bad).is_err());
        }
    }

    #[test]
    fn an_answer_is_read_and_a_closed_port_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // All of it: a connection that is closed with something unread is reset.
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0; 1];
                stream.read_exact(&mut byte).unwrap();
                request.extend(byte);
            }
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n{\"a\":1}").unwrap();
            String::from_utf8_lossy(&request).into_owned()
        });
        let everywhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), address.port());
        assert_eq!(get(everywhere, "/x").unwrap(), "{\"a\":1}");
        let request = server.join().unwrap();
        assert!(
            request.starts_with("GET /x HTTP/1.0\r\n") && request.contains(&format!("Host: {address}\r\n"))
        );
        let failure = get(address, "/x").unwrap_err();
        assert_eq!(failure.exit, Exit::Unavailable);
        assert!(failure.text.contains(&address.to_string()), "{}", failure.text);
    }
}
