//! What goes wrong: each fault picks whom it strikes, strikes, and plans its own end.

use std::sync::Arc;

use centrifuge_core::id::ManagerId;
use centrifuge_core::lookup::LookupEvent;
use centrifuge_core::manager::ManagerEvent;
use centrifuge_core::owner::OwnerEvent;

use crate::seen::{Node, Seen};
use crate::world::World;
use crate::world::host::Condition;
use crate::world::network::{Places, Profile};
use crate::world::plan::{MILLISECOND, Part, SECOND};
use crate::world::queue::{Event, Undo};
use crate::world::tally::Fault;

impl World {
    /// Draws a fault and plans the next.
    pub(super) fn next_fault(&mut self) {
        if !self.faults_happen {
            return;
        }
        let pause = if self.dice.chance(self.plan.faults.lulls) {
            self.outlasting()
        } else {
            self.dice.below(2 * self.plan.faults.interval) + 1
        };
        self.queue.push(self.now.0 + pause, Event::NextFault);
        let fault = self.dice.weighted(&self.plan.faults.mix);
        if self.trace.is_on() {
            self.trace.line(self.now, format_args!("fault: {fault:?}"));
        }
        if self.strike(fault) && fault != Fault::Ambush {
            self.tally.count(fault);
            self.digest(fault as u64);
        }
    }

    /// Lets a fault happen; false if there was nobody to strike.
    fn strike(&mut self, fault: Fault) -> bool {
        let namespace = self.dice.below(self.plan.namespaces.len() as u64) as usize;
        match fault {
            Fault::CrashOwner => self.strike_one(is_owner, |world, node| world.kill(node, true)),
            Fault::CrashManager => self.strike_one(is_manager, |world, node| world.kill(node, true)),
            Fault::CrashLookup => self.strike_one(is_lookup, |world, node| world.kill(node, true)),
            Fault::PauseOwner => self.strike_one(is_owner, World::pause),
            Fault::PauseManager => self.strike_one(is_manager, World::pause),
            Fault::PauseLookup => self.strike_one(is_lookup, World::pause),
            Fault::SuspendOwner => self.strike_one(is_owner, World::suspend),
            Fault::SuspendManager => self.strike_one(is_manager, World::suspend),
            Fault::CutOneWay => self.cut_link(false),
            Fault::CutBothWays => self.cut_link(true),
            Fault::Isolate => self.isolate(),
            Fault::OwnerCutOff => self.strike_one(is_owner, World::cut_off_from_managers),
            Fault::CutStore => self.cut_store(),
            Fault::Split => self.split_brain(),
            Fault::StoreDown => self.ail(|ailments, until| ailments.down_until = until),
            Fault::StoreSlow => self.ail(|ailments, until| ailments.slow_until = until),
            Fault::StoreUnknown => self.ail(|ailments, until| ailments.unknown_until = until),
            Fault::LeaseRevoked => self.store.revoke(),
            Fault::RollingOwners => self.roll_owners(namespace),
            Fault::RollingManagers => self.roll_managers(),
            Fault::Rack => self.lose_rack(namespace),
            Fault::JoinStorm => self.storm_of_joins(namespace),
            Fault::LeaveStorm => self.storm_of_leaves(namespace),
            Fault::SecondProcess => self.start_second(namespace),
            Fault::DrainAndLeave => self.strike_one(is_owner, World::drain_and_leave),
            Fault::Ambush => self.arm_ambush(),
            Fault::Dither => self.dither(namespace),
            Fault::Resign => self.resign_leader(),
            Fault::Storm => self.storm_of_packets(),
            Fault::ManagersChanged => self.strike_one(|node| !is_manager(node), World::hide_manager),
            Fault::Configure => self.configure(namespace),
            Fault::Freeze => self.freeze_for_a_while(namespace),
            Fault::Move => self.move_range(namespace),
            Fault::Evict => self.evict(namespace),
            Fault::Drain => self.drain_by_operator(namespace),
            Fault::Weight => self.strike_one(is_owner, World::change_weight),
            _ => unreachable!("{fault:?} happens to packets and timers, not by plan"),
        }
    }

    fn strike_one(&mut self, kind: impl Fn(Node) -> bool, act: impl FnOnce(&mut World, Node)) -> bool {
        let nodes: Vec<_> = self.nodes().filter(|node| kind(*node) && self.is_running(*node)).collect();
        if nodes.is_empty() {
            return false;
        }
        let node = self.dice.pick(&nodes);
        act(self, node);
        true
    }

