use crate::kerberos::{self, Groups, Reply, Request};
use crate::ntlm::{Authenticate, Challenge};
use crate::secret::candidates;
use crate::spnego::{self, Inner, Mech};
use crate::{Failure, Secrets, SessionKey};
use std::fmt;

/// One authentication, watched from outside: all SESSION_SETUPs of one session up to the final answer.
///
/// A re-authentication is an exchange of its own. Holds the tokens that the key depends on, at most five of
/// [`TOKEN_BYTES_MAX`](crate::limits::TOKEN_BYTES_MAX) bytes.
#[derive(Clone, Default)]
pub struct Exchange {
    stage: Stage,
    ntlm: NtlmTokens,
    kerberos: KerberosTokens,
    guest: bool,
}

/// What the last token with something in it belonged to.
#[derive(Clone, Copy, Default)]
enum Stage {
    #[default]
    Nothing,
    Ntlm,
    Kerberos,
    Failed(Failure),
}

/// How a user was authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mechanism {
    /// NTLMv2 (MS-NLMP).
    NtlmV2,
    /// Kerberos 5 (RFC 4120, MS-KILE).
    Kerberos,
}

/// What the tokens say in clear, before any key is tried. Nothing of it is proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Mechanism in use.
    pub mechanism: Mechanism,
    /// NTLM: the user as sent. Kerberos keeps it secret.
    pub user: Option<String>,
    /// NTLM: the domain as sent, possibly empty. Kerberos: the realm of the service.
    pub domain: Option<String>,
    /// NTLM: name of the client's machine.
    pub workstation: Option<String>,
    /// Service that the client meant to reach: `cifs/files.example.com`. With NTLM, a client that does not say
    /// leaves the name that the server gave itself.
    pub target: Option<String>,
}

/// Outcome of the check of NTLM's message integrity code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mic {
    /// The client sent none, or the mechanism has none.
    Absent,
    /// The three messages are as the client saw them.
    Right,
    /// Someone altered a message, or the first one was not seen. The server will refuse the logon.
    Wrong,
}

/// A session key and whose it is.
#[derive(Debug)]
pub struct Recovered {
    /// `ExportedSessionKey` or GSS-API session key: 16 or 32 bytes.
    pub session_key: SessionKey,
    /// The user without a domain; with Kerberos, the ticket's client name.
    pub user: String,
    /// The domain as the client sent it, possibly empty; with Kerberos, the client's realm.
    pub domain: String,
    /// Another name of that domain: the one beside the NT hash, or the NetBIOS name in the ticket.
    pub domain_alias: Option<String>,
    /// How the user was authenticated.
    pub mechanism: Mechanism,
    /// As in [`Claim`].
    pub workstation: Option<String>,
    /// As in [`Claim`].
    pub target: Option<String>,
    /// Whether the user is a computer or a service: its name ends in `$` or has several parts, or its groups say so.
    pub machine_account: bool,
    /// The user's groups, from a Kerberos ticket with a PAC whose signature is right. Unknown otherwise.
    pub groups: Option<Groups>,
    /// NTLM's message integrity code.
    pub mic: Mic,
    /// Name (never the value) of the secret that fitted, for people.
    pub secret: String,
}

impl Exchange {
    /// An exchange of which nothing has been seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the security buffer of a SESSION_SETUP request (MS-SMB2 2.2.5).
    pub fn client(&mut self, token: &[u8]) {
        match spnego::parse(token) {
            Ok(token) => token.inner.into_iter().for_each(|inner| self.client_token(inner)),
            Err(_) => self.stage = Stage::Failed(Failure::Malformed("SPNEGO")),
        }
    }

    /// Takes the security buffer of a SESSION_SETUP response (MS-SMB2 2.2.6), or of the NEGOTIATE response before it.
    pub fn server(&mut self, token: &[u8]) {
        match spnego::parse(token) {
            Ok(token) => token.inner.into_iter().for_each(|inner| self.server_token(inner)),
            Err(_) => self.stage = Stage::Failed(Failure::Malformed("SPNEGO")),
        }
    }

