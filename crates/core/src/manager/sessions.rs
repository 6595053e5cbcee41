//! What sessions say and are told.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::id::{Generation, Namespace, OwnerName, Seq, SessionId};
use crate::injected_bug::{Bug, any_injected, injected};
use crate::key::{Key, KeyRange};
use crate::message::{
    Assign, Destination, HeldLease, Hello, LeaseOrder, ManagerToOwner, OrderKind, RecallOrder, Refused,
    RefusedReason, Release, Report, Welcome,
};
use crate::range_set::RangeSet;
use crate::table::{Entry, LeaseNumbers};
use crate::time::Instant;

use super::Context;
use super::broken;
use super::claim::warrant;
use super::commit::Decided;
use super::conversation::{Conversation, around, objection};
use super::conversations::Offer;
use super::decide::{differs, reconcile};
use super::event::{ManagerAction, MessageSkip, Skip, StreamId};
use super::leader::Leader;
use super::lookups::count;
use super::merge::takes_up_merge;
use super::moves::moves;
use super::namespace_runtime::{NamespaceRuntime, RuntimeTimer};
use super::trimming::load_interval;

/// How many leases the messages that nobody asked for may list in one step, and how long the rest of them waits.
const MAX_PUSHED_ORDERS: usize = 256;
const PUSH_PAUSE: Duration = Duration::from_millis(4);

/// The most capacity an Owner may claim, in percent of the usual: a hundred times as much.
const MAX_WEIGHT: u32 = 10_000;

impl Leader {
    /// A hello changes nothing but the offer that its sender may take up.
    pub(super) fn on_hello(&mut self, from: StreamId, hello: Hello, context: &mut Context<'_>) {
        if let Some(why) = self.refusal(&hello, context) {
            match why {
                RefusedReason::StaleTerm => count(context, MessageSkip::StaleTerm),
                RefusedReason::UnknownNamespace => count(context, MessageSkip::UnknownNamespace),
                RefusedReason::WrongKeys | RefusedReason::WrongMode => count(context, MessageSkip::WrongKind),
                _ => {}
            }
            let Hello { session, number, namespace, .. } = hello;
            let (term, namespace) = (self.lead.term, Some(namespace));
            let refused = Refused { session, number, term, why, namespace };
            return context.send_owner(from, ManagerToOwner::Refused(refused));
        }
        let Some(runtime) = self.runtimes.get_mut(&hello.namespace) else { return };
        let Some(stored) = self.committed.namespaces.get(&hello.namespace) else { return };
        if injected(Bug::HelloTakesOver) && hello.takes_over_previous {
            stored
                .session_named(&hello.name)
                .into_iter()
                .for_each(|session| runtime.hear(session, Instant(0)));
        }
        if injected(Bug::HelloClearsLeases) {
            runtime.hear(hello.session, Instant(0));
        }
        let takes_over = hello.takes_over_previous;
        // An offer that nobody has taken up is as good as a fresh one, and several hellos may be on their way.
        let formerly = hello.formerly;
        let waiting = runtime
            .conversations
            .offers
            .get(&hello.session)
            .filter(|offer| offer.takes_over == takes_over && offer.formerly == formerly);
        if waiting.is_none() && !stored.sessions.contains_key(&hello.session) {
            runtime.placement.latest_arrival = context.now;
        }
        let (id, made_at) =
            waiting.map_or_else(|| (context.random.nonce(), context.now), |offer| (offer.id, offer.made_at));
        if runtime.conversations.offers.len() >= stored.settings.max_owners * 2 {
            runtime.conversations.offers.pop_first();
        }
        runtime.conversations.offers.insert(
            hello.session,
            Offer { id, name: hello.name, url: hello.url, takes_over, formerly, made_at },
        );
        let welcome = Welcome {
            namespace: hello.namespace,
            session: hello.session,
            number: hello.number,
            conversation: id,
            term: self.lead.term,
            kind: stored.kind.clone(),
        };
        context.send_owner(from, ManagerToOwner::Welcome(welcome));
    }

