//! Checks one after another that said the same, put together to what is worth writing down.

use std::collections::BTreeMap;

use crate::lines::{Nanos, Span};

/// What goes on is written this often.
const WRITE_INTERVAL: Nanos = 500_000_000;
/// A longer time between two checks is a pause, in which nobody was answered.
pub(crate) const LONGEST_PAUSE: Nanos = 200_000_000;

/// Every check of a key said yes under one lease, from the first to the last, without a pause worth mentioning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch<N> {
    pub(super) key: u32,
    /// The lease's number.
    pub(super) lease: N,
    pub(super) first: Span,
    pub(super) last: Span,
    pub(super) checks: u64,
}

/// A stretch that goes on.
#[derive(Clone, Copy, Debug)]
struct Run<N> {
    stretch: Stretch<N>,
    written_at: Nanos,
}

impl<N> Run<N> {
    fn rest(self) -> Option<Stretch<N>> {
        (self.written_at < self.stretch.last.0).then_some(self.stretch)
    }
}

/// The stretches of every key.
#[derive(Debug)]
pub(super) struct Stretches<N> {
    runs: BTreeMap<u32, Run<N>>,
}

impl<N: Copy + Eq> Stretches<N> {
    pub(super) fn new() -> Stretches<N> {
        Stretches { runs: BTreeMap::new() }
    }

    /// The lease of the latest yes, if no answer after it was no.
    pub(super) fn lease_of(&self, key: u32) -> Option<N> {
        self.runs.get(&key).map(|run| run.stretch.lease)
    }

    /// Adds a yes to a stretch, or begins another. What is worth writing is added to `written`.
    pub(super) fn said_yes(&mut self, key: u32, lease: N, at: Span, written: &mut Vec<Stretch<N>>) {
        let before = self.runs.remove(&key);
        let continues = |run: &Run<N>| {
            run.stretch.lease == lease && at.0.saturating_sub(run.stretch.last.1) < LONGEST_PAUSE
        };
        let run = match before {
            Some(mut run) if continues(&run) => {
                run.stretch.last = at;
                run.stretch.checks += 1;
                if at.1.saturating_sub(run.written_at) > WRITE_INTERVAL {
                    written.push(run.stretch);
                    run = Run { stretch: Stretch { first: at, checks: 0, ..run.stretch }, written_at: at.1 };
                }
                run
            }
            _ => {
                written.extend(before.and_then(Run::rest));
                let stretch = Stretch { key, lease, first: at, last: at, checks: 1 };
                // At once: the first answer after a pause is the one that might be wrong.
                written.push(stretch);
                Run { stretch: Stretch { checks: 0, ..stretch }, written_at: at.1 }
            }
        };
        self.runs.insert(key, run);
    }

    /// Ends a stretch.
    pub(super) fn said_no(&mut self, key: u32, written: &mut Vec<Stretch<N>>) {
        written.extend(self.runs.remove(&key).and_then(Run::rest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Nanos = 100_000_000;

    /// The ends of what is written for checks at these steps under these leases.
    fn ends(checks: &[(u64, u64)]) -> Vec<(u64, u64, u64)> {
        let (mut stretches, mut written) = (Stretches::new(), Vec::new());
        for (step, lease) in checks {
            stretches.said_yes(0, *lease, Span(step * STEP, step * STEP + 10), &mut written);
        }
        written.iter().map(|stretch| (stretch.lease, stretch.first.0 / STEP, stretch.last.0 / STEP)).collect()
    }

    #[test]
    fn a_stretch_is_written_when_it_begins_and_now_and_then() {
        let checks: Vec<(u64, u64)> = (0..14).map(|step| (step, 7)).collect();
        assert_eq!(ends(&checks), [(7, 0, 0), (7, 0, 6), (7, 6, 12)]);
    }

    #[test]
    fn a_pause_or_another_lease_begins_another() {
        assert_eq!(ends(&[(0, 7), (1, 7), (5, 7), (6, 8)]), [(7, 0, 0), (7, 0, 1), (7, 5, 5), (8, 6, 6)]);
    }

    #[test]
    fn a_no_ends_it_with_what_was_not_written() {
        let (mut stretches, mut written) = (Stretches::new(), Vec::new());
        for step in 0..3 {
            stretches.said_yes(0, 7_u64, Span(step * STEP, step * STEP + 10), &mut written);
        }
        assert_eq!((written.len(), stretches.lease_of(0)), (1, Some(7)));
        stretches.said_no(0, &mut written);
        stretches.said_no(0, &mut written);
        assert_eq!((written.len(), stretches.lease_of(0)), (2, None));
        assert_eq!(written[1].last.0, 2 * STEP);
    }
}
