//! Periodic tasks: a pool divides them by its leases, and a sink takes each period's run once.
//!
//! There is no caller and no `Lookup`. The Owner's upcalls tell a server which keys are its own, and it runs
//! the tasks whose names have these keys. A run holds a guard, so that a drain waits for it, and what it does
//! outside the server goes to the [`sink`] under its lease.
//!
//! The last period that a task finished is its state, in a `LeasedMap`: after a drain the next server knows
//! what is done. After a crash it does not, asks the sink to begin, and learns it from the refusal. A period
//! for which no server was there in time is left out: the next run is for the present period.

pub mod ledger;
mod plan;
mod runner;
pub mod sink;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use centrifuge::hot::Lease;
use centrifuge::owner::{Change, Changes};
use centrifuge::{Generation, KeyRange, LeasedMap, Owner};
use clap::Args;
use tokio::task::AbortHandle;

use self::plan::Task;
use self::runner::Runner;
use self::sink::Sink;
use crate::Result;
use crate::shared::call::duration;
use crate::shared::member::{Member, MemberArgs};

/// What a server of this pool is told.
#[derive(Args, Clone, Debug)]
pub struct TasksArgs {
    #[command(flatten)]
    member: MemberArgs,
    /// Where the sink is
    #[arg(long, value_name = "URL")]
    sink: String,
    /// A file with the tasks, the same for all servers: a name and a period in every line, such as `backup 30s`
    #[arg(long, value_name = "FILE", conflicts_with = "count")]
    tasks: Option<PathBuf>,
    /// How many tasks to make up if there is no file
    #[arg(long, default_value_t = 10)]
    count: u32,
    /// The period of those that are made up
    #[arg(long, value_parser = duration, default_value = "10s", value_name = "DURATION")]
    period: Duration,
    /// How long a run works
    #[arg(long, value_parser = duration, default_value = "100ms", value_name = "DURATION")]
    work: Duration,
}

/// The last period that each task finished.
type Finished = LeasedMap<String, u64>;

/// Serves until it is told to stop.
pub async fn run(args: TasksArgs) -> Result<()> {
    let tasks: Arc<[Task]> = match &args.tasks {
        Some(file) => plan::read(&std::fs::read_to_string(file)?)?.into(),
        None => plan::make_up(args.count, args.period).into(),
    };
    let finished = Finished::new();
    let member = Member::join(&args.member, "tasks", &finished).await?;
    let owner = member.owner().clone();
    let changes = owner.changes();
    let runner = Runner {
        owner: owner.clone(),
        finished: finished.clone(),
        sink: Sink::at(&args.sink),
        server: args.member.listen.name.clone(),
        work: args.work,
    };
    let running = Running { all: Arc::clone(&tasks), runner, here: BTreeMap::new() };
    tokio::spawn(divide(owner, changes, running));
    member.serve(Router::new().route("/tasks", get(own)).with_state((tasks, finished))).await
}

/// Runs what is ours: begins when it is granted, ends when the lease is gone.
async fn divide(owner: Owner, mut changes: Changes, mut running: Running) {
    owner.leases().iter().for_each(|lease| running.start(lease));
    while let Some(change) = changes.next().await {
        match change {
            Change::Granted(lease) => running.start(&lease),
            Change::Revoked { range, generation, .. } => running.stop(range, generation),
            Change::Missed(_) => {
                running.stop_all();
                owner.leases().iter().for_each(|lease| running.start(lease));
            }
            _ => {}
        }
    }
}

/// The tasks that run here, each with the lease it runs under.
struct Running {
    all: Arc<[Task]>,
    runner: Runner,
    here: BTreeMap<String, (Generation, AbortHandle)>,
}

impl Running {
    fn start(&mut self, lease: &Lease) {
        for task in self.all.iter().filter(|task| lease.range.contains(task.key())) {
            let running = tokio::spawn(self.runner.clone().run(task.clone())).abort_handle();
            if let Some((_, former)) = self.here.insert(task.name.clone(), (lease.generation, running)) {
                former.abort();
            }
        }
    }

    /// Only what runs under that lease, or did before it had another number: a later one may have come since.
    fn stop(&mut self, range: KeyRange, lease: Generation) {
        for task in self.all.iter().filter(|task| range.contains(task.key())) {
            if let Entry::Occupied(running) = self.here.entry(task.name.clone())
                && running.get().0 <= lease
            {
                running.remove().1.abort();
            }
        }
    }

    fn stop_all(&mut self) {
        std::mem::take(&mut self.here).into_values().for_each(|(_, running)| running.abort());
    }
}

/// What this server runs, and the last period that each task finished, for people.
async fn own(
    State((tasks, finished)): State<(Arc<[Task]>, Finished)>,
) -> Json<BTreeMap<String, Option<u64>>> {
    let own = |task: &Task| Some((task.name.clone(), finished.get(&task.name).ok()?.value));
    Json(tasks.iter().filter_map(own).collect())
}
