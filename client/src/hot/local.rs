//! A copy of the latest table for each thread, so that a read touches nothing that another thread writes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::{ArcSwap, Cache};

/// The latest of something that is replaced as a whole.
#[derive(Debug)]
pub(super) struct Published<T> {
    /// Names it among everything this process publishes; never used again.
    id: u64,
    alive: Arc<()>,
    current: Arc<ArcSwap<T>>,
}

impl<T> Published<T> {
    pub(super) fn new(first: T) -> Published<T> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let id = LAST.fetch_add(1, Ordering::Relaxed);
        Published { id, alive: Arc::new(()), current: Arc::new(ArcSwap::from_pointee(first)) }
    }

    /// Every read that begins from now on sees this.
    pub(super) fn publish(&self, next: T) {
        self.current.store(Arc::new(next));
    }

    /// The latest, for those who are in no hurry.
    pub(super) fn get(&self) -> Arc<T> {
        self.current.load_full()
    }
}

/// What one thread keeps of everything it reads: the latest table seen, and something of the thread's own beside it.
///
/// A thread that stops reading keeps its last table in memory until it reads something new or ends.
pub(super) struct Local<T, X> {
    entries: Vec<Entry<T, X>>,
}

struct Entry<T, X> {
    id: u64,
    alive: Weak<()>,
    cache: Cache<Arc<ArcSwap<T>>, Arc<T>>,
    own: X,
}

impl<T, X: Default> Local<T, X> {
    pub(super) const fn new() -> Local<T, X> {
        Local { entries: Vec::new() }
    }

    /// Reads the latest. Most threads read one table most of the time: it stands first.
    #[inline(always)]
    pub(super) fn read<R>(&mut self, published: &Published<T>, read: impl FnOnce(&T, &mut X) -> R) -> R {
        if self.entries.first().is_none_or(|entry| entry.id != published.id) {
            self.bring_forward(published);
        }
        let entry = &mut self.entries[0];
        read(entry.cache.load(), &mut entry.own)
    }

    #[cold]
    fn bring_forward(&mut self, published: &Published<T>) {
        let found = self.entries.iter().position(|entry| entry.id == published.id);
        let at = found.unwrap_or_else(|| self.meet(published));
        self.entries.swap(0, at);
    }

    /// The first read of this thread. What is gone meanwhile is forgotten.
    #[cold]
    fn meet(&mut self, published: &Published<T>) -> usize {
        self.entries.retain(|entry| entry.alive.strong_count() > 0);
        self.entries.push(Entry {
            id: published.id,
            alive: Arc::downgrade(&published.alive),
            cache: Cache::new(Arc::clone(&published.current)),
            own: X::default(),
        });
        self.entries.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_sees_what_was_published_last() {
        let published = Published::new(1);
        let mut local: Local<i32, u32> = Local::new();
        assert_eq!(local.read(&published, |value, _| *value), 1);
        published.publish(2);
        let (value, reads) = local.read(&published, |value, reads| {
            *reads += 1;
            (*value, *reads)
        });
        assert_eq!((value, reads), (2, 1));
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let mut local: Local<i32, ()> = Local::new();
        let kept = Published::new(0);
        local.read(&kept, |_, ()| ());
        for number in 0..10 {
            let published = Published::new(number);
            assert_eq!(local.read(&published, |value, ()| *value), number);
        }
        assert_eq!(local.entries.len(), 2);
    }
}
