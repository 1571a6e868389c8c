//! What the kernel measures on TCP connections (`struct tcp_info` of linux/tcp.h), asked for with sock_diag(7).

use crate::limits::{LINK_ROWS_MAX, NETLINK_BYTES_MAX, NETLINK_REPLY_BYTES, NETLINK_WAIT_S};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Which connections are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Those to this address.
    To(SocketAddr),
    /// Those that came in on this port.
    At(u16),
}

/// Established connections, and how many there are in all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkList {
    pub total: usize,
    /// Those that have carried most, at most [`LINK_ROWS_MAX`].
    pub links: Vec<LinkStatus>,
}

/// One connection as the kernel sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkStatus {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// Smoothed round-trip time, its variation, and the shortest of late.
    pub rtt: Duration,
    pub rtt_variation: Duration,
    pub rtt_min: Duration,
    /// Largest packet the path takes, in bytes, and the payload of a segment.
    pub path_mtu: u32,
    pub segment_bytes: u32,
    /// Name of the congestion control in use.
    pub congestion: String,
    /// Segments that may be under way.
    pub window_segments: u32,
    /// Latest measured rate of delivery, in bytes a second, and whether it was the sender that had no more.
    pub delivery_rate: u64,
    pub is_sender_limited: bool,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub resent_bytes: u64,
    /// Segments sent, and of these sent again.
    pub segments: u32,
    pub resent_segments: u32,
    /// Bytes in the socket that are not sent yet.
    pub waiting_bytes: u32,
}

/// The kernel cannot be asked, or what it says cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// No connection is known that could be asked about.
    #[error("there is no peer yet")]
    NoPeer,
    #[error("the kernel's socket diagnosis cannot be used: {0}")]
    System(io::Error),
    #[error("the kernel's answer cannot be read")]
    Format,
}

/// Asks the kernel about the established connections at these ends. May block for [`NETLINK_WAIT_S`] seconds at most.
///
/// # Errors
/// Netlink sockets are not permitted, or this kernel has no socket diagnosis.
pub fn links(ends: Ends) -> Result<LinkList, LinkError> {
    let mut list = LinkList::default();
    // A socket that listens on IPv6 has its IPv4 connections in the other family's list.
    for family in [family::INET, family::INET6] {
        dump(family, ends, &mut list)?;
    }
    list.links.sort_by_key(|link| std::cmp::Reverse(link.sent_bytes.saturating_add(link.received_bytes)));
    list.links.truncate(LINK_ROWS_MAX);
    Ok(list)
}

/// Numbers of linux/socket.h.
mod family {
    pub const INET: u8 = 2;
    pub const INET6: u8 = 10;
}

/// Numbers of linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const HEADER_BYTES: usize = 16;
const DIAG_MSG_BYTES: usize = 72;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
const TCP_ESTABLISHED: u8 = 1;
const IPPROTO_TCP: u8 = 6;

