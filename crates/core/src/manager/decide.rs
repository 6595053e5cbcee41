//! One decision: from what sessions said and which times ran out to the records of one batch.

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::id::{Generation, Namespace, Seq, SessionId};
use crate::injected_bug::{Bug, any_injected, injected};
use crate::key::{Key, KeyRange};
use crate::manager_state::{ManagerState, NamespaceState};
use crate::message::{Release, Report};
use crate::range_map::RangeMap;
use crate::range_set::RangeSet;
use crate::record::{Change, Reason, Record, SessionInfo};
use crate::settings::Drift;
use crate::table::Entry;
use crate::time::Instant;

use super::Context;
use super::broken;
use super::claim::Claim;
use super::commit::{Affected, Decided, InFlight};
use super::conversation::Conversation;
use super::event::{ManagerAction, Skip};
use super::leader::Leader;
use super::listed::{ByNumber, HeldInOrder};
use super::moves::MovedKeys;
use super::namespace_runtime::NamespaceRuntime;

/// The records decided so far and what their commit sets free.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) records: Vec<Record>,
    pub(super) in_flight: InFlight,
    /// The term has no number left for a grant.
    pub(super) used_up: bool,
}

/// The decision about one namespace. Each change is applied to the draft as it is made, so that the next one sees it.
pub(super) struct Decision<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) draft: &'a mut ManagerState,
    pub(super) runtime: &'a mut NamespaceRuntime,
    pub(super) plan: &'a mut Plan,
    pub(super) now: Instant,
    pub(super) drift: Drift,
    /// The number before the term's first, where there is no store.
    pub(super) floor: Option<Generation>,
    /// How many records make a batch full.
    pub(super) max_batch: usize,
    /// How long no Owner arrives before a first assignment.
    pub(super) arrival_pause: Duration,
    /// The batch was full before everything was decided.
    pub(super) unfinished: bool,
}

/// What a report says of a lease that its session does not hold, or not all of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Finding {
    pub(super) range: KeyRange,
    pub(super) generation: Generation,
    /// The number under which the report speaks of it.
    pub(super) named: Generation,
    /// The session that has the state, if it was moved.
    pub(super) clean_to: Option<SessionId>,
    pub(super) given_back: bool,
    pub(super) refused: bool,
}

impl Leader {
    /// Decides about everything that calls for it and sends the outcome to the store as one batch.
    pub(super) fn decide(&mut self, context: &mut Context<'_>) {
        let mut plan = Plan { records: std::mem::take(&mut self.group_records), ..Plan::default() };
        self.decide_admin(&mut plan, context);
        let mut dirty: Vec<Namespace> =
            self.runtimes.iter().filter(|(_, runtime)| runtime.dirty).map(|(name, _)| name.clone()).collect();
        // Whoever had to wait for a full batch comes first.
        let from = self.decide_from.take();
        let start = from.map_or(0, |from| dirty.partition_point(|name| *name < from));
        dirty.rotate_left(start);
        for namespace in dirty {
            if plan.records.len() >= context.config.max_batch {
                self.decide_from = Some(namespace);
                break;
            }
            self.decide_namespace(&namespace, &mut plan, context);
        }
        if plan.used_up && self.floor.is_some() {
            self.resign();
        }
        if plan.records.is_empty() {
            return self.note_applied(plan.in_flight.decided);
        }
        let affected = plan.in_flight.affected.clone();
        self.append(plan.records, plan.in_flight, context);
        if injected(Bug::AnswerBeforeCommit) {
            self.mark_affected(&affected);
        }
    }

