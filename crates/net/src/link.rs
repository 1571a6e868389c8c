use crate::{WanCounters, limits};
use bytes::BytesMut;
use isthmus_tunnel::{Endpoint, Frame, decode, encode};
use std::cell::RefCell;
use std::io::{self, BufRead, IoSlice, Write};
use std::sync::Arc;
use std::time::Instant;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// One TLS connection after its handshake: frames in, frames out, never waiting for the socket.
pub(crate) struct Link {
    socket: Arc<TcpStream>,
    tls: rustls::Connection,
    /// Decrypted bytes that do not make a whole frame yet.
    plain: BytesMut,
    wan: Arc<WanCounters>,
    write_blocked: bool,
    closed: bool,
}

/// Why a link cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("{0}")]
    Protocol(#[from] isthmus_tunnel::Error),
    /// The far end closed it in good order.
    #[error("closed by the peer")]
    Closed,
    /// The connection ended without TLS's own end.
    #[error("the connection was cut")]
    Cut,
    #[error("no answer in time")]
    Timeout,
}

thread_local! {
    /// Where ciphertext is read to: shared by all links of a thread, so that an idle link holds none.
    static CIPHERTEXT: RefCell<Vec<u8>> = RefCell::new(vec![0; limits::READ_BYTES]);
    /// Room for plaintext, lent to a link while it has a frame in part, for the same reason.
    static PLAINTEXT: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

impl Link {
    /// Takes over a connection whose handshake is done, with what came right behind it.
    pub(crate) fn new(
        socket: TcpStream,
        mut tls: rustls::Connection,
        wan: Arc<WanCounters>,
    ) -> Result<Link, LinkError> {
        tls.set_buffer_limit(Some(limits::WRITE_BYTES));
        let mut link = Link {
            socket: Arc::new(socket),
            tls,
            plain: BytesMut::new(),
            wan,
            write_blocked: false,
            closed: false,
        };
        link.take_plain()?;
        Ok(link)
    }

    pub(crate) fn socket(&self) -> Arc<TcpStream> {
        self.socket.clone()
    }

    /// Counts this link's bytes, also those until now, for a peer that has become known.
    pub(crate) fn set_wan(&mut self, wan: Arc<WanCounters>) {
        wan.absorb(&self.wan);
        self.wan = wan;
    }

    /// Whether the last write was refused by the socket.
    pub(crate) fn is_write_blocked(&self) -> bool {
        self.write_blocked
    }

    /// Fills one secret of this TLS session, the same on both sides.
    pub(crate) fn export<const N: usize>(&self, label: &[u8]) -> Result<[u8; N], rustls::Error> {
        match &self.tls {
            rustls::Connection::Client(tls) => tls.export_keying_material([0; N], label, None),
            rustls::Connection::Server(tls) => tls.export_keying_material([0; N], label, None),
        }
    }

    /// Takes what the socket has, at most [`limits::READ_BYTES`]. Returns the number of bytes; 0 when it has none now.
    pub(crate) fn read(&mut self) -> Result<usize, LinkError> {
        CIPHERTEXT.with_borrow_mut(|ciphertext| match self.socket.try_read(ciphertext) {
            Ok(0) => Err(LinkError::Cut),
            Ok(read) => {
                WanCounters::add(&self.wan.received, read as u64);
                self.decrypt(&ciphertext[..read])?;
                Ok(read)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error.into()),
        })
    }

    /// The next whole frame of what was read.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame>, LinkError> {
        let frame = decode(&mut self.plain)?;
        if frame.is_none() && self.plain.is_empty() {
            PLAINTEXT.replace(std::mem::take(&mut self.plain));
        }
        Ok(frame)
    }

    /// Writes what the endpoint has to say until it or the socket has had enough.
    pub(crate) fn write(&mut self, endpoint: &mut Endpoint, now: Instant) -> io::Result<()> {
        while self.flush()? {
            let mut slices = [IoSlice::new(&[]); 64];
            let used = endpoint.fill(&mut slices, limits::WRITE_BYTES, now);
            if used == 0 {
                break;
            }
            let written = self.tls.writer().write_vectored(&slices[..used])?;
            endpoint.advance(written, now);
        }
        Ok(())
    }

    /// Encrypts one frame, to be written by the next [`Link::flush`].
    pub(crate) fn put(&mut self, frame: &Frame) -> io::Result<()> {
        let mut bytes = BytesMut::new();
        encode(frame, &mut bytes);
        self.tls.writer().write_all(&bytes)
    }

    /// Writes ciphertext to the socket. Returns whether all of it is written.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        self.write_blocked = false;
        let mut writer = SocketWriter { socket: &self.socket, wan: &self.wan };
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut writer) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.write_blocked = true;
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Says TLS's and TCP's end, as far as the socket takes it. Reading goes on.
    pub(crate) fn close(&mut self) {
        if !self.closed {
            self.closed = true;
            self.tls.send_close_notify();
            if let Err(error) = self
                .flush()
                .and_then(|_| socket2::SockRef::from(&*self.socket).shutdown(std::net::Shutdown::Write))
            {
                tracing::debug!(%error, "link closed by the other side first");
            }
        }
    }

    /// Waits for the next frame; for the time before a link belongs to a channel, and for control channels.
    pub(crate) async fn recv(&mut self) -> Result<Frame, LinkError> {
        loop {
            if let Some(frame) = self.next_frame()? {
                return Ok(frame);
            }
            match self.read() {
                Ok(0) => drop(self.socket.ready(Interest::READABLE).await?),
                Ok(_) => {}
                // A frame may have come right before the end.
                Err(error) => return self.next_frame()?.ok_or(error),
            }
        }
    }

    /// Writes one frame, waiting for the socket.
    pub(crate) async fn send(&mut self, frame: &Frame) -> Result<(), LinkError> {
        self.put(frame)?;
        while !self.flush()? {
            self.socket.ready(Interest::WRITABLE).await?;
        }
        Ok(())
    }

    /// Closes and waits a little for the far end, so that what was written last is not lost to a reset.
    pub(crate) async fn finish(mut self) {
        self.close();
        let drain = async {
            loop {
                match self.read() {
                    Ok(0) => {
                        if self.socket.ready(Interest::READABLE).await.is_err() {
                            return;
                        }
                    }
                    Ok(_) => self.plain.clear(),
                    Err(_) => return,
                }
            }
        };
        // Whether the far end closed or the time ran out makes no difference here.
        let _ = tokio::time::timeout(limits::LINGER_MAX, drain).await;
    }

    fn decrypt(&mut self, mut ciphertext: &[u8]) -> Result<(), LinkError> {
        while !ciphertext.is_empty() {
            self.tls.read_tls(&mut ciphertext)?;
            self.take_plain()?;
        }
        Ok(())
    }

    /// Decrypts what rustls has and takes it out.
    fn take_plain(&mut self) -> Result<(), LinkError> {
        let state = match self.tls.process_new_packets() {
            Ok(state) => state,
            Err(error) => {
                // The alert tells the far end why; whether it still arrives changes nothing for this side.
                let _ = self.flush();
                return Err(error.into());
            }
        };
        let mut left = state.plaintext_bytes_to_read();
        if left > 0 && self.plain.is_empty() {
            self.plain = PLAINTEXT.take();
        }
        if self.plain.capacity() - self.plain.len() < left {
            // Room for a whole large frame at once; what frames have been taken out of is used again.
            self.plain.reserve(left.max(limits::PLAINTEXT_BYTES));
        }
        let mut reader = self.tls.reader();
        while left > 0 {
            let chunk = reader.fill_buf()?;
            let len = chunk.len();
            self.plain.extend_from_slice(chunk);
            reader.consume(len);
            // An empty chunk cannot be, by rustls's count; it would make this loop endless.
            left = if len == 0 { 0 } else { left.saturating_sub(len) };
        }
        if state.peer_has_closed() { Err(LinkError::Closed) } else { Ok(()) }
    }
}

/// The socket as rustls writes to it.
struct SocketWriter<'a> {
    socket: &'a TcpStream,
    wan: &'a WanCounters,
}

impl Write for SocketWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.socket.try_write(bytes)?;
        WanCounters::add(&self.wan.sent, written as u64);
        Ok(written)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = self.socket.try_write_vectored(slices)?;
        WanCounters::add(&self.wan.sent, written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
