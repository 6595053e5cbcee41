//! The stored state of a Manager group: what the records, applied in order, add up to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::id::{Generation, Lsn, Namespace, Nonce, OwnerName, SessionId, Term};
use crate::injected_bug::{Bug, injected};
use crate::key::KeyRange;
use crate::namespace_kind::NamespaceKind;
use crate::range_map::RangeMap;
use crate::range_set::RangeSet;
use crate::record::{Batch, Change, DeathEvidence, Record, SessionInfo};
use crate::settings::Settings;
use crate::table::{Entry, PublishedEntry, PublishedOwner, Recall, Table};

/// Everything that is stored. Applying the same batches in the same order gives the same group, on the leader, on a
/// standby and in a test.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ManagerState {
    /// The term of the latest batch.
    pub term: Term,
    /// How long the latest leader may go on acting without the store; zero once it has resigned.
    pub latest_leader_hold: Duration,
    /// The same of the leaders before it; zero once their time has passed.
    pub earlier_leaders_hold: Duration,
    /// The namespaces by name.
    pub namespaces: BTreeMap<Namespace, NamespaceState>,
    /// The last generation of each namespace that was removed: they are never used again.
    pub removed: BTreeMap<Namespace, Generation>,
}

/// The stored state of one namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NamespaceState {
    /// The identity of the change log.
    pub log: Nonce,
    /// The log's end.
    pub lsn: Lsn,
    /// What it is, for as long as it exists.
    #[cfg_attr(feature = "serde", serde(default))]
    pub kind: NamespaceKind,
    /// The settings in force.
    pub settings: Arc<Settings>,
    /// The longest hold that a lease granted under earlier settings may still have; at least the settings' own.
    pub longest_hold: Duration,
    /// The highest generation ever granted.
    pub last_generation: Generation,
    /// The sessions by process.
    pub sessions: BTreeMap<SessionId, SessionInfo>,
    /// The lease table.
    pub table: Table,
    /// Whether an operator stopped all moves.
    pub frozen: bool,
    /// Where operators want ranges.
    pub pins: RangeMap<OwnerName>,
    /// The processes that operators evicted and that are gone, the latest last: none of them may come back.
    pub evicted: Vec<SessionId>,
    /// The ranges that are granted to nobody, in key order. The table marks the same keys.
    #[cfg_attr(feature = "serde", serde(default))]
    pub quarantines: Vec<Quarantine>,
}

/// A range that is granted to nobody, because Owners that got it died.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Quarantine {
    /// The keys.
    pub range: KeyRange,
    /// Who died.
    pub evidence: Arc<[DeathEvidence]>,
}

/// How many keys of a namespace may be in quarantine: one in a hundred.
pub const MAX_QUARANTINED_KEYS: u128 = (1 << 64) / 100;

/// How many evicted processes a namespace remembers. Each is told when it asks again, and then stops.
const MAX_EVICTED: usize = 1024;

impl ManagerState {
    /// Applies one batch and returns the table entries that Lookups see change, by namespace.
    pub fn apply(&mut self, batch: &Batch) -> BTreeMap<Namespace, Vec<PublishedEntry>> {
        let mut published: BTreeMap<Namespace, Vec<PublishedEntry>> = BTreeMap::new();
        self.term = batch.term;
        for record in &batch.records {
            match record {
                Record::LeaderStarted { leader_hold } => {
                    self.earlier_leaders_hold = self.leader_hold();
                    self.latest_leader_hold = *leader_hold;
                }
                Record::LeaderSettled => self.earlier_leaders_hold = Duration::ZERO,
                Record::LeaderResigned => self.latest_leader_hold = Duration::ZERO,
                Record::Namespace { namespace, change, .. } => {
                    let changes = self.apply_change(namespace, change);
                    if !changes.is_empty() {
                        published.entry(namespace.clone()).or_default().extend(changes);
                    }
                }
            }
        }
        for namespace in published.keys() {
            if let Some(stored) = self.namespaces.get_mut(namespace) {
                stored.lsn = stored.lsn.next().expect("a log does not outgrow 64 bits");
            }
        }
        published
    }

    /// How long some leader may go on acting without the store: what a new one waits.
    #[must_use]
    pub fn leader_hold(&self) -> Duration {
        self.latest_leader_hold.max(self.earlier_leaders_hold)
    }

    /// Applies one change without moving the change log; what Lookups see change is returned.
    pub fn apply_change(&mut self, namespace: &Namespace, change: &Change) -> Vec<PublishedEntry> {
        match change {
            Change::Created { kind, settings, log, floor } => {
                let last = self.removed.remove(namespace).unwrap_or_default().max(*floor);
                let mut stored = NamespaceState::new(kind.clone(), settings.clone(), *log, last);
                let unclaimed = Entry { generation: *floor, state_since: *floor, ..Entry::default() };
                stored.table.set(KeyRange::ALL, unclaimed);
                self.namespaces.insert(namespace.clone(), stored);
                Vec::new()
            }
            Change::Removed => {
                if let Some(stored) = self.namespaces.remove(namespace) {
                    self.removed.insert(namespace.clone(), stored.last_generation);
                }
                Vec::new()
            }
            change => match self.namespaces.get_mut(namespace) {
                Some(stored) => stored.apply(change),
                None => Vec::new(),
            },
        }
    }
}

