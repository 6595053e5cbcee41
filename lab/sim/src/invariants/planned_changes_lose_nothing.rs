//! S4: state is lost only for a cause: whatever is planned, and however messages fare, what living processes hold stays.
//!
//! For every key the oracle knows who has its state: the session that holds the lease and, once that session moved the
//! state, the session that imported it. A table that gives such state up needs a cause at one of the two: its process
//! died or left without draining, was suspended, was out of contact for a whole lease (in affinity mode: was silent), was
//! evicted, or cannot move state; or the migration was held up by the application or by a disturbance until it timed out. Drains, moves,
//! weights, freezes, joins, settings, resignations, leader crashes, broken streams and lost messages are no causes.

use std::collections::BTreeMap;
use std::time::Duration;

use centrifuge_core::id::{Generation, SessionId};
use centrifuge_core::key::KeyRange;
use centrifuge_core::owner::{OwnerAction, Revocation, RevokedReason, TransferId};
use centrifuge_core::range_map::RangeMap;
use centrifuge_core::record::{Batch, Change, Reason, Record};
use centrifuge_core::time::Instant;

use crate::seen::Node;

use super::{At, Lot, Seen, TrueTime, Verdict, later, slot};

/// A migration timeout shorter than this many of the slowest messages may pass though nobody is at fault.
const MESSAGES_OF_A_MIGRATION: u32 = 12;
/// The instant of what never happens.
const NEVER: TrueTime = TrueTime(u64::MAX);

/// Guards the half of S4 that says when nothing may be lost.
#[derive(Debug, Default)]
pub struct PlannedChangesLoseNothing {
    processes: BTreeMap<SessionId, Process>,
    /// By Owner's node: the process that runs there.
    running: Vec<Option<SessionId>>,
    /// By namespace: who has the state of each key.
    custody: Vec<RangeMap<Custody>>,
    /// By namespace: how long a migration may take.
    migration_timeouts: Vec<Duration>,
    /// Until when each node is disturbed.
    disturbed: BTreeMap<Node, TrueTime>,
    /// What each transfer under way gives back.
    transfers: BTreeMap<(SessionId, TransferId), Lot>,
}

/// A process of an Owner.
#[derive(Debug)]
struct Process {
    node: usize,
    space: usize,
    migrates: bool,
    /// It was told that it has nothing left, so that its end loses nothing.
    drained: bool,
    /// Why nothing that it has can be relied on any more.
    gone: Option<Cause>,
    /// It applied a leader's message that covers the time until then.
    in_contact_until: TrueTime,
}

/// Why state may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The process ended, and had not been drained.
    Ended,
    /// The process left with what it had.
    Left,
    /// Its machine was suspended.
    Suspended,
    /// It was out of contact for a whole lease, or in affinity mode for as long as silence takes.
    OutOfContact,
    /// An operator evicted it.
    Evicted,
    /// The application or a disturbance held a migration up until it timed out.
    MigrationHeldUp,
}

/// Who has the state of some keys.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Custody {
    session: SessionId,
    generation: Generation,
    /// The number that its holder may have taken for it and its neighbours.
    merge: Option<Generation>,
    /// Somebody held these keys: before that there is nothing to lose.
    has_state: bool,
    /// The session has held these keys under this lease.
    accepted: bool,
    /// The session to which the state was moved completely.
    moved_to: Option<SessionId>,
    /// The session that moved it here. Where there is no store a new leader needs its word, until the lease is accepted.
    moved_from: Option<SessionId>,
    cause: Option<Cause>,
    recall: Option<Recalled>,
    /// The latest reason to want it back.
    recalled_for: Option<Reason>,
    /// Since when the application has been asked to copy the state, to whom, and by which transfer.
    asked: Option<(TrueTime, SessionId, TransferId)>,
    /// The application could not copy it, or does not answer.
    troubled: bool,
}

/// A recall with a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Recalled {
    since: TrueTime,
    to: SessionId,
}

