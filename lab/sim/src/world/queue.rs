//! What will happen, in the order of real time; what is due at the same instant happens in the order it was planned.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use centrifuge_core::election::ElectionRequest;
use centrifuge_core::id::OwnerName;
use centrifuge_core::key::KeyRange;

use super::manager_node::EndedWatch;
use super::{AppEvent, Node, Packet, StoreAnswer, StoreRequest, TrueTime};

/// Something that will happen.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A packet arrives.
    Packet(Box<Packet>),
    /// A node's timer is due.
    Wake { node: Node, token: u32, late: bool },
    /// A Manager's request reaches the store.
    StoreRequest { manager: usize, life: u32, request: StoreRequest },
    /// The store's answer reaches a Manager's process.
    StoreAnswer { manager: usize, life: u32, answer: StoreAnswer },
    /// A Manager's process gives up waiting for an answer.
    StoreTimeout { manager: usize, life: u32, number: u64 },
    /// A Manager's process notices that a Lookup's watch is over.
    WatchEnds { manager: usize, life: u32, watch: Box<EndedWatch> },
    /// What a Manager wants of its part in the election reaches that.
    ElectionRequest { manager: usize, life: u32, request: ElectionRequest },
    /// The timer of a Manager's part in the election is due.
    ElectionWake { manager: usize, life: u32, token: u32, late: bool },
    /// A synchronised clock turns.
    Turn,
    /// Something an application planned.
    App { owner: usize, life: u32, event: AppEvent },
    /// A caller wants an operation on one of a namespace's probe keys.
    Operation { namespace: usize },
    /// Applications measure their load.
    MeasureLoad { namespace: usize },
    /// A node is woken though it did not ask for it yet.
    WakeEarly,
    /// The next fault is due.
    NextFault,
    /// A fault ends, or goes on to its next step.
    Undo(Undo),
    /// Operators look whether the namespaces are as they should be.
    Tend,
    /// No fault happens any more.
    FaultsEnd,
    /// The run is over.
    End,
}

impl Event {
    /// The node whose process takes the event, and keeps it waiting while it stands still.
    pub(crate) fn receiver(&self) -> Option<Node> {
        match self {
            Event::Packet(packet) => Some(packet.to),
            Event::StoreAnswer { manager, .. }
            | Event::StoreTimeout { manager, .. }
            | Event::ElectionRequest { manager, .. }
            | Event::WatchEnds { manager, .. } => Some(Node::Manager(*manager)),
            Event::App { owner, .. } => Some(Node::Owner(*owner)),
            _ => None,
        }
    }

    /// A number that differs between events of different kinds or for different nodes.
    pub(crate) fn code(&self) -> u64 {
        match self {
            Event::Packet(packet) => 1 + 16 * (number(packet.from) + 256 * number(packet.to)),
            Event::Wake { node, .. } => 2 + 16 * number(*node),
            Event::StoreRequest { manager, .. } => 3 + 16 * *manager as u64,
            Event::StoreAnswer { manager, .. } => 4 + 16 * *manager as u64,
            Event::StoreTimeout { manager, .. } => 5 + 16 * *manager as u64,
            Event::App { owner, .. } => 6 + 16 * *owner as u64,
            Event::Operation { namespace } => 7 + 16 * *namespace as u64,
            Event::MeasureLoad { namespace } => 8 + 16 * *namespace as u64,
            Event::WakeEarly => 9,
            Event::NextFault => 10,
            Event::Undo(_) => 11,
            Event::Tend => 12,
            Event::FaultsEnd => 13,
            Event::End => 14,
            Event::WatchEnds { manager, .. } => 15 + 16 * *manager as u64,
            Event::ElectionRequest { manager, .. } => 16 * (1 + *manager as u64),
            Event::ElectionWake { manager, .. } => 16 * (65 + *manager as u64),
            Event::Turn => 0,
        }
    }
}

fn number(node: Node) -> u64 {
    match node {
        Node::Manager(number) => number as u64,
        Node::Owner(number) => 64 + number as u64,
        Node::Lookup(number) => 128 + number as u64,
    }
}

/// The planned end or next step of a fault.
#[derive(Clone, Debug)]
pub(crate) enum Undo {
    /// A paused or suspended process goes on.
    Resume { node: Node, life: u32 },
    /// A dead node starts a process.
    Start { node: Node },
    /// A process is killed, if it is still the one and faults still happen.
    Kill { node: Node, life: u32, restart: bool },
    /// An Owner's process ends by itself, if it is still the one.
    Exit { owner: usize, life: u32 },
    /// Whatever runs at a node is restarted, as in a rolling restart.
    Roll { node: Node },
    /// Whatever runs at a node is replaced as planned: an Owner once it is empty, a leader once it has resigned.
    Replace { node: Node },
    /// An operator takes the order to drain an Owner back.
    Undrain { namespace: usize, owner: usize },
    /// A cut in the network heals.
    Heal { cut: u32 },
    /// The network is as usual again.
    Calm,
    /// A draining application does not wait any longer.
    Leave { owner: usize, life: u32 },
    /// A process sees the full list of Managers again.
    ManagersBack { node: Node },
    /// What was waited for has happened at a node.
    Ambush { node: Node, life: u32 },
    /// An operator changes where a range belongs, again.
    Dither { namespace: usize, range: KeyRange, owner: OwnerName, times: u32 },
    /// An operator asks again for a namespace to go.
    Remove { namespace: usize, until: u64 },
    /// An operator unfreezes a namespace.
    Unfreeze { namespace: usize },
    /// The leader is killed, once there is one.
    KillLeader,
    /// The leader resigns.
    Resign,
    /// An Owner is cut off from all Managers for a time.
    CutOff { owner: usize, length: u64 },
    /// One leader after the other is killed.
    KillLeaders { until: u64 },
    /// A request comes for the key that kills.
    Poison,
}

/// The planned events. A slab holds them, so that the heap moves small entries only.
#[derive(Debug)]
pub(crate) struct Queue<E> {
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    slots: Vec<Option<E>>,
    free: Vec<u32>,
    planned: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Queue<E> {
        Queue { heap: BinaryHeap::new(), slots: Vec::new(), free: Vec::new(), planned: 0 }
    }
}

impl<E> Queue<E> {
    /// Plans an event.
    pub(crate) fn push(&mut self, at: u64, event: E) {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                u32::try_from(self.slots.len() - 1).expect("fewer planned events than 32 bits count")
            }
        };
        self.slots[slot as usize] = Some(event);
        self.heap.push(Reverse((at, self.planned, slot)));
        self.planned += 1;
    }

    /// Takes the next event.
    pub(crate) fn pop(&mut self) -> Option<(TrueTime, E)> {
        let Reverse((at, _, slot)) = self.heap.pop()?;
        self.free.push(slot);
        let event = self.slots[slot as usize].take().expect("a planned event is in its slot");
        Some((TrueTime(at), event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_by_plan() {
        let mut queue = Queue::default();
        queue.push(5, Event::End);
        queue.push(3, Event::NextFault);
        queue.push(3, Event::Tend);
        queue.push(1, Event::WakeEarly);
        let order: Vec<u64> = std::iter::from_fn(|| queue.pop()).map(|(at, _)| at.0).collect();
        assert_eq!(order, [1, 3, 3, 5]);
        queue.push(9, Event::NextFault);
        queue.push(9, Event::Tend);
        assert!(matches!(queue.pop(), Some((_, Event::NextFault))));
        assert!(matches!(queue.pop(), Some((_, Event::Tend))));
    }
}