    fn refusal(&self, hello: &Hello, context: &Context<'_>) -> Option<RefusedReason> {
        if hello.term > self.lead.term {
            return Some(RefusedReason::StaleTerm);
        }
        let (Some(stored), Some(runtime)) =
            (self.committed.namespaces.get(&hello.namespace), self.runtimes.get(&hello.namespace))
        else {
            return Some(RefusedReason::UnknownNamespace);
        };
        if let Some(mismatch) = stored.kind.mismatch(hello.expects) {
            return Some(mismatch.into());
        }
        let known = stored.sessions.get(&hello.session);
        // One that still has leases may say that it gives them back.
        let is_emptied = known.is_some_and(|info| info.evicted) && !stored.table.has_any(hello.session);
        if is_emptied || stored.evicted.contains(&hello.session) {
            return Some(RefusedReason::Evicted);
        }
        // Whoever speaks without becoming a member is forgotten after a hold.
        let is_full = stored.sessions.len() >= stored.settings.max_owners
            || runtime.conversations.open.len() >= stored.settings.max_owners * 2;
        if known.is_none() && is_full {
            return Some(RefusedReason::TooManyOwners);
        }
        let namesake = stored.session_named(&hello.name).filter(|session| *session != hello.session);
        let in_use = namesake.is_some_and(|session| !runtime.holds.is_over(session, context.now));
        let age = context.config.drift.hold_for(hello.age);
        let covered = namesake.is_some_and(|session| runtime.holds.is_covered(session, context.now, age));
        let is_itself = namesake.is_some() && namesake == hello.formerly;
        let takes =
            (hello.takes_over_previous && covered) || is_itself || injected(Bug::SecondProcessTakesLeases);
        (in_use && !takes).then_some(RefusedReason::NameInUse)
    }

    /// Takes a report: extends the hold whatever it says, and acts on it only if it acknowledges the latest message.
    pub(super) fn on_report(&mut self, from: StreamId, mut report: Report, context: &mut Context<'_>) {
        let namespace = report.namespace.clone();
        let session = report.session;
        report.weight = report.weight.min(MAX_WEIGHT);
        if self.floor.is_none() {
            report.released.iter_mut().for_each(|release| release.warrant = None);
        }
        let Some(runtime) = self.runtimes.get_mut(&namespace) else {
            return skip(context, session, MessageSkip::UnknownNamespace);
        };
        if let Some(why) = runtime.objection_to_first(&report) {
            return skip(context, session, why);
        }
        if injected(Bug::ClaimFromBeforeTerm) {
            broken::open_conversation(runtime, from, &report, context.now);
        }
        if !runtime.take_up_offer(from, &report, context) {
            count(context, MessageSkip::ForeignNonce);
            let unknown = ManagerToOwner::Unknown { session, conversation: report.conversation };
            return context.send_owner(from, unknown);
        }
        let Some(conversation) = runtime.conversations.open.get_mut(&session) else { return };
        let highest = if injected(Bug::SeqNotChecked) { Seq::ZERO } else { conversation.side.heard };
        if let Some(why) = objection(&report, conversation.side.seq, highest) {
            return skip(context, session, why);
        }
        conversation.side.heard = conversation.side.heard.max(report.seq);
        conversation.peer = from;
        let crossed = report.heard < conversation.side.seq;
        runtime.hear(session, context.now);
        if crossed && !injected(Bug::RacingReportAccepted) {
            self.on_race(&namespace, session, context);
            return skip(context, session, MessageSkip::Race);
        }
        self.take_report(&namespace, report, context);
    }

    fn on_race(&mut self, namespace: &Namespace, session: SessionId, context: &mut Context<'_>) {
        let Some(stored) = self.committed.namespaces.get(namespace) else { return };
        let Some(runtime) = self.runtimes.get_mut(namespace) else { return };
        let Some(conversation) = runtime.conversations.open.get_mut(&session) else { return };
        conversation.crossed(context.now);
        let pause = conversation.backoff(context.random, stored.settings.lease);
        runtime.timers.set(RuntimeTimer::Resend(session), context.now + pause);
    }