    /// Notes that the server let the user in as a guest: SMB2_SESSION_FLAG_IS_GUEST in its last SESSION_SETUP response
    /// (MS-SMB2 2.2.6). The tokens do not tell.
    pub fn guest(&mut self) {
        self.guest = true;
    }

    /// What can be said without any key; `None` while no mechanism has shown its names.
    pub fn claim(&self) -> Option<Claim> {
        match self.stage {
            Stage::Ntlm => self.ntlm.claim(),
            Stage::Kerberos => self.kerberos.claim(),
            Stage::Nothing | Stage::Failed(_) => None,
        }
    }

    /// Works out the session key. To be called when the server has accepted: only then is the key the session's, and
    /// only if the user was not let in as a guest (see [`Exchange::guest`]).
    pub fn recover(&self, secrets: &dyn Secrets) -> Result<Recovered, Failure> {
        match self.stage {
            _ if self.guest => Err(Failure::Guest),
            Stage::Ntlm => self.ntlm.recover(secrets),
            Stage::Kerberos => self.kerberos.recover(secrets),
            Stage::Failed(failure) => Err(failure),
            Stage::Nothing => Err(Failure::Incomplete),
        }
    }

    fn client_token(&mut self, inner: Inner<'_>) {
        match inner {
            Inner::Negotiate(message) => {
                self.ntlm = NtlmTokens { negotiate: message.to_vec(), ..NtlmTokens::default() };
                self.stage = Stage::Ntlm;
            }
            Inner::Authenticate(message) => {
                self.ntlm.authenticate = message.to_vec();
                self.stage = Stage::Ntlm;
            }
            Inner::Request(message) => {
                self.kerberos = KerberosTokens { request: message.to_vec(), reply: Vec::new() };
                self.stage = Stage::Kerberos;
            }
            // In DCE style the client answers the AP-REP with one of its own, which changes no key.
            Inner::Reply(_) => {}
            Inner::Challenge(_) | Inner::Refusal => self.stage = WRONG_SIDE,
            Inner::Other(mech) => self.stage = Stage::Failed(unsupported(mech)),
        }
    }

    fn server_token(&mut self, inner: Inner<'_>) {
        match inner {
            Inner::Challenge(message) => self.ntlm.challenge = message.to_vec(),
            Inner::Reply(message) => self.kerberos.reply = message.to_vec(),
            // After a refusal the client starts again, with another ticket or time.
            Inner::Refusal => self.stage = Stage::Nothing,
            Inner::Negotiate(_) | Inner::Authenticate(_) | Inner::Request(_) => self.stage = WRONG_SIDE,
            Inner::Other(mech) => self.stage = Stage::Failed(unsupported(mech)),
        }
    }
}

const WRONG_SIDE: Stage = Stage::Failed(Failure::Malformed("a token of the other side"));

/// Tells how far it has come, never what is in the tokens.
impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self.stage {
            Stage::Nothing => "nothing seen",
            Stage::Ntlm => "NTLM",
            Stage::Kerberos => "Kerberos",
            Stage::Failed(failure) => failure.label(),
        };
        write!(f, "Exchange({stage})")
    }
}

impl Mechanism {
    /// One word for consoles and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NtlmV2 => "ntlmv2",
            Self::Kerberos => "kerberos",
        }
    }
}

#[derive(Clone, Default)]
struct NtlmTokens {
    negotiate: Vec<u8>,
    challenge: Vec<u8>,
    authenticate: Vec<u8>,
}

#[derive(Clone, Default)]
struct KerberosTokens {
    request: Vec<u8>,
    reply: Vec<u8>,
}

