//! What is committed, added up by the oracle itself from the batches alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{Generation, Lsn, Nonce, SessionId, Url};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::message::Position;
use centrifuge_core::namespace_kind::Mode;
use centrifuge_core::range_map::RangeMap;
use centrifuge_core::range_set::RangeSet;
use centrifuge_core::record::{Batch, Change, DeathEvidence, Record, SessionInfo};
use centrifuge_core::settings::Settings;

use super::{Spaces, TrueTime, slot};

/// What Lookups may see of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Row {
    /// Who holds it or is being granted it.
    pub owner: Option<SessionId>,
    /// The last lease granted on it; zero if there was none.
    pub generation: Generation,
    /// The lease at which its state last began empty.
    pub state_since: Generation,
    /// It is granted to nobody, because Owners that got it died.
    pub quarantined: bool,
}

/// Every batch so far, summed up namespace by namespace.
#[derive(Debug, Default)]
pub struct Committed {
    ledgers: Vec<Ledger>,
    changes: Vec<RowChange>,
}

/// What a batch did to some keys that shared a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowChange {
    /// The namespace.
    pub space: usize,
    /// The keys.
    pub range: KeyRange,
    /// Their row before the record.
    pub before: Row,
    /// Their row after the record.
    pub after: Row,
    /// What the record was.
    pub how: How,
}

/// The records that change rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// A grant, and the lease under which the state that comes along was held.
    Granted(Option<Generation>),
    /// A release.
    Released,
    /// A claim of a lease that an earlier leader granted.
    Claimed,
    /// Its holder took another number.
    Merged,
    /// It is granted to nobody any more, or may be again.
    Quarantined,
}

/// One namespace.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Whether it exists now.
    pub exists: bool,
    /// When its present life began.
    pub began: Option<TrueTime>,
    /// What its leases promise.
    pub mode: Mode,
    /// Its settings now.
    pub settings: Arc<Settings>,
    /// The longest hold of any settings that it had.
    pub longest_hold: Duration,
    /// How much sooner than its leases end a session may be taken for silent, under any settings that it had.
    pub impatience: Duration,
    /// Whether an operator stopped its moves.
    pub frozen: bool,
    /// The sessions that are part of it now.
    pub sessions: BTreeMap<SessionId, SessionInfo>,
    /// Its table now.
    pub rows: RangeMap<Row>,
    /// The ranges that are granted to nobody, and who died of each.
    pub quarantines: BTreeMap<KeyRange, Arc<[DeathEvidence]>>,
    /// The change logs of all its lives, the present one last.
    logs: Vec<Log>,
    longest_lease: Duration,
    /// Every grant there ever was.
    grants: BTreeMap<Generation, Granting>,
    /// Where sessions are reached, also of those that are over.
    urls: BTreeMap<SessionId, Url>,
}

/// A grant as it was committed.
#[derive(Debug)]
pub struct Granting {
    /// To whom.
    pub session: SessionId,
    /// Of which keys, and since when the state of each exists.
    pub parts: Vec<(KeyRange, Generation)>,
}

/// One life of a namespace: the table at every position of its change log.
#[derive(Debug)]
pub struct Log {
    id: Nonce,
    versions: Vec<Version>,
}

/// The whole table at one position.
#[derive(Debug)]
pub struct Version {
    /// When it was committed.
    pub at: TrueTime,
    /// Its rows in key order, neighbours that agree as one.
    pub rows: Box<[(KeyRange, Row)]>,
}

impl Committed {
    /// Adds a batch.
    pub fn apply(&mut self, now: TrueTime, batch: &Batch, spaces: &mut Spaces) {
        for record in &batch.records {
            if let Record::Namespace { namespace, change, .. } = record {
                let space = spaces.place(namespace);
                slot(&mut self.ledgers, space).apply(now, space, change, &mut self.changes);
            }
        }
        let mut touched: Vec<usize> = self.changes.iter().map(|change| change.space).collect();
        touched.sort_unstable();
        touched.dedup();
        touched.into_iter().for_each(|space| self.ledgers[space].publish(now));
    }

