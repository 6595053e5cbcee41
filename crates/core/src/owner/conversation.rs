//! The Owner's side of its conversation with the leader: numbering, races, resends, and the search for a leader.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::conversation::{ConversationSide, SHORTEST_BACKOFF, are_impossible};
use crate::id::{Credential, ManagerId, Nonce, Seq, SessionId, Term};
use crate::injected_bug::{Bug, injected};
use crate::key::Key;
use crate::message::{Assign, Hello, LeaseOrder, OwnerToManager, Report, Welcome};
use crate::namespace_kind::NamespaceKind;
use crate::time::Instant;

use super::{OwnerAction, OwnerMachine, RevokedReason, Timer};

/// The lease length assumed until a Manager says another; it only paces the first messages.
pub(super) const FIRST_LEASE: Duration = Duration::from_secs(40);
/// Hellos are this far apart at first, or two round trips; then up to eight times as far, and an eighth of the lease at most.
const HELLO_INTERVAL: Duration = Duration::from_millis(250);

/// A search that took longer says nothing about the round trip.
const LONGEST_SAMPLE: Duration = Duration::from_secs(3);

/// A conversation: one leader, one nonce of its, one numbering.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Conversation {
    pub(super) manager: ManagerId,
    pub(super) side: ConversationSide,
    /// When anything of this conversation was last heard: a leader that is heard is not silent, even in a race.
    heard_at: Instant,
    /// Something that was said since the welcome is committed.
    pub(super) is_joined: bool,
}

/// A search for a leader: one hello after another, to every Manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Search {
    /// The number of its first hello: welcomes of earlier ones are stale.
    first: u64,
    began: Instant,
    /// When the latest hello was sent.
    asked_at: Instant,
    tries: u32,
}

/// Things to be repeated in every report until the Manager has applied one that had them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pending<T> {
    items: Vec<(T, Option<Seq>)>,
    /// The same items, to be found.
    known: BTreeSet<T>,
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Pending { items: Vec::new(), known: BTreeSet::new() }
    }
}

impl<T: Clone + Ord> Pending<T> {
    /// Adds something unless it is pending already; says whether it was new.
    pub(super) fn add(&mut self, item: T) -> bool {
        let new = self.known.insert(item.clone());
        if new {
            self.items.push((item, None));
        }
        new
    }

    /// All of it, for the report numbered `seq`.
    fn report(&mut self, seq: Seq) -> Vec<T> {
        for (_, first) in &mut self.items {
            first.get_or_insert(seq);
        }
        self.items.iter().map(|(item, _)| item.clone()).collect()
    }

    /// Whether something is pending and was in a report that is applied.
    pub(super) fn is_settled(&self, applied: Seq) -> bool {
        self.items.first().is_some_and(|(_, first)| first.is_some_and(|first| first <= applied))
    }

    /// Forgets what was in a report that is applied.
    pub(super) fn settle(&mut self, applied: Seq) {
        self.settle_but(applied, |_| false);
    }

    /// Forgets what was in a report that is applied, but for what is kept.
    pub(super) fn settle_but(&mut self, applied: Seq, is_kept: impl Fn(&T) -> bool) {
        let known = &mut self.known;
        self.items.retain(|(item, first)| {
            let stays = first.is_none_or(|first| first > applied) || is_kept(item);
            if !stays {
                known.remove(item);
            }
            stays
        });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter().map(|(item, _)| item)
    }

    pub(super) fn update(&mut self, change: impl Fn(&mut T)) {
        self.items.iter_mut().for_each(|(item, _)| change(item));
        self.known = self.items.iter().map(|(item, _)| item.clone()).collect();
    }

    /// A new conversation numbers anew, and its Manager may know nothing of it.
    fn restart(&mut self) {
        for (_, first) in &mut self.items {
            *first = None;
        }
    }

    pub(super) fn clear(&mut self) {
        self.items.clear();
        self.known.clear();
    }

    fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

impl OwnerMachine {
    /// Begins to ask every Manager for a conversation, unless it does already (Centrifuge §2.1.1).
    pub(super) fn seek(&mut self, now: Instant, out: &mut Vec<OwnerAction>) {
        if self.seeking.is_none() {
            self.seeking =
                Some(Search { first: self.hello.saturating_add(1), began: now, asked_at: now, tries: 0 });
            self.say_hello(now, out);
        }
    }

