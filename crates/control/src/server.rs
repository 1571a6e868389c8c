use crate::{limits, routes};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use isthmus_telemetry::{Source, Telemetry};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

/// How the admin port is to behave.
#[derive(Clone, Debug, Default)]
pub struct AdminOptions {
    /// Host names under which it may be asked for, beside `localhost` and any literal address. A page elsewhere that
    /// makes its own name point here (DNS rebinding) is refused, since its name is none of these.
    pub hosts: Vec<String>,
}

/// The admin port of one proxy.
pub struct Admin {
    router: Router,
}

impl Admin {
    pub fn new(telemetry: Arc<Telemetry>, source: Arc<dyn Source>, options: AdminOptions) -> Admin {
        Admin { router: routes::router(telemetry, source, options) }
    }

    /// Serves until `shutdown` completes, then lets open requests finish within [`limits::SHUTDOWN_TIME_MAX`].
    pub async fn serve(self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let slots = Arc::new(Semaphore::new(limits::CONNECTIONS_MAX));
        let (stop, stopped) = watch::channel(false);
        let mut shutdown = pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                () = &mut shutdown => break,
                accepted = accept(&listener, &slots) => accepted,
            };
            let Some((socket, slot)) = accepted else { continue };
            let (router, stopped) = (self.router.clone(), stopped.clone());
            tokio::spawn(async move {
                serve_connection(socket, router, stopped).await;
                drop(slot);
            });
        }
        drop(listener);
        stop.send_replace(true);
        let all = limits::CONNECTIONS_MAX as u32;
        if timeout(limits::SHUTDOWN_TIME_MAX, slots.acquire_many(all)).await.is_err() {
            tracing::debug!("admin port: requests were still open at its end");
        }
    }
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    // A slot is taken first: whoever comes when all are in use waits in the kernel's queue and costs nothing here.
    let slot = slots.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((socket, _)) => Some((socket, slot)),
        Err(error) => {
            tracing::warn!(%error, "admin port: accept failed");
            sleep(limits::ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn serve_connection(socket: TcpStream, router: Router, mut stopped: watch::Receiver<bool>) {
    let service = TowerToHyperService::new(router);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::HEAD_TIME_MAX)
        .max_buf_size(limits::HEAD_BYTES_MAX)
        .max_headers(limits::HEADERS_MAX)
        .serve_connection(TokioIo::new(socket), service);
    let mut connection = pin!(connection);
    let time_is_up = async {
        let stop = async { drop(stopped.wait_for(|stop| *stop).await) };
        tokio::select! {
            () = stop => (),
            () = sleep(limits::CONNECTION_TIME_MAX) => (),
        }
    };
    let ended = tokio::select! {
        result = connection.as_mut() => Some(result),
        () = time_is_up => None,
    };
    let result = match ended {
        Some(result) => result,
        None => {
            connection.as_mut().graceful_shutdown();
            timeout(limits::SHUTDOWN_TIME_MAX, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "admin port: connection ended");
    }
}
