//! Until when the leases of each session are kept from others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::id::SessionId;
use crate::injected_bug::{Bug, injected};
use crate::manager_state::NamespaceState;
use crate::time::Instant;
use crate::timers::Timers;

/// Until when the leases of each session are kept from others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Holds {
    /// When each session was last heard from: its leases are kept from others for the longest hold from there.
    pub(super) heard: Timers<SessionId>,
    /// The longest hold that any lease may have been promised, as committed.
    pub(super) longest: Duration,
    /// Since when a longer hold of earlier settings has been running out.
    pub(super) settles_at: Option<Instant>,
    /// When each session had joined at the latest.
    pub(super) joined: BTreeMap<SessionId, Instant>,
    /// Until then an earlier leader may have promised leases, under the settings that it knew.
    pub(super) silent_from: Instant,
}

impl Holds {
    /// The holds of a leader that has promised nothing before `now`.
    pub(super) fn new(stored: &NamespaceState, now: Instant) -> Holds {
        Holds {
            heard: Timers::default(),
            longest: stored.longest_hold,
            settles_at: None,
            joined: BTreeMap::new(),
            silent_from: now,
        }
    }

    /// Uses the hold that the stored settings, and those before them, promise. A longer one counts for leases that
    /// are already out, because the next message may lengthen them.
    pub(super) fn follow(&mut self, stored: &NamespaceState) {
        self.longest = stored.longest_hold;
        if injected(Bug::NoDriftAllowance) {
            self.longest = stored.settings.lease;
        }
        if injected(Bug::ExclusiveWithoutHold) {
            self.longest = stored.settings.silence();
        }
        if injected(Bug::ShortenedAtOnce) {
            self.longest = stored.hold();
        }
    }

    /// Whether a session's hold has run out.
    pub(super) fn is_over(&self, session: SessionId, now: Instant) -> bool {
        self.heard.get(&session).is_some_and(|heard| now >= heard + self.longest)
    }

    /// The sessions whose hold has run out.
    pub(super) fn silent(&self, now: Instant) -> BTreeSet<SessionId> {
        let over = self.heard.iter().take_while(|(heard, _)| now >= *heard + self.longest);
        over.map(|(_, session)| *session).collect()
    }

    /// Whether the word of a process that is `age` old and was alive at `alive_at` covers a session: it speaks of
    /// processes that were there before it, and of no later one.
    pub(super) fn is_covered(&self, session: SessionId, alive_at: Instant, age: Duration) -> bool {
        self.joined.get(&session).is_some_and(|joined| *joined + age <= alive_at)
    }

    /// Forgets a session that is over.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.heard.clear(&session);
        self.joined.remove(&session);
    }
}