impl NamespaceState {
    /// A namespace with no Owner, whose generations start above `floor`.
    #[must_use]
    pub fn new(
        kind: NamespaceKind,
        settings: Arc<Settings>,
        log: Nonce,
        floor: Generation,
    ) -> NamespaceState {
        NamespaceState {
            log,
            lsn: Lsn::ZERO,
            longest_hold: kind.hold(&settings),
            kind,
            settings,
            last_generation: floor,
            sessions: BTreeMap::new(),
            table: Table::default(),
            frozen: false,
            pins: RangeMap::new(),
            evicted: Vec::new(),
            quarantines: Vec::new(),
        }
    }

    /// How long the settings in force keep a silent session's leases from others.
    #[must_use]
    pub fn hold(&self) -> Duration {
        self.kind.hold(&self.settings)
    }

    /// How many keys are in quarantine.
    #[must_use]
    pub fn quarantined_keys(&self) -> u128 {
        self.quarantines.iter().map(|quarantine| quarantine.range.key_count()).sum()
    }

    /// The session of an Owner's name, if it has one.
    #[must_use]
    pub fn session_named(&self, name: &OwnerName) -> Option<SessionId> {
        self.sessions.iter().find(|(_, info)| info.name == *name).map(|(session, _)| *session)
    }

    /// The whole table as Lookups see it. Neighbours that differ only in what they do not see are one entry, so that the
    /// same position of the log always gives the same snapshot.
    #[must_use]
    pub fn publish_all(&self) -> Vec<PublishedEntry> {
        let mut whole = self.publish(KeyRange::ALL);
        whole.dedup_by(|next, entry| {
            let joined = KeyRange::new(entry.range.first(), next.range.last());
            let joined = joined.filter(|_| next.is_same_but_for_range(entry));
            entry.range = joined.unwrap_or(entry.range);
            joined.is_some()
        });
        whole
    }

    fn apply(&mut self, change: &Change) -> Vec<PublishedEntry> {
        match change {
            Change::Created { .. } | Change::Removed => {}
            Change::Configured { settings } => {
                self.longest_hold = self.longest_hold.max(self.kind.hold(settings));
                self.settings = settings.clone();
            }
            Change::HoldSettled => self.longest_hold = self.hold(),
            Change::SessionStarted { session, info } | Change::SessionChanged { session, info } => {
                self.sessions.insert(*session, info.clone());
            }
            Change::SessionEnded { session } => self.end_session(*session),
            Change::Granted { range, generation, session, source, state_since } => {
                return self.grant(*range, *generation, *session, *source, *state_since);
            }
            Change::Claimed { range, generation, state_since, session } => {
                return self.claim(*range, *generation, *state_since, *session);
            }
            Change::Released { range, generation } => return self.release(*range, *generation),
            Change::Recalled { range, generation, to } => {
                self.mark(*range, *generation, Some(Recall { to: *to }));
            }
            Change::RecallCancelled { range, generation } => self.mark(*range, *generation, None),
            Change::MergeBegun { range, generation } => self.begin_merge(*range, *generation),
            Change::Merged { range, generation } => return self.end_merge(*range, *generation),
            Change::Frozen => self.frozen = true,
            Change::Unfrozen => self.frozen = false,
            Change::Pinned { range, to: Some(name) } => self.pins.insert(*range, name.clone()),
            Change::Pinned { range, to: None } => self.pins.remove(*range),
            Change::Quarantined { range, evidence } => return self.quarantine(*range, evidence),
            Change::Unquarantined { range } => return self.end_quarantines(*range),
        }
        Vec::new()
    }

    fn end_session(&mut self, session: SessionId) {
        let evicted = self.sessions.remove(&session).is_some_and(|info| info.evicted);
        if evicted && !injected(Bug::EvictionForgotten) {
            self.evicted.push(session);
            self.evicted.drain(..self.evicted.len().saturating_sub(MAX_EVICTED));
        }
    }

    fn grant(
        &mut self,
        range: KeyRange,
        generation: Generation,
        session: SessionId,
        source: Option<Generation>,
        state_since: Option<Generation>,
    ) -> Vec<PublishedEntry> {
        self.last_generation = self.last_generation.max(generation);
        let parts: Vec<_> = self.table.overlapping(range).map(|(part, entry)| (part, *entry)).collect();
        for (part, old) in parts {
            let kept = source.map(|_| old.state_since);
            let state_since = kept.or(state_since).unwrap_or(generation);
            let owner = Some(session);
            self.table.set(part, Entry { owner, generation, state_since, source, ..Entry::default() });
        }
        self.publish(range)
    }

