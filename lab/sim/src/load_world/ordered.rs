//! Application keys in their order: tenants of which one is hot, and a timeline whose end is hot and moves on.

use centrifuge_core::key::Key;
use centrifuge_core::namespace_kind::{Keys as KeysOf, Mode, NamespaceKind};
use clap::ValueEnum;

use super::SECOND;
use super::keys::{Keys, Popularity};
use crate::world::rng::Rng;

/// What the application calls its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ApplicationKeys {
    /// Anything, and they are hashed.
    Hashed,
    /// A tenant of three letters, a slash and the number of a thing, in their order. One tenant has 30 % of the load.
    Tenants,
    /// Seconds as decimal numbers, in their order. The latest is the hottest, and each fades to a third in half an hour.
    Timeline,
}

/// How many tenants there are.
const TENANTS: usize = 200;
/// How much of the load the hot tenant has.
const HOT_TENANT: f64 = 0.3;
/// How long a second of a timeline takes to fade to a third, in seconds.
const FADE: f64 = 1_800.0;
/// How long the timeline reaches back at the start, in seconds.
const PAST: u64 = 4 * 3_600;
/// How far it reaches at most: the longest run.
const FUTURE: u64 = 8 * 3_600;

impl ApplicationKeys {
    /// What a namespace with such keys is.
    pub(super) fn kind(self) -> NamespaceKind {
        match self {
            ApplicationKeys::Hashed => NamespaceKind::default(),
            ApplicationKeys::Tenants | ApplicationKeys::Timeline => {
                NamespaceKind { keys: KeysOf::Ordered(Default::default()), mode: Mode::Exclusive }
            }
        }
    }

    /// So many keys.
    pub(super) fn keys(self, count: usize, rng: &mut Rng) -> Keys {
        match self {
            ApplicationKeys::Hashed => Keys::new(count, rng),
            ApplicationKeys::Tenants => Keys::at((0..count).map(|number| in_order(&tenant_key(number)))),
            ApplicationKeys::Timeline => {
                Keys::at((0..PAST + FUTURE).map(|second| in_order(&format!("{second:08}"))))
            }
        }
    }

    /// How popular they are at the start.
    pub(super) fn popularity(self, count: usize, zipf: f64, rng: &mut Rng) -> Popularity {
        match self {
            ApplicationKeys::Hashed => Popularity::new(count, zipf, rng),
            ApplicationKeys::Tenants => tenants(count, rng),
            ApplicationKeys::Timeline => timeline(0),
        }
    }

    /// How popular they are after a sudden change, if such a change is other than usual.
    pub(super) fn disturbed(self, count: usize, rng: &mut Rng) -> Option<Popularity> {
        (self == ApplicationKeys::Tenants).then(|| tenants(count, rng))
    }

    /// How popular they are at a time, if that changes all the time.
    pub(super) fn at(self, now: u64) -> Option<Popularity> {
        (self == ApplicationKeys::Timeline).then(|| timeline(now / SECOND))
    }
}

fn in_order(application_key: &str) -> Key {
    Key::in_order(application_key.as_bytes())
}

/// A thing of a tenant: `aaa/0000`, eight bytes.
fn tenant_key(number: usize) -> String {
    let letter = |place: usize| char::from(b'a' + (place % 26) as u8);
    let tenant = number % TENANTS;
    // Names that are spread over the alphabet, as names are.
    let name = tenant * 26 * 26 * 26 / TENANTS;
    let name: String = [name / 676, name / 26, name].into_iter().map(letter).collect();
    format!("{name}/{:04}", number / TENANTS % 10_000)
}

/// How many of so many things a tenant has.
pub(super) fn things_of_each(count: usize) -> usize {
    count.div_ceil(TENANTS)
}

/// A random tenant is hot, and all else is alike. Things are in the order of their keys: those of a tenant follow each other.
fn tenants(count: usize, rng: &mut Rng) -> Popularity {
    let each = things_of_each(count);
    let hot = rng.below(TENANTS as u64) as usize;
    let is_hot = |place: usize| place / each == hot;
    let hot_keys = (0..count).filter(|place| is_hot(*place)).count().max(1);
    let share = |place: usize| match is_hot(place) {
        true => HOT_TENANT / hot_keys as f64,
        false => (1.0 - HOT_TENANT) / (count - hot_keys) as f64,
    };
    Popularity::of((0..count).map(share).collect())
}

/// The load of seconds that are over falls with their age, and the future has none.
fn timeline(now: u64) -> Popularity {
    let now = PAST + now;
    let weight = |second: u64| match now.checked_sub(second) {
        Some(age) => (-(age as f64) / FADE).exp(),
        None => 0.0,
    };
    let weights: Vec<f64> = (0..PAST + FUTURE).map(weight).collect();
    let sum: f64 = weights.iter().sum();
    Popularity::of(weights.into_iter().map(|weight| weight / sum).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_of_a_tenant_are_neighbours() {
        let mut rng = Rng::new(1);
        let keys = ApplicationKeys::Tenants.keys(4_000, &mut rng);
        assert_eq!(keys.len(), 4_000, "no two have the same key");
        let tenant = |place: usize| keys.key(place).0 >> 32;
        for place in 0..4_000 {
            assert_eq!(tenant(place), tenant(place / 20 * 20), "{place}");
        }
        let shares = ApplicationKeys::Tenants.popularity(4_000, 0.0, &mut rng);
        let hot = shares.shares().iter().filter(|share| **share > 0.01);
        assert_eq!(hot.count(), 20);
        assert!((shares.shares().iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_end_of_a_timeline_moves_on() {
        let hottest = |now: u64| {
            let popularity = ApplicationKeys::Timeline.at(now * SECOND).expect("it changes all the time");
            let shares = popularity.shares().to_vec();
            (0..shares.len()).max_by(|one, two| shares[*one].total_cmp(&shares[*two]))
        };
        assert_eq!(hottest(0), Some(PAST as usize));
        assert_eq!(hottest(100), Some(PAST as usize + 100));
        let mut rng = Rng::new(1);
        let keys = ApplicationKeys::Timeline.keys(0, &mut rng);
        assert!(keys.key(9) < keys.key(10) && keys.key(99) < keys.key(100), "as the numbers");
    }
}
