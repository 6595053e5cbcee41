//! S7: applying changes and applying a snapshot give the same table and the same losses.
//!
//! However a Lookup came to a position, its table must be the committed one of that position, and the losses it raised
//! on the way those that the rule of protocol §6.5 gives: a key is lost if the state of its new row began after the lease
//! the Lookup knew, and this is raised with the key's next owner. Where the new row has no owner, a Lookup that saw
//! an owner in between has raised the loss already, and one that did not may wait: both are right.

use centrifuge_core::id::Generation;
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::lookup::{LookupAction, LookupMachine, LossReason};
use centrifuge_core::message::Position;
use centrifuge_core::range_set::RangeSet;

use super::committed::Version;
use super::{At, Row, Seen, Verdict, first_difference, slot};

/// What is known of a key that was never held, or never heard of.
const NOTHING: Generation = Generation::ZERO;

/// Guards S7, and of S4 that a loss by age is raised only where the state began anew.
#[derive(Debug, Default)]
pub struct ChangesEqualSnapshots {
    lookups: Vec<Reference>,
}

/// What a Lookup's application should know of every key.
#[derive(Debug, Default)]
struct Reference {
    position: Option<Position>,
    /// The lease that is known of each key, in key order; empty before the first table.
    known: Vec<(KeyRange, Generation)>,
}

/// What a step raised.
#[derive(Debug, Default)]
struct Raised {
    /// For whatever reason.
    any: RangeSet,
    /// Because the state began anew.
    anew: RangeSet,
}

/// A key whose loss is not as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    NotRaised { key: Key, known: Generation, state_since: Generation },
    MerelyMoved { key: Key, known: Generation, state_since: Generation },
}

