//! Just enough HTTP/1.1 for the tests: one request a connection, the whole answer at once.

// Helpers of tests may unwrap, as tests do; each test uses its part of them.
#![allow(clippy::unwrap_used, dead_code)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Long enough for a busy machine; a hung server must not hang the tests.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let named = |line: &&str| line.split(':').next().is_some_and(|have| have.eq_ignore_ascii_case(name));
        Some(self.head.lines().skip(1).find(named)?.split_once(':')?.1.trim())
    }
}

/// A GET with the address as its host.
pub fn get(address: SocketAddr, path: &str) -> Answer {
    request(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"))
}

/// Sends `raw` as it stands and reads the answer to its end.
pub fn request(address: SocketAddr, raw: &str) -> Answer {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(raw.as_bytes()).unwrap();
    read(&mut socket)
}

/// Reads one answer: as far as its length says, or to the end of the connection.
pub fn read(socket: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    let mut buffer = [0; 16_384];
    loop {
        if let Some(answer) = complete(&bytes) {
            return answer;
        }
        let n = socket.read(&mut buffer).unwrap();
        if n == 0 {
            return parse(&bytes);
        }
        bytes.extend_from_slice(&buffer[..n]);
    }
}

fn complete(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let answer = parse(bytes);
    let length: usize = answer.header("content-length")?.parse().ok()?;
    (bytes.len() >= end + length).then_some(answer)
}

fn parse(bytes: &[u8]) -> Answer {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer in {text:?}"));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap();
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}
