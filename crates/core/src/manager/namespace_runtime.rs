//! What a leader knows of a namespace besides what is stored: who was heard when, and who listens.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::change_log::ChangeLog;
use crate::id::{Generation, Nonce, OwnerName, Seq, SessionId, Url};
use crate::injected_bug::{Bug, injected};
use crate::key::KeyRange;
use crate::load::LoadMemory;
use crate::manager_state::NamespaceState;
use crate::message::LeaseOrder;
use crate::range_map::RangeMap;
use crate::range_set::RangeSet;
use crate::record::Change;
use crate::table::{Entry, Recall, Table};
use crate::time::Instant;
use crate::timers::Timers;

use super::Context;
use super::claim::Rebuild;
use super::conversation::{Conversation, around};
use super::desired::Desired;
use super::event::Skip;
use super::lookups::{LatestSnapshot, Subscriber};

/// The volatile side of a namespace. All of it can be lost: a new leader builds it anew from the store and from what
/// sessions say.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct NamespaceRuntime {
    /// The conversations, by session.
    pub(super) talks: BTreeMap<SessionId, Conversation>,
    /// The sessions whose conversations have something to be sent, now or once an answer is there.
    pub(super) due: BTreeSet<SessionId>,
    /// The sessions whose latest report calls for a decision.
    pub(super) undecided: BTreeSet<SessionId>,
    /// Members may be others than at the last decision.
    pub(super) members_changed: bool,
    /// The members that operators evicted.
    pub(super) evicted: Vec<SessionId>,
    /// Welcomes that nobody has taken up yet.
    pub(super) offers: BTreeMap<SessionId, Offer>,
    /// When each session was last heard from: its leases are kept from others for `hold` from there.
    pub(super) heard: Timers<SessionId>,
    /// The longest hold that any lease may have been promised, as committed.
    pub(super) hold: Duration,
    /// When each session had joined at the latest.
    pub(super) joined: BTreeMap<SessionId, Instant>,
    /// Until then an earlier leader may have promised leases, under the settings that it knew.
    pub(super) silent_from: Instant,
    /// No range is moved before this: stored sessions count as live until they had the time to speak.
    pub(super) balance_from: Instant,
    /// While a leader that has no store learns the table: until when claims count, and what nobody has claimed so far.
    pub(super) rebuild: Option<Rebuild>,
    /// The Lookups that want to hear of changes.
    pub(super) subscribers: BTreeMap<Nonce, Subscriber>,
    pub(super) log: ChangeLog,
    pub(super) snapshot: LatestSnapshot,
    pub(super) timers: Timers<LiveTimer>,
    /// The load policy is to be asked at the next decision.
    pub(super) load_due: bool,
    /// Neighbours are to be joined at the next decision.
    pub(super) merge_due: bool,
    /// Something happened that may call for a decision.
    pub(super) dirty: bool,
    /// At the last decision something waited for a session to open its conversation.
    pub(super) waits_for_talk: bool,
    /// Since when there have been fewer Owners than wanted.
    pub(super) short_since: Option<Instant>,
    /// Until when each recall may take, key by key: neighbours that were recalled at different times may look like one entry.
    pub(super) recall_deadlines: RangeMap<RecallDeadline>,
    /// Some recall has no deadline yet, because its holder has not said that it knows of it, or is past it, and its
    /// destination has not been heard since.
    pub(super) recalls_unheard: bool,
    /// Some recall has no deadline yet, because its lease has not arrived at its holder.
    pub(super) recalls_unwatched: bool,
    /// Some recall may be wanted no more, or towards somebody else.
    pub(super) review_recalls: bool,
    /// Recalled leases that are no longer renewed.
    pub(super) withdrawn: RangeMap<Generation>,
    /// Where each key is wanted, and which keys are elsewhere.
    pub(super) desired: Option<Desired>,
    pub(super) load_memory: LoadMemory,
    /// Since when a longer hold of earlier settings has been running out.
    pub(super) hold_settles_at: Option<Instant>,
    /// What was not done at the last decision.
    pub(super) skips: Vec<Skip>,
    /// Sessions whose latest report wants them emptied: they wait for the word that they are.
    pub(super) emptying: BTreeSet<SessionId>,
    /// Sessions whose latest report says, for the next leader too, that they moved state.
    pub(super) movers: BTreeSet<SessionId>,
}

/// Until when a recall may take. One of another lease or to somebody else is another recall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RecallDeadline {
    pub(super) generation: Generation,
    pub(super) to: Option<SessionId>,
    pub(super) at: Instant,
}

impl RecallDeadline {
    /// Whether this is the deadline of an entry's recall.
    pub(super) fn is_of(&self, entry: &Entry, recall: Recall) -> bool {
        self.generation == entry.generation && self.to == recall.to
    }
}

