//! Counts the connections that each client has to each server.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Key = (IpAddr, String);

/// All counts above 0.
#[derive(Default)]
pub(crate) struct Company(Mutex<HashMap<Key, Arc<AtomicUsize>>>);

/// One connection; it counts until it is dropped.
pub(crate) struct Member {
    company: Arc<Company>,
    key: Key,
    /// Connections of this client to this server.
    pub count: Arc<AtomicUsize>,
}

impl Company {
    /// A connection more.
    pub fn join(self: &Arc<Self>, client: IpAddr, target: String) -> Member {
        let key = (client, target);
        let count = self.lock().entry(key.clone()).or_default().clone();
        count.fetch_add(1, Ordering::Relaxed);
        Member { company: self.clone(), key, count }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<AtomicUsize>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut counts = self.company.lock();
        if self.count.fetch_sub(1, Ordering::Relaxed) == 1 {
            counts.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_client_to_one_server_count_together() {
        let (company, client) = (Arc::<Company>::default(), IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));
        let one = company.join(client, "fs:445".into());
        let other = company.join(client, "other:445".into());
        let count = |member: &Member| member.count.load(Ordering::Relaxed);
        assert_eq!((count(&one), count(&other)), (1, 1));
        let second = company.join(client, "fs:445".into());
        assert_eq!((count(&one), count(&second)), (2, 2));
        drop(second);
        assert_eq!(count(&one), 1);
        drop((one, other));
        assert!(company.lock().is_empty());
    }
}
