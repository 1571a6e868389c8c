//! Two proxies back to back, and captures of real connections.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::disallowed_methods, reason = "captures are files")]

pub mod ends;

use bytes::{Bytes, BytesMut};
use isthmus_smb_auth::{AccountHash, Exchange, NtHash, SecretSet};
use isthmus_smb_session::{
    AssembleError, Assembler, Connection, Crossing, Intake, IntakeError, KeySource, Refused, Released,
    SessionTable,
};
use isthmus_types::Side;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zeroize::Zeroizing;

pub type Source = Arc<dyn KeySource + Send + Sync>;

pub struct Keys(pub SecretSet);

impl KeySource for Keys {
    fn release(&self, exchange: &Exchange) -> Result<Released, Refused> {
        let found = exchange.recover(&self.0).map_err(|failure| Refused(failure.to_string()))?;
        Ok(Released {
            session_key: Zeroizing::new(found.session_key.as_bytes().to_vec()),
            user: found.user,
            domain: found.domain,
        })
    }
}

/// One way of the WAN, and what crossed.
pub struct Way {
    pub intake: Intake,
    pub assembler: Assembler,
    pub input: BytesMut,
    pub structures: Vec<Vec<u8>>,
    pub content: usize,
    pub notes: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    Intake(IntakeError),
    Assemble(AssembleError),
}

impl Way {
    /// Takes LAN bytes in; gives the frames that come out on the other LAN.
    pub fn pass(&mut self, bytes: &[u8]) -> Result<Vec<Bytes>, Failure> {
        self.input.extend_from_slice(bytes);
        let mut frames = Vec::new();
        while let Some(crossing) = self.intake.take(&mut self.input).map_err(Failure::Intake)? {
            self.cross(crossing, &mut frames)?;
        }
        Ok(frames)
    }

    pub fn finish(&mut self) -> Result<Vec<Bytes>, Failure> {
        let mut frames = Vec::new();
        while let Some(crossing) = self.intake.finish(&mut self.input) {
            self.cross(crossing, &mut frames)?;
        }
        assert!(self.assembler.is_empty());
        Ok(frames)
    }

    fn cross(&mut self, crossing: Crossing, frames: &mut Vec<Bytes>) -> Result<(), Failure> {
        if let Some(note) = &crossing.note {
            self.notes += 1;
            self.assembler.note(note).map_err(Failure::Assemble)?;
        }
        self.content += crossing.content.iter().map(Bytes::len).sum::<usize>();
        // In pieces, as the WAN may bring them.
        let half = crossing.structure.len() / 2;
        for piece in [&crossing.structure[..half], &crossing.structure[half..]] {
            assert_eq!(self.assembler.next().map_err(Failure::Assemble)?, None);
            self.assembler.structure(piece).map_err(Failure::Assemble)?;
        }
        for mut piece in crossing.content {
            assert_eq!(self.assembler.next().map_err(Failure::Assemble)?, None);
            let rest = piece.split_off(piece.len() / 3);
            self.assembler.content(piece);
            self.assembler.content(rest);
        }
        // None, where it was only what the engine says.
        while let Some(frame) = self.assembler.next().map_err(Failure::Assemble)? {
            frames.push(frame.concat().into());
        }
        assert!(self.assembler.is_empty());
        self.structures.push(crossing.structure);
        Ok(())
    }
}

/// Both proxies of one connection.
pub struct Pair {
    pub client: Arc<Connection>,
    pub server: Arc<Connection>,
    /// From client to server.
    pub up: Way,
    pub down: Way,
}

impl Pair {
    pub fn new(keys: Option<Source>) -> Self {
        Self::with(keys, SessionTable::new(), 1)
    }

    pub fn with(keys: Option<Source>, table: Arc<SessionTable>, random: u8) -> Self {
        let client = Connection::new(Side::Client, [random; 32]);
        let server = Connection::with_table(Side::Server, [random ^ 0x80; 32], table);
        let way = |from: &Arc<Connection>, to: &Arc<Connection>, keys| Way {
            intake: Intake::new(from.clone(), keys),
            assembler: Assembler::new(to.clone()),
            input: BytesMut::new(),
            structures: Vec::new(),
            content: 0,
            notes: 0,
        };
        let (up, down) = (way(&client, &server, None), way(&server, &client, keys));
        Self { client, server, up, down }
    }

