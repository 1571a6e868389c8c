//! One direction of an IP link as a state machine: packets and times in, packets out.
//!
//! Two stages of the netem model in a row. The first is the bottleneck: a drop-tail queue that empties at the link's
//! rate. The second is the way behind it: delay and loss. One stage would not do, since its buffer would also count the
//! packets that are on their way, and a long link would have a queue that is too short.

use super::shape::{LinkShape, Loss};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::time::Instant;
use str0m_netem::{
    Bitrate, DataSize, GilbertElliot, Input, LossModel, Netem, NetemConfig, Output, Probability, RandomLoss,
};

/// Most bytes that may be on their way behind the bottleneck.
const LINE_BYTES_MAX: i64 = 512 * 1024 * 1024;

/// Rate of the second stage: high enough to add nothing, and there at all because a rate keeps packets in order when
/// the delay is shortened while some are on their way.
const LINE_GBPS: u64 = 100_000;

/// What happened to the packets of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStats {
    /// Packets given to the link.
    pub packets_in: u64,
    /// Bytes given to the link, IP headers included.
    pub bytes_in: u64,
    /// Packets that arrived.
    pub packets_out: u64,
    /// Bytes that arrived, IP headers included.
    pub bytes_out: u64,
    /// Packets dropped because the queue was full.
    pub dropped_queue: u64,
    /// Packets lost on the way.
    pub dropped_loss: u64,
    /// Packets that met a cut link.
    pub dropped_cut: u64,
}

/// One direction of the link.
pub(crate) struct LinkModel {
    bottleneck: Netem<Bytes>,
    line: Netem<Bytes>,
    is_cut: bool,
    seed: u64,
    changes: u64,
    shape: LinkShape,
    stats: LinkStats,
}

impl LinkModel {
    /// An empty link of this shape; `seed` decides every loss to come.
    pub(crate) fn new(shape: LinkShape, seed: u64) -> LinkModel {
        LinkModel {
            bottleneck: Netem::new(bottleneck_config(&shape)),
            line: Netem::new(line_config(&shape, seed)),
            is_cut: false,
            seed,
            changes: 0,
            shape,
            stats: LinkStats::default(),
        }
    }

    /// Changes the link; packets that are queued or on their way keep their times.
    pub(crate) fn set_shape(&mut self, shape: LinkShape) {
        if shape == self.shape {
            return;
        }
        self.bottleneck.set_config(bottleneck_config(&shape));
        // The model starts its random numbers anew at each change, so each change gets a seed of its own.
        self.changes += 1;
        self.line.set_config(line_config(&shape, self.seed.wrapping_add(self.changes)));
        self.shape = shape;
    }

    /// Cuts the link or mends it.
    pub(crate) fn set_cut(&mut self, is_cut: bool) {
        self.is_cut = is_cut;
    }

    /// What has happened so far.
    pub(crate) fn stats(&self) -> LinkStats {
        self.stats
    }

    /// A packet comes to the link.
    pub(crate) fn offer(&mut self, now: Instant, packet: Bytes) {
        self.stats.packets_in += 1;
        self.stats.bytes_in += packet.len() as u64;
        if self.is_cut {
            self.stats.dropped_cut += 1;
            return;
        }
        self.advance(now);
        let before = self.bottleneck.queue_len();
        self.bottleneck.handle_input(Input::Packet(now, packet));
        if self.bottleneck.queue_len() == before {
            self.stats.dropped_queue += 1;
        }
        // On an idle link it leaves the bottleneck at once, with the delay that holds now.
        self.advance(now);
    }

    /// The next packet that has arrived by `now`, if any.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Bytes> {
        self.advance(now);
        while !self.line.is_empty() && self.line.poll_timeout() <= now {
            let packet = take(&mut self.line)?;
            if self.is_cut {
                self.stats.dropped_cut += 1;
                continue;
            }
            self.stats.packets_out += 1;
            self.stats.bytes_out += packet.len() as u64;
            return Some(packet);
        }
        None
    }

    /// When something happens next without a new packet.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let due = |stage: &Netem<Bytes>| (!stage.is_empty()).then(|| stage.poll_timeout());
        [due(&self.bottleneck), due(&self.line)].into_iter().flatten().min()
    }

    /// Moves what has left the bottleneck by `now` onto the line, each at its own exact time, so that lateness of the
    /// caller does not add up.
    fn advance(&mut self, now: Instant) {
        while !self.bottleneck.is_empty() {
            let left = self.bottleneck.poll_timeout();
            if left > now {
                return;
            }
            let Some(packet) = take(&mut self.bottleneck) else { return };
            let before = self.line.queue_len();
            self.line.handle_input(Input::Packet(left, packet));
            if self.line.queue_len() == before {
                self.stats.dropped_loss += 1;
            }
        }
    }
}

/// Takes the earliest packet out of a stage that is not empty.
fn take(stage: &mut Netem<Bytes>) -> Option<Bytes> {
    stage.handle_input(Input::Timeout(stage.poll_timeout()));
    match stage.poll_output() {
        Some(Output::Packet(packet)) => Some(packet),
        Some(Output::Timeout(_)) | None => None,
    }
}

fn bottleneck_config(shape: &LinkShape) -> NetemConfig {
    match shape.rate_bps {
        None => NetemConfig::new(),
        Some(rate) => NetemConfig::new()
            .link(Bitrate::bps(rate), DataSize::bytes(i64::try_from(shape.queue_bytes).unwrap_or(i64::MAX))),
    }
}

