//! What a renewal in one namespace waits for while an Owner in another sends the largest messages it can.

use std::time::Duration;

use centrifuge_core::id::Generation;
use centrifuge_core::key::KeyRange;
use centrifuge_core::message::{HeldLease, ImportedCopy, Refusal, Report};
use centrifuge_core::settings::Settings;
use serde_json::json;

use super::leader::{Leader, name, namespace, parts, release, session, stored};
use super::tell;

/// How many pieces the largest messages have: more changes are refused where messages are read.
const PIECES: u64 = Settings::MOST_MOVES as u64;

/// The longest that a renewal should wait, at the 99th percentile.
const BOUND: Duration = Duration::from_millis(10);

/// Makes a report of one lease a large one.
type Enlarge = fn(&mut Report, u64);

/// How the large messages look. Each begins with one lease of every key.
const KINDS: [(&str, Enlarge); 5] = [
    ("held_pieces", held_pieces),
    ("released_pieces", released_pieces),
    ("released_of_others", released_of_others),
    ("refused_pieces", refused_pieces),
    ("imports", imports),
];

/// Prints what a renewal waits for that comes just when the leader has begun a step for the other namespace: the whole step, and
/// then its own. A step of the large message is always under way, which is worse than any flood.
pub fn run(json: bool, pieces: Option<u64>) {
    let pieces = pieces.unwrap_or(PIECES);
    for (kind, change) in KINDS {
        let mut waits = of_kind(change, pieces);
        waits.sort_unstable();
        print(json, kind, pieces, &waits);
    }
}

fn of_kind(change: Enlarge, pieces: u64) -> Vec<Duration> {
    let (large, other) = (namespace("large"), namespace("other"));
    let mut records = stored(&large, Settings::default(), &[(session(0), name(0), parts(1))]);
    records.extend(stored(&other, Settings::default(), &[(session(1), name(1), parts(64))]));
    let mut leader = Leader::of(records);
    leader.join(&large, 0);
    leader.join(&other, 1);
    let mut waits = Vec::new();
    for _ in 0..3 {
        let held = leader.leases(0);
        let mut report = leader.report(&large, session(0), held);
        change(&mut report, pieces);
        leader.post(report);
        while let Some(step) = leader.step() {
            let held = leader.leases(1);
            let renewal = leader.report(&other, session(1), held);
            leader.post(renewal);
            let own = leader.step().unwrap_or_default();
            waits.push(step.total + own.total);
        }
    }
    waits
}

fn print(json: bool, kind: &str, pieces: u64, waits: &[Duration]) {
    // The nearest rank: of few renewals the 99th percentile is the longest.
    let at = |percent: usize| waits[(waits.len() * percent).div_ceil(100) - 1].as_micros();
    let (p50, p99, longest) = (at(50), at(99), at(100));
    let within = p99 <= BOUND.as_micros();
    let renewals = waits.len();
    let line = json!({
        "kind": kind,
        "pieces": pieces,
        "renewals": renewals,
        "p50_us": p50,
        "p99_us": p99,
        "max_us": longest,
        "p99_within_10_ms": within,
    });
    tell(json, &line, || {
        let waited = format!("p50 {p50} us, p99 {p99} us, max {longest} us");
        println!("{kind}: {renewals} renewals waited {waited} ({pieces} pieces)");
    });
}

/// One lease, listed in as many pieces.
pub(super) fn held_pieces(report: &mut Report, pieces: u64) {
    let lease = report.held[0];
    report.held = parts(pieces).into_iter().map(|range| HeldLease { range, ..lease }).collect();
}

fn released_pieces(report: &mut Report, pieces: u64) {
    let lease = report.held[0];
    report.held.clear();
    report.released =
        parts(pieces).into_iter().map(|range| release(range, lease.generation, Generation::ZERO)).collect();
}

fn released_of_others(report: &mut Report, pieces: u64) {
    report.released =
        (0..pieces).map(|number| release(KeyRange::ALL, foreign(number), Generation::ZERO)).collect();
}

/// One lease, refused in as many pieces.
pub(super) fn refused_pieces(report: &mut Report, pieces: u64) {
    let generation = report.held[0].generation;
    report.held.clear();
    report.refused = parts(pieces).into_iter().map(|range| Refusal { range, generation }).collect();
}

fn imports(report: &mut Report, pieces: u64) {
    let copy = |number| ImportedCopy { range: KeyRange::ALL, source: foreign(number) };
    report.imports = (0..pieces).map(copy).collect();
}

fn foreign(number: u64) -> Generation {
    Generation((1 << 40) + number)
}
