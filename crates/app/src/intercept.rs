//! Interception while a proxy runs: its rules kept in place, and connections taken in the path.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use isthmus_config::{ClientConfig, Host, HostPort, InterceptMode, InterceptRouting, ServerConfig};
use isthmus_intercept::{CLIENT_TABLE, Form, Held, InterceptError, Origin, Plan, SERVER_TABLE};
use isthmus_telemetry::Level;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::AppError;
use crate::core::Core;

/// Pause before rules that were lost are put in again, and between attempts.
const RETRY: Duration = Duration::from_secs(1);

/// What the client side's configuration wants; `None` if nothing is to be intercepted.
pub(crate) fn client_plan(config: &ClientConfig) -> Option<Plan> {
    let intercept = &config.intercept;
    let form = form(intercept.mode)?;
    Some(Plan {
        table: CLIENT_TABLE,
        form,
        port: intercept.port,
        interfaces: intercept.interfaces.clone(),
        ports: intercept.ports.iter().map(|range| (range.first, range.last)).collect(),
        source: intercept.source.iter().map(|net| net.into_inner()).collect(),
        destination: intercept.destination.iter().map(|net| net.into_inner()).collect(),
        except: intercept.except.iter().map(|net| net.into_inner()).collect(),
        reset_preexisting: intercept.reset_preexisting,
        ..empty(CLIENT_TABLE, form, &intercept.routing)
    })
}

/// What the server side's configuration wants; `None` if targets see no client's address.
pub(crate) fn server_plan(config: &ServerConfig) -> Option<Plan> {
    let intercept = &config.intercept;
    intercept.is_on().then(|| empty(SERVER_TABLE, Form::Answers, &intercept.routing))
}

/// Enough of a plan to remove whatever an earlier configuration has left.
pub(crate) fn client_removal(config: &ClientConfig) -> Plan {
    empty(CLIENT_TABLE, Form::Tproxy, &config.intercept.routing)
}

/// As [`client_removal`], for the server side.
pub(crate) fn server_removal(config: &ServerConfig) -> Plan {
    empty(SERVER_TABLE, Form::Answers, &config.intercept.routing)
}

fn empty(table: &'static str, form: Form, routing: &InterceptRouting) -> Plan {
    Plan {
        table,
        form,
        port: 0,
        interfaces: Vec::new(),
        ports: Vec::new(),
        source: Vec::new(),
        destination: Vec::new(),
        except: Vec::new(),
        mark: routing.mark,
        routing_table: routing.table,
        priority: routing.priority,
        reset_preexisting: false,
        ipv6: has_ipv6(),
    }
}

fn form(mode: InterceptMode) -> Option<Form> {
    match mode {
        InterceptMode::Off => None,
        InterceptMode::Tproxy => Some(Form::Tproxy),
        InterceptMode::Redirect => Some(Form::Redirect),
        InterceptMode::Local => Some(Form::Local),
    }
}

/// Whether the machine has IPv6 at all: where it is switched off, its routes cannot be made.
fn has_ipv6() -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv6/conf/lo/disable_ipv6").is_ok_and(|value| value.trim() == "0")
}

/// The sockets on which intercepted connections arrive.
pub(crate) fn listen(plan: &Plan) -> Result<Vec<TcpListener>, AppError> {
    let families = if plan.ipv6 { [false, true].as_slice() } else { &[false] };
    let one = |ipv6: &bool| {
        if plan.form == Form::Local {
            // The right to mark own connections; without it they would come back here for ever.
            let target =
                if *ipv6 { IpAddr::V6(Ipv6Addr::LOCALHOST) } else { IpAddr::V4(Ipv4Addr::LOCALHOST) };
            isthmus_intercept::outgoing(target, Origin::Here, Some(plan.mark))?;
        }
        let socket = isthmus_intercept::listen(plan.form, *ipv6, plan.port)?;
        TcpListener::from_std(socket.into())
    };
    families
        .iter()
        .map(one)
        .collect::<Result<_, _>>()
        .map_err(|error| AppError::Intercepted { port: plan.port, error })
}

