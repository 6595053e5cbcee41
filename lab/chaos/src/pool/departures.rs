//! Processes that end because they are told to, in good order, and come back.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

use super::addresses::Node;
use super::kinds::Part;
use super::launch::Pool;
use crate::lines::{HarnessLine, true_now};
use crate::plan::RECOVERY;
use crate::world::World;

/// What follows when a process has ended in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Return {
    /// The next process of the name is started after this.
    After(Duration),
    /// No other is started.
    Never,
}

/// A Manager that was started this long ago has found its store and its peers.
const SETTLED: Duration = Duration::from_millis(1_500);

impl Pool {
    /// SIGTERM: an Owner drains itself, a Manager resigns. Whatever faults do to a process that leaves, they still can.
    pub(super) fn ask_to_leave(&mut self, node: Node, next: Return) -> io::Result<()> {
        let Some(process) = self.processes.get_mut(&node).filter(|process| process.is_running()) else {
            return Ok(());
        };
        process.departure = Some(next);
        let (name, life, at) = (process.name.clone(), process.life, true_now());
        process.terminate()?;
        self.note(HarnessLine::Retired { name, life, at })
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
        matches!(node, Node::Owner(index) if index >= self.plan.sizes.owners)
    }

    /// How many of a kind are away that are usually there.
    pub(super) fn away(&self, part: Part) -> usize {
        let is_usual = |node: &Node| part.is_of(*node) && !self.is_joiner(*node);
        let all = Node::all(self.plan.sizes).into_iter().filter(is_usual).count();
        all - self.available().into_iter().filter(is_usual).count()
    }

    /// Everybody of a kind that is usually there, runs, and was not told to end.
    pub(super) fn staying(&self, part: Part) -> Vec<Node> {
        let stays = |node: &Node| self.processes.get(node).is_some_and(|process| process.departure.is_none());
        let is_usual = |node: &Node| part.is_of(*node) && !self.is_joiner(*node);
        self.available().into_iter().filter(|node| is_usual(node) && stays(node)).collect()
    }

    /// Which of the processes of a name runs now.
    pub(super) fn running_life(&self, node: Node) -> Option<u32> {
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