    /// The leader's stream broke. All of its Owners see that at once, so that each waits for a moment of its own before it asks. A
    /// leader that ended the stream without a word is not asked again at once: it would only end the next.
    pub(super) fn on_disconnected(&mut self, now: Instant, from: &ManagerId) {
        let heard = |talk: &Conversation| talk.manager == *from && talk.side.heard > Seq::ZERO;
        if self.talk.as_ref().is_some_and(heard) && self.seeking.is_none() {
            let pause = self.random.between(Duration::ZERO, HELLO_INTERVAL);
            self.seeking = Some(Search {
                first: self.hello.saturating_add(1),
                began: now + pause,
                asked_at: now + pause,
                tries: 0,
            });
            self.timers.set(Timer::Hello, now + pause);
        }
    }

    /// No lease can be relied on, and no answer to what was said so far may count any more: a lease would count from a send that this clock cannot
    /// place. Nor may this process's word about an earlier one: how old that word is would not be known.
    ///
    /// The process may be an earlier state of itself, restored, and not know what it has held since. So it goes on as
    /// another session, which nothing was ever granted to, and keeps no copy that a grant to the first could ask for.
    pub(super) fn on_clock_jumped(&mut self, now: Instant, fresh: Credential, out: &mut Vec<OwnerAction>) {
        self.drop_all(RevokedReason::ClockJumped, out);
        self.config.takes_over_previous = false;
        if !injected(Bug::JumpKeepsSession) {
            self.change_session(now, fresh, out);
        }
        self.join_anew(now, out);
    }

    /// Another process speaks for the session too. It may hold the session's leases still, and they must run out: this process does not
    /// say which session it was.
    pub(super) fn on_cloned(&mut self, now: Instant, fresh: Credential, out: &mut Vec<OwnerAction>) {
        self.drop_all(RevokedReason::Cloned, out);
        self.config.takes_over_previous = false;
        self.change_session(now, fresh, out);
        self.formerly = None;
        self.join_anew(now, out);
    }

    fn drop_all(&mut self, why: RevokedReason, out: &mut Vec<OwnerAction>) {
        let dropped = self.leases.drop_all(why);
        self.revoked(dropped, out);
    }

    fn join_anew(&mut self, now: Instant, out: &mut Vec<OwnerAction>) {
        let talk = self.talk.take();
        self.given_up = talk.as_ref().map(|talk| (talk.side.id, talk.side.seq)).or(self.given_up);
        let has_begun = talk.is_some() | self.seeking.take().is_some();
        self.timers.clear(&Timer::Report);
        if has_begun {
            self.seek(now, out);
        }
    }

    fn change_session(&mut self, now: Instant, fresh: Credential, out: &mut Vec<OwnerAction>) {
        self.forget_what_was_said(out);
        let earlier = std::mem::replace(&mut self.session, fresh.session);
        self.secret = fresh.secret;
        // A session that no Manager took never had the name: the one before it may have it still.
        if std::mem::take(&mut self.is_member) || self.formerly.is_none() {
            self.formerly = Some(earlier);
        }
        self.started_at = now;
        out.push(OwnerAction::SessionChanged(self.session));
    }

    pub(super) fn on_hello_due(&mut self, now: Instant, out: &mut Vec<OwnerAction>) {
        if let Some(search) = &mut self.seeking {
            search.tries = search.tries.saturating_add(1);
            search.asked_at = now;
            self.say_hello(now, out);
        }
    }

    fn say_hello(&mut self, now: Instant, out: &mut Vec<OwnerAction>) {
        self.hello = self.hello.saturating_add(1);
        let hello = Hello {
            namespace: self.config.namespace.clone(),
            session: self.session,
            secret: self.secret,
            number: self.hello,
            name: self.config.name.clone(),
            url: self.config.url.clone(),
            takes_over_previous: self.config.takes_over_previous,
            formerly: self.formerly,
            age: now.since(self.started_at),
            term: if injected(Bug::TermNotChecked) { Term::ZERO } else { self.term },
            expects: self.config.expects,
        };
        for to in self.config.managers.iter() {
            let message = OwnerToManager::Hello(hello.clone());
            out.push(OwnerAction::ToManager { to: to.clone(), message });
        }
        let tries = self.seeking.map_or(0, |search| search.tries.min(3));
        let wanted = HELLO_INTERVAL.max(self.round_trip.estimate() * 2) * 2u32.pow(tries);
        // However long messages take, a lease must not run out between two hellos.
        let pause = self.random.around(wanted.min(self.lease / 8));
        self.timers.set(Timer::Hello, now + pause);
    }

    pub(super) fn on_managers_changed(
        &mut self,
        now: Instant,
        managers: Arc<[ManagerId]>,
        out: &mut Vec<OwnerAction>,
    ) {
        self.config.managers = managers;
        if self.seeking.is_some() {
            self.say_hello(now, out);
        }
    }

