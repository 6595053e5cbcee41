//! The Manager's side of one conversation: numbering, races, resends, and what the Owner has accepted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::id::{Generation, Nonce, Seq, SessionId};
use crate::injected_bug::{Bug, injected};
use crate::key::KeyRange;
use crate::message::{HeldLease, LeaseOrder, MovedLease, OrderKind, Report};
use crate::random::Random;
use crate::round_trip::RoundTrip;
use crate::time::Instant;

use super::conversations::Offer;
use super::decide::Finding;
use super::event::{MessageSkip, Peer};
use super::moves::moves;
use super::offers::Offers;

/// However quick the network, a resend waits this long.
const SHORTEST_BACKOFF: Duration = Duration::from_millis(10);
/// A crossing says little about the round trip if the message it crossed is older than this.
const LONGEST_SAMPLE: Duration = Duration::from_secs(2);

/// A conversation with one session under this leader's term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Conversation {
    pub(super) id: Nonce,
    pub(super) peer: Peer,
    pub(super) offer: Offer,
    /// The latest message's number.
    pub(super) seq: Seq,
    pub(super) sent_at: Instant,
    /// The highest number heard from the Owner.
    pub(super) heard: Seq,
    /// The lease length that went out with the first message to acknowledge a report, and which report that was.
    lease_told: (Seq, Duration),
    /// When the message was sent that the latest report acknowledged: the process was alive after that, however long the report
    /// itself was on its way.
    pub(super) alive_at: Instant,
    /// Somebody waits for a sign that the Owner is alive now.
    pub(super) probed: bool,
    /// The last report whose effects are committed.
    pub(super) applied: Seq,
    /// The latest message that wants an answer has none yet.
    pub(super) awaiting: bool,
    /// Since when messages have gone unanswered, if they have.
    unanswered_since: Instant,
    /// Races or silent resends in a row.
    pub(super) consecutive_races: u32,
    round_trip: RoundTrip,
    /// What became of the session's grants.
    pub(super) offers: Offers,
    /// Where the Owner may be moving state to, as far as it was told; `None`: what earlier leaders told it may still count.
    moves_to: Option<BTreeSet<SessionId>>,
    /// Since when the Owner has been told not to repeat that it moved something.
    pub(super) told_to_stop: BTreeMap<(KeyRange, Generation), Instant>,
    /// The latest report that counted.
    pub(super) report: Option<Arc<Report>>,
    /// When it came, and how long an offer could be open then: it may be decided on later, when its sender was offered the same
    /// leases once more.
    pub(super) reported: (Instant, Duration),
    /// The report calls for a decision that has not been made.
    pub(super) undecided: bool,
    /// A report waits for its reply.
    pub(super) reply_due: bool,
    /// The latest report crossed a message and was not taken: whatever acknowledges it asks for another.
    pub(super) skipped: bool,
    /// What the Owner should hold has changed since it was last told.
    pub(super) push_due: bool,
    /// The Owner was told that it is emptied.
    pub(super) told_drained: bool,
    /// What the Owner was last told.
    pub(super) last_sent: Arc<[LeaseOrder]>,
    /// The Owner has exactly what it was told, all of it renewed and none of it wanted back, and nothing of that has changed
    /// since: a report that lists the same again needs no other answer.
    pub(super) at_rest: bool,
    /// What was found in the latest report and waits for the next batch, the last first.
    pub(super) findings: Vec<Finding>,
    /// How many of the leases that the latest report lists are known to be claimed and taken.
    pub(super) claims_taken: usize,
}

