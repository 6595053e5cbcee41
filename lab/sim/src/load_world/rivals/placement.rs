//! Which pod has which slices while a rule decides, with the load that follows from it.

use super::slices::{Pod, Slice};

/// Slices on pods. Slices of pods that are not there are nobody's.
pub(super) struct Placement<'a> {
    pub(super) slices: &'a mut Vec<Slice>,
    pub(super) pods: &'a [Pod],
    /// The load of each pod, by its place.
    pub(super) loads: Vec<f64>,
    /// The slices of each pod, by its place.
    pub(super) held: Vec<Vec<usize>>,
}

impl<'a> Placement<'a> {
    pub(super) fn new(slices: &'a mut Vec<Slice>, pods: &'a [Pod]) -> Placement<'a> {
        let (mut loads, mut held) = (vec![0.0; pods.len()], vec![Vec::new(); pods.len()]);
        for (number, slice) in slices.iter_mut().enumerate() {
            slice.owner = slice.owner.filter(|owner| place_of(pods, *owner).is_some());
            if let Some(pod) = slice.owner.and_then(|owner| place_of(pods, owner)) {
                loads[pod] += slice.load;
                held[pod].push(number);
            }
        }
        Placement { slices, pods, loads, held }
    }

    /// The load of all pods by their capacity.
    pub(super) fn mean(&self) -> f64 {
        let weight: f64 = self.pods.iter().map(|pod| pod.weight).sum();
        self.loads.iter().sum::<f64>() / weight
    }

    /// The load of a pod by its capacity.
    pub(super) fn ratio(&self, pod: usize) -> f64 {
        self.loads[pod] / self.pods[pod].weight
    }

    /// The pod with the highest load by capacity among those that are wanted.
    pub(super) fn hottest(&self, is_wanted: impl Fn(usize) -> bool) -> Option<usize> {
        let wanted = (0..self.pods.len()).filter(|pod| is_wanted(*pod));
        wanted.max_by(|one, two| self.ratio(*one).total_cmp(&self.ratio(*two)).then(two.cmp(one)))
    }

    /// The pod with the lowest load by capacity among those that are wanted.
    pub(super) fn coldest(&self, is_wanted: impl Fn(usize) -> bool) -> Option<usize> {
        let wanted = (0..self.pods.len()).filter(|pod| is_wanted(*pod));
        wanted.min_by(|one, two| self.ratio(*one).total_cmp(&self.ratio(*two)).then(one.cmp(two)))
    }

    /// Gives what is nobody's to the coldest, the hottest slice first; returns which slices these were.
    pub(super) fn give_unowned(&mut self) -> Vec<usize> {
        let mut unowned: Vec<usize> =
            (0..self.slices.len()).filter(|slice| self.slices[*slice].owner.is_none()).collect();
        unowned
            .sort_by(|one, two| self.slices[*two].load.total_cmp(&self.slices[*one].load).then(one.cmp(two)));
        for slice in &unowned {
            // Without load the pod with the fewest slices is the coldest.
            let key = |pod: &usize| (self.ratio(*pod), self.held[*pod].len() as f64 / self.pods[*pod].weight);
            let less = |one: &usize, two: &usize| {
                let ((one_load, one_count), (two_load, two_count)) = (key(one), key(two));
                one_load.total_cmp(&two_load).then(one_count.total_cmp(&two_count))
            };
            let Some(pod) = (0..self.pods.len()).min_by(less) else { return unowned };
            self.put(*slice, pod);
        }
        unowned
    }

    /// Moves a slice from one pod to another.
    pub(super) fn shift(&mut self, slice: usize, from: usize, to: usize) {
        self.loads[from] -= self.slices[slice].load;
        self.held[from].retain(|held| *held != slice);
        self.put(slice, to);
    }

    fn put(&mut self, slice: usize, pod: usize) {
        self.loads[pod] += self.slices[slice].load;
        self.held[pod].push(slice);
        self.slices[slice].owner = Some(self.pods[pod].number);
    }
}

/// The place of a pod in the list, which is in the order of their numbers.
pub(super) fn place_of(pods: &[Pod], number: usize) -> Option<usize> {
    pods.binary_search_by_key(&number, |pod| pod.number).ok()
}

#[cfg(test)]
mod tests {
    use super::super::slices::slice;
    use super::*;

    #[test]
    fn slices_of_pods_that_are_gone_go_to_the_coldest_hottest_first() {
        let pods = [Pod { number: 1, weight: 1.0 }, Pod { number: 2, weight: 2.0 }];
        let mut slices =
            vec![slice(0, 9, 1, 5.0), slice(10, 19, 7, 1.0), slice(20, 29, 7, 9.0), slice(30, 39, 2, 2.0)];
        let mut placement = Placement::new(&mut slices, &pods);
        placement.give_unowned();
        assert_eq!(placement.loads, [6.0, 11.0]);
        let owners: Vec<_> = slices.iter().map(|slice| slice.owner).collect();
        assert_eq!(owners, [Some(1), Some(1), Some(2), Some(2)]);
    }

    #[test]
    fn hottest_and_coldest_go_by_capacity() {
        let pods = [Pod { number: 1, weight: 1.0 }, Pod { number: 2, weight: 4.0 }];
        let mut slices = vec![slice(0, 9, 1, 5.0), slice(10, 19, 2, 8.0)];
        let placement = Placement::new(&mut slices, &pods);
        assert_eq!((placement.hottest(|_| true), placement.coldest(|_| true)), (Some(0), Some(1)));
        assert_eq!(placement.mean(), 13.0 / 5.0);
    }
}