    /// What the event that is being judged changed.
    pub fn changes(&self) -> &[RowChange] {
        &self.changes
    }

    /// The next event begins.
    pub fn forget_changes(&mut self) {
        self.changes.clear();
    }

    /// The namespace at a place, if a record ever named it.
    pub fn ledger(&self, space: usize) -> Option<&Ledger> {
        self.ledgers.get(space)
    }

    /// Every namespace that a record ever named, by place.
    pub fn ledgers(&self) -> impl Iterator<Item = (usize, &Ledger)> {
        self.ledgers.iter().enumerate()
    }
}

impl Ledger {
    fn apply(&mut self, now: TrueTime, space: usize, change: &Change, changes: &mut Vec<RowChange>) {
        match change {
            Change::Created { kind, log, floor, settings } => {
                self.mode = kind.mode;
                self.create(now, *log, *floor);
                self.configure(settings);
            }
            _ if !self.exists => {}
            Change::Removed => self.exists = false,
            Change::SessionStarted { session, info } | Change::SessionChanged { session, info } => {
                self.urls.insert(*session, info.url.clone());
                self.sessions.insert(*session, info.clone());
            }
            Change::SessionEnded { session } => {
                self.sessions.remove(session);
            }
            Change::Granted { range, generation, session, source, state_since } => {
                let from = changes.len();
                let empty_since = state_since.unwrap_or(*generation);
                let granted = Row {
                    owner: Some(*session),
                    generation: *generation,
                    state_since: empty_since,
                    quarantined: false,
                };
                self.change((space, *range), How::Granted(*source), changes, |before| {
                    let kept = source.map(|_| before.state_since);
                    Some(Row { state_since: kept.unwrap_or(granted.state_since), ..granted })
                });
                self.note_grant(*generation, *session, &changes[from..]);
            }
            Change::Claimed { range, generation, state_since, session } => {
                let (owner, generation, state_since) = (Some(*session), *generation, *state_since);
                let after = Row { owner, generation, state_since, quarantined: false };
                self.change((space, *range), How::Claimed, changes, |_| Some(after));
            }
            Change::Released { range, generation } => {
                self.change((space, *range), How::Released, changes, |before| {
                    let is_it = before.generation == *generation && before.owner.is_some();
                    is_it.then_some(Row { owner: None, ..before })
                });
            }
            Change::MergeBegun { range, generation } => self.note_merge(*range, *generation),
            // The keys have the number that was given to whoever holds them now.
            Change::Merged { range, generation } => {
                let given = self.grants.get(generation).map(|given| given.session);
                self.change((space, *range), How::Merged, changes, |before| {
                    let is_it = given.is_some() && before.owner == given;
                    is_it.then_some(Row { generation: *generation, ..before })
                });
            }
            Change::Quarantined { range, evidence } => {
                self.quarantines.insert(*range, Arc::clone(evidence));
                self.quarantine((space, *range), true, changes);
            }
            Change::Unquarantined { range } => {
                let ended = self.quarantines.keys().copied().filter(|known| known.overlaps(*range));
                for range in ended.collect::<Vec<_>>() {
                    self.quarantines.remove(&range);
                    self.quarantine((space, range), false, changes);
                }
            }
            Change::Frozen => self.frozen = true,
            Change::Unfrozen => self.frozen = false,
            Change::Configured { settings } => self.configure(settings),
            Change::HoldSettled
            | Change::Recalled { .. }
            | Change::RecallCancelled { .. }
            | Change::Pinned { .. } => {}
        }
    }

    fn quarantine(&mut self, keys: (usize, KeyRange), quarantined: bool, changes: &mut Vec<RowChange>) {
        self.change(keys, How::Quarantined, changes, |before| {
            before.owner.is_none().then_some(Row { quarantined, ..before })
        });
    }

