//! Where the partitioner and operators want each key, and which keys are elsewhere: kept up to date at the cost of what changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::id::{OwnerName, SessionId};
use crate::injected_bug::{Bug, injected};
use crate::key::KeyRange;
use crate::manager_state::NamespaceState;
use crate::partition::{PartitionOwner, PartitionerKind, Ring};
use crate::range_map::RangeMap;
use crate::range_set::RangeSet;
use crate::record::SessionInfo;
use crate::settings::Settings;
use crate::table::{Entry, Table};

/// What is wanted, for which input, and where the table differs from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Desired {
    settings: Arc<Settings>,
    owners: BTreeMap<SessionId, PartitionOwner>,
    pins: RangeMap<OwnerName>,
    /// Where keys go that may kill their Owners.
    probation: RangeMap<SessionId>,
    /// What nobody may have.
    quarantined: RangeSet,
    partition: Partition,
    ranges: RangeMap<SessionId>,
    misplaced: RangeSet,
}

/// The partitioner's answer without what operators want.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Partition {
    Ring(Ring<SessionId>),
    /// Of a partitioner that is asked anew for every change.
    Whole(RangeMap<SessionId>),
    /// Trim's: what stands, as far as nothing else was decided. Keys whose Owner may not have them are wanted nowhere until it decides.
    Standing,
}

impl Desired {
    /// What is wanted where there is nobody.
    pub(super) fn new(stored: &NamespaceState) -> Desired {
        let partition = match stored.settings.partitioner {
            PartitionerKind::ConsistentHash => Partition::Ring(Ring::new()),
            PartitionerKind::Fixed => Partition::Whole(RangeMap::new()),
            PartitionerKind::Trim => Partition::Standing,
        };
        let ranges = match partition {
            Partition::Standing => standing(&stored.table),
            Partition::Ring(_) | Partition::Whole(_) => RangeMap::new(),
        };
        Desired {
            settings: Arc::clone(&stored.settings),
            owners: BTreeMap::new(),
            pins: RangeMap::new(),
            probation: RangeMap::new(),
            quarantined: RangeSet::new(),
            partition,
            ranges,
            misplaced: RangeSet::new(),
        }
    }

    /// The Owner that each key is wanted at, as far as that is decided. Empty if no Owner can have keys.
    pub(super) fn ranges(&self) -> &RangeMap<SessionId> {
        &self.ranges
    }

    /// Whether no Owner can have keys.
    pub(super) fn is_without_owners(&self) -> bool {
        match self.partition {
            Partition::Standing => self.owners.is_empty(),
            Partition::Ring(_) | Partition::Whole(_) => self.ranges.is_empty(),
        }
    }

    /// The keys that operators want at an Owner that can have them.
    pub(super) fn pinned(&self) -> RangeSet {
        if self.pins.is_empty() || injected(Bug::TrimIgnoresPins) {
            return RangeSet::new();
        }
        let names: BTreeSet<&OwnerName> = self.owners.values().map(|owner| &owner.name).collect();
        self.pins.iter().filter(|(_, name)| names.contains(name)).map(|(range, _)| range).collect()
    }

    /// Wants keys elsewhere, if they are still wanted where they were and their new Owner may have them; says whether it does.
    pub(super) fn place(
        &mut self,
        range: KeyRange,
        (from, to): (Option<SessionId>, SessionId),
        table: &Table,
    ) -> bool {
        // What is wanted nowhere is with whoever has it.
        let as_it_was = self.ranges.overlapping(range).all(|(_, wanted)| Some(*wanted) == from)
            && self.ranges.gaps(range).flat_map(|gap| table.overlapping(gap)).all(|(_, e)| e.owner == from);
        let is_fixed = self.pinned().overlaps(range)
            || self.quarantined.overlaps(range)
            || self.probation.overlapping(range).next().is_some();
        let may_be = as_it_was && !is_fixed && self.owners.contains_key(&to);
        let may_be = may_be && (from.is_none() || table.has_any(to) || !injected(Bug::NewcomerNeverFed));
        if may_be {
            self.ranges.insert(range, to);
            self.note_table(range, table);
        }
        may_be
    }

