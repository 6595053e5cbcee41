//! What happens to single messages on a link: lost, delayed, doubled, overtaken, or nothing at all.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use centrifuge_harness::Rng;
use tokio::sync::mpsc;

/// How often a message is lost, doubled or delayed, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkFaults {
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) delayed: u64,
    pub(crate) longest_delay: Duration,
}

impl LinkFaults {
    /// Nothing happens.
    pub(crate) const NONE: LinkFaults =
        LinkFaults { lost: 0, doubled: 0, delayed: 0, longest_delay: Duration::ZERO };
    /// Now and then something.
    pub(crate) const USUAL: LinkFaults =
        LinkFaults { lost: 1, doubled: 2, delayed: 5, longest_delay: Duration::from_millis(200) };
}

/// What happened to messages, over all links.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) carried: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) doubled: AtomicU64,
    pub(crate) delayed: AtomicU64,
    pub(crate) overtaken: AtomicU64,
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub(super) struct Way {
    state: Arc<Mutex<State>>,
    counts: Arc<Counts>,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    link_faults: LinkFaults,
    is_cut: bool,
    /// The number of the message that came last, and the highest that left.
    came: u64,
    left: u64,
}

impl Way {
    pub(super) fn new(rng: Rng, link_faults: LinkFaults, counts: &Arc<Counts>) -> Way {
        let state = State { rng, link_faults, is_cut: false, came: 0, left: 0 };
        Way { state: Arc::new(Mutex::new(state)), counts: Arc::clone(counts) }
    }

    pub(super) fn set_link_faults(&self, link_faults: LinkFaults) {
        self.lock().link_faults = link_faults;
    }

    pub(super) fn set_cut(&self, is_cut: bool) {
        self.lock().is_cut = is_cut;
    }

    /// Carries a message, with the link's faults. False if the receiver is gone.
    pub(super) async fn carry<T: Clone + Send + 'static>(&self, message: T, to: &mpsc::Sender<T>) -> bool {
        let (number, fates) = self.draw();
        for delay in fates {
            if delay.is_zero() {
                self.leaves(number);
                if to.send(message.clone()).await.is_err() {
                    return false;
                }
                continue;
            }
            let (way, message, to) = (self.clone(), message.clone(), to.clone());
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                way.leaves(number);
                // Whoever is gone does not wait for it.
                let _ = to.send(message).await;
            });
        }
        !to.is_closed()
    }

    /// Numbers a message and decides how often it arrives, and how late.
    fn draw(&self) -> (u64, Vec<Duration>) {
        let mut state = self.lock();
        state.came += 1;
        let (number, link_faults) = (state.came, state.link_faults);
        add(&self.counts.carried);
        if state.is_cut {
            return (number, Vec::new());
        }
        if state.rng.percent(link_faults.lost) {
            add(&self.counts.lost);
            return (number, Vec::new());
        }
        let copies = if state.rng.percent(link_faults.doubled) { 2 } else { 1 };
        if copies == 2 {
            add(&self.counts.doubled);
        }
        let fate = |_| {
            let is_late = state.rng.percent(link_faults.delayed);
            if is_late {
                add(&self.counts.delayed);
            }
            if is_late {
                state.rng.between(Duration::from_millis(1), link_faults.longest_delay)
            } else {
                Duration::ZERO
            }
        };
        (number, (0..copies).map(fate).collect())
    }

    fn leaves(&self, number: u64) {
        let mut state = self.lock();
        if number < state.left {
            add(&self.counts.overtaken);
        }
        state.left = state.left.max(number);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn carried(link_faults: LinkFaults, is_cut: bool) -> (Vec<u64>, Arc<Counts>) {
        let counts = Arc::new(Counts::default());
        let way = Way::new(Rng::new(1), link_faults, &counts);
        way.set_cut(is_cut);
        let (to, mut from) = mpsc::channel(1_000);
        for number in 0..100 {
            assert!(way.carry(number, &to).await);
        }
        drop(to);
        let mut arrived = Vec::new();
        while let Some(number) = from.recv().await {
            arrived.push(number);
        }
        (arrived, counts)
    }

    #[tokio::test(start_paused = true)]
    async fn without_faults_nothing_changes_and_a_cut_lets_nothing_through() {
        assert_eq!(carried(LinkFaults::NONE, false).await.0, (0..100).collect::<Vec<u64>>());
        assert!(carried(LinkFaults::NONE, true).await.0.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn faults_lose_double_and_reorder() {
        let link_faults =
            LinkFaults { lost: 20, doubled: 20, delayed: 20, longest_delay: Duration::from_millis(50) };
        let (arrived, counts) = carried(link_faults, false).await;
        let (lost, doubled) = (counts.lost.load(Ordering::Relaxed), counts.doubled.load(Ordering::Relaxed));
        assert!(lost > 5 && doubled > 5, "{counts:?}");
        assert_eq!(arrived.len() as u64, 100 - lost + doubled);
        assert!(!arrived.is_sorted() && counts.overtaken.load(Ordering::Relaxed) > 0);
    }
}
