//! What happens to many at once and to namesakes: rolling restarts, racks, storms of joins and leaves, second processes; and what
//! is planned and must cost nothing: drains by applications and operators, and restarts of whole pools.

use centrifuge_core::manager::AdminCommand;
use centrifuge_core::owner::OwnerEvent;

use super::{Event, Fault, Host, MILLISECOND, Node, Part, SECOND, Seen, Undo, World};

/// In a pool of more Owners than this a rack has a fifth of them, in a smaller one half.
const LARGE: usize = 20;

impl World {
    /// The Owners of a namespace.
    pub(super) fn owners_of(&self, namespace: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.owners.len()).filter(move |owner| self.plan.owners[*owner].namespace == namespace)
    }

    /// The Owners of a namespace that run.
    pub(super) fn running_owners(&self, namespace: usize) -> Vec<usize> {
        self.owners_of(namespace).filter(|owner| self.owners[*owner].is_running()).collect()
    }

    /// The regular ones among them.
    fn regular_owners(&self, namespace: usize) -> Vec<usize> {
        let mut owners = self.running_owners(namespace);
        owners.retain(|owner| self.plan.owners[*owner].part == Part::Regular);
        owners
    }

    fn roll(&mut self, nodes: Vec<Node>) -> bool {
        let pause = self.rng.spread(200 * MILLISECOND, 20 * SECOND);
        for (turn, node) in nodes.iter().enumerate() {
            self.queue.push(self.now.0 + turn as u64 * pause, Event::Undo(Undo::Roll { node: *node }));
        }
        !nodes.is_empty()
    }

    pub(super) fn roll_owners(&mut self, namespace: usize) -> bool {
        let owners = self.regular_owners(namespace);
        self.roll(owners.into_iter().map(Node::Owner).collect())
    }

    pub(super) fn roll_managers(&mut self) -> bool {
        self.roll((0..self.managers.len()).map(Node::Manager).collect())
    }

    /// Several Owners die at once and come back minutes later.
    pub(super) fn lose_rack(&mut self, namespace: usize) -> bool {
        let owners = self.regular_owners(namespace);
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
        let owners = self.regular_owners(namespace);
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

    /// An application empties itself and leaves. Where things fail it waits for some time only, and then leaves with
    /// what it holds.
    pub(super) fn drain_some_owner(&mut self, namespace: usize) -> bool {
        let owners = self.owners_to_drain(namespace);
        let Some(owner) = self.rng.pick_any(&owners) else { return false };
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
        let Some(owner) = self.rng.pick_any(&owners) else { return false };
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
        let running = self.running_owners(namespace);
        if !self.plan.races_only {
            return running;
        }
        let staying: Vec<usize> = running.into_iter().filter(|owner| self.stays(*owner)).collect();
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
        let owners = self.regular_owners(namespace);
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
