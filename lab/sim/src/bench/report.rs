//! What one report costs a leader by the number of leases that it speaks of: the same for each lease, however many there are.

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{Generation, Term};
use centrifuge_core::key::KeyRange;
use centrifuge_core::manager::DeclaredNamespace;
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::message::{HeldLease, ImportedCopy, Release, Report, Warrant};
use centrifuge_core::settings::Settings;
use serde_json::json;

use super::leader::{Cost, Leader, name, namespace, parts, release, session, stored};
use super::{isolation, tell};

/// How many leases a report speaks of.
const SIZES: [u64; 4] = [100, 1_000, 8_000, 65_536];

/// How often a small report is repeated; a large one is measured less often.
const REPETITIONS: u64 = 20;

/// A kind of report, and what one costs that speaks of so many leases.
type Kind = (&'static str, fn(u64) -> Cost);

/// Every way in which a report can speak of many leases.
const KINDS: [Kind; 9] = [
    ("renewal", renewal),
    ("held_pieces", held_pieces),
    ("released_pieces", released_pieces),
    ("released_all", released_all),
    ("released_of_others", released_of_others),
    ("refused_pieces", refused_pieces),
    ("imports", imports),
    ("recalled", recalled),
    ("diskless_claims", diskless_claims),
];

/// Prints what each kind of report costs for each lease, and how much dearer a lease of the largest report is than one of the
/// second smallest: the smallest is all overhead.
pub fn run(json: bool, only: Option<&str>) {
    for (kind, measure) in KINDS.into_iter().filter(|(kind, _)| only.is_none_or(|only| only == *kind)) {
        let costs: Vec<(u64, Cost)> = SIZES.iter().map(|size| (*size, quickest(measure, *size))).collect();
        print(json, kind, &costs);
    }
}

fn quickest(measure: fn(u64) -> Cost, size: u64) -> Cost {
    let repetitions = (REPETITIONS * 1_000 / size).clamp(1, REPETITIONS);
    let costs = (0..repetitions).map(|_| measure(size));
    costs.min_by_key(|cost| cost.total).unwrap_or_default()
}

fn print(json: bool, kind: &str, costs: &[(u64, Cost)]) {
    let per_lease = |size: u64, cost: &Cost| nanoseconds(cost.total) / size;
    let of =
        |wanted: u64| costs.iter().find(|(size, _)| *size == wanted).map(|(size, c)| per_lease(*size, c));
    let flat_percent = of(SIZES[3]).unwrap_or_default() * 100 / of(SIZES[1]).unwrap_or_default().max(1);
    let size = |(size, cost): &(u64, Cost)| {
        json!({
            "leases": size,
            "total_ns": nanoseconds(cost.total),
            "longest_step_ns": nanoseconds(cost.longest),
            "per_lease_ns": per_lease(*size, cost),
            "records": cost.records,
        })
    };
    let sizes: Vec<_> = costs.iter().map(size).collect();
    let line = json!({ "kind": kind, "sizes": sizes, "per_lease_percent_of_1000": flat_percent });
    tell(json, &line, || {
        println!("{kind}: a lease of {} costs {flat_percent} % of one of {}", SIZES[3], SIZES[1]);
        for (size, cost) in costs {
            let [total, longest] = [cost.total, cost.longest].map(|time| time.as_micros());
            let (each, records) = (per_lease(*size, cost), cost.records);
            println!(
                "  {size:>6} leases: {total:>9} us, longest step {longest:>9} us, {each:>6} ns a lease, {records} records"
            );
        }
    });
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A leader of a namespace with one Owner, which has these ranges and has spoken.
fn with_owner(ranges: Vec<KeyRange>) -> (Leader, Vec<HeldLease>) {
    let namespace = namespace("bench");
    let records = stored(&namespace, Settings::default(), &[(session(0), name(0), ranges)]);
    let mut leader = Leader::of(records);
    leader.join(&namespace, 0);
    let held = leader.leases(0);
    (leader, held)
}

/// The cost of a report that the Owner sends after it renewed everything.
fn of_report(ranges: Vec<KeyRange>, change: impl FnOnce(&mut Report)) -> Cost {
    let (mut leader, held) = with_owner(ranges);
    let mut report = leader.report(&namespace("bench"), session(0), held);
    change(&mut report);
    leader.send(report)
}

/// An honest renewal of as many leases.
fn renewal(size: u64) -> Cost {
    of_report(parts(size), |_| {})
}

/// One lease, listed in as many pieces.
fn held_pieces(size: u64) -> Cost {
    of_report(parts(1), |report| isolation::held_pieces(report, size))
}

/// One lease, of which every second piece is given back.
fn released_pieces(size: u64) -> Cost {
    of_report(parts(1), |report| {
        let lease = report.held[0];
        let pieces = parts(size * 2);
        let released = pieces.iter().step_by(2).map(|range| give_back(*range, lease));
        report.released = released.collect();
        let held = pieces.iter().skip(1).step_by(2);
        report.held = held.map(|range| HeldLease { range: *range, ..lease }).collect();
    })
}

/// As many leases, all of them given back.
fn released_all(size: u64) -> Cost {
    of_report(parts(size), |report| {
        report.released = report.held.iter().map(|held| give_back(held.range, *held)).collect();
        report.held.clear();
    })
}

/// As many leases, and as many releases of keys and numbers that its sender does not have, said for the second time.
fn released_of_others(size: u64) -> Cost {
    let (mut leader, held) = with_owner(parts(size));
    let foreign = |held: &HeldLease| Release {
        generation: Generation(held.generation.0 + (1 << 40)),
        ..give_back(KeyRange::ALL, *held)
    };
    let mut cost = Cost::default();
    for _ in 0..2 {
        let mut report = leader.report(&namespace("bench"), session(0), held.clone());
        report.released = held.iter().map(foreign).collect();
        cost = leader.send(report);
    }
    cost
}

/// One lease, refused in as many pieces.
fn refused_pieces(size: u64) -> Cost {
    of_report(parts(1), |report| isolation::refused_pieces(report, size))
}

/// As many leases, and as many copies, each of every key.
fn imports(size: u64) -> Cost {
    of_report(parts(size), |report| {
        let copy = |held: &HeldLease| ImportedCopy { range: KeyRange::ALL, source: held.generation };
        report.imports = report.held.iter().map(copy).collect();
    })
}

/// As many leases, all of which are wanted back for another Owner.
fn recalled(size: u64) -> Cost {
    let namespace = namespace("bench");
    let settings = Settings { max_moves: usize::MAX, ..Settings::default() };
    let records = stored(&namespace, settings, &[(session(0), name(0), parts(size))]);
    let mut leader = Leader::of(records);
    leader.hello(&namespace, session(0), &name(0));
    let held = leader.leases(0);
    // Past the takeover hold, within the leases.
    for _ in 0..8 {
        leader.renew(&namespace, 0);
        leader.pass(Duration::from_secs(10));
    }
    leader.hello(&namespace, session(1), &name(1));
    let report = leader.report(&namespace, session(1), Vec::new());
    leader.send(report);
    let mut cost = Cost::default();
    for _ in 0..2 {
        let mut report = leader.report(&namespace, session(0), held.clone());
        report.draining = true;
        cost = leader.send(report);
    }
    cost
}

/// A new leader that has no store hears of as many leases.
fn diskless_claims(size: u64) -> Cost {
    let namespaces = [(namespace("bench"), DeclaredNamespace::default())];
    let mut leader = Leader::new(ManagerState::default(), Some(Arc::new(namespaces.into())));
    leader.pass(Duration::from_secs(20));
    leader.hello(&namespace("bench"), session(0), &name(0));
    let first = Generation::before(Term(1)).expect("an early term");
    let held = (1..).zip(parts(size)).map(|(number, range)| {
        let generation = Generation(first.0 + number);
        let warrant = Warrant { range, lease: Duration::from_secs(60), virtual_nodes: 64, code: [0; 32] };
        HeldLease { range, generation, state_since: generation, warrant: Some(warrant) }
    });
    let report = leader.report(&namespace("bench"), session(0), held.collect());
    leader.send(report)
}

fn give_back(range: KeyRange, lease: HeldLease) -> Release {
    release(range, lease.generation, lease.state_since)
}
