//! Faults of many at once and of namesakes: rolling restarts, racks, storms of joins and leaves, second processes.

use centrifuge_core::owner::OwnerEvent;

use crate::seen::{Node, Seen};
use crate::world::World;
use crate::world::plan::{MILLISECOND, Part, SECOND};
use crate::world::queue::{Event, Undo};
use crate::world::tally::Fault;

/// In a pool of more Owners than this a rack has a fifth of them, in a smaller one half.
const LARGE: usize = 20;

impl World {
    /// The regular Owners of a namespace that run.
    pub(super) fn running_owners(&self, namespace: usize) -> Vec<usize> {
        let here = |owner: &usize| {
            let plan = &self.plan.owners[*owner];
            plan.namespace == namespace && plan.part == Part::Regular && self.owners[*owner].is_running()
        };
        (0..self.owners.len()).filter(here).collect()
    }

    fn roll(&mut self, nodes: Vec<Node>) -> bool {
        let pause = self.rng.spread(200 * MILLISECOND, 20 * SECOND);
        for (turn, node) in nodes.iter().enumerate() {
            self.queue.push(self.now.0 + turn as u64 * pause, Event::Undo(Undo::Roll { node: *node }));
        }
        !nodes.is_empty()
    }

    pub(super) fn roll_owners(&mut self, namespace: usize) -> bool {
        let owners = self.running_owners(namespace);
        self.roll(owners.into_iter().map(Node::Owner).collect())
    }

    pub(super) fn roll_managers(&mut self) -> bool {
        self.roll((0..self.managers.len()).map(Node::Manager).collect())
    }

    /// Several Owners die at once and come back minutes later.
    pub(super) fn lose_rack(&mut self, namespace: usize) -> bool {
        let owners = self.running_owners(namespace);
        let back = self.now.0 + self.rng.between(20 * SECOND, 120 * SECOND);
        let lost = if owners.len() > LARGE { owners.len() / 5 } else { owners.len().div_ceil(2) };
        for owner in owners.iter().take(lost) {
            let node = Node::Owner(*owner);
            self.kill(node, false);
            self.tally.count(Fault::RackedOwner);
            let at = back + self.rng.below(3 * SECOND);
            self.queue.push(at, Event::Undo(Undo::Start { node }));
        }
        lost > 0
    }

    /// Every dead Owner and the spare one start at once; the spare one goes again.
    pub(super) fn storm_of_joins(&mut self, namespace: usize) -> bool {
        let mut joined = false;
        for number in 0..self.owners.len() {
            let plan = &self.plan.owners[number];
            let joins = plan.namespace == namespace && !matches!(plan.part, Part::Second { .. });
            if !joins || self.owners[number].process.is_some() {
                continue;
            }
            joined = true;
            let goes_again = plan.part == Part::Spare && !self.plan.races_only;
            self.start(Node::Owner(number));
            if goes_again {
                self.plan_departure(number);
            }
        }
        joined
    }

    fn plan_departure(&mut self, owner: usize) {
        let (at, life) = (self.now.0 + self.rng.spread(SECOND, 150 * SECOND), self.owners[owner].life);
        let undo = if self.rng.chance(500) {
            Undo::Leave { owner, life }
        } else {
            Undo::Kill { node: Node::Owner(owner), life, restart: false }
        };
        self.queue.push(at, Event::Undo(undo));
    }

    /// Some Owners leave at once, holding what they hold.
    pub(super) fn storm_of_leaves(&mut self, namespace: usize) -> bool {
        let owners = self.running_owners(namespace);
        let leaving = owners.len() / 2;
        for owner in owners.iter().take(leaving) {
            self.leave(*owner);
        }
        leaving > 0
    }

    /// A second process of a name starts while the first lives, and does not say that the first is gone. What the
    /// first may have said of its own predecessors was true, and speaks of no later process.
    pub(super) fn start_second(&mut self, namespace: usize) -> bool {
        let second = self
            .plan
            .owners
            .iter()
            .position(|owner| owner.namespace == namespace && matches!(owner.part, Part::Second { .. }));
        let Some(second) = second else { return false };
        let Part::Second { of } = self.plan.owners[second].part else { return false };
        if self.owners[second].process.is_some() || self.owners[of].process.is_none() {
            return false;
        }
        self.start_owner(second);
        let at = self.now.0 + self.rng.spread(SECOND, 150 * SECOND);
        let kill = Undo::Kill { node: Node::Owner(second), life: self.owners[second].life, restart: false };
        self.queue.push(at, Event::Undo(kill));
        true
    }

    /// An application gives up what it holds and goes; it waits some time for the Manager to know.
    pub(super) fn leave(&mut self, owner: usize) {
        let host = &mut self.owners[owner];
        let life = host.life;
        let Some(process) = &mut host.process else { return };
        if std::mem::replace(&mut process.leaving, true) {
            return;
        }
        self.witness.see(self.now, &Seen::OwnerLeaves { session: process.machine.session() });
        self.queue.push(self.now.0 + 20 * SECOND, Event::Undo(Undo::Exit { owner, life }));
        self.feed_owner(owner, OwnerEvent::Leave);
    }
}