    /// Whether an answer to the hello of that number is awaited.
    pub(super) fn awaits(&self, session: SessionId, number: u64) -> bool {
        let current = |search: Search| search.first <= number && number <= self.hello;
        session == self.session && self.seeking.is_some_and(current)
    }

    /// A welcome counts only in answer to a hello of the search under way.
    pub(super) fn on_welcome(
        &mut self,
        now: Instant,
        from: ManagerId,
        welcome: &Welcome,
        out: &mut Vec<OwnerAction>,
    ) {
        let awaited = self.awaits(welcome.session, welcome.number);
        if !awaited || welcome.namespace != self.config.namespace {
            self.counters.foreign += 1;
            return;
        }
        if welcome.term < self.term && !injected(Bug::TermNotChecked) {
            self.counters.stale_terms += 1;
            return;
        }
        self.term = welcome.term;
        if let Some(mismatch) = welcome.kind.mismatch(self.config.expects) {
            // The Manager should have refused. It may be of a version that knows of no kinds.
            return self.on_locked_out(mismatch.into(), out);
        }
        self.learn_kind(&welcome.kind, out);
        if let Some(search) = self.seeking.take() {
            // When the latest hello was sent is known; an earlier one was sent with the first of the search at the earliest. A
            // welcome waits for no commit, as the answer to a report does: so that it raises the estimate and does not lower it.
            let is_latest = welcome.number == self.hello;
            let sample = now.since(if is_latest { search.asked_at } else { search.began });
            if sample <= LONGEST_SAMPLE {
                self.round_trip.at_least(sample);
            }
        }
        self.timers.clear(&Timer::Hello);
        self.open(now, from, welcome.conversation);
        self.report(now, out);
    }

    /// The kind of a namespace never changes. If another one has its name now, nothing of what is held or kept is of use in it: a key would mean
    /// something else.
    fn learn_kind(&mut self, kind: &NamespaceKind, out: &mut Vec<OwnerAction>) {
        if self.kind.as_ref().is_some_and(|known| known != kind) {
            self.drop_all(RevokedReason::NamespaceReplaced, out);
            self.forget_what_was_said(out);
        }
        self.kind = Some(kind.clone());
    }

    /// Forgets the copies that it has, and what reports have yet to say of leases that are over.
    fn forget_what_was_said(&mut self, out: &mut Vec<OwnerAction>) {
        let discarded = self.leases.drop_imports();
        out.extend(discarded.into_iter().map(|range| OwnerAction::DiscardImport { range }));
        self.released.clear();
        self.refused.clear();
    }

    /// A conversation may be offered again, when a report of it is already under way. It is never numbered twice: the answer to
    /// the first report of a number would be taken for that of the second, and leases be counted from when that was sent.
    fn open(&mut self, now: Instant, manager: ManagerId, id: Nonce) {
        if let Some(talk) = self.talk.as_mut().filter(|talk| talk.side.id == id) {
            talk.is_joined = false;
            return;
        }
        let seq = self.given_up.filter(|(known, _)| *known == id).map_or(Seq::ZERO, |(_, seq)| seq);
        let side = ConversationSide::new(id, seq, now);
        self.talk = Some(Conversation { manager, side, heard_at: now, is_joined: false });
        self.released.restart();
        self.refused.restart();
        self.draining.restart();
        self.leaving.restart();
    }

    /// Says whether a message belongs to the conversation, is new, and acknowledges the latest report. A message that
    /// crossed the latest report is remembered as heard and answered after a backoff (Centrifuge §2.3.2).
    pub(super) fn takes(&mut self, now: Instant, assign: &Assign) -> bool {
        let nonce_matters = !injected(Bug::NonceNotChecked);
        let Some(talk) = &mut self.talk else {
            self.counters.foreign += 1;
            return false;
        };
        let ours = assign.session == self.session && assign.conversation == talk.side.id;
        if assign.namespace != self.config.namespace || (!ours && nonce_matters) {
            self.counters.foreign += 1;
            return false;
        }
        if assign.term < self.term && !injected(Bug::TermNotChecked) {
            self.counters.stale_terms += 1;
            return false;
        }
        if are_impossible(talk.side.seq, assign.heard, assign.applied) || !in_order(&assign.orders) {
            self.counters.malformed += 1;
            return false;
        }
        let is_straggler = assign.seq <= talk.side.heard;
        if is_straggler && !injected(Bug::SeqNotChecked) {
            self.counters.duplicates += 1;
            return false;
        }
        talk.side.heard = talk.side.heard.max(assign.seq);
        talk.heard_at = now;
        self.seeking = None;
        self.timers.clear(&Timer::Hello);
        // The injected bug takes stragglers as they are: that they crossed a report would give them away.
        if assign.heard < talk.side.seq && !is_straggler && !injected(Bug::RacingAssignAccepted) {
            self.counters.races += 1;
            talk.side.on_race(now, LONGEST_SAMPLE, &mut self.round_trip);
            let longest = self.longest_backoff();
            let pause = self.random.between(longest / 4, longest / 2);
            self.timers.set(Timer::Report, now + pause);
            return false;
        }
        talk.side.on_answer(now, &mut self.round_trip);
        true
    }