    fn configure(&mut self, settings: &Arc<Settings>) {
        let silence = settings.renewal * 2 + settings.answer_allowance;
        let hold = if self.mode == Mode::Affinity { silence } else { settings.hold };
        self.longest_hold = self.longest_hold.max(hold);
        if self.mode == Mode::Affinity {
            // A session under a longer lease of earlier settings may be judged by a shorter silence of later ones.
            self.longest_lease = self.longest_lease.max(settings.lease);
            let by_a_fast_clock = silence * 60 / 65;
            self.impatience = self.impatience.max(self.longest_lease.saturating_sub(by_a_fast_clock));
        }
        self.settings = Arc::clone(settings);
    }

    /// Nothing is known of any key, but that its lease and its state's age are not above `floor`.
    fn create(&mut self, now: TrueTime, log: Nonce, floor: Generation) {
        self.exists = true;
        self.began = Some(now);
        self.frozen = false;
        self.sessions.clear();
        self.quarantines.clear();
        self.rows = RangeMap::new();
        let nobody = Row { generation: floor, state_since: floor, ..Row::default() };
        self.rows.insert(KeyRange::ALL, nobody);
        self.logs.push(Log { id: log, versions: Vec::new() });
        self.publish(now);
    }

    /// Changes the rows of a range that become others, and notes each.
    fn change(
        &mut self,
        (space, range): (usize, KeyRange),
        how: How,
        changes: &mut Vec<RowChange>,
        after: impl Fn(Row) -> Option<Row>,
    ) {
        self.rows.update(range, |part, &before| {
            let Some(after) = after(before) else { return Some(before) };
            changes.push(RowChange { space, range: part, before, after, how });
            Some(after)
        });
    }

    fn note_grant(&mut self, generation: Generation, session: SessionId, changes: &[RowChange]) {
        let granting =
            self.grants.entry(generation).or_insert_with(|| Granting { session, parts: Vec::new() });
        granting.parts.extend(changes.iter().map(|change| (change.range, change.after.state_since)));
    }

    /// The number is as good as a grant of it to whoever holds the keys.
    fn note_merge(&mut self, range: KeyRange, generation: Generation) {
        let parts: Vec<_> = self.rows.overlapping(range).map(|(part, row)| (part, row.state_since)).collect();
        let owner = self.rows.get(range.first()).and_then(|(_, row)| row.owner);
        let session = owner.unwrap_or_default();
        self.grants.insert(generation, Granting { session, parts });
    }

    /// The table has its next position.
    fn publish(&mut self, at: TrueTime) {
        let rows = self.rows.iter().map(|(range, row)| (range, *row)).collect();
        if let Some(log) = self.logs.last_mut() {
            log.versions.push(Version { at, rows });
        }
    }

    /// Where the present life's change log ends.
    pub fn position(&self) -> Option<Position> {
        let log = self.logs.last().filter(|_| self.exists)?;
        Some(Position { log: log.id, lsn: log.end() })
    }

    /// One of its change logs.
    pub fn log(&self, id: Nonce) -> Option<&Log> {
        self.logs.iter().rev().find(|log| log.id == id)
    }

    /// The table at a position, if it was ever committed.
    pub fn version(&self, position: Position) -> Option<&Version> {
        self.log(position.log)?.version(position.lsn)
    }

    /// A grant by its number.
    pub fn grant_numbered(&self, generation: Generation) -> Option<&Granting> {
        self.grants.get(&generation)
    }

    /// Where a session is or was reached.
    pub fn url(&self, session: SessionId) -> Option<&Url> {
        self.urls.get(&session)
    }
}

impl Granting {
    /// Whether all of `range` was granted, with state of this age.
    pub fn covers(&self, range: KeyRange, state_since: Generation) -> bool {
        let mut rest = Some(range);
        for (part, since) in &self.parts {
            let Some(wanted) = rest else { break };
            if part.contains(wanted.first()) && *since == state_since {
                rest = wanted.difference(*part).1;
            }
        }
        rest.is_none()
    }

