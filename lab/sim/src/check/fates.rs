//! What became of the state of each lease, and so whether the table may give it up.

use std::collections::{BTreeMap, BTreeSet};

use centrifuge_core::id::{Generation, SessionId};
use centrifuge_core::message::{Assign, OrderKind, OwnerToManager};
use centrifuge_core::owner::{Grant, Renumbered, Revocation, RevokedReason};
use centrifuge_core::record::{Change, Record};
use centrifuge_core::table::Entry;

use super::scenario::HOLD;
use super::{Append, Body, Breach, Packet, Shared, Step, Store, namespace, probes_in};

const HOLD_MS: u64 = HOLD.as_secs() * 1_000;

/// What the oracle knows of where state is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Fates {
    /// By watched key and lease: what became of a lease that a process took up.
    leases: BTreeMap<(usize, Generation), Fate>,
    /// When a Manager first offered a lease to a session, in milliseconds.
    offers: BTreeMap<(usize, SessionId, Generation), u64>,
    /// When a Manager last heard a report of a session.
    heard: BTreeMap<(usize, SessionId), u64>,
    /// Sessions that were ended because they were not heard for a hold.
    silent: BTreeSet<SessionId>,
}

/// What became of a lease that was taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fate {
    /// The process at this place holds it.
    Held(usize),
    /// The process at this place moved the state to a session, if to any.
    Moved(usize, Option<SessionId>),
    /// Its holder gave it up though nobody who has the state wanted to lose it.
    GivenUp,
    /// It ran out, or its holder died or does not know any more what it held.
    Ended,
}

impl Fates {
    /// The process at a place takes up leases.
    pub(super) fn take_up(&mut self, slot: usize, grants: &[Grant]) {
        for grant in grants {
            for (probe, _) in probes_in(grant.range) {
                self.leases.insert((probe, grant.generation), Fate::Held(slot));
            }
        }
    }

    /// The process at a place has leases no more. If it moved state, that is at a session which said so.
    pub(super) fn revoke(&mut self, slot: usize, revoked: &[Revocation], moved_to: Option<SessionId>) {
        for Revocation { range, generation, why } in revoked {
            let fate = match why {
                RevokedReason::Expired
                | RevokedReason::ClockJumped
                | RevokedReason::Cloned
                | RevokedReason::NamespaceReplaced => Fate::Ended,
                RevokedReason::Moved => Fate::Moved(slot, moved_to),
                RevokedReason::Withdrawn | RevokedReason::GivenBack => Fate::GivenUp,
            };
            for (probe, _) in probes_in(*range) {
                self.leases.insert((probe, *generation), fate);
            }
        }
    }

    /// The process at a place holds leases on under other numbers.
    pub(super) fn renumber(&mut self, slot: usize, renumbered: &[Renumbered]) {
        for Renumbered { range, from, to } in renumbered {
            for (probe, _) in probes_in(*range) {
                self.leases.remove(&(probe, *from));
                self.leases.insert((probe, *to), Fate::Held(slot));
            }
        }
    }

    /// What became of a lease, under whichever of its numbers it was held.
    fn of(&self, probe: usize, entry: &Entry) -> Option<Fate> {
        let numbers = [entry.merge, Some(entry.generation)];
        numbers.iter().flatten().find_map(|number| self.leases.get(&(probe, *number)).copied())
    }

    /// The process at a place is gone, or has forgotten what it held and what it moved.
    pub(super) fn end_all(&mut self, slot: usize) {
        let its = |fate: &Fate| matches!(fate, Fate::Held(place) | Fate::Moved(place, _) if *place == slot);
        self.leases.values_mut().filter(|fate| its(fate)).for_each(|fate| *fate = Fate::Ended);
    }

    /// A Manager hears a report.
    pub(super) fn hear(&mut self, manager: usize, session: SessionId, now: u64) {
        self.heard.insert((manager, session), now);
    }