/// A welcome that waits to be taken up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Offer {
    pub(super) id: Nonce,
    pub(super) name: OwnerName,
    pub(super) url: Url,
    pub(super) takes_over: bool,
    /// The session that the same process was before.
    pub(super) formerly: Option<SessionId>,
    /// Whoever takes it up was alive at this instant.
    pub(super) made_at: Instant,
}

/// What a namespace waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum LiveTimer {
    /// A session's hold runs out.
    Hold(SessionId),
    /// A session's unanswered message is sent again, or a race's backoff is over.
    Resend(SessionId),
    /// A recall or migration takes too long.
    Recall,
    /// The settle time is over.
    Calm,
    /// The takeover hold is over: ranges may move again.
    Balance,
    /// The load policy is asked, and neighbours are joined.
    Load,
    /// Subscribed Lookups hear that the leader lives.
    Heartbeat,
    /// No lease of an earlier, longer hold can still run.
    HoldSettled,
}

impl NamespaceRuntime {
    /// A namespace that begins under this leader.
    pub(super) fn new(stored: &NamespaceState, now: Instant) -> NamespaceRuntime {
        let mut timers = Timers::default();
        timers.set(LiveTimer::Heartbeat, now + stored.settings.heartbeat);
        timers.set(LiveTimer::Load, now + stored.settings.load_interval);
        NamespaceRuntime {
            talks: BTreeMap::new(),
            due: BTreeSet::new(),
            undecided: BTreeSet::new(),
            members_changed: true,
            evicted: Vec::new(),
            offers: BTreeMap::new(),
            heard: Timers::default(),
            joined: BTreeMap::new(),
            hold: stored.longest_hold,
            silent_from: now,
            balance_from: now,
            rebuild: None,
            subscribers: BTreeMap::new(),
            log: ChangeLog::new(stored.log, stored.lsn),
            snapshot: LatestSnapshot::default(),
            timers,
            load_due: false,
            merge_due: false,
            dirty: true,
            waits_for_talk: false,
            short_since: None,
            recall_deadlines: RangeMap::new(),
            recalls_unheard: false,
            recalls_unwatched: false,
            review_recalls: true,
            withdrawn: RangeMap::new(),
            desired: None,
            load_memory: LoadMemory::default(),
            hold_settles_at: None,
            skips: Vec::new(),
            emptying: BTreeSet::new(),
            movers: BTreeSet::new(),
        }
    }

    /// A namespace that an earlier leader left: every stored lease is taken as if renewed at the last instant that
    /// leader could act.
    pub(super) fn taken_over(
        stored: &NamespaceState,
        silent_from: Instant,
        context: &Context<'_>,
    ) -> NamespaceRuntime {
        let mut live = NamespaceRuntime::new(stored, context.now);
        live.follow_hold(stored);
        if injected(Bug::StandbyUsesOwnTimes) {
            live.hold /= 2;
        }
        live.silent_from = silent_from;
        live.balance_from = silent_from + live.hold;
        live.timers.set(LiveTimer::Balance, live.balance_from);
        for session in stored.sessions.keys() {
            live.joined.insert(*session, context.now);
            let forget = injected(Bug::LeaderForgetsHolds);
            live.hear(*session, if forget { Instant::ZERO } else { silent_from });
        }
        if stored.longest_hold > stored.settings.hold {
            live.settle_hold_at(silent_from + stored.longest_hold);
        }
        live
    }

    /// Keeps a session's leases from others for the hold from `at`.
    pub(super) fn hear(&mut self, session: SessionId, at: Instant) {
        self.heard.set(session, at);
        self.timers.set(LiveTimer::Hold(session), at + self.hold);
    }

    /// Uses the hold that the stored settings, and those before them, promise. A longer one counts for leases that
    /// are already out, because the next message may lengthen them.
    pub(super) fn follow_hold(&mut self, stored: &NamespaceState) {
        self.hold = stored.longest_hold;
        if injected(Bug::NoDriftAllowance) {
            self.hold = stored.settings.lease;
        }
        if injected(Bug::ShortenedAtOnce) {
            self.hold = stored.settings.hold;
        }
    }

    pub(super) fn settle_hold_at(&mut self, at: Instant) {
        self.hold_settles_at = Some(at);
        self.timers.set(LiveTimer::HoldSettled, at);
    }

    /// Whether a session's hold has run out.
    pub(super) fn hold_is_over(&self, session: SessionId, now: Instant) -> bool {
        self.heard.get(&session).is_some_and(|heard| now >= heard + self.hold)
    }

    /// The sessions whose hold has run out.
    pub(super) fn silent(&self, now: Instant) -> BTreeSet<SessionId> {
        let over = self.heard.iter().take_while(|(heard, _)| now >= *heard + self.hold);
        over.map(|(_, session)| *session).collect()
    }

