//! The server-side proxy's list of targets it may connect to. It connects nowhere else.

use std::net::IpAddr;

use crate::address::{Host, Pattern, PortRange, normalise};

/// Most `[[allow]]` entries in one configuration.
pub const ALLOW_MAX: usize = 1024;

/// One `[[allow]]` entry: any of the destinations, on any of the ports. Neither list is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowEntry {
    pub destination: Vec<Pattern>,
    pub ports: Vec<PortRange>,
}

/// The allow list of one configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allow(Vec<AllowEntry>);

impl Allow {
    /// A list of `entries`; what none of them names is refused.
    pub fn new(entries: Vec<AllowEntry>) -> Allow {
        Allow(entries)
    }

    /// Every entry, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, AllowEntry> {
        self.0.iter()
    }

    /// Whether the proxy may connect to `address` on `port`, where the peer asked for `host` and `address` is what the
    /// proxy itself resolved it to (and will connect to: resolving again in between would void the answer).
    ///
    /// - A network entry looks at the resolved address only, so a name is never a way around it.
    /// - A name entry looks at the name that was asked for. It does not cover addresses that no file server has but
    ///   that reach the proxy's own machine or its link (loopback, link-local, unspecified, multicast, broadcast): who
    ///   controls a name's DNS must not gain those. A network entry may allow them, and the name `localhost` stands
    ///   for loopback.
    /// - A host that is an address must be the resolved address.
    pub fn permits(&self, host: &Host, address: IpAddr, port: u16) -> bool {
        let address = normalise(address);
        if let Host::Address(asked) = host
            && normalise(*asked) != address
        {
            return false;
        }
        self.0.iter().any(|entry| {
            entry.ports.iter().any(|range| range.contains(port))
                && entry.destination.iter().any(|pattern| covers(pattern, host, address))
        })
    }
}

fn covers(pattern: &Pattern, host: &Host, address: IpAddr) -> bool {
    match pattern {
        Pattern::Network(network) => network.contains(address),
        Pattern::Name(name) if name == "localhost" => pattern.covers(host) && address.is_loopback(),
        Pattern::Name(_) | Pattern::Glob(_) => pattern.covers(host) && !is_special(address),
    }
}

/// Addresses that lead to this machine or its own link rather than to a host that a name may stand for.
fn is_special(address: IpAddr) -> bool {
    address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || match address {
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast() || v4.octets()[0] == 0,
            // The deprecated IPv4-compatible form reaches the IPv4 address on some systems.
            IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.to_ipv4().is_some(),
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(entries: &[(&[&str], &[&str])]) -> Allow {
        let entry = |(destination, ports): &(&[&str], &[&str])| AllowEntry {
            destination: destination.iter().map(|t| t.parse().unwrap()).collect(),
            ports: ports.iter().map(|t| t.parse().unwrap()).collect(),
        };
        Allow::new(entries.iter().map(entry).collect())
    }

    fn permits(allow: &Allow, host: &str, address: &str, port: u16) -> bool {
        allow.permits(&host.parse().unwrap(), address.parse().unwrap(), port)
    }

    #[test]
    fn networks_decide_on_the_resolved_address() {
        let allow = list(&[(&["10.0.0.0/8"], &["445"])]);
        assert!(permits(&allow, "10.1.2.3", "10.1.2.3", 445));
        assert!(permits(&allow, "fs.example", "10.1.2.3", 445), "a name that leads into the network");
        assert!(permits(&allow, "fs.example", "::ffff:10.1.2.3", 445));
        assert!(!permits(&allow, "10.1.2.3", "10.1.2.3", 446));
        assert!(!permits(&allow, "fs.example", "192.0.2.1", 445), "a name that leads out of it");
        assert!(!permits(&allow, "10.1.2.3", "192.0.2.1", 445), "an address does not resolve to another");
        assert!(!permits(&Allow::default(), "10.1.2.3", "10.1.2.3", 445));
    }

    #[test]
    fn names_do_not_reach_the_proxys_own_machine() {
        let allow = list(&[(&["*.corp.example", "fs"], &["1-65535"])]);
        assert!(permits(&allow, "a.corp.example", "10.1.2.3", 445));
        assert!(permits(&allow, "FS.", "2001:db8::1", 445));
        assert!(!permits(&allow, "other", "10.1.2.3", 445));
        assert!(!permits(&allow, "10.1.2.3", "10.1.2.3", 445), "an address is not a name");
        for special in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "169.254.169.254",
            "fe80::1",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "224.0.0.1",
            "255.255.255.255",
            "ff02::1",
        ] {
            assert!(!permits(&allow, "a.corp.example", special, 445), "{special}");
        }
        let both = list(&[(&["a.corp.example", "127.0.0.0/8"], &["445"])]);
        assert!(permits(&both, "a.corp.example", "127.0.0.1", 445), "unless a network names them");
        let local = list(&[(&["localhost"], &["445"])]);
        assert!(permits(&local, "localhost", "127.0.0.1", 445));
        assert!(permits(&local, "localhost", "::1", 445));
        assert!(!permits(&local, "localhost", "10.0.0.1", 445));
        assert!(!permits(&local, "127.0.0.1", "127.0.0.1", 445));
    }

    proptest! {
        /// With networks alone, the name that was asked for never changes the answer.
        #[test]
        fn a_name_never_changes_what_networks_say(address: u32, prefix in 0u8..=32, net: u32, name in "[a-z]{1,8}") {
            let net = ipnet::Ipv4Net::new(net.into(), prefix).unwrap().trunc();
            let allow = list(&[(&[&net.to_string()], &["445"])]);
            let address = std::net::Ipv4Addr::from(address);
            let expected = net.contains(&address);
            prop_assert_eq!(permits(&allow, &name, &address.to_string(), 445), expected);
            prop_assert_eq!(permits(&allow, &address.to_string(), &address.to_string(), 445), expected);
            prop_assert_eq!(permits(&allow, &name, &address.to_ipv6_mapped().to_string(), 445), expected);
        }
    }
}
