//! Short prints of long values, so that two situations can be compared without being looked at whole.

use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// Writes down what a value feeds to a hasher, word by word.
struct Recorder {
    words: Vec<u64>,
}

impl Recorder {
    fn of(value: &impl Hash) -> Recorder {
        let mut recorder = Recorder { words: Vec::with_capacity(512) };
        value.hash(&mut recorder);
        recorder
    }
}

impl Hasher for Recorder {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.words.push(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.words.push(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.words.push(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.words.push(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.words.push(number as u64);
    }

    fn finish(&self) -> u64 {
        mix(&self.words)
    }
}

/// The print of a value.
pub(super) fn print(value: &impl Hash) -> u64 {
    Recorder::of(value).finish()
}

/// The print of a value apart from the part that it feeds to a hasher last. Machines keep their counters there: they
/// count what happened and decide nothing, so two machines that differ in them alone behave alike.
///
/// # Panics
///
/// If the part is not what the value ends with: then somebody moved it, and prints would tell too little apart.
pub(super) fn print_without(value: &impl Hash, last: &impl Hash) -> u64 {
    let (whole, part) = (Recorder::of(value), Recorder::of(last));
    let kept = whole.words.strip_suffix(part.words.as_slice());
    mix(kept.expect("a machine's counters are its last field"))
}

/// One word for many.
pub(super) fn mix(words: &[u64]) -> u64 {
    let mut print = words.len() as u64 ^ 0x9e37_79b9_7f4a_7c15;
    for word in words {
        let product = u128::from(print ^ word) * 0xe703_7ed1_a0b4_28db;
        print = (product as u64) ^ ((product >> 64) as u64) ^ print.rotate_left(29);
    }
    print
}

/// A value that many states share, with its print.
#[derive(Debug)]
pub(super) struct Shared<T> {
    print: u64,
    value: Arc<T>,
}

impl<T: Hash> Shared<T> {
    /// Shares a value that is told apart by all of it.
    pub(super) fn new(value: T) -> Shared<T> {
        Shared { print: print(&value), value: Arc::new(value) }
    }

    /// Changes a copy of the value and shares that instead.
    pub(super) fn change<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R
    where
        T: Clone,
    {
        let mut value = T::clone(&self.value);
        let result = change(&mut value);
        *self = Shared::new(value);
        result
    }
}

impl<T> Shared<T> {
    /// Shares a value whose print was made by other means.
    pub(super) fn printed(print: u64, value: T) -> Shared<T> {
        Shared { print, value: Arc::new(value) }
    }

    /// The print.
    pub(super) fn print(&self) -> u64 {
        self.print
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared { print: self.print, value: Arc::clone(&self.value) }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.print == other.print
    }
}

impl<T> Eq for Shared<T> {}

impl<T> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.print);
    }
}
