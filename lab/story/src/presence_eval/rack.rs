//! The death of a rack (PRS §7.2, figure 9): a fifth of the servers is killed at once, and comes back when the
//! old leases are over.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use centrifuge::{Key, Lookup};
use centrifuge_core::range_set::RangeSet;
use centrifuge_examples::Failure;
use centrifuge_harness::{Service, StoreKind};
use serde::Serialize;
use tokio::task::JoinSet;

use super::load::{Begun, Distribution, Person, Reading, Station};
use super::report::{Phase, Setup, Verdict, table};
use super::{Bench, EvalArgs, at_rest, say, serve};

/// As many servers as the evaluation has unless told otherwise.
const SERVERS: usize = 20;
/// One of so many is killed.
const PART: usize = 5;
/// How long until a lost key is read again.
const PROBE: Duration = Duration::from_millis(20);
/// How long after their leases' end lost users are waited for.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(90);
/// The shares of a distribution that are printed.
const SHARES: [f64; 12] = [0.05, 0.1, 0.25, 0.5, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99, 0.999, 1.0];

#[derive(Serialize)]
struct Rack {
    evaluation: &'static str,
    #[serde(flatten)]
    setup: Setup,
    killed: usize,
    phases: Vec<Phase>,
    back_after_kill_ms: f64,
    lost_users: usize,
    #[serde(flatten)]
    telling: Telling,
    never_found: usize,
    whole_from_kill: Whole,
    whole_before_return: usize,
    whole_from_return: Whole,
    operations: Vec<Operations>,
    failed_after_retry: u64,
    wrong: u64,
    passed: bool,
}

/// Who was told of what, and what was made of it.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Telling {
    /// Frontends that were told of every key that was on the dead servers.
    frontends_told_all: usize,
    /// Frontends that were told of keys that were not.
    frontends_told_falsely: usize,
    /// Lost users whose frontend published them again.
    republished_users: usize,
    /// Lost users whose frontend did not.
    not_republished: usize,
    /// Users who were published again and were not lost.
    republished_falsely: usize,
}

/// How long until users could be found again.
#[derive(Serialize)]
struct Whole {
    #[serde(flatten)]
    reading: Reading,
    cdf: Vec<(f64, f64)>,
}

/// How long a share of the requests of each phase took at most.
#[derive(Serialize)]
struct Operations {
    share: f64,
    normal_ms: f64,
    down_ms: f64,
    back_ms: f64,
}

/// A user whose state died.
struct Lost {
    station: Arc<Station>,
    person: Arc<Person>,
    begun: Begun,
}

/// What happened when.
struct Course {
    dead: RangeSet,
    lost: Vec<(Arc<Station>, Arc<Person>)>,
    killed_at: Instant,
    back_at: Instant,
    whole_at: Vec<Instant>,
}

/// Kills a fifth of the servers, and fails if something that was lost was not told to every frontend or not
/// published again.
pub async fn rack(args: EvalArgs) -> Result<(), Failure> {
    let mut bench = Bench::start(&args, SERVERS, StoreKind::File).await?;
    say(&format!("measuring for {:?} while all is well", args.each));
    bench.turn_to("normal").await?;
    tokio::time::sleep(args.each).await;
    let course = reset(&mut bench, &args).await?;
    say(&format!("measuring for {:?} when all is well again", args.each));
    bench.turn_to("after").await?;
    tokio::time::sleep(args.each).await;
    let phases = bench.finish().await?;
    conclude(&args, &bench, phases, &course)
}

