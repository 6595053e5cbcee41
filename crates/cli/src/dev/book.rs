//! What a caller was promised, key by key, and whether it was kept.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use centrifuge::Key;
use centrifuge::lookup::Loss;

/// How long the notice of a loss may take to follow its discovery.
const NOTICE: Duration = Duration::from_secs(10);

/// What callers found out about the pool. Every promise that was broken is kept as a sentence.
#[derive(Debug, Default)]
pub(super) struct Book {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pages: HashMap<String, Page>,
    violations: Vec<String>,
}

/// What is known of one key.
#[derive(Debug, Default)]
struct Page {
    /// The last value that was answered, unless a loss was announced since.
    value: Option<u64>,
    /// The highest lease that was answered under.
    generation: u64,
    /// Since when a value has been missing without a loss notice.
    missing_since: Option<Instant>,
    /// A request is on its way.
    is_asked: bool,
    /// A loss was announced since it went: its answer may be from before.
    is_stale: bool,
}

impl Book {
    /// A request goes out.
    pub(super) fn asked(&self, key: &str) {
        let mut state = self.lock();
        let page = state.pages.entry(key.to_owned()).or_default();
        page.is_asked = true;
        page.is_stale = false;
    }

    /// A server answered.
    pub(super) fn answered(&self, key: &str, value: u64, generation: u64) {
        let mut state = self.lock();
        let page = state.pages.entry(key.to_owned()).or_default();
        let mut broken = None;
        if generation < page.generation {
            let seen = page.generation;
            broken = Some(format!("{key} was served under lease {generation} after lease {seen}"));
        }
        page.generation = page.generation.max(generation);
        if page.value.is_some_and(|known| value <= known) {
            page.missing_since.get_or_insert_with(Instant::now);
        }
        page.value = (!page.is_stale).then_some(value);
        page.is_asked = false;
        state.violations.extend(broken);
    }

    /// The pool said that state is lost.
    pub(super) fn lost(&self, loss: &Loss) {
        let mut state = self.lock();
        for (key, page) in &mut state.pages {
            if loss.keys.contains(Key::of(key.as_bytes())) {
                page.value = None;
                page.missing_since = None;
                page.is_stale = page.is_asked;
            }
        }
    }

    /// How many promises were broken, those included whose time has just run out.
    pub(super) fn violations(&self) -> Vec<String> {
        let mut state = self.lock();
        let overdue = |page: &Page| page.missing_since.is_some_and(|since| since.elapsed() > NOTICE);
        let silent: Vec<String> =
            state.pages.iter().filter(|(_, page)| overdue(page)).map(|(key, _)| key.clone()).collect();
        for key in silent {
            if let Some(page) = state.pages.get_mut(&key) {
                page.missing_since = None;
            }
            state.violations.push(format!("the state of {key} was lost and nobody said so"));
        }
        state.violations.clone()
    }

    /// Whether some value is missing and its notice may still come.
    pub(super) fn is_waiting(&self) -> bool {
        self.lock().pages.values().any(|page| page.missing_since.is_some())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use centrifuge::lookup::LossReason;
    use centrifuge_core::range_set::RangeSet;

    use super::*;

    fn everything() -> Loss {
        Loss { keys: RangeSet::all(), why: LossReason::StateBeganAnew }
    }

    #[test]
    fn a_lease_that_goes_backwards_is_a_violation() {
        let book = Book::default();
        book.answered("a", 1, 5);
        book.answered("a", 2, 4);
        assert_eq!(book.violations(), ["a was served under lease 4 after lease 5"]);
    }

    #[test]
    fn a_missing_value_waits_for_the_notice_of_its_loss() {
        let book = Book::default();
        book.answered("a", 9, 5);
        book.answered("a", 1, 6);
        assert!(book.is_waiting());
        book.lost(&everything());
        assert!(!book.is_waiting() && book.violations().is_empty());
    }

    #[test]
    fn an_answer_from_before_a_loss_promises_nothing() {
        let book = Book::default();
        book.asked("a");
        book.lost(&everything());
        book.answered("a", 9, 5);
        book.asked("a");
        book.answered("a", 1, 6);
        assert!(!book.is_waiting());
    }

    #[test]
    fn a_loss_that_was_announced_before_is_no_surprise() {
        let book = Book::default();
        book.answered("a", 9, 5);
        book.lost(&everything());
        book.answered("a", 1, 6);
        assert!(!book.is_waiting());
    }
}
