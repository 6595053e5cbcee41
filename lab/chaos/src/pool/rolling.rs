//! A rolling restart: all of a kind one after the other, each told to end and waited for until the next of its name
//! runs.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use centrifuge_harness::Rng;
use tokio::time::Instant;

use super::addresses::Node;
use super::departures::Return;
use super::kinds::Part;
use super::launch::Pool;

/// From the start of a process to the end of the next, at most.
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// How long a process is away, at most.
const MAX_AWAY: Duration = Duration::from_millis(500);

/// One round.
pub(super) struct Rolling {
    part: Part,
    left: VecDeque<Node>,
    /// Who was told to end, and which of its lives that was.
    current: Option<(Node, u32)>,
    not_before: Instant,
}

impl Rolling {
    pub(super) fn new(part: Part, pool: &Pool) -> Rolling {
        let is_one = |node: &Node| part.is_of(*node) && !pool.is_joiner(*node);
        let left = Node::all(pool.plan.sizes).into_iter().filter(is_one).collect();
        Rolling { part, left, current: None, not_before: Instant::now() }
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