    /// Whether all of `range` was granted.
    pub fn contains(&self, range: KeyRange) -> bool {
        RangeSet::from_ranges(self.parts.iter().map(|(part, _)| *part)).contains_range(range)
    }

    /// Whether the state of some key of `range` began anew later than `state_since`.
    pub fn began_after(&self, range: KeyRange, state_since: Generation) -> bool {
        self.parts.iter().any(|(part, since)| part.overlaps(range) && *since > state_since)
    }
}

impl Log {
    /// The position of the latest version.
    pub fn end(&self) -> Lsn {
        Lsn(self.versions.len() as u64 - 1)
    }

    /// The table at a position, if it was ever committed.
    pub fn version(&self, lsn: Lsn) -> Option<&Version> {
        self.versions.get(usize::try_from(lsn.0).ok()?)
    }

    /// The latest position that was committed by an instant.
    pub fn end_at(&self, at: TrueTime) -> Lsn {
        let later = self.versions.iter().rev().take_while(|version| version.at > at).count();
        Lsn((self.versions.len() - later).saturating_sub(1) as u64)
    }
}

/// The rows that share a key with `range`.
pub fn rows_in(rows: &[(KeyRange, Row)], range: KeyRange) -> impl Iterator<Item = &(KeyRange, Row)> {
    let start = rows.partition_point(|(part, _)| part.last() < range.first());
    rows[start..].iter().take_while(move |(part, _)| part.first() <= range.last())
}

/// The first key of which the rows, in key order, do not say the same.
pub fn first_difference(
    one: impl IntoIterator<Item = (KeyRange, Row)>,
    other: impl IntoIterator<Item = (KeyRange, Row)>,
) -> Option<Key> {
    let (mut one, mut other) = (one.into_iter(), other.into_iter());
    let (mut left, mut right) = (one.next(), other.next());
    loop {
        let ((a, row_a), (b, row_b)) = match (left, right) {
            (None, None) => return None,
            (Some((range, _)), None) | (None, Some((range, _))) => return Some(range.first()),
            (Some(left), Some(right)) => (left, right),
        };
        if a.first() != b.first() || row_a != row_b {
            return Some(a.first().min(b.first()));
        }
        // One may be cut where the other is not: go on with what is left of the longer.
        left = beyond(a, b).map(|rest| (rest, row_a)).or_else(|| one.next());
        right = beyond(b, a).map(|rest| (rest, row_b)).or_else(|| other.next());
    }
}

