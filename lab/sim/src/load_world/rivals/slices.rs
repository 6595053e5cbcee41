//! Slices: the ranges that rivals assign, with what is known of their load.

use centrifuge_core::key::{Key, KeyRange};

/// A range with its estimated load.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::load_world) struct Slice {
    /// The keys.
    pub(in crate::load_world) range: KeyRange,
    /// The pod that should have it; `None`: it has yet to be given to one.
    pub(in crate::load_world) owner: Option<usize>,
    /// Requests per second.
    pub(in crate::load_world) load: f64,
    /// The heavy keys among them, in key order.
    pub(in crate::load_world) heavy: Vec<(Key, f64)>,
}

/// A process that can have slices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::load_world) struct Pod {
    /// Its number.
    pub(in crate::load_world) number: usize,
    /// Its capacity, one being the usual.
    pub(in crate::load_world) weight: f64,
}

impl Slice {
    /// The part of the key space.
    pub(super) fn space(&self) -> f64 {
        self.range.key_count() as f64 / 2f64.powi(64)
    }

    /// Two slices of half the load each, as far as that is known: heavy keys are points, the rest is spread evenly. A heavy key at
    /// the middle begins the second slice, or is the first one if nothing is before it; so two splits isolate it.
    pub(super) fn split(&self) -> Option<(Slice, Slice)> {
        let last_cut = self.range.last().previous().filter(|cut| *cut >= self.range.first())?;
        let cut = self.middle().clamp(self.range.first(), last_cut);
        let left = KeyRange::new(self.range.first(), cut)?;
        let right = KeyRange::new(cut.next()?, self.range.last())?;
        Some((self.part(left), self.part(right)))
    }

    /// The last key of the first half.
    fn middle(&self) -> Key {
        let rest = self.load - self.heavy.iter().map(|(_, load)| load).sum::<f64>();
        let density = rest.max(0.0) / self.range.key_count() as f64;
        let (mut from, mut missing) = (self.range.first(), self.load / 2.0);
        for (key, load) in &self.heavy {
            let before = (key.0 - from.0) as f64 * density;
            if before >= missing {
                break;
            }
            missing -= before + load;
            from = *key;
            if missing <= 0.0 {
                return if *key == self.range.first() { *key } else { Key(key.0 - 1) };
            }
        }
        let width = if density > 0.0 { missing / density } else { self.range.key_count() as f64 / 2.0 };
        Key(from.0.saturating_add(width as u64)).min(self.range.last())
    }

    fn part(&self, range: KeyRange) -> Slice {
        let inside: Vec<(Key, f64)> =
            self.heavy.iter().copied().filter(|(key, _)| range.contains(*key)).collect();
        let sum = |keys: &[(Key, f64)]| keys.iter().map(|(_, load)| load).sum::<f64>();
        let rest = (self.load - sum(&self.heavy)).max(0.0);
        let load = sum(&inside) + rest * range.key_count() as f64 / self.range.key_count() as f64;
        Slice { range, owner: self.owner, load, heavy: inside }
    }

    /// This slice and the one after it as one, for the pod of the hotter of the two. `None` if there are keys between them: what a
    /// crashed pod had is not there while it waits.
    pub(super) fn joined(&self, next: &Slice) -> Option<Slice> {
        let is_next = self.range.last().next() == Some(next.range.first());
        let range = KeyRange::new(self.range.first(), next.range.last()).filter(|_| is_next)?;
        let [hotter, other] = if self.load >= next.load { [self, next] } else { [next, self] };
        let heavy = self.heavy.iter().chain(&next.heavy).copied().collect();
        Some(Slice { range, owner: hotter.owner.or(other.owner), load: self.load + next.load, heavy })
    }