impl NtlmTokens {
    fn claim(&self) -> Option<Claim> {
        let last = Authenticate::parse(&self.authenticate).ok()?;
        Some(Claim {
            mechanism: Mechanism::NtlmV2,
            user: Some(last.user.text()),
            domain: Some(last.domain.text()),
            workstation: Some(last.workstation.text()).filter(|name| !name.is_empty()),
            target: self.target(&last),
        })
    }

    fn target(&self, last: &Authenticate<'_>) -> Option<String> {
        let server = || Challenge::parse(&self.challenge).ok().map(|challenge| challenge.target);
        last.target.clone().or_else(server).map(|name| name.text()).filter(|name| !name.is_empty())
    }

    fn recover(&self, secrets: &dyn Secrets) -> Result<Recovered, Failure> {
        if self.authenticate.is_empty() || self.challenge.is_empty() {
            return Err(Failure::Incomplete);
        }
        let challenge = Challenge::parse(&self.challenge)?;
        let last = Authenticate::parse(&self.authenticate)?;
        let (user, domain) = (last.user.text(), last.domain.text());
        let candidates = candidates(secrets, &user, &domain);
        let (session_key, account) = last.recover(&challenge, &candidates)?;
        let mic = last.mic(&self.negotiate, &self.challenge, &session_key);
        Ok(Recovered {
            mic,
            session_key,
            machine_account: account.user.ends_with('$') || user.ends_with('$'),
            domain_alias: account.domain.clone().filter(|alias| *alias != domain),
            workstation: Some(last.workstation.text()).filter(|name| !name.is_empty()),
            target: self.target(&last),
            secret: format!("NT hash of {}", account.account()),
            mechanism: Mechanism::NtlmV2,
            groups: None,
            user,
            domain,
        })
    }
}

impl KerberosTokens {
    fn claim(&self) -> Option<Claim> {
        let service = Request::parse(&self.request).ok()?.service;
        Some(Claim {
            mechanism: Mechanism::Kerberos,
            user: None,
            target: Some(service.name()),
            domain: Some(service.realm),
            workstation: None,
        })
    }

    fn recover(&self, secrets: &dyn Secrets) -> Result<Recovered, Failure> {
        let request = Request::parse(&self.request)?;
        let reply = if self.reply.is_empty() { None } else { Some(Reply::parse(&self.reply)?) };
        let session = kerberos::recover(&request, reply.as_ref(), secrets)?;
        let user = session.client.name();
        let by_groups = session.groups.as_ref().is_some_and(Groups::is_machine);
        Ok(Recovered {
            session_key: session.key,
            machine_account: by_groups || user.ends_with('$') || session.client.components.len() > 1,
            domain: session.client.realm,
            domain_alias: session.groups.as_ref().map(|groups| groups.domain.clone()),
            mechanism: Mechanism::Kerberos,
            workstation: None,
            target: Some(request.service.name()),
            groups: session.groups,
            mic: Mic::Absent,
            secret: session.opened_by,
            user,
        })
    }
}

