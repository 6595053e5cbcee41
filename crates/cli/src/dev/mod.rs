//! `centrifuge dev`: a whole pool in one process, with a story.

mod book;
mod caller;
mod pool;
mod server;
mod skew;
mod story;
mod view;
mod wire;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use centrifuge::Managers;
use centrifuge_net::proto::v1;
use centrifuge_server::config::{ConfigArgs, TlsArgs};
use centrifuge_server::stop::told_to_stop;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::At;
use crate::commands::certs::make;
use crate::failure::Failure;
use crate::output::Format;
use crate::words;
use book::Book;
use caller::{Caller, Counts};
use pool::Pool;
use server::Server;
use story::Story;
use view::View;

/// The pool's namespace.
const NAMESPACE: &str = "dev";
/// Where certificates are, in the demonstration's directory.
const CERTIFICATES: &str = "certs";
/// How long to wait for loss notices at the end.
const LAST_NOTICES: Duration = Duration::from_secs(11);

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DevArgs {
    #[command(subcommand)]
    part: Option<Part>,
    /// How long to run [default: until stopped]
    #[arg(long = "for", value_parser = words::duration, value_name = "DURATION")]
    length: Option<Duration>,
    /// Use TLS, with certificates that are created for this run and deleted at its end
    #[arg(long)]
    tls: bool,
    #[command(flatten)]
    format: Format,
}

/// One part of the demonstration as a process of its own.
#[derive(Subcommand)]
enum Part {
    /// Run one server of the demonstration in an existing pool
    Server(ServerArgs),
    /// Run one caller of the demonstration
    Caller(CallerArgs),
}

#[derive(Args)]
struct ServerArgs {
    /// The server's name; keep it across restarts
    #[arg(long)]
    name: String,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
    /// The pool
    #[arg(long, default_value = NAMESPACE)]
    namespace: String,
    /// Record every event of its Owner in this file, for `centrifuge-sim replay`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    #[command(flatten)]
    at: At,
}

#[derive(Args)]
struct CallerArgs {
    /// The caller's name: its keys begin with it
    #[arg(long)]
    name: String,
    /// How long to run [default: until stopped]
    #[arg(long = "for", value_parser = words::duration, value_name = "DURATION")]
    length: Option<Duration>,
    /// The pool
    #[arg(long, default_value = NAMESPACE)]
    namespace: String,
    /// Record every event of its Lookup in this file, for `centrifuge-sim replay`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    #[command(flatten)]
    at: At,
}

/// Where a part finds its pool, and where it is recorded.
struct Place<'a> {
    managers: Managers,
    namespace: &'a str,
    record: Option<PathBuf>,
}

/// Runs a part, or the whole.
pub(crate) async fn run(args: DevArgs) -> Result<(), Failure> {
    match args.part {
        None => run_all(args).await,
        Some(Part::Server(args)) => run_server(args).await,
        Some(Part::Caller(args)) => run_caller(args).await,
    }
}

/// Serves until it is told to stop; then it moves its state away first.
async fn run_server(args: ServerArgs) -> Result<(), Failure> {
    let place = Place { managers: args.at.managers()?, namespace: &args.namespace, record: args.record };
    let server = Server::start(&args.name, place, &args.listen).await?;
    let (name, url) = (&args.name, server.url());
    let json = json!({ "serving": name, "url": url, "namespace": args.namespace });
    args.at
        .format
        .output()
        .print(&json, || format!("{name} serves {} at {url}; stop it with Ctrl-C", args.namespace));
    tokio::select! {
        why = server.gone() => Err(Failure::failed(format!("{name} is not a member of the pool any more: {why}"))),
        () = told_to_stop() => server.drain().await,
    }
}

/// Asks until its time is over, and says what it counted; fails if a promise was broken.
async fn run_caller(args: CallerArgs) -> Result<(), Failure> {
    let place = Place { managers: args.at.managers()?, namespace: &args.namespace, record: args.record };
    let (counts, book, skew) = (Arc::default(), Arc::default(), Arc::default());
    let mut caller = Caller::start(&args.name, place, &counts, &book, &skew).await?;
    tokio::select! {
        () = pass(args.length) => {}
        () = told_to_stop() => {}
    }
    caller.stop_asking();
    await_notices(&book).await;
    let violations = book.violations();
    let summary = Summary::new(&counts, None, &violations);
    args.at.format.output().print(&summary.json(), || summary.words());
    conclude(&violations)
}

