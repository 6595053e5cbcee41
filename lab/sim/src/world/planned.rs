//! What is planned and must cost nothing: drains by applications and operators, and restarts of whole pools.

use centrifuge_core::manager::AdminCommand;
use centrifuge_core::owner::OwnerEvent;

use crate::seen::Node;
use crate::world::World;
use crate::world::host::Host;
use crate::world::plan::{MILLISECOND, Part, SECOND};
use crate::world::queue::{Event, Undo};

impl World {
    /// An application empties itself and leaves. Where things fail it waits for some time only, and then leaves with
    /// what it holds.
    pub(super) fn drain_some_owner(&mut self, namespace: usize) -> bool {
        let owners = self.owners_to_drain(namespace);
        if owners.is_empty() {
            return false;
        }
        let owner = self.rng.pick(&owners);
        self.feed_owner(owner, OwnerEvent::Drain);
        if !self.plan.races_only {
            let at = self.now.0 + self.rng.between(10 * SECOND, 90 * SECOND);
            self.queue.push(at, Event::Undo(Undo::Leave { owner, life: self.owners[owner].life }));
        }
        true
    }

    /// An operator empties an Owner. Where nothing fails the Owner is replaced some time later, so that the pool does
    /// not run out of Owners.
    pub(super) fn drain_by_operator(&mut self, number: usize) -> bool {
        let owners = self.owners_to_drain(number);
        if owners.is_empty() {
            return false;
        }
        let owner = self.rng.pick(&owners);
        let (namespace, name) =
            (self.plan.namespaces[number].name.clone(), self.plan.owners[owner].name.clone());
        if self.plan.races_only {
            let at = self.now.0 + self.rng.spread(100 * MILLISECOND, 60 * SECOND);
            let undo = if self.rng.chance(500) {
                Undo::Undrain { namespace: number, owner }
            } else {
                Undo::Replace { node: Node::Owner(owner) }
            };
            self.queue.push(at, Event::Undo(undo));
        } else if self.rng.chance(500) {
            let at = self.now.0 + self.rng.spread(100 * MILLISECOND, 60 * SECOND);
            self.queue.push(at, Event::Undo(Undo::Undrain { namespace: number, owner }));
        }
        self.ask_leader(AdminCommand::Drain { namespace, owner: name, why: "maintenance".into() })
    }

    /// An operator takes an order to drain back. A leader that is just not there is asked again.
    pub(super) fn undrain(&mut self, number: usize, owner: usize) {
        let (namespace, name) =
            (self.plan.namespaces[number].name.clone(), self.plan.owners[owner].name.clone());
        if !self.ask_leader(AdminCommand::Undrain { namespace, owner: name, why: "it is over".into() }) {
            let retry = self.now.0 + 3 * SECOND;
            self.queue.push(retry, Event::Undo(Undo::Undrain { namespace: number, owner }));
        }
    }

    /// The Owners of a namespace that may be drained: where nothing fails, another must be left to take what they have.
    fn owners_to_drain(&self, namespace: usize) -> Vec<usize> {
        let here = |owner: &usize| {
            let plan = &self.plan.owners[*owner];
            plan.namespace == namespace && self.owners[*owner].is_running()
        };
        let running = || (0..self.owners.len()).filter(here);
        if !self.plan.races_only {
            return running().collect();
        }
        let staying: Vec<usize> = running().filter(|owner| self.stays(*owner)).collect();
        if staying.len() < 2 { Vec::new() } else { staying }
    }

    /// Whether an Owner is a member of its pool that nobody wants to be emptied.
    fn stays(&self, owner: usize) -> bool {
        let plan = &self.plan.owners[owner];
        let stored = self.stored(&self.plan.namespaces[plan.namespace].name);
        let process = self.owners[owner].process.as_ref();
        let info = process.and_then(|process| stored?.sessions.get(&process.machine.session()));
        let is_going = process.is_some_and(|process| process.leaving || process.machine.is_going());
        !is_going && info.is_some_and(|info| !info.is_draining() && !info.evicted)
    }

    /// The Owners of a namespace are replaced one after the other; their drains may overlap.
    pub(super) fn replace_owners(&mut self, namespace: usize) -> bool {
        let owners = self.running_owners(namespace);
        let pause = self.rng.spread(200 * MILLISECOND, 40 * SECOND);
        self.replace_in_turn(owners.into_iter().map(Node::Owner), pause)
    }

    /// The Managers are replaced one after the other, slowly enough for every Owner to find the next leader.
    pub(super) fn replace_managers(&mut self) -> bool {
        let pause = self.rng.between(35 * SECOND, 60 * SECOND);
        self.replace_in_turn((0..self.managers.len()).map(Node::Manager), pause)
    }

    fn replace_in_turn(&mut self, nodes: impl Iterator<Item = Node>, pause: u64) -> bool {
        let mut at = self.now.0;
        for node in nodes {
            self.queue.push(at, Event::Undo(Undo::Replace { node }));
            at += pause;
        }
        at > self.now.0
    }

    /// One turn of a planned restart.
    pub(super) fn replace(&mut self, node: Node) {
        if !self.faults_happen || !self.is_running(node) {
            return;
        }
        match node {
            Node::Owner(owner) => {
                let namespace = self.plan.owners[owner].namespace;
                let others = self.owners_to_drain(namespace);
                if self.plan.owners[owner].part == Part::Regular && others.iter().any(|other| *other != owner)
                {
                    self.feed_owner(owner, OwnerEvent::Drain);
                }
            }
            Node::Manager(number) => self.replace_manager(number),
            Node::Lookup(_) => {}
        }
    }

    /// Whether there is a leader, and no other Manager is being replaced.
    fn can_spare_standby(&self) -> bool {
        self.leader().is_some() && self.managers.iter().all(Host::is_running)
    }

    fn replace_manager(&mut self, number: usize) {
        let node = Node::Manager(number);
        if self.leader() == Some(number) {
            if self.resign_leader() {
                let at = self.now.0 + self.rng.between(SECOND, 2 * SECOND);
                self.queue.push(at, Event::Undo(Undo::Replace { node }));
            }
        } else if !self.plan.races_only || self.can_spare_standby() {
            self.kill(node, true);
        }
    }
}
