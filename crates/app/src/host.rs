//! What both proxies need of the system: ports, limits, signals, and a count of what still runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use isthmus_control::{Admin, AdminOptions};
use isthmus_telemetry::{Level, Source};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use crate::AppError;
use crate::core::Core;

/// Pause after the system refused to accept a connection (out of file descriptors).
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Lets the process open as many sockets as the system allows it: one connection takes two.
pub(crate) fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files cannot be raised");
    }
}

/// Keeps session keys, which this process may be given, out of core files and from other processes of its user.
pub(crate) fn keep_memory_private() {
    if let Err(error) = isthmus_keys::deny_core_dumps() {
        tracing::warn!(%error, "session keys would be in a core file");
    }
}

pub(crate) async fn bind(address: SocketAddr, key: &'static str) -> Result<TcpListener, AppError> {
    TcpListener::bind(address).await.map_err(|error| AppError::Listen { address, key, error })
}

/// The next connection, after a pause if the system refuses.
pub(crate) async fn accept(listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
    match listener.accept().await {
        Ok(accepted) => Some(accepted),
        Err(error) => {
            tracing::warn!(%error, "a connection cannot be accepted");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// Starts the admin port, if one is configured; it ends with the returned guard.
pub(crate) async fn start_admin(
    core: &Arc<Core>,
    source: Arc<dyn Source>,
    admin: &isthmus_config::Admin,
) -> Result<(), AppError> {
    core.telemetry.set_source(&source);
    let Some(address) = admin.listen else {
        // Telemetry holds the source weakly, so something has to keep it.
        tokio::spawn(async move {
            std::future::pending::<()>().await;
            drop(source);
        });
        return Ok(());
    };
    let listener = bind(address, "admin.listen").await?;
    let options = AdminOptions { hosts: admin.names.clone() };
    let server = Admin::new(core.telemetry.clone(), source, options);
    tracing::info!("console at http://{address}/");
    tokio::spawn(server.serve(listener, std::future::pending()));
    Ok(())
}

/// Counts running connections: each holds a [`Running`].
pub(crate) struct Tracker {
    sender: mpsc::Sender<()>,
    receiver: mpsc::Receiver<()>,
}

/// Held by a task for as long as it has something to finish.
#[derive(Clone)]
pub(crate) struct Running {
    _sender: mpsc::Sender<()>,
}

impl Tracker {
    pub fn new() -> Tracker {
        let (sender, receiver) = mpsc::channel(1);
        Tracker { sender, receiver }
    }

    pub fn running(&self) -> Running {
        Running { _sender: self.sender.clone() }
    }

    /// Waits until every [`Running`] is gone.
    async fn done(self) {
        let Tracker { sender, mut receiver } = self;
        drop(sender);
        let _ = receiver.recv().await;
    }
}

/// Completes at the first SIGTERM or SIGINT, after which the proxy counts as draining.
pub(crate) async fn told_to_stop(draining: &watch::Sender<bool>) -> Result<(), AppError> {
    let system = |error| AppError::System { what: "signals cannot be handled", error };
    let mut terminate = signal(SignalKind::terminate()).map_err(system)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(system)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    draining.send_replace(true);
    Ok(())
}

/// Lets connections end by themselves: until the deadline, or a second signal.
pub(crate) async fn drain(core: &Core, tracker: Tracker, deadline: Duration) -> Result<(), AppError> {
    let (_, connections) = core.admission.state();
    let text = format!("draining: {connections} optimised connections may end within {deadline:?}");
    core.telemetry.event(Level::Warning, text);
    let again = watch::Sender::new(false);
    tokio::select! {
        () = tracker.done() => core.telemetry.event(Level::Info, "drained: no connection is left"),
        () = tokio::time::sleep(deadline) => {
            let (_, left) = core.admission.state();
            core.telemetry.event(Level::Warning, format!("the deadline has come: {left} connections are cut"));
        }
        second = told_to_stop(&again) => second?,
    }
    Ok(())
}
