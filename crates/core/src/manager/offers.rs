//! What became of the grants of one session, key by key: offered, listed, or open for too long.

use std::time::Duration;

use crate::id::{Generation, Seq};
use crate::key::KeyRange;
use crate::message::Report;
use crate::range_map::RangeMap;
use crate::range_set::RangeSet;
use crate::table::LeaseNumbers;
use crate::time::Instant;

/// The grants of one session under this term. A grant that no report has listed is offered again with every message, in
/// the next conversation too, until it is listed, refused or dropped.
///
/// Nothing here is needed for safety: an Owner accepts no generation twice, whatever it is offered. It spares the round
/// trip in which the Owner would refuse.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Offers {
    /// The keys that a report of this term listed, and under which lease.
    listed: RangeMap<Generation>,
    /// The first message of this conversation that offered a lease.
    sent: RangeMap<(Generation, Seq)>,
    /// Since when, in this term, a lease has been on offer.
    open_since: RangeMap<(Generation, Instant)>,
}

impl Offers {
    /// What is remembered in the session's next conversation: another one numbers its messages anew.
    pub(super) fn for_next_conversation(&self) -> Offers {
        Offers { sent: RangeMap::new(), ..self.clone() }
    }

    /// A report lists the keys under this lease.
    pub(super) fn note_listed(&mut self, range: KeyRange, generation: Generation) {
        self.listed.insert(range, generation);
    }

    /// Notes what a report lists of the session's `leases`; true if it lists something else.
    pub(super) fn note_report(
        &mut self,
        report: &Report,
        leases: impl Iterator<Item = (KeyRange, LeaseNumbers)>,
    ) -> bool {
        let mut listed: Vec<(KeyRange, Generation)> = Vec::with_capacity(report.held.len());
        let mut not_granted = false;
        let mut leases = leases.peekable();
        for held in &report.held {
            let mut next = Some(held.range.first());
            while let Some((range, numbers)) = leases.peek() {
                if range.first() > held.range.last() {
                    break;
                }
                if let Some(piece) = range.intersection(held.range).filter(|_| numbers.have(held.generation))
                {
                    not_granted |= next != Some(piece.first());
                    next = piece.last().next();
                    listed.push((piece, held.generation));
                }
                if range.last() > held.range.last() {
                    break;
                }
                leases.next();
            }
            not_granted |= next.is_some_and(|next| next <= held.range.last());
        }
        self.listed.insert_all(&listed);
        not_granted
    }

    /// A message offers the keys under this lease.
    pub(super) fn note_sent(&mut self, range: KeyRange, generation: Generation, seq: Seq, now: Instant) {
        insert_where_new(&mut self.sent, range, generation, seq);
        insert_where_new(&mut self.open_since, range, generation, now);
    }

    /// The keys of `range` that the session listed under this lease.
    pub(super) fn listed(&self, range: KeyRange, numbers: LeaseNumbers) -> RangeSet {
        let listed = self.listed.overlapping(range).filter(|(_, of)| numbers.have(**of));
        listed.map(|(piece, _)| piece).collect()
    }

    /// Says of ranges that are asked for in key order whether the session listed all of one under its lease, and under one
    /// number.
    pub(super) fn listed_in_order(&self) -> impl FnMut(KeyRange, LeaseNumbers) -> bool {
        let mut listed = self.listed.iter().peekable();
        move |range, numbers| {
            while listed.next_if(|(around, _)| around.last() < range.first()).is_some() {}
            listed.peek().is_some_and(|(around, of)| around.contains_range(range) && numbers.have(**of))
        }
    }

    /// The keys of `range` whose lease the session had, or was offered and left out: a report that had `applied` that
    /// message and does not list them has dropped them. So has one that comes when the offer has been open for a hold:
    /// whatever was sent before it arrived crosses it, and is not applied.
    pub(super) fn dropped(
        &self,
        range: KeyRange,
        numbers: LeaseNumbers,
        applied: Seq,
        (now, hold): (Instant, Duration),
    ) -> RangeSet {
        let LeaseNumbers { generation, .. } = numbers;
        let mut dropped = self.listed(range, numbers);
        let sent = self.sent.overlapping(range).filter(|(_, (of, seq))| *of == generation && *seq <= applied);
        sent.for_each(|(piece, _)| dropped.insert(piece));
        let is_over = |(of, since): &(Generation, Instant)| *of == generation && now >= *since + hold;
        let over = self.open_since.overlapping(range).filter(|(_, open)| is_over(open));
        over.for_each(|(piece, _)| dropped.insert(piece));
        dropped
    }

    /// The keys of `range` that some message of this conversation offered.
    pub(super) fn sent(&self, range: KeyRange, generation: Generation) -> RangeSet {
        let sent = self.sent.overlapping(range).filter(|(_, (of, _))| *of == generation);
        sent.map(|(piece, _)| piece).collect()
    }

    /// The session's leases on these keys are over.
    pub(super) fn forget(&mut self, range: KeyRange) {
        self.listed.remove(range);
        self.sent.remove(range);
        self.open_since.remove(range);
    }

    /// The session's leases on these keys go on under one number.
    pub(super) fn forget_all_but(&mut self, range: KeyRange, number: Generation) {
        self.listed.update(range, |_, of| Some(*of).filter(|of| *of == number));
        self.sent.update(range, |_, sent| Some(*sent).filter(|(of, _)| *of == number));
        self.open_since.update(range, |_, open| Some(*open).filter(|(of, _)| *of == number));
    }

    /// Whether these are offers of the session's leases and of nothing else.
    pub(super) fn are_of(&self, leases: &RangeMap<LeaseNumbers>) -> bool {
        all_current(&self.listed, leases, |of| *of)
            && all_current(&self.sent, leases, |(of, _)| *of)
            && all_current(&self.open_since, leases, |(of, _)| *of)
    }
}

/// Gives the keys of `range` a value, except where they have one of this lease.
fn insert_where_new<T: Copy + Eq>(
    map: &mut RangeMap<(Generation, T)>,
    range: KeyRange,
    generation: Generation,
    value: T,
) {
    let known = map.overlapping(range).filter(|(_, (of, _))| *of == generation);
    let known: RangeSet = known.map(|(piece, _)| piece).collect();
    if known.contains_range(range) {
        return;
    }
    for piece in RangeSet::from_ranges([range]).difference(&known).iter() {
        map.insert(piece, (generation, value));
    }
}

fn all_current<T>(
    map: &RangeMap<T>,
    current: &RangeMap<LeaseNumbers>,
    of: impl Fn(&T) -> Generation,
) -> bool {
    let current = map.overlay(current).filter(|(_, value, numbers)| numbers.have(of(value)));
    let current: RangeSet = current.map(|(piece, _, _)| piece).collect();
    current == map.keys()
}