/// What is left of a range after another that begins with it.
fn beyond(range: KeyRange, other: KeyRange) -> Option<KeyRange> {
    if range.last() <= other.last() { None } else { range.difference(other).1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::testing::{
        Scene, at, clean_grant, create, generation, grant, log_position, quarantine, range, release, remove,
        session, start_session, unquarantine,
    };
    use centrifuge_core::manager_state::ManagerState;
    use centrifuge_core::table::Entry;

    #[test]
    fn every_change_of_the_table_is_one_position() {
        let mut scene = Scene::new();
        scene.commit(at(0), vec![create(1)]);
        scene.commit(at(1), vec![start_session(1)]);
        scene.commit(at(2), vec![grant(0, 9, 1, 1), grant(20, 29, 2, 1)]);
        scene.commit(at(3), vec![release(0, 4, 1)]);
        scene.commit(at(4), vec![release(0, 9, 7)]);
        let ledger = scene.facts.committed.ledger(0).unwrap();
        assert_eq!(ledger.position(), Some(log_position(1, 2)));
        let log = ledger.log(Nonce(1)).unwrap();
        assert_eq!([at(0), at(2), at(9)].map(|at| log.end_at(at)), [Lsn(0), Lsn(1), Lsn(2)]);
        let rows = &ledger.version(log_position(1, 2)).unwrap().rows;
        assert_eq!(
            rows[0],
            (range(0, 4), Row { generation: generation(1), state_since: generation(1), ..Row::default() })
        );
        assert_eq!(rows[1].1.owner, Some(session(1)));
        assert!(ledger.version(log_position(1, 3)).is_none());
    }

    #[test]
    fn the_sum_is_that_of_the_core_though_computed_apart() {
        let mut scene = Scene::new();
        let mut group = ManagerState::default();
        let batches = [
            vec![create(1), start_session(1), start_session(2), grant(0, 99, 1, 1), grant(100, 199, 2, 2)],
            vec![clean_grant(50, 99, 3, 2, 1), release(150, 160, 2)],
            vec![grant(90, 155, 4, 1)],
            vec![clean_grant(60, 120, 5, 2, 4)],
            vec![release(60, 120, 5), quarantine(70, 80, &[1, 2]), quarantine(100, 110, &[1, 2])],
            vec![unquarantine(75, 77), grant(60, 90, 6, 1)],
        ];
        for changes in batches {
            let batch = scene.commit(at(1), changes);
            group.apply(&batch);
            let stored = group.namespaces.values().next().unwrap();
            let theirs = stored.table.iter().map(|(range, entry)| {
                let Entry { owner, generation, state_since, quarantined, .. } = *entry;
                (range, Row { owner, generation, state_since, quarantined })
            });
            let ledger = scene.facts.committed.ledger(0).unwrap();
            let ours = ledger.version(Position { log: stored.log, lsn: stored.lsn }).unwrap();
            assert_eq!(first_difference(theirs, ours.rows.iter().copied()), None);
            assert_eq!(ledger.position().unwrap().lsn, stored.lsn);
        }
    }

    #[test]
    fn a_namespace_that_is_removed_and_created_again_begins_anew() {
        let mut scene = Scene::new();
        scene.commit(at(0), vec![create(1), grant(0, 9, 1, 1)]);
        scene.commit(at(1), vec![remove()]);
        assert_eq!(scene.facts.committed.ledger(0).unwrap().position(), None);
        scene.commit(at(2), vec![grant(0, 9, 2, 1)]);
        scene.commit(at(3), vec![create(2)]);
        let ledger = scene.facts.committed.ledger(0).unwrap();
        assert_eq!(ledger.position(), Some(log_position(2, 0)));
        assert!(ledger.version(log_position(1, 1)).is_some(), "the earlier life is remembered");
    }

    #[test]
    fn a_grant_covers_what_was_granted_with_state_of_one_age() {
        let parts =
            vec![(range(0, 4), generation(1)), (range(5, 9), generation(2)), (range(10, 19), generation(2))];
        let granting = Granting { session: session(1), parts };
        assert!(granting.covers(range(5, 19), generation(2)));
        assert!(!granting.covers(range(4, 19), generation(2)));
        assert!(!granting.covers(range(5, 20), generation(2)));
        assert!(granting.began_after(range(4, 5), generation(1)));
        assert!(!granting.began_after(range(4, 5), generation(2)));
    }

    #[test]
    fn tables_that_are_cut_differently_are_the_same() {
        let row = |number| Row {
            generation: generation(number),
            state_since: generation(number),
            ..Row::default()
        };
        let whole = [(range(0, 9), row(1)), (range(10, 19), row(2))];
        let cut = [(range(0, 3), row(1)), (range(4, 9), row(1)), (range(10, 19), row(2))];
        assert_eq!(first_difference(whole, cut), None);
        assert_eq!(first_difference(cut, whole), None);
        assert_eq!(first_difference(whole, cut[..2].iter().copied()), Some(Key(10)));
        let other = [(range(0, 4), row(1)), (range(5, 19), row(2))];
        assert_eq!(first_difference(whole, other), Some(Key(5)));
    }
}
