//! The Manager's side of one conversation: numbering, races, resends, and what the Owner has accepted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::conversation::{ConversationSide, are_impossible};
use crate::id::{Generation, Seq, SessionId};
use crate::injected_bug::{Bug, injected};
use crate::key::{Key, KeyRange};
use crate::load::bound_loads;
use crate::message::{HeldLease, LeaseOrder, MovedLease, OrderKind, Report};
use crate::random::Random;
use crate::round_trip::RoundTrip;
use crate::time::Instant;

use super::conversations::Offer;
use super::decide::Finding;
use super::event::{MessageSkip, StreamId};
use super::moves::warranted_moves;
use super::offers::Offers;

/// A crossing says little about the round trip if the message it crossed is older than this.
const LONGEST_SAMPLE: Duration = Duration::from_secs(2);

/// A conversation with one session under this leader's term.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Conversation {
    pub(super) side: ConversationSide,
    pub(super) peer: StreamId,
    pub(super) offer: Offer,
    /// The lease length that went out with the first message to acknowledge a report, and which report that was.
    lease_told: (Seq, Duration),
    /// When the message was sent that the latest report acknowledged: the process was alive after that, however long the report
    /// itself was on its way.
    pub(super) alive_at: Instant,
    /// Somebody waits for a sign that the Owner is alive now.
    pub(super) probed: bool,
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
    /// The latest report crossed a message and was not taken: whatever acknowledges it asks for another.
    pub(super) skipped: bool,
    /// The Owner was told that it is emptied.
    pub(super) told_drained: bool,
    /// What the Owner was last told.
    pub(super) last_sent: Arc<[LeaseOrder]>,
    /// The Owner has exactly what it was told, all of it renewed and none of it wanted back, and nothing of that has changed
    /// since: a report that lists the same again needs no other answer.
    pub(super) at_rest: bool,
    /// What was found in the latest report and waits for the next batch, the last first.
    pub(super) findings: Vec<Finding>,
    /// From which key on the latest report is still to be compared with the table.
    pub(super) next_finding: Option<Key>,
    /// How many of the leases that the latest report lists are known to be claimed and taken.
    pub(super) claims_taken: usize,
}

impl Conversation {
    /// A conversation that begins with the first report that took up `offer`.
    pub(super) fn open(
        offer: Offer,
        peer: StreamId,
        before: Option<&Conversation>,
        now: Instant,
    ) -> Conversation {
        let alive_at = offer.made_at;
        Conversation {
            side: ConversationSide::new(offer.id, Seq::ZERO, now),
            peer,
            offer,
            lease_told: (Seq::ZERO, Duration::ZERO),
            alive_at,
            probed: false,
            round_trip: before.map_or_else(RoundTrip::assumed, |conversation| conversation.round_trip),
            offers: before
                .map(|conversation| conversation.offers.for_next_conversation())
                .unwrap_or_default(),
            moves_to: before.and_then(|conversation| conversation.moves_to.clone()),
            told_to_stop: before.map(|conversation| conversation.told_to_stop.clone()).unwrap_or_default(),
            report: None,
            reported: (now, Duration::MAX),
            undecided: false,
            skipped: false,
            told_drained: false,
            last_sent: [].into(),
            at_rest: false,
            findings: Vec::new(),
            next_finding: None,
            claims_taken: 0,
        }
    }

    /// The Owner has yet to answer, or its answer crossed a message: a push now would cross its next report.
    pub(super) fn is_unanswered(&self) -> bool {
        self.side.awaits_answer || self.skipped
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
        if self.side.seq > Seq::ZERO {
            self.alive_at = self.side.sent_at;
        }
        self.side.on_answer(now, &mut self.round_trip);
        self.skipped = false;
    }

    /// The lease length that the next message carries. It counts from the send of the report that is acknowledged, so that a length which was
    /// shortened since would end leases before their holder could renew them: it begins with the next report.
    pub(super) fn lease_to_tell(&mut self, setting: Duration) -> Duration {
        if self.lease_told.0 != self.side.heard {
            self.lease_told = (self.side.heard, setting);
        }
        self.lease_told.1
    }

    /// A report crossed the latest message. Both sides count from the first message that is unanswered, so that the Owner's wait stays
    /// the shorter one.
    pub(super) fn crossed(&mut self, now: Instant) {
        self.skipped = true;
        self.side.on_race(now, LONGEST_SAMPLE, &mut self.round_trip);
    }

    /// Stays below a quarter of the lease: so much longer than an Owner's at the same point that after a race the Owner's word comes
    /// first and ends it, as long as a round trip is below a sixteenth of the lease.
    pub(super) fn backoff(&self, random: &mut Random, lease: Duration) -> Duration {
        if injected(Bug::NoBackoff) {
            return self.side.longest_backoff(self.round_trip, lease / 8);
        }
        let longest = self.side.longest_backoff(self.round_trip, lease / 4);
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
    pub(super) fn note_report(&mut self, mut report: Report, now: Instant, hold: Duration) {
        bound_loads(&mut report.loads);
        if report.applied == self.side.seq && report.applied > Seq::ZERO {
            self.moves_to = Some(destinations(&self.last_sent).collect());
        }
        if !self.told_to_stop.is_empty() {
            let spoken_of: BTreeSet<(KeyRange, Generation)> =
                warranted_moves(&report).map(|moved| (moved.lease.range, moved.lease.generation)).collect();
            self.told_to_stop.retain(|lease, _| spoken_of.contains(lease));
        }
        self.report = Some(Arc::new(report));
        self.reported = (now, hold);
        self.findings.clear();
        self.next_finding = None;
        self.claims_taken = 0;
    }

    /// The next message lists what the Owner should go on saying that it moved; says whether that ends something. Only what is
    /// applied ends: an Owner repeats the rest anyway.
    pub(super) fn stop_moves(&mut self, repeat: &[MovedLease], now: Instant) -> bool {
        let Some(report) = self.report.as_deref().filter(|report| report.seq <= self.side.applied) else {
            return false;
        };
        let repeat: BTreeSet<&MovedLease> = repeat.iter().collect();
        let ended = warranted_moves(report).map(|moved| moved.lease).filter(|lease| !repeat.contains(lease));
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
    if are_impossible(sent, report.heard, report.applied) {
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
