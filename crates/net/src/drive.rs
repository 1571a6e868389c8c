use crate::WanCounters;
use crate::inner::{Event, Step};
use crate::shared::Shared;
use std::sync::Arc;
use std::time::Instant;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Whoever has to hear of a channel's turns: the dialer or the acceptor.
pub(crate) trait Owner: Send + Sync + 'static {
    fn handle(&self, shared: &Arc<Shared>, event: Event);
    fn gone(&self, shared: &Arc<Shared>);
}

/// Drives one channel until it is over: one task, woken by its socket, its handles or a deadline.
pub(crate) async fn drive(shared: Arc<Shared>, owner: impl Owner) {
    let wan = shared.wan();
    WanCounters::count(&wan.channels);
    let sleep = tokio::time::sleep_until(Instant::now().into());
    tokio::pin!(sleep);
    loop {
        match shared.step() {
            Step::Tell(event) => owner.handle(&shared, event),
            Step::Done => break,
            Step::Wait { socket, write_blocked, deadline } => {
                if let Some(deadline) = deadline
                    && sleep.deadline() != deadline.into()
                {
                    sleep.as_mut().reset(deadline.into());
                }
                tokio::select! {
                    biased;
                    () = shared.driven() => {}
                    () = ready(socket.as_deref(), write_blocked), if socket.is_some() => {}
                    () = sleep.as_mut(), if deadline.is_some() => {}
                }
            }
        }
    }
    WanCounters::uncount(&wan.channels);
    owner.gone(&shared);
    shared.close_link().await;
}

async fn ready(socket: Option<&TcpStream>, write_blocked: bool) {
    let interest = if write_blocked { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
    if let Some(socket) = socket {
        // An error shows again, with its cause, at the next read.
        let _ = socket.ready(interest).await;
    }
}