impl PlannedChangesLoseNothing {
    /// Judges an event.
    pub fn see(&mut self, seen: &Seen<'_>, facts: At) -> Verdict {
        match seen {
            Seen::OwnerStarted { node, session, migrates, .. } => {
                let space = facts.holdings.space_of(*node);
                self.start(facts.now, *node, *session, space, *migrates);
            }
            Seen::OwnerEnded { session, .. } => self.end(*session, Cause::Ended),
            Seen::OwnerLeaves { session } => self.end(*session, Cause::Left),
            Seen::OwnerSuspended { node, suspended: true } => {
                if let Some(session) = self.running.get(*node).copied().flatten() {
                    self.mark(session, Cause::Suspended);
                }
            }
            Seen::OwnerStepped { .. } => self.step(seen, facts),
            Seen::TransferTroubled { session, range, generation } => {
                self.change(*session, lot(range, generation), |custody| custody.troubled = true);
            }
            Seen::Disturbed { node, until } => {
                let known = self.disturbed.entry(*node).or_default();
                *known = (*known).max(*until);
            }
            Seen::Committed { batch, .. } => self.judge_batch(batch, facts)?,
            _ => {}
        }
        Ok(())
    }

    fn start(&mut self, now: TrueTime, node: usize, session: SessionId, space: usize, migrates: bool) {
        // No leader has reached it yet.
        let process = Process { node, space, migrates, drained: false, gone: None, in_contact_until: now };
        self.processes.insert(session, process);
        *slot(&mut self.running, node) = Some(session);
    }

    /// A process is gone or about to go. If it was drained that is no cause.
    fn end(&mut self, session: SessionId, cause: Cause) {
        let Some(process) = self.processes.get_mut(&session).filter(|process| !process.drained) else {
            return;
        };
        process.gone.get_or_insert(cause);
        self.mark(session, cause);
    }

    fn step(&mut self, seen: &Seen<'_>, facts: At) {
        let Seen::OwnerStepped { node, machine, clock, actions } = *seen else { return };
        let session = machine.session();
        if self.running.get(node).copied().flatten() != Some(session) {
            self.renew_session(facts.now, node, session);
        }
        self.note_lapse(facts.now, session);
        for action in actions {
            self.hear_action(facts.now, session, action);
        }
        if let Some(change) = facts.holdings.change() {
            self.gain(session, &change.gained);
        }
        if let Some(process) = self.processes.get_mut(&session).filter(|process| !process.drained) {
            match machine.expiry() {
                Instant::ZERO => {}
                Instant::NEVER => process.in_contact_until = NEVER,
                expiry => {
                    let ledger = facts.committed.ledger(process.space);
                    let impatience = ledger.map_or(Duration::ZERO, |ledger| ledger.impatience).as_nanos();
                    let contact = expiry.0.saturating_sub(u64::try_from(impatience).unwrap_or(u64::MAX));
                    process.in_contact_until = clock.when(Instant(contact));
                }
            }
        }
    }

    /// A process whose clock jumped goes on as somebody else, without what it had.
    fn renew_session(&mut self, now: TrueTime, node: usize, session: SessionId) {
        let Some(before) = self.running.get(node).copied().flatten() else { return };
        self.end(before, Cause::Suspended);
        if let Some(Process { space, migrates, .. }) = self.processes.get(&before) {
            let (space, migrates) = (*space, *migrates);
            self.start(now, node, session, space, migrates);
        }
    }

    fn note_lapse(&mut self, now: TrueTime, session: SessionId) {
        if self.processes.get(&session).is_some_and(|process| now >= process.in_contact_until) {
            self.mark(session, Cause::OutOfContact);
        }
    }

