//! Notices that clients have seen terms of a clock that was ahead of what the Managers' clock shows now (ADR 17).

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use centrifuge_core::election::after_term;
use centrifuge_core::id::Term;
use centrifuge_core::time::Instant as ClockTime;
use centrifuge_net::clock;

use crate::store::PeerOptions;

/// By how much a term may be ahead without being remarkable: clocks differ, and a new leader's term is as young as can be.
const SLACK: Duration = Duration::from_secs(1);
/// How long a term counts after a client named it. Clients that are refused ask again much sooner.
const REMEMBERED: Duration = Duration::from_secs(120);
const MINUTE: Duration = Duration::from_secs(60);

/// What clients say of terms, beside the Managers' clock. Only where terms come from a clock: without a store.
#[derive(Debug)]
pub(crate) struct TermWatch {
    /// How far the Managers' clock is ahead of the machine's.
    ahead: Duration,
    heard: Mutex<Option<Heard>>,
}

/// The highest term ahead of the clock that a client named lately.
#[derive(Clone, Copy, Debug)]
struct Heard {
    term: Term,
    at: Instant,
}

impl TermWatch {
    pub(crate) fn new(ahead: Duration) -> TermWatch {
        TermWatch { ahead, heard: Mutex::default() }
    }

    /// Takes note of a client's term, and says what is wrong if it is ahead of the clock.
    pub(crate) fn hear(&self, term: Term) -> Option<String> {
        let problem = self.problem_with(term, wall())?;
        let heard = Heard { term, at: Instant::now() };
        let mut highest = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if highest.is_none_or(|before| term >= before.term || before.at.elapsed() > REMEMBERED) {
            *highest = Some(heard);
        }
        Some(problem)
    }

    /// What is wrong by what clients said lately.
    pub(crate) fn problem(&self) -> Option<String> {
        let heard = *self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let heard = heard.filter(|heard| heard.at.elapsed() <= REMEMBERED)?;
        self.problem_with(heard.term, wall())
    }

    /// A term beyond what any setting can reach was not made by a clock: the client that named it is mistaken.
    fn problem_with(&self, term: Term, wall: ClockTime) -> Option<String> {
        let late = after_term(term).since(wall + self.ahead);
        let needed = after_term(term).since(wall);
        if late <= SLACK || needed > PeerOptions::MAX_CLOCK_AHEAD {
            return None;
        }
        Some(format!(
            "clients refuse this Manager, because they have seen terms that are {} ahead of its clock: the Managers' clocks were ahead \
             and were set back. Restart all Managers with --flease-clock-ahead {}",
            minutes(late),
            minutes(needed)
        ))
    }
}

/// A length of time in minutes, rounded up, as settings are written.
pub(crate) fn minutes(length: Duration) -> String {
    format!("{}m", length.as_nanos().div_ceil(MINUTE.as_nanos()))
}

/// The machine's wall clock, in nanoseconds since 1970 as terms count.
fn wall() -> ClockTime {
    let (now, offset) = clock::now_and_wall_offset();
    ClockTime(now.0.saturating_add_signed(offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    /// A moment in 2026.
    const NOW: ClockTime = ClockTime(1_790_000_000_000_000_000);

    /// The term that is won at a moment.
    fn term(at: ClockTime) -> Term {
        Term(at.0 >> 24)
    }

    #[test]
    fn a_term_ahead_of_the_clock_is_a_clock_that_was_set_back() {
        let watch = TermWatch::new(Duration::ZERO);
        assert_eq!(watch.problem_with(term(NOW), NOW), None);
        assert_eq!(watch.problem_with(term(NOW - HOUR), NOW), None);
        assert_eq!(watch.problem_with(term(NOW + SLACK / 2), NOW), None);
        let problem = watch.problem_with(term(NOW + HOUR * 25), NOW).expect("a problem");
        assert!(problem.contains("--flease-clock-ahead 1501m"), "{problem}");
    }

    #[test]
    fn what_is_still_missing_is_added_to_what_is_set() {
        let watch = TermWatch::new(HOUR);
        assert_eq!(watch.problem_with(term(NOW + HOUR / 2), NOW), None);
        let problem = watch.problem_with(term(NOW + HOUR * 3), NOW).expect("a problem");
        assert!(problem.contains("are 121m ahead") && problem.contains("ahead 181m"), "{problem}");
    }

    #[test]
    fn a_term_that_no_clock_made_is_no_problem() {
        let watch = TermWatch::new(Duration::ZERO);
        assert_eq!(watch.problem_with(Term(u64::MAX), NOW), None);
        assert_eq!(watch.hear(Term(7)).or_else(|| watch.problem()), None);
    }

    #[test]
    fn the_highest_term_of_late_is_remembered() {
        let watch = TermWatch::new(Duration::ZERO);
        let (low, high) = (term(wall() + HOUR), term(wall() + HOUR * 2));
        assert!(watch.hear(high).is_some() && watch.hear(low).is_some());
        assert!(watch.problem().expect("a problem").contains("12"), "{:?}", watch.problem());
    }
}
