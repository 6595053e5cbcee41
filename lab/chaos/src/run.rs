//! A run of chaos: a pool, its faults, a calm end, and the verdict.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use centrifuge_harness::{Rng, StoreKind};
use centrifuge_server::stop::told_to_stop;
use clap::{Args, ValueEnum};
use tokio::time::Instant;

use crate::bug::Bug;
use crate::checker;
use crate::lines::{HarnessLine, true_now};
use crate::observer::Observer;
use crate::plan::{NetworkKind, Sizes, Times, World};
use crate::pool::{Faults, OBSERVER, Operations, Pool, PoolPlan, Rotations};
use crate::proxy::LinkFaults;
use crate::report::{Report, Rotated};
use crate::run_environment::{Outcome, RunEnvironment, conduct};

/// How long faults go on unless somebody says otherwise.
const DEFAULT_LENGTH: Duration = Duration::from_secs(120);
/// ... if something is wrong on purpose, which is found by then.
const DEFAULT_LENGTH_WITH_BUG: Duration = Duration::from_secs(90);
/// In half of this, certificates of clients run out.
const SHORTEST_WITH_TLS: Duration = Duration::from_secs(20);
/// How long it is calm after planned operations alone.
const PLANNED_CALM: Duration = Duration::from_secs(5);
/// How many Owners come at once in a join storm.
const JOINERS: u8 = 3;
/// How often the harness looks whether something is due.
const TICK: Duration = Duration::from_millis(20);
/// How often the Managers' metrics are read.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// By then a pool that has come to rest keeps its leases, and callers have their tables.
const SETTLED: Duration = Duration::from_secs(2);
/// How often it says how far it is.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// What can be asked of a run.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// What is put under faults
    #[arg(long, value_enum, default_value = "managers")]
    world: World,
    /// How long faults go on; two minutes unless given, or 90 s if something is wrong on purpose. A calm end of some
    /// twenty seconds follows
    #[arg(long = "for", value_parser = crate::length, value_name = "DURATION")]
    length: Option<Duration>,
    /// What everything is drawn from; another each time unless given
    #[arg(long)]
    seed: Option<u64>,
    /// How many Owners; three more come and go in join storms
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u8).range(2..=27))]
    owners: u8,
    /// How many callers
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=30))]
    callers: u8,
    /// How many keys are watched
    #[arg(long, default_value_t = 96, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    keys: u32,
    /// How many Flease peers
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(3..=9))]
    peers: u8,
    /// How many cells these want
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    cells: u32,
    /// Nobody is killed, stopped or cut off, and no message is lost: planned operations alone, where every loss is
    /// false
    #[arg(long)]
    planned_only: bool,
    /// Something wrong on purpose; the run fails if it is not found
    #[arg(long, value_enum)]
    bug: Option<Bug>,
    /// Another build of this program, which every second process is of: with the feature `next-version` a rolling
    /// upgrade
    #[arg(long, value_name = "FILE")]
    other_build: Option<PathBuf>,
    /// Clients reach Managers without links between them: every byte arrives as it was sent, and no message is lost
    /// or late
    #[arg(long)]
    direct: bool,
    /// Managers and clients use TLS, and certificates, authorities and policies are rotated all the time. In the first
    /// half of the time nothing else happens, and every lost lease is a failure; then everything else comes beside it.
    /// Not for Flease peers, which use no TLS
    #[arg(long)]
    tls: bool,
    #[command(flatten)]
    place: PlaceArgs,
}

/// What every run is told: its Managers, where it takes place and what stays of it.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlaceArgs {
    /// Where the Managers keep their table; on a file there is one Manager
    #[arg(long, value_enum, default_value = "etcd")]
    pub(crate) store: StoreKind,
    /// How many nodes of etcd; with five, two machines are killed at a time
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    pub(crate) etcd: u8,
    /// How many Managers; one on a file
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    pub(crate) managers: u8,
    /// Print one line of JSON instead of a report
    #[arg(long)]
    pub(crate) json: bool,
    /// How processes reach each other
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) network: NetworkKind,
    /// Keep journals and logs in this directory; otherwise they stay only if something was found
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) keep: Option<PathBuf>,
    /// Set by the harness itself: the run is inside namespaces that belong to this process
    #[arg(long, hide = true)]
    pub(crate) inside: Option<u32>,
}

impl PlaceArgs {
    /// How many processes lead, and how many keep their table.
    pub(crate) fn leaders(&self, store: StoreKind) -> Sizes {
        Sizes {
            etcd: if store == StoreKind::Etcd { self.etcd } else { 0 },
            managers: if store == StoreKind::File { 1 } else { self.managers },
            ..Sizes::default()
        }
    }
}

impl RunArgs {
    fn length(&self) -> Duration {
        let usual = if self.bug.is_some() { DEFAULT_LENGTH_WITH_BUG } else { DEFAULT_LENGTH };
        self.length.unwrap_or(usual)
    }

    fn store(&self) -> StoreKind {
        if self.world == World::Diskless { StoreKind::None } else { self.place.store }
    }

