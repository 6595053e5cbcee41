//! F1 and F2: a cell has one holder at a time, and epochs rise over its acquisitions. And a peer whose clock is
//! astray steps down.

use std::collections::BTreeMap;

use super::Verdict;
use super::evidence::{Evidence, PeerLife};
use super::ownership::{Uses, push_once};
use crate::lines::{HarnessLine, Nanos, PeerLine};
use crate::plan::World;

/// What peers did, beside what was promised.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeersSeen {
    /// Cells acquired, by the peer.
    pub(crate) acquired: BTreeMap<String, u64>,
    /// Leases that ended before their holders wanted it, by why.
    pub(crate) lost: BTreeMap<String, u64>,
    /// Processes whose clock was astray while they lived.
    pub(crate) astray: u64,
    /// How many of them stepped down and said so.
    pub(crate) stepped_down: u64,
}

/// A time at which the clock of a process was further away than any may be.
#[derive(Clone, Copy, Debug)]
struct Astray {
    from: Nanos,
    until: Nanos,
    over: Nanos,
}

pub(super) fn check(evidence: &Evidence, verdict: &mut Verdict) {
    let mut uses = Uses::new(World::Flease.rules(), "cell");
    let mut acquired: BTreeMap<(u32, &str), String> = BTreeMap::new();
    for life in &evidence.peers {
        let who = format!("{} (process {})", life.name, life.life);
        for line in &life.lines {
            match line {
                PeerLine::Held { cell, epoch, first, last, checks } => {
                    verdict.checks += checks;
                    uses.note(*cell, epoch.clone(), (*first, *last), &life.name);
                }
                PeerLine::Acquired { cell, epoch, .. } => {
                    *verdict.peers.acquired.entry(life.name.clone()).or_default() += 1;
                    if let Some(earlier) = acquired.insert((*cell, epoch), who.clone()) {
                        let words = format!(
                            "F2: cell {cell} was acquired under epoch {epoch} by {earlier} and again by {who}"
                        );
                        push_once(&mut verdict.violations, words);
                    }
                }
                PeerLine::Ended { why, .. } => *verdict.peers.lost.entry(why.clone()).or_default() += 1,
                PeerLine::Apart { .. } | PeerLine::Agrees { .. } => {}
            }
        }
        if let Some(astray) = astray(evidence, life) {
            step_down(life, astray, verdict);
        }
    }
    verdict.leases = uses.count();
    verdict.violations.extend(uses.out_of_order());
}

/// When the clock of a process was astray, if it lived to see it.
fn astray(evidence: &Evidence, life: &PeerLife) -> Option<Astray> {
    let found = |line: &HarnessLine| match line {
        HarnessLine::Astray { name, life: number, from, until, over, .. }
            if *name == life.name && *number == life.life && *from < life.end =>
        {
            Some(Astray { from: *from, until: *until, over: *over })
        }
        _ => None,
    };
    evidence.harness.iter().find_map(found)
}

