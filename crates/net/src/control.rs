use crate::acceptor::AcceptorInner;
use crate::beat::{BEAT, beat_after, next_beat};
use crate::dialer::{DialerInner, ask, lock};
use crate::handshake::Secured;
use crate::heart::{Heart, Pulse};
use crate::link::{Link, LinkError};
use crate::peers::{Command, Seat};
use crate::shared::Chain;
use crate::tls_error::Refusal;
use crate::{LocalHello, PeerInfo, PeerState, TlsSource, limits};
use isthmus_tunnel::{Agreement, Frame, Hello};
use isthmus_types::{Reason, Side};
use rustls_pki_types::ServerName;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

/// Keeps the client side's control channel up: dials, says hello, sends heartbeats, and dials again.
pub(crate) async fn dial(inner: Arc<DialerInner>) {
    let mut pause = limits::ATTEMPT_INTERVAL;
    loop {
        match greet(&inner).await {
            Ok((link, chain, info)) => {
                tracing::info!(peer = %info.name, address = %info.address, software = %info.software, "peer connected");
                pause = limits::ATTEMPT_INTERVAL;
                inner.suspect.store(false, Ordering::Relaxed);
                inner.state.send_replace(PeerState::Connected(info.clone()));
                inner.refill.notify_one();
                let refusal = heartbeats(&inner, link, chain, &info).await;
                tracing::warn!(peer = %info.name, detail = %refusal.detail, "peer lost");
                inner.state.send_replace(PeerState::down(refusal.reason, refusal.detail));
                doubt_all(&inner);
            }
            Err(refusal) => {
                let patient = refusal.reason != Reason::PeerAbsent;
                report(&inner.state, refusal);
                pause = if patient {
                    (pause * 2).min(limits::REFUSED_PAUSE_MAX)
                } else {
                    limits::ATTEMPT_INTERVAL
                };
            }
        }
        tokio::time::sleep(if inner.info().is_none() { pause / 2 } else { pause }).await;
    }
}

/// Serves one control channel on the server side until it ends.
pub(crate) async fn serve(inner: Arc<AcceptorInner>, secured: Secured, hello: Hello) {
    let Secured { mut link, identity, chain, address } = secured;
    let refuse = |refusal: Refusal| {
        tracing::warn!(peer = %identity.name, %address, detail = %refusal.detail, "peer refused");
        Frame::Refuse { reason: refusal.reason, detail: refusal.detail }
    };
    let local = &inner.config.local;
    let seated = match agree(local, Side::Server, &hello, &identity.role) {
        Ok(agreement) => {
            // How long it was under way is not known: half a round trip, which is little beside a clock that is wrong.
            let ahead = clock_ahead_ms(&hello, Duration::ZERO);
            let info = Arc::new(info(&identity, &hello, agreement, address, ahead));
            inner.peers.seat(info).await
        }
        Err(refusal) => Err(refusal),
    };
    let answer = match &seated {
        Ok(_) => Frame::Hello(own_hello(local, Side::Server)),
        Err(refusal) => refuse(refusal.clone()),
    };
    let sent = timeout(limits::HANDSHAKE_TIMEOUT, link.send(&answer)).await;
    let mut seat = match seated {
        Ok(seat) => seat,
        Err(refusal) => {
            link.set_wan(inner.unattributed.clone());
            inner.unattributed.fail(refusal.failure());
            return link.finish().await;
        }
    };
    if matches!(sent, Ok(Ok(()))) {
        link.set_wan(seat.wan.clone());
        inner.end_other_instances(&seat.info);
        tracing::info!(peer = %identity.name, %address, software = %hello.software, "peer connected");
        let refusal = answer_heartbeats(&inner, &mut link, &chain, &mut seat).await;
        tracing::warn!(peer = %identity.name, detail = %refusal.detail, "peer lost");
        inner.peers.leave(&seat, &refusal);
    } else {
        inner.peers.leave(&seat, &Refusal::absent("the hello was not delivered"));
    }
    link.finish().await;
}