    fn take_report(&mut self, namespace: &Namespace, report: Report, context: &mut Context<'_>) {
        let session = report.session;
        let Some(stored) = self.draft.namespaces.get(namespace) else { return };
        let Some(runtime) = self.runtimes.get_mut(namespace) else { return };
        let hold = runtime.holds.longest;
        let Some(conversation) = runtime.conversations.open.get_mut(&session) else { return };
        conversation.answered(context.now);
        runtime.conversations.replies.insert(session);
        let is_renewal = conversation.is_renewed_by(&report);
        let (mut not_granted, mut not_its) = (false, false);
        if !is_renewal {
            let leases = || stored.table.of_session(session).map(|(range, entry)| (range, entry.numbers()));
            debug_assert!(any_injected() || conversation.offers.are_of(&leases().collect()));
            not_granted = conversation.offers.note_report(&report, leases());
            not_its = releases_of_others(&report, conversation.report.as_deref(), leases());
        }
        let known = stored.sessions.get(&session);
        let info_differs = known.is_none_or(|info| {
            info.weight != report.weight || info.drain_requested != report.draining || report.leaving
        });
        let calls_for_more = info_differs || (!is_renewal && takes_up_merge(&report, stored));
        let seq = report.seq;
        runtime.conversations.emptying.remove(&session);
        if report.draining {
            runtime.conversations.emptying.insert(session);
        }
        // State that is between two Owners waits for what either says.
        let spoke = runtime.conversations.movers.remove(&session);
        let speaks = self.floor.is_some() && moves(&report).next().is_some();
        if speaks {
            runtime.conversations.movers.insert(session);
        }
        let waits = runtime.rebuild.is_some() || !runtime.awaited.is_empty();
        let has_copies = waits && !report.imports.is_empty();
        runtime.dirty |= spoke || speaks || has_copies;
        conversation.note_report(report, context.now, hold);
        // A recall's time begins when its holder knows of it.
        runtime.dirty |= runtime.recalls.unheard;
        let claims = not_granted && runtime.rebuild.is_some();
        let differs = || differs(stored, session, conversation, &runtime.recalls.withdrawn);
        conversation.undecided = calls_for_more || claims || (!is_renewal && differs());
        if conversation.undecided || injected(Bug::AbsenceFromAnySession) {
            conversation.undecided = true;
            runtime.conversations.undecided.insert(session);
            runtime.dirty = true;
        } else if let Some(in_flight) = &mut self.in_flight {
            // What it says may be in the draft and yet be lost with the batch under way.
            in_flight.decided.push(Decided {
                namespace: namespace.clone(),
                session,
                conversation: conversation.side.id,
                seq,
            });
        } else {
            conversation.side.applied = seq;
        }
        runtime.timers.clear(&RuntimeTimer::Resend(session));
        runtime.conversations.look_at_waiting();
        if not_granted && !claims {
            skip(context, session, MessageSkip::NotGranted);
        }
        if not_its {
            skip(context, session, MessageSkip::NotItsLease);
        }
    }

    /// Acts on what is due in a namespace.
    pub(super) fn on_runtime_timers(&mut self, namespace: &Namespace, context: &mut Context<'_>) {
        let (term, started) = (self.lead.term, self.has_started());
        while let Some(timer) =
            self.runtimes.get_mut(namespace).and_then(|runtime| runtime.timers.pop_due(context.now))
        {
            let Some(stored) = self.committed.namespaces.get(namespace) else { return };
            let draft = self.draft.namespaces.get(namespace);
            let is_member = |session: SessionId| {
                let mut both = draft.into_iter().chain([stored]);
                both.any(|stored| stored.sessions.contains_key(&session))
            };
            let Some(runtime) = self.runtimes.get_mut(namespace) else { return };
            match timer {
                RuntimeTimer::Hold(session) => {
                    // The hold may have been lengthened since the timer was set.
                    match runtime.holds.heard.get(&session) {
                        Some(heard) if context.now < heard + runtime.holds.longest => {
                            runtime.hear(session, heard)
                        }
                        _ if is_member(session) => runtime.dirty = true,
                        // It said something and never became a member.
                        _ => runtime.forget(session),
                    }
                }
                RuntimeTimer::Recall
                | RuntimeTimer::Calm
                | RuntimeTimer::Balance
                | RuntimeTimer::HoldSettled
                | RuntimeTimer::Suspects
                | RuntimeTimer::Quarantine => {
                    runtime.dirty = true;
                }
                // Whoever handles timers then tells what there is to tell.
                RuntimeTimer::Pushes => {}
                RuntimeTimer::Load => {
                    runtime.placement.load_due = true;
                    runtime.placement.merge_due = true;
                    runtime.dirty = true;
                    runtime.timers.set(RuntimeTimer::Load, context.now + load_interval(&stored.settings));
                }
                RuntimeTimer::Trim => runtime.dirty = true,
                RuntimeTimer::Heartbeat => {
                    runtime.timers.set(RuntimeTimer::Heartbeat, context.now + stored.settings.heartbeat);
                    if started {
                        let (interval, news) = (stored.settings.heartbeat, runtime.rebuild_news());
                        runtime.audience.heartbeat(namespace, term, interval, news, context);
                    }
                }
                RuntimeTimer::Resend(session) => {
                    if let Some(conversation) = runtime.conversations.open.get_mut(&session) {
                        conversation.side.on_silence();
                    }
                    runtime.conversations.answer(session);
                }
            }
        }
    }

