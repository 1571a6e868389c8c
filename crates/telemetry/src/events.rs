use crate::limits::{EVENTS_MAX, TEXT_CHARS_MAX};
use crate::{lock, text};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::SystemTime;

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Level {
    Info = 0,
    Warning = 1,
    Error = 2,
}

impl Level {
    pub const ALL: [Level; 3] = [Level::Info, Level::Warning, Level::Error];

    /// JSON and label word.
    pub fn label(self) -> &'static str {
        match self {
            Level::Info => "info",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

/// Something that happened, for people to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Grows by one with each event; a repeated one keeps its number.
    pub id: u64,
    /// When it happened last.
    pub at: SystemTime,
    pub level: Level,
    pub text: String,
    /// How often the same happened in a row.
    pub count: u64,
}

/// The most recent events, newest last, and how many there were of each level.
#[derive(Default)]
pub struct Events {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    ring: VecDeque<Event>,
    next_id: u64,
    totals: [u64; 3],
}

impl Events {
    /// Keeps an event for the console and writes the same to the log. Never pass content or keys.
    pub fn record(&self, level: Level, text: impl AsRef<str>) {
        let text = text::clean(text.as_ref(), TEXT_CHARS_MAX);
        match level {
            Level::Info => tracing::info!("{text}"),
            Level::Warning => tracing::warn!("{text}"),
            Level::Error => tracing::error!("{text}"),
        }
        self.keep(level, text, SystemTime::now());
    }

    /// The events with an id above `after`, oldest first.
    pub fn since(&self, after: u64) -> Vec<Event> {
        lock(&self.inner).ring.iter().filter(|event| event.id > after).cloned().collect()
    }

    /// How many events of each level there were, in the order of [`Level::ALL`].
    pub fn totals(&self) -> [u64; 3] {
        lock(&self.inner).totals
    }

    fn keep(&self, level: Level, text: String, at: SystemTime) {
        let mut inner = lock(&self.inner);
        inner.totals[level as usize] += 1;
        if let Some(last) = inner.ring.back_mut().filter(|last| last.level == level && last.text == text) {
            last.count += 1;
            last.at = at;
            return;
        }
        if inner.ring.len() == EVENTS_MAX {
            inner.ring.pop_front();
        }
        inner.next_id += 1;
        let id = inner.next_id;
        inner.ring.push_back(Event { id, at, level, text, count: 1 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_counted_and_the_ring_is_bounded() {
        let events = Events::default();
        for _ in 0..3 {
            events.record(Level::Warning, "link lost");
        }
        assert_eq!(events.since(0).len(), 1);
        assert_eq!(events.since(0)[0].count, 3);
        assert_eq!(events.totals(), [0, 3, 0]);
        for i in 0..EVENTS_MAX + 10 {
            events.record(Level::Info, format!("{i}"));
        }
        let all = events.since(0);
        assert_eq!(all.len(), EVENTS_MAX);
        assert_eq!(all.last().unwrap().text, format!("{}", EVENTS_MAX + 9));
        assert_eq!(events.since(all[EVENTS_MAX - 2].id).len(), 1);
    }
}