async fn pass(length: Option<Duration>) {
    match length {
        Some(length) => tokio::time::sleep(length).await,
        None => std::future::pending().await,
    }
}

/// Runs a Manager, servers and callers and tells what happens to them; fails if a promise was broken.
async fn run_all(args: DevArgs) -> Result<(), Failure> {
    let directory = tempfile::tempdir().map_err(|error| Failure::failed(format!("no directory: {error}")))?;
    let wanted = ConfigArgs {
        store: Some(directory.path().join("centrifuge.db")),
        grpc_listen: Some("127.0.0.1:0".to_owned()),
        http_listen: Some("127.0.0.1:0".to_owned()),
        leader_lease: Some("2s".to_owned()),
        campaign_interval: Some("500ms".to_owned()),
        tls: if args.tls { secure(directory.path())? } else { TlsArgs::default() },
        ..ConfigArgs::default()
    };
    let config = wanted.resolve().map_err(|error| Failure::failed(error.to_string()))?;
    let certificates = args.tls.then(|| directory.path().join(CERTIFICATES));
    let mut pool = Pool::start(config, settings(), certificates).await?;
    let end = args.length.map(|length| Instant::now() + length);
    let told = tokio::select! {
        told = Story::new(&mut pool, View::new(args.format.is_json()), end).tell() => told,
        () = told_to_stop() => Ok(()),
    };
    pool.stop_asking();
    await_notices(&pool.book).await;
    let violations = pool.book.violations();
    let summary = Summary::new(&pool.counts, Some(pool.moves().await), &violations);
    let words = || format!("\n{}", summary.words());
    args.format.output().print(&summary.json(), words);
    pool.stop().await;
    told?;
    conclude(&violations)
}

/// Makes certificates, and what a Manager needs to use them.
fn secure(directory: &Path) -> Result<TlsArgs, Failure> {
    let folder = directory.join(CERTIFICATES);
    make(&folder, &["localhost".to_owned(), "127.0.0.1".to_owned()], NAMESPACE)?;
    let file = |name: &str| Some(folder.join(name));
    Ok(TlsArgs {
        tls_cert: file("manager.pem"),
        tls_key: file("manager.key"),
        tls_client_ca: file("ca.pem"),
        policy: file("policy.toml"),
        ..TlsArgs::default()
    })
}

fn conclude(violations: &[String]) -> Result<(), Failure> {
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
        virtual_nodes: Some(32),
        load_interval_ms: Some(2_000),
        heartbeat_ms: Some(1_000),
        ..v1::Settings::default()
    }
}

/// Waits for notices of losses that callers have discovered but not yet been told of.
async fn await_notices(book: &Book) {
    let since = Instant::now();
    let waiting = async {
        while book.is_waiting() && since.elapsed() < LAST_NOTICES {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = waiting => {}
        () = told_to_stop() => {}
    }
}

/// What callers counted in the end.
struct Summary {
    requests: u64,
    rejected: u64,
    retried: u64,
    failed: u64,
    /// Known only where the Manager is asked.
    moves: Option<u64>,
    losses: u64,
    violations: Vec<String>,
}

impl Summary {
    fn new(counts: &Counts, moves: Option<u64>, violations: &[String]) -> Summary {
        let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Summary {
            requests: number(&counts.requests),
            rejected: number(&counts.rejected),
            retried: number(&counts.retried),
            failed: number(&counts.failed),
            moves,
            losses: number(&counts.losses),
            violations: violations.to_vec(),
        }
    }

    fn json(&self) -> Value {
        json!({
            "requests": self.requests,
            "rejected": self.rejected,
            "retried": self.retried,
            "failed": self.failed,
            "moves": self.moves,
            "losses": self.losses,
            "violations": self.violations.len(),
        })
    }

    fn words(&self) -> String {
        let Summary { requests, rejected, retried, failed, moves, losses, violations } = self;
        let broken = violations.len();
        let moves =
            moves.map_or_else(String::new, |moves| format!("{moves} ranges moved with their state, "));
        let mut words = format!(
            "{requests} requests, {rejected} sent to the wrong server, {retried} tried again, {failed} given up\n\
             {moves}{losses} losses announced, {broken} promises broken"
        );
        for violation in violations {
            words.push_str("\n  ");
            words.push_str(violation);
        }
        words
    }
}