    /// Sends what is due: replies at once, pushes when nothing is unanswered.
    pub(super) fn flush(&mut self, context: &mut Context<'_>) {
        // Whoever has yet to be heard would take an answer without its leases for their end.
        let diskless = context.config.diskless.is_some();
        let may_be_told = |conversation: &Conversation| {
            (!diskless || conversation.side.applied > Seq::ZERO)
                // The answer to a report that takes several batches comes with the last of them.
                && conversation.findings.is_empty()
                && conversation.next_finding.is_none()
        };
        let replies =
            self.sessions_to_tell(|runtime| &runtime.conversations.replies, may_be_told, usize::MAX);
        for (namespace, session) in replies {
            self.send(&namespace, session, context);
        }
        if self.pushes_from.is_some_and(|at| context.now < at) {
            return;
        }
        self.pushes_from = None;
        let limit = if injected(Bug::PushesWithoutLimit) { usize::MAX } else { MAX_PUSHED_ORDERS };
        let none = BTreeSet::new();
        let now = context.now;
        let pushes = self.sessions_to_tell(
            |runtime| if runtime.is_deciding_on(now) { &none } else { &runtime.conversations.pushes },
            |conversation| {
                may_be_told(conversation) && (!conversation.is_unanswered() || limit == usize::MAX)
            },
            limit,
        );
        let mut pushed = 0;
        for (namespace, session) in pushes {
            if pushed >= limit {
                // Before it goes on with these, the leader hears whoever has something to say.
                self.pushes_from = Some(context.now + PUSH_PAUSE);
                return;
            }
            self.send(&namespace, session, context);
            let runtime = self.runtimes.get(&namespace);
            let sent = runtime.and_then(|runtime| runtime.conversations.open.get(&session));
            pushed += 1 + sent.map_or(0, |conversation| conversation.last_sent.len());
        }
    }

    /// At most one more than `limit` of those sessions among the chosen ones that may be told something.
    fn sessions_to_tell<'a>(
        &'a self,
        chosen: impl Fn(&'a NamespaceRuntime) -> &'a BTreeSet<SessionId>,
        may_be_told: impl Fn(&Conversation) -> bool,
        limit: usize,
    ) -> Vec<(Namespace, SessionId)> {
        let mut sessions = Vec::new();
        for (namespace, runtime) in &self.runtimes {
            let open = &runtime.conversations.open;
            let told = chosen(runtime).iter().filter(|session| open.get(session).is_some_and(&may_be_told));
            let room = limit.saturating_add(1) - sessions.len();
            sessions.extend(told.take(room).map(|session| (namespace.clone(), *session)));
        }
        sessions
    }