    fn decide_namespace(&mut self, namespace: &Namespace, plan: &mut Plan, context: &mut Context<'_>) {
        let Some(runtime) = self.runtimes.get_mut(namespace) else { return };
        if !self.draft.namespaces.contains_key(namespace) {
            return;
        }
        runtime.dirty = false;
        if runtime.placement.members_changed {
            let members = self.draft.namespaces[namespace].sessions.iter();
            runtime.placement.evicted =
                members.filter(|(_, info)| info.evicted).map(|(session, _)| *session).collect();
        }
        let earlier = std::mem::take(&mut runtime.skips);
        let draft = &mut self.draft;
        let mut decision = Decision {
            namespace,
            draft,
            runtime,
            plan,
            now: context.now,
            drift: context.config.drift,
            floor: self.floor,
            max_batch: context.config.max_batch,
            arrival_pause: context.config.arrival_pause,
            unfinished: false,
        };
        decision.end_rebuild();
        decision.end_silent_sessions();
        decision.hear_reports();
        decision.take_moves();
        decision.settle_hold();
        decision.end_quarantines();
        decision.end_emptied();
        decision.time_out_recalls();
        decision.balance_load();
        decision.assign();
        decision.merge_neighbours();
        let unfinished = decision.unfinished;
        runtime.dirty |= unfinished;
        runtime.decided(unfinished, context.now);
        let earlier: BTreeSet<&Skip> = earlier.iter().collect();
        for skip in runtime.skips.iter().filter(|skip| !earlier.contains(skip)) {
            if let Skip::Claim { why, .. } = skip {
                *context.counters.claims_refused.entry(*why).or_default() += 1;
            }
            context.out.push(ManagerAction::Skip(skip.clone()));
        }
        let news = runtime.placement.trimming.news.take();
        context.out.extend(news.map(ManagerAction::Trimmed));
    }
}

