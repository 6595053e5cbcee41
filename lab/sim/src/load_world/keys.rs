//! The keys and how popular each is: Zipf over a random permutation of random positions.

use centrifuge_core::key::{Key, KeyRange};

use crate::world::rng::Rng;

/// Positions are found by this many of their leading bits, and then by halving.
const INDEX_BITS: u32 = 16;
/// Which ranks count as the hottest that change places.
const HOTTEST: u64 = 100;

/// The keys in the order of their positions, which never change.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    positions: Vec<u64>,
    /// Where the positions with these leading bits begin.
    index: Vec<u32>,
}

/// How popular each key is.
#[derive(Clone, Debug)]
pub(super) struct Popularity {
    /// The share of the usual load, by place of the key; all of them add up to one.
    shares: Vec<f64>,
    /// The key of each rank, the most popular first.
    by_rank: Vec<u32>,
}

impl Keys {
    /// So many keys at random positions.
    pub(super) fn new(count: usize, rng: &mut Rng) -> Keys {
        Keys::at((0..count).map(|_| Key(rng.next())))
    }

    /// These keys.
    pub(super) fn at(keys: impl Iterator<Item = Key>) -> Keys {
        let mut positions: Vec<u64> = keys.map(|Key(position)| position).collect();
        positions.sort_unstable();
        positions.dedup();
        let index = index_of(&positions);
        Keys { positions, index }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.positions.len()
    }

    /// A key by its place in the order of positions.
    pub(super) fn key(&self, place: usize) -> Key {
        Key(self.positions[place])
    }

    /// The places of the keys of a range.
    pub(super) fn places(&self, range: KeyRange) -> std::ops::Range<usize> {
        let end = range.last().next().map_or(self.len(), |after| self.place_from(after));
        self.place_from(range.first())..end
    }

    /// The place of the first key that is not below `key`.
    fn place_from(&self, Key(key): Key) -> usize {
        let leading = (key >> (64 - INDEX_BITS)) as usize;
        let (start, end) = (self.index[leading] as usize, self.index[leading + 1] as usize);
        start + self.positions[start..end].partition_point(|position| *position < key)
    }
}

impl Popularity {
    /// The popularity of so many keys, which falls as Zipf's law with this exponent says.
    pub(super) fn new(count: usize, exponent: f64, rng: &mut Rng) -> Popularity {
        let by_rank = permutation(count, rng);
        let mut shares = vec![0.0; count];
        for (key, share) in by_rank.iter().zip(zipf(count, exponent)) {
            shares[*key as usize] = share;
        }
        Popularity { shares, by_rank }
    }

    /// These shares, in the order of positions, which add up to one.
    pub(super) fn of(shares: Vec<f64>) -> Popularity {
        let mut by_rank: Vec<u32> = (0..shares.len() as u32).collect();
        by_rank.sort_by(|one, two| shares[*two as usize].total_cmp(&shares[*one as usize]));
        Popularity { shares, by_rank }
    }

    /// The share of the usual load of each key, in the order of positions.
    pub(super) fn shares(&self) -> &[f64] {
        &self.shares
    }

    /// So many of the hottest keys change places with random others.
    pub(super) fn swap_hottest(&mut self, count: usize, rng: &mut Rng) {
        let keys = self.shares.len() as u64;
        let hottest = HOTTEST.min(keys / 2);
        for _ in 0..count {
            let hot = rng.below(hottest) as usize;
            let cold = rng.between(hottest, keys - 1) as usize;
            let (hot_key, cold_key) = (self.by_rank[hot] as usize, self.by_rank[cold] as usize);
            self.shares.swap(hot_key, cold_key);
            self.by_rank.swap(hot, cold);
        }
    }
}

/// Shares that fall with the rank as Zipf's law says and add up to one.
fn zipf(count: usize, exponent: f64) -> Vec<f64> {
    let popularity: Vec<f64> = (1..=count).map(|rank| (rank as f64).powf(-exponent)).collect();
    let sum: f64 = popularity.iter().sum();
    popularity.into_iter().map(|share| share / sum).collect()
}

fn permutation(count: usize, rng: &mut Rng) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    for place in (1..count).rev() {
        order.swap(place, rng.below(place as u64 + 1) as usize);
    }
    order
}

fn index_of(positions: &[u64]) -> Vec<u32> {
    let mut index = Vec::with_capacity((1 << INDEX_BITS) + 1);
    let mut place = 0;
    for leading in 0..1u64 << INDEX_BITS {
        while positions.get(place).is_some_and(|position| position >> (64 - INDEX_BITS) < leading) {
            place += 1;
        }
        index.push(place as u32);
    }
    index.push(positions.len() as u32);
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fall_as_zipf_says_and_add_up_to_one() {
        let shares = zipf(1_000, 0.99);
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        assert!((shares[0] / shares[9] - 10f64.powf(0.99)).abs() < 1e-9);
        assert!(shares.windows(2).all(|pair| pair[0] > pair[1]));
    }

    #[test]
    fn the_keys_of_a_range_are_found_as_a_scan_finds_them() {
        let mut rng = Rng::new(5);
        let keys = Keys::new(2_000, &mut rng);
        for _ in 0..200 {
            let (one, two) = (Key(rng.next()), Key(rng.next()));
            let range = KeyRange::new(one.min(two), one.max(two)).expect("in order");
            let scanned = (0..keys.len()).filter(|place| range.contains(keys.key(*place)));
            assert!(keys.places(range).eq(scanned));
        }
        assert_eq!(keys.places(KeyRange::ALL), 0..2_000);
        assert_eq!(keys.places(KeyRange::one(keys.key(7))), 7..8);
    }

    #[test]
    fn hot_keys_change_places_and_the_whole_stays() {
        let mut rng = Rng::new(5);
        let mut popularity = Popularity::new(5_000, 0.99, &mut rng);
        let before = popularity.clone();
        popularity.swap_hottest(10, &mut rng);
        let changed = before.shares.iter().zip(&popularity.shares).filter(|(old, new)| old != new).count();
        assert!((2..=20).contains(&changed));
        let sum: f64 = popularity.shares.iter().sum();
        assert!((sum - 1.0).abs() < 1e-9);
        for (rank, key) in popularity.by_rank.iter().enumerate() {
            assert_eq!(popularity.shares[*key as usize], before.shares[before.by_rank[rank] as usize]);
        }
    }
}