    /// The keys that somebody has who should not, and that are not wanted back yet.
    pub(super) fn misplaced(&self) -> &RangeSet {
        &self.misplaced
    }

    /// Whether it can be brought up to date with `stored`, and need not be made anew.
    pub(super) fn is_of(&self, stored: &NamespaceState) -> bool {
        self.settings.partitioner == stored.settings.partitioner
    }

    /// Whether settings and pins are the same as before.
    pub(super) fn is_for(&self, stored: &NamespaceState) -> bool {
        self.settings == stored.settings && self.pins == stored.pins
    }

    /// Takes the members, settings and pins as they are now; says whether any of them is another.
    pub(super) fn follow(&mut self, stored: &NamespaceState) -> bool {
        let joined_or_left = self.follow_owners(stored);
        let mut changed = self.follow_partition(&joined_or_left);
        let others = self.settings != stored.settings;
        self.settings = Arc::clone(&stored.settings);
        let pins_differ = self.pins != stored.pins;
        if pins_differ {
            self.forget_pins(stored);
            changed = changed.union(&self.pins.keys()).union(&stored.pins.keys());
            self.pins = stored.pins.clone();
        }
        if !self.pins.is_empty() && !joined_or_left.is_empty() {
            let owners = joined_or_left.iter().flat_map(|(_, before, now)| [before, now]).flatten();
            let names: BTreeSet<&OwnerName> = owners.map(|owner| &owner.name).collect();
            let pinned = self.pins.iter().filter(|(_, name)| names.contains(name));
            pinned.for_each(|(range, _)| changed.insert(range));
        }
        if !self.probation.is_empty() {
            let others: BTreeSet<SessionId> = joined_or_left.iter().map(|(session, ..)| *session).collect();
            let placed = self.probation.iter().filter(|(_, session)| others.contains(session));
            placed.for_each(|(range, _)| changed.insert(range));
        }
        self.refresh(&changed, &stored.table);
        others || pins_differ || !joined_or_left.is_empty()
    }

    /// Takes what is suspected, and what is in quarantine, as it is now; says whether any of that is another.
    pub(super) fn follow_suspects(
        &mut self,
        probation: &RangeMap<SessionId>,
        stored: &NamespaceState,
    ) -> bool {
        let quarantined: RangeSet = stored.quarantines.iter().map(|known| known.range).collect();
        if self.probation == *probation && self.quarantined == quarantined {
            return false;
        }
        let before = self.probation.keys().union(&self.quarantined);
        let changed = before.union(&probation.keys()).union(&quarantined);
        self.probation = probation.clone();
        self.quarantined = quarantined;
        self.refresh(&changed, &stored.table);
        true
    }

    /// Where the partitioner wants keys, whatever else speaks for or against that; `None` where it wants them nowhere in particular.
    pub(super) fn wishes(&self, range: KeyRange) -> Vec<(KeyRange, Option<SessionId>)> {
        let mut wishes: RangeMap<SessionId> = match &self.partition {
            Partition::Ring(ring) => ring.pieces(range).collect(),
            Partition::Whole(whole) => whole.overlapping(range).map(|(piece, it)| (piece, *it)).collect(),
            Partition::Standing => self.ranges.overlapping(range).map(|(piece, it)| (piece, *it)).collect(),
        };
        if matches!(self.partition, Partition::Standing) {
            // Trim's own wish for these keys is not remembered.
            self.probation.keys().intersect_range(range).iter().for_each(|piece| wishes.remove(piece));
        }
        let somewhere = wishes.iter().map(|(piece, session)| (piece, Some(*session)));
        somewhere.chain(wishes.gaps(range).map(|piece| (piece, None))).collect()
    }

    /// Whether keys are where they are because they may kill their Owners.
    pub(super) fn is_on_probation(&self, range: KeyRange) -> bool {
        self.probation.overlapping(range).next().is_some()
    }

