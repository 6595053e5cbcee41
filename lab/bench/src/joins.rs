//! `centrifuge-bench joins`: what a storm of joins under new names costs a Manager process.

use std::time::Duration;

use centrifuge_net::dial::Channel;
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::admin_client::AdminClient;
use clap::Args;
use serde_json::{Value, json};

use crate::output::{Format, hundredths};
use crate::testbed::{Kind, Order, POLL_INTERVAL, Share, Testbed, pool_status};
use crate::{Failure, Result, count};

/// The most processor time that the Manager should need, whatever the number of Owners.
const CPU_BOUND_SECONDS: f64 = 10.0;
/// How often the progress is printed.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) const ABOUT: &str = "\
What it costs when many Owners join under new names.

A Manager process with a file store, and as many Owners as applications link them, each with a connection
of its own, in other processes. In each of these, 32 Owners join at a time, as fast as they are welcomed.
Every Owner that joins gets its share from those that are there, and gives ranges back as others join; its
state is nothing, so that a transfer takes no time. The measurement ends when nothing moves and every Owner
has leases.

The Manager's processor time is what its process used from the first join to the end, by the system's books.
Its seconds depend on the machine: on few cores the Owners compete with the Manager for them.";

#[derive(Args)]
pub(crate) struct JoinsArgs {
    /// How many Owners join
    #[arg(long, default_value_t = 2_000, value_parser = count)]
    owners: usize,
    /// How many processes the Owners are divided among
    #[arg(long, default_value_t = 2, value_parser = count)]
    processes: usize,
    #[command(flatten)]
    format: Format,
}

pub(crate) async fn run(args: JoinsArgs) -> Result<()> {
    args.format.print(&measure(&args).await?, words);
    Ok(())
}

async fn measure(args: &JoinsArgs) -> Result<Value> {
    let settings = v1::Settings {
        min_owners: Some(1),
        max_owners: Some(u32::try_from(args.owners.max(4_096)).unwrap_or(u32::MAX)),
        ..v1::Settings::default()
    };
    let mut testbed = Testbed::start(&shares(args.owners, args.processes), settings).await?;
    let admin = testbed.manager.admin()?;
    let before = testbed.manager.read_meter().await?;
    let joined_and_settled = async {
        testbed.order(&Order::Start { kind: Kind::Owners }).await?;
        let all_joined = testbed.manager.read_meter().await?;
        await_stillness(&mut testbed).await?;
        Ok::<_, Failure>(all_joined)
    };
    let all_joined = tokio::select! {
        joined = joined_and_settled => joined?,
        failure = show_progress(admin, args.owners), if args.format.speaks() => return Err(failure),
    };
    let cost = before.cost_until(&testbed.manager.read_meter().await?);
    Ok(json!({
        "owners": args.owners,
        "ranges": testbed.status().await?.ranges,
        // Until the last Owner had joined; ranges may still move then.
        "join_seconds": hundredths(before.cost_until(&all_joined).seconds),
        // Until nothing moved.
        "seconds": hundredths(cost.seconds),
        "cpu_seconds": hundredths(cost.cpu_seconds),
        "messages_in": cost.counts.messages_in,
        "messages_out": cost.counts.messages_out,
        "resident_bytes": cost.resident_bytes,
        "cpu_within_10_s": cost.cpu_seconds <= CPU_BOUND_SECONDS,
    }))
}

fn words(report: &Value) -> String {
    let within = if report["cpu_within_10_s"] == true { "within" } else { "more than" };
    format!(
        "{} Owners joined in {} s; after {} s nothing moved, and each had leases ({} ranges)\n\
         the Manager used {} s of processor time, which is {within} {CPU_BOUND_SECONDS} s\n\
         it received {} messages and sent {}, and has {:.1} MB in memory",
        report["owners"],
        report["join_seconds"],
        report["seconds"],
        report["ranges"],
        report["cpu_seconds"],
        report["messages_in"],
        report["messages_out"],
        report["resident_bytes"].as_f64().unwrap_or_default() / 1e6,
    )
}

/// So many Owners, divided evenly.
fn shares(owners: usize, processes: usize) -> Vec<Share> {
    let first = |process: usize| owners * process / processes;
    let share = |process| Share {
        first_owner: first(process),
        owners: first(process + 1) - first(process),
        lookups: 0,
    };
    (0..processes).map(share).collect()
}

/// Waits until the testbed is at rest twice in a row without a change in between: the Manager may be about to move
/// more.
async fn await_stillness(testbed: &mut Testbed) -> Result<()> {
    let mut lsn = None;
    loop {
        testbed.await_rest().await?;
        let now = testbed.status().await?.lsn;
        if lsn == Some(now) {
            return Ok(());
        }
        lsn = Some(now);
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Prints how far it is until that fails.
async fn show_progress(admin: AdminClient<Channel>, owners: usize) -> Failure {
    loop {
        tokio::time::sleep(PROGRESS_INTERVAL).await;
        match pool_status(admin.clone()).await {
            Ok(space) => eprintln!(
                "{} of {owners} Owners have joined, {} of {} ranges move",
                space.owners, space.moving_ranges, space.ranges
            ),
            Err(failure) => return failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_owner_is_in_one_process() {
        let shares = shares(2_000, 3);
        assert_eq!(shares.iter().map(|share| share.owners).sum::<usize>(), 2_000);
        let follows = |pair: &[Share]| pair[0].first_owner + pair[0].owners == pair[1].first_owner;
        assert!(shares.windows(2).all(follows), "{shares:?}");
        assert_eq!(shares[0].first_owner, 0);
    }
}
