use bytes::Bytes;
use isthmus_types::{Domain, Reason};
use std::net::SocketAddr;

/// What a session's two ends say to each other, delivered once and in order (except [`Message::Reset`] and
/// [`Message::Failed`], which overtake what they make void).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Client to server, first.
    Open(Open),
    /// Server to client: the target is connected. Carries the name of the recording of the downward direction.
    Opened { recording: u64 },
    /// Server to client instead of `Opened`; ends the session. The detail is cut to 255 bytes.
    Failed { reason: Reason, detail: String },
    /// One frame of the reduction core, opaque: 1 to `FRAME_WIRE_BYTES_MAX` bytes.
    Data(Bytes),
    /// What the reduction cores say to each other beside their frames (misses, repairs), opaque: 1 to
    /// `FEEDBACK_BYTES_MAX` bytes.
    Feedback(Bytes),
    /// This direction's end of stream; no `Data` follows, but feedback may.
    Fin,
    /// Both directions are over at once; what was not delivered is dropped.
    Reset { reason: Reason },
}

/// The client-side proxy's request to connect an outer connection to its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// Host name or address of the target, 1 to 255 bytes.
    pub host: String,
    /// Port of the target.
    pub port: u16,
    /// Reduction domain, at most 64 bytes.
    pub domain: Domain,
    /// Whether `Data` carries reduction frames (true) or plain LAN bytes (false).
    pub reduce: bool,
    /// Whether SMB messages may be taken apart into structure and content.
    pub structured: bool,
    /// Whether engines at both ends may remove round trips of SMB.
    pub accelerated: bool,
    /// Name of the recording of the upward direction.
    pub recording: u64,
    /// Where the outer connection came from.
    pub source: SocketAddr,
}

impl Message {
    /// Whether the message ends the session by overtaking everything else.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Message::Failed { .. } | Message::Reset { .. })
    }
}
