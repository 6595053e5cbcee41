//! `centrifuge-bench hot-path`: what every request of an application pays.

use std::hint::black_box;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use centrifuge::hot::{HotLeases, HotRoutes};
use centrifuge::{Generation, Key, KeyRange, OrderedKey};
use centrifuge_core::id::{Nonce, SessionId};
use centrifuge_core::lookup::Row;
use centrifuge_core::table::PublishedOwner;
use centrifuge_net::clock;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::output::{Format, table_of};
use crate::{Failure, Result};

/// Centrifuge's testbed has 200 Owners with 64 ranges each: 12,800.
const RANGES: [usize; 3] = [1_000, 12_800, 128_000];
const THREADS: [usize; 2] = [1, 2];
/// How many keys are asked for, one after the other.
const KEYS: usize = 1 << 14;
/// How many rounds there are; the quickest counts.
const ROUNDS: usize = 25;
/// How often the keys are walked in a round.
const WALKS: usize = 8;
/// Longer than any measurement.
const A_WHILE: Duration = Duration::from_secs(3_600);
/// Owners of a table.
const OWNERS: usize = 200;
/// The columns of the table.
const COLUMNS: [(&str, &str); 5] = [
    ("what", "/what"),
    ("ranges", "/ranges"),
    ("threads", "/threads"),
    ("ns", "/ns"),
    ("instructions", "/instructions"),
];
/// Operations whose instructions are counted.
const COUNTED: usize = 200_000;