    fn hear_action(&mut self, now: TrueTime, session: SessionId, action: &OwnerAction) {
        match action {
            OwnerAction::StartTransfer { transfer, range, generation, to, .. } => {
                let lot = lot(range, generation);
                self.transfers.insert((session, *transfer), lot);
                let asked = Some((now, to.session, *transfer));
                self.change(session, lot, |custody| custody.asked = asked);
            }
            OwnerAction::StopTransfer(transfer) => {
                if let Some(lot) = self.transfers.remove(&(session, *transfer)) {
                    // Another transfer of the range may have begun already.
                    self.change(session, lot, |custody| {
                        custody.asked = custody.asked.filter(|(.., asked)| asked != transfer);
                    });
                }
            }
            OwnerAction::Revoked(revoked) => revoked.iter().for_each(|gone| self.revoke(session, gone)),
            // A drain that can be taken back (`AdminCommand::Undrain`) has to reset `drained` here, where it ends.
            OwnerAction::Drained => {
                if let Some(process) = self.processes.get_mut(&session) {
                    process.drained = true;
                    process.in_contact_until = NEVER;
                }
            }
            _ => {}
        }
    }

    fn revoke(&mut self, session: SessionId, revocation: &Revocation) {
        let Revocation { range, generation, why } = revocation;
        self.change(session, lot(range, generation), |custody| match why {
            RevokedReason::Moved => custody.moved_to = custody.asked.map(|(_, to, _)| to),
            RevokedReason::Expired => {
                custody.cause.get_or_insert(Cause::OutOfContact);
            }
            RevokedReason::ClockJumped | RevokedReason::Cloned => {
                custody.cause.get_or_insert(Cause::Suspended);
            }
            RevokedReason::Withdrawn | RevokedReason::GivenBack | RevokedReason::NamespaceReplaced => {}
        });
    }

    /// A session holds keys: if it was out of contact on the way there, that did no harm.
    fn gain(&mut self, session: SessionId, gained: &[Lot]) {
        for lot in gained {
            self.change(session, *lot, |custody| {
                custody.has_state = true;
                custody.accepted = true;
                custody.moved_from = None;
                custody.cause = custody.cause.filter(|cause| *cause != Cause::OutOfContact);
            });
        }
    }

    /// Changes what is known of the keys of a range that a session has under a lease.
    fn change(&mut self, session: SessionId, lot: Lot, change: impl Fn(&mut Custody)) {
        let Some(Process { space, .. }) = self.processes.get(&session) else { return };
        self.change_lease(*space, lot, |custody| {
            if custody.session == session {
                change(custody);
            }
        });
    }

    /// Something befell a session that may cost all that it has.
    fn mark(&mut self, session: SessionId, cause: Cause) {
        let Some(process) = self.processes.get(&session) else { return };
        let custody = slot(&mut self.custody, process.space);
        let concerned = |custody: &Custody| {
            let ends = [Some(custody.session), custody.moved_to, custody.moved_from];
            custody.cause.is_none() && ends.contains(&Some(session))
        };
        if custody.values().any(concerned) {
            custody.update(KeyRange::ALL, |_, custody| {
                let cause = if concerned(custody) { Some(cause) } else { custody.cause };
                Some(Custody { cause, ..custody.clone() })
            });
        }
    }

    fn judge_batch(&mut self, batch: &Batch, facts: At) -> Verdict {
        for record in &batch.records {
            let Record::Namespace { namespace, change, reason } = record else { continue };
            if let Some(space) = facts.spaces.find(namespace) {
                self.judge_change(space, change, reason, facts)?;
            }
        }
        Ok(())
    }

