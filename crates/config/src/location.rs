//! `[location]`: how a laptop finds out whether it is near its file server, behind a branch gateway, or remote.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use crate::address::HostPort;
use crate::reader::Reader;
use crate::schema;
use crate::sections::ListenAddress;

/// Most gateways that are asked: each costs a datagram a round.
pub const GATEWAYS_MAX: usize = 16;
/// Longest name of a gateway, in bytes (X.520 `ub-common-name`).
const NAME_LEN_MAX: usize = 64;

/// `[location]`. Without a server and gateways, the location is not looked after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file server that the way to is measured.
    pub server: Option<HostPort>,
    /// It is near while it answers sooner than this.
    pub near: Duration,
    pub gateways: Vec<Gateway>,
    /// A gateway that answers later than this does not count.
    pub gateway_near: Duration,
    /// Where this proxy itself answers probes.
    pub answer: Option<SocketAddr>,
}

/// A branch gateway: `branch-7@10.1.0.1:7815`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// Name in its certificate.
    pub name: String,
    /// Where it answers probes.
    pub address: HostPort,
}

impl Location {
    pub(crate) fn build(reader: &mut Reader<'_>) -> Option<Location> {
        let section = reader.section("location");
        let server = reader.host_port(&section, &schema::LOCATION_SERVER);
        let near = reader.duration(&section, &schema::LOCATION_NEAR);
        let gateways = reader.list::<Gateway>(&section, &schema::LOCATION_GATEWAYS);
        let gateway_near = reader.duration(&section, &schema::LOCATION_GATEWAY_NEAR);
        let answer = reader.parsed::<ListenAddress>(&section, &schema::LOCATION_ANSWER);
        let gateways = gateways?;
        if gateways.len() > GATEWAYS_MAX {
            let message = format!("has {} entries; at most {GATEWAYS_MAX} are asked", gateways.len());
            reader.conflict(&section, &schema::LOCATION_GATEWAYS, message);
        }
        if answer.is_some() && !gateways.is_empty() {
            let text = "this proxy answers probes as a gateway and sends them as a laptop does; one of them is hardly meant";
            reader.warn(&section, &schema::LOCATION_ANSWER, text);
        }
        Some(Location {
            server,
            near: near?,
            gateways,
            gateway_near: gateway_near?,
            answer: answer.map(|answer| answer.0),
        })
    }
}

impl fmt::Display for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.address)
    }
}

impl FromStr for Gateway {
    type Err = String;

    fn from_str(text: &str) -> Result<Gateway, String> {
        let (name, address) = text.split_once('@').ok_or("has no \"@\" between name and address")?;
        if name.is_empty() || name.len() > NAME_LEN_MAX || name.contains(char::is_control) {
            return Err(format!("must have 1 to {NAME_LEN_MAX} characters before the \"@\""));
        }
        Ok(Gateway { name: name.into(), address: HostPort::parse(address, schema::PROBE_PORT)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_are_a_name_and_an_address() {
        let gateway: Gateway = "branch-7@10.1.0.1".parse().unwrap();
        assert_eq!(gateway.to_string(), "branch-7@10.1.0.1:7815");
        assert_eq!("b@[::1]:9".parse::<Gateway>().unwrap().address.port, 9);
        for bad in ["10.1.0.1", "@10.1.0.1", "b@", "b@x:y", "b\n@10.1.0.1"] {
            assert!(bad.parse::<Gateway>().is_err(), "{bad:?}");
        }
    }
}
