//! One part as a process: started, killed, told to stop, each by its id.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use centrifuge_examples::Failure;
use centrifuge_harness::signals;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::{READY, TIMEOUT};

/// A running part. It is killed when it is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    address: String,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts a part and waits until it serves. What it prints on its standard error goes to a file in `logs`.
    pub(super) async fn start(mut command: Command, name: &str, logs: &Path) -> Result<Process, Failure> {
        let log = logs.join(format!("{name}.log"));
        let errors = File::options().create(true).append(true).open(&log)?;
        let mut child = command
            .args(["--parent", &std::process::id().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()?;
        let output = child.stdout.take().ok_or("a pipe was asked for")?;
        let mut process = Process { name: name.to_owned(), address: String::new(), log, child };
        let mut lines = BufReader::new(output).lines();
        let ready = async {
            while let Some(line) = lines.next_line().await? {
                let mut words = line.split(' ');
                if words.next() == Some(READY) {
                    return Ok(words.nth(1).map(str::to_owned));
                }
            }
            Ok::<_, std::io::Error>(None)
        };
        match tokio::time::timeout(TIMEOUT, ready).await {
            Ok(Ok(Some(address))) => process.address = address,
            _ => return Err(format!("{name} did not start: {}", process.stderr()).into()),
        }
        // Whatever else it prints is read, so that it never waits for a reader.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(process)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it serves.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What it printed on its standard error.
    pub fn stderr(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// `kill -9`.
    pub async fn kill(mut self) -> Result<(), Failure> {
        Ok(self.child.kill().await?)
    }

    /// Stops it where it is, as a long pause of its machine would, and waits until it stands still.
    pub async fn pause(&self) -> Result<(), Failure> {
        let id = self.child.id().ok_or_else(|| format!("{} has ended: {}", self.name, self.stderr()))?;
        Ok(signals::pause(id)?)
    }

    /// It goes on after a pause.
    pub fn resume(&self) -> Result<(), Failure> {
        self.signal(Signal::CONT)
    }

    /// Tells it to stop, and waits until it has: a server moves its state away first.
    pub async fn stop(mut self) -> Result<ExitStatus, Failure> {
        self.signal(Signal::TERM)?;
        let ended = tokio::time::timeout(TIMEOUT, self.child.wait()).await;
        Ok(ended.map_err(|_| format!("{} does not stop", self.name))??)
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let id = self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let id = id.ok_or_else(|| format!("{} has ended: {}", self.name, self.stderr()))?;
        Ok(kill_process(id, signal)?)
    }
}