    fn judge_change(&mut self, space: usize, change: &Change, reason: &Reason, facts: At) -> Verdict {
        match change {
            Change::Created { settings, .. } => {
                // A leader without a store creates its namespaces anew; their state is where it was.
                if !facts.limits.diskless {
                    slot(&mut self.custody, space).clear();
                }
                *slot(&mut self.migration_timeouts, space) = settings.migration_timeout;
            }
            Change::Configured { settings } => {
                *slot(&mut self.migration_timeouts, space) = settings.migration_timeout;
            }
            Change::Removed => slot(&mut self.custody, space).clear(),
            Change::SessionStarted { session, info } | Change::SessionChanged { session, info }
                if info.evicted =>
            {
                self.end(*session, Cause::Evicted);
            }
            Change::Granted { range, generation, session, source, .. } => {
                if source.is_none() {
                    self.judge_loss(space, (*range, None), reason, facts)?;
                }
                self.grant(space, lot(range, generation), *session, source.is_some(), facts.limits.diskless);
            }
            Change::Claimed { range, generation, session, .. } => {
                self.claim(space, lot(range, generation), *session);
            }
            Change::Released { range, generation } => {
                self.judge_loss(space, (*range, Some(*generation)), reason, facts)?;
                slot(&mut self.custody, space).update(*range, |_, custody| {
                    (custody.generation != *generation).then(|| custody.clone())
                });
            }
            Change::Recalled { range, generation, to } => {
                self.recall(space, lot(range, generation), *to, reason, facts);
            }
            Change::RecallCancelled { range, generation } => {
                self.change_lease(space, lot(range, generation), |custody| custody.recall = None);
            }
            Change::MergeBegun { range, generation } => {
                let merge = Some(*generation);
                slot(&mut self.custody, space)
                    .update(*range, |_, custody| Some(Custody { merge, ..custody.clone() }));
            }
            Change::Merged { range, generation } => {
                self.change_lease(space, lot(range, generation), |custody| {
                    custody.generation = *generation;
                    custody.merge = None;
                });
            }
            _ => {}
        }
        Ok(())
    }

    fn grant(&mut self, space: usize, lot: Lot, session: SessionId, clean: bool, diskless: bool) {
        let Lot { range, generation } = lot;
        let custody = slot(&mut self.custody, space);
        let moved = custody.overlapping(range).filter(|(_, before)| before.has_state);
        let moved: Vec<_> = moved.map(|(part, before)| (part, before.session)).collect();
        custody.insert(range, Custody::new(session, generation, false));
        for (part, from) in moved.into_iter().filter(|_| clean) {
            let moved_from = diskless.then_some(from);
            custody.insert(part, Custody { moved_from, ..Custody::new(session, generation, true) });
        }
    }

    /// A lease goes on under a leader without a store, and so does what is known of it.
    fn claim(&mut self, space: usize, lot: Lot, session: SessionId) {
        let Lot { range, generation } = lot;
        let custody = slot(&mut self.custody, space);
        let new = Custody { accepted: true, ..Custody::new(session, generation, true) };
        let gaps: Vec<KeyRange> = custody.gaps(range).collect();
        custody.update(range, |_, before| {
            let same = before.session == session && before.is_under(generation);
            let merge = before.merge.filter(|merge| *merge != generation);
            let claimed = Custody { generation, merge, ..before.clone() };
            Some(if same { claimed } else { new.clone() })
        });
        gaps.into_iter().for_each(|gap| custody.insert(gap, new.clone()));
    }

    fn recall(&mut self, space: usize, lot: Lot, to: Option<SessionId>, reason: &Reason, facts: At) {
        let timed_out = to.is_none() && *reason == Reason::MigrationTimedOut;
        let known = self.custody.get(space).into_iter();
        let excused: Vec<KeyRange> = known
            .flat_map(|custody| custody.overlapping(lot.range))
            .filter(|(_, custody)| timed_out && custody.generation == lot.generation)
            .filter(|(_, custody)| self.was_held_up(space, custody, facts))
            .map(|(part, _)| part)
            .collect();
        self.change_lease(space, lot, |custody| {
            let since = custody.recall.map_or(facts.now, |recall| recall.since);
            custody.recall = to.map(|to| Recalled { since, to });
            custody.recalled_for = Some(reason.clone());
        });
        for range in excused {
            self.change_lease(space, Lot { range, ..lot }, |custody| {
                custody.cause.get_or_insert(Cause::MigrationHeldUp);
            });
        }
    }