    /// After a message took effect: report at once if there is a reason, else at the next renewal.
    pub(super) fn answer(&mut self, now: Instant, wanted: bool, out: &mut Vec<OwnerAction>) {
        let Some(talk) = &self.talk else { return };
        if wanted && !self.news && self.transfers.are_quiescing() {
            // The answer can say what is given back if it waits until operations have ended, but not for long.
            self.timers.set(Timer::Report, now + self.round_trip.estimate().max(SHORTEST_BACKOFF));
        } else if wanted || self.news {
            self.report(now, out);
        } else {
            self.timers.set(Timer::Report, talk.side.sent_at + self.renewal);
        }
    }

    /// There is news: report at once, or as soon as the report under way is answered.
    pub(super) fn tell(&mut self, now: Instant, out: &mut Vec<OwnerAction>) {
        self.news = true;
        if self.talk.as_ref().is_some_and(|talk| !talk.side.awaits_answer) {
            self.report(now, out);
        }
    }

    /// The renewal is due, or the latest report was not answered in time, or a race's backoff is over.
    pub(super) fn on_report_due(&mut self, now: Instant, out: &mut Vec<OwnerAction>) {
        let Some(talk) = &mut self.talk else { return };
        if talk.side.awaits_answer {
            talk.side.on_silence();
            if now.since(talk.side.unanswered_since.max(talk.heard_at)) >= self.lease / 8 {
                self.seek(now, out);
            }
        }
        self.report(now, out);
    }

    fn report(&mut self, now: Instant, out: &mut Vec<OwnerAction>) {
        self.expire(now, out);
        let Some(talk) = &mut self.talk else { return };
        let Some(seq) = talk.side.seq.next() else {
            // The numbering is used up: only a new conversation can number on.
            self.talk = None;
            return self.seek(now, out);
        };
        talk.side.send(seq, now, true);
        self.news = false;
        let report = Report {
            namespace: self.config.namespace.clone(),
            session: self.session,
            conversation: talk.side.id,
            seq,
            heard: talk.side.heard,
            applied: talk.side.applied,
            age: now.since(self.started_at),
            held: self.leases.report(),
            released: self.released.report(seq),
            refused: self.refused.report(seq),
            imports: self.leases.imports(),
            loads: self.load.loads.clone(),
            load_span: self.load.span,
            load_dimension: self.config.load_dimension.clone(),
            weight: self.config.weight,
            draining: !self.draining.report(seq).is_empty(),
            leaving: !self.leaving.report(seq).is_empty(),
        };
        let to = talk.manager.clone();
        out.push(OwnerAction::ToManager { to, message: OwnerToManager::Report(report) });
        let longest = self.longest_backoff();
        // A report that leaves before the answer to the last one can have come would cross it.
        let pause = self.random.around(longest).max(self.round_trip.estimate() * 9 / 8);
        self.timers.set(Timer::Report, now + pause.min(self.lease / 4));
    }

    /// Stays below an eighth of the lease. After a race an Owner waits at most half as long and a Manager more than that, so that the
    /// Owner's word comes first and ends the race.
    fn longest_backoff(&self) -> Duration {
        let cap = self.lease / 8;
        self.talk.as_ref().map_or(cap, |talk| talk.side.longest_backoff(self.round_trip, cap))
    }

    /// Whether the Owner wants to leave or to be emptied.
    #[must_use]
    pub fn is_going(&self) -> bool {
        !self.draining.is_empty() || !self.leaving.is_empty()
    }
}

/// Whether orders are in key order and do not overlap.
fn in_order(orders: &[LeaseOrder]) -> bool {
    let mut before: Option<Key> = None;
    orders.iter().all(|order| {
        let fits = before.is_none_or(|last| last < order.range.first());
        before = Some(order.range.last());
        fits
    })
}
