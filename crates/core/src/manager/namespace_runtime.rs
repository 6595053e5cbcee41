//! What a leader knows of a namespace besides what is stored: who was heard when, and who listens.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::id::SessionId;
use crate::injected_bug::{Bug, injected};
use crate::key::KeyRange;
use crate::manager_state::NamespaceState;
use crate::range_set::RangeSet;
use crate::time::Instant;
use crate::timers::Timers;

use super::Context;
use super::assign::Placement;
use super::claim::Rebuild;
use super::conversations::Conversations;
use super::event::Skip;
use super::holds::Holds;
use super::lookups::Audience;
use super::recalls::Recalls;
use super::suspects::Suspects;
use super::trimming::load_interval;

/// How long a message that nobody asked for may wait for the end of a decision.
const MAX_PUSH_DELAY: Duration = Duration::from_millis(250);

/// The volatile side of a namespace. All of it can be lost: a new leader builds it anew from the store and from what
/// sessions say.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct NamespaceRuntime {
    pub(super) conversations: Conversations,
    pub(super) holds: Holds,
    pub(super) placement: Placement,
    pub(super) recalls: Recalls,
    pub(super) audience: Audience,
    pub(super) suspects: Suspects,
    /// When this leader first knew of each quarantine.
    pub(super) quarantined_since: BTreeMap<KeyRange, Instant>,
    /// While a leader that has no store learns the table: until when claims count, and what nobody has claimed so far.
    pub(super) rebuild: Option<Rebuild>,
    /// Keys that nobody claimed in time, and whose state may be with a member that has yet to say so.
    pub(super) awaited: RangeSet,
    pub(super) timers: Timers<RuntimeTimer>,
    /// Something happened that may call for a decision.
    pub(super) dirty: bool,
    /// Since when one decision has filled batch after batch.
    pub(super) unfinished_since: Option<Instant>,
    /// What was not done at the last decision.
    pub(super) skips: Vec<Skip>,
}

/// What a namespace waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum RuntimeTimer {
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
    /// A decision about load goes on.
    Trim,
    /// Subscribed Lookups hear that the leader lives.
    Heartbeat,
    /// No lease of an earlier, longer hold can still run.
    HoldSettled,
    /// A suspect may have been outlived.
    Suspects,
    /// A quarantine is over.
    Quarantine,
    /// What a decision that takes long has decided so far is told.
    Pushes,
}

impl NamespaceRuntime {
    /// A namespace that begins under this leader.
    pub(super) fn new(stored: &NamespaceState, now: Instant) -> NamespaceRuntime {
        let mut timers = Timers::default();
        timers.set(RuntimeTimer::Heartbeat, now + stored.settings.heartbeat);
        timers.set(RuntimeTimer::Load, now + load_interval(&stored.settings));
        NamespaceRuntime {
            conversations: Conversations::default(),
            holds: Holds::new(stored, now),
            placement: Placement::new(now),
            recalls: Recalls::default(),
            audience: Audience::new(stored),
            suspects: Suspects::default(),
            quarantined_since: BTreeMap::new(),
            rebuild: None,
            awaited: RangeSet::new(),
            timers,
            dirty: true,
            unfinished_since: None,
            skips: Vec::new(),
        }
    }

    /// A namespace that an earlier leader left: every stored lease is taken as if renewed at the last instant that
    /// leader could act.
    pub(super) fn taken_over(
        stored: &NamespaceState,
        silent_from: Instant,
        context: &Context<'_>,
    ) -> NamespaceRuntime {
        let mut runtime = NamespaceRuntime::new(stored, context.now);
        runtime.holds.follow(stored);
        if injected(Bug::StandbyUsesOwnTimes) {
            runtime.holds.longest /= 2;
        }
        runtime.holds.silent_from = silent_from;
        runtime.placement.balance_from = silent_from + runtime.holds.longest;
        runtime.timers.set(RuntimeTimer::Balance, runtime.placement.balance_from);
        for session in stored.sessions.keys() {
            runtime.holds.joined.insert(*session, context.now);
            let forget = injected(Bug::LeaderForgetsHolds);
            runtime.hear(*session, if forget { Instant::ZERO } else { silent_from });
        }
        if stored.longest_hold > stored.hold() {
            runtime.settle_hold_at(silent_from + stored.longest_hold);
        }
        runtime
    }

    /// Keeps a session's leases from others for the hold from `at`.
    pub(super) fn hear(&mut self, session: SessionId, at: Instant) {
        self.holds.heard.set(session, at);
        self.timers.set(RuntimeTimer::Hold(session), at + self.holds.longest);
    }

    /// A decision was made, as far as its batch had room.
    pub(super) fn decided(&mut self, is_unfinished: bool, now: Instant) {
        self.unfinished_since = is_unfinished.then(|| self.unfinished_since.unwrap_or(now));
        match self.unfinished_since.map(|since| since + MAX_PUSH_DELAY).filter(|at| *at > now) {
            Some(at) => self.timers.set(RuntimeTimer::Pushes, at),
            None => self.timers.clear(&RuntimeTimer::Pushes),
        }
    }

    /// Whether a decision that did not fit into one batch goes on: what it means for a session is told in one message at its
    /// end, unless it takes long.
    pub(super) fn is_deciding_on(&self, now: Instant) -> bool {
        self.unfinished_since.is_some_and(|since| now < since + MAX_PUSH_DELAY)
    }

    pub(super) fn settle_hold_at(&mut self, at: Instant) {
        self.holds.settles_at = Some(at);
        self.timers.set(RuntimeTimer::HoldSettled, at);
    }

    /// Forgets a session that is over.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.conversations.forget(session);
        self.holds.forget(session);
        self.timers.clear(&RuntimeTimer::Hold(session));
        self.timers.clear(&RuntimeTimer::Resend(session));
    }
}
