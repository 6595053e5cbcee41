//! What may cost a key its state: faults that came near the Owners that had it, or those who lead. Planned operations
//! do not.

use std::collections::{BTreeMap, BTreeSet};

use super::evidence::Evidence;
use super::state_lifetimes::StateLifetime;
use crate::lines::{HarnessLine, Nanos, OwnerLine};

/// Whom a fault concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Near {
    /// Managers or their store: everybody.
    Leaders,
    Owner(String),
    /// The way between two Owners: state that moves from one to the other.
    Way(String, String),
}

/// A fault, from its begin to its end.
#[derive(Clone, Debug)]
struct Fault {
    near: Near,
    from: Nanos,
    to: Nanos,
    /// A stop or a cut costs nothing if it is short.
    is_pause: bool,
}

/// Everything that may explain a loss.
#[derive(Debug, Default)]
pub(super) struct Provocations {
    faults: Vec<Fault>,
    /// Which lives held or used a key, and when.
    uses: BTreeMap<u32, Vec<(Nanos, Nanos, usize)>>,
    lives: Vec<Life>,
    aftermath: Nanos,
    harmless_pause: Nanos,
}

/// What matters of one process of an Owner.
#[derive(Debug)]
struct Life {
    name: String,
    migrates: bool,
    /// To whom it sent state, and when.
    sends: Vec<(Nanos, String)>,
    /// When it left with something that it could not move away in all the time that it had.
    gave_up_at: Option<Nanos>,
}

impl Provocations {
    pub(super) fn of(evidence: &Evidence) -> Provocations {
        let mut found = Provocations {
            faults: faults(&evidence.harness),
            aftermath: evidence.plan.aftermath,
            harmless_pause: evidence.plan.harmless_pause,
            ..Provocations::default()
        };
        let names: BTreeMap<&str, &str> =
            evidence.owners.iter().map(|life| (life.url.as_str(), life.name.as_str())).collect();
        for (number, life) in evidence.owners.iter().enumerate() {
            let (mut sends, mut gave_up_at) = (Vec::new(), None);
            for line in &life.lines {
                match line {
                    OwnerLine::Joined { .. } => {}
                    OwnerLine::Sends { to, at } => {
                        let name = names.get(to.as_str()).copied().unwrap_or_default();
                        sends.push((*at, name.to_owned()));
                    }
                    OwnerLine::Leaves { is_drained, at } => gave_up_at = (!is_drained).then_some(*at),
                    OwnerLine::Held { key, first, last, .. } => {
                        found.uses.entry(*key).or_default().push((first.0, last.1, number));
                    }
                    OwnerLine::Served { key, at, .. } => {
                        found.uses.entry(*key).or_default().push((at.0, at.1, number));
                    }
                }
            }
            found.lives.push(Life { name: life.name.clone(), migrates: life.migrates, sends, gave_up_at });
        }
        found
    }

    /// Whether something other than planned operations may have cost the state `before`, after which `after` began
    /// anew.
    pub(super) fn explain(&self, key: u32, before: &StateLifetime, after: &StateLifetime) -> bool {
        let (from, to) = (before.last.0.saturating_sub(self.aftermath), after.first.1);
        let lives = self.lives_with(key, from, to);
        let cannot_move =
            |life: &&Life| !life.migrates || life.gave_up_at.is_some_and(|at| at >= from && at <= to);
        if lives.iter().any(cannot_move) {
            return true;
        }
        let mut owners: BTreeSet<&str> = lives.iter().map(|life| life.name.as_str()).collect();
        for life in &lives {
            let sent = life.sends.iter().filter(|(at, _)| *at >= from && *at <= to);
            owners.extend(sent.map(|(_, name)| name.as_str()));
        }
        // Whoever is not known by its address may have had any trouble, and so may one that does not move state.
        let is_doubtful = |name: &&str| !self.lives.iter().any(|life| life.name == *name && life.migrates);
        owners.iter().any(is_doubtful) || self.came_near(&owners, from, to)
    }

