//! `failover`: the leader is ended under load, again and again, and nobody loses anything.

use std::error::Error;
use std::io;
use std::time::Duration;

use centrifuge_core::settings::Drift;
use centrifuge_harness::samples::{Percentiles, Samples};
use centrifuge_harness::wait::poll;
use centrifuge_harness::{Rng, StoreKind};
use centrifuge_server::config::{ConfigArgs, EtcdArgs};
use centrifuge_server::store::{PeerKey, PeerOptions};
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::{Value, json};

use crate::checker;
use crate::lines::{HarnessLine, Nanos, true_now};
use crate::observer::Observer;
use crate::plan::{Sizes, Times, World};
use crate::pool::{Node, Part, Pool, PoolPlan, Return};
use crate::run::PlaceArgs;
use crate::run_environment::{Outcome, RunEnvironment, conduct};

/// How long a new leader may take before the run is given up.
const LEADER_TIMEOUT: Duration = Duration::from_secs(60);
/// How many Lookups one process has.
const FLEET_SIZE: u32 = 500;
/// How often the Managers are asked how many watch them. What comes within this time is not told apart.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// How often the harness looks.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// What can be asked.
#[derive(Args, Clone, Debug)]
pub(crate) struct FailoverArgs {
    /// How often the leader is ended
    #[arg(long, default_value_t = 50)]
    times: u32,
    /// How it is ended: by SIGKILL, as a crash would, or by SIGTERM, as an upgrade would, so that it resigns
    #[arg(long, value_enum, default_value = "kill")]
    end: Ending,
    /// How many more Lookups watch the pool, in processes of five hundred, and must find the next leader
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=4_500))]
    lookups: u32,
    /// The leader lease; the Manager's default unless given
    #[arg(long, value_name = "DURATION")]
    leader_lease: Option<String>,
    /// How often standbys try; the Manager's default unless given
    #[arg(long, value_name = "DURATION")]
    campaign_interval: Option<String>,
    /// What pauses are drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    place: PlaceArgs,
}

/// How a leader is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Ending {
    Kill,
    Term,
}

/// When a new leader first answered an Owner, when it had answered all, and when every Lookup watched it.
#[derive(Clone, Copy, Debug)]
struct Round {
    first: Nanos,
    last: Nanos,
    watched: Option<Nanos>,
}

/// Runs, prints, and says whether all was good.
pub(crate) fn run(args: &FailoverArgs) -> Result<bool, Box<dyn Error>> {
    conduct(&args.place, async |environment| perform(args, environment).await)
}

/// The pool whose leader is ended.
fn plan(args: &FailoverArgs, environment: &RunEnvironment) -> Result<PoolPlan, Box<dyn Error>> {
    let sizes = Sizes {
        owners: 6,
        callers: 4,
        lookup_fleets: u8::try_from(args.lookups.div_ceil(FLEET_SIZE))?,
        keys: 96,
        ..args.place.leaders(args.place.store)
    };
    // Fleets have what the Manager gives by default: news when there is some, and a sign of life now and then.
    let heartbeat = if args.lookups > 0 { Duration::from_secs(5) } else { Times::LASTING.heartbeat };
    let world = if args.place.store == StoreKind::None { World::Diskless } else { World::Managers };
    let leadership = [("leader-lease", &args.leader_lease), ("campaign-interval", &args.campaign_interval)];
    let leadership = leadership.into_iter().filter_map(|(name, time)| Some((name, time.clone()?)));
    Ok(PoolPlan {
        sizes,
        times: Times { heartbeat, ..Times::LASTING },
        store: args.place.store,
        leadership: leadership.collect(),
        lookups_each: args.lookups.checked_div(u32::from(sizes.lookup_fleets)).unwrap_or(0),
        ..PoolPlan::new(environment, world, args.seed)
    })
}

