//! Faults of Managers without disk: leaders that die in moments in which the next one has little to learn from.

use crate::flease_world::clock::SlewingClock;
use crate::seen::Node;
use crate::world::World;
use crate::world::ambush::Moment;
use crate::world::faults::{is_lookup, is_owner};
use crate::world::host::Host;
use crate::world::manager_node::ManagerProcess;
use crate::world::places::Places;
use crate::world::plan::{MILLISECOND, SECOND};
use crate::world::queue::{Event, Undo};
use crate::world::tally::Fault;

/// How long there is peace after a change of leader where nothing else fails.
const PEACE: u64 = 60 * SECOND;
/// For how long leaders die in a row: longer than any Lookup may keep a table that nobody confirms.
const ROW: u64 = 220 * SECOND;

impl World {
    fn kill_leader(&mut self) -> bool {
        let Some(leader) = self.leader() else { return false };
        self.tally.count(Fault::CrashManager);
        self.kill(Node::Manager(leader), true);
        true
    }

    /// Kills the leader; tries again while there is none.
    pub(super) fn kill_leader_soon(&mut self) {
        if self.faults_happen && !self.kill_leader() {
            self.queue.push(self.now.0 + SECOND / 2, Event::Undo(Undo::KillLeader));
        }
    }

    /// Whether the leader may change now: where nothing else fails, every Owner must have found the one before.
    pub(super) fn may_change_leader(&mut self) -> bool {
        if self.plan.races_only && self.now.0 < self.leader_changed + PEACE {
            return false;
        }
        self.leader_changed = self.now.0;
        true
    }

    /// The leader dies where nothing else fails, if the others can do without it and every Owner has long found it.
    pub(super) fn strike_leader_alone(&mut self) -> bool {
        if self.plan.diskless.is_none() {
            let all = self.managers.len() > 1 && self.managers.iter().all(Host::is_running);
            return all && self.may_change_leader() && self.kill_leader();
        }
        let takes_part = |(host, clock): (&Host<ManagerProcess>, &SlewingClock)| {
            let part = host.process.as_ref().and_then(|process| process.election.as_ref());
            part.is_some_and(|part| part.machine.peer().takes_part(clock.read(self.now)))
        };
        let all = self.managers.iter().zip(&self.synchronised).all(takes_part);
        all && self.managers.len() >= 3 && self.may_change_leader() && self.kill_leader()
    }

    /// An Owner dies or is cut off, and the leader dies at once or soon after.
    pub(super) fn strike_leader_and_owner(&mut self) -> bool {
        let struck = if self.rng.chance(500) {
            self.strike_one(is_owner, |world, node| world.kill(node, true))
        } else {
            self.strike_one(is_owner, World::cut_off_from_managers)
        };
        if self.rng.chance(500) {
            self.replay_reports(20 * SECOND);
        }
        let at = self.now.0 + self.rng.spread(1, 2 * SECOND);
        self.queue.push(at, Event::Undo(Undo::KillLeader));
        struck
    }

    /// The leader dies, and the next as soon as it leads, or some time later.
    pub(super) fn strike_two_leaders(&mut self) -> bool {
        self.ambush = Some(Moment::Lead);
        self.kill_leader()
    }

    /// A Lookup is cut off from the Managers, then an Owner dies, and the leader, or many in a row, about when that Owner's leases are over: before
    /// or after the loss is published, and before the Lookup is back.
    pub(super) fn hide_loss(&mut self, namespace: usize) -> bool {
        let here = |owner: &usize| {
            self.plan.owners[*owner].namespace == namespace && self.owners[*owner].is_running()
        };
        let owners: Vec<usize> = (0..self.owners.len()).filter(here).collect();
        let in_a_row = self.rng.chance(400);
        let cut = |world: &mut World, node| world.cut_off_lookup(node, if in_a_row { 3 } else { 2 });
        if owners.is_empty() || !self.strike_one(is_lookup, cut) {
            return false;
        }
        let owner = Node::Owner(self.rng.pick(&owners));
        self.kill(owner, true);
        let hold = self.hold();
        let dies = self.now.0 + self.rng.between(hold * 9 / 10, hold * 5 / 4);
        let undo = if in_a_row { Undo::KillLeaders { until: dies + ROW } } else { Undo::KillLeader };
        self.queue.push(dies, Event::Undo(undo));
        true
    }

    /// Kills leaders so soon that none learns its table, unless every Owner is quick.
    pub(super) fn kill_leaders(&mut self, until: u64) {
        if !self.faults_happen || self.now.0 >= until {
            return;
        }
        self.kill_leader();
        let next = self.now.0 + self.rng.spread(100 * MILLISECOND, self.hold() / 3);
        self.queue.push(next, Event::Undo(Undo::KillLeaders { until }));
    }

    pub(super) fn hold(&self) -> u64 {
        u64::try_from(self.plan.longest_hold().as_nanos()).expect("a hold is minutes at most")
    }

    /// Cuts a Lookup off from all Managers for about as long as a lease takes to run out, and a leader to be found.
    fn cut_off_lookup(&mut self, node: Node, most: u64) {
        let hold = self.hold();
        let length = self.rng.between(hold, hold * most);
        let managers = Places::below(self.managers.len());
        self.cut_for(length, self.bit(node), managers, true);
    }

    /// Cuts between two Managers, one way or both.
    pub(super) fn cut_peers(&mut self) -> bool {
        let count = self.managers.len() as u64;
        let (one, other) = (self.rng.below(count) as usize, self.rng.below(count) as usize);
        let both_ways = self.rng.chance(500);
        let (from, to) = (self.bit(Node::Manager(one)), self.bit(Node::Manager(other)));
        self.cut(from, to, both_ways);
        one != other
    }

    /// A leader that an ambush waited for goes on for a moment, and dies while it learns the table; or resigns at once, and
    /// perhaps the next one too, so that terms follow each other as fast as they can.
    pub(super) fn ambush_leader(&mut self) {
        if self.rng.chance(400) {
            self.ambush = Some(Moment::Lead);
            return self.queue.push(self.now.0, Event::Undo(Undo::Resign));
        }
        let at = self.now.0 + self.rng.spread(MILLISECOND, 10 * SECOND);
        self.queue.push(at, Event::Undo(Undo::KillLeader));
    }
}