    /// Whether the word of a process that is `age` old and was alive at `alive_at` covers a session: it speaks of
    /// processes that were there before it, and of no later one.
    pub(super) fn is_covered(&self, session: SessionId, alive_at: Instant, age: Duration) -> bool {
        self.joined.get(&session).is_some_and(|joined| *joined + age <= alive_at)
    }

    /// The pieces of a lease on `range` that are no longer renewed.
    pub(super) fn withdrawn_of(
        &self,
        range: KeyRange,
        generation: Generation,
    ) -> impl Iterator<Item = KeyRange> {
        let any_lease = injected(Bug::WithdrawnForAnyLease);
        let withdrawn = self.withdrawn.overlapping(range);
        withdrawn.filter(move |(_, of)| any_lease || **of == generation).map(|(piece, _)| piece)
    }

    /// The keys of a range whose holder has said that it knows where they should go. It may know of some before it knows of
    /// the others, which are one piece of the table all the same.
    pub(super) fn known_to_go(&self, owner: SessionId, range: KeyRange, to: SessionId) -> RangeSet {
        let has_applied =
            |talk: &&Conversation| talk.report.as_deref().is_some_and(|report| report.applied == talk.seq);
        let Some(talk) = self.talks.get(&owner).filter(has_applied) else { return RangeSet::new() };
        let names = |order: &&LeaseOrder| {
            let destination = order.recall.as_ref().and_then(|recall| recall.to.as_ref());
            destination.is_some_and(|destination| destination.session == to)
        };
        around(&talk.last_sent, range)
            .filter(names)
            .filter_map(|order| order.range.intersection(range))
            .collect()
    }

    /// Whether state was moved with a lease that its session has not been seen to hold yet.
    pub(super) fn is_on_its_way(&self, range: KeyRange, entry: &Entry) -> bool {
        let talk = entry.owner.and_then(|owner| self.talks.get(&owner));
        let listed = || talk.is_some_and(|talk| talk.offers.listed(range, entry.numbers()).overlaps(range));
        entry.source.is_some() && !listed()
    }

    /// What is remembered of the offers of a lease ends with it; `table` does not have the change yet.
    pub(super) fn follow_leases(&mut self, change: &Change, table: &Table) {
        match change {
            Change::Granted { range, .. }
            | Change::Claimed { range, .. }
            | Change::Released { range, .. } => {
                for (piece, entry) in table.overlapping(*range) {
                    if let Some(talk) = entry.owner.and_then(|owner| self.talks.get_mut(&owner)) {
                        talk.offers.forget(piece);
                    }
                }
            }
            Change::Merged { range, generation } => {
                for (piece, entry) in table.overlapping(*range) {
                    if let Some(talk) = entry.owner.and_then(|owner| self.talks.get_mut(&owner)) {
                        talk.offers.forget_all_but(piece, *generation);
                    }
                }
            }
            _ => {}
        }
    }

    /// Sessions that wait to be told that they are emptied, or that what they moved has arrived, may be told so now.
    pub(super) fn look_at_waiting(&mut self) {
        for session in self.emptying.union(&self.movers) {
            if let Some(talk) = self.talks.get_mut(session) {
                talk.push_due = true;
                self.due.insert(*session);
            }
        }
    }

    /// Something about a session's leases is about to change: its next report is looked at in full.
    pub(super) fn disturb(&mut self, session: SessionId) {
        if let Some(talk) = self.talks.get_mut(&session) {
            talk.at_rest = false;
        }
    }

    /// Whether a session that goes on was sent something after this message.
    pub(super) fn was_told(&self, session: SessionId, after: Seq) -> bool {
        let talk = self.talks.get(&session);
        // Whoever goes waits for the word that it has nothing left.
        let goes = |talk: &Conversation| {
            talk.report.as_deref().is_none_or(|report| report.draining || report.leaving)
        };
        talk.is_some_and(|talk| talk.seq > after && !goes(talk))
    }

    /// What a session should hold has changed since it was last told.
    pub(super) fn push(&mut self, session: SessionId) {
        if let Some(talk) = self.talks.get_mut(&session) {
            talk.push_due = true;
            talk.at_rest = false;
            self.due.insert(session);
        }
    }

    /// Forgets a session that is over.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.emptying.remove(&session);
        self.movers.remove(&session);
        self.talks.remove(&session);
        self.due.remove(&session);
        self.undecided.remove(&session);
        self.heard.clear(&session);
        self.joined.remove(&session);
        self.timers.clear(&LiveTimer::Hold(session));
        self.timers.clear(&LiveTimer::Resend(session));
    }
}
