use crate::limits;
use socket2::SockRef;
use tokio::net::TcpStream;

/// Sets the options of a link's socket. None of them is needed to work, so what the kernel lacks is left out.
pub(crate) fn tune(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let outcomes = [
        ("TCP_NODELAY", socket.set_tcp_nodelay(true)),
        ("TCP_NOTSENT_LOWAT", socket.set_tcp_notsent_lowat(limits::NOTSENT_LOWAT_BYTES)),
        ("TCP_CONGESTION bbr", socket.set_tcp_congestion(b"bbr")),
    ];
    for (option, outcome) in outcomes {
        if let Err(error) = outcome {
            tracing::debug!(option, %error, "socket option not available");
        }
    }
}
