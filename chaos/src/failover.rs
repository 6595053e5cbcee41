//! `failover`: the leader is killed under load, again and again, and nobody loses anything.

use std::error::Error;
use std::time::Duration;

use centrifuge_core::random::Random;
use centrifuge_server::config::{Config, ConfigArgs, EtcdArgs};
use clap::Args;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::checker::{self, Percentiles};
use crate::dice::Dice;
use crate::lines::{HarnessLine, Nanos, true_now};
use crate::plan::{Sizes, StoreKind, Times};
use crate::pool::{Node, Pool, PoolPlan};
use crate::proxy::Weather;
use crate::report::percentiles;
use crate::run::PlaceArgs;
use crate::shelter::{Place, Shelter};

/// How long a new leader may take before the run is given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the harness looks.
const LOOK: Duration = Duration::from_millis(5);

/// What can be asked.
#[derive(Args, Clone, Debug)]
pub(crate) struct FailoverArgs {
    /// Where the Managers keep their table; on a file there is one Manager, which is started again
    #[arg(long, value_enum, default_value = "etcd")]
    store: StoreKind,
    /// How often the leader is killed
    #[arg(long, default_value_t = 50)]
    times: u32,
    /// How many nodes of etcd; with five, another machine is killed together with the leader's
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    etcd: u8,
    /// How many Managers; one on a file
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    managers: u8,
    /// The leader lease; the Manager's default unless given
    #[arg(long, value_name = "DURATION")]
    leader_lease: Option<String>,
    /// How often standbys try; the Manager's default unless given
    #[arg(long, value_name = "DURATION")]
    campaign_interval: Option<String>,
    /// What pauses are drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one line of JSON instead of a report
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: PlaceArgs,
}

/// When a new leader first answered an Owner, and when it had answered all.
#[derive(Clone, Copy, Debug)]
struct Round {
    first: Nanos,
    last: Nanos,
}

/// What was measured.
struct Outcome {
    store: StoreKind,
    times: u32,
    leader_lease: Duration,
    first_renewal: Percentiles,
    all_renewed: Percentiles,
    leases_lost: u64,
    notices: u64,
    verdict: checker::Verdict,
}

