//! Hosts, ports and patterns over them: what addresses, rules and the allow list are made of.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;
use isthmus_types::limits::HOST_LEN_MAX;

/// A host: an address, or a DNS name in lower case without its trailing dot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    Address(IpAddr),
    Name(String),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Address(address) => address.fmt(f),
            Host::Name(name) => f.write_str(name),
        }
    }
}

impl FromStr for Host {
    type Err = String;

    /// An IPv6 address may stand in brackets. An IPv4-mapped IPv6 address becomes the IPv4 address.
    fn from_str(text: &str) -> Result<Host, String> {
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(Host::Address(normalise(address)));
        }
        let name = canonical_name(text);
        check_name(&name, false)?;
        Ok(Host::Name(name))
    }
}

/// A host and a TCP port: `server.example:445`, `192.0.2.7:445`, `[2001:db8::7]:445`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    pub host: Host,
    pub port: u16,
}

impl HostPort {
    /// Reads `text`; `default_port` is taken where it names none. The error is to be read after the text.
    pub fn parse(text: &str, default_port: u16) -> Result<HostPort, String> {
        let text = text.trim();
        if let Ok(address) = text.parse::<Ipv6Addr>() {
            return Ok(HostPort { host: Host::Address(normalise(IpAddr::V6(address))), port: default_port });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !text.ends_with(']') => (host, parse_port(port)?),
            _ => (text, default_port),
        };
        Ok(HostPort { host: host.parse()?, port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host {
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            ref host => write!(f, "{host}:{}", self.port),
        }
    }
}

/// An inclusive range of TCP ports: `445` or `8000-8010`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortRange {
    pub first: u16,
    pub last: u16,
}

impl PortRange {
    /// Whether `port` lies in the range.
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<PortRange, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = PortRange { first: parse_port(first.trim())?, last: parse_port(last.trim())? };
        if range.first > range.last {
            return Err("ends before it starts".into());
        }
        Ok(range)
    }
}

/// A set of addresses in CIDR notation; a bare address stands for itself alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network(IpNet);

impl Network {
    /// Whether `address` lies in the network. IPv4-mapped IPv6 addresses count as the IPv4 address they carry.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&normalise(address))
    }

    /// The network in the form that other libraries take.
    pub fn into_inner(self) -> IpNet {
        self.0
    }
}

impl fmt::Display for Network {
    /// As it was most likely written: an address without `/32` or `/128`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.prefix_len() == self.0.max_prefix_len() { self.0.addr().fmt(f) } else { self.0.fmt(f) }
    }
}

impl FromStr for Network {
    type Err = String;

    /// Refuses networks with bits set after the prefix, since they are more often a slip than meant.
    fn from_str(text: &str) -> Result<Network, String> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Network(IpNet::from(normalise(address))));
        }
        let net: IpNet = text.parse().map_err(|_| "is not an address or a network".to_string())?;
        if net.trunc() != net {
            return Err(format!("has bits set after its prefix; the network is {}", net.trunc()));
        }
        unmapped(net).map(Network)
    }
}

/// What a `destination` entry names: a network, one DNS name, or names by a glob (`*` any run of characters but a dot at
/// its edges' labels included, `?` one character).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    Network(Network),
    Name(String),
    Glob(String),
}

impl Pattern {
    /// Whether the pattern covers `host` as it stands. Nothing is resolved: a network never covers a name, a name never
    /// covers an address.
    pub fn covers(&self, host: &Host) -> bool {
        match (self, host) {
            (Pattern::Network(network), Host::Address(address)) => network.contains(*address),
            (Pattern::Name(pattern), Host::Name(name)) => *pattern == canonical_name(name),
            (Pattern::Glob(pattern), Host::Name(name)) => {
                glob(pattern.as_bytes(), canonical_name(name).as_bytes())
            }
            _ => false,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Network(network) => network.fmt(f),
            Pattern::Name(text) | Pattern::Glob(text) => f.write_str(text),
        }
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        let text = text.trim();
        if text.contains('/') || text.parse::<IpAddr>().is_ok() {
            return text.parse().map(Pattern::Network);
        }
        let name = canonical_name(text);
        if !name.contains(['*', '?']) {
            check_name(&name, false)?;
            return Ok(Pattern::Name(name));
        }
        check_name(&name, true)?;
        let address_like = |c: char| c.is_ascii_digit() || matches!(c, '.' | '*' | '?' | ':');
        if name.contains('.') && name.contains(|c: char| c.is_ascii_digit()) && name.chars().all(address_like)
        {
            return Err("is a glob over an address; write a network such as 10.1.0.0/16".into());
        }
        Ok(Pattern::Glob(name))
    }
}

