//! The register itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use isthmus_agent::limits::{NAME_BYTES_MAX, POLICY_BYTES_MAX};
use isthmus_agent::{Enrol, Enrolled, Report, Reported, SignedPolicy, Token, TokenSecret, revocations_id};
use isthmus_certs::{Authority, Entry, IssueRequest, Role, Validity, fingerprint, list};

use zeroize::{Zeroize, Zeroizing};

use crate::error::FleetError;
use crate::seen::{self, Seen};
use crate::state::{AgentEntry, State, TokenEntry};
use crate::{AGENTS_MAX, POLICIES_MAX, TOKEN_TTL_MAX, TOKENS_MAX};

/// Bytes of the half of a store's key.
const STORE_HALF_BYTES: usize = 32;

/// A register and the authority that issues for it.
#[derive(Clone, Debug)]
pub struct Fleet {
    dir: PathBuf,
    authority: PathBuf,
    days: u32,
}

/// A token for one laptop.
pub struct Invitation {
    pub token: Token,
    /// When it ends.
    pub expires: SystemTime,
}

/// One agent as the register knows it.
#[derive(Clone, Debug)]
pub struct Agent {
    pub name: String,
    pub policy: String,
    /// Version of that policy.
    pub policy_version: u64,
    pub enrolled: SystemTime,
    pub serial: String,
    /// End of its newest certificate.
    pub not_after: SystemTime,
    pub revoked: Option<SystemTime>,
    pub host: String,
    pub software: String,
}

impl Fleet {
    /// The register in `dir` (made when first written) with the authority in `authority`, whose certificates for agents are
    /// valid for so many days.
    pub fn new(dir: &Path, authority: &Path, days: u32) -> Fleet {
        Fleet { dir: dir.to_path_buf(), authority: authority.to_path_buf(), days }
    }

    /// Makes a one-time token by which a laptop becomes the agent `name` that follows `policy`.
    pub fn invite(
        &self,
        name: &str,
        policy: &str,
        ttl: Duration,
        now: SystemTime,
    ) -> Result<Invitation, FleetError> {
        if ttl.is_zero() || ttl > TOKEN_TTL_MAX {
            let days = TOKEN_TTL_MAX.as_secs() / 86_400;
            return Err(FleetError::BadRequest(format!("a token is valid for at most {days} days")));
        }
        self.request(name).check()?;
        let authority = Authority::open(&self.authority)?;
        let mut locked = State::lock(&self.dir)?;
        let state = &mut locked.state;
        if !state.policies.contains_key(policy) {
            return Err(FleetError::NoPolicy(policy.to_owned()));
        }
        self.check_free(state, name, now)?;
        let now_seconds = unix(now);
        state.tokens.retain(|token| token.expires > now_seconds);
        // A second token for a name that is not used yet takes the place of the first.
        state.tokens.retain(|token| token.name != name);
        if state.tokens.len() >= TOKENS_MAX {
            return Err(FleetError::TooMany { what: "tokens", most: TOKENS_MAX });
        }
        let mut secret = TokenSecret([0; 12]);
        getrandom::fill(&mut secret.0)
            .map_err(|error| FleetError::BadRequest(format!("no random numbers: {error}")))?;
        let unreadable = || FleetError::BadRequest("the authority's certificate cannot be read".to_owned());
        let print = fingerprint(authority.certificate_pem()).ok_or_else(unreadable)?;
        let pin = print.first_chunk().copied().ok_or_else(unreadable)?;
        let expires = now + ttl;
        state.tokens.push(TokenEntry {
            name: name.to_owned(),
            policy: policy.to_owned(),
            hash: secret_hash(&secret),
            expires: unix(expires),
            used_for: None,
        });
        locked.write()?;
        Ok(Invitation { token: Token { secret, authority: pin }, expires })
    }