impl Decision<'_> {
    pub(super) fn stored(&self) -> &NamespaceState {
        &self.draft.namespaces[self.namespace]
    }

    /// Whether the batch has no room left. Whoever asks has more to decide, which waits for the next batch.
    pub(super) fn is_full(&mut self) -> bool {
        let is_full = self.plan.records.len() >= self.max_batch;
        self.unfinished |= is_full;
        is_full
    }

    /// Decides one change: records it, applies it to the draft, and notes whose leases it touches.
    pub(super) fn emit(&mut self, change: Change, reason: Reason) {
        let affected = &mut self.plan.in_flight.affected;
        if let Change::Granted { range, .. }
        | Change::Claimed { range, .. }
        | Change::Released { range, .. }
        | Change::Recalled { range, .. }
        | Change::RecallCancelled { range, .. } = &change
        {
            let owners = self.draft.namespaces[self.namespace].table.overlapping(*range);
            for owner in owners.filter_map(|(_, entry)| entry.owner) {
                let sent = self
                    .runtime
                    .conversations
                    .open
                    .get(&owner)
                    .map_or(Seq::ZERO, |conversation| conversation.side.seq);
                let how = match &change {
                    Change::Recalled { .. } | Change::RecallCancelled { .. } => Affected::Gives,
                    _ => Affected::Takes { after: sent },
                };
                self.runtime.conversations.disturb(owner);
                let known = affected.entry((self.namespace.clone(), owner)).or_insert(how);
                *known = how.max(*known);
            }
        }
        if let Change::Granted { session, .. } | Change::Claimed { session, .. } = &change {
            self.runtime.conversations.disturb(*session);
            affected.insert((self.namespace.clone(), *session), Affected::Gives);
        }
        if let Change::MergeBegun { range, .. } | Change::Merged { range, .. } = &change {
            let owners = self.draft.namespaces[self.namespace].table.overlapping(*range);
            owners
                .filter_map(|(_, entry)| entry.owner)
                .for_each(|owner| self.runtime.conversations.disturb(owner));
        }
        if let Change::SessionStarted { .. } | Change::SessionChanged { .. } | Change::SessionEnded { .. } =
            &change
        {
            self.runtime.placement.members_changed = true;
        }
        self.note_grant_time(&change);
        self.runtime.conversations.follow_leases(&change, &self.draft.namespaces[self.namespace].table);
        self.draft.apply_change(self.namespace, &change);
        self.runtime.recalls.review |= !matches!(change, Change::Granted { .. } | Change::Released { .. });
        if let Change::Granted { range, .. }
        | Change::Claimed { range, .. }
        | Change::Released { range, .. }
        | Change::Recalled { range, .. }
        | Change::RecallCancelled { range, .. } = &change
            && let Some(desired) = &mut self.runtime.placement.desired
        {
            desired.note_table(*range, &self.draft.namespaces[self.namespace].table);
        }
        let namespace = self.namespace.clone();
        self.plan.records.push(Record::Namespace { namespace, change, reason });
    }

    fn end_silent_sessions(&mut self) {
        let mut silent = self.runtime.holds.silent(self.now);
        silent.retain(|session| self.stored().sessions.contains_key(session));
        for session in silent {
            self.note_death(session);
            if !self.end(session, &Reason::HoldExpired) {
                return;
            }
        }
    }

    /// A session is over: whatever it still has is released, and its state is gone. False if the batch has no room for all of
    /// that: the session is a member until the rest is released.
    fn end(&mut self, session: SessionId, reason: &Reason) -> bool {
        let leases = self.stored().table.of_session(session).take(self.max_batch + 1);
        let leases: Vec<_> = leases.map(|(range, entry)| (range, entry.generation)).collect();
        for (range, generation) in leases {
            if self.is_full() {
                return false;
            }
            self.emit(Change::Released { range, generation }, reason.clone());
        }
        self.emit(Change::SessionEnded { session }, reason.clone());
        true
    }

    fn hear_reports(&mut self) {
        let undecided: Vec<SessionId> = self.runtime.conversations.undecided.iter().copied().collect();
        for session in undecided {
            if self.is_full() {
                return;
            }
            if !self.take_earlier_findings(session) {
                return;
            }
            self.runtime.conversations.undecided.remove(&session);
            let Some(conversation) = self.runtime.conversations.open.get_mut(&session) else { continue };
            conversation.undecided = false;
            let Some(report) = conversation.report.clone() else { continue };
            let namespace = self.namespace.clone();
            let decided = Decided { namespace, session, conversation: conversation.side.id, seq: report.seq };
            let claims = self.claims(session, &report);
            if self.may_join(session, &report, &claims) && self.join(session, &report) {
                self.take_report(session, &report, &claims);
            }
            if self.unfinished && !injected(Bug::FirstBatchIsAll) {
                // The rest of it is found again by the next decision, and only then is it applied.
                if let Some(conversation) = self.runtime.conversations.open.get_mut(&session) {
                    conversation.undecided = true;
                    self.runtime.conversations.undecided.insert(session);
                }
                return;
            }
            self.plan.in_flight.decided.push(decided);
        }
    }

    /// Acts on what a member says, as far as the batch has room.
    fn take_report(&mut self, session: SessionId, report: &Report, claims: &[Claim]) {
        self.take_claims(session, claims);
        if let Some(rebuild) =
            self.runtime.rebuild.as_mut().filter(|_| injected(Bug::UnclaimedReleaseHonoured))
        {
            report.released.iter().for_each(|release| rebuild.note_claimed(release.range));
        }
        if self.unfinished {
            return;
        }
        self.take_merges(session, report);
        self.take_findings(session);
        self.take_wishes(session, report);
    }

    /// Makes the session a member if it is not one; says whether it is.
    pub(super) fn join(&mut self, session: SessionId, report: &Report) -> bool {
        if self.stored().sessions.contains_key(&session) {
            return true;
        }
        if self.runtime.holds.is_over(session, self.now) || report.leaving {
            return false;
        }
        let Some(offer) =
            self.runtime.conversations.open.get(&session).map(|conversation| conversation.offer.clone())
        else {
            return false;
        };
        let succeeds = offer.takes_over || offer.formerly.is_some();
        let namesakes = usize::from(succeeds && self.stored().session_named(&offer.name).is_some());
        let full = self.stored().sessions.len() - namesakes >= self.stored().settings.max_owners;
        if full || self.stored().evicted.contains(&session) {
            self.runtime.forget(session);
            return false;
        }
        if let Some(namesake) = self.stored().session_named(&offer.name) {
            let age = self.drift.hold_for(report.age);
            let covered = offer.formerly == Some(namesake)
                || (offer.takes_over && self.runtime.holds.is_covered(namesake, offer.made_at, age));
            if !covered && !injected(Bug::SecondProcessTakesLeases) {
                // Its next report finds no conversation, and its next hello is refused with the reason.
                self.runtime.forget(session);
                return false;
            }
            if injected(Bug::RestartAcceptsRenewal) {
                self.inherit(namesake, session);
            }
            // A process whose clock jumped is another session, and lives.
            if offer.formerly != Some(namesake) {
                self.note_death(namesake);
            }
            if !self.end(namesake, &Reason::TakenOver) {
                return false;
            }
        }
        let info = SessionInfo {
            name: offer.name,
            url: offer.url,
            weight: report.weight,
            virtual_nodes: self.virtual_nodes_of(report),
            drain_requested: report.draining,
            drain_ordered: false,
            evicted: false,
        };
        if injected(Bug::NamespaceIgnored) {
            self.join_everywhere(session, &info);
        }
        self.runtime.holds.joined.insert(session, self.now);
        self.emit(Change::SessionStarted { session, info }, Reason::Joined);
        true
    }

    /// Releases what the session's report does not hold any more, to where its state went if it went somewhere.
    fn take_findings(&mut self, session: SessionId) {
        let Some(conversation) = self.runtime.conversations.open.get(&session) else { return };
        let first = conversation.next_finding.unwrap_or(Key::MIN);
        // What a report lists is put in order each time: the more that is, the more is found at a time.
        let listed =
            conversation.report.as_deref().map_or(0, |report| report.released.len() + report.refused.len());
        let enough = (listed / 4).max(self.max_batch * 2);
        let withdrawn = &self.runtime.recalls.withdrawn;
        let (mut findings, next) =
            reconcile_from(first, enough, self.stored(), session, conversation, withdrawn);
        if injected(Bug::AbsenceFromAnySession) {
            findings.extend(broken::absent_anywhere(self.stored(), conversation));
        }
        findings.reverse();
        self.take_all(session, findings);
        self.unfinished |= next.is_some();
        if let Some(conversation) = self.runtime.conversations.open.get_mut(&session) {
            conversation.next_finding = next;
        }
    }

    /// Goes on with what earlier decisions found in a report and had no room for; says whether it is done.
    fn take_earlier_findings(&mut self, session: SessionId) -> bool {
        let findings = self
            .runtime
            .conversations
            .open
            .get_mut(&session)
            .map(|conversation| std::mem::take(&mut conversation.findings));
        self.take_all(session, findings.unwrap_or_default());
        !self.unfinished
    }

    /// Acts on findings, the last first, as far as the batch has room. The others wait with the report.
    fn take_all(&mut self, session: SessionId, mut findings: Vec<Finding>) {
        if findings.is_empty() {
            return;
        }
        let moved = self.runtime.moved_by(session);
        while let Some(finding) = findings.last() {
            if self.is_full() {
                break;
            }
            if self.still_holds(session, finding) {
                self.take_finding(session, *finding, &moved);
            }
            findings.pop();
        }
        if let Some(conversation) = self.runtime.conversations.open.get_mut(&session) {
            conversation.findings = findings;
        }
    }

    /// Whether a finding is still about a lease that its session has.
    fn still_holds(&self, session: SessionId, finding: &Finding) -> bool {
        let is_its = |(_, entry): (KeyRange, &Entry)| {
            entry.owner == Some(session) && entry.generation == finding.generation
        };
        any_injected() || self.stored().table.overlapping(finding.range).all(is_its)
    }

    fn take_finding(&mut self, source: SessionId, finding: Finding, moved: &MovedKeys) {
        let Finding { range, generation, named, .. } = finding;
        if let Some(to) = finding.clean_to {
            if self.is_alive(to) && to != source {
                return self.grant_moved(range, to, named, Reason::Migrated);
            }
            if to != source && self.may_come(to) && moved.contain(range, named) {
                return;
            }
            if injected(Bug::CleanThoughRestarted)
                && let Some(other) = self.stored().sessions.keys().copied().find(|session| *session != source)
            {
                return self.grant_moved(range, other, named, Reason::Migrated);
            }
        }
        let reason = match finding {
            Finding { clean_to: Some(_), .. } => Reason::DestinationGone,
            Finding { refused: true, .. } => Reason::RefusedByOwner,
            Finding { given_back: true, .. } => Reason::GivenBack,
            _ => Reason::Dropped,
        };
        self.emit(Change::Released { range, generation }, reason);
    }

    /// Whether a session is a member that was heard within the hold.
    pub(super) fn is_alive(&self, session: SessionId) -> bool {
        self.stored().sessions.contains_key(&session) && !self.runtime.holds.is_over(session, self.now)
    }

    /// Gives a range whose state was moved, out of the lease `source`, a new lease. The state is as old as it was.
    pub(super) fn grant_moved(&mut self, range: KeyRange, to: SessionId, source: Generation, reason: Reason) {
        match self.next_generation() {
            Some(generation) => {
                let (source, state_since) = (Some(source), None);
                let granted = Change::Granted { range, generation, session: to, source, state_since };
                self.emit(granted, reason);
            }
            None => {
                let generation = self.stored().table.get(range.first()).1.generation;
                self.emit(Change::Released { range, generation }, Reason::Dropped);
            }
        }
    }

    /// Gives a range that begins empty a new lease, and says which number its state's age is: that of the first of those that
    /// begin empty in one decision. No key carried it, or a higher one, before.
    pub(super) fn grant_empty(
        &mut self,
        range: KeyRange,
        to: SessionId,
        first: Option<Generation>,
        reason: Reason,
    ) -> Option<Generation> {
        let generation = self.next_generation()?;
        let kept = injected(Bug::LossKeepsStateSince);
        let kept = kept.then(|| self.stored().table.get(range.first()).1.state_since);
        let state_since = kept.or(first);
        let granted = Change::Granted { range, generation, session: to, source: None, state_since };
        self.emit(granted, reason);
        first.or(Some(generation))
    }

    /// A number that no lease has had; `None` if the term has none left.
    pub(super) fn next_generation(&mut self) -> Option<Generation> {
        let mut last = self.stored().last_generation;
        if injected(Bug::GenerationReused) {
            last = Generation(last.0.saturating_sub(1));
        }
        let is_of_term = |next: &Generation| self.floor.is_none_or(|floor| next.is_of_term_after(floor));
        let generation = last.next().filter(is_of_term);
        if generation.is_none() {
            self.plan.used_up = true;
            self.runtime.skips.push(Skip::GenerationsUsedUp { namespace: self.namespace.clone() });
        }
        generation
    }

    fn take_wishes(&mut self, session: SessionId, report: &Report) {
        if self.unfinished {
            return;
        }
        let Some(info) = self.stored().sessions.get(&session) else { return };
        if info.weight != report.weight || info.drain_requested != report.draining {
            let info =
                SessionInfo { weight: report.weight, drain_requested: report.draining, ..info.clone() };
            self.emit(Change::SessionChanged { session, info }, Reason::Reported);
        }
        if report.leaving && report.held.is_empty() && !self.runtime.speaks_of_moves(session) {
            // Whatever it has not heard of yet it will refuse.
            self.end(session, &Reason::Left);
        }
    }

    fn settle_hold(&mut self) {
        if self.runtime.holds.settles_at.is_some_and(|at| self.now >= at) {
            self.runtime.holds.settles_at = None;
            self.emit(Change::HoldSettled, Reason::TimePassed);
        }
    }

    /// An evicted session that has nothing left is over.
    fn end_emptied(&mut self) {
        let stored = self.stored();
        let is_emptied = |session: &SessionId| {
            let is_member = stored.sessions.get(session).is_some_and(|info| info.evicted);
            is_member && !stored.table.has_any(*session) && !self.runtime.speaks_of_moves(*session)
        };
        let emptied: Vec<SessionId> =
            self.runtime.placement.evicted.iter().copied().filter(is_emptied).collect();
        for session in emptied {
            self.emit(Change::SessionEnded { session }, Reason::Operator("evicted".into()));
        }
    }
}