    /// The entries of `range` have changed in the table.
    pub(super) fn note_table(&mut self, range: KeyRange, table: &Table) {
        let mut misplaced = Vec::new();
        let held = table.overlapping(range).filter(|(_, entry)| entry.recall.is_none());
        for (part, owner) in held.filter_map(|(part, entry)| Some((part, entry.owner?))) {
            let elsewhere = self.ranges.overlapping(part).filter(|(_, wanted)| **wanted != owner);
            misplaced.extend(elsewhere.map(|(piece, _)| piece));
        }
        if range == KeyRange::ALL {
            self.misplaced = misplaced.into_iter().collect();
            return;
        }
        self.misplaced.remove(range);
        misplaced.into_iter().for_each(|piece| self.misplaced.insert(piece));
    }

    /// Whether it is what one made anew for the same input would be.
    pub(super) fn is_up_to_date(&self, stored: &NamespaceState) -> bool {
        if matches!(self.partition, Partition::Standing) {
            // What Trim decided is nowhere else.
            return true;
        }
        let mut anew = Desired::new(stored);
        anew.follow(stored);
        (anew.probation, anew.quarantined) = (self.probation.clone(), self.quarantined.clone());
        anew.refresh(&anew.probation.keys().union(&anew.quarantined), &stored.table);
        anew.ranges == self.ranges && anew.misplaced == self.misplaced
    }

    /// The sessions that may have keys and did not, or have no more, or are others: before and now.
    fn follow_owners(
        &mut self,
        stored: &NamespaceState,
    ) -> Vec<(SessionId, Option<PartitionOwner>, Option<PartitionOwner>)> {
        let mut changed = Vec::new();
        let mut known = self.owners.iter().peekable();
        for (session, info) in stored.sessions.iter().filter(|(_, info)| may_have_keys(info)) {
            while let Some((gone, owner)) = known.next_if(|(known, _)| *known < session) {
                changed.push((*gone, Some(owner.clone()), None));
            }
            match known.next_if(|(known, _)| *known == session) {
                Some((_, owner)) if is_same(owner, info) => {}
                before => {
                    let before = before.map(|(_, owner)| owner.clone());
                    changed.push((*session, before, Some(as_partition_owner(info))));
                }
            }
        }
        changed.extend(known.map(|(gone, owner)| (*gone, Some(owner.clone()), None)));
        for (session, _, now) in &changed {
            match now {
                Some(owner) => self.owners.insert(*session, owner.clone()),
                None => self.owners.remove(session),
            };
        }
        changed
    }

    /// The keys that the partitioner may want elsewhere since these sessions changed.
    fn follow_partition(
        &mut self,
        changed: &[(SessionId, Option<PartitionOwner>, Option<PartitionOwner>)],
    ) -> RangeSet {
        if changed.is_empty() {
            return RangeSet::new();
        }
        match &mut self.partition {
            Partition::Ring(ring) => {
                for (session, before, now) in changed {
                    before.iter().for_each(|owner| ring.remove(owner, *session));
                    now.iter().for_each(|owner| ring.add(owner, *session));
                }
                let owners = changed.iter().flat_map(|(_, before, now)| [before, now]).flatten();
                ring.around(owners)
            }
            Partition::Whole(ranges) => {
                let (sessions, owners): (Vec<_>, Vec<_>) =
                    self.owners.iter().map(|(session, owner)| (*session, owner.clone())).unzip();
                let partitioner = self.settings.partitioner.partitioner();
                let assignment = partitioner.map(|whole| whole.assign(&owners)).unwrap_or_default();
                *ranges = assignment.into_iter().map(|(range, place)| (range, sessions[place])).collect();
                RangeSet::all()
            }
            Partition::Standing => {
                let owners = &self.owners;
                let gone = self.ranges.iter().filter(|(_, wanted)| !owners.contains_key(wanted));
                let gone: RangeSet = gone.map(|(range, _)| range).collect();
                gone.iter().for_each(|range| self.ranges.remove(range));
                gone
            }
        }
    }

