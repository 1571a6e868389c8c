//! What the SMB stage knows of a connection, as the console and the metrics show it.

use isthmus_smb_session::{SessionState, SessionStatus, State, Status};
use isthmus_telemetry::{ConnectionHandle, SmbCipher, SmbDialect, SmbInfo, SmbSigning, SmbState};

use crate::lanes::Stage;

/// Tells a connection's state again whenever it changes. Never ends.
pub(crate) async fn report(stage: Option<&Stage>, handle: &ConnectionHandle) {
    let Some(stage) = stage else { return std::future::pending().await };
    loop {
        stage.changed.notified().await;
        for info in describe(&stage.connection.status()) {
            handle.set_smb(info);
        }
    }
}

/// Each session whose messages have shown what it is; what is to be shown for the connection comes last. Nothing while nothing
/// is known.
fn describe(status: &Status) -> Vec<SmbInfo> {
    let known = status.sessions.iter().filter(|session| session.messages.is_some());
    // Those that are over count as well.
    let (over, live): (Vec<_>, Vec<_>) = known.partition(|session| session.state == SessionState::Ended);
    let last = live.is_empty().then(|| describe_one(status, None)).flatten();
    over.into_iter()
        .chain(live)
        .filter_map(|session| describe_one(status, Some(session)))
        .chain(last)
        .collect()
}

/// A session, or the connection while it has none. `None` while it is not known what it is.
fn describe_one(status: &Status, session: Option<&SessionStatus>) -> Option<SmbInfo> {
    let state = match session.and_then(|session| session.messages).unwrap_or(status.state()) {
        State::NotYet => return None,
        State::Clear => SmbState::Clear,
        State::SignedKeys => SmbState::SignedKeys,
        State::SignedNoKeys => SmbState::SignedNoKeys,
        State::EncryptedKeys => SmbState::EncryptedKeys,
        State::EncryptedNoKeys => SmbState::EncryptedNoKeys,
        State::Smb1 => SmbState::Smb1,
        State::NotSmb => SmbState::NotSmb,
    };
    let user = session.map(|session| match session.domain.as_str() {
        "" => session.user.clone(),
        domain => format!("{domain}\\{}", session.user),
    });
    let reason = session.and_then(|session| session.reason.clone()).or_else(|| status.reason.clone());
    Some(SmbInfo {
        session: session.map_or(0, |session| session.session_id),
        dialect: status.dialect.map(|dialect| SmbDialect(dialect.as_u16())),
        signing: status.signing.and_then(|signing| SmbSigning::from_wire(signing.as_u16())),
        cipher: status.cipher.and_then(|cipher| SmbCipher::from_wire(cipher.as_u16())),
        user: user.unwrap_or_default(),
        server: status.server.clone().unwrap_or_default(),
        shares: status.shares.clone(),
        reason: reason.unwrap_or_default(),
        ..SmbInfo::new(state)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(session_id: u64, messages: Option<State>) -> SessionStatus {
        let state = SessionState::Keys;
        let (user, domain) = (format!("user{session_id}"), String::new());
        SessionStatus { session_id, user, domain, state, reason: None, messages }
    }

    #[test]
    fn each_session_is_told_as_what_it_is_once_that_is_known() {
        let mut status = Status::default();
        assert!(describe(&status).is_empty());
        status.sessions = vec![session(3, None)];
        assert!(describe(&status).is_empty(), "set up, and may yet be signed or encrypted");
        let ended = SessionState::Ended;
        status.sessions = vec![
            session(3, Some(State::EncryptedKeys)),
            session(5, None),
            session(7, Some(State::SignedKeys)),
            SessionStatus { state: ended, ..session(9, Some(State::Clear)) },
        ];
        let told: Vec<_> = describe(&status).iter().map(|info| (info.session, info.state)).collect();
        let expected = [(9, SmbState::Clear), (3, SmbState::EncryptedKeys), (7, SmbState::SignedKeys)];
        assert_eq!(told, expected, "a live one last");
    }
}