/// A clock that is wrong from the start lets its peer hold nothing, and one that lives long enough with it says so.
fn step_down(life: &PeerLife, astray: Astray, verdict: &mut Verdict) {
    let is_astray = |at: Nanos| astray.from <= at && at < astray.over;
    let said = life.lines.iter().any(|line| matches!(line, PeerLine::Apart { at, .. } if is_astray(*at)));
    verdict.peers.astray += 1;
    verdict.peers.stepped_down += u64::from(said);
    let holds = |line: &PeerLine| match line {
        PeerLine::Held { cell, last, .. } if astray.from == 0 && last.1 < astray.until => Some(*cell),
        _ => None,
    };
    if let Some(cell) = life.lines.iter().find_map(holds) {
        verdict.violations.push(format!(
            "clock: {} held cell {cell} in its process {}, though its clock was further than epsilon from all others'",
            life.name, life.life
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::{Plan, Span};

    const S: Nanos = 1_000_000_000;

    fn held(cell: u32, epoch: &str, from: Nanos, to: Nanos) -> PeerLine {
        let (first, last) = (Span(from, from + 1), Span(to, to + 1));
        PeerLine::Held { cell, epoch: epoch.into(), first, last, checks: 2 }
    }

    fn acquired(cell: u32, epoch: &str, at: Nanos) -> PeerLine {
        PeerLine::Acquired { cell, epoch: epoch.into(), at: Span(at, at + 1) }
    }

    fn peer(name: &str, life: u32, lines: Vec<PeerLine>) -> PeerLife {
        PeerLife { name: name.into(), life, end: 100 * S, lines }
    }

    fn judged(peers: Vec<PeerLife>, harness: Vec<HarnessLine>) -> Verdict {
        let plan = Plan { world: World::Flease, keys: 1, ..Plan::default() };
        let evidence = Evidence { plan, peers, harness, ..Evidence::default() };
        let mut verdict = Verdict::default();
        check(&evidence, &mut verdict);
        verdict
    }

    #[test]
    fn holders_one_after_the_other_are_in_order() {
        let one =
            peer("peer-1", 1, vec![acquired(0, "0a", 9), held(0, "0a", 10, 100), held(0, "0c", 400, 500)]);
        let other = peer("peer-2", 1, vec![acquired(0, "0b", 100), held(0, "0b", 101, 300)]);
        let verdict = judged(vec![one, other], Vec::new());
        assert!(verdict.is_clean(), "{verdict:?}");
        assert_eq!((verdict.leases, verdict.checks), (3, 6));
        assert_eq!(verdict.peers.acquired.values().sum::<u64>(), 2);
    }

    #[test]
    fn two_holders_at_once_are_a_violation_of_f1() {
        let peers = vec![
            peer("peer-1", 1, vec![held(0, "0a", 10, 200)]),
            peer("peer-2", 1, vec![held(0, "0b", 100, 300)]),
        ];
        let found = judged(peers, Vec::new()).violations;
        assert!(
            found.len() == 1 && found[0].starts_with("F1: cell 0 was peer-1's under lease 0a"),
            "{found:?}"
        );
    }

    #[test]
    fn two_cells_have_nothing_to_do_with_each_other() {
        let peers = vec![
            peer("peer-1", 1, vec![held(0, "0a", 10, 200)]),
            peer("peer-2", 1, vec![held(1, "0b", 100, 300)]),
        ];
        assert!(judged(peers, Vec::new()).is_clean());
    }

    #[test]
    fn an_epoch_that_falls_or_is_acquired_twice_is_a_violation_of_f2() {
        let falls = peer("peer-1", 1, vec![held(0, "0b", 10, 20), held(0, "0a", 30, 40)]);
        let found = judged(vec![falls], Vec::new()).violations;
        assert!(found[0].starts_with("F2"), "{found:?}");
        let twice = peer("peer-1", 1, vec![acquired(0, "0a", 10), acquired(0, "0a", 30)]);
        let found = judged(vec![twice], Vec::new()).violations;
        assert!(found[0].starts_with("F2: cell 0 was acquired under epoch 0a"), "{found:?}");
        let restarted = vec![
            peer("peer-1", 1, vec![acquired(0, "0a", 10)]),
            peer("peer-1", 2, vec![acquired(0, "0a", 30)]),
        ];
        assert_eq!(judged(restarted, Vec::new()).violations.len(), 1);
    }

    #[test]
    fn a_peer_whose_clock_is_astray_from_its_start_holds_nothing() {
        let astray = |until| {
            let name = "peer-1".to_owned();
            vec![HarnessLine::Astray { name, life: 2, from: 0, until, over: until, ahead: -1 }]
        };
        let lines =
            || vec![PeerLine::Apart { from: vec![2, 3, 4], at: 3 * S }, held(0, "0a", 10 * S, 12 * S)];
        let verdict = judged(vec![peer("peer-1", 2, lines())], astray(9 * S));
        assert!(verdict.is_clean(), "{verdict:?}");
        assert_eq!((verdict.peers.astray, verdict.peers.stepped_down), (1, 1));
        let found = judged(vec![peer("peer-1", 2, lines())], astray(20 * S)).violations;
        assert!(found[0].starts_with("clock: peer-1 held cell 0"), "{found:?}");
        assert!(judged(vec![peer("peer-1", 1, lines())], astray(20 * S)).is_clean(), "another process");
    }
}