    /// What is wanted of a range under Trim: what was, and what is wanted nowhere stays with whoever has it and may.
    fn standing(&self, range: KeyRange, table: &Table) -> RangeMap<SessionId> {
        let mut wanted: RangeMap<SessionId> =
            self.ranges.overlapping(range).map(|(piece, session)| (piece, *session)).collect();
        let gaps: Vec<KeyRange> = self.ranges.gaps(range).collect();
        for (piece, entry) in gaps.into_iter().flat_map(|gap| table.overlapping(gap)) {
            if let Some(owner) = entry.owner.filter(|owner| self.owners.contains_key(owner)) {
                wanted.insert(piece, owner);
            }
        }
        wanted
    }

    /// Under Trim what an operator does not want anywhere any more stays where it is.
    fn forget_pins(&mut self, stored: &NamespaceState) {
        if !matches!(self.partition, Partition::Standing) {
            return;
        }
        for (range, name) in self.pins.iter() {
            let is_wanted =
                |piece: &KeyRange| stored.pins.get(piece.first()).is_some_and(|(_, now)| now == name);
            let kept: RangeSet =
                stored.pins.overlapping(range).map(|(piece, _)| piece).filter(is_wanted).collect();
            let ended = RangeSet::from_ranges([range]).difference(&kept);
            ended.iter().for_each(|piece| self.ranges.remove(piece));
        }
    }

    /// Works out anew what is wanted of these keys.
    fn refresh(&mut self, changed: &RangeSet, table: &Table) {
        if changed.is_empty() {
            return;
        }
        let mut by_name: BTreeMap<&OwnerName, SessionId> = BTreeMap::new();
        if !self.pins.is_empty() {
            // Of two sessions with one name the first counts.
            by_name = self.owners.iter().rev().map(|(session, owner)| (&owner.name, *session)).collect();
        }
        for range in changed.iter() {
            let wanted: RangeMap<SessionId> = match &self.partition {
                Partition::Ring(ring) => ring.pieces(range).collect(),
                Partition::Whole(whole) => whole.overlapping(range).map(|(piece, s)| (piece, *s)).collect(),
                Partition::Standing => self.standing(range, table),
            };
            match range {
                KeyRange::ALL => self.ranges = wanted,
                _ if wanted.is_empty() => self.ranges.remove(range),
                _ => wanted.iter().for_each(|(piece, session)| self.ranges.insert(piece, *session)),
            }
            for (piece, session) in self.probation.overlapping(range) {
                if self.owners.contains_key(session) {
                    self.ranges.insert(piece, *session);
                }
            }
            for (piece, name) in self.pins.overlapping(range) {
                if let Some(session) = by_name.get(name) {
                    self.ranges.insert(piece, *session);
                }
            }
            for piece in self.quarantined.intersect_range(range).iter() {
                if !injected(Bug::QuarantinedGranted) {
                    self.ranges.remove(piece);
                }
            }
        }
        changed.iter().for_each(|range| self.note_table(range, table));
    }
}

/// Who has each key, or is about to.
fn standing(table: &Table) -> RangeMap<SessionId> {
    let wanted = |entry: &Entry| entry.recall.and_then(|recall| recall.to).or(entry.owner);
    table.iter().filter_map(|(range, entry)| Some((range, wanted(entry)?))).collect()
}

/// Whether the partitioner may give an Owner keys.
pub(super) fn may_have_keys(info: &SessionInfo) -> bool {
    let gives_away = info.is_draining() && !injected(Bug::TrimIgnoresDrain);
    !gives_away && !info.evicted && info.weight > 0
}

fn as_partition_owner(info: &SessionInfo) -> PartitionOwner {
    PartitionOwner { name: info.name.clone(), virtual_nodes: info.virtual_nodes, weight: info.weight }
}

fn is_same(owner: &PartitionOwner, info: &SessionInfo) -> bool {
    owner.virtual_nodes == info.virtual_nodes && owner.weight == info.weight && owner.name == info.name
}
