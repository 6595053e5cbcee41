//! The world's own generator: small, fast, and the same on every machine.

/// Splitmix64 (Steele, Lea and Flood 2014). Machines draw from their own generator, so that a change of the world's
/// choices leaves theirs alone.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// Another generator that shares nothing with this one from here on.
    pub(crate) fn fork(&mut self) -> Rng {
        Rng(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `count`, which must not be zero.
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(count)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Whether something happens that does so this often in a thousand.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        per_mille > 0 && self.below(1_000) < per_mille
    }

    /// One of several, which must not be none.
    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }

    /// One of several, if there is any.
    pub(crate) fn pick_any<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| self.pick(from))
    }

    /// One of several by weight; the weights must not all be zero.
    pub(crate) fn weighted<T: Clone>(&mut self, from: &[(T, u64)]) -> T {
        let total: u64 = from.iter().map(|(_, weight)| weight).sum();
        let mut left = self.below(total);
        for (choice, weight) in from {
            if left < *weight {
                return choice.clone();
            }
            left -= weight;
        }
        unreachable!("the draw is below the total")
    }

    /// A number from `low` to `high` whose order of magnitude is drawn first: as often 5 to 10 as 5,000 to 10,000.
    pub(crate) fn spread(&mut self, low: u64, high: u64) -> u64 {
        let shift = self.between(u64::from(low.max(1).ilog2()), u64::from(high.max(1).ilog2()));
        self.between(1 << shift, (2 << shift) - 1).clamp(low, high)
    }
}

/// Spreads every bit of a number over all of them.
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_within_their_bounds_and_reach_them() {
        let mut rng = Rng::new(7);
        let draws: Vec<u64> = (0..1_000).map(|_| rng.between(3, 5)).collect();
        assert_eq!((draws.iter().min(), draws.iter().max()), (Some(&3), Some(&5)));
        assert!((0..1_000).all(|_| (10..=100_000).contains(&rng.spread(10, 100_000))));
        assert!((0..1_000).all(|_| rng.weighted(&[("never", 0), ("always", 1)]) == "always"));
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let (mut one, mut two) = (Rng::new(1), Rng::new(1));
        assert!((0..100).all(|_| one.next() == two.next()));
        assert_ne!(one.fork().next(), one.next());
    }
}