async fn perform(args: &FailoverArgs, environment: &RunEnvironment) -> Result<Outcome, Box<dyn Error>> {
    let leader_lease = leader_lease(args)?;
    let mut rng = Rng::new(args.seed);
    let mut pool = Pool::start(plan(args, environment)?, rng.fork()).await?;
    let observe = || Observer::start(pool.metrics(), None, SAMPLE_INTERVAL, environment.directory());
    let fleet = (args.lookups > 0).then(observe).transpose()?;
    if let Some(fleet) = &fleet {
        all_watch(&mut pool, fleet, 0).await?;
    }
    // Callers that connect now have seen the first moves; what comes after is ours.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let since = true_now();
    let mut rounds = Vec::new();
    for number in 1..=args.times {
        let round = change_leader(&mut pool, &mut rng, args.end, fleet.as_ref()).await?;
        let millis = |time: Nanos| time / 1_000_000;
        eprintln!(
            "{number}: the first renewal was answered after {} ms, every Owner's after {} ms",
            millis(round.first),
            millis(round.last)
        );
        if let Some(watched) = round.watched {
            eprintln!("   every Lookup watched the next leader after {} ms", millis(watched));
        }
        rounds.push(round);
    }
    let gathered = fleet.map(|fleet| {
        let [leader, any] = fleet.most_since(since);
        json!({
            "lookups": lookups(&pool),
            "all_watch_ms": percentiles(rounds.iter().filter_map(|round| round.watched)),
            "most_requests": { "leader": leader, "any_manager": any },
        })
    });
    pool.note(HarnessLine::Calm { at: true_now() })?;
    tokio::time::sleep(pool.plan.times.unowned_delay + Duration::from_secs(4)).await;
    pool.end().await?;
    let (leases_lost, notices) = checker::changes_since(environment.directory(), since)?;
    let verdict = checker::check(environment.directory())?;
    let mut json = json!({
        "store": args.place.store,
        "times": args.times,
        "end": args.end,
        "leader_lease_ms": u64::try_from(leader_lease.as_millis())?,
        "first_renewal_ms": percentiles(rounds.iter().map(|round| round.first)),
        "all_renewed_ms": percentiles(rounds.iter().map(|round| round.last)),
        "leases_lost": leases_lost,
        "false_losses": notices,
        "violations": verdict.violations.len(),
        "checks": verdict.checks,
        "replies": verdict.replies,
        "details": verdict.violations,
    });
    if let (Some(json), Some(Value::Object(gathered))) = (json.as_object_mut(), gathered) {
        json.extend(gathered);
    }
    let is_good = leases_lost == 0 && notices == 0 && verdict.violations.is_empty();
    Ok(Outcome { is_good, words: words(&json), json })
}

fn words(json: &Value) -> String {
    let text = |name: &str| json[name].as_str().unwrap_or_default();
    let times = |name: &str| {
        let times = &json[name];
        format!("p50 {} ms, p99 {} ms, longest {} ms", times["p50"], times["p99"], times["max"])
    };
    let mut words = format!(
        "failover: the leader was ended by SIG{} {} times on store {}, {} requests were answered meanwhile\n\
         first renewal answered by the next leader: {}; the leader lease is {} ms\n\
         every Owner's renewal answered: {}\n\
         leases lost: {}\nfalse losses: {}\nviolations: {}\n",
        text("end").to_uppercase(),
        json["times"],
        text("store"),
        json["replies"],
        times("first_renewal_ms"),
        json["leader_lease_ms"],
        times("all_renewed_ms"),
        json["leases_lost"],
        json["false_losses"],
        json["violations"],
    );
    if let (Some(lookups), most) = (json.get("lookups"), &json["most_requests"]) {
        let at_most = |time: &str| {
            format!(
                "a leader had at most {}, any Manager {}",
                most["leader"][time], most["any_manager"][time]
            )
        };
        words.push_str(&format!(
            "all of {lookups} Lookups watched the next leader: {}\n\
             requests to watch in 100 ms: {}; in a second {}\n",
            times("all_watch_ms"),
            at_most("in_100_ms"),
            at_most("in_1_s"),
        ));
    }
    for sentence in json["details"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        words.push_str(&format!("  {sentence}\n"));
    }
    words
}

/// In milliseconds.
fn percentiles(times: impl Iterator<Item = Nanos>) -> Percentiles {
    times.map(Duration::from_nanos).collect::<Samples>().percentiles(Duration::from_millis(1))
}

/// What the Managers make of the settings.
fn leader_lease(args: &FailoverArgs) -> Result<Duration, Box<dyn Error>> {
    if args.place.store == StoreKind::None {
        return Ok(usual_peer().election().leader_lease(Drift::default()));
    }
    let is_etcd = args.place.store == StoreKind::Etcd;
    let etcd_endpoints = is_etcd.then(|| "http://127.0.0.1:2379".to_owned());
    let wanted = ConfigArgs {
        store: is_etcd.then(|| "etcd".into()),
        etcd: EtcdArgs { etcd_endpoints, ..EtcdArgs::default() },
        leader_lease: args.leader_lease.clone(),
        campaign_interval: args.campaign_interval.clone(),
        ..ConfigArgs::default()
    };
    Ok(wanted.resolve()?.leader_lease)
}

/// A Manager without a store that has the usual times.
fn usual_peer() -> PeerOptions {
    let peers = "1=127.0.0.1:1,2=127.0.0.1:2,3=127.0.0.1:3".parse().expect("a list of peers");
    PeerOptions::new(peers, 1, PeerKey::new(b"no secret at all").expect("long enough"))
}