    /// A Manager sends a message. What it offers was not on offer for a hold when the report that it answers arrived: a
    /// session that neither takes an offer up nor refuses it must not keep the keys from everyone.
    pub(super) fn offer(
        &mut self,
        manager: usize,
        now: u64,
        assign: &Assign,
        arrived: Option<&Packet>,
    ) -> Option<Breach> {
        let session = assign.session;
        let answers = match arrived.map(|packet| &packet.body) {
            Some(Body::ToManager(OwnerToManager::Report(report))) => {
                report.session == session && report.seq == assign.applied
            }
            _ => false,
        };
        let mut breach = None;
        let offered = assign.orders.iter().filter(|order| matches!(order.kind, OrderKind::Grant { .. }));
        for generation in offered.map(|order| order.generation) {
            let since = *self.offers.entry((manager, session, generation)).or_insert(now);
            if answers && now - since >= HOLD_MS {
                let what = format!(
                    "lease {generation} is still on offer to {session} after a hold, and is nobody's"
                );
                breach.get_or_insert(Breach("L1", what));
            }
        }
        breach
    }
}

impl Step<'_> {
    /// Judges what a batch gives up, if the store has just taken it.
    pub(super) fn judge_losses(&mut self, before: &Shared<Store>, append: &Append) {
        if !self.stage.scenario.losses_need_causes || before.index() == self.state.store.index() {
            return;
        }
        let Some(stored) = before.group.namespaces.get(&namespace()) else { return };
        for record in &append.batch.records {
            let Record::Namespace { change, .. } = record else { continue };
            let (range, under) = match change {
                Change::Released { range, generation } => (*range, Some(*generation)),
                Change::Granted { range, source: None, .. } => (*range, None),
                Change::SessionEnded { session } => {
                    self.note_end(append.manager, *session);
                    continue;
                }
                _ => continue,
            };
            for (probe, key) in probes_in(range) {
                let entry = *stored.table.get(key).1;
                let concerned = under.is_none_or(|generation| generation == entry.generation);
                if concerned && self.has_state_at_hand(append.manager, probe, &entry) {
                    let generation = entry.generation;
                    let what = format!(
                        "the state of key {key} under lease {generation} is given up without a cause"
                    );
                    self.blame(Some(Breach("S4", what)));
                }
            }
        }
    }

    fn note_end(&mut self, manager: usize, session: SessionId) {
        if self.is_over(self.state.fates.heard.get(&(manager, session)).copied()) {
            self.change_fates(|fates| fates.silent.insert(session));
        }
    }

    /// Whether the state of an entry is where it can go on, so that giving it up needs a cause. Who was not heard for a
    /// hold is a cause, and so is an offer that was open for one.
    fn has_state_at_hand(&self, manager: usize, probe: usize, entry: &Entry) -> bool {
        let Some(session) = entry.owner else { return false };
        let fates = &self.state.fates;
        if self.is_over(fates.heard.get(&(manager, session)).copied()) {
            return false;
        }
        match fates.of(probe, entry) {
            Some(Fate::Ended) => false,
            Some(Fate::GivenUp) => true,
            Some(Fate::Held(slot)) => {
                let now = self.stage.owner_time(&self.state, slot);
                let process = self.state.owners[slot].process.as_ref();
                process.is_some_and(|node| node.holds(now, probe).is_some())
            }
            Some(Fate::Moved(_, to)) => to.is_some_and(|to| self.is_member(manager, to)),
            // A clean grant that nobody has taken up yet: the copy is where it was granted to.
            None => {
                let offered = fates.offers.get(&(manager, session, entry.generation));
                let is_over = offered.is_some_and(|since| self.is_over(Some(*since)));
                entry.source.is_some() && !is_over && self.is_member(manager, session)
            }
        }
    }

    /// Whether a process runs as this session and has been heard. That it discarded a copy is no cause of a loss.
    fn is_member(&self, manager: usize, session: SessionId) -> bool {
        let fates = &self.state.fates;
        let heard = fates.heard.get(&(manager, session)).copied();
        let runs = self.state.processes().any(|node| node.machine.session() == session);
        runs && !fates.silent.contains(&session) && !self.is_over(heard)
    }

    /// Whether a hold has passed since then, or since the beginning.
    fn is_over(&self, since: Option<u64>) -> bool {
        self.stage.real_time(&self.state) - since.unwrap_or_default() >= HOLD_MS
    }
}
