//! Two endpoints back to back in virtual time, over links that are cut anywhere. The seed of a failure is printed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use bytes::{Bytes, BytesMut};
use isthmus_tunnel::{Endpoint, Message, Open, Progress, State, decode, limits};
use isthmus_types::{Domain, Reason, Side};
use std::io::IoSlice;
use std::time::{Duration, Instant};

/// Seeds run in a test; `ISTHMUS_SIM_SEEDS` asks for more.
const SEEDS: u64 = 300;

/// SplitMix64: small, seeded, and good enough to choose faults.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// One side: its endpoint, the bytes on their way to it, and the application on top.
struct Node {
    endpoint: Endpoint,
    incoming: BytesMut,
    undecoded: BytesMut,
    app: App,
    /// What the server side's application is to do in the next session, which the other side may open before this one
    /// knows that the last is over.
    next: Option<App>,
}

/// What the application of one side has done in the session so far.
#[derive(Default)]
struct App {
    to_send: u64,
    sent: u64,
    got: u64,
    restored: u64,
    sent_fin: bool,
    got_fin: bool,
    opened: bool,
    misses: u64,
    ended: Option<Reason>,
    lazy: bool,
    /// Length of the longest messages.
    long: usize,
}

impl Node {
    fn new(side: Side, now: Instant) -> Node {
        let endpoint = Endpoint::new(side, now);
        let (incoming, undecoded) = (BytesMut::new(), BytesMut::new());
        Node { endpoint, incoming, undecoded, app: App::default(), next: None }
    }

    fn begin(&mut self, to_send: u64, lazy: bool, long: usize) {
        self.app = App { to_send, lazy, long, ..App::default() };
    }

    /// As `begin`, once the peer opens.
    fn await_open(&mut self, to_send: u64, lazy: bool, long: usize) {
        self.next = Some(App { to_send, lazy, long, ..App::default() });
    }

    /// Checks that a session is over for its application: all that the peer was to send has come.
    fn check_over(&self, got: u64) {
        assert_eq!((self.app.got, self.app.misses, self.app.got_fin), (got, 0, true));
    }

    /// What an application does: send a little, take a little, acknowledge.
    fn act(&mut self, rng: &mut Rng, now: Instant) {
        if self.endpoint.state() == State::Open && self.app.opened {
            while self.app.sent < self.app.to_send && self.endpoint.has_room() && !rng.one_in(4) {
                self.endpoint.send(&Message::Data(block(self.app.sent, self.app.long, rng)), now).unwrap();
                self.app.sent += 1;
            }
            if self.app.sent == self.app.to_send && !self.app.sent_fin && self.endpoint.has_room() {
                self.endpoint.send(&Message::Fin, now).unwrap();
                self.app.sent_fin = true;
            }
        }
        if self.app.lazy && !rng.one_in(8) {
            return;
        }
        while let Some(message) = self.endpoint.recv(now) {
            self.take(message, rng, now);
            if rng.one_in(3) {
                break;
            }
        }
        // What a repair is awaited for is not restored.
        if self.app.misses == 0 && self.app.restored < self.app.got && rng.one_in(2) {
            self.app.restored += 1 + rng.below(self.app.got - self.app.restored);
            self.endpoint.acknowledge(self.app.restored, self.app.restored * 10, now);
        }
    }

    fn take(&mut self, message: Message, rng: &mut Rng, now: Instant) {
        match message {
            Message::Open(_) => {
                self.app = self.next.take().expect("opened once");
                self.endpoint.send(&Message::Opened { recording: 5 }, now).unwrap();
                self.app.opened = true;
            }
            Message::Opened { recording } => {
                assert!(recording == 5 && !self.app.opened, "opened twice");
                self.app.opened = true;
            }
            Message::Data(data) => {
                assert_eq!(data[..8], self.app.got.to_le_bytes(), "out of order, lost or doubled");
                assert!(!self.app.got_fin);
                if rng.one_in(20) && self.endpoint.has_room() {
                    self.endpoint.send(&Message::Feedback(Bytes::from_static(b"miss")), now).unwrap();
                    self.app.misses += 1;
                } else if rng.one_in(4) && self.endpoint.has_room() {
                    // Needs no answer and keeps nothing from being restored, but belongs to the session all the same.
                    self.endpoint.send(&Message::Feedback(Bytes::from_static(b"forget")), now).unwrap();
                }
                self.app.got += 1;
            }
            Message::Feedback(data) if data[..] == b"miss"[..] => {
                self.endpoint.send(&Message::Feedback(Bytes::from_static(b"ok")), now).unwrap();
            }
            Message::Feedback(data) if data[..] == b"forget"[..] => {}
            Message::Feedback(_) => {
                self.app.misses = self.app.misses.checked_sub(1).expect("a repair that was not asked for")
            }
            Message::Fin => {
                assert!(!self.app.got_fin, "ended twice");
                self.app.got_fin = true;
            }
            Message::Reset { reason } | Message::Failed { reason, .. } => {
                assert!(self.app.ended.is_none(), "ended twice");
                self.app.ended = Some(reason);
            }
        }
    }