async fn reset(bench: &mut Bench, args: &EvalArgs) -> Result<Course, Failure> {
    let count = bench.servers.len();
    let dying = bench.servers.split_off(count - count.div_ceil(PART));
    let names: Vec<String> = dying.iter().map(|server| server.name().to_owned()).collect();
    at_rest(&bench.cluster, count).await?;
    bench.turn_to("down").await?;
    let urls: BTreeSet<String> = dying.iter().map(|server| server.address().to_owned()).collect();
    let dead = ranges_of(bench.load.stations()[0].frontend().pool().lookup(), &urls);
    let killed_at = Instant::now();
    kill(dying).await?;
    let lost = lost_users(bench.load.stations(), &dead);
    say(&format!("killed {} servers with {} users", names.len(), lost.len()));
    let owners = lost.iter().map(|lost| (Arc::clone(&lost.station), Arc::clone(&lost.person))).collect();
    // Nobody can have the old leases any more by then.
    let over_at = killed_at + args.lease + args.lease / 10;
    let within = |lost| tokio::time::timeout_at((over_at + RECOVERY_TIMEOUT).into(), whole_again(lost));
    let mut probes: JoinSet<_> = lost.into_iter().map(within).collect();
    tokio::time::sleep_until(over_at.into()).await;
    bench.turn_to("back").await?;
    let back_at = Instant::now();
    for name in &names {
        bench.servers.push(serve(&bench.cluster, name).await?);
    }
    say("the servers are back; waiting until every user is");
    let mut whole_at = Vec::new();
    while let Some(at) = probes.join_next().await {
        whole_at.extend(at?.ok());
    }
    at_rest(&bench.cluster, count).await?;
    Ok(Course { dead, lost: owners, killed_at, back_at, whole_at })
}

/// Every key that servers at these addresses own.
fn ranges_of(lookup: &Lookup, urls: &BTreeSet<String>) -> RangeSet {
    let mut ranges = RangeSet::new();
    let mut next = Some(Key::MIN);
    while let Some(key) = next {
        match lookup.lookup(key) {
            Ok(route) => {
                if urls.contains(route.url()) {
                    ranges.insert(route.range());
                }
                next = route.range().last().next();
            }
            Err(centrifuge::NoOwner::Unowned { range, .. }) => next = range.last().next(),
            Err(centrifuge::NoOwner::NoTable) => next = None,
        }
    }
    ranges
}

async fn kill(servers: Vec<Service>) -> Result<(), Failure> {
    let mut kills: JoinSet<_> = servers.into_iter().map(Service::kill).collect();
    while let Some(killed) = kills.join_next().await {
        killed??;
    }
    Ok(())
}

fn lost_users(stations: &[Arc<Station>], dead: &RangeSet) -> Vec<Lost> {
    let users = |station: &Arc<Station>| {
        let station = Arc::clone(station);
        station.people().into_iter().map(move |person| (Arc::clone(&station), person))
    };
    stations
        .iter()
        .flat_map(users)
        .filter(|(_, person)| dead.contains(Key::of(person.name.as_bytes())))
        .map(|(station, person)| Lost { begun: person.begin(station.frontend()), station, person })
        .collect()
}

/// When a user's frontend finds again what the user had published when the servers died, or something newer.
async fn whole_again(lost: Lost) -> Instant {
    let Lost { station, person, begun } = lost;
    loop {
        let read = station.frontend().read(&person.name).await;
        if read.is_ok_and(|(found, _)| person.fits(begun, found.as_ref())) {
            return Instant::now();
        }
        tokio::time::sleep(PROBE).await;
    }
}

impl Telling {
    fn of(bench: &Bench, course: &Course) -> Telling {
        let stations = bench.load.stations();
        let told: Vec<RangeSet> = stations.iter().map(|station| station.told()).collect();
        let again = |station: &Station, person: &Person| {
            station
                .frontend()
                .publications()
                .standing(&person.name)
                .is_some_and(|standing| standing.again > 0)
        };
        let republished_users = course.lost.iter().filter(|(station, person)| again(station, person)).count();
        let is_spared = |person: &Person| !course.dead.contains(Key::of(person.name.as_bytes()));
        let falsely = |station: &Arc<Station>| {
            let people = station.people();
            people.iter().filter(|person| is_spared(person) && again(station, person)).count()
        };
        Telling {
            frontends_told_all: told.iter().filter(|told| course.dead.difference(told).is_empty()).count(),
            frontends_told_falsely: told
                .iter()
                .filter(|told| !told.difference(&course.dead).is_empty())
                .count(),
            republished_users,
            not_republished: course.lost.len() - republished_users,
            republished_falsely: stations.iter().map(falsely).sum(),
        }
    }
}

impl Whole {
    fn since(begin: Instant, whole_at: impl Iterator<Item = Instant>) -> Result<Whole, Failure> {
        let mut took = Distribution::new()?;
        whole_at.for_each(|at| took.add(at.saturating_duration_since(begin)));
        let cdf = SHARES.map(|share| (share, took.quantile_ms(share))).to_vec();
        Ok(Whole { reading: took.reading(), cdf })
    }
}