#[cfg(target_os = "linux")]
fn dump(family: u8, ends: Ends, list: &mut LinkList) -> Result<(), LinkError> {
    use nix::sys::socket::sockopt::ReceiveTimeout;
    use nix::sys::socket::{AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType};
    use nix::sys::socket::{recv, sendto, setsockopt, socket};
    use nix::sys::time::{TimeVal, TimeValLike};
    use std::os::fd::AsRawFd;

    let system = |error: nix::errno::Errno| LinkError::System(error.into());
    let flags = SockFlag::SOCK_CLOEXEC;
    let netlink = socket(AddressFamily::Netlink, SockType::Datagram, flags, SockProtocol::NetlinkSockDiag)
        .map_err(system)?;
    setsockopt(&netlink, ReceiveTimeout, &TimeVal::seconds(NETLINK_WAIT_S)).map_err(system)?;
    let kernel = NetlinkAddr::new(0, 0);
    sendto(netlink.as_raw_fd(), &request(family, ends), &kernel, MsgFlags::empty()).map_err(system)?;
    let mut buffer = vec![0; NETLINK_REPLY_BYTES];
    let mut read = 0;
    while read < NETLINK_BYTES_MAX {
        let length = recv(netlink.as_raw_fd(), &mut buffer, MsgFlags::empty()).map_err(system)?;
        read += length;
        if take(buffer.get(..length).ok_or(LinkError::Format)?, ends, list)? {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn dump(_: u8, _: Ends, _: &mut LinkList) -> Result<(), LinkError> {
    Err(LinkError::System(io::ErrorKind::Unsupported.into()))
}

/// A dump of established connections with `struct tcp_info` and the congestion control's name.
fn request(family: u8, ends: Ends) -> Vec<u8> {
    let extensions = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_CONG - 1);
    let (source, destination) = match ends {
        Ends::To(address) => (0, address.port()),
        Ends::At(port) => (port, 0),
    };
    let mut body = vec![family, IPPROTO_TCP, extensions, 0];
    body.extend((1u32 << TCP_ESTABLISHED).to_ne_bytes());
    body.extend(source.to_be_bytes());
    body.extend(destination.to_be_bytes());
    // Addresses, interface and cookie: any.
    body.resize(56, 0);
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend(((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    message.resize(HEADER_BYTES, 0);
    message.extend(body);
    message
}

/// Takes the messages of one datagram. Returns whether the dump is complete.
fn take(mut datagram: &[u8], ends: Ends, list: &mut LinkList) -> Result<bool, LinkError> {
    while datagram.len() >= HEADER_BYTES {
        let length = u32_at(datagram, 0).ok_or(LinkError::Format)? as usize;
        let message = datagram.get(HEADER_BYTES..length).ok_or(LinkError::Format)?;
        match u16_at(datagram, 4).ok_or(LinkError::Format)? {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                let code = u32_at(message, 0).ok_or(LinkError::Format)? as i32;
                return Err(LinkError::System(io::Error::from_raw_os_error(code.saturating_neg())));
            }
            _ => {
                if let Some(link) = link(message).filter(|link| is_meant(link, ends)) {
                    list.total += 1;
                    list.links.push(link);
                }
            }
        }
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

fn is_meant(link: &LinkStatus, ends: Ends) -> bool {
    match ends {
        Ends::To(address) => link.remote == SocketAddr::new(address.ip().to_canonical(), address.port()),
        Ends::At(port) => link.local.port() == port,
    }
}

/// Reads `struct inet_diag_msg` and its attributes. `None` for a socket without `struct tcp_info`.
fn link(message: &[u8]) -> Option<LinkStatus> {
    let family = *message.first()?;
    let local = SocketAddr::new(ip(family, message.get(8..24)?)?, u16::from_be_bytes(array(message, 4)?));
    let remote = SocketAddr::new(ip(family, message.get(24..40)?)?, u16::from_be_bytes(array(message, 6)?));
    let (mut info, mut congestion) = (None, String::new());
    let mut attributes = message.get(DIAG_MSG_BYTES..)?;
    while attributes.len() >= 4 {
        let length = usize::from(u16_at(attributes, 0)?);
        let value = attributes.get(4..length)?;
        match u16_at(attributes, 2)? {
            INET_DIAG_INFO => info = Some(value),
            INET_DIAG_CONG => {
                let name = value.split(|&byte| byte == 0).next().unwrap_or_default();
                congestion = String::from_utf8_lossy(name).into_owned();
            }
            _ => {}
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    let info = info?;
    // Older kernels end the structure earlier; what they do not have is 0.
    let word = |at| u32_at(info, at).unwrap_or(0);
    let long = |at| array(info, at).map_or(0, u64::from_ne_bytes);
    let micros = |at| Duration::from_micros(u64::from(word(at)));
    let rtt_min = match word(148) {
        0 | u32::MAX => micros(68),
        _ => micros(148),
    };
    Some(LinkStatus {
        local,
        remote,
        rtt: micros(68),
        rtt_variation: micros(72),
        rtt_min,
        path_mtu: word(60),
        segment_bytes: word(16),
        congestion,
        window_segments: word(80),
        delivery_rate: long(160),
        is_sender_limited: info.get(7).is_some_and(|bits| bits & 1 == 1),
        sent_bytes: long(200).max(long(120)),
        received_bytes: long(128),
        resent_bytes: long(208),
        segments: word(136),
        resent_segments: word(100),
        waiting_bytes: word(144),
    })
}

fn ip(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        family::INET => Some(Ipv4Addr::from(array::<4>(bytes, 0)?).into()),
        family::INET6 => Some(IpAddr::from(Ipv6Addr::from(array::<16>(bytes, 0)?)).to_canonical()),
        _ => None,
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_ne_bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_ne_bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_of_this_process_is_found_from_both_ends_and_measured() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                println!("skipped: {address} cannot be listened on here");
                continue;
            };
            let address = listener.local_addr().unwrap();
            let mut client = TcpStream::connect(address).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            client.write_all(&[7; 5_000]).unwrap();
            server.read_exact(&mut [0; 5_000]).unwrap();
            // Acknowledged, so that the kernel has counted it.
            server.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
            let to = links(Ends::To(address)).unwrap();
            let [link] = &to.links[..] else { panic!("{to:?}") };
            assert_eq!((link.local, link.remote), (client.local_addr().unwrap(), address));
            // The kernel may count the beginning of the connection as a byte.
            assert!((5_000..=5_001).contains(&link.sent_bytes), "{link:?}");
            assert_eq!((link.received_bytes, link.resent_bytes), (1, 0));
            assert!(link.path_mtu >= 1_280 && link.segment_bytes > 500, "{link:?}");
            assert!(link.rtt > Duration::ZERO && link.rtt_min <= link.rtt, "{link:?}");
            assert!(!link.congestion.is_empty() && link.segments >= 2, "{link:?}");
            let at = links(Ends::At(address.port())).unwrap();
            assert!(
                at.links.iter().any(|link| link.received_bytes == 5_000 && link.local == address),
                "{at:?}"
            );
        }
    }

    #[test]
    fn what_is_cut_short_is_refused_and_never_read_past_its_end() {
        let port = Ends::At(7810);
        let mut message = request(family::INET, port);
        message.resize(HEADER_BYTES + DIAG_MSG_BYTES, 0);
        message[..4].copy_from_slice(&((HEADER_BYTES + DIAG_MSG_BYTES) as u32).to_ne_bytes());
        for length in 0..message.len() {
            let mut list = LinkList::default();
            let _ = take(&message[..length], port, &mut list);
            assert_eq!(list.total, 0);
        }
        // A length of nothing would never come to an end.
        message[..4].copy_from_slice(&0u32.to_ne_bytes());
        assert!(matches!(take(&message, port, &mut LinkList::default()), Err(LinkError::Format)));
    }
}