#[derive(Args)]
pub(crate) struct HotPathArgs {
    #[command(flatten)]
    format: Format,
    /// Only run one operation so often, for a tool that counts instructions
    #[arg(long, hide = true, num_args = 3, value_names = ["WHAT", "RANGES", "TIMES"])]
    only: Option<Vec<String>>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum What {
    Lookup,
    CheckLeaseNow,
    /// Without samples of keys: what heavy keys cost.
    CheckLeaseNowUnsampled,
    /// With every check a sample, as below 20,000 checks a second.
    CheckLeaseNowAllSampled,
    /// Of ordered keys, whose samples also say where load lies.
    CheckLeaseNowOrdered,
    CheckLeaseContinuous,
    Clock,
    Hashring,
    ConsistentHash,
}

impl What {
    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

struct Line {
    what: What,
    ranges: usize,
    threads: usize,
    ns: f64,
    instructions: Option<u64>,
}

pub(crate) fn run(args: &HotPathArgs) -> Result<()> {
    if let Some(only) = &args.only {
        return run_only(only);
    }
    let mut lines = Vec::new();
    for ranges in RANGES {
        let subject = Subject::new(ranges);
        let all = What::value_variants();
        let instructions: Vec<_> = all.iter().map(|what| instructions(*what, ranges)).collect();
        for threads in THREADS {
            let measured = all.iter().zip(subject.measure(all, threads)).zip(&instructions);
            lines.extend(measured.map(|((what, ns), instructions)| {
                let (what, instructions) = (*what, *instructions);
                Line { what, ranges, threads, ns, instructions }
            }));
        }
    }
    let report = json!({ "rows": lines.iter().map(object).collect::<Vec<_>>(), "summary": summary(&lines) });
    args.format.print(&report, |report| {
        let rows = report["rows"].as_array().map_or(&[][..], Vec::as_slice);
        format!("{}\n{:#}", table_of(&COLUMNS, rows), report["summary"])
    });
    Ok(())
}

fn object(line: &Line) -> Value {
    json!({
        "what": line.what.name(),
        "ranges": line.ranges,
        "threads": line.threads,
        "ns": (line.ns * 10.0).round() / 10.0,
        "instructions": line.instructions,
    })
}

/// The ratios that matter, in percent, so that they can be compared from run to run.
fn summary(lines: &[Line]) -> Value {
    let ns = |what: What, ranges: usize, threads: usize| {
        let found = lines.iter().find(|l| l.what == what && l.ranges == ranges && l.threads == threads);
        found.map_or(f64::NAN, |line| line.ns)
    };
    let percent = |ratio: f64| (ratio * 100.0).round() as u64;
    let faster = |ranges| {
        let ring = ns(What::Hashring, ranges, 1).min(ns(What::ConsistentHash, ranges, 1));
        percent(ring / ns(What::Lookup, ranges, 1))
    };
    let sampled = |ranges, threads| {
        let (with, without) = (What::CheckLeaseNow, What::CheckLeaseNowUnsampled);
        percent(ns(with, ranges, threads) / ns(without, ranges, threads))
    };
    let ordered = |threads| {
        percent(ns(What::CheckLeaseNowOrdered, 12_800, threads) / ns(What::CheckLeaseNow, 12_800, threads))
    };
    json!({
        "fastest_ring_per_lookup_percent_12800": faster(12_800),
        "fastest_ring_per_lookup_percent_128000": faster(128_000),
        "lookup_rate_of_two_threads_percent": percent(2.0 * ns(What::Lookup, 12_800, 1) / ns(What::Lookup, 12_800, 2)),
        "check_lease_now_per_clock_percent": percent(ns(What::CheckLeaseNow, 12_800, 1) / ns(What::Clock, 12_800, 1)),
        "check_lease_now_sampled_per_unsampled_percent_12800": sampled(12_800, 1),
        "check_lease_now_sampled_per_unsampled_percent_12800_two_threads": sampled(12_800, 2),
        "check_lease_now_sampled_per_unsampled_percent_128000": sampled(128_000, 1),
        "check_lease_now_ordered_per_hashed_percent_12800": ordered(1),
        "check_lease_now_ordered_per_hashed_percent_12800_two_threads": ordered(2),
    })
}

/// Tables of one size, and keys to ask them for.
struct Subject {
    keys: Vec<(Key, Generation)>,
    routes: HotRoutes,
    leases: HotLeases,
    all_sampled: HotLeases,
    ordered: HotLeases,
    ordered_keys: Vec<OrderedKey>,
    hashring: hashring::HashRing<usize>,
    consistent: consistent_hash::StaticHashRing<'static, usize, (), consistent_hash::DefaultHash>,
}

impl Subject {
    fn new(ranges: usize) -> Subject {
        let table: Vec<(KeyRange, u64)> =
            (1..).zip(scattered(ranges)).map(|(number, range)| (range, number)).collect();
        let rows: Vec<(KeyRange, Row)> =
            table.iter().map(|(range, number)| (*range, routed(*number))).collect();
        let routes = HotRoutes::new();
        routes.publish(rows.iter().map(|(range, row)| (*range, row)));
        let evenly = || HotLeases::evenly(u32::try_from(ranges).unwrap_or(u32::MAX), A_WHILE);
        let (leases, all_sampled) = (evenly(), evenly().with_every_check_sampled());
        let (keys, ordered) = (keys(&leases), evenly().with_ordered_keys());
        let in_order = |(key, _): &(Key, Generation)| ordered.key_of(&key.0.to_be_bytes());
        let ordered_keys = keys.iter().map(in_order).collect::<Result<_, _>>().expect("any name is one");
        let mut hashring = hashring::HashRing::new();
        hashring.batch_add((0..ranges).collect());
        let nodes = (0..OWNERS).map(|owner| consistent_hash::Node::new(owner).quantity(ranges / OWNERS));
        Subject {
            keys,
            routes,
            leases,
            all_sampled,
            ordered_keys,
            ordered,
            hashring,
            consistent: consistent_hash::StaticHashRing::new(consistent_hash::DefaultHash, nodes),
        }
    }

    /// Nanoseconds for one operation of each kind on each of so many threads at once, in the quickest of several rounds. The
    /// kinds take turns, so that whatever else the machine does slows down all of them.
    fn measure(&self, all: &[What], threads: usize) -> Vec<f64> {
        let mut quickest = vec![f64::INFINITY; all.len()];
        for _ in 0..ROUNDS {
            for (quickest, what) in quickest.iter_mut().zip(all) {
                *quickest = quickest.min(self.round(*what, threads));
            }
        }
        quickest
    }

    fn round(&self, what: What, threads: usize) -> f64 {
        let barrier = Barrier::new(threads);
        let walk = || {
            self.walk(what, 1);
            barrier.wait();
            let began = Instant::now();
            self.walk(what, WALKS);
            began.elapsed()
        };
        let slowest = std::thread::scope(|scope| {
            let runs: Vec<_> = (0..threads).map(|_| scope.spawn(walk)).collect();
            runs.into_iter().map(|run| run.join().expect("a measurement does not panic")).max()
        });
        slowest.unwrap_or_default().as_nanos() as f64 / (KEYS * WALKS) as f64
    }