    /// How long something lasts: milliseconds as often as seconds, and sometimes longer than any lease.
    fn a_while(&mut self) -> u64 {
        if self.dice.chance(self.plan.faults.outlasting) {
            return self.outlasting();
        }
        self.dice.spread(5 * MILLISECOND, self.plan.faults.longest)
    }

    /// A time in which a lease runs out, and not much more.
    fn outlasting(&mut self) -> u64 {
        let hold = u64::try_from(self.plan.longest_hold().as_nanos()).expect("a hold is minutes at most");
        self.dice.between(hold, hold / 2 * 3)
    }

    /// Ends a process, and perhaps starts another in its place after a while.
    pub(super) fn kill(&mut self, node: Node, restart: bool) {
        match node {
            Node::Manager(number) => self.end_manager(number),
            Node::Owner(number) => self.end_owner(number),
            Node::Lookup(number) => self.end_lookup(number),
        }
        if restart {
            let slowest = if self.faults_happen { self.plan.faults.slowest_restart } else { 2 * SECOND };
            let at = self.now.0 + self.dice.spread(50 * MILLISECOND, slowest);
            self.queue.push(at, Event::Undo(Undo::Start { node }));
        }
    }

    pub(super) fn pause(&mut self, node: Node) {
        match node {
            Node::Manager(number) => self.managers[number].condition = Condition::Paused,
            Node::Owner(number) => self.owners[number].condition = Condition::Paused,
            Node::Lookup(number) => {
                self.lookups[number].condition = Condition::Paused;
                self.witness.see(self.now, &Seen::LookupPaused { node: number, paused: true });
            }
        }
        self.resume_later(node);
    }

    fn suspend(&mut self, node: Node) {
        let suspended = Condition::Suspended { since: self.now };
        match node {
            Node::Manager(number) => self.managers[number].condition = suspended,
            Node::Owner(number) => {
                self.owners[number].condition = suspended;
                self.witness.see(self.now, &Seen::OwnerSuspended { node: number, suspended: true });
            }
            Node::Lookup(_) => unreachable!("Lookups are only paused"),
        }
        self.resume_later(node);
    }

    fn resume_later(&mut self, node: Node) {
        let (at, life) = (self.now.0 + self.a_while(), self.life(node));
        self.queue.push(at, Event::Undo(Undo::Resume { node, life }));
    }

    fn cut(&mut self, from: Places, to: Places, both_ways: bool) {
        let length = self.a_while();
        self.cut_for(length, from, to, both_ways);
    }

    fn cut_for(&mut self, length: u64, from: Places, to: Places, both_ways: bool) {
        let heal = self.now.0 + length;
        let cut = self.network.cut(from, to);
        self.queue.push(heal, Event::Undo(Undo::Heal { cut }));
        if both_ways {
            let cut = self.network.cut(to, from);
            self.queue.push(heal, Event::Undo(Undo::Heal { cut }));
        }
    }

    /// Cuts between a Manager, or an Owner, and somebody else.
    fn cut_link(&mut self, both_ways: bool) -> bool {
        let clients: Vec<Node> = self.nodes().filter(|node| !is_manager(*node)).collect();
        let client = self.dice.pick(&clients);
        let other = if is_owner(client) && self.dice.chance(250) {
            Node::Owner(self.dice.below(self.owners.len() as u64) as usize)
        } else {
            Node::Manager(self.dice.below(self.managers.len() as u64) as usize)
        };
        let (client, other) = (self.bit(client), self.bit(other));
        let (from, to) = if self.dice.chance(500) { (client, other) } else { (other, client) };
        self.cut(from, to, both_ways);
        true
    }

    /// Cuts some nodes, of one kind or of several, off from all others.
    fn isolate(&mut self) -> bool {
        if self.dice.chance(400) {
            return self.strike_one(is_lookup, World::isolate_lookup);
        }
        let share = self.dice.pick(&[100, 300, 500]);
        let nodes: Vec<Node> = self.nodes().collect();
        let first = self.dice.pick(&nodes);
        let mut group = self.bit(first);
        for node in nodes {
            if self.dice.chance(share) {
                group |= self.bit(node);
            }
        }
        let store = 1 << self.network.layout.store();
        let rest = !group & if self.dice.chance(500) { !store } else { !0 };
        self.cut(group, rest, true);
        true
    }

    /// Cuts a node off from every Manager, or a Manager from everybody.
    pub(super) fn cut_off_from_managers(&mut self, node: Node) {
        let managers = (1 << self.managers.len()) - 1;
        let others = if is_manager(node) { !self.bit(node) } else { managers };
        let length = if self.dice.chance(700) { self.outlasting() } else { self.a_while() };
        self.cut_for(length, self.bit(node), others, true);
    }

