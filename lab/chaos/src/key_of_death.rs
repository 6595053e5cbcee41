//! `key-of-death`: a request that aborts its server is sent again and again, and takes down a few servers, not the pool (ADR 24).

use std::error::Error;
use std::io;
use std::time::Duration;

use centrifuge::router::{Refusal, RouterError};
use centrifuge::{Key, Lookup, Managers, NoOwner, Router};
use centrifuge_harness::{Rng, StoreKind};
use centrifuge_net::proto::v1;
use clap::Args;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::checker;
use crate::lines::{HarnessLine, true_now};
use crate::plan::{NAMESPACE, Sizes, Times, World, key_name};
use crate::pool::{Node, Pool, PoolPlan};
use crate::roles::abort_server;
use crate::run::PlaceArgs;
use crate::run_environment::{Outcome, RunEnvironment, conduct};

/// How long it may take until the key is in quarantine, or the pool at rest.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long one request is tried.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a server may take to answer, or to die.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// How often the harness looks who has died.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Leases so short that a death is soon noticed, and nothing that moves them.
const TIMES: Times = Times {
    lease: Duration::from_millis(2_400),
    renewal: Duration::from_millis(500),
    answer_allowance: Duration::from_millis(300),
    balances: false,
    ..Times::SHORT
};

/// What can be asked.
#[derive(Args, Clone, Debug)]
pub(crate) struct KeyOfDeathArgs {
    /// How many servers the pool has
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(5..=27))]
    owners: u8,
    /// How many of them may die; more fail the run
    #[arg(long, default_value_t = 5)]
    most: usize,
    /// Whoever died is started again at once, under its name
    #[arg(long)]
    restart: bool,
    /// What the key is drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Runs, prints, and says whether all was good.
pub(crate) fn run(args: &KeyOfDeathArgs) -> Result<bool, Box<dyn Error>> {
    if args.place.store == StoreKind::None {
        return Err("Managers without a store have the usual times, with which a death takes a minute: use file or etcd".into());
    }
    conduct(&args.place, async |environment| perform(args, environment).await)
}

fn plan(args: &KeyOfDeathArgs, environment: &RunEnvironment) -> PoolPlan {
    let leaders = args.place.leaders(args.place.store);
    PoolPlan {
        sizes: Sizes { owners: args.owners, callers: 2, keys: 48, ..leaders },
        times: TIMES,
        store: args.place.store,
        // As many as servers have by default: what three deaths share is small.
        virtual_nodes: 64,
        ..PoolPlan::new(environment, World::Managers, args.seed)
    }
}

/// What the run found.
struct Findings {
    died: Vec<Node>,
    /// From the first request to the quarantine.
    took: Duration,
    quarantine: v1::Quarantine,
    /// Whether requests for the key are refused at once, and nobody dies of them.
    is_kept_away: bool,
    /// Whether the key has an owner again once it was released.
    is_released: bool,
    servers_left: usize,
}

async fn perform(args: &KeyOfDeathArgs, environment: &RunEnvironment) -> Result<Outcome, Box<dyn Error>> {
    let mut rng = Rng::new(args.seed);
    let key = u32::try_from(rng.below(48))?;
    let mut pool = Pool::start(plan(args, environment), rng.fork()).await?;
    let poison = Poison::connect(&pool, key).await?;
    let begun = Instant::now();
    let mut died = Vec::new();
    let asked = poison.clone();
    let mut quarantined = tokio::spawn(async move { asked.until_quarantined().await });
    let is_found = loop {
        bury(&mut pool, args.restart, &mut died)?;
        if quarantined.is_finished() {
            break (&mut quarantined).await?;
        }
        if begun.elapsed() > TIMEOUT {
            break false;
        }
        sleep(POLL_INTERVAL).await;
    };
    let took = begun.elapsed();
    if !is_found {
        let died: Vec<String> = died.iter().map(ToString::to_string).collect();
        return Err(
            format!("the key is not in quarantine after {took:?}, and {} died", died.join(", ")).into()
        );
    }
    let quarantines = pool.operator.quarantines().await;
    let quarantine = quarantines.into_iter().next().ok_or("no Manager lists a quarantine")?;
    let before = died.len();
    let mut is_kept_away = poison.is_refused();
    for _ in 0..20 {
        is_kept_away &= !poison.kills_at_once().await;
        bury(&mut pool, args.restart, &mut died)?;
    }
    is_kept_away &= died.len() == before;
    let servers_left = pool.available().iter().filter(|node| node.part == crate::pool::Part::Owner).count();
    pool.operator.release_quarantines().await?;
    let is_released = pool.operator.comes_to_rest(u8::try_from(servers_left)?, TIMEOUT).await;
    pool.note(HarnessLine::Calm { at: true_now() })?;
    sleep(pool.plan.times.unowned_delay + Duration::from_secs(2)).await;
    pool.end().await?;
    let findings = Findings { died, took, quarantine, is_kept_away, is_released, servers_left };
    judge(args, &findings, environment)
}

