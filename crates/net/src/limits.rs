//! Limits of the driver.

use crate::beat::BEAT;
use std::time::Duration;

/// Time for a TCP connection, its TLS handshake and the first frames, on either side.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a whole call of an agent: connection, handshake, request, answer.
pub const FLEET_CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// Calls of agents that wait to be answered.
pub const FLEET_QUEUE_MAX: usize = 64;
/// Connections on the server side's port that are not yet through their handshake.
pub const HALF_OPEN_MAX: usize = 256;
/// Time for a caller that needs a channel while none is pooled, once it is its turn.
pub const CHANNEL_DEADLINE: Duration = Duration::from_secs(3);
/// Time for such a caller to wait for its turn.
pub const TURN_DEADLINE: Duration = Duration::from_secs(10);
/// Channels that a client side dials at once.
pub const DIALS_MAX: usize = 64;
/// Delay before another connection attempt is started beside one that has not answered.
pub const ATTEMPT_INTERVAL: Duration = Duration::from_secs(1);
/// Connection attempts beside each other for one purpose.
pub const ATTEMPTS_MAX: usize = 5;
/// Time after which no further attempt is started for one purpose.
pub const ATTEMPT_ROUND: Duration = Duration::from_secs(10);
/// Pause after a failed attempt to bring a channel a new link.
pub const REDIAL_PAUSE: Duration = Duration::from_millis(300);
/// How long a session waits for a new link, by default.
pub const RESUME_WINDOW: Duration = Duration::from_secs(600);
/// Interval of heartbeats, by default.
pub const HEARTBEAT: Duration = Duration::from_secs(2);
/// Longest pause between attempts after the peer refused.
pub const REFUSED_PAUSE_MAX: Duration = Duration::from_secs(10);
/// Answers awaited on a control channel: this many round trips, and not less than the time beside it.
pub const PONG_ROUND_TRIPS: u32 = 4;
/// Least time to wait for an answer on a control channel.
pub const PONG_TIMEOUT_MIN: Duration = Duration::from_secs(2);
/// How many times longer an answer on a control channel is waited for while other things come from the peer: a full line
/// may hold it up.
pub const BUSY_PATIENCE_FACTOR: u32 = 4;
/// How much less often heartbeats are sent while no channel is in use.
pub const IDLE_HEARTBEAT_FACTOR: u32 = 5;
/// Heartbeats that a server side lets pass before it holds a silent client side for absent.
pub const MISSED_HEARTBEATS_MAX: u32 = 3;
/// How long a side that has ended a channel goes on trying to tell the peer.
pub const ENDING_MAX: Duration = Duration::from_secs(60);
/// How long a closed link waits for the far end's close.
pub const LINGER_MAX: Duration = Duration::from_secs(2);
/// Channels that an acceptor holds, in use or pooled.
pub const CHANNELS_MAX: usize = 16_384;
/// Sessions that wait for the application to accept them.
pub const ACCEPT_QUEUE_MAX: usize = 1_024;
/// Peers that an acceptor remembers; the longest absent are forgotten first.
pub const PEERS_MAX: usize = 1_024;
/// Interval at which certificate files are looked at.
pub const TLS_POLL_INTERVAL: Duration = BEAT.saturating_mul(2);
/// Interval at which the certificates of live peers are checked for expiry.
pub const TLS_RECHECK_INTERVAL: Duration = BEAT.saturating_mul(14);
/// Certificate, key and revocation files, in bytes.
pub const TLS_FILE_BYTES_MAX: u64 = 4 << 20;
/// TLS sessions that a server side remembers for resumption.
pub const TLS_SESSIONS_MAX: usize = 1_024;
/// Read from one socket before other work is looked at.
pub const READ_TURN_BYTES: usize = 1 << 20;
/// One read from a socket.
pub const READ_BYTES: usize = 128 << 10;
/// Room for decrypted bytes that is added at once.
pub const PLAINTEXT_BYTES: usize = 512 << 10;
/// Encrypted at once.
pub const WRITE_BYTES: usize = 128 << 10;
/// Not yet sent bytes above which the kernel takes no more from this process.
pub const NOTSENT_LOWAT_BYTES: u32 = 128 << 10;
/// How long a server side keeps an idle channel whose link is gone: the client may just have opened a session on it.
pub const IDLE_GRACE: Duration = Duration::from_secs(30);
/// Least time between two heartbeats that events ask for.
pub const POKE_INTERVAL_MIN: Duration = Duration::from_millis(500);
/// Commands that wait for one control channel.
pub const COMMANDS_MAX: usize = 1_024;
/// Pause after the system refused to accept a connection (out of file descriptors).
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
