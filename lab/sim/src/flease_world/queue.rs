//! What will happen, in the order of real time; what is due at the same instant happens in the order it was planned.

use std::collections::BTreeMap;

use centrifuge_core::flease::Packet;

use crate::seen::TrueTime;

/// Something that will happen. Peers go by their place, processes also by their life.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A packet arrives at whoever runs there then.
    Packet { from: usize, to: usize, packet: Packet },
    /// A process wanted to be woken.
    Wake { peer: usize, life: u32, token: u32 },
    /// An application changes its mind about a cell.
    Whim,
    /// A clock turns to another offset.
    Turn,
    /// The next fault is due.
    Fault,
    /// A dead peer starts a process.
    Start { peer: usize },
    /// A paused process goes on.
    Resume { peer: usize, life: u32 },
    /// A cut heals.
    Heal { cut: u32 },
    /// The network is as usual again.
    Calm,
    /// No fault happens any more.
    FaultsEnd,
    /// From now on every cell must be held, and stay so.
    Settled,
    /// The run is over.
    End,
}

/// The planned events.
#[derive(Debug, Default)]
pub(super) struct Queue {
    events: BTreeMap<(TrueTime, u64), Event>,
    planned: u64,
}

impl Queue {
    pub(super) fn push(&mut self, at: u64, event: Event) {
        self.planned += 1;
        self.events.insert((TrueTime(at), self.planned), event);
    }

    pub(super) fn pop(&mut self) -> Option<(TrueTime, Event)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }
}
