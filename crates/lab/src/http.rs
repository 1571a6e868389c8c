//! The little HTTP that is needed to read an admin port.

use crate::error::{Context as _, LabError, Result};
use crate::place::Place;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for any part of an answer.
const IO_LIMIT: Duration = Duration::from_secs(10);

/// Largest answer.
const ANSWER_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// An answer: status and body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Body, as text.
    pub body: String,
}

/// Asks `address`, as seen from `place`, for `path`.
///
/// # Errors
/// Nobody answers there, or not in HTTP.
pub fn get(place: &Place, address: SocketAddr, path: &str) -> Result<Answer> {
    place.run(|| {
        let io = |action: &str| format!("{action} http://{address}{path}");
        let mut stream = TcpStream::connect_timeout(&address, IO_LIMIT).context(|| io("connecting to"))?;
        stream.set_read_timeout(Some(IO_LIMIT)).context(|| io("preparing"))?;
        stream.set_write_timeout(Some(IO_LIMIT)).context(|| io("preparing"))?;
        // HTTP/1.0, so that the answer ends with the connection and is never chunked.
        let request = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).context(|| io("asking"))?;
        let mut bytes = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes).context(|| io("reading"))?;
        parse(&String::from_utf8_lossy(&bytes))
    })
}

fn parse(text: &str) -> Result<Answer> {
    let bad = |detail: &str| LabError::Format { what: "an HTTP answer".into(), detail: detail.into() };
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| bad("it has no end of headers"))?;
    let status = head.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    Ok(Answer { status: status.ok_or_else(|| bad("it has no status"))?, body: body.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_apart() {
        let answer = parse("HTTP/1.0 503 Service Unavailable\r\nA: b\r\n\r\npeer down\n").unwrap();
        assert_eq!(answer, Answer { status: 503, body: "peer down\n".into() });
        assert!(parse("nonsense").is_err() && parse("HTTP/1.1\r\n\r\n").is_err());
    }

    #[test]
    fn a_page_is_fetched_over_a_socket() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let n = stream.read(&mut request).unwrap();
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello").unwrap();
            String::from_utf8_lossy(&request[..n]).into_owned()
        });
        assert_eq!(
            get(&Place::Local, address, "/x?y").unwrap(),
            Answer { status: 200, body: "hello".into() }
        );
        let request = server.join().unwrap();
        assert!(
            request.starts_with("GET /x?y HTTP/1.0\r\n") && request.contains(&format!("Host: {address}"))
        );
    }
}
