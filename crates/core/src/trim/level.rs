//! What each Owner should have: its share by weight, or its own largest key if no share can hold it.

use std::cmp::Reverse;

use crate::key::Key;
use crate::trim::TrimSettings;
use crate::trim::board::{Board, OwnerState, part_of, permille};

/// A key above so many permille of its Owner's share is big.
const BIG_KEY_PERMILLE: u64 = 1_020;

/// The thresholds of `imbalance_permille` = 1050, as permille above the goal.
const DEFAULT_IMBALANCE: u64 = 50;
const START_SLOW: u64 = 30;
const START_FAST: u64 = 50;
const PRESSED: u64 = 80;
const STOP: u64 = 15;
const FILL: u64 = 5;

/// Ratios of load to goal, in permille, between which Trim acts. The gaps keep it from acting twice for one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Thresholds {
    /// Above this in two reports running, an Owner sheds.
    pub(super) start_slow: u32,
    /// Above this in one report, an Owner sheds.
    pub(super) start_fast: u32,
    /// Above this, an Owner also sheds to others that have slightly more than their share.
    pub(super) pressed: u32,
    /// Shedding goes on down to this.
    pub(super) stop: u32,
    /// Owners that get load are filled up to this.
    pub(super) fill: u32,
}

impl Thresholds {
    pub(super) fn new(settings: &TrimSettings) -> Thresholds {
        let imbalance = u64::from(settings.imbalance_permille.saturating_sub(1_000));
        let scale = |excess: u64| (1_000 + excess * imbalance / DEFAULT_IMBALANCE).min(1_000_000) as u32;
        Thresholds {
            start_slow: scale(START_SLOW),
            start_fast: scale(START_FAST),
            pressed: scale(PRESSED),
            stop: scale(STOP),
            fill: scale(FILL),
        }
    }
}

/// The load for each unit of weight, as a fraction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Level {
    load: u64,
    weight: u64,
}

impl Level {
    /// What an Owner of that weight should have.
    pub(super) fn share(self, weight: u32) -> u64 {
        let share = (u128::from(self.load) * u128::from(weight)).checked_div(u128::from(self.weight));
        u64::try_from(share.unwrap_or(0)).unwrap_or(u64::MAX)
    }
}

/// A key that may be larger than a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BigKey {
    pub(super) key: Key,
    pub(super) load: u64,
    /// The place of the Owner that has it, if that may have keys.
    pub(super) owner: Option<usize>,
}

impl Board {
    /// The level if load could be divided at will.
    pub(super) fn even_level(&self) -> Level {
        let eligible = self.owners.iter().filter(|owner| owner.is_eligible);
        Level { load: self.total, weight: eligible.map(|owner| u64::from(owner.weight)).sum() }
    }

    /// The highest ratio to an even share, in permille: of what an Owner has, and of what it should have.
    pub(super) fn peak_and_floor_of_share(&self) -> (u32, u32) {
        let even = self.even_level();
        let highest = |of: fn(&OwnerState) -> u64| {
            let eligible = self.owners.iter().filter(|owner| owner.is_eligible);
            eligible.map(|owner| permille(of(owner), even.share(owner.weight))).max().unwrap_or(0)
        };
        (highest(|owner| owner.load), highest(|owner| owner.goal))
    }

    /// Sets the level, and the share, the goal and the big key of each Owner. Returns the big keys, the largest first.
    pub(super) fn measure(&mut self) -> Vec<BigKey> {
        let all = self.even_level();
        let candidates = self.big_candidates(all);
        let order = self.by_weight();
        self.level = all;
        let mut big: Vec<BigKey> = Vec::new();
        loop {
            let more = self.big_at(self.level, &candidates, &big);
            if more.len() == big.len() {
                break;
            }
            big = more;
            self.level = self.level_without(all, &big, &order);
        }
        self.set_goals(&big);
        big
    }

    /// The keys that are large enough to be big for the smallest Owner, the largest first.
    fn big_candidates(&self, all: Level) -> Vec<BigKey> {
        let eligible = self.owners.iter().filter(|owner| owner.is_eligible);
        let smallest = eligible.map(|owner| owner.weight).min().unwrap_or(0);
        // Shares shrink as big keys are taken out, but hardly by half.
        let least = all.share(smallest) / 2;
        let mut keys = Vec::new();
        for place in 0..self.pieces.len() {
            let owner = self.eligible_owner(Some(place));
            let heavy = self.heavy(place).iter().filter(|(_, load)| *load > least);
            keys.extend(heavy.map(|&(key, load)| BigKey { key, load, owner }));
        }
        keys.sort_unstable_by_key(|big| (Reverse(big.load), big.key));
        // The last Owner is for the rest.
        keys.truncate(self.eligible.saturating_sub(1));
        keys
    }

    /// The Owners that may have keys, the largest first.
    fn by_weight(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.owners.len()).filter(|&o| self.owners[o].is_eligible).collect();
        order.sort_by_key(|&owner| (Reverse(self.owners[owner].weight), owner));
        order
    }

    /// The candidates that are big at this level, or were before: the list only grows, and so it ends.
    fn big_at(&self, level: Level, candidates: &[BigKey], before: &[BigKey]) -> Vec<BigKey> {
        let largest = self.owners.iter().filter(|owner| owner.is_eligible).map(|owner| owner.weight).max();
        let is_big = |known: &&BigKey| {
            let weight = known.owner.map_or(largest.unwrap_or(0), |owner| self.owners[owner].weight);
            known.load > part_of(level.share(weight), BIG_KEY_PERMILLE) || before.contains(known)
        };
        candidates.iter().filter(is_big).copied().collect()
    }

    /// The level of what remains if each big key has an Owner of its own: its own, or else the largest that has none.
    fn level_without(&self, all: Level, big: &[BigKey], order: &[usize]) -> Level {
        let mut taken = vec![false; self.owners.len()];
        let mut rest = all;
        let mut seconds = 0;
        for &BigKey { load, owner, .. } in big {
            rest.load = rest.load.saturating_sub(load);
            match owner {
                Some(owner) if !taken[owner] => {
                    taken[owner] = true;
                    rest.weight -= u64::from(self.owners[owner].weight);
                }
                _ => seconds += 1,
            }
        }
        let free = order.iter().filter(|&&owner| !taken[owner]).take(seconds);
        rest.weight -= free.map(|&owner| u64::from(self.owners[owner].weight)).sum::<u64>();
        rest
    }

    fn set_goals(&mut self, big: &[BigKey]) {
        self.owners.iter_mut().for_each(|owner| owner.big_key = None);
        for &BigKey { key, load, owner } in big {
            if let Some(owner) = owner.map(|owner| &mut self.owners[owner]) {
                owner.big_key = owner.big_key.or(Some((key, load)));
            }
        }
        (0..self.owners.len()).for_each(|owner| self.set_goal(owner));
    }

    /// Sets up to which ratio, in permille, Owners may be filled.
    pub(super) fn fill_to(&mut self, fill: u32) {
        self.owners.iter_mut().for_each(|owner| owner.fill = part_of(owner.goal, u64::from(fill)));
    }

    /// Sets an Owner's goal after its big key changed.
    pub(super) fn set_goal(&mut self, owner: usize) {
        let (level, fill) = (self.level, u64::from(self.thresholds.fill));
        let owner = &mut self.owners[owner];
        owner.share = if owner.is_eligible { level.share(owner.weight) } else { 0 };
        owner.goal = owner.share.max(owner.big_key.map_or(0, |(_, load)| load));
        owner.fill = part_of(owner.goal, fill);
    }
}
