//! Faults that wait for their moment: they strike when something delicate has just happened, or when a leader that has no store
//! dies while the next one has little to learn from.

use centrifuge_core::id::SessionId;
use centrifuge_core::message::{LeaseOrder, ManagerToOwner, OrderKind, OwnerToManager, Report};

use crate::flease_world::clock::SlewingClock;

use super::manager_node::ManagerProcess;
use super::owner_node::OwnerProcess;
use super::{
    Body, Event, Fault, Host, MILLISECOND, Node, Packet, Places, SECOND, Undo, World, is_lookup, is_owner,
};

/// What an armed ambush waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// An Owner is told to give a range back.
    Recall,
    /// An Owner hears of a lease it was granted.
    Grant,
    /// An answer reached an Owner late.
    LateAnswer,
    /// An Owner says that it gave a range back.
    Release,
    /// An application took all of a range's state in.
    Import,
    /// A batch became durable, and the Manager that wrote it does not know yet.
    Commit,
    /// A Manager without a store begins to lead; only a fault that wants it waits for this.
    Lead,
    /// An Owner says that it moved a range; only a fault that wants it waits for this.
    Move,
}

const MOMENTS: [Moment; 6] =
    [Moment::Recall, Moment::Grant, Moment::LateAnswer, Moment::Release, Moment::Import, Moment::Commit];

impl World {
    /// Waits for one of the moments from now on.
    pub(super) fn arm_ambush(&mut self) -> bool {
        self.ambush = Some(self.rng.pick(&MOMENTS));
        true
    }

    /// Waits for a move to strand.
    pub(super) fn await_move(&mut self) -> bool {
        self.ambush = Some(Moment::Move);
        true
    }

    /// Strikes a node if this is what was waited for: cuts it off before it can say another word, or stops it right
    /// after what happens now.
    pub(super) fn spring(&mut self, moment: Moment, node: Node) {
        if self.ambush != Some(moment) || !self.faults_happen {
            return;
        }
        self.ambush = None;
        self.tally.count(Fault::Ambush);
        // Without a store what is in flight when the leader dies is what only the Owners can tell.
        if self.plan.diskless.is_some() && (moment == Moment::Lead || self.rng.chance(400)) {
            return self.ambush_leader();
        }
        if self.rng.chance(600) {
            return self.cut_off_from_managers(node);
        }
        self.queue.push(self.now.0, Event::Undo(Undo::Ambush { node, life: self.life(node) }));
    }

    /// Sees whether a packet that an Owner is about to take is what was waited for.
    pub(super) fn watch_packet(&mut self, owner: usize, packet: &Packet) {
        let Body::ManagerToOwner(ManagerToOwner::Assign(assign)) = &packet.body else { return };
        let is_grant = |order: &LeaseOrder| matches!(order.kind, OrderKind::Grant { .. });
        let moment = match self.ambush {
            Some(Moment::LateAnswer) if self.now.0 - packet.sent.0 >= SECOND => Moment::LateAnswer,
            Some(Moment::Recall) if assign.orders.iter().any(|order| order.recall.is_some()) => {
                Moment::Recall
            }
            Some(Moment::Grant) if assign.orders.iter().any(is_grant) => Moment::Grant,
            _ => return,
        };
        self.spring(moment, Node::Owner(owner));
    }

    /// Sees whether a report that an Owner sends is what was waited for.
    pub(super) fn watch_report(&mut self, owner: usize, message: &OwnerToManager) {
        if let OwnerToManager::Report(report) = message
            && !report.released.is_empty()
        {
            self.strand_move(owner, report);
            self.spring(Moment::Release, Node::Owner(owner));
        }
    }

    /// Cuts off the destination of a move until a leader without a store takes it for gone, and kills that leader about then, so that the next
    /// one hears from it. The source is cut off as long, or does not hear what becomes of the move.
    fn strand_move(&mut self, owner: usize, report: &Report) {
        let to = report.released.iter().find_map(|release| release.clean_to);
        let Some(to) = to.and_then(|to| self.owner_of(to)) else { return };
        if self.ambush != Some(Moment::Move) || !self.faults_happen {
            return;
        }
        self.ambush = None;
        self.tally.count(Fault::Ambush);
        let hold = self.hold();
        let length = self.rng.between(hold, hold * 5 / 4);
        self.cut_owner_off(to, length);
        if self.rng.chance(500) {
            let length = self.rng.between(hold, hold * 5 / 4);
            self.cut_owner_off(owner, length);
        } else {
            // It has spoken to this leader before, and speaks to the next without a lapse.
            let (begins, length) = (self.now.0 + hold * 7 / 10, hold * 4 / 10);
            self.queue.push(begins, Event::Undo(Undo::CutOff { owner, length }));
        }
        let dies = self.now.0 + self.rng.between(hold * 97 / 100, hold * 11 / 10);
        self.queue.push(dies, Event::Undo(Undo::KillLeader));
    }

    pub(super) fn cut_owner_off(&mut self, owner: usize, length: u64) {
        if self.faults_happen {
            self.cut_for(length, self.bit(Node::Owner(owner)), Places::below(self.managers.len()), true);
        }
    }

    fn owner_of(&self, session: SessionId) -> Option<usize> {
        let is_it = |host: &Host<OwnerProcess>| {
            host.process.as_ref().is_some_and(|process| process.machine.session() == session)
        };
        self.owners.iter().position(is_it)
    }

    pub(super) fn strike_from_ambush(&mut self, node: Node) {
        if self.rng.chance(500) {
            self.kill(node, true);
        } else {
            self.pause(node);
        }
    }

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
        let owners = self.running_owners(namespace);
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

/// How long there is peace after a change of leader where nothing else fails.
const PEACE: u64 = 60 * SECOND;
/// For how long leaders die in a row: longer than any Lookup may keep a table that nobody confirms.
const ROW: u64 = 220 * SECOND;