    fn sizes(&self) -> Sizes {
        match self.world {
            World::Managers | World::Diskless => Sizes {
                owners: self.owners,
                joiners: if self.has_operations() { JOINERS } else { 0 },
                callers: self.callers,
                keys: self.keys,
                ..self.place.leaders(self.store())
            },
            World::Flease => Sizes { peers: self.peers, keys: self.cells, ..Sizes::default() },
        }
    }

    /// Whether planned operations are among what happens.
    fn has_operations(&self) -> bool {
        self.bug.is_none_or(|bug| bug == Bug::HastyOwner)
    }

    /// For how long nothing happens but rotations.
    fn rotations_alone(&self) -> Duration {
        if self.tls { self.length() / 2 } else { Duration::ZERO }
    }

    /// What happens to single messages at any time, once faults come.
    fn usual_link_faults(&self) -> LinkFaults {
        match (self.is_planned_only(), self.tls) {
            (true, _) => LinkFaults::NONE,
            (false, true) => LinkFaults::USUAL_FOR_BYTES,
            (false, false) => LinkFaults::USUAL,
        }
    }

    fn is_planned_only(&self) -> bool {
        self.planned_only || self.bug == Some(Bug::HastyOwner)
    }

    fn check(&self) -> Result<(), String> {
        if self.planned_only && (self.world == World::Flease || !self.has_operations()) {
            return Err("there are no planned operations among Flease peers, nor where something else is wrong on purpose"
                .to_owned());
        }
        if self.place.store == StoreKind::None && self.world != World::Diskless {
            return Err(
                "Managers without a store are a world of their own: add `--world diskless`".to_owned()
            );
        }
        if self.tls && self.world == World::Flease {
            return Err(
                "Flease peers use no TLS: leave out `--tls`, or choose `--world managers` or `diskless`"
                    .to_owned(),
            );
        }
        if self.tls && self.length() < SHORTEST_WITH_TLS {
            return Err(format!(
                "too short for certificates to run out: with `--tls`, at least {SHORTEST_WITH_TLS:?}"
            ));
        }
        if self.bug == Some(Bug::ForgottenCertificate) && !self.tls {
            return Err("without TLS there are no certificates: add `--tls`".to_owned());
        }
        match self.bug.map(Bug::world) {
            Some(other) if other != self.world => {
                let word = |world: World| world.to_possible_value().map(|value| value.get_name().to_owned());
                let wanted = word(other).unwrap_or_default();
                Err(format!("this bug can be injected in another world alone: add `--world {wanted}`"))
            }
            _ => Ok(()),
        }
    }
}

/// Runs, prints, and says whether all was good.
pub(crate) fn run(args: &RunArgs) -> Result<bool, Box<dyn Error>> {
    args.check()?;
    let seed = args.seed.unwrap_or_else(|| true_now() % 1_000_000);
    conduct(&args.place, async |environment| {
        let report = perform(args, environment, seed).await?;
        Ok(Outcome { is_good: report.is_good(), json: report.json(), words: report.words() })
    })
}

async fn perform(args: &RunArgs, environment: &RunEnvironment, seed: u64) -> Result<Report, Box<dyn Error>> {
    let mut rng = Rng::new(seed);
    let plan = plan(args, environment, seed)?;
    eprintln!("seed {seed}: starting {} processes", crate::pool::Node::all(plan.sizes).len());
    let mut pool = Pool::start(plan, rng.fork()).await?;
    let tls = pool.certificates.as_ref().map(|all| all.files_of(OBSERVER).tls());
    let observer = Observer::start(pool.metrics(), tls, LOOK_INTERVAL, environment.directory())?;
    let (faults, operations) = (rng.fork(), rng.fork());
    let mut rotations = Rotations::new(rng.fork());
    let began = Instant::now();
    let mut ended = args.tls && rotate_alone(&mut pool, &mut rotations, args.rotations_alone()).await?;
    pool.set_usual_link_faults(args.usual_link_faults());
    let mut faults = Faults::new(faults, &pool);
    let mut operations = Operations::new(operations, &pool);
    if !ended {
        let rest = args.length() - args.rotations_alone();
        ended = suffer(&mut pool, &mut faults, &mut operations, &mut rotations, rest).await?;
    }
    faults.end(&mut pool)?;
    operations.end(&mut pool)?;
    pool.note(HarnessLine::Calm { at: true_now() })?;
    if !ended {
        settle(&mut pool, &mut rotations).await?;
    }
    let seconds = began.elapsed().as_secs();
    let counted = counts(&faults, &pool);
    pool.end().await?;
    eprintln!("checking the journals");
    let rotated = args.tls.then(|| Rotated {
        rotations: rotations.counts().clone(),
        reloads_refused: observer.reloads_refused(),
        ended_by_expiry: observer.denied(),
    });
    Ok(Report {
        world: args.world,
        seed,
        seconds,
        store: format!("{:?}", args.store()).to_lowercase(),
        network: if environment.is_loopback { "loopback" } else { "namespaces" }.to_owned(),
        bug: args.bug,
        faults: counted,
        operations: operations.counts().clone(),
        race_drops: observer.races(),
        rotated,
        verdict: checker::check(environment.directory())?,
    })
}

