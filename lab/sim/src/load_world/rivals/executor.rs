//! An ideal executor for the rivals' rules: every move takes one report interval and succeeds, and reports are never late.

use std::collections::{BTreeMap, VecDeque};

use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::partition::overlay;

use super::dicer::Dicer;
use super::slicer::Slicer;
use super::slices::{Pod, Slice, initial};
use crate::load_world::environment::{Environment, Incident};
use crate::load_world::metrics::Table;
use crate::load_world::observation::Counters;
use crate::load_world::{Contender, REPORT_INTERVAL, SECOND};

/// How long the ranges of a crashed pod wait.
const HOLD: u64 = 65 * SECOND;

/// A rule that decides where slices should be.
#[derive(Clone, Copy, Debug)]
pub(in crate::load_world) enum Rule {
    Slicer(Slicer),
    Dicer(Dicer),
    /// Gives everything to the first pod: what a bad rule looks like.
    #[cfg(test)]
    Hoard,
}

/// How often a rule decides, and how much of a new report it believes.
#[derive(Clone, Copy, Debug)]
pub(in crate::load_world) struct Pace {
    pub(in crate::load_world) decides_every: u64,
    pub(in crate::load_world) believes: f64,
}

impl Rule {
    fn decide(&self, slices: &mut Vec<Slice>, pods: &[Pod]) {
        match self {
            Rule::Slicer(slicer) => slicer.decide(slices, pods),
            Rule::Dicer(dicer) => dicer.decide(slices, pods),
            #[cfg(test)]
            Rule::Hoard => slices.iter_mut().for_each(|slice| slice.owner = Some(pods[0].number)),
        }
    }

    fn first_slices(&self) -> usize {
        match self {
            Rule::Slicer(slicer) => slicer.min_slices,
            Rule::Dicer(dicer) => dicer.min_slices,
            #[cfg(test)]
            Rule::Hoard => 4,
        }
    }
}

/// A rule at work.
pub(in crate::load_world) struct Executor {
    rule: Rule,
    pace: Pace,
    /// As the rule wants them.
    slices: Vec<Slice>,
    /// As they are.
    serving: Vec<(KeyRange, usize)>,
    /// What will be, and when.
    moving: VecDeque<(u64, Vec<(KeyRange, usize)>)>,
    /// Crashed pods, and until when their ranges wait.
    holds: Vec<(usize, u64)>,
    decides_at: u64,
}

impl Executor {
    pub(in crate::load_world) fn new(rule: Rule, pace: Pace, environment: &Environment) -> Executor {
        let slices = initial(&pods(environment), rule.first_slices());
        let serving = owners_of(&slices);
        let (moving, holds) = (VecDeque::new(), Vec::new());
        Executor { rule, pace, slices, serving, moving, holds, decides_at: pace.decides_every }
    }

    /// What every pod counted since the last report.
    fn take_reports(&mut self, now: u64, environment: &Environment) {
        let mut by_pod: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (number, slice) in self.slices.iter().enumerate() {
            let owner = slice.owner.filter(|owner| environment.members[*owner].is_alive());
            owner.into_iter().for_each(|owner| by_pod.entry(owner).or_default().push(number));
        }
        let from = now - REPORT_INTERVAL;
        let seconds = REPORT_INTERVAL as f64 / SECOND as f64;
        let believed = if from == 0 { 1.0 } else { self.pace.believes };
        for numbers in by_pod.into_values() {
            let ranges: Vec<(KeyRange, u64)> =
                numbers.iter().map(|number| (self.slices[*number].range, from)).collect();
            let mut counters = Counters::default();
            counters.count(&environment.history, environment.seed, &ranges, now);
            for (number, counted) in numbers.into_iter().zip(counters.take()) {
                let heavy: Vec<(Key, f64)> =
                    counted.heavy.iter().map(|(key, count)| (*key, *count as f64 / seconds)).collect();
                self.slices[number].learn(counted.count as f64 / seconds, &heavy, believed);
            }
        }
    }

    fn decide(&mut self, now: u64, environment: &Environment) {
        let waits = |slice: &Slice| self.holds.iter().any(|(pod, _)| Some(*pod) == slice.owner);
        let (waiting, mut slices): (Vec<Slice>, Vec<Slice>) =
            std::mem::take(&mut self.slices).into_iter().partition(waits);
        self.rule.decide(&mut slices, &pods(environment));
        slices.extend(waiting);
        slices.sort_by_key(|slice| slice.range.first());
        assert!(covers_every_key(&slices), "the rule left a gap, or gave keys to two");
        self.slices = slices;
        let wanted = owners_of(&self.slices);
        let is_dead = |pod: usize| !environment.members[pod].is_alive();
        let held = |pod: usize| self.holds.iter().any(|(held, _)| *held == pod);
        // There is no state to move from the dead.
        self.serving = overlay(&self.serving, &wanted)
            .map(|(range, from, to)| (range, if is_dead(from) && !held(from) { to } else { from }))
            .collect();
        self.moving.push_back((now + REPORT_INTERVAL, wanted));
    }

    /// Ends moves whose time is over; nothing moves to the dead.
    fn end_moves(&mut self, now: u64, environment: &Environment) {
        while self.moving.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, wanted)) = self.moving.pop_front() else { return };
            let is_alive = |pod: usize| environment.members[pod].is_alive();
            self.serving = if wanted.iter().all(|(_, to)| is_alive(*to)) {
                wanted
            } else {
                let piece = |(range, from, to)| (range, if is_alive(to) { to } else { from });
                overlay(&self.serving, &wanted).map(piece).collect()
            };
        }
    }
}

impl Contender for Executor {
    fn advance(&mut self, now: u64, incidents: &[Incident], environment: &Environment) {
        let mut is_due = now >= self.decides_at;
        for incident in incidents {
            match incident {
                Incident::Crashed(pod) => self.holds.push((*pod, now + HOLD)),
                Incident::Joined(_) | Incident::Draining(_) => is_due = true,
                Incident::LoadChanged => {}
            }
        }
        let held = self.holds.len();
        self.holds.retain(|(_, until)| *until > now);
        is_due |= self.holds.len() < held;
        self.end_moves(now, environment);
        if now.is_multiple_of(REPORT_INTERVAL) {
            self.take_reports(now, environment);
        }
        if is_due {
            self.decide(now, environment);
            while self.decides_at <= now {
                self.decides_at += self.pace.decides_every;
            }
        }
    }

    fn table(&self) -> Table {
        self.serving.iter().map(|(range, owner)| (*range, Some(*owner))).collect()
    }
}

fn pods(environment: &Environment) -> Vec<Pod> {
    let members = environment.members.iter().enumerate().filter(|(_, member)| member.may_have_keys());
    members.map(|(number, member)| Pod { number, weight: member.weight() }).collect()
}

fn covers_every_key(slices: &[Slice]) -> bool {
    let ends =
        (slices.first().map(|slice| slice.range.first()), slices.last().map(|slice| slice.range.last()));
    let follows = |pair: &[Slice]| pair[0].range.last().next() == Some(pair[1].range.first());
    ends == (Some(Key::MIN), Some(Key::MAX)) && slices.windows(2).all(follows)
}

fn owners_of(slices: &[Slice]) -> Vec<(KeyRange, usize)> {
    slices.iter().map(|slice| (slice.range, slice.owner.expect("every slice is given to a pod"))).collect()
}
