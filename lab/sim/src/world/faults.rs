//! What goes wrong: each fault picks whom it strikes, strikes, and plans its own end.

use std::sync::Arc;

use centrifuge_core::id::ManagerId;
use centrifuge_core::lookup::LookupEvent;
use centrifuge_core::manager::ManagerEvent;
use centrifuge_core::owner::OwnerEvent;

use crate::seen::{Node, Seen, TrueTime};
use crate::world::World;
use crate::world::host::Condition;
use crate::world::plan::{MILLISECOND, SECOND};
use crate::world::queue::{Event, Undo};
use crate::world::store::Ailments;
use crate::world::tally::Fault;

impl World {
    /// Draws a fault and plans the next.
    pub(super) fn next_fault(&mut self) {
        if !self.faults_happen {
            return;
        }
        let pause = if self.rng.chance(self.plan.faults.lulls) {
            self.outlasting()
        } else {
            self.rng.below(2 * self.plan.faults.interval) + 1
        };
        self.queue.push(self.now.0 + pause, Event::NextFault);
        let fault = self.rng.weighted(&self.plan.faults.mix);
        if self.trace.is_on() {
            self.trace.line(self.now, format_args!("fault: {fault:?}"));
        }
        if self.strike(fault) && !matches!(fault, Fault::Ambush | Fault::Replay) {
            self.tally.count(fault);
            self.digest(fault as u64);
        }
    }

    /// Lets a fault happen; false if there was nobody to strike.
    fn strike(&mut self, fault: Fault) -> bool {
        let namespace = self.rng.below(self.plan.namespaces.len() as u64) as usize;
        match fault {
            Fault::CrashOwner => self.strike_one(is_owner, |world, node| world.kill(node, true)),
            Fault::CrashManager => self.strike_one(is_manager, |world, node| world.kill(node, true)),
            Fault::CrashLookup => self.strike_one(is_lookup, |world, node| world.kill(node, true)),
            Fault::PauseOwner => self.strike_one(is_owner, World::pause),
            Fault::PauseManager => self.strike_one(is_manager, World::pause),
            Fault::PauseLookup => self.strike_one(is_lookup, World::pause),
            Fault::SuspendOwner => self.strike_one(is_owner, World::suspend),
            Fault::SuspendLookup => self.strike_one(is_lookup, World::suspend),
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
            Fault::PlannedOwners => self.replace_owners(namespace),
            Fault::PlannedManagers => self.replace_managers(),
            Fault::Rack => self.lose_rack(namespace),
            Fault::JoinStorm => self.storm_of_joins(namespace),
            Fault::LeaveStorm => self.storm_of_leaves(namespace),
            Fault::SecondProcess => self.start_second(namespace),
            Fault::DrainAndLeave => self.drain_some_owner(namespace),
            Fault::Ambush => self.arm_ambush(),
            Fault::Dither => self.dither(namespace),
            Fault::Resign => self.resign_leader(),
            Fault::Storm => self.storm_of_packets(),
            Fault::Replay => self.replay(),
            Fault::Disconnect => self.strike_one(|node| !is_manager(node), World::disconnect),
            Fault::ManagersChanged => self.strike_one(|node| !is_manager(node), World::hide_manager),
            Fault::Configure => self.configure(namespace),
            Fault::Remove => self.remove(namespace),
            Fault::Freeze => self.freeze_for_a_while(namespace),
            Fault::Move => self.move_range(namespace),
            Fault::Evict => self.evict(namespace),
            Fault::Drain => self.drain_by_operator(namespace),
            Fault::Weight => self.strike_one(is_owner, World::change_weight),
            Fault::LeaderAndOwner => self.strike_leader_and_owner(),
            Fault::LeaderTwice => self.strike_two_leaders(),
            Fault::MoveStranded => self.await_move(),
            Fault::LossUnseen => self.hide_loss(namespace),
            Fault::CutPeers => self.cut_peers(),
            Fault::LeaderDies => self.strike_leader_alone(),
            _ => unreachable!("{fault:?} happens to packets and timers, not by plan"),
        }
    }

    pub(super) fn strike_one(
        &mut self,
        kind: impl Fn(Node) -> bool,
        act: impl FnOnce(&mut World, Node),
    ) -> bool {
        let nodes: Vec<_> = self.nodes().filter(|node| kind(*node) && self.is_running(*node)).collect();
        if nodes.is_empty() {
            return false;
        }
        let node = self.rng.pick(&nodes);
        act(self, node);
        true
    }