    /// Cuts a Lookup off, perhaps for so long that it must take everything for lost.
    fn isolate_lookup(&mut self, node: Node) {
        let lookup = self.bit(node);
        let length = self.dice.between(20 * SECOND, 250 * SECOND);
        self.cut_for(length, lookup, !lookup, true);
    }

    /// The leader loses its lease before its time and does not hear of it: it is cut off, together with some of its
    /// clients, from the store and from everybody else.
    fn split_brain(&mut self) -> bool {
        let Some(leader) = self.leader().filter(|_| self.managers.len() > 1) else { return false };
        let mut group = self.bit(Node::Manager(leader));
        let clients: Vec<Node> = self.nodes().filter(|node| !is_manager(*node)).collect();
        for client in clients {
            if self.dice.chance(500) {
                group |= self.bit(client);
            }
        }
        let length = if self.dice.chance(500) { self.outlasting() } else { self.a_while() };
        self.cut_for(length, group, !group, true);
        self.store.revoke()
    }

    fn cut_store(&mut self) -> bool {
        let manager = Node::Manager(self.dice.below(self.managers.len() as u64) as usize);
        let manager = self.bit(manager);
        let store = 1 << self.network.layout.store();
        match self.dice.below(3) {
            0 => self.cut(manager, store, false),
            1 => self.cut(store, manager, false),
            _ => self.cut(manager, store, true),
        }
        true
    }

    fn bit(&self, node: Node) -> Places {
        1 << self.network.layout.place(node)
    }

    fn ail(&mut self, set: impl FnOnce(&mut crate::world::store::Ailments, u64)) -> bool {
        let until =
            self.now.0 + self.dice.spread(100 * MILLISECOND, self.plan.faults.longest.min(40 * SECOND));
        set(&mut self.store.ailments, until);
        true
    }

    /// The regular Owners of a namespace that run.
    fn running_owners(&self, namespace: usize) -> Vec<usize> {
        let here = |owner: &usize| {
            let plan = &self.plan.owners[*owner];
            plan.namespace == namespace && plan.part == Part::Regular && self.owners[*owner].is_running()
        };
        (0..self.owners.len()).filter(here).collect()
    }

    fn roll(&mut self, nodes: Vec<Node>) -> bool {
        let pause = self.dice.spread(200 * MILLISECOND, 20 * SECOND);
        for (turn, node) in nodes.iter().enumerate() {
            self.queue.push(self.now.0 + turn as u64 * pause, Event::Undo(Undo::Roll { node: *node }));
        }
        !nodes.is_empty()
    }

    fn roll_owners(&mut self, namespace: usize) -> bool {
        let owners = self.running_owners(namespace);
        self.roll(owners.into_iter().map(Node::Owner).collect())
    }

    fn roll_managers(&mut self) -> bool {
        self.roll((0..self.managers.len()).map(Node::Manager).collect())
    }

    /// Several Owners die at once and come back minutes later.
    fn lose_rack(&mut self, namespace: usize) -> bool {
        let owners = self.running_owners(namespace);
        let back = self.now.0 + self.dice.between(20 * SECOND, 120 * SECOND);
        let lost = owners.len().div_ceil(2);
        for owner in owners.iter().take(lost) {
            let node = Node::Owner(*owner);
            self.kill(node, false);
            let at = back + self.dice.below(3 * SECOND);
            self.queue.push(at, Event::Undo(Undo::Start { node }));
        }
        lost > 0
    }

    /// Every dead Owner and the spare one start at once; the spare one goes again.
    fn storm_of_joins(&mut self, namespace: usize) -> bool {
        let mut joined = false;
        for number in 0..self.owners.len() {
            let plan = &self.plan.owners[number];
            let joins = plan.namespace == namespace && !matches!(plan.part, Part::Second { .. });
            if !joins || self.owners[number].process.is_some() {
                continue;
            }
            joined = true;
            let part = plan.part;
            self.start(Node::Owner(number));
            if part == Part::Spare && !self.plan.races_only {
                let (at, life) =
                    (self.now.0 + self.dice.spread(SECOND, 150 * SECOND), self.owners[number].life);
                let undo = if self.dice.chance(500) {
                    Undo::Leave { owner: number, life }
                } else {
                    Undo::Kill { node: Node::Owner(number), life, restart: false }
                };
                self.queue.push(at, Event::Undo(undo));
            }
        }
        joined
    }

    /// Some Owners leave at once, holding what they hold.
    fn storm_of_leaves(&mut self, namespace: usize) -> bool {
        let owners = self.running_owners(namespace);
        let leaving = owners.len() / 2;
        for owner in owners.iter().take(leaving) {
            self.leave(*owner);
        }
        leaving > 0
    }