/// The IPv4 address that an IPv4-mapped IPv6 address (`::ffff:192.0.2.1`) stands for; any other address as it is.
pub fn normalise(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Turns a network of IPv4-mapped addresses into the IPv4 network it stands for.
fn unmapped(net: IpNet) -> Result<IpNet, String> {
    const MAPPED_PREFIX_LEN: u8 = 96;
    let IpNet::V6(v6) = net else { return Ok(net) };
    let Some(v4) = v6.network().to_ipv4_mapped() else { return Ok(net) };
    if v6.prefix_len() < MAPPED_PREFIX_LEN {
        return Ok(net);
    }
    ipnet::Ipv4Net::new(v4, v6.prefix_len() - MAPPED_PREFIX_LEN)
        .map(IpNet::V4)
        .map_err(|_| "is not a network".to_string())
}

fn canonical_name(name: &str) -> String {
    let name = name.trim();
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Refuses what cannot be a DNS name (RFC 1035 2.3.1, with the underscore that Windows host names use).
fn check_name(name: &str, glob: bool) -> Result<(), String> {
    const LABEL_LEN_MAX: usize = 63;
    if name.is_empty() {
        return Err("names no host".into());
    }
    if name.len() > HOST_LEN_MAX {
        return Err(format!("is longer than {HOST_LEN_MAX} bytes"));
    }
    if let Some(bad) =
        name.chars().find(|c| !(c.is_ascii_alphanumeric() || "-_.".contains(*c) || glob && "*?".contains(*c)))
    {
        return Err(format!("has the character {bad:?}, which no host name has"));
    }
    if name.split('.').any(|label| label.is_empty() || label.len() > LABEL_LEN_MAX) {
        return Err(format!("has an empty label or one longer than {LABEL_LEN_MAX} bytes"));
    }
    let last = name.rsplit('.').next().unwrap_or(name);
    if !glob && last.bytes().all(|b| b.is_ascii_digit()) {
        // "10.0.0.300" or "10.0.0" would otherwise become a name that some resolvers read as an address.
        return Err("is neither an address nor a host name".into());
    }
    Ok(())
}

fn parse_port(text: &str) -> Result<u16, String> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("has {text:?} where a port is expected"));
    }
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("has the port {text}, and ports are 1 to 65535")),
        Ok(port) => Ok(port),
    }
}

/// Greedy glob match with one level of backtracking, so its time is bounded by pattern length times text length.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((after_star, from)) = retry else { return false };
                retry = Some((after_star, from + 1));
                p = after_star;
                t = from + 1;
            }
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn host(text: &str) -> Host {
        text.parse().unwrap()
    }

    #[test]
    fn hosts_and_ports_are_read_in_every_usual_form() {
        for (text, shown) in [
            ("fs.example:445", "fs.example:445"),
            ("FS.Example.", "fs.example:7810"),
            ("192.0.2.7:1", "192.0.2.7:1"),
            ("192.0.2.7", "192.0.2.7:7810"),
            ("[2001:db8::7]:445", "[2001:db8::7]:445"),
            ("[2001:db8::7]", "[2001:db8::7]:7810"),
            ("2001:db8::7", "[2001:db8::7]:7810"),
            ("[::ffff:192.0.2.7]:445", "192.0.2.7:445"),
            ("file_server-1:445", "file_server-1:445"),
        ] {
            let parsed = HostPort::parse(text, 7810).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(parsed.to_string(), shown);
            assert_eq!(HostPort::parse(shown, 1).unwrap(), parsed);
        }
        for bad in [
            "",
            ":445",
            "a:",
            "a:0",
            "a:65536",
            "a:b",
            "a b:1",
            "10.0.0.300:1",
            "10.0.0:1",
            "a..b:1",
            "ü.example:1",
            "a:+5",
        ] {
            assert!(HostPort::parse(bad, 7810).is_err(), "{bad:?} must be refused");
        }
    }

    #[test]
    fn networks_know_mapped_addresses() {
        let network: Network = "10.0.0.0/8".parse().unwrap();
        assert!(network.contains("10.1.2.3".parse().unwrap()));
        assert!(network.contains("::ffff:10.1.2.3".parse().unwrap()));
        assert!(!network.contains("::10.1.2.3".parse().unwrap()));
        assert!(!network.contains("11.1.2.3".parse().unwrap()));
        let mapped: Network = "::ffff:10.0.0.0/104".parse().unwrap();
        assert_eq!(mapped, network);
        assert!("10.0.0.1/8".parse::<Network>().unwrap_err().contains("10.0.0.0/8"));
        assert!("10.0.0.0/33".parse::<Network>().is_err());
    }

    #[test]
    fn patterns_cover_hosts_as_written() {
        let covers = |pattern: &str, h: &str| pattern.parse::<Pattern>().unwrap().covers(&host(h));
        assert!(covers("*.corp.example", "fs1.CORP.example."));
        assert!(covers("*.corp.example", "a.b.corp.example"));
        assert!(!covers("*.corp.example", "corp.example"));
        assert!(!covers("*.corp.example", "corp.example.evil"));
        assert!(covers("fs?", "fs1"));
        assert!(!covers("fs?", "fs12"));
        assert!(covers("*", "anything"));
        assert!(!covers("*", "192.0.2.1"), "a glob is about names");
        assert!(covers("192.0.2.1", "::ffff:192.0.2.1"));
        assert!(!covers("0.0.0.0/0", "fs1"));
        assert!("10.1.*".parse::<Pattern>().is_err());
    }

    #[test]
    fn port_ranges() {
        assert!("8000-8010".parse::<PortRange>().unwrap().contains(8010));
        assert!(!"8000-8010".parse::<PortRange>().unwrap().contains(8011));
        for bad in ["", "0", "70000", "5-4", "-5", "5-", "a"] {
            assert!(bad.parse::<PortRange>().is_err(), "{bad:?}");
        }
    }

    /// A slow and plain glob, to compare with.
    fn model(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some((b'*', p)), _) => model(p, text) || (!text.is_empty() && model(pattern, &text[1..])),
            (Some((&c, p)), Some((&d, t))) => (c == b'?' || c == d) && model(p, t),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn glob_agrees_with_the_plain_definition(pattern in "[ab*?.]{0,8}", text in "[ab.]{0,10}") {
            prop_assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), model(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<Host>();
            let _ = text.parse::<Pattern>();
            let _ = text.parse::<PortRange>();
            let _ = HostPort::parse(&text, 1);
        }
    }
}
