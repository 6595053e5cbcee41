//! Who is popular: the users behind one point of the key space, by Zipf's law, until the point is moved.

use std::sync::atomic::{AtomicU64, Ordering};

use centrifuge::Key;

/// How popular the users of each frontend are. The next one after the hot point, in the order of their keys, is the most popular.
#[derive(Debug)]
pub(crate) struct Popularity {
    /// The part of all requests that is for the users before each rank, for a frontend with most users.
    before: Vec<f64>,
    hot: AtomicU64,
}

impl Popularity {
    /// Zipf's law with this exponent among so many users.
    pub(crate) fn new(users: usize, exponent: f64) -> Popularity {
        let weights = (1..=users.max(1)).map(|rank| (rank as f64).powf(-exponent));
        let mut sum = 0.0;
        let mut before: Vec<f64> = weights
            .map(|weight| {
                sum += weight;
                sum - weight
            })
            .collect();
        before.iter_mut().for_each(|part| *part /= sum);
        Popularity { before, hot: AtomicU64::new(0) }
    }

    /// Others are popular from now on.
    pub(crate) fn shift_to(&self, hot: Key) {
        self.hot.store(hot.0, Ordering::Relaxed);
    }

    /// The place of the user whom a draw is for, among so many users in the order of their keys; `behind` finds the first one behind a key.
    pub(crate) fn place(&self, users: usize, behind: impl FnOnce(Key) -> usize, draw: u64) -> Option<usize> {
        let part = (draw >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = self.before.partition_point(|before| *before <= part).saturating_sub(1);
        (behind(Key(self.hot.load(Ordering::Relaxed))) + rank).checked_rem(users)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_behind_the_hot_point_is_the_most_popular() {
        let popularity = Popularity::new(100, 1.0);
        let keys: Vec<Key> = (0..100).map(|number| Key(number * 10)).collect();
        let draws = (0..10_000).map(|number: u64| number * (u64::MAX / 10_000));
        popularity.shift_to(Key(941));
        let mut asked = vec![0; keys.len()];
        let behind = |hot: Key| keys.partition_point(|key| *key < hot);
        draws.for_each(|draw| asked[popularity.place(100, behind, draw).expect("there are users")] += 1);
        // Of 100 users the first has 1 part in 5.19, the second half of that, and so on round the ring.
        assert!((1_900..1_950).contains(&asked[95]), "{}", asked[95]);
        assert!((950..980).contains(&asked[96]) && asked[0] > asked[1], "{asked:?}");
        assert_eq!(asked.iter().sum::<u32>(), 10_000);
        assert_eq!(popularity.place(0, |_| 0, 7), None);
    }
}
