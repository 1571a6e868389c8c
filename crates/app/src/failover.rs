//! Which of several server-side proxies new connections go to. Decided from what is known of each; no IO and no clock.

use std::time::Duration;

/// The next proxy is dialled when those before it have not answered for this long.
pub(crate) const FAILOVER_AFTER: Duration = Duration::from_secs(3);
/// A more wanted proxy gets new connections again when it has been there for this long.
pub(crate) const FAILBACK_AFTER: Duration = Duration::from_secs(30);

/// What is known of one proxy. They are in the order in which they are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct View {
    /// It is dialled at all.
    pub started: bool,
    /// It can be used now.
    pub up: bool,
    /// For how long it has been up, or down.
    pub lasting: Duration,
    /// Connections go through it, or wait for it.
    pub in_use: bool,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Where new connections go to.
    pub active: Option<usize>,
    /// To be dialled from now on.
    pub start: Option<usize>,
    /// No longer needed.
    pub stop: Vec<usize>,
    /// When to choose again, should nothing happen before.
    pub again: Option<Duration>,
}

/// Chooses, `active` being the present choice.
pub(crate) fn choose(views: &[View], active: Option<usize>) -> Choice {
    let is_up = |index: &usize| views.get(*index).is_some_and(|view| view.up);
    let current = active.filter(is_up);
    let mut choice = Choice::default();
    let before = current.unwrap_or(views.len());
    let better = views.iter().take(before).enumerate().filter(|(_, view)| view.up);
    // What is there at all is better than nothing; what is wanted more has to prove itself.
    let (ready, waiting): (Vec<_>, Vec<_>) =
        better.partition(|(_, view)| current.is_none() || view.lasting >= FAILBACK_AFTER);
    choice.active = ready.first().map(|(index, _)| *index).or(current).or(active);
    wake(&mut choice, waiting.iter().map(|(_, view)| FAILBACK_AFTER.saturating_sub(view.lasting)));

    let next = views.iter().position(|view| !view.started);
    if let Some(next) = next.filter(|_| !views.iter().any(|view| view.up)) {
        let shortest = views.iter().filter(|view| view.started).map(|view| view.lasting).min();
        match shortest {
            Some(lasting) if lasting < FAILOVER_AFTER => wake(&mut choice, [FAILOVER_AFTER - lasting]),
            _ => choice.start = Some(next),
        }
    }
    if let Some(current) = choice.active.filter(is_up) {
        let steady = views.get(current).is_some_and(|view| view.lasting >= FAILBACK_AFTER);
        let spare = views.iter().enumerate().skip(current + 1).filter(|(_, view)| view.started);
        let (used, idle): (Vec<_>, Vec<_>) = spare.partition(|(_, view)| view.in_use || !steady);
        choice.stop = idle.into_iter().map(|(index, _)| index).collect();
        if !used.is_empty() {
            wake(&mut choice, [FAILBACK_AFTER]);
        }
    }
    choice
}

fn wake(choice: &mut Choice, times: impl IntoIterator<Item = Duration>) {
    choice.again = choice.again.into_iter().chain(times).min();
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3_600);
    const SHORT: Duration = Duration::from_secs(1);

    fn up(lasting: Duration) -> View {
        View { started: true, up: true, lasting, in_use: false }
    }

    fn down(lasting: Duration) -> View {
        View { started: true, up: false, lasting, in_use: false }
    }

    #[test]
    fn the_first_is_dialled_alone_and_the_next_when_it_does_not_answer() {
        let unknown = View::default();
        assert_eq!(choose(&[unknown, unknown], None).start, Some(0));
        let choice = choose(&[down(SHORT), unknown], None);
        assert_eq!((choice.start, choice.again), (None, Some(FAILOVER_AFTER - SHORT)));
        assert_eq!(choose(&[down(FAILOVER_AFTER), unknown, unknown], None).start, Some(1));
        assert_eq!(choose(&[down(LONG), down(SHORT), unknown], None).start, None, "one after the other");
        assert_eq!(choose(&[down(LONG), down(LONG)], Some(0)).active, Some(0), "nothing better is known");
        let choice = choose(&[up(SHORT), unknown], None);
        assert_eq!(choice, Choice { active: Some(0), ..Choice::default() }, "and then there is peace");
    }

    #[test]
    fn new_connections_go_to_what_is_there_and_back_when_the_better_one_has_proved_itself() {
        assert_eq!(choose(&[down(LONG), up(SHORT)], Some(0)).active, Some(1));
        let choice = choose(&[up(SHORT), up(LONG)], Some(1));
        assert_eq!((choice.active, choice.again), (Some(1), Some(FAILBACK_AFTER - SHORT)));
        assert_eq!(choose(&[up(FAILBACK_AFTER), up(LONG)], Some(1)).active, Some(0));
        assert_eq!(choose(&[up(LONG), down(SHORT)], Some(1)).active, Some(0));
    }

    #[test]
    fn what_is_not_needed_is_let_go_but_never_under_a_connection() {
        let used = View { in_use: true, ..up(LONG) };
        assert_eq!(choose(&[up(LONG), up(LONG)], Some(0)).stop, [1]);
        let choice = choose(&[up(LONG), used], Some(0));
        assert_eq!((choice.stop, choice.again), (vec![], Some(FAILBACK_AFTER)));
        assert_eq!(choose(&[up(SHORT), up(LONG)], Some(0)).stop, Vec::<usize>::new(), "not yet");
        assert_eq!(
            choose(&[down(LONG), up(LONG)], Some(1)).stop,
            Vec::<usize>::new(),
            "the better one is tried"
        );
    }
}
