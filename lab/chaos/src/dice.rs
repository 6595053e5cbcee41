//! Draws from a seed.

use std::time::Duration;

use centrifuge_core::random::Random;

/// A seeded generator, with the draws that a run needs.
#[derive(Clone, Debug)]
pub(crate) struct Dice {
    random: Random,
}

impl Dice {
    pub(crate) fn new(random: Random) -> Dice {
        Dice { random }
    }

    /// A number below `end`; zero if that is zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        let number = self.random.nonce().0 as u64;
        number.checked_rem(end).unwrap_or(0)
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, share: u64) -> bool {
        share > 0 && self.below(100) < share
    }

    /// A duration from `shortest` up to `longest`.
    pub(crate) fn between(&mut self, shortest: Duration, longest: Duration) -> Duration {
        self.random.between(shortest, longest)
    }

    /// One of them.
    pub(crate) fn pick<T>(&mut self, mut of: Vec<T>) -> Option<T> {
        let place = usize::try_from(self.below(of.len() as u64)).unwrap_or(0);
        if of.is_empty() { None } else { Some(of.swap_remove(place)) }
    }

    /// A clock's error, up to `most` parts per million either way.
    pub(crate) fn skew(&mut self, most: i32) -> i32 {
        let span = u64::from(most.unsigned_abs()) * 2 + 1;
        i32::try_from(self.below(span)).unwrap_or(0) - most
    }

    /// A generator of its own for somebody else.
    pub(crate) fn fork(&mut self) -> Random {
        Random::from_number(self.random.nonce().0 as u64)
    }
}
