//! Whom a Lookup asks, and when: the leader it knows, or every Manager until one answers (Centrifuge §2.1.1).

use std::collections::BTreeMap;
use std::slice;
use std::time::Duration;

use super::LookupConfig;
use crate::id::{ManagerId, Nonce, Seq};
use crate::random::Random;
use crate::time::Instant;

/// The least time between a request and one that repairs or follows a hint.
const GAP: Duration = Duration::from_millis(500);
/// The first wait between requests to all Managers.
const FIRST_RETRY: Duration = Duration::from_millis(500);
/// The longest.
const LAST_RETRY: Duration = Duration::from_secs(4);
/// The Lookups of a leader whose streams broke come back within this time. They have a table and can wait; thousands at once could not
/// be answered.
const SPREAD: Duration = Duration::from_secs(2);
/// How many requests' send times are kept at most.
const REMEMBERED: usize = 128;

/// The requests of one Lookup.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asking {
    nonce: Nonce,
    /// The latest request.
    seq: Seq,
    /// When recent requests were sent.
    sent: BTreeMap<Seq, Instant>,
    /// The latest request that a leader answered.
    answered: Seq,
    /// The Manager that is asked; `None`: all of them.
    target: Option<ManagerId>,
    /// When to ask next.
    ask_at: Instant,
    /// How long to wait after the next request to all.
    retry: Duration,
}

impl Asking {
    /// No request was made and none is due.
    pub(super) fn new(nonce: Nonce) -> Asking {
        Asking {
            nonce,
            seq: Seq::ZERO,
            sent: BTreeMap::new(),
            answered: Seq::ZERO,
            target: None,
            ask_at: Instant::NEVER,
            retry: FIRST_RETRY,
        }
    }

    /// What names this life of the Lookup.
    pub(super) fn nonce(&self) -> Nonce {
        self.nonce
    }

    /// The latest request.
    pub(super) fn latest(&self) -> Seq {
        self.seq
    }

    /// Whether a request of that number was made.
    pub(super) fn was_sent(&self, seq: Seq) -> bool {
        Seq::ZERO < seq && seq <= self.seq
    }

    /// When a request was sent, if it is recent.
    pub(super) fn sent_at(&self, seq: Seq) -> Option<Instant> {
        self.sent.get(&seq).copied()
    }

    /// When to ask next.
    pub(super) fn deadline(&self) -> Instant {
        self.ask_at
    }

    /// Whether it is time to ask.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.ask_at <= now
    }

    /// Whether requests go to every Manager.
    pub(super) fn asks_all(&self) -> bool {
        self.target.is_none()
    }

    /// The Managers that requests go to.
    pub(super) fn recipients<'a>(&'a self, all: &'a [ManagerId]) -> &'a [ManagerId] {
        self.target.as_ref().map_or(all, slice::from_ref)
    }

    /// Asks as soon as the latest request is not too recent.
    pub(super) fn soon(&mut self, now: Instant) {
        self.ask_at = self.ask_at.min(self.after_gap(now));
    }

    /// When requests were sent is not known any more, so their answers tell nothing about now.
    pub(super) fn forget_when(&mut self) {
        self.sent.clear();
    }

    /// Asks no more.
    pub(super) fn stop(&mut self) {
        self.ask_at = Instant::NEVER;
    }

    /// Asks every Manager from now on if the one that is asked is not on the list.
    pub(super) fn forget_unlisted(&mut self, all: &[ManagerId]) {
        if self.target.as_ref().is_some_and(|target| !all.contains(target)) {
            self.turn_to(None);
        }
    }

    /// A leader answered a request. False if it, or a later one, was answered before.
    pub(super) fn on_answer(&mut self, from: &ManagerId, echo: Seq, config: &LookupConfig) -> bool {
        if echo <= self.answered {
            return false;
        }
        self.answered = echo;
        self.turn_to(Some(from.clone()));
        let latest = self.sent_at(self.seq).unwrap_or_default();
        self.ask_at = match self.unanswered_since() {
            Some(since) => (since + config.silence).max(latest + GAP),
            None => latest + config.poll,
        };
        true
    }

    /// The Manager that was asked does not lead: the one it names is asked, or all. A Manager that was only asked
    /// along with all others has nothing to add: whom it names was asked too.
    pub(super) fn on_not_leader(&mut self, now: Instant, from: &ManagerId, hint: Option<ManagerId>) {
        if self.target.as_ref() == Some(from) && self.unanswered_since().is_some() {
            self.turn_to(hint);
            self.soon(now);
        }
    }

    /// The watch at that Manager broke. If it was the leader's, all of its Lookups see that at once, so that each waits for a moment of
    /// its own before it asks every Manager.
    pub(super) fn on_disconnected(&mut self, now: Instant, from: &ManagerId, random: &mut Random) {
        if self.target.as_ref() == Some(from) {
            self.turn_to(None);
            self.retry = LAST_RETRY;
            let pause = random.between(Duration::ZERO, SPREAD);
            self.ask_at = self.ask_at.min(self.after_gap(now) + pause);
        }
    }

    /// Numbers a request that is sent now, and chooses whom it goes to and when the next is due.
    pub(super) fn next_request(&mut self, now: Instant, config: &LookupConfig, random: &mut Random) -> Seq {
        if self.unanswered_since().is_some_and(|since| since + config.silence <= now) && !self.asks_all() {
            self.turn_to(None);
        }
        self.seq = self.seq.next().expect("no Lookup lives for 2^64 requests");
        self.sent.insert(self.seq, now);
        self.sent.retain(|_, sent| now < *sent + config.contact_timeout);
        while self.sent.len() > REMEMBERED {
            self.sent.pop_first();
        }
        self.ask_at = if self.asks_all() {
            let wait = random.around(self.retry);
            self.retry = (self.retry * 2).min(LAST_RETRY);
            now + wait
        } else {
            self.unanswered_since().unwrap_or(now) + config.silence
        };
        self.seq
    }

    fn turn_to(&mut self, target: Option<ManagerId>) {
        self.target = target;
        self.retry = FIRST_RETRY;
    }

    /// When the oldest request was sent that no leader has answered.
    pub(super) fn unanswered_since(&self) -> Option<Instant> {
        let first = self.answered.next()?;
        self.sent.range(first..).next().map(|(_, sent)| *sent)
    }

    fn after_gap(&self, now: Instant) -> Instant {
        self.sent_at(self.seq).map_or(now, |latest| now.max(latest + GAP))
    }
}
