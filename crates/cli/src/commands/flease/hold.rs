//! `centrifuge flease hold`: a command that runs only while a cell is held.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use centrifuge::flease::{Cell, Lease, LeaseEnd};
use centrifuge_server::stop::told_to_stop;
use clap::Args;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use super::stop::{Patience, Verdict};
use super::{PeerArgs, cell, tell};
use crate::failure::Failure;
use crate::output::Output;
use crate::words;

/// What a script gets.
pub(super) const EXIT_CODES: &str = "\
The command has the lease's epoch in CENTRIFUGE_EPOCH, 20 hexadecimal digits that rise with every acquisition of the cell,
and the cell's name in CENTRIFUGE_CELL. It runs in a process group of its own. Messages of hold itself go to standard error.

Exit codes:
  the command's own, if it ended by itself; 128 and the signal's number if a signal ended it
  1    the peer cannot run: the message says why
  2    the command line is wrong
  120  the lease was lost, and the command was stopped
  121  the cell was not acquired within --wait
  126  the command cannot be run
  127  there is no such command";

const LOST: u8 = 120;
const NOT_ACQUIRED: u8 = 121;
const BY_SIGNAL: i32 = 128;

#[derive(Args)]
pub(crate) struct HoldArgs {
    #[command(flatten)]
    peer: PeerArgs,
    /// Numbers of the peers that vote on the cell, separated by commas [default: all]
    #[arg(long, value_delimiter = ',')]
    among: Vec<u16>,
    /// How long to wait for the cell, the peer's recovery included [default: for ever]
    #[arg(long, value_parser = words::duration)]
    wait: Option<Duration>,
    /// How long the command has to stop before it is killed [default: a quarter of the lease]
    #[arg(long, value_parser = words::duration)]
    grace: Option<Duration>,
    /// The cell
    cell: String,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Holds the cell, runs the command, gives the cell back.
pub(crate) async fn run(args: HoldArgs) -> Result<(), Failure> {
    let patience = Patience::new(args.peer.lease, args.grace);
    if patience.grace >= args.peer.lease / 2 {
        return Err(Failure::usage(
            "grace must be less than half of the lease, when it is renewed: shorten it",
        ));
    }
    let (flease, _control) = args.peer.start().await?;
    let cell = cell(&flease, &args.cell, &args.among)?;
    let output = args.peer.format.output();
    let mut changes = flease.changes();
    let telling = tokio::spawn(async move {
        while let Some(change) = changes.next().await {
            let (json, words) = tell(&change);
            say(output, &json, &words);
        }
    });
    let lease = tokio::select! {
        lease = acquire(&cell, args.wait) => lease,
        () = told_to_stop() => Err(Failure::with_code(143, "told to stop while it waited for the cell")),
    };
    let outcome = match lease {
        Ok(lease) => hold(&args, patience, lease).await,
        Err(failure) => Err(failure),
    };
    flease.stop().await;
    telling.abort();
    outcome
}

async fn acquire(cell: &Cell, wait: Option<Duration>) -> Result<Lease, Failure> {
    let Some(wait) = wait else { return Ok(cell.acquire().await?) };
    match tokio::time::timeout(wait, cell.acquire()).await {
        Ok(lease) => Ok(lease?),
        Err(_) => {
            let what = format!(
                "{} was not acquired within {wait:?}: another one holds it, or too few peers answer",
                cell.name()
            );
            Err(Failure::with_code(NOT_ACQUIRED, what))
        }
    }
}

/// Runs the command under the lease, to the end of either.
async fn hold(args: &HoldArgs, patience: Patience, lease: Lease) -> Result<(), Failure> {
    let mut running = Running::start(args, &lease)?;
    let mut children =
        signal(SignalKind::child()).map_err(|error| Failure::failed(format!("no signals: {error}")))?;
    let stopped = told_to_stop();
    tokio::pin!(stopped);
    let status = loop {
        if let Some(status) = running.has_ended()? {
            break status;
        }
        let rest = running.watch(patience, lease.rest());
        tokio::select! {
            _ = children.recv() => {}
            () = tokio::time::sleep(rest) => {}
            _ = lease.ended(), if lease.is_valid() => {}
            () = &mut stopped, if running.asked_at.is_none() => running.ask(),
        }
    };
    let was_lost = !lease.is_valid();
    let why = if was_lost { lease.ended().await } else { LeaseEnd::Released };
    let was_stopped = running.is_stopped || was_lost;
    // What the command left behind ends before the cell is given back.
    drop(running);
    lease.release().await;
    conclude(status, was_stopped, why)
}

fn conclude(status: ExitStatus, was_stopped: bool, why: LeaseEnd) -> Result<(), Failure> {
    if was_stopped {
        let why = if why == LeaseEnd::Released { LeaseEnd::Expired } else { why };
        return Err(Failure::with_code(
            LOST,
            format!("the command was stopped because its lease ended: {why}"),
        ));
    }
    let code = status.code().or_else(|| status.signal().map(|signal| BY_SIGNAL + signal)).unwrap_or(1);
    match u8::try_from(code).unwrap_or(1) {
        0 => Ok(()),
        code => Err(Failure::with_code(code, "")),
    }
}

/// The command, in a process group of its own.
struct Running {
    child: Child,
    grace: Duration,
    /// When it was told to stop, for whatever reason.
    told_at: Option<Instant>,
    /// When this process was told to stop.
    asked_at: Option<Instant>,
    /// It was told to stop for the lease's sake.
    is_stopped: bool,
}

impl Running {
    /// Must be called on the process's main thread: the kernel ends the command with the thread that started it.
    fn start(args: &HoldArgs, lease: &Lease) -> Result<Running, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::failed(format!("this program does not find itself: {error}")))?;
        let mut command = Command::new(program);
        command
            .args(["flease", "tied", "--parent", &std::process::id().to_string(), "--"])
            .args(&args.command)
            .env("CENTRIFUGE_EPOCH", lease.epoch().to_string())
            .env("CENTRIFUGE_CELL", lease.cell())
            .process_group(0);
        // A group in the background that reads from a terminal would be stopped by it.
        if std::io::stdin().is_terminal() {
            command.stdin(Stdio::null());
        }
        let child =
            command.spawn().map_err(|error| Failure::failed(format!("cannot start the command: {error}")))?;
        let grace = args.grace.unwrap_or(args.peer.lease / 4);
        Ok(Running { child, grace, told_at: None, asked_at: None, is_stopped: false })
    }

    fn has_ended(&mut self) -> Result<Option<ExitStatus>, Failure> {
        self.child
            .try_wait()
            .map_err(|error| Failure::failed(format!("the command cannot be waited for: {error}")))
    }

    /// This process was told to stop: so is the command.
    fn ask(&mut self) {
        self.asked_at = Some(Instant::now());
        self.tell();
    }

    fn tell(&mut self) {
        if self.told_at.is_none() {
            self.told_at = Some(Instant::now());
            self.signal(Signal::TERM);
        }
    }

    /// Stops or kills the command if too little of the lease is left, and returns when to check again.
    fn watch(&mut self, patience: Patience, rest: Duration) -> Duration {
        let overdue = self.asked_at.is_some_and(|asked| asked.elapsed() >= self.grace);
        match patience.judge(rest, self.told_at.is_some()) {
            Verdict::Kill => {
                self.is_stopped = true;
                self.signal(Signal::KILL);
                patience.margin
            }
            Verdict::Stop => {
                self.is_stopped = true;
                self.tell();
                rest.saturating_sub(patience.margin)
            }
            Verdict::Run(_) if overdue => {
                self.signal(Signal::KILL);
                self.grace
            }
            Verdict::Run(after) => self.asked_at.map_or(after, |asked| {
                after.min(self.grace.saturating_sub(asked.elapsed()).max(Duration::from_millis(1)))
            }),
        }
    }

    fn signal(&self, signal: Signal) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            // It may have ended by itself.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Running {
    /// Whatever happens here, nothing of the command is left behind.
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

/// The standard output is the command's.
fn say(output: Output, json: &Value, words: &str) {
    match output {
        Output::Json => eprintln!("{json}"),
        Output::Table => eprintln!("centrifuge: {words}"),
    }
}
