//! What readers read: immutable tables, published atomically, found by the top bits of a key.
//!
//! A reader waits for no lock and allocates nothing. It writes to a counter of its own thread and, for one check of many,
//! to a sketch of its own thread.

mod index;
mod leases;
mod local;
mod routes;
mod sampling;
mod sketch;
mod spread;
#[cfg(test)]
mod tests;

use centrifuge_core::key::{Key, KeyRange};

pub use leases::{HotLeases, Lease, NotOwner};
pub(crate) use leases::{LeaseTable, Validity};
pub use routes::{HotRoutes, NoOwner, Route, Slice};
pub(crate) use sampling::Samples;
pub(crate) use sampling::load_per_sample;

/// So many ranges of equal size, together every key, in key order.
fn slices(count: u32) -> impl Iterator<Item = KeyRange> {
    let count = u64::from(count.max(1));
    let width = u64::MAX / count;
    (0..count).map(move |number| {
        let last = if number + 1 == count { Key::MAX } else { Key((number + 1) * width - 1) };
        KeyRange::new(Key(number * width), last).expect("a slice has keys")
    })
}