/// The hello of this process.
fn own_hello(local: &LocalHello, role: Side) -> Hello {
    Hello {
        versions: local.versions,
        capabilities: local.capabilities,
        role,
        store: local.store,
        generation: local.generation,
        instance: local.instance,
        software: local.software.clone(),
        clock_ms: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok().map(millis),
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// How far the peer's clock is ahead of this one, in milliseconds; its hello was written `ago` before now.
fn clock_ahead_ms(hello: &Hello, ago: Duration) -> Option<i64> {
    let written = SystemTime::now().checked_sub(ago)?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let (theirs, ours) = (hello.clock_ms?, millis(written));
    // Neither says more than that the clock is useless.
    Some(i64::try_from(theirs).unwrap_or(i64::MAX).saturating_sub(i64::try_from(ours).unwrap_or(i64::MAX)))
}

fn agree(
    local: &LocalHello,
    role: Side,
    peer: &Hello,
    certified: &Option<Side>,
) -> Result<Agreement, Refusal> {
    if *certified != Some(peer.role) {
        return Err(Refusal::new(
            Reason::PeerUnauthorised,
            "the hello and the certificate differ in the role",
        ));
    }
    own_hello(local, role).agree(peer).map_err(|error| match error {
        isthmus_tunnel::Error::PeerIncompatible(detail) => Refusal::new(Reason::PeerIncompatible, detail),
        error => Refusal::new(Reason::PeerMisbehaved, error.to_string()),
    })
}

fn info(
    identity: &crate::Identity,
    hello: &Hello,
    agreement: Agreement,
    address: SocketAddr,
    clock_ahead_ms: Option<i64>,
) -> PeerInfo {
    PeerInfo {
        name: identity.name.clone(),
        fingerprint: identity.fingerprint,
        role: hello.role,
        store: hello.store,
        generation: hello.generation,
        instance: hello.instance,
        version: agreement.version,
        capabilities: agreement.capabilities,
        software: hello.software.clone(),
        address,
        since: SystemTime::now(),
        clock_ahead_ms,
        round_trip_us: AtomicU64::new(0),
    }
}

/// Dials the control channel and exchanges hellos.
async fn greet(inner: &Arc<DialerInner>) -> Result<(Link, Chain, Arc<PeerInfo>), Refusal> {
    let mut secured = inner.connect().await?;
    let local = &inner.config.local;
    let asked = std::time::Instant::now();
    match ask(&mut secured, &Frame::Hello(own_hello(local, Side::Client))).await? {
        Frame::Hello(hello) => {
            let ahead = clock_ahead_ms(&hello, asked.elapsed() / 2);
            let agreement = agree(local, Side::Client, &hello, &secured.identity.role)?;
            let info = info(&secured.identity, &hello, agreement, secured.address, ahead);
            Ok((secured.link, secured.chain, Arc::new(info)))
        }
        Frame::Refuse { reason, detail } => {
            Err(Refusal::new(reason, format!("refused by the peer: {detail}")))
        }
        _ => Err(Refusal::new(Reason::PeerMisbehaved, "unexpected answer to a hello")),
    }
}

/// Publishes why the peer is down, keeping the time since when unless the reason is a new one.
fn report(state: &watch::Sender<PeerState>, refusal: Refusal) {
    state.send_if_modified(|state| match state {
        PeerState::Down { reason, detail, .. } if *reason == refusal.reason => {
            let changed = *detail != refusal.detail;
            if changed {
                tracing::warn!(reason = reason.label(), detail = %refusal.detail, "peer not reached");
                *detail = refusal.detail;
            }
            changed
        }
        _ => {
            tracing::warn!(reason = refusal.reason.label(), detail = %refusal.detail, "peer not reached");
            *state = PeerState::down(refusal.reason, refusal.detail);
            true
        }
    });
}

fn doubt_all(inner: &DialerInner) {
    let channels: Vec<_> = lock(&inner.channels).values().cloned().collect();
    channels.iter().for_each(|shared| shared.doubt());
}

/// Runs the client side's established control channel; returns why it ended.
async fn heartbeats(inner: &DialerInner, mut link: Link, chain: Chain, info: &PeerInfo) -> Refusal {
    let mut changes = inner.config.tls.subscribe();
    let period = limits::TLS_RECHECK_INTERVAL;
    let mut recheck = tokio::time::interval_at(next_beat(period), period);
    let mut heart = Heart::new(Instant::now(), inner.config.heartbeat);
    loop {
        let due = if inner.is_in_use() {
            heart.due(inner.config.heartbeat, patience(info))
        } else {
            idle_due(&heart, inner.config.heartbeat * limits::IDLE_HEARTBEAT_FACTOR, patience(info))
        };
        let outcome = tokio::select! {
            frame = link.recv() => match frame {
                Ok(frame) => client_frame(inner, &mut link, info, &mut heart, frame).await,
                Err(error) => Err(error),
            },
            () = inner.poke.notified() => {
                heart.hasten(Instant::now(), inner.config.heartbeat * limits::IDLE_HEARTBEAT_FACTOR);
                Ok(())
            }
            _ = changes.changed() => check(&inner.config.tls, &chain, Some(&inner.server_name)),
            _ = recheck.tick() => check(&inner.config.tls, &chain, Some(&inner.server_name)),
            () = sleep_until(due) => if heart.is_waiting() {
                unanswered(inner, &mut heart, info)
            } else {
                let token = heart.beat(Instant::now(), received(inner));
                link.send(&Frame::Ping { token }).await
            },
        };
        if let Err(error) = outcome {
            // Nothing is lost by closing a control channel: what is in flight on it is stale.
            link.close();
            return Refusal::of_link(&error, Side::Server);
        }
    }
}

/// When to look again while no channel is in use: a ping then goes out when something else is due as well, if that is not
/// much sooner.
fn idle_due(heart: &Heart, interval: Duration, patience: Duration) -> Instant {
    let due = heart.due(interval, patience);
    let step = BEAT * 2;
    if heart.is_waiting() || interval < step * 2 { due } else { due.min(beat_after(due - step, step)) }
}

/// Bytes that have come from the peer, over all links.
fn received(inner: &DialerInner) -> u64 {
    inner.wan.received.load(Ordering::Relaxed)
}

/// Looks after a ping that is not answered yet; an error when the peer is to be held for lost.
fn unanswered(inner: &DialerInner, heart: &mut Heart, info: &PeerInfo) -> Result<(), LinkError> {
    let (now, patience) = (Instant::now(), patience(info));
    let pulse = heart.look(now, received(inner), patience);
    inner.suspect.store(pulse != Pulse::Busy, Ordering::Relaxed);
    if pulse == Pulse::Lost {
        return Err(LinkError::Timeout);
    }
    if heart.is_late(now, patience) {
        // This link may be the only dead one, or one of several.
        doubt_all(inner);
    }
    Ok(())
}

async fn client_frame(
    inner: &DialerInner,
    link: &mut Link,
    info: &PeerInfo,
    heart: &mut Heart,
    frame: Frame,
) -> Result<(), LinkError> {
    match frame {
        Frame::Pong { token } => {
            if let Some(took) = heart.answered(Instant::now(), token) {
                inner.suspect.store(false, Ordering::Relaxed);
                measure(info, took);
            }
            Ok(())
        }
        Frame::Ping { token } => link.send(&Frame::Pong { token }).await,
        Frame::Doubt { channel } => {
            let shared = lock(&inner.channels).get(&channel).cloned();
            if let Some(shared) = shared {
                shared.doubt();
            }
            Ok(())
        }
        _ => Err(isthmus_tunnel::Error::PeerMisbehaved("unexpected frame on a control channel").into()),
    }
}

/// Smooths the round-trip time as TCP does (RFC 6298 2.3: one eighth of each new sample).
fn measure(info: &PeerInfo, sample: Duration) {
    let sample = u64::try_from(sample.as_micros()).unwrap_or(u64::MAX);
    let old = info.round_trip_us.load(Ordering::Relaxed);
    let smooth = if old == 0 { sample } else { old - old / 8 + sample / 8 };
    info.round_trip_us.store(smooth.max(1), Ordering::Relaxed);
}

fn patience(info: &PeerInfo) -> Duration {
    limits::PONG_TIMEOUT_MIN.max(info.round_trip() * limits::PONG_ROUND_TRIPS)
}

/// Runs the server side's established control channel; returns why it ended.
async fn answer_heartbeats(
    inner: &AcceptorInner,
    link: &mut Link,
    chain: &Chain,
    seat: &mut Seat,
) -> Refusal {
    let silence = inner.config.heartbeat * limits::IDLE_HEARTBEAT_FACTOR * limits::MISSED_HEARTBEATS_MAX;
    let mut changes = inner.config.tls.subscribe();
    let mut recheck = tokio::time::interval(limits::TLS_RECHECK_INTERVAL);
    let mut heard = Instant::now();
    let mut asked = None;
    loop {
        let outcome = tokio::select! {
            frame = link.recv() => match frame {
                Ok(frame) => {
                    heard = Instant::now();
                    server_frame(link, &seat.info, &mut asked, frame).await
                }
                Err(error) => Err(error),
            },
            command = seat.commands.recv() => match command {
                Some(Command::Doubt(channel)) => link.send(&Frame::Doubt { channel }).await,
                Some(Command::Probe(answer)) => {
                    asked = Some((Instant::now(), Some(answer)));
                    link.send(&Frame::Ping { token: 0 }).await
                }
                None => return Refusal::absent("replaced by a newer process of the peer"),
            },
            _ = changes.changed() => check(&inner.config.tls, chain, None),
            _ = recheck.tick() => {
                asked.get_or_insert((Instant::now(), None));
                match check(&inner.config.tls, chain, None) {
                    Ok(()) => link.send(&Frame::Ping { token: 0 }).await,
                    refused => refused,
                }
            }
            () = sleep_until(heard + silence) => Err(LinkError::Timeout),
        };
        if let Err(error) = outcome {
            return Refusal::of_link(&error, Side::Client);
        }
    }
}

/// A ping that the server side has sent, and who waits for its answer.
type Asked = Option<(Instant, Option<tokio::sync::oneshot::Sender<()>>)>;

async fn server_frame(
    link: &mut Link,
    info: &PeerInfo,
    asked: &mut Asked,
    frame: Frame,
) -> Result<(), LinkError> {
    match frame {
        Frame::Ping { token } => link.send(&Frame::Pong { token }).await,
        Frame::Pong { .. } => {
            if let Some((sent, waiting)) = asked.take() {
                measure(info, sent.elapsed());
                if let Some(waiting) = waiting {
                    // Whoever asked may have given up.
                    let _ = waiting.send(());
                }
            }
            Ok(())
        }
        _ => Err(isthmus_tunnel::Error::PeerMisbehaved("unexpected frame on a control channel").into()),
    }
}

fn check(tls: &TlsSource, chain: &Chain, server_name: Option<&ServerName<'_>>) -> Result<(), LinkError> {
    tls.current().verifier.check(chain, server_name).map(drop).map_err(LinkError::Tls)
}

/// A queue of commands to one control channel.
pub(crate) fn commands() -> (mpsc::Sender<Command>, mpsc::Receiver<Command>) {
    mpsc::channel(limits::COMMANDS_MAX)
}