    /// Lets a laptop in whose token is good. A token is good for one certificate request.
    pub fn enrol(&self, enrol: &Enrol, now: SystemTime) -> Result<Enrolled, FleetError> {
        let secret = TokenSecret::from_hex(&enrol.secret).ok_or(FleetError::Token)?;
        let (hash, request_hash) = (secret_hash(&secret), blake3::hash(enrol.request.as_bytes()).to_hex());
        let authority = Authority::open(&self.authority)?;
        let mut locked = State::lock(&self.dir)?;
        let state = &mut locked.state;
        // Only hashes are compared, so how long it takes tells nothing about a secret.
        let token = state.tokens.iter_mut().find(|token| token.hash == hash && token.expires > unix(now));
        let token = token.ok_or(FleetError::Token)?;
        if token.used_for.as_ref().is_some_and(|used| used != request_hash.as_str()) {
            return Err(FleetError::Token);
        }
        let (name, policy) = (token.name.clone(), token.policy.clone());
        let again = token.used_for.is_some();
        if !again {
            token.used_for = Some(request_hash.to_string());
            self.check_free(state, &name, now)?;
        }
        let signed = state.policies.get(&policy).cloned().ok_or(FleetError::NoPolicy(policy.clone()))?;
        if !state.agents.contains_key(&name) && state.agents.len() >= AGENTS_MAX {
            return Err(FleetError::TooMany { what: "agents", most: AGENTS_MAX });
        }
        // A request that cannot be granted leaves the token as it was: nothing is written then.
        let (certificate, entry) = authority.grant(&self.request(&name), &enrol.request)?;
        let agent = AgentEntry {
            policy,
            enrolled: unix(now),
            serial: entry.serial,
            not_after: unix(entry.not_after),
            revoked: None,
            host: bounded(&enrol.host),
            software: bounded(&enrol.software),
            store_half: store_half(state.agents.get(&name).filter(|_| again))?,
        };
        state.agents.insert(name.clone(), agent);
        locked.write()?;
        Ok(Enrolled {
            name,
            certificate,
            authority: authority.certificate_pem().to_owned(),
            revocations: authority.crl_pem()?,
            policy: signed,
        })
    }

    /// Another certificate (PEM) for the agent `name`, whose present one has been verified.
    pub fn renew(&self, name: &str, key_request: &str) -> Result<String, FleetError> {
        let authority = Authority::open(&self.authority)?;
        let mut locked = State::lock(&self.dir)?;
        let agent = locked.state.agents.get_mut(name).ok_or_else(|| FleetError::NoAgent(name.to_owned()))?;
        if agent.revoked.is_some() {
            return Err(FleetError::Revoked(name.to_owned()));
        }
        let (certificate, entry) = authority.grant(&self.request(name), key_request)?;
        agent.serial = entry.serial;
        agent.not_after = unix(entry.not_after);
        locked.write()?;
        Ok(certificate)
    }

    /// The half of the key of an agent's store that is kept here. Without it, what the laptop has stored cannot be read.
    pub fn store_half(&self, name: &str) -> Result<Zeroizing<String>, FleetError> {
        let state = State::read(&self.dir)?;
        let agent = state.agents.get(name).ok_or_else(|| FleetError::NoAgent(name.to_owned()))?;
        if agent.revoked.is_some() {
            return Err(FleetError::Revoked(name.to_owned()));
        }
        Ok(Zeroizing::new(agent.store_half.clone()))
    }

    /// What an agent that has just reported should hear.
    pub fn news(&self, name: &str, report: &Report) -> Result<Reported, FleetError> {
        let state = State::read(&self.dir)?;
        let agent = state.agents.get(name).ok_or_else(|| FleetError::NoAgent(name.to_owned()))?;
        if agent.revoked.is_some() {
            return Err(FleetError::Revoked(name.to_owned()));
        }
        let policy = state.policies.get(&agent.policy);
        let policy = policy.filter(|policy| policy.version != report.policy_version).cloned();
        let list = isthmus_certs::files::read_text(&self.authority.join("crl.pem"))?;
        let revocations = (revocations_id(&list) != report.revocations).then_some(list);
        Ok(Reported { policy, revocations })
    }

    /// Issues a policy: signs its text and gives it the next version. Whether the text is a policy is for the caller to
    /// have checked.
    pub fn set_policy(&self, name: &str, text: &str) -> Result<SignedPolicy, FleetError> {
        self.request(name).check()?;
        if text.len() > POLICY_BYTES_MAX {
            return Err(FleetError::BadRequest(format!("a policy has at most {POLICY_BYTES_MAX} bytes")));
        }
        let authority = Authority::open(&self.authority)?;
        let mut locked = State::lock(&self.dir)?;
        let state = &mut locked.state;
        if !state.policies.contains_key(name) && state.policies.len() >= POLICIES_MAX {
            return Err(FleetError::TooMany { what: "policies", most: POLICIES_MAX });
        }
        let policy = sign(&authority, state, name, text)?;
        locked.write()?;
        Ok(policy)
    }

