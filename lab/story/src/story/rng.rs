//! Draws from the seed of a run.

use std::time::Duration;

use centrifuge_core::random::Random;

/// A seeded generator, with the draws that a story needs.
#[derive(Clone, Debug)]
pub(super) struct Rng {
    random: Random,
}

impl Rng {
    pub(super) fn new(seed: u64) -> Rng {
        Rng { random: Random::from_number(seed) }
    }

    /// A generator of its own for somebody else, so that nobody's draws depend on how fast others are.
    pub(super) fn fork(&mut self) -> Rng {
        Rng { random: Random::from_number(self.random.nonce().0 as u64) }
    }

    /// A number below `end`, which is not zero.
    fn below(&mut self, end: usize) -> usize {
        (self.random.nonce().0 % end as u128) as usize
    }

    /// A coin.
    pub(super) fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    /// A duration from `shortest` up to `longest`.
    pub(super) fn between(&mut self, shortest: Duration, longest: Duration) -> Duration {
        self.random.between(shortest, longest)
    }

    /// One of them, unless there is none.
    pub(super) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        if of.is_empty() { None } else { of.get(self.below(of.len())) }
    }

    /// All of them in another order.
    pub(super) fn shuffle<T>(&mut self, mut of: Vec<T>) -> Vec<T> {
        for last in (1..of.len()).rev() {
            let place = self.below(last + 1);
            of.swap(place, last);
        }
        of
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
