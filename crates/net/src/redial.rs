use crate::dialer::{DialerInner, ask};
use crate::handshake::{Secured, is_proven, prove};
use crate::limits;
use crate::shared::Shared;
use crate::tls_error::Refusal;
use isthmus_tunnel::Frame;
use isthmus_types::{Reason, Side};
use std::sync::Arc;

/// Brings a channel a new link, for as long as it needs one.
///
/// While the peer is known to be down, only the control channel dials; all channels then follow at once.
pub(crate) async fn redial(inner: Arc<DialerInner>, shared: Arc<Shared>) {
    inner.poke.notify_one();
    let mut state = inner.state.subscribe();
    while shared.needs_link() {
        if let Some(reason) = inner.is_shut_out() {
            shared.kill(reason);
            break;
        }
        if inner.info().is_none() {
            // A change of state or the time to look whether the old link has recovered.
            let _ = tokio::time::timeout(limits::ATTEMPT_INTERVAL, state.changed()).await;
            continue;
        }
        match attempt(&inner, &shared).await {
            Ok(()) => {}
            Err(refusal) if refusal.reason == Reason::PeerAbsent => {
                tracing::debug!(detail = %refusal.detail, "channel not resumed yet");
                inner.poke.notify_one();
                tokio::time::sleep(limits::REDIAL_PAUSE).await;
            }
            Err(refusal) => {
                tracing::warn!(detail = %refusal.detail, "channel lost");
                shared.kill(refusal.reason);
            }
        }
    }
    shared.stop_redialling();
}

async fn attempt(inner: &Arc<DialerInner>, shared: &Shared) -> Result<(), Refusal> {
    let _turn = inner.turn().await?;
    if !shared.needs_link() {
        return Ok(());
    }
    let mut secured = inner.connect().await?;
    if secured.identity.name != shared.info().name {
        return Err(Refusal::new(
            Reason::PeerUnauthorised,
            "another peer answers than the one that was lost",
        ));
    }
    // The old link may have recovered meanwhile; from here on it is given up.
    if !shared.needs_link() {
        return Ok(());
    }
    let Some(arrived) = shared.detach() else { return Ok(()) };
    let misfit = |error: rustls::Error| Refusal::of_tls(&error, Side::Server);
    let proof = prove(&shared.secret, &secured.link, Side::Client, &shared.id, arrived).map_err(misfit)?;
    match ask(&mut secured, &Frame::Resume { channel: shared.id, arrived, proof }).await? {
        Frame::Resumed { arrived, proof } => resumed(shared, secured, arrived, &proof),
        Frame::Refuse { reason, detail } => Err(Refusal::new(reason, detail)),
        _ => Err(Refusal::new(Reason::PeerMisbehaved, "unexpected answer to a resume")),
    }
}

fn resumed(shared: &Shared, secured: Secured, arrived: u64, proof: &[u8; 32]) -> Result<(), Refusal> {
    if !is_proven(&shared.secret, &secured.link, Side::Server, &shared.id, arrived, proof) {
        return Err(Refusal::new(Reason::PeerMisbehaved, "the peer does not know the channel's secret"));
    }
    shared
        .attach(secured.link, secured.chain, arrived)
        .map_err(|error| Refusal::new(Reason::PeerMisbehaved, error.to_string()))
}
