//! The death of a rack (PRS §7.2, figure 9): a fifth of the servers is killed at once, and comes back when the
//! old leases are over.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use centrifuge::{Key, Lookup};
use centrifuge_core::range_set::RangeSet;
use centrifuge_examples::Result;
use centrifuge_harness::{Samples, Service, StoreKind};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::load::{Begun, Person, Reading, Station, quantile_ms};
use super::report::{Setup, Verdict, print_json, table};
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

/// Who was told of what, and what was made of it.
#[derive(Clone, Copy, Debug, Default)]
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
pub async fn rack(args: EvalArgs) -> Result<()> {
    let mut bench = Bench::start(&args, SERVERS, StoreKind::File).await?;
    say(&format!("measuring for {:?} while all is well", args.each));
    bench.turn_to("normal").await?;
    tokio::time::sleep(args.each).await;
    let course = reset(&mut bench, &args).await?;
    say(&format!("measuring for {:?} when all is well again", args.each));
    bench.turn_to("after").await?;
    tokio::time::sleep(args.each).await;
    bench.finish().await?;
    conclude(&args, &bench, &course)
}

async fn reset(bench: &mut Bench, args: &EvalArgs) -> Result<Course> {
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
            Err(
                centrifuge::NoOwner::Unowned { range, .. } | centrifuge::NoOwner::Quarantined { range, .. },
            ) => next = range.last().next(),
            Err(centrifuge::NoOwner::NoTable | centrifuge::NoOwner::Replaced) => next = None,
        }
    }
    ranges
}

async fn kill(servers: Vec<Service>) -> Result<()> {
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

/// How long until users could be found again.
fn whole_since(begin: Instant, whole_at: impl Iterator<Item = Instant>) -> Samples {
    whole_at.map(|at| at.saturating_duration_since(begin)).collect()
}

fn conclude(args: &EvalArgs, bench: &Bench, course: &Course) -> Result<()> {
    let Bench { setup, load, phases, .. } = bench;
    let telling = Telling::of(bench, course);
    let never_found = course.lost.len() - course.whole_at.len();
    let mut verdict = Verdict::default();
    verdict.no_failures_in(phases);
    verdict.must(never_found == 0, format!("{never_found} lost users were not found again"));
    judge(&mut verdict, load.stations().len(), course.lost.len(), telling);

    let late: Vec<Instant> = course.whole_at.iter().copied().filter(|at| *at > course.back_at).collect();
    let whole = whole_since(course.killed_at, course.whole_at.iter().copied());
    let whole_late = whole_since(course.back_at, late.iter().copied());
    let cdf = |whole: &Samples| SHARES.map(|share| (share, quantile_ms(whole, share)));
    let readings = [&whole, &whole_late].map(|whole| {
        let mut reading = json!(Reading::of(whole));
        reading["cdf"] = json!(cdf(whole));
        reading
    });
    let operations = SHARES.map(|share| {
        let [normal, down, back] = [0, 1, 2].map(|phase: usize| quantile_ms(&phases[phase].took, share));
        json!({ "share": share, "normal_ms": normal, "down_ms": down, "back_ms": back })
    });
    let report = json!({
        "evaluation": "rack",
        "killed": setup.servers.div_ceil(PART),
        "back_after_kill_ms": (course.back_at - course.killed_at).as_secs_f64() * 1000.0,
        "lost_users": course.lost.len(),
        "frontends_told_all": telling.frontends_told_all,
        "frontends_told_falsely": telling.frontends_told_falsely,
        "republished_users": telling.republished_users,
        "not_republished": telling.not_republished,
        "republished_falsely": telling.republished_falsely,
        "never_found": never_found,
        "whole_from_kill": readings[0],
        "whole_before_return": course.whole_at.len() - late.len(),
        "whole_from_return": readings[1],
        "operations": operations,
    });
    table(setup, phases);
    print(&report, setup);
    if args.json {
        print_json(report, setup, phases, verdict.failures.is_empty())?;
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

fn print(report: &Value, setup: &Setup) {
    let seconds = |value: &Value| value.as_f64().unwrap_or_default() / 1000.0;
    println!(
        "\n{} of {} servers died with {} users; back after {:.1} s",
        report["killed"],
        setup.servers,
        report["lost_users"],
        seconds(&report["back_after_kill_ms"])
    );
    println!(
        "{} of {} frontends were told of every lost key, {} of others; {} users were published again",
        report["frontends_told_all"],
        setup.frontends,
        report["frontends_told_falsely"],
        report["republished_users"]
    );
    let [p50, p90, p99, last] =
        ["p50_ms", "p90_ms", "p99_ms", "max_ms"].map(|name| seconds(&report["whole_from_kill"][name]));
    println!(
        "found again after the kill: p50 {p50:.2} s, p90 {p90:.2} s, p99 {p99:.2} s, last {last:.2} s, with leases of {:.0} s",
        setup.lease_ms as f64 / 1000.0
    );
    println!(
        "{} of them before the servers were back; the last {:.2} s after that\n",
        report["whole_before_return"],
        seconds(&report["whole_from_return"]["max_ms"])
    );
    println!(" share  found again s  normal ms    down ms    back ms");
    for (place, share) in SHARES.iter().enumerate() {
        let found = seconds(&report["whole_from_kill"]["cdf"][place][1]);
        let [normal, down, back] = ["normal_ms", "down_ms", "back_ms"]
            .map(|name| report["operations"][place][name].as_f64().unwrap_or_default());
        println!("{share:6} {found:14.2} {normal:10.2} {down:10.2} {back:10.2}");
    }
}
