//! The JSON of docs/api.md. Times are Unix seconds, durations seconds, sizes bytes; what does not apply is null.

pub(crate) mod connections;
pub(crate) mod fleet;
pub(crate) mod history;
pub(crate) mod host;
pub(crate) mod peers;
pub(crate) mod summary;

use isthmus_telemetry::SavedBy;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// A moment as Unix seconds, to the millisecond.
pub(crate) fn unix(at: SystemTime) -> f64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis() as f64 / 1_000.0
}

/// Saved bytes by what saved them.
pub(crate) type Saved = BTreeMap<&'static str, u64>;

pub(crate) fn saved(values: [u64; 5]) -> Saved {
    SavedBy::ALL.iter().map(|by| by.label()).zip(values).collect()
}

/// A recent event.
#[derive(Serialize)]
pub(crate) struct EventView {
    id: u64,
    at: f64,
    level: &'static str,
    text: String,
    count: u64,
}

impl From<isthmus_telemetry::Event> for EventView {
    fn from(event: isthmus_telemetry::Event) -> EventView {
        EventView {
            id: event.id,
            at: unix(event.at),
            level: event.level.label(),
            text: event.text,
            count: event.count,
        }
    }
}

#[derive(Serialize)]
pub(crate) struct EventsView {
    /// Newest first.
    pub(crate) events: Vec<EventView>,
}
