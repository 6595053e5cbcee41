//! What an Owner holds: the lease rules, apart from who talks to whom.

use std::time::Duration;

use crate::id::{Generation, SessionId, Term};
use crate::injected_bug::{Bug, injected};
use crate::key::{Key, KeyRange};
use crate::message::{Destination, HeldLease, ImportedCopy, LeaseOrder, OrderKind, Refusal, Warrant};
use crate::range_map::RangeMap;
use crate::range_set::RangeSet;
use crate::table::LeaseNumbers;
use crate::time::Instant;

use super::event::{Grant, Renumbered, Revocation, RevokedReason, TransferId};

/// One lease on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerLease {
    /// Its number.
    pub generation: Generation,
    /// When the state of these keys last began empty.
    pub state_since: Generation,
    /// The attempt to give it back, if it is recalled.
    pub transfer: Option<TransferId>,
    /// No new operation may begin: the rest of the state is on its way, or the lease is about to be given back.
    pub frozen: bool,
    /// What shows a leader that has no store that a Manager granted it.
    pub warrant: Option<Warrant>,
}

/// The leases of one session. All of them end at one instant, because every message that renews one carries the
/// complete set (Centrifuge §2.3).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Leases {
    held: RangeMap<OwnerLease>,
    /// The number under which each key that is held was accepted: it has been held without a gap since, under this and every
    /// later number. Apart from the leases, so that one lease is one range however it came about.
    accepted: RangeMap<Generation>,
    expiry: Instant,
    /// The highest generation ever held or refused, key by key: none of them, nor a lower one, is accepted again.
    highest: RangeMap<Generation>,
    /// Complete copies of state that others hold under the generation named.
    imports: RangeMap<Import>,
    /// The Owner goes: nothing is accepted any more.
    closed: bool,
}

/// A complete copy of state that somebody else holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Import {
    source: Generation,
    since: Instant,
    /// The term in which its source began to move it.
    term: Term,
}

/// What an applied set of orders changed.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// Leases that are new.
    pub(super) granted: Vec<Grant>,
    /// Leases that are gone.
    pub(super) revoked: Vec<Revocation>,
    /// Leases that go on under another number.
    pub(super) renumbered: Vec<Renumbered>,
    /// Orders that were not accepted.
    pub(super) refused: Vec<Refusal>,
    /// Imported copies that are of no use any more.
    pub(super) discarded: Vec<KeyRange>,
}

/// A recalled piece and where it should go.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Recalled {
    /// The piece.
    pub(super) range: KeyRange,
    /// Its lease.
    pub(super) lease: OwnerLease,
    /// What the Manager wants: `None` not recalled, `Some(None)` plainly, `Some(Some(..))` with its state.
    pub(super) wanted: Option<Option<Destination>>,
}

impl Leases {
    /// What is held if it has not expired.
    #[must_use]
    pub(super) fn held(&self) -> &RangeMap<OwnerLease> {
        &self.held
    }

    /// The instant at which every lease ends.
    #[must_use]
    pub(super) fn expiry(&self) -> Instant {
        self.expiry
    }

    /// The lease on a key, if it is held at `now`. Compares the clock itself: no timer ends a lease.
    #[must_use]
    pub(super) fn get(&self, now: Instant, key: Key) -> Option<&OwnerLease> {
        if now >= self.expiry && !injected(Bug::ExpiryByTimer) {
            return None;
        }
        self.held.get(key).map(|(_, lease)| lease)
    }

    /// Whether a key has been held without a gap since it was held under `lease`.
    #[must_use]
    pub(super) fn is_continuous(&self, now: Instant, key: Key, lease: Generation) -> bool {
        let Some(held) = self.get(now, key) else { return false };
        if injected(Bug::ContinuousByNumber) {
            return held.generation == lease;
        }
        let is_accepted = self.accepted.get(key).is_some_and(|(_, accepted)| *accepted <= lease);
        (is_accepted || injected(Bug::ContinuousSinceAnyNumber)) && lease <= held.generation
    }