/// Compares what the table gives a session with what its report holds, gave up and refused.
///
/// A lease that the report does not list is over only if the session had it, or left out what it was offered. One that
/// may still be on its way is offered again with the next message, by the next leader too, until the offer has been open
/// for a hold. One that is no longer renewed is not offered again: no message that its Owner could still apply brings
/// it, because every message that was sent before this report arrived crosses it.
pub(super) fn reconcile(
    stored: &NamespaceState,
    session: SessionId,
    conversation: &Conversation,
    withdrawn: &RangeMap<Generation>,
) -> Vec<Finding> {
    reconcile_from(Key::MIN, usize::MAX, stored, session, conversation, withdrawn).0
}

/// Whether [`reconcile`] finds anything.
pub(super) fn differs(
    stored: &NamespaceState,
    session: SessionId,
    conversation: &Conversation,
    withdrawn: &RangeMap<Generation>,
) -> bool {
    !reconcile_from(Key::MIN, 1, stored, session, conversation, withdrawn).0.is_empty()
}

/// Ends behind the lease with which there are enough findings, and says from which key to go on, if so.
fn reconcile_from(
    first: Key,
    enough: usize,
    stored: &NamespaceState,
    session: SessionId,
    conversation: &Conversation,
    withdrawn: &RangeMap<Generation>,
) -> (Vec<Finding>, Option<Key>) {
    let Some(report) = &conversation.report else { return (Vec::new(), None) };
    let mut held = HeldInOrder::new(&report.held);
    // Most reports list all that their session has: what else they say is not looked at then.
    let released =
        LazyCell::new(|| ByNumber::new(&report.released, |release| (release.generation, release.range)));
    let refused =
        LazyCell::new(|| ByNumber::new(&report.refused, |refusal| (refusal.generation, refusal.range)));
    let mut findings = Vec::new();
    for (range, entry) in stored.table.of_session_from(session, first) {
        if findings.len() >= enough {
            return (findings, Some(range.first()));
        }
        let generation = entry.generation;
        let mut missing = held.missing(range, entry.numbers());
        let any_lease = injected(Bug::ReleaseWithoutGeneration);
        if missing.is_empty() && !any_lease {
            continue;
        }
        let numbers = [Some(generation), entry.merge.filter(|_| !injected(Bug::ReleasedUnderOneNumber))];
        let numbers = || numbers.iter().flatten();
        let finding = Finding {
            range,
            generation,
            named: generation,
            clean_to: None,
            given_back: false,
            refused: false,
        };
        let given_back = |range, release: &Release| {
            let (named, clean_to) = (release.generation, release.clean_to);
            Finding { range, named, clean_to, given_back: true, ..finding }
        };
        if any_lease {
            let taken = report
                .released
                .iter()
                .filter_map(|release| Some((release.range.intersection(range)?, release)));
            findings.extend(taken.map(|(piece, release)| given_back(piece, release)));
            report.released.iter().for_each(|release| missing.remove(release.range));
        }
        for number in numbers().filter(|_| !any_lease) {
            for (piece, release) in released.pieces(*number, range) {
                let taken = missing.intersect_range(piece);
                findings.extend(taken.iter().map(|piece| given_back(piece, release)));
                if enough == 1 && !findings.is_empty() {
                    return (findings, None);
                }
                missing.remove(piece);
            }
        }
        for number in numbers() {
            for (piece, _) in refused.pieces(*number, range) {
                let taken = missing.intersect_range(piece);
                findings.extend(taken.iter().map(|range| Finding { range, refused: true, ..finding }));
                if enough == 1 && !findings.is_empty() {
                    return (findings, None);
                }
                missing.remove(piece);
            }
        }
        if injected(Bug::AcceptedTwice) {
            continue;
        }
        let endless = injected(Bug::OfferNeverEnds);
        let (came_at, hold) = conversation.reported;
        let ends_after = (came_at, if endless { Duration::MAX } else { hold });
        let mut over = conversation.offers.dropped(range, entry.numbers(), report.applied, ends_after);
        if injected(Bug::UnlistedTakenForDropped) && report.heard == Seq::ZERO {
            over = RangeSet::from_ranges([range]);
        }
        if injected(Bug::RacingReportAccepted) {
            over = over.union(&conversation.offers.sent(range, generation));
        }
        let withdrawn = withdrawn.overlapping(range).filter(|(_, of)| **of == generation);
        withdrawn.for_each(|(piece, _)| over.insert(piece));
        findings.extend(missing.intersection(&over).iter().map(|range| Finding { range, ..finding }));
    }
    (findings, None)
}
