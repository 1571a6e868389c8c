//! Messages between an agent and the server side: one request and one answer a connection, as JSON.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use zeroize::Zeroize;

use crate::policy::SignedPolicy;

/// What an agent asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Request {
    /// Lets a laptop in that has no certificate yet.
    Enrol(Enrol),
    /// Another certificate for the same name. Needs the present one.
    Renew {
        /// PKCS #10, PEM.
        request: String,
    },
    /// The server side's half of the key of the agent's store. Needs a certificate.
    StoreHalf,
    /// Tells how the agent is, and asks for news. Needs a certificate.
    Report(Report),
}

/// An enrolment. No `Debug` of the secret.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Enrol {
    /// The token's secret, in hexadecimal digits.
    pub secret: String,
    /// PKCS #10, PEM. Only its key counts; what it says of its holder does not.
    pub request: String,
    /// Version of the agent's software.
    pub software: String,
    /// Name of the machine, for people.
    pub host: String,
}

/// What an agent tells of itself. Unknown fields of later versions are left alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    pub software: String,
    pub host: String,
    /// Version of the policy that it follows; 0 for none.
    pub policy_version: u64,
    /// Number of the revocation list that it has, as text; empty for none.
    pub revocations: String,
    /// `off`, `branch` or `remote`.
    pub location: String,
    /// Why it is there, for people.
    pub location_why: String,
    /// Open connections.
    pub connections: u64,
    /// Bytes since the agent's start, both directions.
    pub lan_bytes: u64,
    pub wan_bytes: u64,
    pub store_bytes: u64,
    pub store_chunks: u64,
    /// What keeps it from following the policy, if anything.
    pub problem: String,
}

/// What the server side answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    Enrolled(Enrolled),
    Renewed {
        /// PEM.
        certificate: String,
    },
    Reported(Reported),
    StoreHalf(Half),
    /// The request is refused, for this reason.
    Refused {
        why: String,
        /// Whether the agent has been revoked, and is to erase what it holds.
        #[serde(default)]
        revoked: bool,
    },
}

/// Half of a store's key, in hexadecimal digits. No `Debug` of it.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Half {
    pub half: String,
}

/// An enrolment that was granted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Enrolled {
    /// Name in the certificate.
    pub name: String,
    /// PEM.
    pub certificate: String,
    /// The authority's certificate, PEM.
    pub authority: String,
    /// The authority's revocation list, PEM.
    pub revocations: String,
    pub policy: SignedPolicy,
}

/// News for an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reported {
    /// The policy, if it is another than the agent's.
    pub policy: Option<SignedPolicy>,
    /// The revocation list (PEM), if it is another than the agent's.
    pub revocations: Option<String>,
}

/// What an agent says of the revocation list (PEM) that it has: enough to tell it from another.
pub fn revocations_id(list: &str) -> String {
    format!("{:08x}-{}", crc32fast::hash(list.as_bytes()), list.len())
}

/// Bytes that are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a message of the fleet's protocol: {0}")]
pub struct BadMessage(String);

/// A message as bytes.
///
/// # Errors
/// Never for the messages of this crate.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, BadMessage> {
    serde_json::to_vec(message).map_err(|error| BadMessage(error.to_string()))
}

/// Reads a message of bounded length.
///
/// # Errors
/// When the bytes are not JSON of this shape. What they hold is not repeated: it may be a secret.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BadMessage> {
    serde_json::from_slice(bytes)
        .map_err(|error| BadMessage(format!("line {}, column {}", error.line(), error.column())))
}

impl Drop for Half {
    fn drop(&mut self) {
        self.half.zeroize();
    }
}

impl std::fmt::Debug for Half {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Half")
    }
}

impl std::fmt::Debug for Enrol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Enrol")
            .field("software", &self.software)
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_way_and_later_fields_do_no_harm() {
        let request = Request::Enrol(Enrol {
            secret: "07".into(),
            request: "pem".into(),
            software: "0.1.0".into(),
            host: "laptop".into(),
        });
        assert_eq!(decode::<Request>(&encode(&request).unwrap()).unwrap(), request);
        assert!(!format!("{request:?}").contains("07"), "no secret in a log");
        let report = br#"{"ask":"report","policy_version":3,"of_a_later_version":[1]}"#;
        let Request::Report(report) = decode(report).unwrap() else { panic!("not a report") };
        assert_eq!((report.policy_version, report.location.as_str()), (3, ""));
        let refused = br#"{"answer":"refused","why":"no"}"#;
        assert_eq!(decode::<Answer>(refused).unwrap(), Answer::Refused { why: "no".into(), revoked: false });
    }

    #[test]
    fn bad_messages_are_refused_without_being_repeated() {
        for bad in [&b""[..], b"{", b"[]", br#"{"ask":"sesame"}"#, b"\xff", br#"{"ask":"enrol","secret":5}"#]
        {
            let error = decode::<Request>(bad).unwrap_err().to_string();
            assert!(!error.contains("sesame"), "{error}");
        }
    }
}