    /// Moves bytes from the endpoint into `wire`, up to a random amount.
    fn write(&mut self, wire: &mut BytesMut, rng: &mut Rng, now: Instant) {
        self.endpoint.handle_timeout(now);
        let mut slices = [IoSlice::new(&[]); 5];
        let most = 1 + rng.below(3_000) as usize;
        let used = self.endpoint.fill(&mut slices, most, now);
        let offered: usize = slices[..used].iter().map(|slice| slice.len()).sum();
        assert!(offered <= most);
        if offered > 0 {
            let taken = 1 + rng.below(offered as u64) as usize;
            let mut left = taken;
            for slice in &slices[..used] {
                let part = left.min(slice.len());
                wire.extend_from_slice(&slice[..part]);
                left -= part;
            }
            self.endpoint.advance(taken, now);
        }
    }

    /// Takes some of the bytes that have arrived.
    fn read(&mut self, rng: &mut Rng, now: Instant) {
        let part = rng.below(self.incoming.len() as u64 + 1) as usize;
        if part > 0 {
            self.undecoded.extend_from_slice(&self.incoming.split_to(part));
            self.endpoint.heard(now);
        }
        while let Some(frame) = decode(&mut self.undecoded).unwrap() {
            self.endpoint.handle(frame, now).unwrap();
        }
    }

    fn is_settled(&self) -> bool {
        self.endpoint.state() == State::Idle
    }
}

/// A virtual clock needs some origin; its value never matters.
#[allow(clippy::disallowed_methods)]
fn origin() -> Instant {
    Instant::now()
}

/// Data that begins with its number. A frame has to get through within one link's life, so the long ones are only for
/// links that live.
fn block(number: u64, long: usize, rng: &mut Rng) -> Bytes {
    let len = if rng.one_in(50) { long } else { 8 + rng.below(400) as usize };
    let mut data = number.to_le_bytes().to_vec();
    data.resize(len, 1);
    data.into()
}

fn open() -> Message {
    Message::Open(Open {
        host: "files".into(),
        port: 445,
        domain: Domain("d".into()),
        reduce: true,
        structured: true,
        accelerated: false,
        recording: 1,
        source: ([127, 0, 0, 1], 1).into(),
    })
}

struct World {
    client: Node,
    server: Node,
    rng: Rng,
    now: Instant,
    /// One in how many steps the link is cut.
    cuts: u64,
    down_until: Option<Instant>,
    resumes: u64,
}

impl World {
    fn new(seed: u64, cuts: u64) -> World {
        let now = origin();
        let (client, server) = (Node::new(Side::Client, now), Node::new(Side::Server, now));
        World { client, server, rng: Rng(seed), now, cuts, down_until: None, resumes: 0 }
    }

    fn step(&mut self) {
        self.now += Duration::from_micros(self.rng.below(4_000));
        let (rng, now) = (&mut self.rng, self.now);
        self.client.act(rng, now);
        self.server.act(rng, now);
        match self.down_until {
            Some(until) if now < until => return,
            Some(_) => return self.resume(),
            None if rng.one_in(self.cuts) => return self.cut(),
            None => {}
        }
        self.client.write(&mut self.server.incoming, rng, now);
        self.server.write(&mut self.client.incoming, rng, now);
        self.client.read(rng, now);
        self.server.read(rng, now);
    }

    /// Loses everything on the way in both directions, whether one side had it half or not at all.
    fn cut(&mut self) {
        for node in [&mut self.client, &mut self.server] {
            node.incoming.clear();
            node.undecoded.clear();
            node.endpoint.link_down();
        }
        self.down_until = Some(self.now + Duration::from_millis(self.rng.below(3_000)));
    }