impl Conversation {
    /// A conversation that begins with the first report that took up `offer`.
    pub(super) fn open(
        offer: Offer,
        peer: Peer,
        before: Option<&Conversation>,
        now: Instant,
    ) -> Conversation {
        let alive_at = offer.made_at;
        Conversation {
            id: offer.id,
            peer,
            offer,
            seq: Seq::ZERO,
            sent_at: now,
            heard: Seq::ZERO,
            lease_told: (Seq::ZERO, Duration::ZERO),
            alive_at,
            probed: false,
            applied: Seq::ZERO,
            awaiting: false,
            unanswered_since: now,
            consecutive_races: 0,
            round_trip: before.map_or_else(RoundTrip::assumed, |conversation| conversation.round_trip),
            offers: before
                .map(|conversation| conversation.offers.for_next_conversation())
                .unwrap_or_default(),
            moves_to: before.and_then(|conversation| conversation.moves_to.clone()),
            told_to_stop: before.map(|conversation| conversation.told_to_stop.clone()).unwrap_or_default(),
            report: None,
            reported: (now, Duration::MAX),
            undecided: false,
            reply_due: false,
            skipped: false,
            push_due: false,
            told_drained: false,
            last_sent: [].into(),
            at_rest: false,
            findings: Vec::new(),
            claims_taken: 0,
        }
    }

    /// The Owner has yet to answer, or its answer crossed a message: a push now would cross its next report.
    pub(super) fn is_unanswered(&self) -> bool {
        self.awaiting || self.skipped
    }

    /// The latest message was sent just now, and wants an answer or does not.
    pub(super) fn await_answer(&mut self, is_wanted: bool, now: Instant) {
        if !self.awaiting {
            self.unanswered_since = now;
        }
        self.awaiting = is_wanted;
    }

    /// Whether a report only renews what its sender has, which is what it was told to have.
    pub(super) fn is_renewed_by(&self, report: &Report) -> bool {
        let is_the_same = |before: &Report| before.held == report.held && before.weight == report.weight;
        self.at_rest && is_plain(report) && self.report.as_deref().is_some_and(is_the_same)
    }

    /// Notes whether the Owner has exactly what it is told with `orders`.
    pub(super) fn note_rest(&mut self, orders: &[LeaseOrder]) {
        let is_renewal = |order: &LeaseOrder| {
            order.kind == OrderKind::Renewal && order.recall.is_none() && order.merge.is_none()
        };
        let is_held = |(order, held): (&LeaseOrder, &HeldLease)| {
            order.range == held.range && order.generation == held.generation && is_renewal(order)
        };
        let has_it = |report: &Report| {
            is_plain(report)
                && report.held.len() == orders.len()
                && orders.iter().zip(&report.held).all(is_held)
        };
        self.at_rest = !self.undecided && !orders.is_empty() && self.report.as_deref().is_some_and(has_it);
    }

    /// The Owner answered the latest message.
    pub(super) fn answered(&mut self, now: Instant) {
        if self.awaiting {
            self.round_trip.answered(now.since(self.sent_at));
        }
        if self.seq > Seq::ZERO {
            self.alive_at = self.sent_at;
        }
        self.awaiting = false;
        self.skipped = false;
        self.consecutive_races = 0;
    }

    /// The lease length that the next message carries. It counts from the send of the report that is acknowledged, so that a length which was
    /// shortened since would end leases before their holder could renew them: it begins with the next report.
    pub(super) fn lease_to_tell(&mut self, setting: Duration) -> Duration {
        if self.lease_told.0 != self.heard {
            self.lease_told = (self.heard, setting);
        }
        self.lease_told.1
    }

    /// A report crossed the latest message: the round trip is longer than the time since that was sent. Both sides count from the
    /// first message that is unanswered, so that the Owner's wait stays the shorter one.
    pub(super) fn crossed(&mut self, now: Instant) {
        self.skipped = true;
        self.consecutive_races = self.consecutive_races.saturating_add(1);
        self.round_trip.at_least(now.since(self.unanswered_since).min(LONGEST_SAMPLE));
    }

    /// Starts above the round trip, doubles with every race, and stays below a quarter of the lease. So much longer
    /// than an Owner's at the same point that after a race the Owner's word comes first and ends it, as long as a
    /// round trip is below a sixteenth of the lease.
    pub(super) fn backoff(&self, random: &mut Random, lease: Duration) -> Duration {
        if injected(Bug::NoBackoff) {
            return (self.round_trip.estimate() * 2).max(SHORTEST_BACKOFF).min(lease / 8);
        }
        let wanted = (self.round_trip.estimate() * 4)
            .max(SHORTEST_BACKOFF)
            .saturating_mul(2u32.pow(self.consecutive_races.min(16)));
        let longest = wanted.min(lease / 4);
        random.between(longest * 3 / 4, longest)
    }

