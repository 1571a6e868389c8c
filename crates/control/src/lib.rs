//! The admin port: metrics, health, the console page and the JSON behind it (docs/api.md).
//!
//! The port has no login. It answers reads only, tells nothing that is secret, and is meant for loopback or a
//! management network.

mod alarms;
mod api;
mod guard;
pub mod limits;
mod page;
mod routes;
mod server;

pub use alarms::{Alarm, Severity, alarms};
pub use isthmus_telemetry::{Source, Status};
pub use server::{Admin, AdminOptions};

/// What `/api/fleet` answers for these members.
pub fn fleet_view(members: Vec<isthmus_telemetry::FleetMember>) -> impl serde::Serialize {
    api::fleet::fleet(members)
}
