//! Runs a task in every period, under a lease.

use std::time::Duration;

use centrifuge::Owner;

use super::Finished;
use super::plan::{Task, now};
use super::sink::{Begun, Said, Sink};
use crate::Result;

/// How long after a failure a run is tried again, if its period is not over by then.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// What runs need.
#[derive(Clone)]
pub(super) struct Runner {
    pub(super) owner: Owner,
    pub(super) finished: Finished,
    pub(super) sink: Sink,
    pub(super) server: String,
    pub(super) work: Duration,
}

impl Runner {
    /// Runs a task in every period, until this is aborted because the lease is gone.
    pub(super) async fn run(self, task: Task) {
        loop {
            match self.run_once(&task, task.period_at(now())).await {
                Ok(()) => tokio::time::sleep(task.until_next(now())).await,
                Err(error) => {
                    tracing::info!(task = task.name, %error, "a run failed");
                    tokio::time::sleep(RETRY_INTERVAL.min(task.until_next(now()))).await;
                }
            }
        }
    }

    async fn run_once(&self, task: &Task, period: u64) -> Result<()> {
        // While it lives a drain waits for this run.
        let guard = self.owner.begin(task.key())?;
        let lease = guard.generation();
        if self.finished.get(&task.name)?.value.is_some_and(|finished| finished >= period) {
            return Ok(());
        }
        let said = Said { period, server: self.server.clone() };
        if let Begun::IsDone(last) = self.sink.begin(&task.name, &said, lease).await? {
            self.finished.with_guard(&guard, &task.name, |slot, _| *slot = Some(last))?;
            return Ok(());
        }
        tokio::time::sleep(self.work).await;
        if !guard.recheck() {
            return Err("the lease ended during the run: its next owner runs it again".into());
        }
        self.sink.end(&task.name, &said, lease).await?;
        // Also if the task is about to move: the move waits for the guard, and takes this along.
        self.finished.with_guard(&guard, &task.name, |slot, _| *slot = Some(period))?;
        Ok(())
    }
}
