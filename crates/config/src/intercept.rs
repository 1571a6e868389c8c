//! `[intercept]`: connections that are taken in the path, and the addresses under which targets see them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::address::{Network, PortRange};
use crate::client::Peer;
use crate::reader::{Reader, Section};
use crate::schema::{self, Key};
use crate::sections::overlap;
use crate::words::InterceptMode;

/// Longest name of an interface (Linux `IFNAMSIZ`, without the end).
const INTERFACE_LEN_MAX: usize = 15;

/// `[intercept]` of the client-side proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intercept {
    pub mode: InterceptMode,
    /// Where intercepted connections arrive on this machine.
    pub port: u16,
    /// Interfaces that clients are behind; with [`InterceptMode::Local`], that connections leave by. Empty: all.
    pub interfaces: Vec<String>,
    pub ports: Vec<PortRange>,
    pub source: Vec<Network>,
    pub destination: Vec<Network>,
    /// Targets that are left alone all the same.
    pub except: Vec<Network>,
    /// Whether connections that the pair could not carry when they were made are reset when it can.
    pub reset_preexisting: bool,
    pub routing: InterceptRouting,
}

/// `[intercept]` of the server-side proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterceptAnswers {
    /// Clients that targets see under their own addresses. Empty: none.
    pub source: Vec<Network>,
    pub routing: InterceptRouting,
}

/// What both sides need to bring packets to the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterceptRouting {
    /// Whether `run` puts the rules in, and takes them with it when it ends.
    pub install: bool,
    pub mark: u32,
    /// Number of the routing table.
    pub table: u32,
    /// Priority of the routing rule.
    pub priority: u32,
}

impl Intercept {
    /// Whether anything is intercepted.
    pub fn is_on(&self) -> bool {
        self.mode != InterceptMode::Off
    }

    pub(crate) fn build(
        reader: &mut Reader<'_>,
        peer: Option<&Peer>,
        listeners: &[(SocketAddr, String)],
    ) -> Option<Intercept> {
        let section = reader.section("intercept");
        let mode = reader.parsed(&section, &schema::INTERCEPT_MODE);
        let port = port(reader, &section);
        let interfaces = reader
            .entries(&section, &schema::INTERCEPT_INTERFACES, interface, |name| crate::reader::quoted(name));
        let ports = reader.list::<PortRange>(&section, &schema::INTERCEPT_PORTS);
        let source = reader.list(&section, &schema::INTERCEPT_SOURCE);
        let destination = reader.list(&section, &schema::INTERCEPT_DESTINATION);
        let except = reader.list(&section, &schema::INTERCEPT_EXCEPT);
        let reset_preexisting = reader.boolean(&section, &schema::INTERCEPT_RESET_PREEXISTING);
        let routing = InterceptRouting::build(
            reader,
            &section,
            [
                &schema::INTERCEPT_MARK_CLIENT,
                &schema::INTERCEPT_TABLE_CLIENT,
                &schema::INTERCEPT_PRIORITY_CLIENT,
            ],
        );
        let intercept = Intercept {
            mode: mode?,
            port: port?,
            interfaces: interfaces?,
            ports: ports?,
            source: source?,
            destination: destination?,
            except: except?,
            reset_preexisting: reset_preexisting?,
            routing: routing?,
        };
        if intercept.is_on() {
            intercept.check(reader, &section, peer, listeners);
        }
        Some(intercept)
    }

    fn check(
        &self,
        reader: &mut Reader<'_>,
        section: &Section<'_>,
        peer: Option<&Peer>,
        listeners: &[(SocketAddr, String)],
    ) {
        let meant = |port: u16| self.ports.iter().any(|range| range.contains(port));
        if self.ports.is_empty() {
            reader.conflict(
                section,
                &schema::INTERCEPT_PORTS,
                "an empty list intercepts nothing; name a port",
            );
        }
        if meant(self.port) {
            let message =
                format!("{} is intercept.port itself, where intercepted connections arrive", self.port);
            reader.conflict(section, &schema::INTERCEPT_PORTS, message);
        }
        if let Some(peer) = peer.filter(|peer| meant(peer.address.port)) {
            let message = format!(
                "{} is the port of peer.address, whose connections must not be intercepted",
                peer.address.port
            );
            reader.conflict(section, &schema::INTERCEPT_PORTS, message);
        }
        let own = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), self.port);
        if let Some((_, key)) = listeners.iter().find(|(other, _)| overlap(*other, own)) {
            reader.conflict(section, &schema::INTERCEPT_PORT, format!("{} is taken by {key}", self.port));
        }
    }
}

impl InterceptAnswers {
    /// Whether any client is seen under its own address.
    pub fn is_on(&self) -> bool {
        !self.source.is_empty()
    }

    pub(crate) fn build(reader: &mut Reader<'_>) -> Option<InterceptAnswers> {
        let section = reader.section("intercept");
        let source = reader.list(&section, &schema::INTERCEPT_SOURCE_SERVER);
        let routing = InterceptRouting::build(
            reader,
            &section,
            [
                &schema::INTERCEPT_MARK_SERVER,
                &schema::INTERCEPT_TABLE_SERVER,
                &schema::INTERCEPT_PRIORITY_SERVER,
            ],
        );
        Some(InterceptAnswers { source: source?, routing: routing? })
    }
}

impl InterceptRouting {
    fn build(
        reader: &mut Reader<'_>,
        section: &Section<'_>,
        [mark, table, priority]: [&'static Key; 3],
    ) -> Option<InterceptRouting> {
        let install = reader.boolean(section, &schema::INTERCEPT_INSTALL);
        let (mark, table) = (reader.integer(section, mark), reader.integer(section, table));
        let priority = reader.integer(section, priority);
        Some(InterceptRouting { install: install?, mark: mark?, table: table?, priority: priority? })
    }
}

fn port(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<u16> {
    // The range of the key is that of ports.
    reader.integer(section, &schema::INTERCEPT_PORT).and_then(|port| u16::try_from(port).ok())
}

/// A name that the kernel may give an interface, and that needs no escaping in rules; `*` at its end stands for any.
fn interface(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('*').unwrap_or(text);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@:".contains(&byte);
    if name.is_empty() || text.len() > INTERFACE_LEN_MAX {
        Err(format!("is not 1 to {INTERFACE_LEN_MAX} characters long"))
    } else if !name.bytes().all(is_plain) {
        Err("may have only letters, digits, '-', '_', '.', '@' and ':', and '*' at its end".into())
    } else {
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_interfaces_cannot_end_a_rule() {
        for good in ["eth0", "br-lan", "eth0.100", "wg*", "veth@if3"] {
            assert_eq!(interface(good).unwrap(), good);
        }
        for bad in ["", "*", "a\"b", "a b", "a;b", "eth0}", "averyveryverylong", "a*b"] {
            assert!(interface(bad).is_err(), "{bad}");
        }
    }
}