fn unsupported(mech: Mech) -> Failure {
    match mech {
        Mech::UserToUser => Failure::UserToUser,
        Mech::NegoEx => Failure::NegoEx,
        Mech::IaKerb => Failure::IaKerb,
        Mech::Ntlm => Failure::Malformed("NTLM"),
        Mech::Kerberos => Failure::Malformed("Kerberos"),
        Mech::Unknown => Failure::UnknownMechanism,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kerberos::fixture::{Plan, tlv};
    use crate::ntlm::tests as ntlm;
    use crate::{AccountHash, NtHash, SecretSet};

    const KERBEROS: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2];

    fn gss(kind: u8, message: &[u8]) -> Vec<u8> {
        tlv(0x60, &[tlv(6, &KERBEROS), vec![kind, 0], message.to_vec()].concat())
    }

    fn secrets() -> SecretSet {
        let mut set = SecretSet::default();
        set.add_service_key(Plan::default().service_key());
        for (user, domain) in [("alice", Some("WAN")), ("FILES$", None)] {
            let (user, domain) = (user.to_owned(), domain.map(str::to_owned));
            set.add_account(AccountHash { user, domain, version: 0, hash: NtHash::of_password("p") });
        }
        set
    }

    fn log_on(exchange: &mut Exchange, user: (&'static str, &'static str)) {
        let challenge = ntlm::challenge();
        let client = ntlm::Client { flags: ntlm::FLAGS, user, password: "p" };
        exchange.client(b"NTLMSSP\0\x01\0\0\0");
        exchange.server(&challenge);
        exchange.client(&client.authenticate(&[b"NTLMSSP\0\x01\0\0\0", &challenge[..]].concat()).0);
    }

    #[test]
    fn ntlm_without_spnego_is_followed() {
        let mut exchange = Exchange::new();
        log_on(&mut exchange, ("alice", "ALICE"));
        let found = exchange.recover(&secrets()).unwrap();
        assert_eq!((found.mic, found.session_key.as_bytes()), (Mic::Right, &[0x55; 16][..]));
        assert_eq!((found.target.as_deref(), found.workstation.as_deref()), (Some("cifs/files"), Some("PC")));
        assert!(!found.machine_account);
        log_on(&mut exchange, ("files$", "FILES$"));
        assert!(exchange.recover(&secrets()).unwrap().machine_account);
    }

    #[test]
    fn a_kerberos_client_that_is_refused_once_and_tries_again_is_followed() {
        let plan = Plan { user: "FILES$", acceptor: Some(vec![7; 32]), ..Plan::default() };
        let mut exchange = Exchange::new();
        exchange.client(&gss(1, b"a request that the clock spoilt"));
        assert_eq!(exchange.recover(&secrets()).unwrap_err(), Failure::Malformed("Kerberos AP-REQ"));
        exchange.server(&gss(3, b"KRB-ERROR"));
        assert_eq!(exchange.recover(&secrets()).unwrap_err(), Failure::Incomplete);
        exchange.client(&gss(1, &plan.request()));
        exchange.server(&gss(2, &plan.reply()));
        let found = exchange.recover(&secrets()).unwrap();
        assert_eq!((found.session_key.as_bytes(), found.machine_account), (&[7; 32][..], true));
    }

    #[test]
    fn a_reply_of_an_earlier_request_is_not_kept() {
        let plan = Plan::default();
        let mut exchange = Exchange::new();
        exchange.client(&gss(1, &plan.request()));
        exchange.server(&gss(2, &plan.reply()));
        exchange.client(&gss(1, &plan.request()));
        assert_eq!(exchange.recover(&secrets()).unwrap_err(), Failure::Incomplete);
    }

    #[test]
    fn mechanisms_that_give_no_key_are_named() {
        let last = |token: &[u8]| {
            let mut exchange = Exchange::new();
            log_on(&mut exchange, ("alice", "ALICE"));
            exchange.client(token);
            exchange.recover(&secrets()).unwrap_err()
        };
        assert_eq!(last(b"NEGOEXTS"), Failure::NegoEx);
        assert_eq!(last(&[0x60, 3, 6, 1, 9]), Failure::UnknownMechanism);
        assert_eq!(last(&[0x60, 3, 6, 9, 9]), Failure::Malformed("SPNEGO"));
        assert_eq!(last(&tlv(0x60, &tlv(6, &[0x2b, 6, 1, 5, 2, 5]))), Failure::IaKerb);
        assert_eq!(last(&ntlm::challenge()), Failure::Malformed("a token of the other side"));
        let user_to_user = Plan { options: 0x40, ..Plan::default() };
        assert_eq!(last(&gss(1, &user_to_user.request())), Failure::UserToUser);
    }

    #[test]
    fn empty_tokens_change_nothing() {
        let mut exchange = Exchange::new();
        log_on(&mut exchange, ("alice", "ALICE"));
        exchange.server(b"");
        exchange.client(b"");
        assert!(exchange.recover(&secrets()).is_ok());
    }
}