/// The pool that is put under faults.
fn plan(args: &RunArgs, environment: &RunEnvironment, seed: u64) -> io::Result<PoolPlan> {
    // Without a store it follows from Flease's times.
    let leadership = [("leader-lease", leader_lease(args.bug)), ("campaign-interval", "500ms")];
    let leadership = leadership.into_iter().filter(|_| args.world != World::Diskless);
    // Where load moves keys, a lease may change its owner though nothing happens.
    let times = Times { balances: !args.tls, ..args.world.times() };
    Ok(PoolPlan {
        sizes: args.sizes(),
        times,
        store: args.store(),
        bug: args.bug,
        is_skewed: true,
        link_faults: if args.tls { LinkFaults::NONE } else { args.usual_link_faults() },
        leadership: leadership.map(|(name, time)| (name, time.to_owned())).collect(),
        other_build: args.other_build.as_deref().map(std::path::Path::canonicalize).transpose()?,
        is_direct: args.direct,
        is_planned_only: args.is_planned_only(),
        is_secure: args.tls,
        ..PoolPlan::new(environment, args.world, seed)
    })
}

/// With the drift bound it just fits into two of the whole seconds that etcd counts in. A leader that outlives its
/// lease must do so for longer than its Owners need to find the next.
fn leader_lease(bug: Option<Bug>) -> &'static str {
    if bug == Some(Bug::OutlivedLeader) { "3600ms" } else { "1800ms" }
}

/// Rotates for a while, and does nothing else. True if somebody ended it early.
async fn rotate_alone(pool: &mut Pool, rotations: &mut Rotations, length: Duration) -> io::Result<bool> {
    eprintln!("rotations alone: {} s", length.as_secs());
    let mut from = None;
    let is_over = pass(length, async |elapsed| {
        rotations.step(pool)?;
        if from.is_none() && elapsed >= SETTLED {
            from = Some(true_now());
        }
        pool.revive()
    });
    let is_over = is_over.await?;
    if let Some(from) = from {
        pool.note(HarnessLine::RotatedAlone { from, to: true_now() })?;
    }
    Ok(is_over)
}

/// Lets faults come for a while. True if somebody ended it early.
async fn suffer(
    pool: &mut Pool,
    faults: &mut Faults,
    operations: &mut Operations,
    rotations: &mut Rotations,
    length: Duration,
) -> io::Result<bool> {
    let mut said = Duration::ZERO;
    pass(length, async |elapsed| {
        faults.step(pool).await?;
        operations.step(pool)?;
        rotations.step(pool)?;
        if elapsed - said >= PROGRESS_INTERVAL {
            said = elapsed;
            let total: u64 = faults.counts().values().chain(operations.counts().values()).sum();
            let carried = pool.counts().carried.load(Ordering::Relaxed);
            let seconds = elapsed.as_secs();
            eprintln!("{seconds:>5} s: {total} faults and operations, {carried} messages carried");
        }
        pool.revive()
    })
    .await
}

/// Does something again and again for a while. True if somebody ended it early.
async fn pass(length: Duration, mut step: impl AsyncFnMut(Duration) -> io::Result<()>) -> io::Result<bool> {
    let began = Instant::now();
    let stop = told_to_stop();
    tokio::pin!(stop);
    while began.elapsed() < length {
        step(began.elapsed()).await?;
        tokio::select! {
            () = tokio::time::sleep(TICK) => {}
            () = &mut stop => return Ok(true),
        }
    }
    Ok(false)
}

/// Waits until everything that is due has come.
async fn settle(pool: &mut Pool, rotations: &mut Rotations) -> io::Result<()> {
    // Where no loss is right, none has to be waited for.
    let length = if pool.plan.is_planned_only { PLANNED_CALM } else { pool.plan.world.calm() };
    eprintln!("calm: {} s for what is still due", length.as_secs());
    let began = Instant::now();
    while began.elapsed() < length {
        rotations.step(pool)?;
        pool.revive()?;
        tokio::time::sleep(TICK).await;
    }
    Ok(())
}

fn counts(faults: &Faults, pool: &Pool) -> std::collections::BTreeMap<String, u64> {
    let mut all = faults.counts().clone();
    let messages = pool.counts();
    let of_messages: &[(&str, &AtomicU64)] = &[
        ("message-loss", &messages.lost),
        ("message-duplication", &messages.doubled),
        ("message-delay", &messages.delayed),
        ("message-reorder", &messages.overtaken),
    ];
    let of_bytes = &[("connection-break", &messages.lost), ("byte-delay", &messages.delayed)];
    let kinds = if pool.plan.is_secure { of_bytes } else { of_messages };
    all.extend(kinds.iter().map(|(kind, count)| ((*kind).to_owned(), count.load(Ordering::Relaxed))));
    all.insert("clock-skew".to_owned(), pool.skewed);
    all
}
