//! Connections that pass by since they are older than the rules.

use std::net::{IpAddr, SocketAddr};

use serde_json::Value;

use crate::conflict::items;
use crate::plan::{FAMILY, PREEXISTING, Plan};
use crate::tool::NFT;
use crate::{Held, InterceptError};

/// A connection by its two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    pub client: SocketAddr,
    pub target: SocketAddr,
}

impl Held {
    /// The connections that have passed by in the last two minutes: made before the rules, and so not taken.
    ///
    /// # Errors
    /// `nft` cannot be run, or the rules are gone.
    pub fn passing_by(plan: &Plan) -> Result<Vec<Flow>, InterceptError> {
        let mut flows = Vec::new();
        let sets = if plan.ipv6 { PREEXISTING.as_slice() } else { &PREEXISTING[..1] };
        for set in sets {
            let answer = NFT.run(&["-j", "list", "set", FAMILY, plan.table, set], "")?;
            // A family without a meant address has no set.
            if answer.succeeded {
                let listed: Value = serde_json::from_str(&answer.output).unwrap_or_default();
                flows.extend(read(&listed));
            } else if !answer.message.contains("No such file") {
                return Err(NFT.refused(&["list", "set"], &answer.message));
            }
        }
        Ok(flows)
    }
}

/// The elements of `nft -j list set`: addresses and ports, joined, within what else is known of the element.
fn read(listed: &Value) -> Vec<Flow> {
    items(&listed["nftables"])
        .iter()
        .flat_map(|item| items(&item["set"]["elem"]))
        .filter_map(|element| {
            let joined = element.get("elem").map_or(element, |elem| &elem["val"]);
            let [client, client_port, target, target_port] = items(&joined["concat"]) else { return None };
            Some(Flow { client: end(client, client_port)?, target: end(target, target_port)? })
        })
        .collect()
}

fn end(address: &Value, port: &Value) -> Option<SocketAddr> {
    let address: IpAddr = address.as_str()?.parse().ok()?;
    Some(SocketAddr::new(address, u16::try_from(port.as_u64()?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn elements_are_read_with_and_without_a_timeout() {
        let plain = json!({ "concat": ["10.1.0.5", 50_000, "10.2.0.9", 445] });
        let timed =
            json!({ "elem": { "val": { "concat": ["2001:db8::5", 7, "2001:db8::9", 445] }, "expires": 59 } });
        let odd = json!({ "concat": ["10.1.0.5", "ssh", "10.2.0.9", 445] });
        let listed =
            json!({ "nftables": [{ "metainfo": {} }, { "set": { "elem": [plain, timed, odd, 5] } }] });
        let flows = read(&listed);
        assert_eq!(flows.len(), 2);
        assert_eq!(flows[0].client, "10.1.0.5:50000".parse().unwrap());
        assert_eq!(flows[1].target, "[2001:db8::9]:445".parse().unwrap());
        assert!(read(&Value::Null).is_empty());
    }
}
