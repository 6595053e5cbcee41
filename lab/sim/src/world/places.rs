//! Sets of places on the network.

use std::ops::{BitOr, Not};

/// Words of 64 places each: room for the 250 Owners of PRS §7.2.
const WORDS: usize = 5;

/// A set of places, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places([u64; WORDS]);

impl Places {
    pub(crate) const MOST: usize = WORDS * 64;

    pub(crate) fn only(place: usize) -> Places {
        let mut places = Places::default();
        places.0[place / 64] = 1 << (place % 64);
        places
    }

    /// The first places, that many.
    pub(crate) fn below(end: usize) -> Places {
        (0..end).fold(Places::default(), |places, place| places | Places::only(place))
    }

    pub(crate) fn has(self, place: usize) -> bool {
        self.0[place / 64] & (1 << (place % 64)) != 0
    }
}

impl BitOr for Places {
    type Output = Places;

    fn bitor(self, other: Places) -> Places {
        Places(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }
}

impl Not for Places {
    type Output = Places;

    fn not(self) -> Places {
        Places(self.0.map(|word| !word))
    }
}
