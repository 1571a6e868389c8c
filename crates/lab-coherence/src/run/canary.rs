//! Measures how long the notification of a break, and of a change in a folder, takes through a pair, all the while others
//! are at work.

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

/// Two clients: one holds a lease, or watches a folder, through the pair, the other writes without it.
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
                let (broken, changed) = (
                    self.break_once(&holder, &writer, round).await,
                    self.change_once(&holder, &writer).await,
                );
                let (Ok(broken), Ok(changed)) = (broken, changed) else { break };
                deliveries.borrow_mut().extend([broken, changed]);
                tokio::time::sleep(PAUSE).await;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn break_once(
        &self,
        holder: &Connection,
        writer: &Connection,
        round: u64,
    ) -> Result<Delivery, Failure> {
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
        Ok(self.delivery(back, seen))
    }

    async fn change_once(&self, holder: &Connection, writer: &Connection) -> Result<Delivery, Failure> {
        let folder = OpenRequest {
            path: format!("canaries{}", self.pair),
            access: AccessMask::READ_DATA,
            options: CreateOptions::DIRECTORY_FILE,
            ..self.open(Caching::None)
        };
        let file = OpenRequest {
            path: format!("{}\\one", folder.path),
            access: AccessMask::WRITE_DATA.with(AccessMask::DELETE),
            options: CreateOptions::NON_DIRECTORY_FILE.with(CreateOptions::DELETE_ON_CLOSE),
            ..self.open(Caching::None)
        };
        let watched = holder.open(&folder).await?;
        let mut change = std::pin::pin!(holder.watch(watched.file_id));
        tokio::select! {
            biased;
            early = &mut change => early?,
            // What is asked after it is answered when the server watches.
            asked = holder.query(watched.file_id) => drop(asked?),
        }
        let (_, closed) = writer.touch(&file).await?;
        closed?;
        let back = Instant::now();
        let seen = match tokio::time::timeout(LIMIT, change).await {
            Ok(change) => change.map(|()| Instant::now())?,
            Err(_) => Instant::now(),
        };
        holder.close(watched.file_id).await?;
        Ok(self.delivery(back, seen))
    }

    fn delivery(&self, back: Instant, seen: Instant) -> Delivery {
        let micros = |duration: Duration| duration.as_micros() as Time;
        Delivery {
            pair: self.pair,
            at: micros(back.saturating_duration_since(self.epoch)),
            took: micros(seen.saturating_duration_since(back)),
        }
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
