//! The lists of reports, honest and hostile, as functions of what an Owner holds.

use centrifuge_core::key::{Key, KeyRange};
use centrifuge_net::proto::v1;

use super::Kind;

/// A lease as the Manager's latest message has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) range: KeyRange,
    pub(super) generation: u64,
    pub(super) state_since: u64,
    /// The Manager does not know yet that it was accepted.
    pub(super) is_new: bool,
}

impl Lease {
    pub(super) fn of_order(order: &v1::LeaseOrder) -> Option<Lease> {
        Some(Lease {
            range: KeyRange::new(Key(order.first), Key(order.last))?,
            generation: order.merge.unwrap_or(order.generation),
            state_since: order.state_since,
            is_new: order.grant,
        })
    }

    fn held(&self, range: KeyRange) -> v1::HeldLease {
        v1::HeldLease {
            first: range.first().0,
            last: range.last().0,
            generation: self.generation,
            state_since: self.state_since,
            warrant: None,
        }
    }
}

/// A report that renews everything.
pub(super) fn renewal(leases: &[Lease]) -> v1::Report {
    let held = leases.iter().map(|lease| lease.held(lease.range)).collect();
    v1::Report { held, ..v1::Report::default() }
}

/// What a hostile Owner reports, with about so many pieces and never more.
pub(super) fn hostile(kind: Kind, leases: &[Lease], pieces: usize) -> v1::Report {
    match kind {
        Kind::HeldPieces => {
            let held = cut(leases, pieces).map(|(range, lease)| lease.held(range)).collect();
            v1::Report { held, ..v1::Report::default() }
        }
        Kind::ReleasedPieces => {
            let released = cut(leases, pieces).map(|(range, lease)| release(range, lease.generation));
            v1::Report { released: released.collect(), ..v1::Report::default() }
        }
        Kind::RefusedPieces => {
            let refusal = |(range, lease): (KeyRange, &Lease)| v1::Refusal {
                first: range.first().0,
                last: range.last().0,
                generation: lease.generation,
            };
            v1::Report { refused: cut(leases, pieces).map(refusal).collect(), ..v1::Report::default() }
        }
        Kind::ReleasedOfOthers => {
            let released = (0..pieces).map(|number| release(KeyRange::ALL, foreign(number))).collect();
            v1::Report { released, ..renewal(leases) }
        }
        Kind::Imports => {
            let copy = |number| v1::ImportedCopy { first: 0, last: u64::MAX, source: foreign(number) };
            v1::Report { imports: (0..pieces).map(copy).collect(), ..renewal(leases) }
        }
        Kind::Renewals | Kind::Joins | Kind::Lookups => renewal(leases),
    }
}

/// The next report of an Owner that wants each of these pieces, an even number in key order, as a lease of its own;
/// nothing if it has them. It gives back every other piece, at most so many at a time, and gets them again while it
/// has their neighbours.
pub(super) fn division(leases: &[Lease], pieces: &[KeyRange], most: usize) -> Option<v1::Report> {
    let mut report = v1::Report::default();
    let mut pieces = pieces.iter().enumerate().peekable();
    for lease in leases {
        let mut kept: Option<KeyRange> = None;
        while let Some((number, piece)) = pieces.next_if(|(_, piece)| piece.last() <= lease.range.last()) {
            let gives_back = number % 2 == 1 && *piece != lease.range && report.released.len() < most;
            if gives_back {
                report.held.extend(kept.take().map(|range| lease.held(range)));
                report.released.push(release(*piece, lease.generation));
            } else {
                let first = kept.map_or(piece.first(), KeyRange::first);
                kept = KeyRange::new(first, piece.last());
            }
        }
        report.held.extend(kept.map(|range| lease.held(range)));
    }
    (!report.released.is_empty()).then_some(report)
}

