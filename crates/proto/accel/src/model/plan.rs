//! What the client and others do in the model.

use super::client::Step;
use super::random::Random;
use super::server::{Act, Ask, Server, Who};
use isthmus_smb_wire::messages::{CreateDisposition, InfoClass};

/// Reading, reading and writing, and deleting, all with attributes.
const READS: u32 = 0x81;
const EDITS: u32 = 0x83;
const DELETES: u32 = 0x1_0080;
const ALL: u32 = 7;

/// Files that are there from the start. The first is large.
pub(super) fn paths() -> Vec<String> {
    (0..12).map(|index| format!("d\\f{index:02}")).collect()
}

fn open(path: &str, access: u32, disposition: CreateDisposition, lease: u32) -> Step {
    let delete = access & DELETES == DELETES;
    Step::Open { path: path.to_owned(), access, disposition, share: ALL, lease, delete }
}

fn present(random: &mut Random, server: &Server) -> String {
    let list: Vec<&String> = server.names.keys().filter(|path| path.starts_with("d\\")).collect();
    if list.is_empty() || random.one_in(12) {
        return format!("d\\f{:02}", random.below(16));
    }
    random.of(&list).clone()
}

/// A random program.
pub(super) fn program(random: &mut Random, server: &Server) -> Vec<Step> {
    let mut steps = match random.below(22) {
        20..=21 => work_in(random, server),
        0..=4 => walk(random, server),
        5..=6 => ask(random, server),
        7..=9 => upload(random),
        10..=12 => edit(random, server),
        13 => delete(random, server),
        14 => rename(random, server),
        15..=16 => read_on(random, server),
        17 => hold(random, server),
        18 => overwrite(random, server),
        _ => listing(random),
    };
    steps.push(Step::Pause(random.below(300_000)));
    steps
}

fn lease(random: &mut Random) -> u32 {
    random.of(&[0, 0, 7, 7, 3, 1])
}

fn listing(random: &mut Random) -> Vec<Step> {
    let mut steps = vec![Step::OpenFolder, Step::List { anew: false }];
    if random.one_in(3) {
        steps.push(Step::List { anew: true });
    }
    steps.push(Step::Close { attributes: random.one_in(2) });
    steps
}

fn walk(random: &mut Random, server: &Server) -> Vec<Step> {
    let mut steps = listing(random);
    let (lease, query, attributes) = (lease(random), random.one_in(2), random.one_in(2));
    let access = if random.one_in(4) { 0x1 } else { READS };
    let pause = if random.one_in(2) { 0 } else { random.below(200_000) };
    for path in server.names.keys().filter(|path| path.starts_with("d\\")) {
        steps.push(open(path, access, CreateDisposition::OPEN, lease));
        if query {
            steps.push(Step::Query(InfoClass::NETWORK_OPEN));
        }
        steps.push(Step::Read { from: 0, cells: 8, on: true });
        if pause > 0 {
            steps.push(Step::Pause(pause));
            steps.push(Step::ReadMany { from: 0, cells: 2, count: 3 });
        }
        steps.push(Step::Close { attributes });
    }
    steps
}

fn ask(random: &mut Random, server: &Server) -> Vec<Step> {
    let mut steps = listing(random);
    let pause = random.below(40_000);
    for _ in 0..=random.below(2) {
        for path in server.names.keys().filter(|path| path.starts_with("d\\")) {
            steps.push(Step::Stat(path.clone()));
            steps.push(Step::Pause(pause));
        }
        steps.push(Step::Stat("d".into()));
        steps.push(Step::Stat(present(random, server)));
    }
    steps
}

fn upload(random: &mut Random) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..2 + random.below(4) {
        let path = format!("d\\u{:02}", random.below(20));
        let disposition = random.of(&[CreateDisposition::CREATE, CreateDisposition::OVERWRITE_IF]);
        steps.push(open(&path, EDITS, disposition, 7));
        let mut from = 0;
        for _ in 0..random.below(4) {
            let (cells, count) = (1 + random.size(6), 1 + random.size(4));
            steps.push(Step::Write { from, cells, count });
            from += cells * count;
        }
        if random.one_in(3) {
            steps.push(Step::ReadMany { from: 0, cells: 4, count: 2 });
        }
        if random.one_in(4) {
            steps.push(Step::Write { from: random.size(4), cells: 2, count: 2 });
        }
        if random.one_in(3) {
            steps.push(Step::Flush);
        }
        if random.one_in(3) {
            steps.push(Step::Query(InfoClass::NETWORK_OPEN));
        }
        steps.push(Step::Close { attributes: random.one_in(2) });
        if random.one_in(3) {
            steps.push(Step::Stat(path));
        }
    }
    steps
}

fn edit(random: &mut Random, server: &Server) -> Vec<Step> {
    let path = present(random, server);
    let mut steps = vec![open(&path, EDITS, CreateDisposition::OPEN, lease(random))];
    for _ in 0..1 + random.below(5) {
        steps.push(match random.below(7) {
            0 => Step::Write { from: random.size(20), cells: 1 + random.size(4), count: 1 + random.size(3) },
            1 => Step::Read { from: 0, cells: 4, on: true },
            2 => Step::Resize(random.size(20)),
            3 => Step::Query(random.of(&[InfoClass::STANDARD, InfoClass::NETWORK_OPEN])),
            4 => Step::Touch,
            5 => Step::Pause(random.below(100_000)),
            _ => Step::Flush,
        });
    }
    steps.push(Step::Close { attributes: random.one_in(2) });
    if random.one_in(2) {
        steps.push(open(&path, READS, CreateDisposition::OPEN, lease(random)));
        steps.push(Step::Read { from: 0, cells: 8, on: true });
        steps.push(Step::Close { attributes: true });
    }
    steps
}