impl ChangesEqualSnapshots {
    /// Judges an event.
    pub fn see(&mut self, seen: &Seen<'_>, facts: At) -> Verdict {
        match seen {
            Seen::LookupStarted { node, .. } => *slot(&mut self.lookups, *node) = Reference::default(),
            Seen::LookupStepped { node, machine, actions, .. } => {
                let raised = Raised::by(actions);
                if raised.is_some() || machine.position() != slot(&mut self.lookups, *node).position {
                    return self.judge(*node, raised.unwrap_or_default(), machine, facts);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn judge(&mut self, node: usize, raised: Raised, machine: &LookupMachine, facts: At) -> Verdict {
        let (Some(position), Some(lookup)) = (machine.position(), facts.lookup(node)) else { return Ok(()) };
        let ledger = facts.committed.ledger(lookup.space);
        // A log of another namespace is for S8 to judge.
        let Some(log) = ledger.and_then(|ledger| ledger.log(position.log)) else { return Ok(()) };
        let Some(version) = log.version(position.lsn) else {
            let what = format!("Lookup {node} has a table of LSN {} that is not committed", position.lsn);
            return Err(facts.violation("S7", lookup.space, Vec::new(), what));
        };
        let reference = slot(&mut self.lookups, node);
        if reference.position != Some(position) {
            reference.position = Some(position);
            if let Some(key) = first_difference(rows_of(machine), version.rows.iter().copied()) {
                let what = format!(
                    "Lookup {node} has another entry of key {key} at LSN {} than was committed",
                    position.lsn
                );
                return Err(facts.violation("S7", lookup.space, vec![key], what));
            }
        }
        match reference.advance(version, &raised) {
            None => Ok(()),
            Some(wrong) => {
                let (invariant, key, what) = wrong.describe(node, position);
                Err(facts.violation(invariant, lookup.space, vec![key], what))
            }
        }
    }
}

/// A Lookup's table as the oracle writes it.
fn rows_of(machine: &LookupMachine) -> impl Iterator<Item = (KeyRange, Row)> {
    machine.table().into_iter().flat_map(|table| table.iter()).map(|(range, row)| {
        let owner = row.owner.as_ref().map(|owner| owner.session);
        let (generation, state_since, quarantined) = (row.generation, row.state_since, row.quarantined);
        (range, Row { owner, generation, state_since, quarantined })
    })
}

impl Reference {
    /// Moves on to a version of the table, given what was raised with it; says what should have been otherwise.
    fn advance(&mut self, version: &Version, raised: &Raised) -> Option<Wrong> {
        if self.known.is_empty() {
            self.known.push((KeyRange::ALL, NOTHING));
        }
        let mut next: Vec<(KeyRange, Generation)> =
            Vec::with_capacity(self.known.len().max(version.rows.len()));
        for (range, known, row) in together(&self.known, &version.rows) {
            if let Some(wrong) = judge_part(range, known, row, raised) {
                return Some(wrong);
            }
            // A loss that is told of keys without an owner is told again when they have one, to whom it can be published.
            let is_settled = row.owner.is_some() && raised.any.contains_range(range);
            if row.state_since <= known || known == NOTHING || is_settled {
                push(&mut next, range, known.max(row.generation));
            } else if raised.any.is_empty() || row.owner.is_none() {
                push(&mut next, range, known);
            } else {
                split(&mut next, range, &raised.any, known, row.generation);
            }
        }
        self.known = next;
        None
    }
}

/// What is wrong with what was raised of keys that share a row and what is known of them.
fn judge_part(range: KeyRange, known: Generation, row: Row, raised: &Raised) -> Option<Wrong> {
    let Row { owner, state_since, .. } = row;
    if state_since <= known {
        let moved = raised.anew.intersect_range(range).iter().next();
        return moved.map(|part| Wrong::MerelyMoved { key: part.first(), known, state_since });
    }
    // Where nothing is known nothing can be lost; saying so does no harm.
    if owner.is_none() || known == NOTHING || raised.any.contains_range(range) {
        return None;
    }
    let missing = RangeSet::from_ranges([range]).difference(&raised.any);
    missing.iter().next().map(|part| Wrong::NotRaised { key: part.first(), known, state_since })
}

/// Two divisions of all keys as one: the parts on which both are constant.
fn together<'a>(
    known: &'a [(KeyRange, Generation)],
    rows: &'a [(KeyRange, Row)],
) -> impl Iterator<Item = (KeyRange, Generation, Row)> + 'a {
    let (mut left, mut right) = (0, 0);
    std::iter::from_fn(move || {
        let ((a, known), (b, row)) = (known.get(left)?, rows.get(right)?);
        let part = a.intersection(*b)?;
        left += usize::from(part.last() == a.last());
        right += usize::from(part.last() == b.last());
        Some((part, *known, *row))
    })
}

/// Adds the next part, as one with the part before if that is known as well.
fn push(parts: &mut Vec<(KeyRange, Generation)>, range: KeyRange, known: Generation) {
    if let Some((before, same)) = parts.last_mut()
        && *same == known
        && let Some(both) = KeyRange::new(before.first(), range.last())
    {
        *before = both;
        return;
    }
    parts.push((range, known));
}

/// Adds a part of which only some keys were raised.
fn split(
    parts: &mut Vec<(KeyRange, Generation)>,
    range: KeyRange,
    raised: &RangeSet,
    known: Generation,
    generation: Generation,
) {
    let told = raised.intersect_range(range);
    let untold = RangeSet::from_ranges([range]).difference(raised);
    let mut pieces: Vec<(KeyRange, Generation)> = Vec::new();
    pieces.extend(told.iter().map(|piece| (piece, known.max(generation))));
    pieces.extend(untold.iter().map(|piece| (piece, known)));
    pieces.sort_unstable();
    pieces.into_iter().for_each(|(piece, known)| push(parts, piece, known));
}

impl Raised {
    /// What the actions raise, if they raise anything.
    fn by(actions: &[LookupAction]) -> Option<Raised> {
        let mut raised: Option<Raised> = None;
        for action in actions {
            let LookupAction::Loss { keys, why } = action else { continue };
            let all = raised.get_or_insert_default();
            all.any = all.any.union(keys);
            if *why == LossReason::StateBeganAnew {
                all.anew = all.anew.union(keys);
            }
        }
        raised
    }
}

impl Wrong {
    fn describe(self, node: usize, position: Position) -> (&'static str, Key, String) {
        let lsn = position.lsn;
        match self {
            Wrong::NotRaised { key, known, state_since } => {
                let what = format!(
                    "Lookup {node} came to LSN {lsn} without raising the loss of key {key}, known under lease {known}, \
                     whose state began with lease {state_since}"
                );
                ("S7", key, what)
            }
            Wrong::MerelyMoved { key, known, state_since } => {
                let what = format!(
                    "Lookup {node} raised a loss of key {key} at LSN {lsn} though its state merely moved: it is known \
                     under lease {known} and its state began with lease {state_since}"
                );
                ("S4", key, what)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::testing::{
        Scene, at, clean_grant, create, generation, grant, log_position, range, release,
    };

    fn raised(any: &[KeyRange], anew: &[KeyRange]) -> Raised {
        let set = |ranges: &[KeyRange]| RangeSet::from_ranges(ranges.iter().copied());
        Raised { any: set(any).union(&set(anew)), anew: set(anew) }
    }

    /// LSN 1: keys 0-9 under lease 1. LSN 2: moved cleanly, lease 2. LSN 3: released. LSN 4: lease 3, empty.
    fn scene() -> Scene {
        let mut scene = Scene::new();
        scene.commit(at(0), vec![create(1)]);
        scene.commit(at(1), vec![grant(0, 9, 1, 1)]);
        scene.commit(at(2), vec![clean_grant(0, 9, 2, 2, 1)]);
        scene.commit(at(3), vec![release(0, 9, 2)]);
        scene.commit(at(4), vec![grant(0, 9, 3, 1)]);
        scene
    }

    /// What is wrong with a Lookup that comes to the first LSN and then to each of the others, raising this.
    fn travel(first: u64, steps: Vec<(u64, Raised)>) -> Option<Wrong> {
        let scene = scene();
        let ledger = scene.facts.committed.ledger(0).unwrap();
        let mut reference = Reference::default();
        assert_eq!(
            reference.advance(ledger.version(log_position(1, first)).unwrap(), &Raised::default()),
            None
        );
        let mut wrong = steps
            .into_iter()
            .map(|(lsn, raised)| reference.advance(ledger.version(log_position(1, lsn)).unwrap(), &raised));
        wrong.find_map(|wrong| wrong)
    }

    #[test]
    fn a_clean_move_raises_nothing() {
        assert_eq!(travel(1, vec![(2, Raised::default()), (3, Raised::default())]), None);
    }

    #[test]
    fn a_loss_claimed_for_a_clean_move_is_found() {
        let wrong = travel(1, vec![(2, raised(&[], &[range(4, 5)]))]);
        assert!(matches!(wrong, Some(Wrong::MerelyMoved { key: Key(4), .. })), "{wrong:?}");
    }

    #[test]
    fn a_loss_is_due_with_the_next_owner_step_by_step_and_at_once() {
        let lost = || raised(&[], &[range(0, 9)]);
        assert_eq!(travel(1, vec![(2, Raised::default()), (3, Raised::default()), (4, lost())]), None);
        assert_eq!(travel(1, vec![(4, lost())]), None);
    }

    #[test]
    fn a_loss_that_is_not_raised_is_found() {
        let wrong = travel(1, vec![(3, Raised::default()), (4, Raised::default())]);
        assert!(matches!(wrong, Some(Wrong::NotRaised { key: Key(0), .. })), "{wrong:?}");
        let partly = travel(1, vec![(4, raised(&[], &[range(0, 3)]))]);
        assert!(matches!(partly, Some(Wrong::NotRaised { key: Key(4), .. })), "{partly:?}");
    }

    #[test]
    fn a_loss_is_raised_once() {
        let lost = || raised(&[], &[range(0, 9)]);
        let again = travel(1, vec![(4, lost()), (4, lost())]);
        assert!(matches!(again, Some(Wrong::MerelyMoved { key: Key(0), .. })), "{again:?}");
    }

    #[test]
    fn a_loss_told_without_an_owner_may_be_told_again_with_one() {
        let lost = || raised(&[], &[range(0, 9)]);
        let unowned = raised(&[range(0, 9)], &[]);
        assert_eq!(travel(1, vec![(3, unowned), (4, lost())]), None);
    }

    #[test]
    fn everything_may_be_declared_lost_at_any_time() {
        let everything = || raised(&[KeyRange::ALL], &[]);
        assert_eq!(travel(1, vec![(2, everything()), (4, everything())]), None);
    }

    #[test]
    fn the_first_table_and_first_grants_are_no_losses() {
        assert_eq!(travel(4, vec![]), None);
        assert_eq!(travel(0, vec![(1, Raised::default())]), None);
        assert_eq!(travel(0, vec![(1, raised(&[], &[range(0, 9)]))]), None);
    }

    #[test]
    fn only_what_is_raised_becomes_known() {
        let mut parts = Vec::new();
        split(&mut parts, range(0, 9), &RangeSet::from_ranges([range(2, 3)]), generation(1), generation(7));
        let expected = [(range(0, 1), 1), (range(2, 3), 7), (range(4, 9), 1)];
        assert_eq!(parts, expected.map(|(range, known)| (range, generation(known))));
    }

    #[test]
    fn a_table_that_differs_is_found() {
        let scene = scene();
        let ledger = scene.facts.committed.ledger(0).unwrap();
        let rows = |lsn| ledger.version(log_position(1, lsn)).unwrap().rows.iter().copied();
        assert_eq!(first_difference(rows(2), rows(2)), None);
        assert_eq!(first_difference(rows(1), rows(2)), Some(Key(0)));
        assert_eq!(first_difference(rows(0), rows(1)), Some(Key(0)));
    }
}