    /// Whether the application, or what befell either end or a Manager, explains that a migration did not end in time.
    fn was_held_up(&self, space: usize, custody: &Custody, facts: At) -> bool {
        let timeout = self.migration_timeouts.get(space).copied().unwrap_or_default();
        let busy = custody.asked.is_some_and(|(since, ..)| later(since, timeout / 2) <= facts.now);
        let slow = timeout < facts.limits.slowest_message * MESSAGES_OF_A_MIGRATION;
        let Some(recall) = custody.recall else { return true };
        let disturbed = |node: &Node| self.disturbed.get(node).is_some_and(|until| *until >= recall.since);
        let home = |session| self.processes.get(&session).map(|process| Node::Owner(process.node));
        let ends = [custody.session, recall.to].into_iter().filter_map(home);
        let managers = self.disturbed.keys().filter(|node| matches!(node, Node::Manager(_))).copied();
        custody.troubled || busy || slow || ends.chain(managers).any(|node| disturbed(&node))
    }

    /// Changes what is known of the keys of a range under a lease.
    fn change_lease(&mut self, space: usize, lot: Lot, change: impl Fn(&mut Custody)) {
        slot(&mut self.custody, space).update(lot.range, |_, custody| {
            let mut custody = custody.clone();
            if custody.is_under(lot.generation) {
                change(&mut custody);
            }
            Some(custody)
        });
    }

    /// Keys of a range lose their state, all of them or those under a lease. A clock that is too slow or too fast is a
    /// cause of its own.
    fn judge_loss(
        &mut self,
        space: usize,
        (range, under): (KeyRange, Option<Generation>),
        reason: &Reason,
        facts: At,
    ) -> Verdict {
        if !facts.limits.clocks_within_bound && *reason == Reason::HoldExpired {
            return Ok(());
        }
        let custody = slot(&mut self.custody, space);
        let lost = custody.overlapping(range).filter(|(_, custody)| {
            custody.has_state && under.is_none_or(|generation| custody.generation == generation)
        });
        let lost: Vec<(KeyRange, Custody)> = lost.map(|(part, custody)| (part, custody.clone())).collect();
        match lost.into_iter().find(|(_, custody)| !self.is_excused(facts.now, custody)) {
            Some((part, custody)) => {
                let what = custody.describe_loss(part, under.is_some(), reason);
                let key = facts
                    .spaces
                    .probes()
                    .nth(space)
                    .and_then(|(_, keys)| keys.iter().copied().find(|key| part.contains(*key)));
                let keys = vec![key.unwrap_or_else(|| part.first())];
                Err(facts.violation("S4", space, keys, what))
            }
            None => Ok(()),
        }
    }

    /// Whether something befell those who have the state.
    fn is_excused(&self, now: TrueTime, custody: &Custody) -> bool {
        let stands = |session: SessionId| {
            let process = self.processes.get(&session);
            process.is_some_and(|process| process.gone.is_none() && now < process.in_contact_until)
        };
        let can_move = self.processes.get(&custody.session).is_some_and(|process| process.migrates);
        custody.cause.is_some()
            || !can_move
            || !stands(custody.session)
            || [custody.moved_to, custody.moved_from].into_iter().flatten().any(|other| !stands(other))
    }
}

fn lot(range: &KeyRange, generation: &Generation) -> Lot {
    Lot { range: *range, generation: *generation }
}

impl Custody {
    fn new(session: SessionId, generation: Generation, has_state: bool) -> Custody {
        Custody {
            session,
            generation,
            merge: None,
            has_state,
            accepted: false,
            moved_to: None,
            moved_from: None,
            cause: None,
            recall: None,
            recalled_for: None,
            asked: None,
            troubled: false,
        }
    }

    /// Whether its holder may have it under this number.
    fn is_under(&self, generation: Generation) -> bool {
        self.generation == generation || self.merge == Some(generation)
    }

    fn describe_loss(&self, range: KeyRange, released: bool, reason: &Reason) -> String {
        let Custody { session, generation, .. } = self;
        let record = if released { "released" } else { "granted without it" };
        let moved = self.moved_to.map_or_else(String::new, |to| format!(", who had moved it to {to}"));
        let recalled = match &self.recalled_for {
            Some(why) => format!("; last recalled because {why:?}"),
            None => String::new(),
        };
        format!(
            "the state of {range}, which {session} had under lease {generation}{moved}, is lost though nothing \
             failed: {record} because {reason:?}{recalled}"
        )
    }
}

#[cfg(test)]
mod tests;
