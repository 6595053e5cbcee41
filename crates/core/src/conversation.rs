//! One side of a conversation between an Owner and its leader: numbers, races, and how long a resend waits.

use std::time::Duration;

use crate::id::{Nonce, Seq};
use crate::injected_bug::{Bug, injected};
use crate::round_trip::RoundTrip;
use crate::time::Instant;

/// However quick the network, a resend waits this long.
pub(crate) const SHORTEST_BACKOFF: Duration = Duration::from_millis(10);

/// What one side has said and heard under one nonce. Both sides number their messages, and each message acknowledges the latest
/// that its sender has heard: one that does not acknowledge the latest message has crossed it (Centrifuge §2.3.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConversationSide {
    /// The nonce by which both sides know the conversation.
    pub(crate) id: Nonce,
    /// The number of the latest message that this side sent ...
    pub(crate) seq: Seq,
    /// ... when it was sent ...
    pub(crate) sent_at: Instant,
    /// ... and whether it still waits for its answer.
    pub(crate) awaits_answer: bool,
    /// Since when messages have gone unanswered, if they have.
    pub(crate) unanswered_since: Instant,
    /// The highest number heard from the other side.
    pub(crate) heard: Seq,
    /// The last of the other side's messages that took effect.
    pub(crate) applied: Seq,
    /// Races or silent resends in a row.
    consecutive_races: u32,
}

/// Whether numbers of the other side cannot be: it acknowledges what was never sent, or has applied what it never heard.
pub(crate) fn are_impossible(sent: Seq, heard: Seq, applied: Seq) -> bool {
    heard > sent || applied > heard
}

impl ConversationSide {
    /// A conversation in which this side has sent messages up to `seq`, and heard nothing.
    pub(crate) fn new(id: Nonce, seq: Seq, now: Instant) -> ConversationSide {
        ConversationSide {
            id,
            seq,
            sent_at: now,
            awaits_answer: false,
            unanswered_since: now,
            heard: Seq::ZERO,
            applied: Seq::ZERO,
            consecutive_races: 0,
        }
    }

    /// A message is sent.
    pub(crate) fn send(&mut self, seq: Seq, now: Instant, wants_answer: bool) {
        if !self.awaits_answer {
            self.unanswered_since = now;
        }
        (self.seq, self.sent_at, self.awaits_answer) = (seq, now, wants_answer);
    }

    /// The latest message is acknowledged.
    pub(crate) fn on_answer(&mut self, now: Instant, round_trip: &mut RoundTrip) {
        if self.awaits_answer {
            round_trip.answered(now.since(self.sent_at));
        }
        self.awaits_answer = false;
        self.consecutive_races = 0;
    }

    /// A message crossed the latest one: the round trip is longer than the time since the first that is unanswered, as far as that
    /// says anything about it.
    pub(crate) fn on_race(&mut self, now: Instant, longest_sample: Duration, round_trip: &mut RoundTrip) {
        self.on_silence();
        round_trip.at_least(now.since(self.unanswered_since).min(longest_sample));
    }

    /// No answer came in time.
    pub(crate) fn on_silence(&mut self) {
        self.consecutive_races = self.consecutive_races.saturating_add(1);
    }

    /// How long to wait at most before the next message: starts above the round trip, doubles with every race, and stays below `cap`.
    pub(crate) fn longest_backoff(&self, round_trip: RoundTrip, cap: Duration) -> Duration {
        if injected(Bug::NoBackoff) {
            return (round_trip.estimate() * 2).max(SHORTEST_BACKOFF).min(cap);
        }
        let first = (round_trip.estimate() * 4).max(SHORTEST_BACKOFF);
        first.saturating_mul(2u32.pow(self.consecutive_races.min(16))).min(cap)
    }
}
