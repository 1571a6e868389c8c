use super::crypto::Usage;
use super::message::{Key, TicketPart};
use super::{Groups, Principal, Reply, Request, pac};
use crate::limits::SERVICE_KEYS_TRIED_MAX;
use crate::{Failure, Secrets, ServiceKey, SessionKey};
use std::cmp::Reverse;

/// What an AP exchange gives to one who can open its ticket.
pub(crate) struct Session {
    pub(crate) key: SessionKey,
    /// The user, as the key distribution centre names it.
    pub(crate) client: Principal,
    /// From the PAC, if the ticket has one and its signature is right.
    pub(crate) groups: Option<Groups>,
    /// The service key that opened the ticket, for people.
    pub(crate) opened_by: String,
}

/// Opens the ticket and takes the key in the order of RFC 4121, section 2 and MS-KILE 3.1.1.2: the acceptor's subkey,
/// else the initiator's, else the ticket's session key.
pub(crate) fn recover(
    request: &Request<'_>,
    reply: Option<&Reply<'_>>,
    secrets: &dyn Secrets,
) -> Result<Session, Failure> {
    if request.user_to_user {
        return Err(Failure::UserToUser);
    }
    let (ticket, opened_by) = open_ticket(request, secrets)?;
    let initiator = request.subkey(&ticket.key).ok_or(Failure::Malformed("Kerberos authenticator"))??;
    let acceptor = match reply {
        Some(reply) => reply.subkey(&ticket.key).ok_or(Failure::Malformed("Kerberos AP-REP"))??,
        None if request.mutual => return Err(Failure::Incomplete),
        None => None,
    };
    let groups = ticket.authorization.as_ref().and_then(|data| pac::groups(data, opened_by));
    let key = acceptor.or(initiator).unwrap_or(ticket.key);
    Ok(Session { key: session_key(key)?, client: ticket.client, groups, opened_by: opened_by.to_string() })
}

fn session_key(key: Key) -> Result<SessionKey, Failure> {
    if key.is_usable() { Ok(SessionKey::new(key.bytes)) } else { Err(Failure::UnsupportedEncryption) }
}

fn open_ticket<'s>(
    request: &Request<'_>,
    secrets: &'s dyn Secrets,
) -> Result<(TicketPart, &'s ServiceKey), Failure> {
    let encryption = request.ticket.encryption()?;
    let mut keys = secrets.service_keys(&request.service, encryption);
    let owner = request.service.owner();
    keys.sort_by_cached_key(|key| {
        let of_host = key.principal.owner() == owner;
        let (of_version, named) =
            (is_version(key, request.ticket.version), key.principal.same_as(&request.service));
        (!of_host, !of_version, !named, Reverse(key.version))
    });
    keys.truncate(SERVICE_KEYS_TRIED_MAX);
    for &key in &keys {
        if let Some(plain) = request.ticket.open(key.as_bytes(), Usage::Ticket) {
            return Ok((TicketPart::parse(&plain)?, key));
        }
    }
    Err(missing_key(request, &keys, secrets))
}

/// Which key would have been needed, none of `keys` being it.
fn missing_key(request: &Request<'_>, keys: &[&ServiceKey], secrets: &dyn Secrets) -> Failure {
    let owner = request.service.owner();
    let own: Vec<_> = keys.iter().filter(|key| key.principal.owner() == owner).collect();
    if own.iter().any(|key| is_version(key, request.ticket.version)) {
        Failure::WrongServiceKey
    } else if !own.is_empty() {
        Failure::NoKeyVersion
    } else if secrets.knows_service(&request.service) {
        Failure::NoKeyType
    } else {
        Failure::NoServiceKey
    }
}