    /// Sends a session the complete set of leases it should hold.
    pub(super) fn send(&mut self, namespace: &Namespace, session: SessionId, context: &mut Context<'_>) {
        let conversation =
            self.runtimes.get(namespace).and_then(|runtime| runtime.conversations.open.get(&session));
        let at_rest = conversation
            .filter(|conversation| conversation.at_rest)
            .map(|conversation| Arc::clone(&conversation.last_sent));
        let orders = at_rest.unwrap_or_else(|| self.orders(namespace, session).into());
        let void = self.void_copies(namespace, session);
        let repeat = self.to_repeat(namespace, session);
        let early = injected(Bug::DrainedWithItsWord);
        let is_heard = repeat.is_empty() || early;
        let drained = orders.is_empty() && is_heard && self.is_drained(namespace, session, &void);
        let Some(stored) = self.committed.namespaces.get(namespace) else { return };
        let Some(runtime) = self.runtimes.get_mut(namespace) else { return };
        let Some(conversation) = runtime.conversations.open.get_mut(&session) else { return };
        let is_grant = |order: &LeaseOrder| matches!(order.kind, OrderKind::Grant { .. });
        let unanswered = conversation.is_unanswered();
        let stops = conversation.stop_moves(&repeat, context.now);
        let wants_answer = unanswered
            || conversation.probed
            || stops
            || (!conversation.at_rest && (orders.iter().any(is_grant) || has_news(&orders, conversation)));
        // Whoever goes waits for the word that it has nothing left.
        let is_gone = |report: &Report| {
            (drained && !conversation.told_drained) || (report.leaving && orders.is_empty())
        };
        let limited = !injected(Bug::PushesWithoutLimit);
        if limited
            && !runtime.conversations.replies.contains(&session)
            && !wants_answer
            && !conversation.report.as_deref().is_some_and(is_gone)
        {
            // Nothing to do for the Owner: a message would only cross its next report.
            runtime.conversations.pushes.remove(&session);
            return;
        }
        let Some(seq) = conversation.side.seq.next() else {
            // The numbering is used up: the session has to open a new conversation.
            runtime.conversations.open.remove(&session);
            runtime.conversations.nothing_due(session);
            runtime.conversations.undecided.remove(&session);
            return skip(context, session, MessageSkip::CounterAtEnd);
        };
        if !conversation.at_rest && self.floor.is_none() && !any_injected() {
            conversation.note_rest(&orders);
        }
        for order in orders.iter().filter(|order| !conversation.at_rest && is_grant(order)) {
            conversation.offers.note_sent(order.range, order.generation, seq, context.now);
        }
        conversation.side.send(seq, context.now, wants_answer);
        conversation.probed = false;
        runtime.conversations.replies.remove(&session);
        runtime.conversations.pushes.remove(&session);
        conversation.told_drained = drained;
        conversation.note_orders(Arc::clone(&orders));
        let assign = Assign {
            namespace: namespace.clone(),
            session,
            conversation: conversation.side.id,
            term: self.lead.term,
            seq,
            heard: conversation.side.heard,
            applied: conversation.side.applied,
            lease: conversation.lease_to_tell(stored.settings.lease),
            renewal: stored.settings.renewal,
            orders,
            wants_answer,
            drain_waits: runtime.skips.iter().any(|skip| is_drain_of(skip, &conversation.offer.name)),
            drained,
            void,
            repeat,
            evicted: stored.sessions.get(&session).is_some_and(|info| info.evicted),
        };
        let peer = conversation.peer;
        if wants_answer {
            let pause = conversation.backoff(context.random, stored.settings.lease);
            runtime.timers.set(RuntimeTimer::Resend(session), context.now + pause);
        }
        if injected(Bug::HoldFromPush) {
            runtime.hear(session, context.now);
        }
        context.send_owner(peer, ManagerToOwner::Assign(assign));
    }

