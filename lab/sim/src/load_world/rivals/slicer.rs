//! Slicer's weighted move (OSDI 2016, §4.4.1), with weights of tasks, which it lacks, and hot keys in slices of their own
//! instead of replicas.

use super::placement::{Placement, place_of};
use super::slices::{Pod, Slice};

/// The constants of the rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::load_world) struct Slicer {
    /// Slices are merged only above so many a task.
    pub(super) min_slices: usize,
    /// Slices are split only below so many a task.
    pub(super) max_slices: usize,
    /// The part of the key space that merges of one decision may move.
    pub(super) merge_budget: f64,
    /// The part of the key space that moves of one decision may move.
    pub(super) move_budget: f64,
    /// No task moves anything whose load is below this many times the mean.
    pub(super) stop_at: f64,
    /// A slice is split if it is this many times as hot as the mean slice.
    pub(super) hot_slice: f64,
}

impl Default for Slicer {
    fn default() -> Slicer {
        Slicer {
            min_slices: 50,
            max_slices: 150,
            merge_budget: 0.01,
            move_budget: 0.09,
            stop_at: 1.1,
            hot_slice: 2.0,
        }
    }
}

impl Slicer {
    /// One decision: give away, merge, move, split.
    pub(in crate::load_world) fn decide(&self, slices: &mut Vec<Slice>, pods: &[Pod]) {
        Placement::new(slices, pods).give_unowned();
        self.merge_cold(slices, pods);
        self.move_hot(slices, pods);
        self.split_hot(slices, pods);
    }

    /// Joins cold neighbours, the coldest pair first, as long as there are many slices.
    fn merge_cold(&self, slices: &mut Vec<Slice>, pods: &[Pod]) {
        let mean = mean_slice(slices);
        let pair_load = |pair: usize| slices[pair].load + slices[pair + 1].load;
        let mut pairs: Vec<usize> =
            (0..slices.len().saturating_sub(1)).filter(|pair| pair_load(*pair) < mean).collect();
        pairs.sort_by(|one, two| pair_load(*one).total_cmp(&pair_load(*two)));
        let mut excess = slices.len().saturating_sub(self.min_slices * pods.len());
        let mut budget = self.merge_budget;
        let mut joined: Vec<Option<Slice>> = slices.iter().cloned().map(Some).collect();
        let placement = Placement::new(slices, pods);
        let highest = (0..pods.len()).map(|pod| placement.ratio(pod)).fold(0.0, f64::max);
        let mut gained = vec![0.0; pods.len()];
        for pair in pairs {
            let (Some(left), Some(right)) = (&joined[pair], &joined[pair + 1]) else { continue };
            let Some(both) = left.joined(right).filter(|both| both.load < mean) else { continue };
            let moved = if left.load >= right.load { right } else { left };
            let is_move = left.owner != right.owner;
            let Some(pod) = both.owner.and_then(|owner| place_of(pods, owner)) else { continue };
            let after = (placement.loads[pod] + gained[pod] + moved.load) / pods[pod].weight;
            if excess == 0 || (is_move && (moved.space() > budget || after > highest)) {
                continue;
            }
            excess -= 1;
            if is_move {
                budget -= moved.space();
                gained[pod] += moved.load;
            }
            (joined[pair], joined[pair + 1]) = (None, Some(both));
        }
        *slices = joined.into_iter().flatten().collect();
    }

    /// Moves slices from the hottest task to the coldest: each time the one that lowers the imbalance most for its key space. A task
    /// that no move helps, as one with a single hot key, is left alone, in the rule's favour.
    fn move_hot(&self, slices: &mut Vec<Slice>, pods: &[Pod]) {
        let mut placement = Placement::new(slices, pods);
        let mean = placement.mean();
        let mut stuck = vec![false; pods.len()];
        let mut budget = self.move_budget;
        while let (Some(hottest), Some(coldest)) =
            (placement.hottest(|pod| !stuck[pod]), placement.coldest(|_| true))
        {
            if placement.ratio(hottest) < self.stop_at * mean {
                return;
            }
            match best_move(&placement, hottest, coldest, budget) {
                Some(slice) => {
                    budget -= placement.slices[slice].space();
                    placement.shift(slice, hottest, coldest);
                }
                None => stuck[hottest] = true,
            }
        }
    }

    /// Splits slices that are much hotter than most, the hottest first.
    fn split_hot(&self, slices: &mut Vec<Slice>, pods: &[Pod]) {
        let threshold = self.hot_slice * mean_slice(slices);
        let mut hot: Vec<usize> = (0..slices.len()).filter(|slice| slices[*slice].load > threshold).collect();
        hot.sort_by(|one, two| slices[*two].load.total_cmp(&slices[*one].load));
        hot.truncate((self.max_slices * pods.len()).saturating_sub(slices.len()));
        let mut halves = Vec::new();
        for slice in hot {
            if let Some((left, right)) = slices[slice].split() {
                slices[slice] = left;
                halves.push(right);
            }
        }
        slices.extend(halves);
        slices.sort_by_key(|slice| slice.range.first());
    }
}

