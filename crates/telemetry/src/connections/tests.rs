use super::*;
use std::thread;

fn table() -> Arc<ConnectionTable> {
    Arc::new(ConnectionTable::new(Arc::new(Mutex::new(PeerLabels::new()))))
}

fn info(peer: &str) -> ConnectionInfo {
    ConnectionInfo {
        client: "192.0.2.7:50000".parse().unwrap(),
        target: "files.example:445".into(),
        protocol: Protocol::Smb,
        peer: peer.into(),
        rule: "optimise 445".into(),
        opened_at: SystemTime::now(),
    }
}

#[test]
fn a_closed_connection_is_folded_once() {
    let table = table();
    let handle = table.register(info("dc"));
    handle.set_state(ConnectionState::Optimised);
    handle.ledger().lan_up.add(100);
    assert_eq!(table.totals().sum().lan_up, 100);
    assert_eq!(table.totals().states[ConnectionState::Optimised as usize], 1);
    drop(handle);
    for _ in 0..3 {
        assert_eq!(table.totals().sum().lan_up, 100);
    }
    assert_eq!(table.totals().states, [0; 8]);
    assert_eq!(table.totals().outcomes[&(Outcome::Optimised, None)], 1);
    assert!(lock(&table.table).lingering.is_empty());
}

#[test]
fn a_late_writer_loses_nothing() {
    let table = table();
    let handle = table.register(info("dc"));
    let ledger = handle.ledger().clone();
    drop(handle);
    assert_eq!(table.totals().sum().lan_down, 0);
    ledger.lan_down.add(7);
    assert_eq!(table.totals().sum().lan_down, 7);
    drop(ledger);
    assert_eq!(table.totals().sum().lan_down, 7);
    assert!(lock(&table.table).lingering.is_empty());
}

#[test]
fn sums_never_fall_and_lose_nothing_while_connections_come_and_go() {
    let table = table();
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let table = table.clone();
            thread::spawn(move || {
                for i in 0..500 {
                    let handle = table.register(info(["a", "b"][i % 2]));
                    handle.set_state(ConnectionState::ReduceOnly);
                    let ledger = handle.ledger().clone();
                    ledger.lan_up.add(1);
                    if (i + worker) % 3 == 0 {
                        drop(handle);
                    }
                    ledger.lan_up.add(1);
                }
            })
        })
        .collect();
    let mut last = 0;
    while workers.iter().any(|worker| !worker.is_finished()) {
        let now = table.totals().sum().lan_up;
        assert!(now >= last, "{now} after {last}");
        last = now;
    }
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    assert_eq!(table.totals().sum().lan_up, 4 * 500 * 2);
    assert_eq!(table.totals().outcomes[&(Outcome::ReduceOnly, None)], 2_000);
}

#[test]
fn reasons_are_counted_once_a_connection() {
    let table = table();
    let handle = table.register(info(""));
    for _ in 0..2 {
        handle.set_state_because(ConnectionState::PassThrough, Reason::PeerAbsent, "");
    }
    assert_eq!(table.totals().not_optimised[&Reason::PeerAbsent], 1);
    assert_eq!(table.live()[0].reason, Some(Reason::PeerAbsent));
    drop(handle);
    let totals = table.totals();
    assert_eq!(totals.outcomes[&(Outcome::PassThrough, Some(Reason::PeerAbsent))], 1);
    assert_eq!(&*totals.ledgers.keys().next().unwrap().0, "none");
}

#[test]
fn ends_are_told_apart() {
    let table = table();
    table.register(info("dc")).fail(Reason::ApplicationReset, "");
    table.register(info("dc")).fail(Reason::ProofFailed, "run digest");
    drop(table.register(info("dc")));
    let outcomes = table.totals().outcomes;
    assert_eq!(outcomes[&(Outcome::Reset, Some(Reason::ApplicationReset))], 1);
    assert_eq!(outcomes[&(Outcome::Failed, Some(Reason::ProofFailed))], 1);
    assert_eq!(outcomes[&(Outcome::Failed, None)], 1, "one that never left opening has failed");
    assert_eq!(table.closed()[1].detail, "run digest");
}

#[test]
fn lists_are_bounded() {
    let table = table();
    let held: Vec<_> = (0..LINGERING_MAX + 50)
        .map(|_| {
            let handle = table.register(info("dc"));
            handle.ledger().lan_up.add(1);
            handle.ledger().clone()
        })
        .collect();
    assert_eq!(table.closed().len(), CLOSED_LISTED_MAX);
    assert!(lock(&table.table).lingering.len() <= LINGERING_MAX);
    assert_eq!(table.totals().sum().lan_up, held.len() as u64);
}

#[test]
fn connections_above_the_limit_are_not_listed_and_still_counted() {
    let table = table();
    let handles: Vec<_> = (0..CONNECTIONS_LISTED_MAX + 3).map(|_| table.register(info("dc"))).collect();
    handles.iter().for_each(|handle| handle.ledger().lan_up.add(1));
    assert_eq!(table.live().len(), CONNECTIONS_LISTED_MAX);
    drop(handles);
    let totals = table.totals();
    assert_eq!(totals.sum().lan_up, CONNECTIONS_LISTED_MAX as u64 + 3);
    assert_eq!(totals.outcomes[&(Outcome::Failed, None)], CONNECTIONS_LISTED_MAX as u64 + 3);
}
