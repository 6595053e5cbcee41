//! Dicer's algorithm by its published sources, with weights of pods, which it lacks, and without replicas of hot keys.

use std::collections::BinaryHeap;

use super::placement::Placement;
use super::slices::{Pod, Slice};

/// The constants of the rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::load_world) struct Dicer {
    /// Slices are split up to so many a pod.
    pub(super) min_slices: usize,
    /// Slices are merged down to so many a pod.
    pub(super) max_slices: usize,
    /// How far a pod's load may be from the mean, and how large a slice may be, as a part of the mean.
    pub(super) tolerance: f64,
    /// What it costs to move a slice, as a part of its load.
    pub(super) churn_penalty: f64,
    /// What each unit of load above, or below, the tolerated costs at least.
    pub(super) overshoot_penalty: f64,
    pub(super) undershoot_penalty: f64,
}

/// What a pod without slices costs, in mean loads.
const EMPTY_PENALTY: f64 = 100.0;

impl Dicer {
    /// Dicer as it is shipped.
    pub(in crate::load_world) fn shipped() -> Dicer {
        Dicer {
            min_slices: 32,
            max_slices: 64,
            tolerance: 0.1,
            churn_penalty: 0.25,
            overshoot_penalty: 16.0,
            undershoot_penalty: 4.0,
        }
    }

    /// Dicer with the least tolerance that it can be configured with.
    pub(in crate::load_world) fn tightest() -> Dicer {
        Dicer { tolerance: 0.025, ..Dicer::shipped() }
    }

    /// One decision: take from those that are gone, split, merge, split up to the fewest, place, merge.
    pub(in crate::load_world) fn decide(&self, slices: &mut Vec<Slice>, pods: &[Pod]) {
        let (mean, base) = {
            let mut placement = Placement::new(slices, pods);
            let is_new: Vec<bool> = placement.held.iter().map(Vec::is_empty).collect();
            placement.give_unowned();
            (placement.mean(), is_new)
        };
        let before: Vec<Slice> = slices.clone();
        split_hot(slices, self.tolerance * mean);
        merge_down(slices, self.max_slices * pods.len());
        split_up(slices, self.min_slices * pods.len());
        self.place(slices, pods, &base, &before);
        merge_down(slices, self.max_slices * pods.len());
    }

    /// Takes the hottest pod's best move again and again; a pod that none helps is left alone.
    fn place(&self, slices: &mut Vec<Slice>, pods: &[Pod], is_new: &[bool], before: &[Slice]) {
        let mut placement = Placement::new(slices, pods);
        let penalty = Penalty { rule: self, mean: placement.mean() };
        let mut excluded = vec![false; pods.len()];
        // Every move lowers the sum of penalties; the limit only guards against rounding.
        for _ in 0..20 * pods.len() + placement.slices.len() {
            let Some(hottest) = placement.hottest(|pod| !excluded[pod]) else { return };
            match best_move(&placement, &penalty, hottest, is_new, before) {
                Some((slice, to)) => placement.shift(slice, hottest, to),
                None => excluded[hottest] = true,
            }
        }
    }
}

/// What the load of a pod costs.
struct Penalty<'a> {
    rule: &'a Dicer,
    mean: f64,
}

impl Penalty<'_> {
    fn of(&self, load: f64, weight: f64, is_new: bool, is_empty: bool) -> f64 {
        let most = self.mean * weight * (1.0 + self.rule.tolerance);
        if is_empty {
            return most * EMPTY_PENALTY;
        }
        let least = self.mean * weight * if is_new { 1.0 } else { 1.0 - self.rule.tolerance };
        if load < least {
            (1.0 + (least - load) / least).powi(2) * (least - load) * self.rule.undershoot_penalty
        } else if load > most {
            (load / most).powi(2) * (load - most) * self.rule.overshoot_penalty
        } else {
            0.0
        }
    }
}

/// The slice of a pod, and the pod to move it to, that lower the penalties most. The penalty is convex in the load, so that of pods
/// of one kind the coldest is the best destination.
fn best_move(
    placement: &Placement<'_>,
    penalty: &Penalty<'_>,
    from: usize,
    is_new: &[bool],
    before: &[Slice],
) -> Option<(usize, usize)> {
    let (pods, loads, held) = (placement.pods, &placement.loads, &placement.held);
    let cost =
        |pod: usize, load: f64, is_empty: bool| penalty.of(load, pods[pod].weight, is_new[pod], is_empty);
    if held[from].len() < 2 {
        return None;
    }
    let destinations = coldest_by_kind(placement, from, is_new);
    let mut best: Option<(f64, usize, usize)> = None;
    for slice in &held[from] {
        let load = placement.slices[*slice].load;
        let source = cost(from, loads[from] - load, false) - cost(from, loads[from], false);
        let churn =
            if stays_at(before, &placement.slices[*slice]) { penalty.rule.churn_penalty * load } else { 0.0 };
        for to in &destinations {
            let destination =
                cost(*to, loads[*to] + load, false) - cost(*to, loads[*to], held[*to].is_empty());
            let change = source + destination + churn;
            if change < -1e-10 && best.is_none_or(|(known, ..)| change < known) {
                best = Some((change, *slice, *to));
            }
        }
    }
    best.map(|(_, slice, to)| (slice, to))
}

