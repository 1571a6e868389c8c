//! NEGOTIATE, log-on by NTLM, and TREE_CONNECT.

use super::bodies::{malformed, raw, session_setup, tree_connect};
use super::protection::{Incoming, Outgoing, protection};
use bytes::BytesMut;
use isthmus_lab::smb::Account;
use isthmus_lab::{LabError, Result};
use isthmus_smb_crypto::{Cipher, Dialect, PreauthHash, SessionKey, SigningAlgorithm, derive};
use isthmus_smb_wire::messages::{NegotiateResponse, SessionSetupResponse};
use isthmus_smb_wire::negotiate_context::{NegotiateContextType, counted};
use isthmus_smb_wire::{Command, Header, Status, transport};
use smb2::auth::{NtlmAuthenticator, NtlmCredentials};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// What a client says that it can do: DFS, leases, large messages, directory leases, encryption (MS-SMB2 2.2.3).
const CAPABILITIES: u32 = 0x0000_0067;

/// Bytes of a NEGOTIATE request before its dialects, the header included.
const DIALECTS_AT: usize = 100;

/// How messages are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Signed.
    Signed,
    /// Encrypted.
    Sealed,
}

/// Where to log on, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address that leads to the server.
    pub server: SocketAddr,
    /// Name of the share.
    pub share: String,
    /// The user.
    pub account: Account,
    /// The dialect that is offered, and no other: 3.0.2 or 3.1.1.
    pub dialect: Dialect,
    /// How messages are protected.
    pub protection: Protection,
}

/// A connection that is logged on and connected to its share.
pub(super) struct LoggedOn {
    pub channel: Channel,
    pub session_id: u64,
    pub tree_id: u32,
    pub message_id: u64,
    pub outgoing: Outgoing,
    pub incoming: Incoming,
}

/// A socket and what was read from it too early.
pub(super) struct Channel {
    pub stream: TcpStream,
    pub buffer: BytesMut,
}

impl Channel {
    pub async fn send(&mut self, message: &[u8]) -> Result<()> {
        let mut frame = BytesMut::new();
        transport::put(&mut frame, message).map_err(|error| malformed(&error))?;
        self.stream.write_all(&frame).await.map_err(|source| io("sending", source))
    }

    pub async fn receive(&mut self) -> Result<Vec<u8>> {
        loop {
            let frame = transport::split(&mut self.buffer, transport::MESSAGE_LEN_MAX);
            if let Some(frame) = frame.map_err(|error| malformed(&error))? {
                return Ok(frame.into_message().to_vec());
            }
            let read = self.stream.read_buf(&mut self.buffer).await;
            if read.map_err(|source| io("receiving", source))? == 0 {
                let detail = "the connection was closed".into();
                return Err(LabError::Format { what: "the server's answer".into(), detail });
            }
        }
    }
}

/// What NEGOTIATE has decided.
struct Negotiated {
    cipher: Option<Cipher>,
    signing: SigningAlgorithm,
    hash: PreauthHash,
}

/// Connects and logs on.
pub(super) async fn log_on(settings: &Settings) -> Result<LoggedOn> {
    let stream = connect(settings.server).await.map_err(|source| io("connecting", source))?;
    stream.set_nodelay(true).map_err(|source| io("setting up the socket", source))?;
    let mut channel = Channel { stream, buffer: BytesMut::new() };
    let negotiated = negotiate(&mut channel, settings.dialect).await?;
    let (session_id, key, hash) = authenticate(&mut channel, settings, negotiated.hash).await?;
    let key = SessionKey::new(&key).map_err(|error| malformed(&error))?;
    let keys = derive(settings.dialect, negotiated.cipher, &key, Some(&hash)).map_err(|e| malformed(&e))?;
    let is_sealed = settings.protection == Protection::Sealed;
    let (mut outgoing, incoming) = protection(session_id, &keys, negotiated.signing, is_sealed)?;

    let path = format!("\\\\{}\\{}", settings.server.ip(), settings.share);
    let request = identified(tree_connect(&path)?, 3, session_id)?;
    channel.send(&outgoing.protect(&[request])?).await?;
    let answer = incoming.open(channel.receive().await?)?.into_iter().next().unwrap_or_default();
    let header = Header::parse(&answer[..]).map_err(|error| malformed(&error))?;
    expect(&header, Command::TREE_CONNECT, Status::SUCCESS)?;
    let tree_id = header.tree_id().unwrap_or_default();
    Ok(LoggedOn { channel, session_id, tree_id, message_id: 4, outgoing, incoming })
}

async fn negotiate(channel: &mut Channel, dialect: Dialect) -> Result<Negotiated> {
    let mut hash = PreauthHash::new();
    let request = negotiate_request(dialect)?;
    hash.update(&request);
    channel.send(&request).await?;
    let answer = channel.receive().await?;
    hash.update(&answer);
    let header = Header::parse(&answer[..]).map_err(|error| malformed(&error))?;
    expect(&header, Command::NEGOTIATE, Status::SUCCESS)?;
    let view = NegotiateResponse::parse(&answer[..]).map_err(|error| malformed(&error))?;
    if view.dialect().0 != dialect.as_u16() {
        return Err(malformed(&format!("the server answers with dialect {:?}", view.dialect())));
    }
    let chosen = |kind| {
        let found = view.contexts().flatten().find(|context| context.kind == kind)?;
        counted(found.data).ok()?.next()
    };
    let cipher = chosen(NegotiateContextType::ENCRYPTION).and_then(Cipher::from_u16);
    let signing = chosen(NegotiateContextType::SIGNING).and_then(SigningAlgorithm::from_u16);
    Ok(Negotiated { cipher: dialect.cipher(cipher), signing: dialect.signing_algorithm(signing), hash })
}