/// Reads and writes here and there in one file, as databases and drawing programs do. Both threads may do it under one lease.
fn work_in(random: &mut Random, server: &Server) -> Vec<Step> {
    let other = present(random, server);
    let path = random.of(&["d\\f00".to_owned(), "d\\f01".to_owned(), other]);
    let disposition =
        random.of(&[CreateDisposition::OPEN, CreateDisposition::OPEN, CreateDisposition::OPEN_IF]);
    let mut steps = vec![open(&path, EDITS, disposition, 7)];
    let range = if random.one_in(2) { 24 } else { 300 };
    for _ in 0..4 + random.below(16) {
        let from = random.size(range);
        steps.push(match random.below(8) {
            0..=2 => Step::Write { from, cells: 1 + random.size(4), count: 1 + random.size(3) },
            3..=5 => Step::ReadMany { from, cells: 1 + random.size(8), count: 1 + random.size(3) },
            6 => Step::Pause(random.below(60_000)),
            _ => random.of(&[Step::Flush, Step::Query(InfoClass::STANDARD), Step::Resize(from)]),
        });
    }
    steps.push(Step::Close { attributes: random.one_in(2) });
    steps
}

fn delete(random: &mut Random, server: &Server) -> Vec<Step> {
    let path = present(random, server);
    vec![
        open(&path, DELETES, CreateDisposition::OPEN, 0),
        Step::Close { attributes: false },
        Step::Stat(path.clone()),
        open(&path, EDITS, CreateDisposition::OVERWRITE_IF, lease(random)),
        Step::Write { from: 0, cells: 3, count: 2 },
        Step::Close { attributes: true },
    ]
}

fn rename(random: &mut Random, server: &Server) -> Vec<Step> {
    let (from, to) = (present(random, server), format!("d\\r{}", random.below(4)));
    let access = DELETES & !0x80;
    let open = |path: &str| Step::Open {
        path: path.to_owned(),
        access,
        disposition: CreateDisposition::OPEN,
        share: ALL,
        lease: 0,
        delete: false,
    };
    let close = Step::Close { attributes: false };
    vec![
        open(&from),
        Step::Rename(to.clone()),
        close.clone(),
        Step::Stat(from.clone()),
        Step::Stat(to.clone()),
        open(&to),
        Step::Rename(from),
        close,
    ]
}

/// Reads the large file, or another, from the start to the end, or here and there.
fn read_on(random: &mut Random, server: &Server) -> Vec<Step> {
    let path = if random.one_in(3) { present(random, server) } else { "d\\f00".into() };
    let mut steps = vec![open(&path, READS, CreateDisposition::OPEN, lease(random))];
    let cells = 1 + random.size(16);
    if random.one_in(2) {
        steps.push(Step::Read { from: 0, cells, on: true });
    } else {
        for round in 0..8 {
            let from = if random.one_in(4) { random.size(300) } else { round * 3 * cells };
            steps.push(Step::ReadMany { from, cells, count: 3 });
        }
    }
    if random.one_in(3) {
        steps.push(Step::ReadMany { from: random.size(100), cells, count: 4 });
        steps.push(Step::CloseAtOnce);
    } else {
        steps.push(Step::Close { attributes: random.one_in(2) });
    }
    steps
}

fn hold(random: &mut Random, server: &Server) -> Vec<Step> {
    let path = present(random, server);
    let mut steps = vec![open(&path, READS, CreateDisposition::OPEN, lease(random))];
    for _ in 0..4 {
        steps.push(Step::Pause(random.below(500_000)));
        steps.push(Step::Read { from: 0, cells: 6, on: true });
    }
    steps.push(Step::Close { attributes: random.one_in(2) });
    steps
}

fn overwrite(random: &mut Random, server: &Server) -> Vec<Step> {
    vec![
        open(&present(random, server), EDITS, CreateDisposition::OVERWRITE_IF, lease(random)),
        Step::Write { from: 0, cells: 2, count: 1 + random.size(4) },
        Step::Close { attributes: false },
    ]
}

/// What somebody else does next.
pub(super) fn other(random: &mut Random, server: &Server) -> (Ask, Act) {
    let path = present(random, server);
    let (act, access) = match random.below(12) {
        0..=3 => (Act::Write { cell: random.size(20), count: 1 + random.size(6) }, EDITS),
        4 => (Act::Resize(random.size(24)), EDITS),
        5..=6 => (Act::Touch, 0x180),
        7 => (Act::Delete, DELETES),
        8 => (Act::Rename(format!("d\\o{}", random.below(5))), DELETES),
        _ => (Act::Nothing, READS),
    };
    let disposition = match act {
        Act::Write { .. } if random.one_in(4) => CreateDisposition::OVERWRITE_IF,
        _ => CreateDisposition::OPEN,
    };
    let share = if random.one_in(5) { 0 } else { ALL };
    (Ask { who: Who::Other, path, access, share, disposition, delete_on_close: false, lease: None }, act)
}