    fn walk(&self, what: What, walks: usize) {
        for _ in 0..walks {
            self.operate(what, &self.keys);
        }
    }

    /// One operation on each of the keys.
    fn operate(&self, what: What, keys: &[(Key, Generation)]) {
        match what {
            What::Lookup => each(keys, |key, _| self.routes.lookup(key)),
            // One call for both: the compiler would not inline an operation that has two callers.
            What::CheckLeaseNow | What::CheckLeaseNowAllSampled => {
                let leases = if what == What::CheckLeaseNow { &self.leases } else { &self.all_sampled };
                each(keys, |key, _| leases.check_lease_now(key));
            }
            What::CheckLeaseNowUnsampled => {
                each(keys, |key, _| self.leases.check_lease_now_unsampled(key));
            }
            What::CheckLeaseNowOrdered => {
                for key in &self.ordered_keys[..keys.len()] {
                    black_box(&self.ordered.check_ordered(black_box(*key)));
                }
            }
            What::CheckLeaseContinuous => {
                each(keys, |key, lease| self.leases.check_lease_continuous(key, lease));
            }
            What::Clock => each(keys, |_, _| clock::now()),
            What::Hashring => each(keys, |key, _| self.hashring.get(&key.0)),
            What::ConsistentHash => each(keys, |key, _| self.consistent.calc_candidates(&key.0).next()),
        }
    }
}

/// A loop of its own for each operation, so that little is measured beside it.
#[inline(always)]
fn each<T>(keys: &[(Key, Generation)], operation: impl Fn(Key, Generation) -> T) {
    for (key, lease) in keys {
        black_box(&operation(black_box(*key), *lease));
    }
}

/// So many ranges between boundaries that chance has placed, as the points of a ring are.
fn scattered(ranges: usize) -> impl Iterator<Item = KeyRange> {
    let point = |number: usize| Key::of(format!("point {number}").as_bytes());
    let mut firsts: Vec<Key> = (1..ranges).map(point).chain([Key::MIN]).collect();
    firsts.sort_unstable();
    let lasts: Vec<Key> = firsts.iter().skip(1).map(|next| Key(next.0 - 1)).chain([Key::MAX]).collect();
    firsts.into_iter().zip(lasts).map(|(first, last)| KeyRange::new(first, last).expect("in order"))
}

fn routed(number: u64) -> Row {
    let owner = number % OWNERS as u64;
    let url = format!("http://server-{owner}.example:8080").as_str().into();
    let session = SessionId(Nonce(u128::from(owner) + 1));
    Row {
        owner: Some(PublishedOwner { session, url }),
        generation: Generation(number),
        state_since: Generation(1),
        quarantined: false,
    }
}

/// Keys spread over the key space in no order that a processor could guess, each with the lease of its range.
fn keys(leases: &HotLeases) -> Vec<(Key, Generation)> {
    // Not with a check that is measured, for the same reason.
    let lease = |key: Key| leases.lease(key).map_or_else(|_| Generation::default(), |lease| lease.generation);
    (0..KEYS as u64).map(|number| Key::of(&number.to_le_bytes())).map(|key| (key, lease(key))).collect()
}

/// Instructions of one operation, counted by valgrind if it is there: what twice as many cost more.
fn instructions(what: What, ranges: usize) -> Option<u64> {
    let counted = |times: usize| {
        let itself = std::env::current_exe().ok()?;
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(itself)
            .args(["hot-path", "--only", &what.name(), &ranges.to_string(), &times.to_string()])
            .stdin(Stdio::null())
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = text.lines().find(|line| line.contains("Collected"))?;
        line.rsplit(' ').next()?.parse::<u64>().ok()
    };
    let (once, twice) = (counted(COUNTED)?, counted(2 * COUNTED)?);
    Some(twice.saturating_sub(once) / COUNTED as u64)
}

fn run_only(only: &[String]) -> Result<()> {
    let wrong = || Failure::from("--only wants what, how many ranges and how often");
    let [what, ranges, times] = only else { return Err(wrong()) };
    let what = What::from_str(what, false).map_err(|_| wrong())?;
    let subject = Subject::new(ranges.parse().map_err(|_| wrong())?);
    let times: usize = times.parse().map_err(|_| wrong())?;
    for _ in 0..times / KEYS {
        subject.operate(what, &subject.keys);
    }
    subject.operate(what, &subject.keys[..times % KEYS]);
    Ok(())
}