    /// Brings a new link up; sometimes it dies before both sides know of it, and is replaced by another.
    fn resume(&mut self) {
        let (at_client, at_server) = (self.client.endpoint.arrived(), self.server.endpoint.arrived());
        self.server.endpoint.link_up(at_client, self.now).unwrap();
        if self.rng.one_in(3) {
            let mut lost = BytesMut::new();
            self.server.write(&mut lost, &mut self.rng, self.now);
            self.server.endpoint.link_up(at_client, self.now).unwrap();
        }
        self.client.endpoint.link_up(at_server, self.now).unwrap();
        self.down_until = None;
        self.resumes += 1;
    }

    /// Runs until the condition holds.
    fn until(&mut self, what: &str, done: impl Fn(&World) -> bool) {
        for _ in 0..2_000_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        panic!("never: {what}; {:?} {:?}", self.client.endpoint.state(), self.server.endpoint.state());
    }
}

fn seeds() -> u64 {
    std::env::var("ISTHMUS_SIM_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS)
}

/// Names the seed if the test fails in it.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

#[test]
fn every_message_arrives_once_and_in_order_over_links_that_die() {
    let mut resumes = 0;
    for seed in 0..seeds() {
        let _named = Named(seed);
        let (cuts, long) =
            [(40, 2_000), (200, 20_000), (2_000, 100_000), (u64::MAX, 300_000)][seed as usize % 4];
        let mut world = World::new(seed, cuts);
        for session in 1..=3 {
            let (up, down) = (world.rng.below(150), world.rng.below(150));
            let lazy = world.rng.one_in(3);
            world.client.begin(up, lazy, long);
            world.server.await_open(down, world.rng.0 & 1 == 1, long);
            let now = world.now;
            world.client.endpoint.send(&open(), now).unwrap();
            // The next session may be opened at once, before the server side knows that this one has settled.
            let at_once = session < 3 && world.rng.one_in(2);
            world.until("settled", |world| {
                world.client.is_settled() && (at_once || world.server.is_settled())
            });
            assert!(world.server.next.is_none());
            world.client.check_over(down);
            world.server.check_over(up);
            assert_eq!(world.client.endpoint.session(), session);
            assert_eq!(world.client.endpoint.progress().restored, up);
            assert_eq!(world.client.endpoint.unsent_bytes(), 0);
        }
        assert_eq!(world.server.endpoint.unsent_bytes(), 0);
        resumes += world.resumes;
    }
    assert!(resumes > seeds(), "only {resumes} links died");
}

/// Moves everything that one side has to say now, in order, up to `most` bytes. Returns how many there were.
fn carry(from: &mut Endpoint, to: &mut Endpoint, most: usize, now: Instant) -> usize {
    let mut wire = BytesMut::new();
    loop {
        let mut slices = [IoSlice::new(&[]); 16];
        let used = from.fill(&mut slices, 1 << 20, now);
        let before = wire.len();
        slices[..used].iter().for_each(|slice| wire.extend_from_slice(slice));
        if wire.len() == before {
            break;
        }
        from.advance(wire.len() - before, now);
    }
    let written = wire.len();
    wire.truncate(most);
    while let Some(frame) = decode(&mut wire).unwrap() {
        to.handle(frame, now).unwrap();
    }
    written
}

/// Both ends of a channel whose first session needs nothing more to be over than the client side's last
/// acknowledgement.
fn about_to_settle(now: Instant) -> [Endpoint; 2] {
    let (mut client, mut server) = (Endpoint::new(Side::Client, now), Endpoint::new(Side::Server, now));
    let late = now + Duration::from_millis(50);
    let data = Message::Data(Bytes::from_static(b"all there is"));
    for message in [open(), data.clone(), Message::Fin] {
        client.send(&message, now).unwrap();
    }
    carry(&mut client, &mut server, usize::MAX, now);
    (0..3).for_each(|_| drop(server.recv(now).unwrap()));
    server.acknowledge(1, 12, now);
    for message in [Message::Opened { recording: 5 }, data, Message::Fin] {
        server.send(&message, now).unwrap();
    }
    carry(&mut server, &mut client, usize::MAX, late);
    (0..3).for_each(|_| drop(client.recv(now).unwrap()));
    client.acknowledge(1, 12, now);
    [client, server]
}

#[test]
fn a_session_opens_wherever_the_link_dies_while_it_is_opened() {
    let now = origin();
    let late = now + Duration::from_millis(50);
    let mut all = 1;
    for (reached, answered) in (0..100 * 30).map(|n| (n / 30, n % 30)) {
        let [mut client, mut server] = about_to_settle(now);
        if reached > all {
            assert!(reached > 30, "an acknowledgement and an open are longer than {all} bytes");
            return;
        }
        // The client side has settled when its acknowledgement is written, whether it arrives or not.
        let acked = carry(&mut client, &mut server, reached, late);
        assert_eq!((client.state(), acked > 0), (State::Idle, true));
        client.send(&open(), late).unwrap();
        let left = reached.saturating_sub(acked);
        all = acked + carry(&mut client, &mut server, left, late);
        let has_opened = server.session() == 2;
        if has_opened {
            assert!(matches!(server.recv(late), Some(Message::Open(_))));
            server.send(&Message::Opened { recording: 6 }, late).unwrap();
            carry(&mut server, &mut client, answered, late);
        }
        let arrived = [client.arrived(), server.arrived()];
        [&mut client, &mut server].into_iter().for_each(Endpoint::link_down);
        assert!(server.can_resume(arrived[0]), "{reached} {answered}");
        server.link_up(arrived[0], late).unwrap();
        client.link_up(arrived[1], late).unwrap();
        carry(&mut client, &mut server, usize::MAX, late);
        assert_eq!((server.state(), server.session(), server.settled()), (State::Open, 2, 1));
        if !has_opened {
            assert!(matches!(server.recv(late), Some(Message::Open(_))), "{reached} {answered}");
            server.send(&Message::Opened { recording: 6 }, late).unwrap();
        }
        carry(&mut server, &mut client, usize::MAX, late);
        assert_eq!(client.recv(late), Some(Message::Opened { recording: 6 }), "{reached} {answered}");
        assert_eq!(server.progress(), Progress::default(), "counts of the session before");
    }
    panic!("never reached the end of an open");
}

#[test]
fn a_reset_reaches_the_other_side_over_links_that_die() {
    for seed in 0..seeds() {
        let _named = Named(seed);
        let mut world = World::new(seed, [5, 50, 1_000][seed as usize % 3]);
        world.client.begin(100_000, false, 10_000);
        world.server.await_open(100_000, true, 10_000);
        let now = world.now;
        world.client.endpoint.send(&open(), now).unwrap();
        let steps = world.rng.below(400);
        (0..steps).for_each(|_| world.step());
        let reset = Message::Reset { reason: Reason::ApplicationReset };
        let now = world.now;
        if seed % 2 == 0 || !world.server.app.opened {
            world.client.endpoint.send(&reset, now).unwrap();
            world.until("server told", |world| {
                matches!(world.server.endpoint.state(), State::Over(Reason::ApplicationReset))
            });
            assert_eq!(
                world.server.endpoint.session() == 1,
                world.server.endpoint.has_message() || world.server.app.ended.is_some()
            );
        } else {
            world.server.endpoint.send(&reset, now).unwrap();
            world.until("client told", |world| world.client.app.ended == Some(Reason::ApplicationReset));
        }
    }
}

#[test]
fn a_reader_that_takes_nothing_bounds_both_buffers() {
    let mut world = World::new(1, u64::MAX);
    world.client.begin(0, false, 0);
    world.server.await_open(0, false, 0);
    let now = world.now;
    world.client.endpoint.send(&open(), now).unwrap();
    world.until("open", |world| world.client.app.opened);
    let mut accepted = 0;
    for _ in 0..20_000 {
        let now = world.now;
        if world.client.endpoint.has_room() {
            world.client.endpoint.send(&Message::Data(vec![0; 4_096].into()), now).unwrap();
            accepted += 4_096;
        }
        let mut slices = [IoSlice::new(&[]); 8];
        let used = world.client.endpoint.fill(&mut slices, 64 << 10, now);
        let bytes: Vec<u8> = slices[..used].iter().flat_map(|slice| slice.to_vec()).collect();
        world.client.endpoint.advance(bytes.len(), now);
        world.server.undecoded.extend_from_slice(&bytes);
        // The server's application takes nothing, but its endpoint goes on reading the link.
        while let Some(frame) = decode(&mut world.server.undecoded).unwrap() {
            world.server.endpoint.handle(frame, now).unwrap();
        }
    }
    assert!(accepted <= limits::RESUME_BUFFER_BYTES, "{accepted} bytes accepted");
    assert!(accepted >= limits::RESUME_BUFFER_BYTES * 9 / 10, "{accepted} bytes accepted");
    assert_eq!(world.client.endpoint.progress(), Progress::default());
}

#[test]
fn a_silent_link_is_suspected_only_while_something_is_awaited() {
    let mut now = origin();
    let mut client = Endpoint::new(Side::Client, now);
    assert_eq!(client.poll_timeout(true), None, "an idle channel needs no timer");
    client.send(&open(), now).unwrap();
    let mut sink = BytesMut::new();
    let mut rng = Rng(3);
    let mut node = Node { endpoint: client, ..Node::new(Side::Client, now) };
    let began = now;
    while !node.endpoint.is_suspect() {
        node.write(&mut sink, &mut rng, now);
        if let Some(due) = node.endpoint.poll_timeout(true) {
            now = due.max(now + Duration::from_millis(1));
        }
    }
    let silence = now - began;
    assert!((Duration::from_millis(1_900)..Duration::from_millis(2_500)).contains(&silence), "{silence:?}");
    node.endpoint.heard(now);
    assert!(!node.endpoint.is_suspect());
}

#[test]
fn what_the_protocol_forbids_ends_the_link() {
    use isthmus_tunnel::{Ack, Error, Frame};
    let now = origin();
    let data = || Frame::Message(Message::Data(Bytes::from_static(b"x")));
    let opened_server = || {
        let mut server = Endpoint::new(Side::Server, now);
        server.handle(Frame::Message(open()), now).unwrap();
        server
    };
    let misbehaves = |mut endpoint: Endpoint, frames: Vec<Frame>| {
        let last = frames.len() - 1;
        for (i, frame) in frames.into_iter().enumerate() {
            let outcome = endpoint.handle(frame, now);
            assert_eq!(matches!(outcome, Err(Error::PeerMisbehaved(_))), i == last, "{outcome:?}");
        }
    };
    misbehaves(Endpoint::new(Side::Server, now), vec![data()]);
    misbehaves(opened_server(), vec![Frame::Message(open())]);
    misbehaves(opened_server(), vec![Frame::Message(Message::Opened { recording: 1 })]);
    misbehaves(opened_server(), vec![Frame::Message(Message::Fin), data()]);
    misbehaves(opened_server(), vec![Frame::Ack(Ack { taken: 1, odd: true, ..Ack::default() })]);
    misbehaves(opened_server(), vec![Frame::Ack(Ack { restored: 1, odd: true, ..Ack::default() })]);
    misbehaves(opened_server(), vec![Frame::Joined]);
    misbehaves(
        opened_server(),
        vec![Frame::Message(Message::Failed { reason: Reason::Draining, detail: String::new() })],
    );
    let mut client = Endpoint::new(Side::Client, now);
    client.send(&open(), now).unwrap();
    misbehaves(client, vec![data()]);
    let mut flooded = opened_server();
    let block = || Frame::Message(Message::Data(vec![0; 300_000].into()));
    assert!(
        (0..100).map(|_| flooded.handle(block(), now)).any(|outcome| outcome.is_err()),
        "no bound on what arrives"
    );
    assert!(opened_server().link_up(1, now).is_err(), "a resume beyond what was sent");
}

#[test]
fn a_resume_that_was_overtaken_is_told_from_one_that_is_not() {
    let now = origin();
    let mut server = Node::new(Side::Server, now);
    server.endpoint.handle(isthmus_tunnel::Frame::Message(open()), now).unwrap();
    server.endpoint.send(&Message::Opened { recording: 1 }, now).unwrap();
    server.endpoint.send(&Message::Data(Bytes::from_static(b"x")), now).unwrap();
    let (mut wire, mut rng) = (BytesMut::new(), Rng(1));
    while server.endpoint.wants_transmit(now) {
        server.write(&mut wire, &mut rng, now);
    }
    assert!((0..=2).all(|arrived| server.endpoint.can_resume(arrived)), "nothing is taken yet");
    let taken = isthmus_tunnel::Ack { taken: 2, odd: true, ..isthmus_tunnel::Ack::default() };
    server.endpoint.handle(isthmus_tunnel::Frame::Ack(taken), now).unwrap();
    assert_eq!([0, 1, 2, 3].map(|arrived| server.endpoint.can_resume(arrived)), [false, false, true, false]);
    server.endpoint.link_up(2, now).unwrap();
}
