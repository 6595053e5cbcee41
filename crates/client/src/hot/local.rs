//! A copy of the latest table for each thread, so that a read touches nothing that another thread writes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;

/// The latest of something that is replaced as a whole.
#[derive(Debug)]
pub(super) struct Published<T> {
    /// Another number after every replacement, and no other table of this process ever has the same: who finds the
    /// number that it knows has the latest.
    version: AtomicU64,
    current: ArcSwap<T>,
}

/// A number that nothing has had before. Zero is none.
fn next_version() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl<T> Published<T> {
    pub(super) fn new(first: T) -> Arc<Published<T>> {
        Arc::new(Published { version: AtomicU64::new(next_version()), current: ArcSwap::from_pointee(first) })
    }

    /// Every read that begins from now on sees this.
    pub(super) fn publish(&self, next: T) {
        self.current.store(Arc::new(next));
        self.version.store(next_version(), Ordering::Release);
    }

    /// The latest, for those who are in no hurry.
    pub(super) fn get(&self) -> Arc<T> {
        self.current.load_full()
    }
}

/// What one thread keeps of something published, and reads.
pub(super) trait View<T> {
    /// The first look of this thread.
    fn of(latest: &T) -> Self;

    /// Something new was published.
    fn refresh(&mut self, latest: &T);
}

/// The views of one thread. Most threads read one table most of the time: it stands first.
///
/// A thread that stops reading keeps its last view in memory until it reads something new or ends.
pub(super) struct Local<T, V> {
    first: Option<Entry<T, V>>,
    others: Vec<Entry<T, V>>,
}

struct Entry<T, V> {
    /// Of what it is a view. As long as this exists, nothing else is published at the same address.
    source: Weak<Published<T>>,
    /// The version before the view was made: what is published in between is looked at once more.
    version: u64,
    view: V,
}

impl<T, V> Local<T, V> {
    pub(super) const fn new() -> Local<T, V> {
        Local { first: None, others: Vec::new() }
    }
}

impl<T, V: View<T>> Local<T, V> {
    /// The view of the latest.
    #[inline(always)]
    pub(super) fn view(&mut self, published: &Arc<Published<T>>) -> &mut V {
        let version = published.version.load(Ordering::Acquire);
        if self.first.as_ref().is_none_or(|entry| entry.version != version) {
            self.look_again(published, version);
        }
        &mut self.first.as_mut().expect("it was put there").view
    }

    /// Puts a view of the latest first.
    #[cold]
    #[inline(never)]
    fn look_again(&mut self, published: &Arc<Published<T>>, version: u64) {
        let is_it = |entry: &Entry<T, V>| entry.source.as_ptr() == Arc::as_ptr(published);
        if !self.first.as_ref().is_some_and(is_it) {
            self.others.extend(self.first.take());
            let found = self.others.iter().position(is_it);
            self.first = found.map(|at| self.others.swap_remove(at));
        }
        match &mut self.first {
            Some(entry) if entry.version == version => {}
            Some(entry) => {
                entry.version = version;
                entry.view.refresh(&published.get());
            }
            None => self.meet(published, version),
        }
    }

    /// The first read of this thread. What is gone meanwhile is forgotten.
    fn meet(&mut self, published: &Arc<Published<T>>, version: u64) {
        self.others.retain(|entry| entry.source.strong_count() > 0);
        let view = V::of(&published.get());
        self.first = Some(Entry { source: Arc::downgrade(published), version, view });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Seen {
        value: i32,
        refreshed: u32,
    }

    impl View<i32> for Seen {
        fn of(latest: &i32) -> Seen {
            Seen { value: *latest, refreshed: 0 }
        }

        fn refresh(&mut self, latest: &i32) {
            self.value = *latest;
            self.refreshed += 1;
        }
    }

    #[test]
    fn a_read_sees_what_was_published_last() {
        let published = Published::new(1);
        let mut local: Local<i32, Seen> = Local::new();
        assert_eq!(local.view(&published).value, 1);
        published.publish(2);
        for _ in 0..2 {
            let seen = local.view(&published);
            assert_eq!((seen.value, seen.refreshed), (2, 1));
        }
    }

    #[test]
    fn views_of_several_things_are_kept_apart() {
        let published = [Published::new(0), Published::new(10), Published::new(20)];
        let mut local: Local<i32, Seen> = Local::new();
        for round in 0..4 {
            for (number, source) in (0..).zip(&published) {
                let seen = local.view(source);
                assert_eq!((seen.value, seen.refreshed), (number * 10 + round, round as u32));
                source.publish(number * 10 + round + 1);
            }
        }
        assert_eq!(local.others.len(), 2);
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let mut local: Local<i32, Seen> = Local::new();
        let kept = Published::new(0);
        local.view(&kept);
        for number in 0..10 {
            let published = Published::new(number);
            assert_eq!(local.view(&published).value, number);
        }
        assert_eq!(local.others.len(), 1);
    }
}
