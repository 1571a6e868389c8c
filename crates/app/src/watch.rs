//! Tells people what has changed in the store and in the reduction since the last look. One line a change and a look,
//! however many connections it concerns.

use isthmus_store::Learning;
use isthmus_telemetry::Level;

use crate::core::{Core, StoreState};

/// What was seen at the last look.
pub(crate) struct Watch {
    learning: Learning,
    quarantined: u64,
    misses: u64,
    repairs: u64,
}

impl Watch {
    /// A store that learns and has nothing wrong with it.
    pub fn new() -> Watch {
        Watch { learning: Learning::On, quarantined: 0, misses: 0, repairs: 0 }
    }

    /// Compares with the last look.
    pub fn look(&mut self, core: &Core) {
        if let StoreState::Open(store) = core.store() {
            let stats = store.stats();
            self.learning(core, stats.learning);
            self.quarantined(core, stats.quarantined);
        }
        let sum = core.telemetry.connections().totals().sum();
        let misses = sum.misses.saturating_sub(self.misses);
        if misses > 0 {
            let text =
                format!("the store lacks what the peer refers to: {misses} pieces are asked for again");
            core.telemetry.event(Level::Warning, text);
        }
        let repairs = sum.repairs.saturating_sub(self.repairs);
        if repairs > 0 {
            let text =
                format!("the peer's store lacked what it was referred to: {repairs} pieces were sent again");
            core.telemetry.event(Level::Info, text);
        }
        (self.misses, self.repairs) = (sum.misses, sum.repairs);
    }

    fn learning(&mut self, core: &Core, now: Learning) {
        if now == self.learning {
            return;
        }
        self.learning = now;
        if now == Learning::On {
            core.telemetry.event(Level::Info, "the store learns again");
        } else {
            let why = now.label().replace('_', " ");
            core.telemetry
                .event(Level::Warning, format!("the store learns nothing new ({why}); it goes on serving"));
        }
    }

    fn quarantined(&mut self, core: &Core, now: u64) {
        if now > self.quarantined {
            let text = format!(
                "the store holds damaged content: {} more chunks are quarantined; peers send them again",
                now - self.quarantined
            );
            core.telemetry.event(Level::Warning, text);
        }
        self.quarantined = now;
    }
}
