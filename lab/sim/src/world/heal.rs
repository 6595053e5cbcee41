//! How faults end: one by one as planned, and all together when the world must converge.

use std::sync::Arc;

use centrifuge_core::election::ElectionRequest;
use centrifuge_core::id::Credential;
use centrifuge_core::lookup::LookupEvent;
use centrifuge_core::manager::ManagerEvent;
use centrifuge_core::owner::OwnerEvent;

use crate::seen::{Node, Seen};
use crate::world::World;
use crate::world::host::Condition;
use crate::world::network::Profile;
use crate::world::plan::{MILLISECOND, Part, SECOND};
use crate::world::queue::{Event, Undo};
use crate::world::store::Ailments;
use crate::world::tally::Fault;

impl World {
    /// Ends one fault, or takes its next step.
    pub(super) fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Resume { node, life } => {
                if self.life(node) == life && self.stands_still(node) {
                    self.resume(node);
                }
            }
            Undo::Start { node } => self.start(node),
            Undo::Kill { node, life, restart } => {
                if self.faults_happen && self.life(node) == life && self.lives(node) {
                    self.kill(node, restart);
                }
            }
            Undo::Exit { owner, life } => {
                if self.owners[owner].life == life && self.owners[owner].process.is_some() {
                    let node = Node::Owner(owner);
                    self.kill(node, self.is_regular(node));
                }
            }
            Undo::Roll { node } => self.roll_one(node),
            Undo::Replace { node } => self.replace(node),
            Undo::Undrain { namespace, owner } => self.undrain(namespace, owner),
            Undo::Heal { cut } => self.network.heal(cut),
            Undo::Calm => self.network.calm(),
            Undo::Leave { owner, life } => {
                let host = &self.owners[owner];
                let drains = || host.process.as_ref().is_some_and(|process| process.machine.is_going());
                if host.life == life && host.is_running() && (self.faults_happen || drains()) {
                    self.leave(owner);
                }
            }
            Undo::ManagersBack { node } => {
                if self.is_running(node) {
                    self.tell_managers(node, Arc::clone(&self.plan.manager_ids));
                }
            }
            Undo::Ambush { node, life } => {
                if self.life(node) == life && self.is_running(node) {
                    self.strike_from_ambush(node);
                }
            }
            Undo::Dither { namespace, range, owner, times } => self.dither_on(namespace, range, owner, times),
            Undo::Remove { namespace, until } => self.remove_on(namespace, until),
            Undo::KillLeader => self.kill_leader_soon(),
            Undo::Resign => {
                if self.faults_happen && self.resign_leader() {
                    self.tally.count(Fault::Resign);
                }
            }
            Undo::KillLeaders { until } => self.kill_leaders(until),
            Undo::CutOff { owner, length } => self.cut_owner_off(owner, length),
            Undo::Unfreeze { namespace } => {
                if self.faults_happen && !self.unfreeze(namespace) {
                    let retry = self.now.0 + 3 * SECOND;
                    self.queue.push(retry, Event::Undo(Undo::Unfreeze { namespace }));
                }
            }
        }
    }

    /// Starts a process on a node that has none, unless it is one that should not run any more.
    pub(super) fn start(&mut self, node: Node) {
        if self.lives(node)
            || self.stay_dead.contains(&node)
            || (!self.faults_happen && !self.is_regular(node))
        {
            return;
        }
        if self.life(node) > 0 {
            self.tally.count(Fault::Restart);
        }
        match node {
            Node::Manager(number) => self.start_manager(number),
            Node::Owner(number) => self.start_owner(number),
            Node::Lookup(number) => self.start_lookup(number),
        }
    }

    fn is_regular(&self, node: Node) -> bool {
        match node {
            Node::Owner(number) => self.plan.owners[number].part == Part::Regular,
            Node::Manager(_) | Node::Lookup(_) => true,
        }
    }

    /// One turn of a rolling restart; a leader may be told beforehand.
    fn roll_one(&mut self, node: Node) {
        if !self.faults_happen || !self.lives(node) {
            return;
        }
        if let Node::Manager(number) = node
            && self.rng.chance(500)
        {
            self.feed_manager(number, ManagerEvent::Resign);
            let life = self.managers[number].life;
            let at = self.now.0 + self.rng.spread(MILLISECOND, SECOND);
            return self.queue.push(at, Event::Undo(Undo::Kill { node, life, restart: true }));
        }
        self.kill(node, true);
    }

    /// Lets a process go on. What the machine missed comes first or last, as an operating system might have it.
    pub(super) fn resume(&mut self, node: Node) {
        let waiting = match node {
            Node::Manager(number) => {
                let suspended = self.managers[number].condition != Condition::Paused;
                let waiting = self.managers[number].resume(self.now);
                if suspended {
                    self.feed_manager(number, ManagerEvent::ClockJumped);
                    self.feed_election(number, ElectionRequest::ClockJumped);
                }
                waiting
            }
            Node::Owner(number) => {
                let suspended = self.owners[number].condition != Condition::Paused;
                let waiting = self.owners[number].resume(self.now);
                if suspended {
                    let fresh = self.random().nonce();
                    self.feed_owner(number, OwnerEvent::ClockJumped { fresh: Credential::unproven(fresh) });
                    self.witness.see(self.now, &Seen::OwnerSuspended { node: number, suspended: false });
                }
                waiting
            }
            Node::Lookup(number) => {
                let suspended = self.lookups[number].condition != Condition::Paused;
                let waiting = self.lookups[number].resume(self.now);
                self.witness.see(self.now, &Seen::LookupPaused { node: number, paused: false });
                if suspended {
                    self.feed_lookup(number, LookupEvent::ClockJumped);
                }
                waiting
            }
        };
        let timers_first = self.rng.chance(500);
        if timers_first {
            self.catch_up(node);
        }
        for event in waiting {
            self.happen(event);
        }
        self.catch_up(node);
    }

    /// From here on nothing fails any more, and the world must converge.
    pub(super) fn end_faults(&mut self) {
        self.faults_happen = false;
        self.network.heal_all(calm(&self.plan.network, self.plan.races_only));
        self.store.ailments = Ailments::default();
        self.choose_who_stays_dead();
        for number in 0..self.owners.len() {
            if matches!(self.plan.owners[number].part, Part::Second { .. }) {
                self.end_owner(number);
            }
        }
        let nodes: Vec<Node> = self.nodes().collect();
        for node in nodes {
            if self.stands_still(node) {
                self.resume(node);
            }
            if self.is_running(node) {
                self.tell_managers(node, Arc::clone(&self.plan.manager_ids));
            } else if self.is_regular(node) {
                self.plan_start(node, 2 * SECOND);
            }
        }
        self.witness.see(self.now, &Seen::FaultsEnded);
    }

    /// Some that are dead, and some that die now, never come back; of each kind and namespace one lives on.
    fn choose_who_stays_dead(&mut self) {
        if self.plan.races_only || self.rng.chance(400) {
            return;
        }
        for namespace in 0..self.plan.namespaces.len() {
            let here = |owner: &usize| {
                self.plan.owners[*owner].namespace == namespace
                    && self.plan.owners[*owner].part == Part::Regular
            };
            let owners: Vec<usize> = (0..self.owners.len()).filter(here).collect();
            let dead = Node::Owner(self.rng.pick(&owners));
            self.stay_dead.push(dead);
            self.kill(dead, false);
        }
        if self.managers.len() > 1 && self.rng.chance(500) {
            let dead = Node::Manager(self.rng.below(self.managers.len() as u64) as usize);
            self.stay_dead.push(dead);
            self.kill(dead, false);
        }
    }
}

/// The network once faults have ended; where races are all there is, they go on.
fn calm(usual: &Profile, races_only: bool) -> Profile {
    if races_only { *usual } else { Profile::reliable(usual.shortest.min(MILLISECOND), 20 * MILLISECOND) }
}
