//! `centrifuge-bench flease`: what leases among peers cost, beside leases of etcd in the same run.

mod etcd;
mod group;
mod peer;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use self::etcd::Etcd;
use self::group::{Group, Renewals, SHORTEST, Trial, count_one_cell, many_cells, one_cell, shares};
use self::peer::Times;
pub(crate) use self::peer::{PeerPart, run as run_peer};
use self::report::{EtcdCost, GroupCost};
use crate::output::Format;
use crate::{Result, duration};

/// Peers and etcd take turns, so that what else the machine does meets both.
const ROUNDS: u32 = 3;
/// Many cells are renewed under leases of this length at first, or of the given one if that is shorter.
const FIRST_LEASE: Duration = Duration::from_secs(2);

pub(crate) const ABOUT: &str = "\
What leases among peers cost, beside leases of etcd in the same run.

Each peer is a process that links the library, all of them on this machine: a network between machines
adds its round trips, two to an acquisition and to a renewal.

  one cell    the peers acquire it and give it back, in turns; one acquisition at a time
  many cells  each peer acquires its part of them, several at a time; then all are given back
  renewals    by themselves, under shorter and shorter leases (longer ones, if the first are lost): what
              is reported is under the shortest by which no lease was lost
  shares      how often each peer had one of 100 cells that all peers wanted again and again
  etcd        three nodes with data on this machine's disk, and clients that talk to its leader:
              a lease is granted, then a key is created with it in a transaction

An acquisition takes from the call until the lease is held. Releases do not count, in no figure. Datagrams
and bytes are what all peers' sockets sent for an acquisition, messages are the requests and replies in
them. A renewal takes from the start of its round. etcd's keep-alives are no writes: its leader answers
them out of its memory.

Not measured: networks that lose or delay, peers that fail, clocks that differ, cells among some of the
peers.";

#[derive(Args)]
pub(crate) struct FleaseBenchArgs {
    /// How many peers, one number for each group that is measured
    #[arg(long, default_values_t = [3, 5], value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=16))]
    peers: Vec<u16>,
    /// How many cells are many
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    cells: u32,
    /// How many acquisitions are under way at a time if they are many, at all peers together and at etcd
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    in_flight: u16,
    /// How long each single measurement takes, in seconds
    #[arg(long, default_value_t = 6, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// The length of leases, except where renewals are measured. Peers wait a third longer at their start
    #[arg(long, default_value = "10s", value_parser = lease_length, value_name = "DURATION")]
    lease: Duration,
    /// The folder in which etcd keeps its data for the time of the run [default: the system's for such files]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    format: Format,
}

fn lease_length(text: &str) -> Result<Duration, String> {
    let lease = duration(text)?;
    if lease < SHORTEST {
        return Err(format!("write a duration of at least {SHORTEST:?}"));
    }
    Ok(lease)
}

pub(crate) async fn run(args: FleaseBenchArgs) -> Result<()> {
    args.format.print(&measure(&args).await?, report::words);
    Ok(())
}

impl FleaseBenchArgs {
    fn say(&self, what: &str) {
        self.format.say(what);
    }

    fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    fn cells(&self) -> usize {
        self.cells as usize
    }

    fn in_flight(&self) -> usize {
        usize::from(self.in_flight)
    }
}

async fn measure(args: &FleaseBenchArgs) -> Result<Value> {
    let times = Times::of(args.lease);
    args.say("starting three nodes of etcd");
    let etcd = Etcd::start(args.dir.as_deref()).await?;
    args.say(&format!("starting peers: they take part after their recovery of {:?}", times.recovery()));
    let mut groups = Vec::new();
    for peers in &args.peers {
        groups.push((Group::start(*peers, times)?, GroupCost { peers: *peers, ..GroupCost::default() }));
    }
    for (group, _) in &mut groups {
        group.ready().await?;
    }
    let mut etcd_cost = EtcdCost { version: etcd.version().to_owned(), ..EtcdCost::default() };
    for round in 1..=ROUNDS {
        args.say(&format!("round {round} of {ROUNDS}: etcd"));
        measure_etcd(args, &etcd, &mut etcd_cost).await?;
        for (group, cost) in &mut groups {
            args.say(&format!("round {round} of {ROUNDS}: {} peers", group.len()));
            measure_group(args, group, cost).await?;
        }
    }
    // What is idle from now on would only be in the way.
    drop(etcd);
    let mut costs = Vec::new();
    for (mut group, mut cost) in groups {
        args.say(&format!("{} peers: what is sent, and shares", group.len()));
        count_one_cell(&mut group, &mut cost.one).await?;
        cost.had = shares(&mut group, args.time()).await?;
        costs.push(cost);
    }
    for cost in &mut costs {
        measure_renewals(args, cost).await?;
    }
    Ok(report::json(args, &costs, &etcd_cost))
}

async fn measure_etcd(args: &FleaseBenchArgs, etcd: &Etcd, cost: &mut EtcdCost) -> Result<()> {
    let time = args.time() / ROUNDS;
    etcd.cycle(time, &mut cost.one).await?;
    let leases = etcd.acquire(args.in_flight(), time, &mut cost.many).await?;
    etcd.keep_alive(&leases[..leases.len().min(1)], 1, time / 2, &mut cost.keep_one).await?;
    etcd.keep_alive(&leases, args.in_flight(), time / 2, &mut cost.keep_many).await?;
    etcd.release(&leases).await
}

async fn measure_group(args: &FleaseBenchArgs, group: &mut Group, cost: &mut GroupCost) -> Result<()> {
    let time = args.time() / ROUNDS;
    one_cell(group, time, &mut cost.one).await?;
    many_cells(group, args.cells(), args.in_flight(), time / 2, &mut cost.many).await
}

async fn measure_renewals(args: &FleaseBenchArgs, cost: &mut GroupCost) -> Result<()> {
    let (peers, time) = (cost.peers, args.time());
    let say = |renewals: &Renewals| {
        let (what, per_second) = (report::what(&renewals.json()), renewals.rate.per_second());
        args.say(&format!(
            "{peers} peers: renewals of {what}: {per_second:.0} a second, {} lost",
            renewals.lost
        ));
    };
    let one = Trial { peers, cells: 1, in_flight: 1, time };
    cost.one.renewals = Some(one.kept(SHORTEST, args.lease, say).await?);
    let many = Trial { peers, cells: args.cells(), in_flight: args.in_flight(), time: time / 2 };
    cost.many.renewals = Some(many.most(args.lease.min(FIRST_LEASE), args.lease, say).await?);
    Ok(())
}