    /// The number under which each key that is held was accepted.
    #[must_use]
    pub(super) fn accepted(&self) -> &RangeMap<Generation> {
        &self.accepted
    }

    /// Gives up what has expired by `now`.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Revocation> {
        if now < self.expiry { Vec::new() } else { self.drop_all(RevokedReason::Expired) }
    }

    /// Gives up everything.
    pub(super) fn drop_all(&mut self, why: RevokedReason) -> Vec<Revocation> {
        let revoke =
            |(range, lease): (KeyRange, &OwnerLease)| Revocation { range, generation: lease.generation, why };
        let revoked = self.held.iter().map(revoke).collect();
        self.held.clear();
        self.accepted.clear();
        revoked
    }

    /// Gives up everything and accepts nothing any more.
    pub(super) fn close(&mut self) -> Vec<Revocation> {
        self.closed = true;
        self.drop_all(RevokedReason::GivenBack)
    }

    /// Gives up one piece.
    pub(super) fn drop_piece(&mut self, range: KeyRange) {
        self.held.remove(range);
        self.accepted.remove(range);
    }

    /// Changes one piece.
    pub(super) fn mark(&mut self, range: KeyRange, transfer: Option<TransferId>, frozen: bool) {
        self.held.update(range, |_, lease| Some(OwnerLease { transfer, frozen, ..*lease }));
    }

    /// Notes a complete copy of the state that somebody else holds under `source`.
    pub(super) fn import(&mut self, now: Instant, range: KeyRange, source: Generation, term: Term) {
        self.imports.insert(range, Import { source, since: now, term });
    }

    /// Whether the copy of these keys is here, as they were under `source`.
    #[must_use]
    pub(super) fn has_import(&self, range: KeyRange, source: Generation) -> bool {
        self.imported(range, source).contains_range(range)
    }

    /// Whether a key went on under a later lease than `source`, as far as is known here: then a copy of it is a straggler.
    #[must_use]
    pub(super) fn is_overtaken(&self, range: KeyRange, source: Generation) -> bool {
        self.highest.overlapping(range).any(|(_, highest)| *highest >= source)
            || self.imports.overlapping(range).any(|(_, import)| import.source > source)
    }

    /// Forgets every copy, and names the keys.
    pub(super) fn drop_imports(&mut self) -> Vec<KeyRange> {
        let all = self.imports.iter().map(|(range, _)| range).collect();
        self.imports.clear();
        all
    }

    /// Forgets the copies that no grant can follow, and names their keys. What came in after the report of `reported` was
    /// sent is a later copy, of which the Manager does not speak. So may be what came in at that very instant: it is kept until
    /// a later report has named it. Nor does a leader know of a copy that a later one ordered: it has been deposed.
    pub(super) fn forget_void(
        &mut self,
        void: &[ImportedCopy],
        reported: Instant,
        term: Term,
    ) -> Vec<KeyRange> {
        let mut gone = Vec::new();
        for copy in void {
            let known = self.imports.overlapping(copy.range);
            let is_meant = |import: &Import| {
                import.source == copy.source && import.since < reported && import.term <= term
            };
            let old = known.filter(|(_, import)| is_meant(import));
            gone.extend(old.map(|(piece, _)| piece));
        }
        gone.iter().for_each(|piece| self.imports.remove(*piece));
        gone
    }

    /// Every lease, for a report.
    #[must_use]
    pub(super) fn report(&self) -> Vec<HeldLease> {
        let mut leases: Vec<HeldLease> = Vec::with_capacity(self.held.len());
        for (range, lease) in self.held.iter() {
            let OwnerLease { generation, state_since, warrant, .. } = *lease;
            let held = HeldLease { range, generation, state_since, warrant };
            match leases.last_mut() {
                // Pieces that differ only in how they are given back are one lease to the Manager.
                Some(last) if last.range.touches(range) && HeldLease { range, ..*last } == held => {
                    last.range = KeyRange::new(last.range.first(), range.last()).unwrap_or(last.range);
                }
                _ => leases.push(held),
            }
        }
        leases
    }

    /// Takes the complete set of leases that the Manager lists, counted from `base`.
    pub(super) fn apply(
        &mut self,
        now: Instant,
        base: Instant,
        lease: Duration,
        orders: &[LeaseOrder],
    ) -> Applied {
        let mut applied = Applied::default();
        if !injected(Bug::RenewalRevives) {
            applied.revoked = self.expire(now);
        }
        let expiry = base + lease;
        self.withdraw_unlisted(orders, &mut applied);
        for order in orders {
            self.keep_warrant(order);
            match order.kind {
                OrderKind::Renewal => self.renew(order, &mut applied),
                OrderKind::Grant { source } => {
                    let open = now < expiry && !self.closed;
                    self.accept(open, order, source, &mut applied);
                }
            }
        }
        self.remember_refused(&applied.refused);
        self.expiry = expiry;
        applied
    }

    /// What was refused once is refused for ever, whoever offers it again: the refusal may have ended the lease.
    fn remember_refused(&mut self, refused: &[Refusal]) {
        for refusal in refused {
            let lower =
                self.highest.overlapping(refusal.range).filter(|(_, known)| **known < refusal.generation);
            let mut pieces: Vec<KeyRange> = lower.map(|(piece, _)| piece).collect();
            pieces.extend(self.highest.gaps(refusal.range));
            pieces.iter().for_each(|piece| self.highest.insert(*piece, refusal.generation));
        }
    }

    /// Every message brings the latest warrants with it.
    fn keep_warrant(&mut self, order: &LeaseOrder) {
        let warrant = order.warrant.as_deref().copied();
        if self.held.overlapping(order.range).any(|(_, lease)| lease.warrant != warrant) {
            self.held.update(order.range, |_, lease| Some(OwnerLease { warrant, ..*lease }));
        }
    }

    fn withdraw_unlisted(&mut self, orders: &[LeaseOrder], applied: &mut Applied) {
        let mut listed: RangeMap<LeaseNumbers> = RangeMap::new();
        for order in orders {
            let merge = order.merge.filter(|_| !injected(Bug::RenumberedTakenForUnlisted));
            listed.insert(order.range, LeaseNumbers { generation: order.generation, merge });
        }
        let mut gone = Vec::new();
        for (range, lease) in self.held.iter() {
            for (part, numbers) in listed.overlapping(range) {
                if !numbers.have(lease.generation) {
                    gone.push((part, lease.generation));
                }
            }
            gone.extend(listed.gaps(range).map(|gap| (gap, lease.generation)));
        }
        for (range, generation) in gone {
            self.drop_piece(range);
            applied.revoked.push(Revocation { range, generation, why: RevokedReason::Withdrawn });
        }
    }

    /// A renewal extends only keys that are held under its lease; the rest is refused.
    fn renew(&mut self, order: &LeaseOrder, applied: &mut Applied) {
        if let Some(generation) = order.merge {
            self.renumber(order.range, generation, applied);
        }
        let gaps: Vec<KeyRange> = self.held.gaps(order.range).collect();
        for range in gaps {
            let never_held = self.highest.overlapping(range).next().is_none();
            if injected(Bug::RenewalRestoresKeys)
                || (injected(Bug::MergeGrantsKeys) && order.merge.is_some())
                || (injected(Bug::RestartAcceptsRenewal) && never_held)
            {
                self.hold(range, order);
            } else {
                applied.refused.push(Refusal { range, generation: order.holds_under() });
            }
        }
    }

    /// What is held goes on under a later number. An attempt to give it back under the earlier one is over: whoever has a
    /// copy by then has it of a lease that is not there any more.
    fn renumber(&mut self, range: KeyRange, generation: Generation, applied: &mut Applied) {
        let earlier = self.held.overlapping(range).filter(|(_, lease)| lease.generation < generation);
        let earlier: Vec<(KeyRange, OwnerLease)> = earlier.map(|(piece, lease)| (piece, *lease)).collect();
        for (piece, before) in earlier {
            let mut lease = OwnerLease { generation, transfer: None, frozen: false, ..before };
            if injected(Bug::MergeKeepsTransfer) {
                lease = OwnerLease { generation, ..before };
            }
            self.held.insert(piece, lease);
            self.highest.insert(piece, generation);
            applied.renumbered.push(Renumbered { range: piece, from: before.generation, to: generation });
        }
    }

    /// A grant is accepted key by key: where no lease as high was held or refused before, and where the state that should
    /// come with it is here.
    fn accept(&mut self, open: bool, order: &LeaseOrder, source: Option<Generation>, applied: &mut Applied) {
        let generation = order.generation;
        let wanted: RangeSet = self.held.gaps(order.range).collect();
        let mut refused = RangeSet::new();
        if !injected(Bug::AcceptedTwice) && !injected(Bug::SeqNotChecked) {
            let before = self.highest.overlapping(order.range).filter(|(_, highest)| **highest >= generation);
            before.for_each(|(piece, _)| refused.insert(piece));
        }
        if let Some(source) = source
            && !injected(Bug::FailedTransferIsClean)
            && !injected(Bug::CleanThoughRestarted)
        {
            refused = refused.union(&wanted.difference(&self.imported(order.range, source)));
        }
        if !open {
            refused = wanted.clone();
        }
        for range in wanted.intersection(&refused).iter() {
            applied.refused.push(Refusal { range, generation });
            self.drop_import(range, source, applied);
        }
        for range in wanted.difference(&refused).iter() {
            if source.is_none() && self.imports.overlapping(range).next().is_some() {
                applied.discarded.push(range);
            }
            self.imports.remove(range);
            self.hold(range, order);
            applied.granted.push(Grant { range, generation, state_since: order.state_since, source });
        }
    }

    /// The keys of `range` whose state is here, as it was under `source`.
    fn imported(&self, range: KeyRange, source: Generation) -> RangeSet {
        let copies = self.imports.overlapping(range).filter(|(_, have)| have.source == source);
        copies.map(|(piece, _)| piece).collect()
    }

    /// The grant that a copy was made for is refused: nothing else can ask for it.
    fn drop_import(&mut self, range: KeyRange, source: Option<Generation>, applied: &mut Applied) {
        let Some(source) = source else { return };
        for piece in self.imported(range, source).iter() {
            self.imports.remove(piece);
            applied.discarded.push(piece);
        }
    }

    /// The copies that a grant may still follow, for a report.
    #[must_use]
    pub(super) fn imports(&self) -> Vec<ImportedCopy> {
        let copy = |(range, import): (KeyRange, &Import)| ImportedCopy { range, source: import.source };
        self.imports.iter().map(copy).collect()
    }

    fn hold(&mut self, range: KeyRange, order: &LeaseOrder) {
        let lease = OwnerLease {
            generation: order.generation,
            state_since: order.state_since,
            transfer: None,
            frozen: false,
            warrant: order.warrant.as_deref().copied(),
        };
        self.held.insert(range, lease);
        self.accepted.insert(range, order.generation);
        self.highest.insert(range, order.generation);
    }

    /// The held pieces of an order, with what the Manager wants of them.
    #[must_use]
    pub(super) fn recalled(&self, order: &LeaseOrder) -> Vec<Recalled> {
        let wanted = order.recall.as_ref().map(|recall| recall.to.clone());
        self.held
            .overlapping(order.range)
            .map(|(range, lease)| Recalled { range, lease: *lease, wanted: wanted.clone() })
            .collect()
    }

    /// Gives running leases a fresh start from `now`: what an injected bug does on a recall.
    pub(super) fn restart(&mut self, now: Instant, lease: Duration) {
        self.expiry = self.expiry.max(now + lease);
    }
}

/// Whether a destination is the process a transfer goes to.
#[must_use]
pub(super) fn same_process(destination: Option<&Destination>, session: SessionId) -> bool {
    destination.is_some_and(|destination| destination.session == session)
}