    /// Takes a report in, of which this part is believed.
    pub(super) fn learn(&mut self, load: f64, heavy: &[(Key, f64)], believed: f64) {
        self.load += believed * (load - self.load);
        self.heavy.iter_mut().for_each(|(_, known)| *known *= 1.0 - believed);
        for (key, reported) in heavy {
            match self.heavy.binary_search_by_key(key, |(known, _)| *known) {
                Ok(place) => self.heavy[place].1 += believed * reported,
                Err(place) => self.heavy.insert(place, (*key, believed * reported)),
            }
        }
        let forgotten = self.load / 1_000.0;
        self.heavy.retain(|(_, load)| *load > forgotten);
    }
}

/// The key space in equal slices, so many a pod, given to pods in turn by weight.
pub(super) fn initial(pods: &[Pod], per_pod: usize) -> Vec<Slice> {
    let count = (per_pod * pods.len()) as u64;
    let width = u64::MAX / count;
    let mut given = vec![0.0; pods.len()];
    let mut slice = |number: u64| {
        let last = if number + 1 == count { u64::MAX } else { (number + 1) * width - 1 };
        let range = KeyRange::new(Key(number * width), Key(last)).expect("in order");
        let share = |pod: &usize| (given[*pod] + 1.0) / pods[*pod].weight;
        let pod =
            (0..pods.len()).min_by(|one, two| share(one).total_cmp(&share(two))).expect("there are pods");
        given[pod] += 1.0;
        Slice { range, owner: Some(pods[pod].number), load: 0.0, heavy: Vec::new() }
    };
    (0..count).map(&mut slice).collect()
}

#[cfg(test)]
pub(super) fn slice(first: u64, last: u64, owner: usize, load: f64) -> Slice {
    let range = KeyRange::new(Key(first), Key(last)).expect("in order");
    Slice { range, owner: Some(owner), load, heavy: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_slice_is_split_in_the_middle() {
        let (left, right) = slice(0, 99, 3, 10.0).split().expect("it has many keys");
        assert!((45..=55).contains(&left.range.last().0), "{left:?}");
        assert!((left.load + right.load - 10.0).abs() < 1e-9);
        assert_eq!((left.owner, right.owner), (Some(3), Some(3)));
    }

    #[test]
    fn two_splits_isolate_a_heavy_key() {
        let hot = Slice { heavy: vec![(Key(70), 8.0)], ..slice(0, 99, 3, 10.0) };
        let (_, right) = hot.split().expect("it has many keys");
        assert_eq!(right.range.first(), Key(70));
        let (alone, rest) = right.split().expect("it has many keys");
        assert_eq!(alone.range, KeyRange::one(Key(70)));
        assert!((alone.load - 8.0).abs() < 0.1, "{alone:?}");
        assert!(alone.split().is_none() && rest.heavy.is_empty());
    }

    #[test]
    fn joined_slices_go_to_the_pod_of_the_hotter() {
        let joined = slice(0, 9, 1, 2.0).joined(&slice(10, 19, 2, 3.0)).expect("in order");
        assert_eq!(joined, slice(0, 19, 2, 5.0));
        assert_eq!(slice(0, 9, 1, 2.0).joined(&slice(11, 19, 1, 3.0)), None, "there is a key between them");
    }

    #[test]
    fn a_report_is_believed_in_part() {
        let mut learning = slice(0, 9, 1, 10.0);
        learning.learn(20.0, &[(Key(4), 8.0)], 0.5);
        assert_eq!((learning.load, &learning.heavy[..]), (15.0, &[(Key(4), 4.0)][..]));
        learning.learn(20.0, &[(Key(4), 8.0), (Key(2), 6.0)], 0.5);
        assert_eq!(learning.heavy, [(Key(2), 3.0), (Key(4), 6.0)]);
    }

    #[test]
    fn the_first_slices_are_given_by_weight() {
        let pods = [Pod { number: 0, weight: 1.0 }, Pod { number: 5, weight: 3.0 }];
        let slices = initial(&pods, 8);
        assert_eq!(slices.len(), 16);
        assert_eq!(slices.iter().filter(|slice| slice.owner == Some(5)).count(), 12);
        assert!(slices.windows(2).all(|pair| pair[0].range.last().next() == Some(pair[1].range.first())));
        assert_eq!(slices.last().map(|slice| slice.range.last()), Some(Key::MAX));
    }
}