    /// A second process of a name starts and does not say that the first is gone, because it is not. Where a process
    /// vouched for being the only one, its word is taken for true.
    fn start_second(&mut self, namespace: usize) -> bool {
        let second = self
            .plan
            .owners
            .iter()
            .position(|owner| owner.namespace == namespace && matches!(owner.part, Part::Second { .. }));
        let Some(second) = second else { return false };
        let Part::Second { of } = self.plan.owners[second].part else { return false };
        let first_is_modest = self.owners[of].process.as_ref().is_some_and(|process| !process.takes_over);
        if self.owners[second].process.is_some() || !first_is_modest {
            return false;
        }
        self.start_owner(second);
        let at = self.now.0 + self.dice.spread(SECOND, 150 * SECOND);
        let kill = Undo::Kill { node: Node::Owner(second), life: self.owners[second].life, restart: false };
        self.queue.push(at, Event::Undo(kill));
        true
    }

    /// An application empties itself and leaves; if that takes too long it leaves with what it holds.
    fn drain_and_leave(&mut self, node: Node) {
        let Node::Owner(owner) = node else { return };
        self.feed_owner(owner, OwnerEvent::Drain);
        let (at, life) = (self.now.0 + self.dice.between(10 * SECOND, 90 * SECOND), self.owners[owner].life);
        self.queue.push(at, Event::Undo(Undo::Leave { owner, life }));
    }

    /// An application gives up what it holds and goes; it waits some time for the Manager to know.
    pub(super) fn leave(&mut self, owner: usize) {
        let host = &mut self.owners[owner];
        let life = host.life;
        let Some(process) = &mut host.process else { return };
        if std::mem::replace(&mut process.leaving, true) {
            return;
        }
        self.queue.push(self.now.0 + 20 * SECOND, Event::Undo(Undo::Exit { owner, life }));
        self.feed_owner(owner, OwnerEvent::Leave);
    }

    pub(super) fn resign_leader(&mut self) -> bool {
        let Some(leader) = self.leader() else { return false };
        self.feed_manager(leader, ManagerEvent::Resign);
        true
    }

    /// Packets fare badly for a while.
    fn storm_of_packets(&mut self) -> bool {
        let (lost, slow) = (self.dice.pick(&[0, 300, 700]), self.dice.pick(&[0, 500]));
        let slowest = self.dice.pick(&[3, 15]) * SECOND;
        self.network.storm(|profile| *profile = Profile { lost, slow, slowest, ..*profile });
        let at = self.now.0 + self.dice.spread(SECOND, 40 * SECOND);
        self.queue.push(at, Event::Undo(Undo::Calm));
        true
    }

    /// A process is told a list of Managers that lacks one, if there is more than one.
    fn hide_manager(&mut self, node: Node) {
        let hidden = self.dice.below(self.managers.len() as u64) as usize;
        let ids = self.plan.manager_ids.iter().enumerate();
        let some: Arc<[ManagerId]> = ids.filter(|(at, _)| *at != hidden).map(|(_, id)| id.clone()).collect();
        if !some.is_empty() {
            self.tell_managers(node, some);
        }
        let at = self.now.0 + self.a_while();
        self.queue.push(at, Event::Undo(Undo::ManagersBack { node }));
    }

    pub(super) fn tell_managers(&mut self, node: Node, managers: Arc<[ManagerId]>) {
        match node {
            Node::Owner(owner) => self.feed_owner(owner, OwnerEvent::ManagersChanged(managers)),
            Node::Lookup(lookup) => self.feed_lookup(lookup, LookupEvent::ManagersChanged(managers)),
            Node::Manager(_) => {}
        }
    }

    fn change_weight(&mut self, node: Node) {
        let weight = self.dice.pick(&[50, 100, 150, 300]);
        if let Node::Owner(owner) = node {
            self.feed_owner(owner, OwnerEvent::Weight(weight));
        }
    }

    fn freeze_for_a_while(&mut self, namespace: usize) -> bool {
        let at = self.now.0 + self.dice.between(5 * SECOND, 60 * SECOND);
        self.queue.push(at, Event::Undo(Undo::Unfreeze { namespace }));
        self.freeze(namespace)
    }
}

fn is_manager(node: Node) -> bool {
    matches!(node, Node::Manager(_))
}

fn is_owner(node: Node) -> bool {
    matches!(node, Node::Owner(_))
}

fn is_lookup(node: Node) -> bool {
    matches!(node, Node::Lookup(_))
}