    /// A message was sent: the Owner may move state to whom it names, and still to whom an earlier one named.
    pub(super) fn note_orders(&mut self, orders: Arc<[LeaseOrder]>) {
        if let Some(moves_to) = self.moves_to.as_mut().filter(|_| !self.at_rest) {
            moves_to.extend(destinations(&orders));
        }
        self.last_sent = orders;
    }

    /// A report was taken. If its sender has applied the latest message, it moves state to whom that names, and to
    /// nobody else but whom its releases name.
    pub(super) fn note_report(&mut self, report: Report, now: Instant, hold: Duration) {
        if report.applied == self.seq && report.applied > Seq::ZERO {
            self.moves_to = Some(destinations(&self.last_sent).collect());
        }
        if !self.told_to_stop.is_empty() {
            let spoken_of: BTreeSet<(KeyRange, Generation)> =
                moves(&report).map(|moved| (moved.lease.range, moved.lease.generation)).collect();
            self.told_to_stop.retain(|lease, _| spoken_of.contains(lease));
        }
        self.report = Some(Arc::new(report));
        self.reported = (now, hold);
        self.findings.clear();
        self.claims_taken = 0;
    }

    /// The next message lists what the Owner should go on saying that it moved; says whether that ends something. Only what is
    /// applied ends: an Owner repeats the rest anyway.
    pub(super) fn stop_moves(&mut self, repeat: &[MovedLease], now: Instant) -> bool {
        let Some(report) = self.report.as_deref().filter(|report| report.seq <= self.applied) else {
            return false;
        };
        let repeat: BTreeSet<&MovedLease> = repeat.iter().collect();
        let ended = moves(report).map(|moved| moved.lease).filter(|lease| !repeat.contains(lease));
        let mut any = false;
        for MovedLease { range, generation } in ended {
            self.told_to_stop.entry((range, generation)).or_insert(now);
            any = true;
        }
        any
    }

    /// Whether the Owner may still say that it moved state to a session.
    pub(super) fn may_move_to(&self, session: SessionId) -> bool {
        let says_so = |report: &Report| report.released.iter().any(|gone| gone.clean_to == Some(session));
        self.moves_to.as_ref().is_none_or(|moves_to| moves_to.contains(&session))
            || self.report.as_deref().is_none_or(says_so)
    }
}

/// Why a report cannot count at all, if it cannot, where `sent` and `heard` are the highest numbers of both sides.
pub(super) fn objection(report: &Report, sent: Seq, heard: Seq) -> Option<MessageSkip> {
    if report.heard > sent || report.applied > report.heard {
        Some(MessageSkip::FromTheFuture)
    } else if report.seq <= heard {
        Some(MessageSkip::Duplicate)
    } else if !in_order(report) {
        Some(MessageSkip::OverlappingRanges)
    } else {
        None
    }
}

/// The orders that share a key with a range, of orders that are in key order.
pub(super) fn around(orders: &[LeaseOrder], range: KeyRange) -> impl Iterator<Item = &LeaseOrder> {
    let start = orders.partition_point(|order| order.range.last() < range.first());
    orders[start..].iter().take_while(move |order| order.range.first() <= range.last())
}

/// The sessions that orders want state moved to.
fn destinations(orders: &[LeaseOrder]) -> impl Iterator<Item = SessionId> {
    let recalls = orders.iter().filter_map(|order| order.recall.as_ref());
    recalls.filter_map(|recall| recall.to.as_ref()).map(|to| to.session)
}

/// Whether a report says nothing but what it holds.
fn is_plain(report: &Report) -> bool {
    let Report { released, refused, imports, draining, leaving, .. } = report;
    released.is_empty() && refused.is_empty() && imports.is_empty() && !draining && !leaving
}

/// Whether what a report says it holds is in key order and does not overlap.
fn in_order(report: &Report) -> bool {
    report.held.windows(2).all(|pair| pair[0].range.last() < pair[1].range.first())
}
