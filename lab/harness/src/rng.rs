//! The random numbers of a run, from its seed.

use std::time::Duration;

use centrifuge_core::random::Random;

/// A seeded generator, with the draws that runs of real processes need.
#[derive(Clone, Debug)]
pub struct Rng {
    random: Random,
}

impl Rng {
    /// The generator of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        Rng { random: Random::from_number(seed) }
    }

    /// A generator of its own for another part, so that no part's draws depend on how fast others are.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.next())
    }

    fn next(&mut self) -> u64 {
        self.random.nonce().0 as u64
    }

    /// A number below `end`; zero if that is zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next().checked_rem(end).unwrap_or(0)
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, share: u64) -> bool {
        share > 0 && self.below(100) < share
    }

    /// A duration from `shortest` up to `longest`.
    pub fn between(&mut self, shortest: Duration, longest: Duration) -> Duration {
        self.random.between(shortest, longest)
    }

    /// One of them, unless there is none.
    pub fn pick<T>(&mut self, mut of: Vec<T>) -> Option<T> {
        let place = usize::try_from(self.below(of.len() as u64)).unwrap_or(0);
        if of.is_empty() { None } else { Some(of.swap_remove(place)) }
    }

    /// All of them in a random order.
    pub fn shuffle<T>(&mut self, mut of: Vec<T>) -> Vec<T> {
        for last in (1..of.len()).rev() {
            let place = usize::try_from(self.below(last as u64 + 1)).unwrap_or(0);
            of.swap(place, last);
        }
        of
    }

    /// A clock's error, up to `most` parts per million either way.
    pub fn skew(&mut self, most: i32) -> i32 {
        let span = u64::from(most.unsigned_abs()) * 2 + 1;
        i32::try_from(self.below(span)).unwrap_or(0) - most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_again_and_shuffling_loses_nothing() {
        let draw = |seed| Rng::new(seed).shuffle((0..20).collect::<Vec<_>>());
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let mut sorted = draw(7);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    }
}