    /// The lives that had a key within some time.
    fn lives_with(&self, key: u32, from: Nanos, to: Nanos) -> Vec<&Life> {
        let uses = self.uses.get(&key).map_or(&[][..], Vec::as_slice);
        let within = uses.iter().filter(|(first, last, _)| *first <= to && *last >= from);
        let numbers: BTreeSet<usize> = within.map(|(_, _, number)| *number).collect();
        numbers.into_iter().map(|number| &self.lives[number]).collect()
    }

    /// Whether faults within some time were enough to cost these Owners a lease or a migration.
    fn came_near(&self, owners: &BTreeSet<&str>, from: Nanos, to: Nanos) -> bool {
        let mut paused = 0;
        for fault in self.faults.iter().filter(|fault| fault.from <= to && fault.to >= from) {
            let is_near = match &fault.near {
                Near::Leaders => true,
                Near::Owner(name) => owners.contains(name.as_str()),
                Near::Way(one, other) => owners.contains(one.as_str()) && owners.contains(other.as_str()),
            };
            if is_near && !fault.is_pause {
                return true;
            }
            if is_near {
                paused += fault.to - fault.from;
            }
        }
        paused > self.harmless_pause
    }
}

/// The faults that the harness wrote down.
fn faults(harness: &[HarnessLine]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut stops: BTreeMap<&str, Nanos> = BTreeMap::new();
    let mut cuts: BTreeMap<(&str, &str), Nanos> = BTreeMap::new();
    let mut add = |near: Option<Near>, from: Nanos, to: Nanos, is_pause: bool| {
        faults.extend(near.map(|near| Fault { near, from, to, is_pause }));
    };
    for line in harness {
        match line {
            HarnessLine::Killed { name, at, .. } | HarnessLine::Died { name, at, .. } => {
                let since = stops.remove(name.as_str()).unwrap_or(*at);
                add(near_one(name), since, *at, false);
            }
            HarnessLine::Stopped { name, at } => {
                stops.entry(name).or_insert(*at);
            }
            HarnessLine::Continued { name, at } => {
                let since = stops.remove(name.as_str()).unwrap_or(*at);
                add(near_one(name), since, *at, true);
            }
            HarnessLine::Cut { from, to, at } => {
                cuts.entry((from, to)).or_insert(*at);
            }
            HarnessLine::Healed { from, to, at } => {
                let since = cuts.remove(&(from.as_str(), to.as_str())).unwrap_or(*at);
                add(near_way(from, to), since, *at, true);
            }
            HarnessLine::Storm { from, to, at, until } => add(near_way(from, to), *at, *until, false),
            HarnessLine::Deposed { at } => add(Some(Near::Leaders), *at, *at, false),
            _ => {}
        }
    }
    // What never ended lasted to the end.
    for (name, since) in stops {
        add(near_one(name), since, Nanos::MAX, false);
    }
    for ((from, to), since) in cuts {
        add(near_way(from, to), since, Nanos::MAX, false);
    }
    faults
}

fn near_one(name: &str) -> Option<Near> {
    match name {
        _ if leads(name) => Some(Near::Leaders),
        _ if name.starts_with("owner-") => Some(Near::Owner(name.to_owned())),
        _ => None,
    }
}

/// Callers have no state.
fn near_way(from: &str, to: &str) -> Option<Near> {
    match (near_one(from)?, near_one(to)?) {
        (Near::Leaders, Near::Leaders) => Some(Near::Leaders),
        (Near::Owner(one), Near::Owner(other)) => Some(Near::Way(one, other)),
        (owner @ Near::Owner(_), _) | (_, owner) => Some(owner),
    }
}

fn leads(name: &str) -> bool {
    name.starts_with("manager-") || name.starts_with("etcd-")
}

#[cfg(test)]
mod tests {
    use super::super::state_lifetimes;
    use super::super::tests::*;
    use super::super::{Verdict, losses};
    use super::*;

    /// Seconds.
    const S: Nanos = 1_000_000_000;

    /// A state that `owner-1` had until 20 s and sent to `owner-2`, where another began at 22 s.
    fn false_losses(harness: Vec<HarnessLine>) -> usize {
        judged(harness, |_| {})
    }