/// NEGOTIATE of one dialect (MS-SMB2 2.2.3), with the contexts that 3.1.1 wants.
fn negotiate_request(dialect: Dialect) -> Result<Vec<u8>> {
    let mut body = vec![36, 0, 1, 0, 1, 0, 0, 0];
    body.extend_from_slice(&CAPABILITIES.to_le_bytes());
    body.extend((0..16).map(|_| fastrand::u8(..)));
    let has_contexts = dialect == Dialect::Smb311;
    let offset = (DIALECTS_AT + 2).next_multiple_of(8);
    body.extend_from_slice(&(if has_contexts { offset as u32 } else { 0 }).to_le_bytes());
    body.extend_from_slice(&[if has_contexts { 3 } else { 0 }, 0, 0, 0]);
    body.extend_from_slice(&dialect.as_u16().to_le_bytes());
    if has_contexts {
        body.resize(offset - isthmus_smb_wire::HEADER_LEN, 0);
        // SHA-512 and a salt; AES-128-GCM, then AES-128-CCM; AES-GMAC, then AES-CMAC.
        let salt: Vec<u8> = (0..32).map(|_| fastrand::u8(..)).collect();
        put_context(&mut body, 1, &[&[1, 0, 32, 0, 1, 0][..], &salt].concat());
        put_context(&mut body, 2, &[2, 0, 2, 0, 1, 0]);
        put_context(&mut body, 8, &[2, 0, 2, 0, 1, 0]);
    }
    identified(raw(Command::NEGOTIATE, &body)?, 0, 0)
}

fn put_context(body: &mut Vec<u8>, kind: u16, data: &[u8]) {
    body.resize(body.len().next_multiple_of(8), 0);
    body.extend_from_slice(&kind.to_le_bytes());
    body.extend_from_slice(&(data.len() as u16).to_le_bytes());
    body.extend_from_slice(&[0; 4]);
    body.extend_from_slice(data);
}

/// Both SESSION_SETUPs. The session's identifier, the key that both ends know, and the hash over all of it.
async fn authenticate(
    channel: &mut Channel,
    settings: &Settings,
    mut hash: PreauthHash,
) -> Result<(u64, Vec<u8>, PreauthHash)> {
    let Account { name, password } = settings.account.clone();
    let mut ntlm =
        NtlmAuthenticator::new(NtlmCredentials { username: name, password, domain: String::new() });
    let request = identified(session_setup(&ntlm.negotiate())?, 1, 0)?;
    hash.update(&request);
    channel.send(&request).await?;
    let answer = channel.receive().await?;
    hash.update(&answer);
    let header = Header::parse(&answer[..]).map_err(|error| malformed(&error))?;
    expect(&header, Command::SESSION_SETUP, Status::MORE_PROCESSING_REQUIRED)?;
    let session_id = header.session_id();
    let view = SessionSetupResponse::parse(&answer[..]).map_err(|error| malformed(&error))?;
    let token = ntlm.authenticate(view.security_buffer()).map_err(|error| malformed(&error))?;
    let request = identified(session_setup(&token)?, 2, session_id)?;
    hash.update(&request);
    channel.send(&request).await?;
    let answer = channel.receive().await?;
    let header = Header::parse(&answer[..]).map_err(|error| malformed(&error))?;
    expect(&header, Command::SESSION_SETUP, Status::SUCCESS)?;
    let key = ntlm.session_key().ok_or_else(|| malformed(&"NTLM gives no key"))?;
    Ok((session_id, key.to_vec(), hash))
}

fn identified(mut message: Vec<u8>, message_id: u64, session_id: u64) -> Result<Vec<u8>> {
    let mut header = Header::parse(&mut message[..]).map_err(|error| malformed(&error))?;
    header.set_message_id(message_id);
    header.set_session_id(session_id);
    Ok(message)
}

fn expect(header: &Header<&[u8]>, command: Command, status: Status) -> Result<()> {
    if (header.command(), header.status()) == (command, status) {
        return Ok(());
    }
    Err(malformed(&format!("{command:?} is answered by {:?}, {:?}", header.command(), header.status())))
}

fn io(action: &str, source: std::io::Error) -> LabError {
    LabError::Io { action: format!("{action} (SMB client)"), source }
}

/// Connects from an address of its own where that is possible: each connection is another client's.
async fn connect(server: SocketAddr) -> std::io::Result<TcpStream> {
    static CLIENTS: AtomicU8 = AtomicU8::new(0);
    let SocketAddr::V4(address) = server else { return TcpStream::connect(server).await };
    if !address.ip().is_loopback() {
        return TcpStream::connect(server).await;
    }
    let client = Ipv4Addr::new(127, 0, 1, CLIENTS.fetch_add(1, Ordering::Relaxed));
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((client, 0)))?;
    socket.connect(server).await
}
