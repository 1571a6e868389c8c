//! Clients of which not all users have keys: round trips are not removed for any of them, since a session without keys cannot
//! be on a connection on which messages are changed.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a client is taken for one of these.
pub(crate) const MIXED_TIME: Duration = Duration::from_secs(8 * 3600);
/// Clients and targets that are remembered.
const MIXED_MAX: usize = 4096;

/// Which they are, each with its target and since when.
#[derive(Default)]
pub(crate) struct Mixed(Mutex<HashMap<(IpAddr, String), Instant>>);

impl Mixed {
    pub fn note(&self, client: IpAddr, target: String) {
        self.note_at(client, target, Instant::now());
    }

    pub fn is_known(&self, client: IpAddr, target: &str) -> bool {
        self.is_known_at(client, target, Instant::now())
    }

    fn note_at(&self, client: IpAddr, target: String, now: Instant) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MIXED_MAX {
            known.retain(|_, since| now.duration_since(*since) < MIXED_TIME);
        }
        if known.len() >= MIXED_MAX
            && let Some(oldest) = known.iter().min_by_key(|(_, since)| **since).map(|(key, _)| key.clone())
        {
            known.remove(&oldest);
        }
        known.insert((client, target), now);
    }

    fn is_known_at(&self, client: IpAddr, target: &str, now: Instant) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&(client, target.to_owned())).is_some_and(|since| now.duration_since(*since) < MIXED_TIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn a_client_is_remembered_for_its_target_and_time() {
        let (mixed, now) = (Mixed::default(), Instant::now());
        mixed.note_at(CLIENT, "fs:445".into(), now);
        assert!(mixed.is_known_at(CLIENT, "fs:445", now + MIXED_TIME - Duration::from_secs(1)));
        assert!(!mixed.is_known_at(CLIENT, "fs:445", now + MIXED_TIME));
        assert!(!mixed.is_known_at(CLIENT, "other:445", now));
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let (mixed, now) = (Mixed::default(), Instant::now());
        for number in 0..=MIXED_MAX {
            mixed.note_at(CLIENT, number.to_string(), now + Duration::from_millis(number as u64));
        }
        let later = now + Duration::from_secs(60);
        assert!(!mixed.is_known_at(CLIENT, "0", later) && mixed.is_known_at(CLIENT, "1", later));
        assert_eq!(mixed.0.lock().unwrap().len(), MIXED_MAX);
    }
}
