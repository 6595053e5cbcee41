//! Faults that wait for their moment: armed like any other, they strike when something delicate has just happened.

use centrifuge_core::id::SessionId;
use centrifuge_core::message::{LeaseOrder, ManagerToOwner, OrderKind, OwnerToManager, Report};

use crate::seen::Node;
use crate::world::World;
use crate::world::host::Host;
use crate::world::network::{Body, Packet};
use crate::world::owner_node::OwnerProcess;
use crate::world::places::Places;
use crate::world::plan::SECOND;
use crate::world::queue::{Event, Undo};
use crate::world::tally::Fault;

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
}