/// The keys in as many parts of the same size, or nearly.
pub(super) fn parts(range: KeyRange, count: usize) -> Vec<KeyRange> {
    let (first, keys, count) = (range.first().0, range.key_count(), count as u128);
    let start = |part: u128| first.wrapping_add((keys * part / count) as u64);
    (0..count)
        .filter_map(|part| KeyRange::new(Key(start(part)), Key(start(part + 1).wrapping_sub(1))))
        .collect()
}

/// Pieces of all leases: each lease in as many as the others.
fn cut(leases: &[Lease], pieces: usize) -> impl Iterator<Item = (KeyRange, &Lease)> {
    let each = pieces.checked_div(leases.len()).unwrap_or_default().max(1);
    let all = leases
        .iter()
        .flat_map(move |lease| parts(lease.range, each).into_iter().map(move |range| (range, lease)));
    all.take(pieces)
}

/// The number of a lease that nobody has.
fn foreign(number: usize) -> u64 {
    (1 << 40) + number as u64
}

fn release(range: KeyRange, generation: u64) -> v1::Release {
    v1::Release {
        first: range.first().0,
        last: range.last().0,
        generation,
        clean_to: None,
        state_since: 0,
        warrant: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(range: KeyRange, generation: u64) -> Lease {
        Lease { range, generation, state_since: 1, is_new: false }
    }

    /// What a Manager that has one Owner makes of a report: it grants anew what was given back.
    fn granted(report: &v1::Report) -> Vec<Lease> {
        let range = |first, last| KeyRange::new(Key(first), Key(last)).expect("a range");
        let held = report.held.iter().map(|held| lease(range(held.first, held.last), held.generation));
        let back =
            report.released.iter().map(|gone| lease(range(gone.first, gone.last), gone.generation + 1));
        let mut leases: Vec<Lease> = held.chain(back).collect();
        leases.sort_by_key(|lease| lease.range.first());
        leases
    }

    #[test]
    fn parts_cover_every_key_once() {
        for count in [1, 2, 3, 64, 65_536] {
            let parts = parts(KeyRange::ALL, count);
            assert_eq!(parts.len(), count);
            assert_eq!((parts[0].first(), parts[count - 1].last()), (Key::MIN, Key::MAX));
            assert!(parts.windows(2).all(|pair| pair[0].touches(pair[1])), "{count}");
        }
    }

    #[test]
    fn one_lease_becomes_many_within_the_limit_of_each_report() {
        let pieces = parts(KeyRange::ALL, 64);
        let mut leases = vec![lease(KeyRange::ALL, 1)];
        let mut reports = 0;
        while let Some(report) = division(&leases, &pieces, 10) {
            assert!(report.released.len() <= 10);
            leases = granted(&report);
            reports += 1;
        }
        assert_eq!(leases.iter().map(|lease| lease.range).collect::<Vec<_>>(), pieces);
        assert_eq!(reports, 4);
    }

    #[test]
    fn hostile_reports_are_as_large_as_allowed_and_no_larger() {
        let halves: Vec<Lease> = parts(KeyRange::ALL, 2).into_iter().map(|range| lease(range, 3)).collect();
        let lengths = |kind| {
            let report = hostile(kind, &halves, 9);
            [report.held.len(), report.released.len(), report.refused.len(), report.imports.len()]
        };
        assert_eq!(lengths(Kind::HeldPieces), [8, 0, 0, 0]);
        assert_eq!(lengths(Kind::ReleasedPieces), [0, 8, 0, 0]);
        assert_eq!(lengths(Kind::ReleasedOfOthers), [2, 9, 0, 0]);
        assert_eq!(lengths(Kind::RefusedPieces), [0, 0, 8, 0]);
        assert_eq!(lengths(Kind::Imports), [2, 0, 0, 9]);
        assert_eq!(lengths(Kind::Renewals), [2, 0, 0, 0]);
        let nothing = hostile(Kind::ReleasedPieces, &[], 9);
        assert!(nothing.released.is_empty(), "who holds nothing gives nothing back");
    }
}