fn conclude(args: &EvalArgs, bench: &Bench, phases: Vec<Phase>, course: &Course) -> Result<(), Failure> {
    let telling = Telling::of(bench, course);
    let latencies = [0, 1, 2].map(|phase| &bench.phases[phase].measured);
    let operations = SHARES.map(|share| {
        let [normal_ms, down_ms, back_ms] =
            latencies.map(|phase| phase.latency(|latency| latency.quantile_ms(share)));
        Operations { share, normal_ms, down_ms, back_ms }
    });
    let all = course.whole_at.iter().copied();
    let late = all.clone().filter(|at| *at > course.back_at);
    let whole_before_return = course.whole_at.len() - late.clone().count();
    let mut verdict = Verdict::default();
    let never_found = course.lost.len() - course.whole_at.len();
    verdict.no_failures_in(&phases);
    verdict.must(never_found == 0, format!("{never_found} lost users were not found again"));
    judge(&mut verdict, bench.load.stations().len(), course.lost.len(), telling);
    let report = Rack {
        evaluation: "rack",
        setup: bench.setup.clone(),
        killed: bench.setup.servers.div_ceil(PART),
        back_after_kill_ms: (course.back_at - course.killed_at).as_secs_f64() * 1000.0,
        lost_users: course.lost.len(),
        telling,
        never_found,
        whole_from_kill: Whole::since(course.killed_at, all)?,
        whole_before_return,
        whole_from_return: Whole::since(course.back_at, late)?,
        operations: operations.into(),
        failed_after_retry: phases.iter().map(|phase| phase.counts.failed_after_retry).sum(),
        wrong: phases.iter().map(|phase| phase.counts.wrong).sum(),
        passed: verdict.failures.is_empty(),
        phases,
    };
    print(&report);
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    }
    verdict.conclude()
}

fn judge(verdict: &mut Verdict, frontends: usize, lost_users: usize, telling: Telling) {
    let Telling { frontends_told_all, frontends_told_falsely, not_republished, republished_falsely, .. } =
        telling;
    verdict.must(lost_users > 0, "no user was lost: there are too few");
    verdict.must(
        frontends_told_all == frontends,
        format!("{} frontends were not told of every lost key", frontends - frontends_told_all),
    );
    verdict.must(
        frontends_told_falsely == 0,
        format!("{frontends_told_falsely} frontends were told of keys that were not lost"),
    );
    verdict.must(not_republished == 0, format!("{not_republished} lost users were not published again"));
    verdict.must(
        republished_falsely == 0,
        format!("{republished_falsely} users were published again without a reason"),
    );
}

fn print(report: &Rack) {
    table(&report.setup, &report.phases);
    let Telling { frontends_told_all, frontends_told_falsely, republished_users, .. } = report.telling;
    println!();
    println!(
        "{} of {} servers died with {} users; back after {:.1} s",
        report.killed,
        report.setup.servers,
        report.lost_users,
        report.back_after_kill_ms / 1000.0
    );
    println!(
        "{frontends_told_all} of {} frontends were told of every lost key, {frontends_told_falsely} of others; {republished_users} users were published again",
        report.setup.frontends
    );
    let Whole { reading, .. } = &report.whole_from_kill;
    println!(
        "found again after the kill: p50 {:.2} s, p90 {:.2} s, p99 {:.2} s, last {:.2} s, with leases of {:.0} s",
        reading.p50_ms / 1000.0,
        reading.p90_ms / 1000.0,
        reading.p99_ms / 1000.0,
        reading.max_ms / 1000.0,
        report.setup.lease_ms as f64 / 1000.0
    );
    println!(
        "{} of them before the servers were back; the last {:.2} s after that",
        report.whole_before_return,
        report.whole_from_return.reading.max_ms / 1000.0
    );
    println!();
    println!(
        "{:>6} {:>14} {:>10} {:>10} {:>10}",
        "share", "found again s", "normal ms", "down ms", "back ms"
    );
    for ((share, whole_ms), operations) in report.whole_from_kill.cdf.iter().zip(&report.operations) {
        println!(
            "{share:6} {:14.2} {:10.2} {:10.2} {:10.2}",
            whole_ms / 1000.0,
            operations.normal_ms,
            operations.down_ms,
            operations.back_ms
        );
    }
}
