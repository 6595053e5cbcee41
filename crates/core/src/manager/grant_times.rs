//! When leases were granted, as far as that matters: the table has their numbers, and this the time of each number.

use std::collections::BTreeMap;

use crate::id::Generation;
use crate::time::Instant;

/// How many runs of numbers are remembered. Each decision that grants is one at most, and so is each merge.
const MAX_RUNS: usize = 4_096;

/// The time of every generation that was granted lately. Numbers rise, so that those of one decision are one run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct GrantTimes {
    /// The last number of a run -> its first, and when they were granted.
    runs: BTreeMap<Generation, (Generation, Instant)>,
}

impl GrantTimes {
    /// A lease of this number, which is higher than all before, was granted at `at`.
    pub(super) fn note(&mut self, generation: Generation, at: Instant) {
        let mut first = generation;
        if let Some(latest) = self.runs.last_entry()
            && latest.get().1 == at
            && latest.key().next() == Some(generation)
        {
            first = latest.remove().0;
        }
        self.runs.insert(generation, (first, at));
        while self.runs.len() > MAX_RUNS {
            self.runs.pop_first();
        }
    }

    /// When a lease was granted; `None`: before anything that is remembered.
    pub(super) fn of(&self, generation: Generation) -> Option<Instant> {
        let (_, (first, at)) = self.runs.range(generation..).next()?;
        (*first <= generation).then_some(*at)
    }

    /// Forgets what was granted before `since`.
    pub(super) fn forget_before(&mut self, since: Instant) {
        while let Some(oldest) = self.runs.first_entry()
            && oldest.get().1 < since
        {
            oldest.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_one_decision_are_one_run() {
        let mut times = GrantTimes::default();
        for number in 5..=9 {
            times.note(Generation(number), Instant(100));
        }
        times.note(Generation(10), Instant(200));
        // The number of a merge is as old as what it joins.
        times.note(Generation(11), Instant(100));
        assert_eq!(times.runs.len(), 3);
        let granted = |number| times.of(Generation(number)).map(|at| at.0);
        assert_eq!(
            [4, 5, 9, 10, 11, 12].map(granted),
            [None, Some(100), Some(100), Some(200), Some(100), None]
        );
    }

    #[test]
    fn what_is_older_is_forgotten_and_memory_is_bounded() {
        let mut times = GrantTimes::default();
        times.note(Generation(1), Instant(100));
        times.note(Generation(2), Instant(200));
        times.forget_before(Instant(150));
        assert_eq!((times.of(Generation(1)), times.of(Generation(2))), (None, Some(Instant(200))));
        for number in 3..20_000 {
            times.note(Generation(number), Instant(number * 1_000));
        }
        assert_eq!(times.runs.len(), MAX_RUNS);
        assert_eq!(times.of(Generation(2)), None);
    }
}