    /// Passes one message, of which exactly one must come out; gives it without its frame's header.
    pub fn pass(&mut self, from_server: bool, message: &[u8]) -> Vec<u8> {
        let out = self.way(from_server).pass(&frame(message)).unwrap();
        assert_eq!(out.len(), 1);
        let (header, passed) = out[0].split_at(4);
        assert_eq!(header, (passed.len() as u32).to_be_bytes());
        passed.to_vec()
    }

    /// Passes messages that must come out as they are.
    pub fn same(&mut self, messages: &[(bool, Vec<u8>)]) {
        for (index, (from_server, message)) in messages.iter().enumerate() {
            assert!(self.pass(*from_server, message) == *message, "message {index}");
        }
    }

    pub fn way(&mut self, from_server: bool) -> &mut Way {
        if from_server { &mut self.down } else { &mut self.up }
    }
}

pub fn frame(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u32).to_be_bytes()[..], message].concat()
}

pub struct Capture {
    pub name: String,
    pub messages: Vec<(bool, Vec<u8>)>,
    pub keys: Source,
}

/// The captures there are; none without the variable.
pub fn captures() -> Vec<Capture> {
    let Some(folder) = std::env::var_os("ISTHMUS_GOLDEN").map(PathBuf::from) else {
        println!("not run: ISTHMUS_GOLDEN names no folder of captures");
        return Vec::new();
    };
    let keys: Source = Arc::new(secrets(&folder));
    let mut paths: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "bin"));
    paths.sort();
    assert_eq!(paths.len(), 18);
    paths.into_iter().map(|path| capture(&path, keys.clone())).collect()
}

fn secrets(folder: &Path) -> Keys {
    let mut set = SecretSet::default();
    set.add_keytab(&std::fs::read(folder.join("cifs.keytab")).unwrap()).unwrap();
    let hash = NtHash::of_password("Passw0rd!");
    set.add_account(AccountHash { user: "alice".to_owned(), domain: None, version: 0, hash });
    Keys(set)
}

fn capture(path: &Path, keys: Source) -> Capture {
    let bytes = std::fs::read(path).unwrap();
    let (mut rest, mut messages) = (&bytes[..], Vec::new());
    while let Some((head, body)) = rest.split_first_chunk::<13>() {
        let (message, after) = body.split_at(u32::from_le_bytes(head[9..].try_into().unwrap()) as usize);
        messages.push((head[0] == 1, message.to_vec()));
        rest = after;
    }
    let messages = in_order(messages);
    Capture { name: path.file_name().unwrap().to_string_lossy().into_owned(), messages, keys }
}

/// The two directions were recorded apart, so an answer may stand before its request; that is put right where messages
/// are in clear.
fn in_order(messages: Vec<(bool, Vec<u8>)>) -> Vec<(bool, Vec<u8>)> {
    let key = |message: &[u8]| message.starts_with(b"\xfeSMB").then(|| message[24..32].to_vec());
    let mut ordered: Vec<(bool, Vec<u8>)> = Vec::new();
    let mut early: Vec<(bool, Vec<u8>)> = Vec::new();
    let requests: Vec<_> = messages.iter().filter(|(server, _)| !server).map(|(_, m)| key(m)).collect();
    for (from_server, message) in messages {
        let id = key(&message);
        let asked = ordered.iter().any(|(server, m)| !server && key(m) == id);
        if from_server && id.is_some() && !asked && requests.contains(&id) {
            early.push((from_server, message));
            continue;
        }
        ordered.push((from_server, message));
        let due = early.iter().position(|(_, m)| !from_server && key(m) == id && id.is_some());
        ordered.extend(due.map(|at| early.remove(at)));
    }
    assert!(early.is_empty());
    ordered
}
