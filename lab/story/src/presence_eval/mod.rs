//! Measures what a rolling restart, the death of a rack (PRS §7.2) and a load shift cost the users of a presence pool, with
//! real processes.

mod load;
mod rack;
mod report;
mod rolling;
mod shift;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use centrifuge_examples::Result;
use centrifuge_examples::presence::SERVICE;
use centrifuge_examples::shared::call::duration;
use centrifuge_harness::{Cluster, Service, StoreKind};
use centrifuge_net::proto::v1;
use centrifuge_server::descriptors::raise_limit;
use clap::Args;

use self::load::{Amount, Load, Measured};
use self::report::{Phase, Setup};
use crate::role;

pub use self::rack::rack;
pub use self::rolling::{RollingArgs, rolling};
pub use self::shift::{ShiftArgs, shift};

/// The papers saw four to five times as many frontends as servers.
const FRONTENDS_PER_SERVER: usize = 4;

/// What an evaluation is told.
#[derive(Args, Clone, Debug)]
pub struct EvalArgs {
    /// Servers of the pool, each a process [default: 6 for rolling, 20 for rack]
    #[arg(long)]
    pub servers: Option<usize>,
    /// Frontends, each with a Lookup and connections of its own [default: 4 for each server]
    #[arg(long)]
    pub frontends: Option<usize>,
    /// Users who are signed in before it begins
    #[arg(long, default_value_t = 4000)]
    pub users: usize,
    /// What all users do in a second: a tenth signs in for the first time, a fifth changes its status, the rest reads
    #[arg(long, default_value_t = 400)]
    pub rate: u32,
    /// How long leases are; the papers have a minute
    #[arg(long, value_parser = duration, default_value = "10s", value_name = "DURATION")]
    pub lease: Duration,
    /// How long to measure before and after
    #[arg(long = "for", value_parser = duration, default_value = "15s", value_name = "DURATION")]
    pub each: Duration,
    /// Another number draws other users
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// End with one line of JSON
    #[arg(long)]
    pub json: bool,
    /// The exponent of Zipf's law, if some users are asked for more often than others.
    #[arg(skip)]
    skew: Option<f64>,
}

/// A pool under load.
struct Bench {
    cluster: Cluster,
    servers: Vec<Service>,
    load: Load,
    running: Option<Running>,
    /// The phases that have ended.
    phases: Vec<Phase>,
    setup: Setup,
}

/// A phase, and what was so when it began.
struct Running {
    name: &'static str,
    since: Instant,
    at_begin: Tally,
    measured: Arc<Mutex<Measured>>,
}

/// What only rises.
#[derive(Clone, Copy)]
struct Tally {
    losses_told: u64,
    republished: u64,
    /// Not known without a store: numbers of leases begin anew with every leader, higher up.
    grants: Option<u64>,
}

impl Bench {
    /// Starts everything, and the load.
    async fn start(args: &EvalArgs, usual_servers: usize, store: StoreKind) -> Result<Bench> {
        Bench::start_with(args, usual_servers, store, None).await
    }

    /// The same with other settings of the namespace, which are made before the first server is there.
    async fn start_with(
        args: &EvalArgs,
        usual_servers: usize,
        store: StoreKind,
        settings: Option<v1::Settings>,
    ) -> Result<Bench> {
        let count = args.servers.unwrap_or(usual_servers);
        let frontends = args.frontends.unwrap_or(count * FRONTENDS_PER_SERVER);
        if count < 2 || frontends == 0 || args.rate == 0 {
            return Err("there must be at least two servers, a frontend and a request each second".into());
        }
        raise_limit(frontends * count * 2);
        say(&format!("starting Managers and {count} servers"));
        let cluster = Cluster::start(role::program()?, store, &[SERVICE], args.lease).await?;
        if let Some(settings) = settings {
            cluster.configure(SERVICE, settings).await?;
        }
        let mut servers = Vec::new();
        for number in 0..count {
            servers.push(serve(&cluster, &format!("presence-{number}")).await?);
        }
        at_rest(&cluster, count).await?;
        say(&format!("{} users sign in at {frontends} frontends", args.users));
        let rate = f64::from(args.rate) / frontends as f64;
        let amount = Amount { frontends, users: args.users, rate, seed: args.seed, skew: args.skew };
        let mut load = Load::prepare(&cluster.caller()?, SERVICE, amount).await?;
        load.start();
        let setup = Setup {
            store,
            managers: cluster.manager_processes().count(),
            servers: count,
            frontends,
            users: args.users,
            requests_per_second: args.rate,
            lease_ms: args.lease.as_millis(),
        };
        Ok(Bench { cluster, servers, load, running: None, phases: Vec::new(), setup })
    }

    /// What begins from now on belongs to another phase.
    async fn turn_to(&mut self, name: &'static str) -> Result<()> {
        let tally = self.tally().await?;
        self.end_phase(tally);
        let (since, measured) = (Instant::now(), self.load.turn_to());
        self.running = Some(Running { name, since, at_begin: tally, measured });
        Ok(())
    }

    fn end_phase(&mut self, tally: Tally) {
        self.phases.extend(self.running.take().map(|running| Phase::of(&running, tally)));
    }

    /// Ends the load, and with it the last phase.
    async fn finish(&mut self) -> Result<()> {
        self.load.finish().await?;
        let tally = self.tally().await?;
        self.end_phase(tally);
        Ok(())
    }

    async fn tally(&self) -> Result<Tally> {
        let (losses_told, republished) = self.load.told();
        let status = self.cluster.status(SERVICE).await?;
        let grants =
            (self.cluster.manager_processes().store() != StoreKind::None).then_some(status.last_generation);
        Ok(Tally { losses_told, republished, grants })
    }
}

async fn serve(cluster: &Cluster, name: &str) -> Result<Service> {
    cluster.serve("presence server", name, &[]).await
}

async fn at_rest(cluster: &Cluster, servers: usize) -> Result<()> {
    cluster.at_rest(SERVICE, u32::try_from(servers)?).await
}

/// Says what goes on; the result is printed apart.
fn say(words: &str) {
    eprintln!("{words}");
}