    fn judged(harness: Vec<HarnessLine>, change: impl FnOnce(&mut Evidence)) -> usize {
        let sends = OwnerLine::Sends { to: "owner-2".into(), at: 21 * S };
        let mut evidence = owners(vec![
            owner("owner-1", [served(0, 5, "x", 1, 20 * S), sends]),
            owner("owner-2", [served(0, 7, "y", 1, 22 * S)]),
            owner("owner-3", []),
        ]);
        (evidence.plan.aftermath, evidence.plan.harmless_pause, evidence.harness) = (10 * S, S, harness);
        change(&mut evidence);
        let mut verdict = Verdict::default();
        let lifetimes = state_lifetimes::check(&evidence, &mut verdict);
        losses::check(&evidence, &lifetimes, &mut verdict);
        verdict.false_losses.len()
    }

    fn killed(name: &str, at: Nanos) -> Vec<HarnessLine> {
        vec![HarnessLine::Killed { name: name.into(), life: 1, at }]
    }

    fn stopped(name: &str, from: Nanos, to: Nanos) -> Vec<HarnessLine> {
        vec![
            HarnessLine::Stopped { name: name.into(), at: from },
            HarnessLine::Continued { name: name.into(), at: to },
        ]
    }

    #[test]
    fn a_planned_restart_explains_no_loss() {
        let retired = |name: &str| HarnessLine::Retired { name: name.into(), life: 1, at: 20 * S };
        assert_eq!(false_losses(vec![retired("owner-1"), retired("manager-1")]), 1);
        assert_eq!(false_losses(vec![HarnessLine::Operated { what: "freeze".into(), at: 20 * S }]), 1);
    }

    #[test]
    fn a_kill_explains_a_loss_of_whoever_had_the_state_or_got_it() {
        for name in ["owner-1", "owner-2", "manager-3", "etcd-1"] {
            assert_eq!(false_losses(killed(name, 21 * S)), 0, "{name}");
            assert_eq!(false_losses(killed(name, 5 * S)), 1, "{name} long before");
            assert_eq!(false_losses(killed(name, 25 * S)), 1, "{name} afterwards");
        }
        assert_eq!(false_losses(killed("owner-3", 21 * S)), 1);
        assert_eq!(false_losses(killed("caller-1", 21 * S)), 1);
    }

    #[test]
    fn a_short_pause_explains_nothing_and_several_add_up() {
        assert_eq!(false_losses(stopped("owner-1", 18 * S, 18 * S + S / 2)), 1);
        assert_eq!(false_losses(stopped("owner-1", 15 * S, 19 * S)), 0);
        let twice = [stopped("owner-1", 17 * S, 18 * S), stopped("owner-2", 20 * S, 20 * S + S / 2)].concat();
        assert_eq!(false_losses(twice), 0);
    }

    #[test]
    fn a_cut_way_explains_a_loss_if_the_state_had_to_go_there() {
        let cut = |from: &str, to: &str| {
            vec![
                HarnessLine::Cut { from: from.into(), to: to.into(), at: 18 * S },
                HarnessLine::Healed { from: from.into(), to: to.into(), at: 21 * S },
            ]
        };
        assert_eq!(false_losses(cut("owner-1", "owner-2")), 0);
        assert_eq!(false_losses(cut("owner-1", "owner-3")), 1);
        assert_eq!(false_losses(cut("manager-1", "owner-1")), 0);
        assert_eq!(false_losses(cut("caller-1", "owner-1")), 1);
    }

    #[test]
    fn who_does_not_move_state_loses_it_with_a_recall() {
        assert_eq!(judged(Vec::new(), |evidence| evidence.owners[0].migrates = false), 0);
        assert_eq!(judged(Vec::new(), |evidence| evidence.owners[1].migrates = false), 0);
        assert_eq!(judged(Vec::new(), |evidence| evidence.owners[2].migrates = false), 1);
    }

    #[test]
    fn among_planned_operations_alone_nothing_explains_a_loss() {
        let planned = |evidence: &mut Evidence| evidence.plan.is_planned_only = true;
        assert_eq!(judged(killed("owner-1", 21 * S), planned), 1);
    }
}
