//! Every bound of the admin port.

use std::time::Duration;

/// Connections served at once; a browser that shows the console holds up to six. Further ones wait in the kernel's
/// queue.
pub const CONNECTIONS_MAX: usize = 256;
/// Time for the head of a request to arrive, also while a kept connection idles.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// Life of one connection, whatever it does.
pub const CONNECTION_TIME_MAX: Duration = Duration::from_secs(120);
/// Size of a request's head.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// Header lines of a request.
pub const HEADERS_MAX: usize = 64;
/// Pause after a failed accept, as when file descriptors have run out.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Time that open requests get to finish when the port closes.
pub const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(2);
/// Rows in one answer of `/api/connections`.
pub const CONNECTION_ROWS_MAX: usize = 500;
/// Events in one answer of `/api/events`.
pub const EVENT_ROWS_MAX: usize = 200;
/// Peers in one answer of `/api/peers`.
pub const PEER_ROWS_MAX: usize = 1_000;
/// Members in one answer of `/api/fleet`.
pub const FLEET_ROWS_MAX: usize = 10_000;
/// Length of a search text.
pub const QUERY_CHARS_MAX: usize = 100;
