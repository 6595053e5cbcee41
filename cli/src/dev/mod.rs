//! `centrifuge dev`: a whole pool in one process, with a story.

mod book;
mod caller;
mod counters;
mod pool;
mod server;
mod skew;
mod story;
mod view;
mod wire;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use centrifuge_net::proto::v1;
use centrifuge_server::config::ConfigArgs;
use clap::Args;
use serde_json::json;

use crate::failure::Failure;
use crate::words;
use pool::Pool;
use story::Story;
use view::View;

/// The pool's namespace.
const NAMESPACE: &str = "dev";
/// How long notices of losses are waited for at the end.
const LAST_NOTICES: Duration = Duration::from_secs(11);

#[derive(Args)]
pub(crate) struct DevArgs {
    /// How long; until stopped unless given
    #[arg(long = "for", value_parser = words::duration, value_name = "DURATION")]
    length: Option<Duration>,
    /// Print one line of JSON at the end and nothing else
    #[arg(long)]
    json: bool,
}

/// Runs a Manager, servers and callers and tells what happens to them; fails if a promise was broken.
pub(crate) async fn run(args: DevArgs) -> Result<(), Failure> {
    let directory = tempfile::tempdir().map_err(|error| Failure::failed(format!("no directory: {error}")))?;
    let wanted = ConfigArgs {
        store: Some(directory.path().join("centrifuge.db")),
        grpc_listen: Some("127.0.0.1:0".to_owned()),
        http_listen: Some("127.0.0.1:0".to_owned()),
        leader_lease: Some("2s".to_owned()),
        campaign_interval: Some("500ms".to_owned()),
        ..ConfigArgs::default()
    };
    let config = wanted.resolve().map_err(|error| Failure::failed(error.to_string()))?;
    let mut pool = Pool::start(config, settings()).await?;
    let end = args.length.map(|length| Instant::now() + length);
    let told = tokio::select! {
        told = Story::new(&mut pool, View::new(args.json), end).tell() => told,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    pool.stop_asking();
    await_notices(&pool).await;
    let violations = pool.book.violations();
    report(&args, &pool, &violations).await;
    pool.stop().await;
    told?;
    match violations.first() {
        None => Ok(()),
        Some(first) => Err(Failure::failed(format!("{} promises were broken: {first}", violations.len()))),
    }
}

/// Leases so short that one can watch them run out.
fn settings() -> v1::Settings {
    v1::Settings {
        lease_ms: Some(3_000),
        hold_ms: Some(3_300),
        renewal_ms: Some(700),
        answer_allowance_ms: Some(500),
        migration_timeout_ms: Some(5_000),
        recall_timeout_ms: Some(1_000),
        settle_ms: Some(500),
        virtual_nodes: Some(8),
        load_interval_ms: Some(2_000),
        heartbeat_ms: Some(1_000),
        ..v1::Settings::default()
    }
}

/// A loss that was discovered a moment ago may be announced in a moment.
async fn await_notices(pool: &Pool) {
    let since = Instant::now();
    while pool.book.is_waiting() && since.elapsed() < LAST_NOTICES {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn report(args: &DevArgs, pool: &Pool, violations: &[String]) {
    let counts = &pool.counts;
    let number = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let (requests, rejected) = (number(&counts.requests), number(&counts.rejected));
    let (retried, failed, losses) = (number(&counts.retried), number(&counts.failed), number(&counts.losses));
    let moves = pool.moves().await;
    if args.json {
        let line = json!({
            "requests": requests,
            "rejected": rejected,
            "retried": retried,
            "failed": failed,
            "moves": moves,
            "losses": losses,
            "violations": violations.len(),
        });
        println!("{line}");
    } else {
        println!(
            "\n{requests} requests, {rejected} sent to the wrong server, {retried} tried again, {failed} given up"
        );
        println!(
            "{moves} ranges moved with their state, {losses} losses announced, {} promises broken",
            violations.len()
        );
        violations.iter().for_each(|violation| println!("  {violation}"));
    }
}