    /// The leases of a session that are committed and that the batch under way does not take from it.
    fn orders(&self, namespace: &Namespace, session: SessionId) -> Vec<LeaseOrder> {
        let early = injected(Bug::AnswerBeforeCommit);
        let told = if early { &self.draft } else { &self.committed };
        let (Some(told), Some(draft)) =
            (told.namespaces.get(namespace), self.draft.namespaces.get(namespace))
        else {
            return Vec::new();
        };
        let Some(runtime) = self.runtimes.get(namespace) else { return Vec::new() };
        let Some(conversation) = runtime.conversations.open.get(&session) else { return Vec::new() };
        let mut gone = RangeSet::new();
        if conversation.undecided || runtime.conversations.movers.contains(&session) {
            let findings = reconcile(draft, session, conversation, &runtime.recalls.withdrawn);
            gone = findings.iter().map(|finding| finding.range).collect();
        }
        let destination = |to: SessionId| {
            let info = told.sessions.get(&to)?;
            Some(Destination { session: to, name: info.name.clone(), url: info.url.clone() })
        };
        let warrant_of = |range| self.floor.and_then(|_| warrant(range, told, session)).map(Box::new);
        let mut orders = Vec::with_capacity(conversation.last_sent.len() + 1);
        let mut is_listed = conversation.offers.listed_in_order();
        let mut drafted = draft.table.of_session(session).peekable();
        for (range, entry) in told.table.of_session(session) {
            // The batch under way may be about to give it the number that its holder has taken.
            let is_under = |next: &Entry| match injected(Bug::SwitchedLeaseOmitted) {
                true => entry.generation == next.generation,
                false => entry.is_under(next.generation),
            };
            let kept = |next: &Entry| next.owner == entry.owner && is_under(next);
            let mut add = |part: KeyRange| {
                if is_listed(part, entry.numbers()) && !injected(Bug::AcceptedTwice) {
                    let order = renewal_of(part, entry, destination);
                    return orders.push(LeaseOrder { warrant: warrant_of(part), ..order });
                }
                orders.extend(
                    orders_of(part, entry, conversation, destination)
                        .map(|order| LeaseOrder { warrant: warrant_of(order.range), ..order }),
                );
            };
            // A lease that is no longer renewed, or that the session says it does not have, is not listed.
            let mut withdrawn = runtime.recalls.withdrawn_of(range, entry.generation).peekable();
            while drafted.next_if(|(next, _)| next.last() < range.first()).is_some() {}
            let is_kept =
                drafted.peek().is_some_and(|(next, entry)| next.contains_range(range) && kept(entry));
            if is_kept && (gone.is_empty() || !gone.overlaps(range)) && withdrawn.peek().is_none() {
                add(range);
                continue;
            }
            let parts = draft.table.overlapping(range).filter(|(_, next)| kept(next)).map(|(part, _)| part);
            let mut listed = RangeSet::from_ranges(parts).difference(&gone);
            withdrawn.for_each(|part| listed.remove(part));
            listed.iter().for_each(&mut add);
        }
        orders
    }

    pub(super) fn report(&self, namespace: &Namespace, session: SessionId) -> Option<&Report> {
        self.runtimes.get(namespace)?.conversations.report(session)
    }
}

impl NamespaceRuntime {
    /// Why a report cannot take up the offer that it names, if it cannot.
    fn objection_to_first(&self, report: &Report) -> Option<MessageSkip> {
        self.conversations.offers.get(&report.session).filter(|offer| offer.id == report.conversation)?;
        objection(report, Seq::ZERO, Seq::ZERO)
    }

    /// Finds the report's conversation, or opens the one it takes up; says whether there is one.
    fn take_up_offer(&mut self, from: StreamId, report: &Report, context: &Context<'_>) -> bool {
        let conversation = self.conversations.open.get(&report.session);
        if conversation.is_some_and(|conversation| conversation.side.id == report.conversation) {
            return true;
        }
        if self.conversations.offers.get(&report.session).is_some_and(|offer| offer.id == report.conversation)
        {
            if let Some(offer) = self.conversations.offers.remove(&report.session) {
                let opened = Conversation::open(offer, from, conversation, context.now);
                self.conversations.open.insert(report.session, opened);
                self.conversations.nothing_due(report.session);
                self.conversations.undecided.remove(&report.session);
                self.dirty |= self.placement.waits_for_conversation;
            }
            return true;
        }
        conversation.is_some() && injected(Bug::NonceNotChecked)
    }
}

/// The order for a piece of an entry that the session has listed.
fn renewal_of(
    range: KeyRange,
    entry: &Entry,
    destination: impl Fn(SessionId) -> Option<Destination>,
) -> LeaseOrder {
    let Entry { generation, state_since, merge, .. } = *entry;
    let recall = entry.recall.map(|recall| RecallOrder { to: recall.to.and_then(destination) });
    let merge = merge.filter(|_| recall.is_none() || !injected(Bug::RecallOmitsMerge));
    LeaseOrder { range, generation, state_since, kind: OrderKind::Renewal, merge, recall, warrant: None }
}

