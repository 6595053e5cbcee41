//! Processes of the pool: started, killed, stopped and continued, each by its id; and told to end in good order, to come back.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use centrifuge_harness::Rng;
use centrifuge_harness::process::log_to;
use centrifuge_harness::signals::Signal;
use tokio::time::Instant;

use super::addresses::{Node, Part};
use super::launch::Pool;
use crate::lines::{HarnessLine, true_now};
use crate::plan::{RECOVERY, World};

/// What follows when a process has ended in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Return {
    /// The next process of the name is started after this.
    After(Duration),
    /// No other is started.
    Never,
}

/// A Manager that was started this long ago has found its store and its peers.
const SETTLED: Duration = Duration::from_millis(1_500);

impl Pool {
    /// SIGTERM: an Owner drains itself, a Manager resigns. Whatever faults do to a process that leaves, they still can.
    pub(crate) fn ask_to_leave(&mut self, node: Node, next: Return) -> io::Result<()> {
        let process = self.process(node);
        if !process.is_running() {
            return Ok(());
        }
        process.departure = Some(next);
        let (life, at) = (process.life, true_now());
        process.terminate()?;
        self.note(HarnessLine::Retired { name: node.to_string(), life, at })
    }

    pub(super) fn comes_back(&mut self, node: Node, next: Return) {
        if let Return::After(away) = next {
            self.returns.push((Instant::now() + away, node));
        }
    }

    /// Starts those whose time it is.
    pub(super) fn start_returned(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let due: Vec<(Instant, Node)> = self.returns.extract_if(.., |(at, _)| *at <= now).collect();
        due.into_iter().try_for_each(|(_, node)| self.start_process(node))
    }

    /// Whether an Owner comes only in join storms.
    pub(super) fn is_joiner(&self, node: Node) -> bool {
        node.part == Part::Owner && node.index >= self.plan.sizes.owners
    }

    /// Those of a kind that are usually there.
    pub(super) fn usual(&self, part: Part) -> Vec<Node> {
        Node::all_of(part, self.plan.sizes).into_iter().filter(|node| !self.is_joiner(*node)).collect()
    }

    /// How many of these are away.
    pub(super) fn away(&self, part: Part) -> usize {
        let here = self.available();
        self.usual(part).into_iter().filter(|node| !here.contains(node)).count()
    }

    /// Those of these that run, and were not told to end.
    pub(super) fn staying(&self, part: Part) -> Vec<Node> {
        let here = self.available();
        let stays = |node: &Node| here.contains(node) && self.processes[node].departure.is_none();
        self.usual(part).into_iter().filter(stays).collect()
    }

    /// Which of the processes of a name runs now.
    pub(crate) fn running_life(&self, node: Node) -> Option<u32> {
        self.processes.get(&node).filter(|process| process.is_running()).map(|process| process.life)
    }

    /// Whether every Manager takes part: no operator restarts one while another is not back.
    pub(super) fn are_managers_settled(&self) -> bool {
        let settled = if self.plan.world == World::Diskless { RECOVERY + SETTLED } else { SETTLED };
        let is_settled = |node: &Node| {
            let started_at = self.processes.get(node).and_then(|process| process.started_at);
            started_at.is_some_and(|at| at.elapsed() >= settled)
        };
        let staying = self.staying(Part::Manager);
        staying.len() == usize::from(self.plan.sizes.managers) && staying.iter().all(is_settled)
    }
}

/// From the start of a process to the end of the next, at most.
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// How long a process is away, at most.
const MAX_AWAY: Duration = Duration::from_millis(500);

/// A rolling restart: all of a kind one after the other, each told to end and waited for until the next of its name runs.
pub(super) struct Rolling {
    part: Part,
    left: VecDeque<Node>,
    /// Who was told to end, and which of its lives that was.
    current: Option<(Node, u32)>,
    not_before: Instant,
}

impl Rolling {
    pub(super) fn new(part: Part, pool: &Pool) -> Rolling {
        Rolling { part, left: pool.usual(part).into(), current: None, not_before: Instant::now() }
    }

    /// Does what is due. True when the round is over.
    pub(super) fn step(&mut self, pool: &mut Pool, rng: &mut Rng) -> io::Result<bool> {
        let now = Instant::now();
        if let Some((node, life)) = self.current {
            if pool.running_life(node).is_none_or(|running| running == life) {
                return Ok(false);
            }
            self.current = None;
            self.not_before = now + rng.between(Duration::ZERO, MAX_PAUSE);
        }
        let Some(node) = self.left.front().copied() else { return Ok(true) };
        let is_safe = self.part != Part::Manager || pool.are_managers_settled();
        if now < self.not_before || !is_safe || !pool.staying(self.part).contains(&node) {
            return Ok(false);
        }
        self.left.pop_front();
        self.current = pool.running_life(node).map(|life| (node, life));
        pool.ask_to_leave(node, Return::After(rng.between(Duration::ZERO, MAX_AWAY)))?;
        Ok(false)
    }
}

/// A name whose processes come and go.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: String,
    /// How many there have been.
    pub(super) life: u32,
    child: Option<centrifuge_harness::Process>,
    pub(super) is_stopped: bool,
    /// It was told to end, and this is what follows. Faults may still hit it.
    pub(super) departure: Option<Return>,
    pub(super) started_at: Option<Instant>,
}

impl Process {
    pub(super) fn new(name: String) -> Process {
        Process { name, life: 0, child: None, is_stopped: false, departure: None, started_at: None }
    }

    pub(super) fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Starts the next life; what it prints goes to a file.
    ///
    /// To be called from the harness's main thread: the kernel ends a child with the thread that started it.
    pub(super) fn start(&mut self, mut command: Command, logs: &Path) -> io::Result<()> {
        let log = logs.join(format!("{}.log", self.name));
        self.child = Some(centrifuge_harness::Process::start(log_to(&mut command, &log)?)?);
        self.started_at = Some(Instant::now());
        self.life += 1;
        (self.is_stopped, self.departure) = (false, None);
        Ok(())
    }

    /// `kill -9`, and waits until it is gone.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        (self.is_stopped, self.departure) = (false, None);
        self.child.take().map_or(Ok(()), centrifuge_harness::Process::kill)
    }

    /// Stops it, and waits until it stands still.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        self.is_stopped = true;
        self.child.as_ref().map_or(Ok(()), centrifuge_harness::Process::pause)
    }

    pub(super) fn go_on(&mut self) -> io::Result<()> {
        self.is_stopped = false;
        self.child.as_ref().map_or(Ok(()), centrifuge_harness::Process::resume)
    }

    pub(super) fn terminate(&self) -> io::Result<()> {
        self.child.as_ref().map_or(Ok(()), |child| child.signal(Signal::TERM))
    }

    /// How it ended, if it did by itself.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        let status = child.ended()?;
        if status.is_some() {
            self.child = None;
        }
        Ok(status)
    }
}
