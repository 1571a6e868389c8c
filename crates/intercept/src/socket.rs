//! Sockets that take intercepted connections, and that make connections under another's address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use nix::sys::socket::sockopt;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::plan::Form;

/// Connections that may wait to be accepted. The kernel's own limit is lower on most systems, and then counts.
pub const LISTEN_BACKLOG: i32 = 4096;

/// Ports below this are given to privileged users alone, which some servers ask for.
const PRIVILEGED_PORT_END: u16 = 1024;

/// Where an outgoing connection says that it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This machine.
    Here,
    /// This address of somebody else, and this port if it is free.
    Port(SocketAddr),
    /// This address of somebody else, and another port, since a connection with the same two ends is known to this
    /// machine already. A privileged port is kept all the same.
    Address(SocketAddr),
}

/// Listens for intercepted connections of one family on `port`.
///
/// # Errors
/// The port is taken, the family not there, or the right to take others' connections missing (CAP_NET_ADMIN).
pub fn listen(form: Form, ipv6: bool, port: u16) -> io::Result<Socket> {
    let (domain, any, loopback): (_, IpAddr, IpAddr) = if ipv6 {
        (Domain::IPV6, Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::LOCALHOST.into())
    } else {
        (Domain::IPV4, Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::LOCALHOST.into())
    };
    let socket = new(domain)?;
    if ipv6 {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    if form == Form::Tproxy {
        make_transparent(&socket, ipv6)?;
    }
    let address = if form == Form::Local { loopback } else { any };
    socket.bind(&SocketAddr::new(address, port).into())?;
    socket.listen(LISTEN_BACKLOG)?;
    Ok(socket)
}

/// Where an accepted connection was going.
///
/// # Errors
/// The connection was not intercepted but made to the listener itself, or has gone.
pub fn original_destination<S: AsFd>(form: Form, stream: &S, port: u16) -> io::Result<SocketAddr> {
    let socket = SockRef::from(stream);
    let local = socket.local_addr()?.as_socket();
    let destination = match (form, local) {
        (Form::Tproxy | Form::Answers, local) => local,
        (_, Some(SocketAddr::V6(_))) => socket.original_dst_v6()?.as_socket(),
        (_, _) => socket.original_dst_v4()?.as_socket(),
    };
    match destination {
        // To carry it would be to connect to this very listener.
        Some(destination) if destination.port() != port => Ok(destination),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it was made to the listener itself")),
    }
}

/// A socket for a connection to `target`, to be connected by the caller. A `mark` keeps it from being intercepted.
///
/// # Errors
/// The right to use others' addresses, or marks, is missing (CAP_NET_ADMIN); the families differ; no port is free.
pub fn outgoing(target: IpAddr, from: Origin, mark: Option<u32>) -> io::Result<Socket> {
    let socket = new(if target.is_ipv6() { Domain::IPV6 } else { Domain::IPV4 })?;
    if let Some(mark) = mark {
        socket.set_mark(mark)?;
    }
    let (source, keeps_port) = match from {
        Origin::Here => return Ok(socket),
        Origin::Port(source) => (source, true),
        Origin::Address(source) => (source, source.port() < PRIVILEGED_PORT_END),
    };
    if source.is_ipv6() != target.is_ipv6() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "client and target have addresses of two families",
        ));
    }
    make_transparent(&socket, target.is_ipv6())?;
    // The client may have just ended a connection from the same port.
    socket.set_reuse_address(true)?;
    if keeps_port && socket.bind(&source.into()).is_ok() {
        return Ok(socket);
    }
    // Without a port yet, so that the same one may be used towards several targets.
    let _ = nix::sys::socket::setsockopt(&socket, sockopt::IpBindAddressNoPort, &true);
    socket.bind(&SocketAddr::new(source.ip(), 0).into())?;
    Ok(socket)
}

fn new(domain: Domain) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::STREAM.cloexec(), Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn make_transparent(socket: &Socket, ipv6: bool) -> io::Result<()> {
    if ipv6 { socket.set_ip_transparent_v6(true) } else { socket.set_ip_transparent_v4(true) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn a_connection_to_the_listener_itself_is_not_carried() {
        let listener = listen(Form::Local, false, 0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        assert!(address.ip().is_loopback());
        listener.set_nonblocking(false).unwrap();
        let _client = TcpStream::connect(address).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(original_destination(Form::Tproxy, &accepted, address.port()).is_err());
        // Without address translation there may be no original destination at all, or the listener's.
        assert!(original_destination(Form::Local, &accepted, address.port()).is_err());
    }

    #[test]
    fn families_do_not_mix() {
        let client = Origin::Port("192.0.2.1:50000".parse().unwrap());
        let error = outgoing("2001:db8::1".parse().unwrap(), client, None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(outgoing("192.0.2.1".parse().unwrap(), Origin::Here, None).is_ok());
    }
}