    fn claim(
        &mut self,
        range: KeyRange,
        generation: Generation,
        state_since: Generation,
        session: SessionId,
    ) -> Vec<PublishedEntry> {
        self.last_generation = self.last_generation.max(generation);
        let owner = Some(session);
        self.table.set(range, Entry { owner, generation, state_since, ..Entry::default() });
        self.publish(range)
    }

    fn release(&mut self, range: KeyRange, generation: Generation) -> Vec<PublishedEntry> {
        let parts = self.parts_under(range, generation);
        for (part, old) in &parts {
            let Entry { generation, state_since, .. } = *old;
            self.table.set(*part, Entry { generation, state_since, ..Entry::default() });
            if !self.quarantines.is_empty() {
                self.mark_quarantined(*part);
            }
        }
        parts.into_iter().flat_map(|(part, _)| self.publish(part)).collect()
    }

    fn mark(&mut self, range: KeyRange, generation: Generation, recall: Option<Recall>) {
        for (part, old) in self.parts_under(range, generation) {
            self.table.set(part, Entry { recall, ..old });
        }
    }

    fn begin_merge(&mut self, range: KeyRange, generation: Generation) {
        self.last_generation = self.last_generation.max(generation);
        let parts: Vec<_> = self.table.overlapping(range).map(|(part, entry)| (part, *entry)).collect();
        for (part, old) in parts {
            self.table.set(part, Entry { merge: Some(generation), ..old });
        }
    }

    /// Where the state came from is of no use any more: its holder has it.
    fn end_merge(&mut self, range: KeyRange, generation: Generation) -> Vec<PublishedEntry> {
        let parts = self.table.overlapping(range).filter(|(_, entry)| entry.merge == Some(generation));
        let parts: Vec<_> = parts.map(|(part, entry)| (part, *entry)).collect();
        let one_age =
            parts.first().filter(|_| injected(Bug::MergesUnequalAges)).map(|(_, old)| old.state_since);
        for (part, old) in parts {
            let begun_anew = injected(Bug::MergeRaisesLoss).then_some(generation);
            let state_since = begun_anew.or(one_age).unwrap_or(old.state_since);
            self.table.set(part, Entry { generation, state_since, merge: None, source: None, ..old });
        }
        self.publish(range)
    }

    fn quarantine(&mut self, range: KeyRange, evidence: &Arc<[DeathEvidence]>) -> Vec<PublishedEntry> {
        let place = self.quarantines.partition_point(|known| known.range < range);
        self.quarantines.insert(place, Quarantine { range, evidence: Arc::clone(evidence) });
        self.mark_quarantined(range);
        self.publish(range)
    }

    fn end_quarantines(&mut self, range: KeyRange) -> Vec<PublishedEntry> {
        let ended: Vec<_> = self.quarantines.extract_if(.., |known| known.range.overlaps(range)).collect();
        let mut published = Vec::new();
        for Quarantine { range, .. } in ended {
            self.mark_quarantined(range);
            published.extend(self.publish(range));
        }
        published
    }

    /// Marks those of some keys that are in quarantine and that nobody has, and no others.
    fn mark_quarantined(&mut self, range: KeyRange) {
        let quarantined: RangeSet = self.quarantines.iter().map(|known| known.range).collect();
        let parts = self.table.overlapping(range).filter(|(_, entry)| entry.owner.is_none());
        let parts: Vec<_> = parts.map(|(part, entry)| (part, *entry)).collect();
        for (part, entry) in parts {
            self.table.set(part, Entry { quarantined: false, ..entry });
            for inside in quarantined.intersect_range(part).iter() {
                self.table.set(inside, Entry { quarantined: true, ..entry });
            }
        }
    }

    fn parts_under(&self, range: KeyRange, generation: Generation) -> Vec<(KeyRange, Entry)> {
        let owned = |entry: &Entry| entry.generation == generation && entry.owner.is_some();
        self.table.overlapping(range).filter(|(_, e)| owned(e)).map(|(part, e)| (part, *e)).collect()
    }

    fn publish(&self, range: KeyRange) -> Vec<PublishedEntry> {
        self.table
            .overlapping(range)
            .map(|(range, entry)| PublishedEntry {
                range,
                owner: entry.owner.map(|session| self.published_owner(session)),
                generation: entry.generation,
                state_since: entry.state_since,
                quarantined: entry.quarantined && !injected(Bug::QuarantineUntold),
            })
            .collect()
    }

    fn published_owner(&self, session: SessionId) -> PublishedOwner {
        let url = self.sessions.get(&session).map_or_else(|| "".into(), |info| info.url.clone());
        PublishedOwner { session, url }
    }
}
