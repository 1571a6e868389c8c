//! The shape of an emulated WAN: one set of properties for each direction.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Smallest drop-tail queue that the presets choose: some forty full-size packets.
const QUEUE_BYTES_MIN: u64 = 64 * 1024;

/// Queue of a link without a rate limit; it never fills, the value only bounds memory.
const QUEUE_BYTES_UNLIMITED: u64 = 64 * 1024 * 1024;

/// How packets get lost (IP-level emulator only; a TCP relay cannot lose anything).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Loss {
    /// Every packet arrives.
    #[default]
    None,
    /// Each packet is lost with this probability (0 to 1), whatever happened before.
    Independent {
        /// 0 to 1.
        probability: f64,
    },
    /// Losses come in bursts (a two-state Gilbert model).
    Burst {
        /// Long-run share of lost packets, 0 to 1.
        probability: f64,
        /// Mean number of consecutive lost packets, 1 or more.
        mean_packets: f64,
    },
}

/// One direction of the link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkShape {
    /// One-way propagation delay.
    pub delay: Duration,
    /// Bits a second; `None` is as fast as the machine.
    pub rate_bps: Option<u64>,
    /// Drop-tail queue before the bottleneck, in bytes (a relay pushes back instead of dropping).
    pub queue_bytes: u64,
    /// Loss on the way.
    pub loss: Loss,
}

/// Both directions of the link and the seed of its random decisions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WanShape {
    /// From the client's side to the server's side.
    pub up: LinkShape,
    /// From the server's side to the client's side.
    pub down: LinkShape,
    /// Makes the fate of the n-th packet reproducible.
    pub seed: u64,
}

impl LinkShape {
    /// A link with a queue of one bandwidth-delay product of the whole round trip.
    pub fn new(one_way: Duration, rate_bps: Option<u64>) -> LinkShape {
        let queue_bytes = match rate_bps {
            None => QUEUE_BYTES_UNLIMITED,
            Some(rate) => {
                let round_trip_us = one_way.as_micros() as u64 * 2;
                (rate / 8 * round_trip_us / 1_000_000).max(QUEUE_BYTES_MIN)
            }
        };
        LinkShape { delay: one_way, rate_bps, queue_bytes, loss: Loss::None }
    }

    /// The time that `bytes` occupy the bottleneck.
    pub fn transmission_time(&self, bytes: u64) -> Duration {
        match self.rate_bps {
            None | Some(0) => Duration::ZERO,
            Some(rate) => Duration::from_nanos((u128::from(bytes) * 8_000_000_000 / u128::from(rate)) as u64),
        }
    }
}

impl WanShape {
    /// The same in both directions: half of `round_trip` each way.
    pub fn symmetric(round_trip: Duration, rate_bps: Option<u64>) -> WanShape {
        WanShape::asymmetric(round_trip, rate_bps, rate_bps)
    }

    /// Different rates, the same delay each way.
    pub fn asymmetric(round_trip: Duration, up_bps: Option<u64>, down_bps: Option<u64>) -> WanShape {
        WanShape {
            up: LinkShape::new(round_trip / 2, up_bps),
            down: LinkShape::new(round_trip / 2, down_bps),
            seed: 1,
        }
    }

    /// No delay, no limit: counts bytes and can be cut, nothing else.
    pub fn open() -> WanShape {
        WanShape::symmetric(Duration::ZERO, None)
    }

    /// The link of the published comparison: 236 ms, 121.9 Mbit/s up, 29.3 Mbit/s down.
    pub fn published() -> WanShape {
        WanShape::asymmetric(Duration::from_millis(236), Some(121_900_000), Some(29_300_000))
    }

    /// The link of the open pair's measurements: 100 Mbit/s, 50 ms.
    pub fn hundred_megabit() -> WanShape {
        WanShape::symmetric(Duration::from_millis(50), Some(100_000_000))
    }

    /// The same link with this loss in both directions.
    pub fn with_loss(mut self, loss: Loss) -> WanShape {
        self.up.loss = loss;
        self.down.loss = loss;
        self
    }

    /// The same link with another seed.
    pub fn with_seed(mut self, seed: u64) -> WanShape {
        self.seed = seed;
        self
    }

    /// Sum of both one-way delays.
    pub fn round_trip(&self) -> Duration {
        self.up.delay + self.down.delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_holds_one_bandwidth_delay_product() {
        let wan = WanShape::published();
        assert_eq!(wan.round_trip(), Duration::from_millis(236));
        assert_eq!(wan.down.queue_bytes, 29_300_000 / 8 * 236 / 1000);
        assert_eq!(LinkShape::new(Duration::from_millis(1), Some(1_000_000)).queue_bytes, QUEUE_BYTES_MIN);
    }

    #[test]
    fn transmission_time_is_bits_over_rate() {
        let link = LinkShape::new(Duration::ZERO, Some(8_000_000));
        assert_eq!(link.transmission_time(1_000_000), Duration::from_secs(1));
        assert_eq!(LinkShape::new(Duration::ZERO, None).transmission_time(1 << 40), Duration::ZERO);
    }
}