/// Where an accepted connection was going.
pub(crate) fn destination(plan: &Plan, stream: &TcpStream) -> std::io::Result<HostPort> {
    let address = isthmus_intercept::original_destination(plan.form, stream, plan.port)?;
    Ok(HostPort { host: Host::Address(isthmus_config::normalise(address.ip())), port: address.port() })
}

/// Whether this process may make connections under others' addresses.
pub(crate) fn may_use_addresses() -> std::io::Result<()> {
    let anybody = Origin::Address(([192, 0, 2, 1], 0).into());
    isthmus_intercept::outgoing([192, 0, 2, 2].into(), anybody, None).map(drop)
}

/// Keeps a plan's rules in place for as long as the proxy wants.
pub(crate) struct Keeper {
    core: Arc<Core>,
    plan: Plan,
    held: Mutex<Option<Held>>,
    ended: Arc<Notify>,
    is_done: AtomicBool,
}

impl Keeper {
    /// Puts the rules in, and from then on sees to it that they stay.
    pub async fn start(core: Arc<Core>, plan: Plan) -> Result<Arc<Keeper>, AppError> {
        let keeper = Arc::new(Keeper {
            core,
            plan,
            held: Mutex::default(),
            ended: Arc::default(),
            is_done: AtomicBool::new(false),
        });
        keeper.hold().await?;
        tokio::spawn(keeper.clone().keep());
        Ok(keeper)
    }

    /// Whether the rules are in place now.
    pub fn is_in_place(&self) -> bool {
        self.lock().is_some()
    }

    /// New connections go past the proxy; those that are open keep what they need.
    pub fn take_no_more(&self) {
        if let Some(held) = self.lock().as_mut()
            && let Err(error) = held.take_no_more()
        {
            // The holder has ended, so nothing is taken any more.
            tracing::warn!(%error, "interception cannot be ended in good order");
        }
    }

    /// Removes the rules.
    pub async fn let_go(&self) {
        self.is_done.store(true, Ordering::Release);
        let held = self.lock().take();
        // Waits for a process to end: not for a worker thread.
        let _ = tokio::task::spawn_blocking(move || drop(held)).await;
    }

    async fn hold(&self) -> Result<(), AppError> {
        let (plan, ended) = (self.plan.clone(), self.ended.clone());
        let start = move || {
            Held::start(&plan, move |message| {
                if !message.is_empty() {
                    tracing::warn!("nft: {message}");
                }
                ended.notify_one();
            })
        };
        let held = tokio::task::spawn_blocking(start).await;
        let held = held.unwrap_or_else(|error| {
            Err(InterceptError::Answer { command: "nft".into(), detail: error.to_string() })
        })?;
        for warning in &held.warnings {
            self.core.telemetry.event(Level::Warning, warning);
        }
        *self.lock() = Some(held);
        Ok(())
    }

    async fn keep(self: Arc<Keeper>) {
        loop {
            self.ended.notified().await;
            if self.is_done.load(Ordering::Acquire) {
                return;
            }
            let lost = self.lock().take();
            let _ = tokio::task::spawn_blocking(move || drop(lost)).await;
            self.core.telemetry.event(
                Level::Error,
                "the rules that bring connections here are gone; until they are back, connections pass by",
            );
            self.put_back().await;
        }
    }

    async fn put_back(&self) {
        let mut said = String::new();
        while !self.is_done.load(Ordering::Acquire) {
            tokio::time::sleep(RETRY).await;
            match self.hold().await {
                Ok(()) => {
                    return self
                        .core
                        .telemetry
                        .event(Level::Info, "the rules that bring connections here are back");
                }
                Err(error) if error.to_string() != said => {
                    said = error.to_string();
                    self.core.telemetry.event(Level::Error, format!("connections pass by: {said}"));
                }
                Err(_) => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
