//! Admission control: no server gets more than so many requests at once, so that a slow one does not take the
//! others with it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts the requests under way to each server, up to a cap. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Admission {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    cap: usize,
    under_way: Mutex<HashMap<String, usize>>,
    refused: AtomicU64,
}

/// A request that is under way; the next may come when it is dropped.
#[derive(Debug)]
pub struct Admitted {
    inner: Arc<Inner>,
    server: String,
}

impl Admission {
    /// Lets so many requests at once go to any one server.
    pub fn new(cap: usize) -> Admission {
        let (under_way, refused) = Default::default();
        Admission { inner: Arc::new(Inner { cap, under_way, refused }) }
    }

    /// Lets a request go to a server, or refuses it: too many are waiting there.
    pub fn enter(&self, server: &str) -> Option<Admitted> {
        let mut under_way = self.inner.under_way();
        let here = under_way.get(server).copied().unwrap_or_default();
        if here >= self.inner.cap {
            self.inner.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        under_way.insert(server.to_owned(), here + 1);
        Some(Admitted { inner: Arc::clone(&self.inner), server: server.to_owned() })
    }

    /// How many requests were refused so far.
    pub fn refused(&self) -> u64 {
        self.inner.refused.load(Ordering::Relaxed)
    }

    /// How many requests are under way to each server that has any.
    pub fn under_way(&self) -> HashMap<String, usize> {
        self.inner.under_way().clone()
    }
}

impl Inner {
    fn under_way(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut under_way = self.inner.under_way();
        if let Some(here) = under_way.get_mut(&self.server) {
            *here -= 1;
            if *here == 0 {
                under_way.remove(&self.server);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_server_does_not_matter_to_the_others() {
        let admission = Admission::new(2);
        let (one, two) = (admission.enter("a"), admission.enter("a"));
        assert!(one.is_some() && two.is_some());
        assert!(admission.enter("a").is_none());
        assert!(admission.enter("b").is_some());
        assert_eq!(admission.refused(), 1);
        drop(one);
        assert!(admission.enter("a").is_some());
        drop(two);
        assert!(admission.under_way().is_empty(), "a server that is gone is forgotten");
    }
}
