//! What goes wrong, and how it ends: each fault picks whom it strikes, strikes, and plans its own end; all of them end together
//! when the world must converge.

use std::sync::Arc;

use centrifuge_core::election::ElectionRequest;
use centrifuge_core::id::{Credential, ManagerId};
use centrifuge_core::lookup::LookupEvent;
use centrifuge_core::manager::ManagerEvent;
use centrifuge_core::owner::OwnerEvent;

use super::{
    Ailments, Condition, Event, Fault, MILLISECOND, Node, Part, Profile, SECOND, Seen, TrueTime, Undo, World,
    with_host,
};

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
        self.trace.line(self.now, format_args!("fault: {fault:?}"));
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
            Fault::Release => self.release_quarantines(namespace),
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
        let Some(node) = self.rng.pick_any(&nodes) else { return false };
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
        self.stand_still(node, Condition::Paused);
    }

    fn suspend(&mut self, node: Node) {
        self.stand_still(node, Condition::Suspended { since: self.now });
    }

    fn stand_still(&mut self, node: Node, condition: Condition) {
        with_host!(&mut self, node, |host| host.condition = condition);
        match node {
            Node::Owner(node) if condition != Condition::Paused => {
                self.witness.see(self.now, &Seen::OwnerSuspended { node, suspended: true });
            }
            Node::Lookup(node) => self.witness.see(self.now, &Seen::LookupPaused { node, paused: true }),
            _ => {}
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
            Undo::Poison => self.poison(),
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
        let (now, suspended) =
            (self.now, with_host!(&self, node, |host| host.condition != Condition::Paused));
        let waiting = with_host!(&mut self, node, |host| host.resume(now));
        if let Node::Lookup(node) = node {
            self.witness.see(now, &Seen::LookupPaused { node, paused: false });
        }
        if suspended {
            self.tell_clock_jumped(node);
        }
        let timers_first = self.rng.chance(500);
        if timers_first {
            self.catch_up(node);
        }
        for event in waiting {
            self.happen(event);
        }
        self.catch_up(node);
    }

    fn tell_clock_jumped(&mut self, node: Node) {
        match node {
            Node::Manager(number) => {
                self.feed_manager(number, ManagerEvent::ClockJumped);
                self.feed_election(number, ElectionRequest::ClockJumped);
            }
            Node::Owner(number) => {
                let fresh = self.random().nonce();
                self.feed_owner(number, OwnerEvent::ClockJumped { fresh: Credential::unproven(fresh) });
                self.witness.see(self.now, &Seen::OwnerSuspended { node: number, suspended: false });
            }
            Node::Lookup(number) => self.feed_lookup(number, LookupEvent::ClockJumped),
        }
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
            let is_regular = |owner: &usize| self.plan.owners[*owner].part == Part::Regular;
            let owners: Vec<usize> = self.owners_of(namespace).filter(is_regular).collect();
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

pub(super) fn is_manager(node: Node) -> bool {
    matches!(node, Node::Manager(_))
}

pub(super) fn is_owner(node: Node) -> bool {
    matches!(node, Node::Owner(_))
}

pub(super) fn is_lookup(node: Node) -> bool {
    matches!(node, Node::Lookup(_))
}

/// The network once faults have ended; where races are all there is, they go on.
fn calm(usual: &Profile, races_only: bool) -> Profile {
    if races_only { *usual } else { Profile::reliable(usual.shortest.min(MILLISECOND), 20 * MILLISECOND) }
}
