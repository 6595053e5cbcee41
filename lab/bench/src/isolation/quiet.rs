//! The honest Owner: renews its leases at a steady pace, and notes how long each answer takes.

use std::time::{Duration, Instant};

use centrifuge_harness::process::input_lines;
use clap::Args;
use tokio::time::MissedTickBehavior;

use super::QUIET;
use super::order::{Answer, Order};
use super::session::Session;
use crate::Failure;
use crate::process::say;

/// How often it renews.
pub(super) const INTERVAL: Duration = Duration::from_millis(10);
/// How many leases it has.
const LEASES: usize = 64;

#[derive(Args)]
pub(crate) struct QuietArgs {
    /// The Manager
    #[arg(long)]
    manager: String,
}

/// Obeys orders from its input until that ends.
pub(crate) async fn run(args: QuietArgs) -> Result<(), Failure> {
    let mut session = Session::join(&args.manager, QUIET, "honest").await?;
    session.divide(LEASES).await?;
    let mut orders = input_lines();
    say(&Answer::Ready { size: LEASES });
    while let Some(line) = orders.recv().await {
        if let Ok(Order::Measure { seconds }) = serde_json::from_str(&line) {
            let micros = measure(&mut session, Duration::from_secs(seconds)).await?;
            say(&Answer::Waited { micros });
        }
    }
    Ok(())
}

async fn measure(session: &mut Session, length: Duration) -> Result<Vec<u64>, Failure> {
    let lists = session.renewal();
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let began = Instant::now();
    let mut micros = Vec::new();
    while began.elapsed() < length {
        interval.tick().await;
        let sent = Instant::now();
        session.report(&lists).await?;
        micros.push(u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    Ok(micros)
}
