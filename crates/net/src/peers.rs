use crate::dialer::lock;
use crate::tls_error::Refusal;
use crate::{PeerInfo, PeerState, WanCounters, control, limits};
use isthmus_tunnel::{ChannelId, Instance};
use isthmus_types::{Reason, StoreId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;
use tokio::sync::{mpsc, oneshot};

/// One client side as the server side knows it.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// The peer as it last said hello.
    pub info: Arc<PeerInfo>,
    /// Whether its control channel is up now.
    pub state: PeerState,
    /// Its counters, over all its connections.
    pub wan: Arc<WanCounters>,
}

/// All client sides that have said hello.
#[derive(Default)]
pub(crate) struct Peers {
    known: Mutex<HashMap<Key, Peer>>,
}

/// A certificate's name and a store: two laptops that share a certificate are two peers.
type Key = (String, StoreId);

struct Peer {
    status: PeerStatus,
    /// To the control channel, while it is up.
    commands: Option<mpsc::Sender<Command>>,
}

/// What a control channel can be asked to do.
pub(crate) enum Command {
    /// Find out whether the peer is still there.
    Probe(oneshot::Sender<()>),
    /// Tell the peer that a channel's link has gone silent.
    Doubt(ChannelId),
}

/// A control channel's place among the peers.
pub(crate) struct Seat {
    pub(crate) info: Arc<PeerInfo>,
    pub(crate) wan: Arc<WanCounters>,
    pub(crate) commands: mpsc::Receiver<Command>,
}

impl Peers {
    pub(crate) fn list(&self) -> Vec<PeerStatus> {
        lock(&self.known).values().map(|peer| peer.status.clone()).collect()
    }

    /// Takes in a peer that has said hello.
    ///
    /// Another process with the same store identity may not be there at the same time: if one answers a probe, the
    /// newcomer is refused; if it does not, it has died, and the newcomer takes its place.
    pub(crate) async fn seat(&self, info: Arc<PeerInfo>) -> Result<Seat, Refusal> {
        if let Some((other, commands)) = self.rival(&info)
            && answers(&commands).await
        {
            return Err(Refusal::new(
                Reason::PeerIncompatible,
                format!(
                    "cloned store: another process ({}) with the same store identity is connected from {}; give one \
                     of them a new store",
                    other.name, other.address
                ),
            ));
        }
        let (sender, commands) = control::commands();
        let mut known = lock(&self.known);
        for peer in known.values_mut().filter(|peer| peer.status.info.store == info.store) {
            // The former control channel ends when its command queue does.
            peer.commands = None;
        }
        forget_one(&mut known);
        let key = (info.name.clone(), info.store);
        let wan = known.get(&key).map(|peer| peer.status.wan.clone()).unwrap_or_default();
        let state = PeerState::Connected(info.clone());
        let status = PeerStatus { info: info.clone(), state, wan: wan.clone() };
        known.insert(key, Peer { status, commands: Some(sender) });
        Ok(Seat { info, wan, commands })
    }

    /// The control channel of this seat has ended.
    pub(crate) fn leave(&self, seat: &Seat, why: &Refusal) {
        let mut known = lock(&self.known);
        if let Some(peer) = known.get_mut(&(seat.info.name.clone(), seat.info.store))
            && Arc::ptr_eq(&peer.status.info, &seat.info)
        {
            peer.commands = None;
            peer.status.state = PeerState::down(why.reason, why.detail.clone());
        }
    }

    /// The connected peer that is this process and has a certificate of this name.
    pub(crate) fn find(&self, name: &str, instance: &Instance) -> Option<(Arc<PeerInfo>, Arc<WanCounters>)> {
        let known = lock(&self.known);
        let mut peers = known.values().filter(|peer| peer.commands.is_some());
        let peer =
            peers.find(|peer| peer.status.info.name == name && peer.status.info.instance == *instance)?;
        Some((peer.status.info.clone(), peer.status.wan.clone()))
    }

    /// Asks a peer to look after a channel; if it is not connected, it will find out by itself.
    pub(crate) fn doubt(&self, info: &PeerInfo, channel: ChannelId) {
        let known = lock(&self.known);
        if let Some(commands) =
            known.get(&(info.name.clone(), info.store)).and_then(|peer| peer.commands.as_ref())
        {
            // A full queue means that the control channel is stuck, which its own silence will show.
            let _ = commands.try_send(Command::Doubt(channel));
        }
    }

    /// The other live process with this store.
    fn rival(&self, info: &PeerInfo) -> Option<(Arc<PeerInfo>, mpsc::Sender<Command>)> {
        let known = lock(&self.known);
        known.values().find_map(|peer| {
            let other = &peer.status.info;
            let rival = other.store == info.store && other.instance != info.instance;
            Some((other.clone(), peer.commands.clone().filter(|_| rival)?))
        })
    }
}

async fn answers(commands: &mpsc::Sender<Command>) -> bool {
    let (sender, receiver) = oneshot::channel();
    let probe = async {
        commands.send(Command::Probe(sender)).await.ok()?;
        receiver.await.ok()
    };
    tokio::time::timeout(limits::PONG_TIMEOUT_MIN, probe).await.is_ok_and(|answer| answer.is_some())
}

/// Makes room for one more: the peer that has been down for longest is forgotten.
fn forget_one(known: &mut HashMap<Key, Peer>) {
    if known.len() < limits::PEERS_MAX {
        return;
    }
    let down_since = |peer: &Peer| match peer.status.state {
        PeerState::Down { since, .. } => since,
        PeerState::Connected(_) => SystemTime::now(),
    };
    let oldest = known.iter().min_by_key(|(_, peer)| down_since(peer)).map(|(key, _)| key.clone());
    if let Some(key) = oldest {
        known.remove(&key);
    }
}
