//! Answers to keep-alives that are taken for answers to the latest, and can be made to come later and later.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How much later each answer comes than the one before, so that a new leader does not lose its lease to its first.
const LATER: Duration = Duration::from_millis(350);
/// How late they come in the end: the leader lease is then over when they do.
const LATEST: Duration = Duration::from_secs(6);

static RENEWALS: Mutex<Renewals> = Mutex::new(Renewals { term: 0, request: 0, answers: 0 });

/// What is known of the leader lease's renewals in a term.
struct Renewals {
    term: u64,
    /// The latest that was sent.
    request: u64,
    answers: u32,
}

pub(super) fn renewal_sent(term: u64, request: u64) {
    let mut renewals = RENEWALS.lock().unwrap_or_else(PoisonError::into_inner);
    let answers = if renewals.term == term { renewals.answers } else { 0 };
    *renewals = Renewals { term, request, answers };
}

/// The latest renewal that was sent.
pub(super) fn latest() -> u64 {
    RENEWALS.lock().unwrap_or_else(PoisonError::into_inner).request
}

/// Holds an answer back, and says which renewal was the latest when it was let go.
pub(super) async fn held_back() -> u64 {
    let answers = {
        let mut renewals = RENEWALS.lock().unwrap_or_else(PoisonError::into_inner);
        renewals.answers += 1;
        renewals.answers
    };
    tokio::time::sleep((LATER * answers).min(LATEST)).await;
    latest()
}
