//! Measures how long the notification of a break takes through a pair, all the while others are at work.

use crate::client::{CacheKey, Caching, Connection, Failure, OpenRequest, Settings};
use crate::history::{READ_CACHING, Time};
use crate::rule::Delivery;
use isthmus_smb_wire::create_context::LeaseState;
use isthmus_smb_wire::messages::{AccessMask, CreateDisposition, CreateOptions, ShareAccess};
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// Pause between two measurements, and between two looks for the notification.
const PAUSE: Duration = Duration::from_millis(60);
const LOOK: Duration = Duration::from_millis(1);

/// What has not come by then counts as having taken so long.
const LIMIT: Duration = Duration::from_secs(5);

/// Two clients: one holds a lease through the pair, the other writes without it.
pub(super) struct Canary {
    pub pair: usize,
    pub through: Settings,
    pub direct: Settings,
    pub epoch: Instant,
}

impl Canary {
    /// Measures until it is dropped.
    pub async fn sing(&self, deliveries: &RefCell<Vec<Delivery>>) {
        let mut round = 0;
        loop {
            let (Ok(holder), Ok(writer)) =
                (Connection::log_on(&self.through).await, Connection::log_on(&self.direct).await)
            else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            loop {
                round += 1;
                match self.once(&holder, &writer, round).await {
                    Ok(delivery) => deliveries.borrow_mut().push(delivery),
                    Err(_) => break,
                }
                tokio::time::sleep(PAUSE).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn once(&self, holder: &Connection, writer: &Connection, round: u64) -> Result<Delivery, Failure> {
        let mut key = [0xca; 16];
        key[..8].copy_from_slice(&round.to_le_bytes());
        key[8] = self.pair as u8;
        let held = holder.open(&self.open(Caching::Lease { key, state: LeaseState(READ_CACHING) })).await?;
        let written = writer.open(&self.open(Caching::None)).await?;
        holder.take_breaks();
        writer.write(written.file_id, 0, &round.to_le_bytes()).await?;
        let back = Instant::now();
        let seen = loop {
            let breaks = holder.take_breaks();
            if let Some(seen) = breaks.into_iter().find(|seen| seen.key == CacheKey::Lease(key)) {
                break seen.at;
            }
            if back.elapsed() > LIMIT {
                break Instant::now();
            }
            tokio::time::sleep(LOOK).await;
        };
        writer.close(written.file_id).await?;
        holder.close(held.file_id).await?;
        let micros = |duration: Duration| duration.as_micros() as Time;
        Ok(Delivery {
            pair: self.pair,
            at: micros(back.saturating_duration_since(self.epoch)),
            took: micros(seen.saturating_duration_since(back)),
        })
    }

    fn open(&self, caching: Caching) -> OpenRequest {
        OpenRequest {
            path: format!("canary{}", self.pair),
            access: AccessMask::READ_DATA.with(AccessMask::WRITE_DATA),
            share: ShareAccess(7),
            disposition: CreateDisposition::OPEN_IF,
            options: CreateOptions::NON_DIRECTORY_FILE,
            caching,
        }
    }
}
