//! A TCP server on a thread of its own.

use crate::error::{Context as _, Result};
use crate::place::{Place, runtime};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// Pending connections the listener may hold: all of a 5,000-connection run may arrive at once.
const BACKLOG: u32 = 8192;

/// A running server; dropping it ends the server and every connection it has.
pub struct Service {
    address: SocketAddr,
    counts: Arc<Counts>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What a server has done so far.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) connections: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) errors: AtomicU64,
}

impl Service {
    /// The address that the server listens on (with the port chosen, if 0 was asked for).
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::Relaxed)
    }

    /// Payload bytes sent or received so far, as the kind of server defines it.
    pub fn bytes(&self) -> u64 {
        self.counts.bytes.load(Ordering::Relaxed)
    }

    /// Connections that ended with an error.
    pub fn errors(&self) -> u64 {
        self.counts.errors.load(Ordering::Relaxed)
    }

    /// Starts a server that handles each connection with `handle`.
    pub(crate) fn start<H, F>(place: &Place, listen: SocketAddr, name: &str, handle: H) -> Result<Service>
    where
        H: Fn(TcpStream, Arc<Counts>) -> F + Send + Sync + 'static,
        F: Future<Output = std::io::Result<()>> + Send + 'static,
    {
        let std_listener = place.run(|| bind(listen))?;
        Service::start_on(place, std_listener, name, handle)
    }

    fn start_on<H, F>(
        place: &Place,
        listener: std::net::TcpListener,
        name: &str,
        handle: H,
    ) -> Result<Service>
    where
        H: Fn(TcpStream, Arc<Counts>) -> F + Send + Sync + 'static,
        F: Future<Output = std::io::Result<()>> + Send + 'static,
    {
        let address = listener.local_addr().context(|| "reading a listener's address".into())?;
        let counts = Arc::new(Counts::default());
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (thread_place, thread_counts) = (place.clone(), counts.clone());
        let thread = std::thread::Builder::new()
            .name(format!("lab-{name}"))
            .spawn(move || {
                let start = || {
                    thread_place.enter()?;
                    runtime()
                };
                match start() {
                    Ok(runtime) => {
                        // The receiver waits below, so it is there.
                        let _ = ready.send(Ok(()));
                        runtime.block_on(serve(listener, stopped, handle, thread_counts));
                    }
                    Err(error) => drop(ready.send(Err(error))),
                }
            })
            .context(|| format!("starting the {name} thread"))?;
        if let Ok(Err(error)) = is_ready.recv() {
            return Err(error);
        }
        Ok(Service { address, counts, stop: Some(stop), thread: Some(thread) })
    }
}

/// Listens on `listen` of this host and hands each connection on to `target` as seen from `place`.
///
/// # Errors
/// The address cannot be bound or the place not entered.
pub fn forward(listen: SocketAddr, place: &Place, target: SocketAddr) -> Result<Service> {
    // A socket stays in the namespace it was made in; so the listener is made here and served there.
    Service::start_on(place, bind(listen)?, "forward", move |inbound, counts| async move {
        let outbound = TcpStream::connect(target).await?;
        super::relay::copy_both(inbound, outbound, &counts).await
    })
}

impl Drop for Service {
    fn drop(&mut self) {
        // Dropping the sender is the signal.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panicked server thread has printed its message already.
            let _ = thread.join();
        }
    }
}

async fn serve<H, F>(
    listener: std::net::TcpListener,
    stopped: oneshot::Receiver<()>,
    handle: H,
    counts: Arc<Counts>,
) where
    H: Fn(TcpStream, Arc<Counts>) -> F + Send + Sync + 'static,
    F: Future<Output = std::io::Result<()>> + Send + 'static,
{
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let accept_all = async {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Out of descriptors, most likely: wait for some to come back rather than spin.
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                continue;
            };
            counts.connections.fetch_add(1, Ordering::Relaxed);
            // Without it small answers would wait for the other side's delayed acknowledgement.
            let _ = stream.set_nodelay(true);
            let connection = handle(stream, counts.clone());
            let counts = counts.clone();
            tokio::spawn(async move {
                if connection.await.is_err() {
                    counts.errors.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    };
    tokio::select! {
        () = accept_all => {}
        _ = stopped => {}
    }
}

fn bind(address: SocketAddr) -> Result<std::net::TcpListener> {
    use socket2::{Domain, Socket, Type};
    let make = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG as i32)?;
        socket.set_nonblocking(true)?;
        Ok::<_, std::io::Error>(std::net::TcpListener::from(socket))
    };
    make().context(|| format!("listening on {address}"))
}
