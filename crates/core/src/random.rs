//! The seeded generator that machines draw nonces and backoffs from.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::id::Nonce;

/// A ChaCha stream: as unpredictable as its seed, which real drivers take from the operating system, and the same
/// for the same seed. Kept as (seed, draws) so that equal states compare and hash equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Random {
    seed: [u8; 32],
    draws: u64,
}

impl Random {
    /// A generator for a seed.
    #[must_use]
    pub fn from_seed(seed: [u8; 32]) -> Random {
        Random { seed, draws: 0 }
    }

    /// A generator for a small seed, for simulations and tests.
    #[must_use]
    pub fn from_number(number: u64) -> Random {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&number.to_le_bytes());
        Random::from_seed(seed)
    }

    /// 128 fresh bits.
    pub fn nonce(&mut self) -> Nonce {
        let (high, low) = self.draw();
        Nonce(u128::from(high) << 64 | u128::from(low))
    }

    /// A duration between half of `length` and `length`.
    pub fn around(&mut self, length: Duration) -> Duration {
        self.between(length / 2, length)
    }

    /// A duration from `shortest` up to `longest`.
    pub fn between(&mut self, shortest: Duration, longest: Duration) -> Duration {
        let nanos = |length: Duration| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let span = nanos(longest).saturating_sub(nanos(shortest));
        if span == 0 {
            return shortest;
        }
        Duration::from_nanos(nanos(shortest) + self.draw().0 % span)
    }

    fn draw(&mut self) -> (u64, u64) {
        let mut stream = ChaCha8Rng::from_seed(self.seed);
        stream.set_word_pos(u128::from(self.draws) * 4);
        self.draws += 1;
        (stream.next_u64(), stream.next_u64())
    }
}