/// Whether a key may have this version. Old keytabs keep the lowest eight bits only.
fn is_version(key: &ServiceKey, version: Option<u32>) -> bool {
    version
        .is_none_or(|version| key.version == version || (key.version < 256 && key.version == version & 0xff))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Plan, authorization, pac};
    use super::super::{EncryptionType, Sid};
    use super::*;
    use crate::SecretSet;

    fn secrets(plan: &Plan) -> SecretSet {
        let mut set = SecretSet::default();
        set.add_service_key(plan.service_key());
        set
    }

    fn run(plan: &Plan) -> Result<Session, Failure> {
        let (request, reply) = (plan.request(), plan.reply());
        recover(&Request::parse(&request)?, Some(&Reply::parse(&reply)?), &secrets(plan))
    }

    #[test]
    fn keys_are_taken_in_the_order_acceptor_initiator_ticket() {
        for encryption in EncryptionType::ALL {
            let mut plan = Plan { encryption, ..Plan::default() };
            assert_eq!(run(&plan).unwrap().key.as_bytes(), plan.session_key(), "{encryption}");
            plan.initiator = Some(vec![1; 16]);
            assert_eq!(
                run(&plan).map(|session| session.key.as_bytes().to_vec()),
                if encryption.key_bytes() == 16 {
                    Ok(vec![1; 16])
                } else {
                    Err(Failure::UnsupportedEncryption)
                },
                "{encryption}: a key of another length than its type's"
            );
            plan.initiator = Some(vec![1; encryption.key_bytes()]);
            plan.acceptor = Some(vec![2; 32]);
            assert_eq!(run(&plan).unwrap().key.as_bytes(), [2; 32], "{encryption}");
            assert_eq!(run(&plan).unwrap().client.to_string(), "alice@WAN.TEST");
        }
    }

    #[test]
    fn a_reply_is_needed_only_where_the_client_asks_for_one() {
        let without = |options| {
            let plan = Plan { options, ..Plan::default() };
            recover(&Request::parse(&plan.request())?, None, &secrets(&plan)).map(|_| ())
        };
        assert_eq!(without(0x00), Ok(()));
        assert_eq!(without(0x20), Err(Failure::Incomplete));
        assert_eq!(without(0x40), Err(Failure::UserToUser));
    }

    #[test]
    fn a_reply_to_another_ticket_is_refused() {
        let (plan, other) =
            (Plan::default(), Plan { encryption: EncryptionType::Aes128Sha1, ..Plan::default() });
        let (request, reply) = (plan.request(), other.reply());
        let (request, reply) = (Request::parse(&request).unwrap(), Reply::parse(&reply).unwrap());
        let result = recover(&request, Some(&reply), &secrets(&plan)).map(|_| ());
        assert_eq!(result, Err(Failure::Malformed("Kerberos AP-REP")));
    }

    #[test]
    fn a_version_of_eight_bits_stands_for_all_that_end_so() {
        let mut key = Plan::default().service_key();
        key.version = 1;
        for (version, fits) in [(None, true), (Some(1), true), (Some(257), true), (Some(2), false)] {
            assert_eq!(is_version(&key, version), fits, "{version:?}");
        }
        key.version = 257;
        assert!(is_version(&key, Some(257)) && !is_version(&key, Some(1)));
    }

    /// Gives the keys of other hosts first, as two sets one behind the other may.
    struct OthersFirst(SecretSet);

    impl Secrets for OthersFirst {
        fn nt_hashes(&self, _: &str) -> Vec<&crate::AccountHash> {
            Vec::new()
        }

        fn service_keys(&self, service: &Principal, encryption: EncryptionType) -> Vec<&ServiceKey> {
            let mut keys = self.0.service_keys(service, encryption);
            keys.reverse();
            keys
        }

        fn knows_service(&self, service: &Principal) -> bool {
            self.0.knows_service(service)
        }
    }

    #[test]
    fn the_right_key_is_tried_first_however_many_others_are_held() {
        let plan = Plan { options: 0, ..Plan::default() };
        let mut secrets = OthersFirst(SecretSet::default());
        let mut add = |principal: &str, version, byte| {
            let bytes = zeroize::Zeroizing::new(vec![byte; 32]);
            let key = ServiceKey::new(Principal::parse(principal), version, plan.encryption, bytes);
            secrets.0.add_service_key(key.unwrap());
        };
        (0..200).for_each(|version| add("FILES$@WAN.TEST", 1_000 + version, 9));
        (0..200).for_each(|_| add("svc@WAN.TEST", 3, 9));
        let request = plan.request();
        let request = Request::parse(&request).unwrap();
        assert_eq!(recover(&request, None, &secrets).map(|_| ()), Err(Failure::NoKeyVersion));
        let mut key = plan.service_key();
        key.principal = Principal::parse("FILES$@WAN.TEST");
        secrets.0.add_service_key(key);
        assert!(recover(&request, None, &secrets).is_ok());
    }

    #[test]
    fn groups_come_from_a_signed_pac_only() {
        for encryption in EncryptionType::ALL {
            let mut plan = Plan { encryption, ..Plan::default() };
            let extra = [Sid { authority: 18, parts: vec![1] }, Sid { authority: 5, parts: vec![32, 551] }];
            let mut bytes = pac(1104, &[513, 1200], &extra, &plan.service_key());
            plan.authorization = Some(authorization(&bytes));
            let groups = run(&plan).unwrap().groups.unwrap();
            assert_eq!((groups.user_rid, &groups.group_rids[..]), (1104, &[513, 1200][..]), "{encryption}");
            assert_eq!(
                (groups.domain.as_str(), groups.domain_sid.to_string().as_str()),
                ("W", "S-1-5-21-1-2-3")
            );
            assert_eq!(groups.extra_sids, extra);
            assert_eq!(groups.administrative(), Some("Backup Operators"));
            let place = bytes.len() - 60;
            bytes[place] ^= 1;
            plan.authorization = Some(authorization(&bytes));
            assert!(run(&plan).unwrap().groups.is_none(), "{encryption}: an altered PAC");
        }
    }

    #[test]
    fn administrators_are_recognised_by_account_group_or_identifier() {
        let key = Plan::default().service_key();
        let administrative = |user, groups: &[u32], extra: &[Sid]| {
            let bytes = pac(user, groups, extra, &key);
            let plan = Plan { authorization: Some(authorization(&bytes)), ..Plan::default() };
            run(&plan).unwrap().groups.unwrap().administrative()
        };
        assert_eq!(administrative(1104, &[513], &[]), None);
        assert_eq!(administrative(500, &[513], &[]), Some("Administrator"));
        assert_eq!(administrative(1104, &[513, 512], &[]), Some("Domain Admins"));
        let other_domain = Sid { authority: 5, parts: vec![21, 9, 9, 9, 519] };
        assert_eq!(administrative(1104, &[], &[other_domain]), Some("Enterprise Admins"));
        let no_domain = Sid { authority: 18, parts: vec![512] };
        assert_eq!(administrative(1104, &[], &[no_domain]), None);
    }

    #[test]
    fn messages_cut_short_anywhere_are_refused() {
        let plan = Plan { acceptor: Some(vec![2; 32]), ..Plan::default() };
        let (request, reply) = (plan.request(), plan.reply());
        for end in 0..request.len() {
            assert!(Request::parse(&request[..end]).is_err(), "{end}");
        }
        for end in 0..reply.len() {
            assert!(Reply::parse(&reply[..end]).is_err(), "{end}");
        }
    }
}