/// The slice of the hottest task with the greatest fall of imbalance for its key space.
fn best_move(placement: &Placement<'_>, hottest: usize, coldest: usize, budget: f64) -> Option<usize> {
    let before = placement.ratio(hottest);
    let mut best: Option<(usize, f64)> = None;
    for slice in &placement.held[hottest] {
        let (load, space) = (placement.slices[*slice].load, placement.slices[*slice].space());
        let here = (placement.loads[hottest] - load) / placement.pods[hottest].weight;
        let there = (placement.loads[coldest] + load) / placement.pods[coldest].weight;
        let worth = (before - here.max(there)) / space;
        let improves = here.max(there) < before * 0.999_999 && space <= budget;
        if improves && best.is_none_or(|(_, known)| worth > known) {
            best = Some((*slice, worth));
        }
    }
    best.map(|(slice, _)| slice)
}

fn mean_slice(slices: &[Slice]) -> f64 {
    slices.iter().map(|slice| slice.load).sum::<f64>() / slices.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::slices::slice;
    use super::*;

    const PODS: [Pod; 2] = [Pod { number: 0, weight: 1.0 }, Pod { number: 1, weight: 1.0 }];
    /// A sixteenth of the key space.
    const PART: u64 = 1 << 60;

    fn parts(loads: &[(usize, f64)]) -> Vec<Slice> {
        let part = |(number, (owner, load)): (usize, &(usize, f64))| {
            let first = number as u64 * PART;
            slice(first, first + (PART - 1), *owner, *load)
        };
        loads.iter().enumerate().map(part).collect()
    }

    fn rule() -> Slicer {
        Slicer { min_slices: 9, max_slices: 0, move_budget: 1.0, ..Slicer::default() }
    }

    fn loads(slices: &mut Vec<Slice>) -> Vec<f64> {
        Placement::new(slices, &PODS).loads
    }

    #[test]
    fn the_move_that_lowers_the_peak_most_is_made() {
        let mut slices = parts(&[(0, 5.0), (0, 3.0), (0, 1.0), (1, 3.0)]);
        rule().decide(&mut slices, &PODS);
        assert_eq!(loads(&mut slices), [6.0, 6.0]);
    }

    #[test]
    fn nothing_moves_below_the_stop() {
        let before = parts(&[(0, 5.0), (0, 1.2), (0, 0.2), (1, 6.0)]);
        let mut slices = before.clone();
        rule().decide(&mut slices, &PODS);
        assert_eq!(slices, before);
        Slicer { stop_at: 1.0, ..rule() }.decide(&mut slices, &PODS);
        assert_ne!(slices, before);
    }

    #[test]
    fn moves_end_with_their_budget() {
        let before = parts(&[(0, 5.0), (0, 3.0), (0, 1.0), (1, 3.0)]);
        let mut slices = before.clone();
        Slicer { move_budget: 0.06, ..rule() }.decide(&mut slices, &PODS);
        assert_eq!(slices, before, "a sixteenth of the key space is more than that");
    }

    #[test]
    fn hot_slices_are_split_up_to_the_most() {
        let mut slices = parts(&[(0, 9.0), (0, 1.0), (1, 10.0), (1, 0.1)]);
        Slicer { max_slices: 10, move_budget: 0.0, hot_slice: 1.5, ..rule() }.decide(&mut slices, &PODS);
        assert_eq!(slices.len(), 6);
        let mut few = parts(&[(0, 9.0), (0, 1.0), (1, 10.0), (1, 0.1)]);
        Slicer { max_slices: 2, move_budget: 0.0, hot_slice: 1.5, ..rule() }.decide(&mut few, &PODS);
        assert_eq!(few.len(), 4);
    }

    #[test]
    fn cold_neighbours_are_joined_within_budget_and_down_to_the_fewest() {
        let before = parts(&[(0, 9.5), (0, 0.1), (1, 0.2), (1, 9.0)]);
        let merging = Slicer { min_slices: 0, merge_budget: 0.1, move_budget: 0.0, ..rule() };
        let mut slices = before.clone();
        merging.decide(&mut slices, &PODS);
        assert_eq!(slices.len(), 3);
        let mut kept = before.clone();
        Slicer { min_slices: 2, ..merging }.decide(&mut kept, &PODS);
        assert_eq!(kept.len(), 4);
        let mut dear = before;
        Slicer { merge_budget: 0.01, ..merging }.decide(&mut dear, &PODS);
        assert_eq!(dear.len(), 4);
    }

    #[test]
    fn what_the_dead_had_goes_to_the_coldest() {
        let mut slices = parts(&[(0, 5.0), (7, 3.0), (1, 1.0)]);
        rule().decide(&mut slices, &PODS);
        assert_eq!(slices[1].owner, Some(1));
    }
}