/// Runs, prints, and says whether all was good.
pub(crate) fn run(args: &FailoverArgs) -> Result<bool, Box<dyn Error>> {
    let shelter = match Shelter::find(&args.place)? {
        Place::Here(shelter) => shelter,
        Place::Done(is_good) => return Ok(is_good),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = match runtime.block_on(perform(args, &shelter)) {
        Ok(outcome) => outcome,
        Err(error) => return Err(shelter.failed(error)),
    };
    let is_good = outcome.is_good();
    let kept = shelter.close(is_good);
    if args.json {
        println!("{}", outcome.json());
    } else {
        print!("{}", outcome.words());
    }
    if let Some(kept) = kept {
        eprintln!("journals and logs: {}", kept.display());
    }
    Ok(is_good)
}

async fn perform(args: &FailoverArgs, shelter: &Shelter) -> Result<Outcome, Box<dyn Error>> {
    let is_file = args.store == StoreKind::File;
    let sizes = Sizes {
        etcd: if is_file { 0 } else { args.etcd },
        managers: if is_file { 1 } else { args.managers },
        owners: 6,
        callers: 4,
        keys: 96,
    };
    let plan = PoolPlan {
        sizes,
        times: Times::LASTING,
        store: args.store,
        is_loopback: shelter.is_loopback,
        id: shelter.id,
        directory: shelter.directory().to_owned(),
        plant: None,
        is_skewed: false,
        weather: Weather::CLEAR,
        leader_lease: args.leader_lease.clone(),
        campaign_interval: args.campaign_interval.clone(),
        other_build: None,
        is_direct: false,
    };
    let leader_lease = config(args)?.leader_lease;
    let mut dice = Dice::new(Random::from_number(args.seed));
    let mut pool = Pool::start(plan, Dice::new(dice.fork())).await?;
    // Callers that connect now have seen the first moves; what comes after is ours.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let since = true_now();
    let mut rounds = Vec::new();
    for number in 1..=args.times {
        let round = change_leader(&mut pool, &mut dice).await?;
        let millis = |time: Nanos| time / 1_000_000;
        eprintln!(
            "{number}: the first renewal was answered after {} ms, every Owner's after {} ms",
            millis(round.first),
            millis(round.last)
        );
        rounds.push(round);
    }
    pool.note(HarnessLine::Calm { at: true_now() })?;
    tokio::time::sleep(pool.plan.times.unowned_delay + Duration::from_secs(4)).await;
    pool.end().await?;
    let (leases_lost, notices) = checker::changes_since(shelter.directory(), since)?;
    Ok(Outcome {
        store: args.store,
        times: args.times,
        leader_lease,
        first_renewal: Percentiles::of(rounds.iter().map(|round| round.first).collect()),
        all_renewed: Percentiles::of(rounds.iter().map(|round| round.last).collect()),
        leases_lost,
        notices,
        verdict: checker::check(shelter.directory())?,
    })
}

/// What the Managers make of the settings.
fn config(args: &FailoverArgs) -> Result<Config, Box<dyn Error>> {
    let is_etcd = args.store == StoreKind::Etcd;
    let etcd_endpoints = is_etcd.then(|| "http://127.0.0.1:2379".to_owned());
    let wanted = ConfigArgs {
        store: is_etcd.then(|| "etcd".into()),
        etcd: EtcdArgs { etcd_endpoints, ..EtcdArgs::default() },
        leader_lease: args.leader_lease.clone(),
        campaign_interval: args.campaign_interval.clone(),
        ..ConfigArgs::default()
    };
    Ok(wanted.resolve()?)
}

/// Kills the leader, and says how long it took until another answered renewals.
async fn change_leader(pool: &mut Pool, dice: &mut Dice) -> Result<Round, Box<dyn Error>> {
    let (leader, term) = find_leader(pool).await?;
    // So that the kill meets every phase of renewals.
    tokio::time::sleep(dice.between(Duration::ZERO, Duration::from_secs(1))).await;
    let victims = victims(pool, leader, dice);
    let killed_at = true_now();
    for node in &victims {
        pool.kill(*node)?;
    }
    let is_alone = pool.plan.sizes.managers == 1;
    if is_alone {
        pool.start_process(Node::Manager(leader))?;
    }
    renewals_after(pool, term, true).await?;
    for node in victims.into_iter().filter(|_| !is_alone) {
        pool.start_process(node)?;
    }
    // Every Owner has its leases renewed before the next kill.
    let round = renewals_after(pool, term, false).await?;
    if !pool.operator.comes_to_rest(pool.plan.sizes.owners, PATIENCE).await {
        return Err("the pool did not come to rest after a change of leaders".into());
    }
    let waited = |at: Nanos| at.saturating_sub(killed_at);
    Ok(Round { first: waited(round.first), last: waited(round.last) })
}

/// The leader, and with five nodes of etcd its machine and another one.
fn victims(pool: &Pool, leader: u8, dice: &mut Dice) -> Vec<Node> {
    let mut victims = vec![Node::Manager(leader)];
    let etcd = pool.plan.sizes.etcd;
    if etcd >= 5 {
        let other = dice.pick((0..etcd).filter(|index| *index != leader).collect());
        victims.push(Node::Etcd(leader));
        victims.extend(other.map(Node::Etcd));
        victims.extend(other.filter(|index| *index < pool.plan.sizes.managers).map(Node::Manager));
    }
    victims
}

async fn find_leader(pool: &Pool) -> Result<(u8, u64), Box<dyn Error>> {
    let since = Instant::now();
    while since.elapsed() < PATIENCE {
        if let Some(leader) = pool.operator.leader().await {
            return Ok(leader);
        }
        tokio::time::sleep(LOOK).await;
    }
    Err("no Manager leads".into())
}

/// When the first Owner was answered by a later leader, and when the last one was.
async fn renewals_after(pool: &mut Pool, term: u64, first_only: bool) -> Result<Round, Box<dyn Error>> {
    let since = Instant::now();
    let wanted = if first_only { 1 } else { usize::from(pool.plan.sizes.owners) };
    while since.elapsed() < PATIENCE {
        let answers = pool.renewals().after(term);
        if answers.len() >= wanted
            && let (Some(first), Some(last)) = (answers.iter().min(), answers.iter().max())
        {
            return Ok(Round { first: *first, last: *last });
        }
        pool.revive()?;
        tokio::time::sleep(LOOK).await;
    }
    Err(format!("renewals were not answered within {PATIENCE:?} after the leader was killed").into())
}

impl Outcome {
    fn is_good(&self) -> bool {
        self.leases_lost == 0 && self.notices == 0 && self.verdict.violations.is_empty()
    }

    fn json(&self) -> Value {
        json!({
            "store": format!("{:?}", self.store).to_lowercase(),
            "times": self.times,
            "leader_lease_ms": u64::try_from(self.leader_lease.as_millis()).unwrap_or(u64::MAX),
            "first_renewal_ms": percentiles(&self.first_renewal),
            "all_renewed_ms": percentiles(&self.all_renewed),
            "leases_lost": self.leases_lost,
            "false_losses": self.notices,
            "violations": self.verdict.violations.len(),
            "checks": self.verdict.checks,
            "replies": self.verdict.replies,
            "details": self.verdict.violations,
        })
    }

    fn words(&self) -> String {
        let times = &self.first_renewal;
        let mut text = format!(
            "failover: the leader was killed {} times on store {:?}, {} requests were answered meanwhile\n\
             first renewal answered by the next leader: p50 {} ms, p99 {} ms, longest {} ms; the leader lease is {} ms\n\
             every Owner's renewal answered: p50 {} ms, p99 {} ms, longest {} ms\n\
             leases lost: {}\nfalse losses: {}\nviolations: {}\n",
            self.times,
            self.store,
            self.verdict.replies,
            times.p50,
            times.p99,
            times.max,
            self.leader_lease.as_millis(),
            self.all_renewed.p50,
            self.all_renewed.p99,
            self.all_renewed.max,
            self.leases_lost,
            self.notices,
            self.verdict.violations.len(),
        );
        for sentence in &self.verdict.violations {
            text.push_str(&format!("  {sentence}\n"));
        }
        text
    }
}