/// Ends the leader, and says how long it took until another answered renewals.
async fn change_leader(
    pool: &mut Pool,
    rng: &mut Rng,
    end: Ending,
    fleet: Option<&Observer>,
) -> Result<Round, Box<dyn Error>> {
    let (leader, term) = find_leader(pool).await?;
    // So that the end meets every phase of renewals.
    tokio::time::sleep(rng.between(Duration::ZERO, Duration::from_secs(1))).await;
    let victims =
        if end == Ending::Kill { victims(pool, leader, rng) } else { vec![Part::Manager.node(leader)] };
    let ended_at = true_now();
    for node in &victims {
        match end {
            Ending::Kill => pool.kill(*node)?,
            Ending::Term => pool.ask_to_leave(*node, Return::Never)?,
        }
    }
    if pool.plan.sizes.managers == 1 {
        start_again(pool, &victims).await?;
        renewals_after(pool, term, true).await?;
    } else {
        renewals_after(pool, term, true).await?;
        start_again(pool, &victims).await?;
    }
    // Every Owner has its leases renewed before the next end, and every Lookup has found the leader.
    let round = renewals_after(pool, term, false).await?;
    let watched = match fleet {
        Some(fleet) => Some(all_watch(pool, fleet, term).await?),
        None => None,
    };
    if !pool.operator.comes_to_rest(pool.plan.sizes.owners, LEADER_TIMEOUT).await {
        return Err("the pool did not come to rest after a change of leaders".into());
    }
    if pool.plan.store == StoreKind::None {
        // The next end finds a majority: whoever was started again takes part.
        tokio::time::sleep(usual_peer().election().flease.recovery).await;
    }
    let waited = |at: Nanos| at.saturating_sub(ended_at);
    Ok(Round { first: waited(round.first), last: waited(round.last), watched: watched.map(waited) })
}

/// Starts the next lives of processes, when nothing is left of the ones before.
async fn start_again(pool: &mut Pool, nodes: &[Node]) -> Result<(), Box<dyn Error>> {
    for node in nodes {
        let late = || format!("{node} did not end within {LEADER_TIMEOUT:?} after it was told to");
        observe(pool, |pool| pool.running_life(*node).is_none().then_some(())).await?.ok_or_else(late)?;
        pool.start_process(*node)?;
    }
    Ok(())
}

/// How many Lookups there are, beside the callers'.
fn lookups(pool: &Pool) -> u32 {
    u32::from(pool.plan.sizes.lookup_fleets) * pool.plan.lookups_each
}

/// When every Lookup was first seen to watch a leader of a later term. The callers' are among them.
async fn all_watch(pool: &mut Pool, fleet: &Observer, term: u64) -> Result<Nanos, Box<dyn Error>> {
    let wanted = u64::from(lookups(pool)) + u64::from(pool.plan.sizes.callers);
    let late = || format!("not all of {wanted} Lookups watched the leader within {LEADER_TIMEOUT:?}");
    observe(pool, |_| fleet.gathered(term, wanted)).await?.ok_or_else(|| late().into())
}

/// The leader, and with five nodes of etcd its machine and another one.
fn victims(pool: &Pool, leader: u8, rng: &mut Rng) -> Vec<Node> {
    let mut victims = vec![Part::Manager.node(leader)];
    let etcd = pool.plan.sizes.etcd;
    if etcd >= 5 {
        let other = rng.pick((0..etcd).filter(|index| *index != leader).collect());
        victims.push(Part::Etcd.node(leader));
        victims.extend(other.map(|index| Part::Etcd.node(index)));
        let manager = other.filter(|index| *index < pool.plan.sizes.managers);
        victims.extend(manager.map(|index| Part::Manager.node(index)));
    }
    victims
}

async fn find_leader(pool: &Pool) -> Result<(u8, u64), Box<dyn Error>> {
    let leader = poll(POLL_INTERVAL, LEADER_TIMEOUT, async || pool.operator.leader().await).await;
    leader.ok_or_else(|| "no Manager leads".into())
}

/// When the first Owner was answered by a later leader, and when the last one was.
async fn renewals_after(pool: &mut Pool, term: u64, first_only: bool) -> Result<Round, Box<dyn Error>> {
    let wanted = if first_only { 1 } else { usize::from(pool.plan.sizes.owners) };
    let round = |pool: &Pool| {
        let answers = pool.renewals().after(term);
        let (first, last) = (*answers.iter().min()?, *answers.iter().max()?);
        (answers.len() >= wanted).then_some(Round { first, last, watched: None })
    };
    let late = || format!("renewals were not answered within {LEADER_TIMEOUT:?} after the leader was ended");
    observe(pool, round).await?.ok_or_else(|| late().into())
}

/// Looks again and again until `look` finds something, or for too long; starts what ends meanwhile.
async fn observe<T>(pool: &mut Pool, look: impl Fn(&Pool) -> Option<T>) -> io::Result<Option<T>> {
    let found = async || look(pool).map(Ok).or_else(|| pool.revive().err().map(Err));
    poll(POLL_INTERVAL, LEADER_TIMEOUT, found).await.transpose()
}