/// The coldest pod of each weight, new or not, and the empty ones among them first.
fn coldest_by_kind(placement: &Placement<'_>, but: usize, is_new: &[bool]) -> Vec<usize> {
    let mut kinds: Vec<(u64, bool, usize)> = Vec::new();
    let mut pods: Vec<usize> = (0..placement.pods.len()).filter(|pod| *pod != but).collect();
    pods.sort_by(|one, two| {
        let key = |pod: usize| (!placement.held[pod].is_empty(), placement.ratio(pod));
        let ((one_held, one_ratio), (two_held, two_ratio)) = (key(*one), key(*two));
        one_held.cmp(&two_held).then(one_ratio.total_cmp(&two_ratio)).then(one.cmp(two))
    });
    for pod in pods {
        let (weight, new) = (placement.pods[pod].weight.to_bits(), is_new[pod]);
        if !kinds.iter().any(|(known, known_new, _)| (*known, *known_new) == (weight, new)) {
            kinds.push((weight, new, pod));
        }
    }
    kinds.into_iter().map(|(_, _, pod)| pod).collect()
}

/// Whether the pod that has the slice had it before the decision: only then does a move cost churn.
fn stays_at(before: &[Slice], slice: &Slice) -> bool {
    let place = before.partition_point(|known| known.range.last() < slice.range.first());
    before.get(place).is_some_and(|known| known.owner == slice.owner)
}

/// Splits slices until each is below the threshold, or is one key.
fn split_hot(slices: &mut Vec<Slice>, threshold: f64) {
    let mut done = Vec::with_capacity(slices.len());
    let mut left: Vec<Slice> = std::mem::take(slices);
    left.reverse();
    while let Some(slice) = left.pop() {
        let halves = if slice.load > threshold && threshold > 0.0 { slice.split() } else { None };
        match halves {
            Some((first, second)) => left.extend([second, first]),
            None => done.push(slice),
        }
    }
    *slices = done;
}

/// Splits the hottest slice again and again until there are so many.
fn split_up(slices: &mut Vec<Slice>, fewest: usize) {
    let priority = |slice: &Slice| ((slice.load * 1e6) as u64, slice.range.key_count());
    let mut heap: BinaryHeap<((u64, u128), usize)> =
        slices.iter().enumerate().map(|(number, slice)| (priority(slice), number)).collect();
    while slices.len() < fewest
        && let Some((_, number)) = heap.pop()
    {
        let Some((left, right)) = slices[number].split() else { continue };
        heap.push((priority(&left), number));
        heap.push((priority(&right), slices.len()));
        slices[number] = left;
        slices.push(right);
    }
    slices.sort_by_key(|slice| slice.range.first());
}

/// Joins the coldest neighbours until there are no more than so many.
fn merge_down(slices: &mut Vec<Slice>, most: usize) {
    while slices.len() > most {
        let are_neighbours = |pair: &usize| slices[*pair].joined(&slices[*pair + 1]).is_some();
        let mut pairs: Vec<usize> = (0..slices.len() - 1).filter(are_neighbours).collect();
        let load = |pair: &usize| slices[*pair].load + slices[*pair + 1].load;
        pairs.sort_by(|one, two| load(one).total_cmp(&load(two)).then(one.cmp(two)));
        let excess = slices.len() - most;
        let mut joined: Vec<Option<Slice>> = std::mem::take(slices).into_iter().map(Some).collect();
        let mut merged = vec![false; joined.len()];
        let mut count = 0;
        // Half of the pairs at a time: what a join makes may be colder than what comes later.
        for pair in pairs.into_iter().take(excess.div_ceil(2).max(1)) {
            if merged[pair] || merged[pair + 1] || count == excess {
                continue;
            }
            let (Some(left), Some(right)) = (&joined[pair], &joined[pair + 1]) else { continue };
            let Some(both) = left.joined(right) else { continue };
            (joined[pair], joined[pair + 1]) = (None, Some(both));
            (merged[pair], merged[pair + 1]) = (true, true);
            count += 1;
        }
        *slices = joined.into_iter().flatten().collect();
        if count == 0 {
            return;
        }
    }
}

#[cfg(test)]
#[path = "dicer_tests.rs"]
mod tests;