fn line_config(shape: &LinkShape, seed: u64) -> NetemConfig {
    NetemConfig::new()
        .latency(shape.delay)
        .loss(loss_model(shape.loss))
        .link(Bitrate::gbps(LINE_GBPS), DataSize::bytes(LINE_BYTES_MAX))
        .seed(seed)
}

fn loss_model(loss: Loss) -> LossModel {
    match loss {
        Loss::None => LossModel::None,
        Loss::Independent { probability } => {
            LossModel::Random(RandomLoss::new(Probability::new(probability.clamp(0.0, 1.0) as f32)))
        }
        Loss::Burst { probability, mean_packets } => {
            let share = probability.clamp(1e-6, 0.999_999);
            let bad = mean_packets.max(1.0);
            let good = bad * (1.0 - share) / share;
            let model = GilbertElliot::new().good_duration(good as f32).bad_duration(bad as f32);
            LossModel::GilbertElliot(model.loss_in_bad(Probability::ONE).loss_in_good(Probability::ZERO))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn packet(number: u32, len: usize) -> Bytes {
        let mut bytes = vec![0; len];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        bytes.into()
    }

    /// Everything that comes out, with its time, when the caller looks every `step`.
    fn drain(model: &mut LinkModel, from: Instant, step: Duration, steps: u32) -> Vec<(Duration, Bytes)> {
        let mut out = Vec::new();
        for i in 0..=steps {
            let now = from + step * i;
            while let Some(packet) = model.poll(now) {
                out.push((now - from, packet));
            }
        }
        out
    }

    #[test]
    fn delay_and_rate_are_exact_in_virtual_time() {
        let start = Instant::now();
        // 1,000 bytes at 8 Mbit/s: 1 ms each.
        let shape = LinkShape::new(Duration::from_millis(20), Some(8_000_000));
        let mut model = LinkModel::new(shape, 1);
        for number in 0..10 {
            model.offer(start, packet(number, 1000));
        }
        let out = drain(&mut model, start, Duration::from_micros(100), 400);
        let times: Vec<u128> = out.iter().map(|(time, _)| time.as_millis()).collect();
        assert_eq!(times, (20..30).collect::<Vec<u128>>());
        assert!(model.next_due().is_none());
    }

    #[test]
    fn the_queue_drops_its_tail_and_does_not_count_what_is_on_its_way() {
        let start = Instant::now();
        let mut shape = LinkShape::new(Duration::from_millis(100), Some(8_000_000));
        shape.queue_bytes = 5_000;
        let mut model = LinkModel::new(shape, 1);
        // One packet a millisecond is just what the link carries: nothing may be dropped though 100 are on their way.
        for number in 0..150 {
            model.offer(start + Duration::from_millis(number), packet(number as u32, 1000));
        }
        assert_eq!(model.stats().dropped_queue, 0);
        for number in 150..170 {
            model.offer(start + Duration::from_millis(150), packet(number, 1000));
        }
        let dropped = model.stats().dropped_queue;
        assert!((14..=15).contains(&dropped), "{dropped} of 20 at once; 5 fit the queue, one is being sent");
    }

    #[test]
    fn loss_has_the_rate_and_bursts_that_were_set_and_is_reproducible() {
        let run = |loss, seed| {
            let shape = LinkShape { loss, ..LinkShape::new(Duration::from_millis(1), None) };
            let mut model = LinkModel::new(shape, seed);
            let start = Instant::now();
            let mut arrived = Vec::new();
            for number in 0..100_000_u32 {
                let now = start + Duration::from_micros(u64::from(number) * 10);
                model.offer(now, packet(number, 100));
                while let Some(packet) = model.poll(now + Duration::from_micros(5)) {
                    arrived.push(u32::from_be_bytes([packet[0], packet[1], packet[2], packet[3]]));
                }
            }
            assert!(arrived.windows(2).all(|pair| pair[0] < pair[1]), "in order");
            (arrived, model.stats())
        };
        let one_percent = Loss::Independent { probability: 0.01 };
        let (arrived, stats) = run(one_percent, 5);
        assert!((850..1150).contains(&stats.dropped_loss), "{}", stats.dropped_loss);
        assert_eq!(arrived, run(one_percent, 5).0);
        assert_ne!(arrived, run(one_percent, 6).0);

        let (arrived, stats) = run(Loss::Burst { probability: 0.05, mean_packets: 4.0 }, 5);
        assert!((4_000..6_000).contains(&stats.dropped_loss), "{}", stats.dropped_loss);
        let bursts = arrived.windows(2).filter(|pair| pair[1] > pair[0] + 1).count() as f64;
        let mean = stats.dropped_loss as f64 / bursts;
        assert!((3.0..5.0).contains(&mean), "{mean}");
    }

    #[test]
    fn a_cut_loses_packets_and_a_shorter_delay_keeps_their_order() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut model = LinkModel::new(LinkShape::new(Duration::from_millis(50), None), 1);
        model.offer(start, packet(1, 100));
        model.set_shape(LinkShape::new(Duration::from_millis(5), None));
        model.offer(at(1), packet(2, 100));
        assert!(model.poll(at(49)).is_none());
        assert_eq!(model.poll(at(51)).unwrap()[3], 1);
        assert_eq!(model.poll(at(51)).unwrap()[3], 2);
        model.offer(at(60), packet(3, 100));
        model.set_cut(true);
        model.offer(at(61), packet(4, 100));
        assert!(model.poll(at(80)).is_none());
        model.set_cut(false);
        model.offer(at(81), packet(5, 100));
        assert_eq!(model.poll(at(90)).unwrap()[3], 5);
        let stats = model.stats();
        assert_eq!((stats.dropped_cut, stats.packets_in, stats.packets_out), (2, 5, 3));
    }
}