/// The orders for a piece of an entry: renewals of what the session has listed, and offers of the rest.
fn orders_of(
    range: KeyRange,
    entry: &Entry,
    conversation: &Conversation,
    destination: impl Fn(SessionId) -> Option<Destination>,
) -> impl Iterator<Item = LeaseOrder> {
    let Entry { generation, source, .. } = *entry;
    let order = renewal_of(range, entry, destination);
    let mut listed = conversation.offers.listed(range, entry.numbers());
    if injected(Bug::AcceptedTwice) {
        let held = conversation.report.as_deref().into_iter().flat_map(|report| &report.held);
        let held = held.filter(|held| held.generation == generation).map(|held| held.range);
        listed = listed.intersection(&held.collect());
    }
    // State that has just arrived is not wanted back before its new owner is seen to have it.
    let recall = order.recall.clone().filter(|_| source.is_none());
    let offer = LeaseOrder { kind: OrderKind::Grant { source }, merge: None, recall, ..order.clone() };
    let offers = RangeSet::from_ranges([range]).difference(&listed);
    let mut pieces: Vec<LeaseOrder> =
        listed.iter().map(|range| LeaseOrder { range, ..order.clone() }).collect();
    pieces.extend(offers.iter().map(|range| LeaseOrder { range, ..offer.clone() }));
    pieces.sort_by_key(|order| order.range.first());
    pieces.into_iter()
}

/// Whether a report gives up something that its session does not have, and did not say so before.
fn releases_of_others(
    report: &Report,
    before: Option<&Report>,
    leases: impl Iterator<Item = (KeyRange, LeaseNumbers)>,
) -> bool {
    if report.released.is_empty() {
        return false;
    }
    let numbers = |(range, numbers): (KeyRange, LeaseNumbers)| {
        let LeaseNumbers { generation, merge } = numbers;
        [Some(generation), merge]
            .into_iter()
            .flatten()
            .map(move |number| (number, range.last(), range.first()))
    };
    let mut leases: Vec<(Generation, Key, Key)> = leases.flat_map(numbers).collect();
    leases.sort_unstable();
    let is_its = |release: &Release| {
        // Leases do not overlap: the first that ends behind the release's first key decides.
        let from = (release.generation, release.range.first(), Key::MIN);
        let next = leases.get(leases.partition_point(|lease| *lease < from));
        next.is_some_and(|(of, _, first)| *of == release.generation && *first <= release.range.last())
    };
    // A release is said again until its sender hears that it was applied, and by one with a warrant to the next leader too.
    let said = before.map_or(&[][..], |before| &before.released);
    let mut others = report.released.iter().filter(|release| release.warrant.is_none() && !is_its(release));
    match others.next() {
        None => false,
        // Reports repeat their releases in the same order, mostly.
        Some(_) if *said == *report.released => false,
        Some(first) => {
            let said: BTreeSet<&Release> = said.iter().collect();
            !said.contains(first) || others.any(|release| !said.contains(release))
        }
    }
}

/// Whether an Owner's drain waits because nobody can take its ranges.
fn is_drain_of(skip: &Skip, name: &OwnerName) -> bool {
    matches!(skip, Skip::DrainWaits { owner, .. } if owner == name)
}

/// Whether the Owner has something to do that it was not told before: give a lease back, keep it after all, or drop it.
fn has_news(orders: &[LeaseOrder], conversation: &Conversation) -> bool {
    let told = |order: &LeaseOrder| {
        let mut same = around(&conversation.last_sent, order.range)
            .filter(|told| told.is_of(order.generation))
            .peekable();
        (order.recall.is_none() || same.peek().is_some()) && same.all(|told| told.recall == order.recall)
    };
    let keys = |orders: &[LeaseOrder], held: &HeldLease| {
        let same = around(orders, held.range).filter(|order| order.is_of(held.generation));
        RangeSet::from_ranges(same.filter_map(|order| order.range.intersection(held.range)))
    };
    let listed_whole = |held: &HeldLease| {
        let mut same = around(orders, held.range);
        same.next()
            .is_some_and(|order| order.is_of(held.generation) && order.range.contains_range(held.range))
    };
    let kept = |held: &HeldLease| {
        listed_whole(held) || keys(&conversation.last_sent, held).difference(&keys(orders, held)).is_empty()
    };
    // Most orders are at the place where they were.
    let is_in_place = |(place, order): (usize, &LeaseOrder)| {
        conversation.last_sent.get(place).is_some_and(|same| {
            same.range == order.range && same.generation == order.generation && same.recall == order.recall
        }) || told(order)
    };
    !orders.iter().enumerate().all(is_in_place)
        || !conversation.report.as_deref().into_iter().flat_map(|report| &report.held).all(kept)
}

fn skip(context: &mut Context<'_>, session: SessionId, why: MessageSkip) {
    count(context, why);
    context.push(ManagerAction::Skip(Skip::Message { session, why }));
}
