//! The ports that rules listen on: opened and closed while connections go on.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::host::Running;

/// The open listeners. Connections that they have accepted are tasks of their own.
pub(crate) struct Listeners {
    inner: Mutex<Inner>,
}

struct Inner {
    open: HashMap<SocketAddr, JoinHandle<()>>,
    /// `None` once the proxy is told to stop.
    running: Option<Running>,
}

impl Listeners {
    pub fn new(running: Running) -> Listeners {
        Listeners { inner: Mutex::new(Inner { open: HashMap::new(), running: Some(running) }) }
    }

    /// Closes what is not wanted and opens what is not open; `serve` starts a task for each new one. Gives the addresses that
    /// cannot be had.
    pub async fn follow(
        &self,
        wanted: &[SocketAddr],
        serve: impl Fn(Running, SocketAddr, TcpListener) -> JoinHandle<()>,
    ) -> Vec<(SocketAddr, io::Error)> {
        let mut closed = Vec::new();
        {
            let mut inner = self.lock();
            let gone: Vec<SocketAddr> =
                inner.open.keys().filter(|address| !wanted.contains(address)).copied().collect();
            for address in gone {
                tracing::info!(%address, "no longer listening");
                closed.extend(inner.open.remove(&address));
            }
        }
        for task in closed {
            task.abort();
            // Only when the task is over is its port free for another address that overlaps.
            let _ = task.await;
        }
        let mut failed = Vec::new();
        for address in wanted {
            if self.lock().open.contains_key(address) {
                continue;
            }
            match TcpListener::bind(address).await {
                Ok(socket) => {
                    let mut inner = self.lock();
                    let Some(running) = inner.running.clone() else { break };
                    tracing::info!(%address, "listening");
                    inner.open.insert(*address, serve(running, *address, socket));
                }
                Err(error) => failed.push((*address, error)),
            }
        }
        failed
    }

    /// Closes all, for good.
    pub fn close(&self) {
        let mut inner = self.lock();
        inner.running = None;
        inner.open.drain().for_each(|(_, task)| task.abort());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