    /// How long something lasts: milliseconds as often as seconds, and sometimes longer than any lease.
    pub(super) fn a_while(&mut self) -> u64 {
        if self.rng.chance(self.plan.faults.outlasting) {
            return self.outlasting();
        }
        self.rng.spread(5 * MILLISECOND, self.plan.faults.longest)
    }

    /// A time in which a lease runs out, and not much more.
    pub(super) fn outlasting(&mut self) -> u64 {
        let hold = u64::try_from(self.plan.longest_hold().as_nanos()).expect("a hold is minutes at most");
        self.rng.between(hold, hold / 2 * 3)
    }

    /// Ends a process, and perhaps starts another in its place after a while.
    pub(super) fn kill(&mut self, node: Node, restart: bool) {
        match node {
            Node::Manager(number) => {
                self.end_manager(number);
                self.hang_up(number);
            }
            Node::Owner(number) => self.end_owner(number),
            Node::Lookup(number) => self.end_lookup(number),
        }
        if restart {
            let slowest = if self.faults_happen { self.plan.faults.slowest_restart } else { 2 * SECOND };
            let at = self.now.0 + self.rng.spread(50 * MILLISECOND, slowest);
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
            Node::Lookup(number) => {
                self.lookups[number].condition = suspended;
                self.witness.see(self.now, &Seen::LookupPaused { node: number, paused: true });
            }
        }
        self.resume_later(node);
    }

    fn resume_later(&mut self, node: Node) {
        let (at, life) = (self.now.0 + self.a_while(), self.life(node));
        self.show_disturbance(node, at);
        self.queue.push(at, Event::Undo(Undo::Resume { node, life }));
    }

    /// Shows the oracle that a node is disturbed.
    pub(super) fn show_disturbance(&mut self, node: Node, until: u64) {
        self.witness.see(self.now, &Seen::Disturbed { node, until: TrueTime(until) });
    }

    /// Something is wrong with the store for a while.
    fn ail(&mut self, set: impl FnOnce(&mut Ailments, u64)) -> bool {
        let until =
            self.now.0 + self.rng.spread(100 * MILLISECOND, self.plan.faults.longest.min(40 * SECOND));
        set(&mut self.store.ailments, until);
        for manager in 0..self.managers.len() {
            self.show_disturbance(Node::Manager(manager), until + self.plan.store.slow);
        }
        true
    }

    pub(super) fn resign_leader(&mut self) -> bool {
        let Some(leader) = self.leader() else { return false };
        if !self.may_change_leader() {
            return false;
        }
        self.feed_manager(leader, ManagerEvent::Resign);
        true
    }

    /// A process takes its stream to some Manager for broken.
    fn disconnect(&mut self, node: Node) {
        let manager = self.rng.pick(&self.plan.manager_ids);
        self.tell_disconnected(node, manager);
    }

    fn tell_disconnected(&mut self, node: Node, manager: ManagerId) {
        match node {
            Node::Owner(owner) => self.feed_owner(owner, OwnerEvent::Disconnected(manager)),
            Node::Lookup(lookup) => self.feed_lookup(lookup, LookupEvent::Disconnected(manager)),
            Node::Manager(_) => {}
        }
    }

    /// Some of the processes see at once that a Manager's process is gone.
    fn hang_up(&mut self, manager: usize) {
        let clients: Vec<_> =
            self.nodes().filter(|node| !is_manager(*node) && self.is_running(*node)).collect();
        for node in clients {
            if self.rng.chance(500) {
                self.tell_disconnected(node, self.plan.manager_ids[manager].clone());
            }
        }
    }

    /// A process is told a list of Managers that lacks one, if there is more than one.
    fn hide_manager(&mut self, node: Node) {
        let hidden = self.rng.below(self.managers.len() as u64) as usize;
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
        let weight = self.rng.pick(&[50, 100, 150, 300]);
        if let Node::Owner(owner) = node {
            self.feed_owner(owner, OwnerEvent::Weight(weight));
        }
    }

    fn freeze_for_a_while(&mut self, namespace: usize) -> bool {
        let at = self.now.0 + self.rng.between(5 * SECOND, 60 * SECOND);
        self.queue.push(at, Event::Undo(Undo::Unfreeze { namespace }));
        self.freeze(namespace)
    }
}

pub(super) fn is_manager(node: Node) -> bool {
    matches!(node, Node::Manager(_))
}

pub(super) fn is_owner(node: Node) -> bool {
    matches!(node, Node::Owner(_))
}

pub(super) fn is_lookup(node: Node) -> bool {
    matches!(node, Node::Lookup(_))
}