    /// Lets an agent follow another policy, which is issued anew for that: versions only grow, for each agent too.
    pub fn reassign(&self, agent: &str, policy: &str) -> Result<SignedPolicy, FleetError> {
        let authority = Authority::open(&self.authority)?;
        let mut locked = State::lock(&self.dir)?;
        let state = &mut locked.state;
        let text = state.policies.get(policy).map(|policy| policy.text.clone());
        let text = text.ok_or_else(|| FleetError::NoPolicy(policy.to_owned()))?;
        let entry = state.agents.get_mut(agent).ok_or_else(|| FleetError::NoAgent(agent.to_owned()))?;
        entry.policy = policy.to_owned();
        let policy = sign(&authority, state, policy, &text)?;
        locked.write()?;
        Ok(policy)
    }

    /// Every policy.
    pub fn policies(&self) -> Result<Vec<SignedPolicy>, FleetError> {
        Ok(State::read(&self.dir)?.policies.into_values().collect())
    }

    /// Revokes all certificates of an agent. The authority's revocation list is written anew; gives what was revoked.
    pub fn revoke(&self, name: &str, now: SystemTime) -> Result<Vec<Entry>, FleetError> {
        let authority = Authority::open(&self.authority)?;
        let mut locked = State::lock(&self.dir)?;
        let agent = locked.state.agents.get_mut(name).ok_or_else(|| FleetError::NoAgent(name.to_owned()))?;
        agent.revoked.get_or_insert(unix(now));
        agent.store_half.zeroize();
        locked.state.tokens.retain(|token| token.name != name);
        // Written first: should the authority fail, the agent gets no news and no new certificate all the same.
        locked.write()?;
        Ok(authority.revoke(name)?)
    }

    /// Every agent, by name.
    pub fn agents(&self) -> Result<Vec<Agent>, FleetError> {
        let state = State::read(&self.dir)?;
        let version = |policy: &String| state.policies.get(policy).map_or(0, |policy| policy.version);
        let agents = state.agents.iter().map(|(name, agent)| Agent {
            name: name.clone(),
            policy: agent.policy.clone(),
            policy_version: version(&agent.policy),
            enrolled: time(agent.enrolled),
            serial: agent.serial.clone(),
            not_after: time(agent.not_after),
            revoked: agent.revoked.map(time),
            host: agent.host.clone(),
            software: agent.software.clone(),
        });
        Ok(agents.collect())
    }

    /// The last reports that were kept.
    pub fn seen(&self) -> Result<BTreeMap<String, Seen>, FleetError> {
        seen::read(&self.dir)
    }

    /// Keeps the last reports over a restart.
    pub fn keep_seen(&self, reports: &BTreeMap<String, Seen>) -> Result<(), FleetError> {
        seen::write(&self.dir, reports)
    }

    fn request(&self, name: &str) -> IssueRequest {
        IssueRequest {
            role: Role::ClientSide,
            name: name.to_owned(),
            dns: Vec::new(),
            ip: Vec::new(),
            validity: Validity::Days(self.days),
        }
    }

    /// A name that has a certificate in force is somebody's: who has the name has what was exchanged under it.
    fn check_free(&self, state: &State, name: &str, now: SystemTime) -> Result<(), FleetError> {
        let agent = state.agents.get(name).is_some_and(|agent| agent.revoked.is_none());
        let valid = |entry: &Entry| entry.name == name && entry.revoked.is_none() && entry.not_after > now;
        if agent || list(&self.authority)?.iter().any(valid) {
            return Err(FleetError::Taken(name.to_owned()));
        }
        Ok(())
    }
}

fn sign(
    authority: &Authority,
    state: &mut State,
    name: &str,
    text: &str,
) -> Result<SignedPolicy, FleetError> {
    state.last_policy += 1;
    let mut policy = SignedPolicy {
        name: name.to_owned(),
        version: state.last_policy,
        text: text.to_owned(),
        signature: String::new(),
    };
    policy.signature = hex::encode(authority.sign(&policy.statement())?);
    state.policies.insert(name.to_owned(), policy.clone());
    Ok(policy)
}

/// A new half of a store's key; that of an earlier answer to the same request stays.
fn store_half(known: Option<&AgentEntry>) -> Result<String, FleetError> {
    if let Some(agent) = known {
        return Ok(agent.store_half.clone());
    }
    let mut half = Zeroizing::new([0; STORE_HALF_BYTES]);
    getrandom::fill(half.as_mut_slice())
        .map_err(|error| FleetError::BadRequest(format!("no random numbers: {error}")))?;
    Ok(hex::encode(half.as_slice()))
}

fn secret_hash(secret: &TokenSecret) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("isthmus enrolment token v1");
    hasher.update(&secret.0);
    hasher.finalize().to_hex().to_string()
}

/// What a stranger says of itself, fit to be kept and shown.
fn bounded(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(NAME_BYTES_MAX).collect()
}

fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn time(seconds: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH)
}