fn judge(
    args: &KeyOfDeathArgs,
    findings: &Findings,
    environment: &RunEnvironment,
) -> Result<Outcome, Box<dyn Error>> {
    let verdict = checker::check(environment.directory())?;
    let Findings { died, took, quarantine, is_kept_away, is_released, servers_left } = findings;
    let names: Vec<String> = died.iter().map(ToString::to_string).collect();
    let blamed: Vec<&str> = quarantine.deaths.iter().map(|death| death.owner.as_str()).collect();
    let mut problems = verdict.violations.clone();
    let mut expect = |is_right: bool, what: &str| {
        if !is_right {
            problems.push(what.to_owned());
        }
    };
    expect(died.len() <= args.most, "too many servers died");
    expect(*servers_left > 0, "no server is left");
    expect(blamed.iter().all(|name| names.iter().any(|died| died == name)), "somebody is blamed who lives");
    expect(blamed.len() >= 4, "there are fewer than four deaths");
    expect(quarantine.key_share <= 0.01, "more than 1 % of the keys is in quarantine");
    expect(*is_kept_away, "requests for the key reached a server though it is in quarantine");
    expect(*is_released, "the key has no owner though it was released");
    let json = json!({
        "servers": args.owners,
        "died": names,
        "servers_left": servers_left,
        "quarantined_after_ms": u64::try_from(took.as_millis())?,
        "key_share": quarantine.key_share,
        "evidence": blamed,
        "checks": verdict.checks,
        "replies": verdict.replies,
        "violations": problems.len(),
        "details": problems,
    });
    Ok(Outcome { is_good: problems.is_empty(), words: words(&json), json })
}

fn words(json: &Value) -> String {
    let list = |name: &str| {
        let all = json[name].as_array().into_iter().flatten().filter_map(Value::as_str);
        all.collect::<Vec<_>>().join(", ")
    };
    let mut words = format!(
        "key of death: {} of {} servers are left; {} died\n\
         quarantined after {} ms, with {:.4} % of the keys, because of {}\n\
         requests answered meanwhile: {}\nviolations: {}\n",
        json["servers_left"],
        json["servers"],
        list("died"),
        json["quarantined_after_ms"],
        json["key_share"].as_f64().unwrap_or_default() * 100.0,
        list("evidence"),
        json["replies"],
        json["violations"],
    );
    for sentence in json["details"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        words.push_str(&format!("  {sentence}\n"));
    }
    words
}

/// Writes down who has died, and starts them again if that is wanted.
fn bury(pool: &mut Pool, restart: bool, died: &mut Vec<Node>) -> io::Result<()> {
    for node in pool.bury()? {
        died.push(node);
        if restart {
            pool.start_process(node)?;
        }
    }
    Ok(())
}

/// Requests for a key, each of which aborts the server that answers it.
#[derive(Clone)]
struct Poison {
    key: u32,
    place: Key,
    lookup: Lookup,
    /// Where servers are, by what the table calls them.
    servers: Vec<(String, std::net::SocketAddr)>,
}

impl Poison {
    async fn connect(pool: &Pool, key: u32) -> Result<Poison, Box<dyn Error>> {
        let managers = (0..pool.plan.sizes.managers).map(|manager| pool.addresses.grpc(manager).to_string());
        let managers = Managers::list(managers.collect::<Vec<_>>())?;
        let lookup = Lookup::builder(managers, NAMESPACE).connect_timeout(TIMEOUT).connect().await?;
        let server = |owner| (pool.addresses.url(owner).to_string(), pool.addresses.application(owner));
        let servers = (0..pool.plan.sizes.owners).map(server).collect();
        Ok(Poison { key, place: Key::of(key_name(key).as_bytes()), lookup, servers })
    }

    /// Sends the request again and again, until it is refused because the key is in quarantine.
    async fn until_quarantined(&self) -> bool {
        let router = Router::new(self.lookup.clone()).patience(PATIENCE);
        let until = Instant::now() + TIMEOUT;
        while Instant::now() < until {
            let sent = router.send(self.place, |route| {
                let url = route.url().to_owned();
                async move { self.ask(&url).await }
            });
            if let Err(RouterError::Quarantined { .. }) = sent.await {
                return true;
            }
        }
        false
    }

    /// No answer ever comes: whoever has the key dies, and whoever has not says so.
    async fn ask(&self, url: &str) -> Result<(), Refusal<io::Error>> {
        let Some((_, server)) = self.servers.iter().find(|(known, _)| known == url) else {
            return Err(Refusal::NotOwner);
        };
        match timeout(ANSWER_TIMEOUT, abort_server(*server, self.key)).await {
            Ok(Ok(())) => Err(Refusal::NotOwner),
            Ok(Err(error)) => Err(Refusal::Unreachable(error)),
            Err(_) => Err(Refusal::Unreachable(io::ErrorKind::TimedOut.into())),
        }
    }

    /// Whether the table says that nobody will own the key soon.
    fn is_refused(&self) -> bool {
        matches!(self.lookup.lookup(self.place), Err(NoOwner::Quarantined { .. }))
    }

    /// Whether any server dies of one more request, wherever it is sent.
    async fn kills_at_once(&self) -> bool {
        for (_, server) in &self.servers {
            // Whoever has died before cannot be reached.
            if timeout(ANSWER_TIMEOUT, abort_server(*server, self.key)).await.is_err() {
                return true;
            }
        }
        false
    }
}
