//! The machine of a peer, and who in this process waits for which cell.
//!
//! What the machine says of a cell is handed to whoever wants that cell at that moment, so that no one takes another's lease for
//! its own. A lease that was lost is not taken again by itself: who lost it must know before it can want it again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use centrifuge_core::flease::{
    Ballot, Cell, EndedReason, FleaseAction, FleaseEvent, FleaseMachine, Lease, Packet, PeerId,
};
use centrifuge_core::machine::{Machine, Output};
use centrifuge_core::time::Instant;
use centrifuge_net::driver::DrivenEvent;
use tokio::sync::oneshot;

use super::change::Change;
use super::want::{Over, Want};

/// What can happen to a peer.
#[derive(Clone)]
pub(super) enum PeerEvent {
    /// It happens to the machine alone.
    Machine(FleaseEvent),
    /// Somebody wants a cell. Nobody else in this process does at that time.
    Acquire(Arc<Want>),
    /// Somebody wants it no more.
    Release(Arc<Want>),
    /// Somebody asks what the registers have.
    Look(Arc<Look>),
    /// Everybody in this process gives up what it has.
    Stop,
}

impl DrivenEvent for PeerEvent {
    fn clock_jumped() -> PeerEvent {
        PeerEvent::Machine(FleaseEvent::clock_jumped())
    }
}

/// The leases that registers have.
pub(super) type Found = Vec<(Cell, Lease)>;

/// A question, and where its answer goes.
pub(super) struct Look {
    about: About,
    answer: Mutex<Option<oneshot::Sender<Found>>>,
}

/// What is asked about.
pub(super) enum About {
    Nothing,
    Cell(Cell),
    All,
}

impl Look {
    pub(super) fn new(about: About) -> (Arc<Look>, oneshot::Receiver<Found>) {
        let (answer, answered) = oneshot::channel();
        (Arc::new(Look { about, answer: Mutex::new(Some(answer)) }), answered)
    }

    pub(super) fn answer(&self, found: Found) {
        if let Some(answer) = self.answer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Who asked may not wait any more.
            let _ = answer.send(found);
        }
    }
}

/// What a peer wants done.
pub(super) enum PeerAction {
    Send {
        to: PeerId,
        packet: Packet,
    },
    /// A cell is held, or held longer.
    Hold {
        want: Arc<Want>,
        epoch: Ballot,
        until: Instant,
    },
    /// Another one holds the cell.
    Other {
        want: Arc<Want>,
        lease: Lease,
    },
    /// Nothing more comes of this want.
    End {
        want: Arc<Want>,
        why: Over,
    },
    /// Something for all to know.
    Tell(Change),
    /// The clock is apart from these peers; from none: it agrees.
    Apart(Vec<PeerId>),
    Answer {
        look: Arc<Look>,
        found: Found,
    },
}

/// The machine, and who wants what of it.
pub(super) struct Peer {
    machine: FleaseMachine,
    wants: BTreeMap<Cell, Arc<Want>>,
    /// Those whose release is not known to all yet.
    releasing: BTreeMap<Cell, Arc<Want>>,
    is_stopped: bool,
}

impl Peer {
    pub(super) fn new(machine: FleaseMachine) -> Peer {
        Peer { machine, wants: BTreeMap::new(), releasing: BTreeMap::new(), is_stopped: false }
    }

    pub(super) fn machine(&self) -> &FleaseMachine {
        &self.machine
    }

    /// How many cells are wanted, held or being released.
    pub(super) fn busy(&self) -> usize {
        self.wants.len() + self.releasing.len()
    }

    fn perform(&mut self, step: &mut Step, event: PeerEvent) {
        match event {
            PeerEvent::Machine(event) => self.feed(step, event),
            PeerEvent::Acquire(want) => self.acquire(step, want),
            PeerEvent::Release(want) => self.release(step, &want),
            PeerEvent::Look(look) => {
                let found = self.look(step.now, &look.about);
                step.actions.push(PeerAction::Answer { look, found });
            }
            PeerEvent::Stop => {
                self.is_stopped = true;
                for (cell, want) in self.wants.clone() {
                    // Nobody relies on it before others are told that it is free.
                    step.actions.push(PeerAction::End { want, why: Over::Stopped });
                    self.give_back(step, cell);
                }
            }
        }
    }

    fn acquire(&mut self, step: &mut Step, want: Arc<Want>) {
        if self.is_stopped {
            return step.actions.push(PeerAction::End { want, why: Over::Stopped });
        }
        let cell = want.cell().clone();
        // The cell is not given back to others: this process goes on with it, as somebody else.
        if let Some(earlier) = self.releasing.remove(&cell) {
            step.actions.push(PeerAction::End { want: earlier, why: Over::Released });
        }
        if let Some(earlier) = self.wants.insert(cell.clone(), want) {
            step.actions.push(PeerAction::End { want: earlier, why: Over::Released });
            self.feed(step, FleaseEvent::Release(cell.clone()));
        }
        self.feed(step, FleaseEvent::Acquire(cell));
    }

    fn release(&mut self, step: &mut Step, want: &Arc<Want>) {
        let is_in = |wants: &BTreeMap<Cell, Arc<Want>>| {
            wants.get(want.cell()).is_some_and(|other| Arc::ptr_eq(other, want))
        };
        if is_in(&self.wants) {
            self.give_back(step, want.cell().clone());
        } else if !is_in(&self.releasing) {
            step.actions.push(PeerAction::End { want: Arc::clone(want), why: Over::Released });
        }
    }

    fn give_back(&mut self, step: &mut Step, cell: Cell) {
        if let Some(want) = self.wants.remove(&cell) {
            self.releasing.insert(cell.clone(), want);
            self.feed(step, FleaseEvent::Release(cell));
        }
    }

    fn look(&self, now: Instant, about: &About) -> Found {
        match about {
            About::Nothing => Vec::new(),
            About::Cell(cell) => {
                let lease = self.machine.known(cell, now);
                lease.map(|lease| (cell.clone(), lease)).into_iter().collect()
            }
            About::All => self.machine.known_cells(now).map(|(cell, lease)| (cell.clone(), lease)).collect(),
        }
    }

    fn feed(&mut self, step: &mut Step, event: FleaseEvent) {
        let output = self.machine.on_event(step.now, event);
        self.take(step, output);
    }

    fn take(&mut self, step: &mut Step, output: Output<FleaseAction>) {
        step.wake = output.wake;
        for action in output.actions {
            self.translate(step, action);
        }
    }

    fn translate(&mut self, step: &mut Step, action: FleaseAction) {
        match action {
            FleaseAction::Send { to, packet } => step.actions.push(PeerAction::Send { to, packet }),
            FleaseAction::Held { cell, epoch, until } => {
                if let Some(want) = self.wants.get(&cell) {
                    if want.is_new(epoch) {
                        step.actions.push(PeerAction::Tell(Change::acquired(&cell, epoch)));
                    }
                    let want = Arc::clone(want);
                    step.actions.push(PeerAction::Hold { want, epoch, until });
                }
            }
            FleaseAction::Ended { cell, epoch, why } => {
                step.actions.push(PeerAction::Tell(Change::ended(&cell, epoch, why)));
                if why != EndedReason::Released {
                    self.lose(step, cell, why);
                }
            }
            FleaseAction::HeldByOther { cell, lease } => {
                step.actions.push(PeerAction::Tell(Change::held_by_other(&cell, lease)));
                if let Some(want) = self.wants.get(&cell) {
                    step.actions.push(PeerAction::Other { want: Arc::clone(want), lease });
                }
            }
            FleaseAction::Released(cell) => {
                if let Some(want) = self.releasing.remove(&cell) {
                    step.actions.push(PeerAction::End { want, why: Over::Released });
                }
            }
            FleaseAction::NotAMember(cell) => {
                if let Some(want) = self.wants.remove(&cell) {
                    step.actions.push(PeerAction::End { want, why: Over::NotAMember });
                }
            }
            FleaseAction::ClockApart { from } => step.actions.push(PeerAction::Apart(from)),
            FleaseAction::ClockAgrees => step.actions.push(PeerAction::Apart(Vec::new())),
        }
    }

    /// Whoever held the cell hears of it; the machine does not go for it again.
    fn lose(&mut self, step: &mut Step, cell: Cell, why: EndedReason) {
        if let Some(want) = self.wants.remove(&cell) {
            let why = if why == EndedReason::Clock { Over::Clock } else { Over::Expired };
            step.actions.push(PeerAction::End { want, why });
            step.lost.push(cell);
        }
    }

    /// Lets the machine forget what was lost, once it has said all about it.
    fn finish(&mut self, mut step: Step) -> Output<PeerAction> {
        while let Some(cell) = step.lost.pop() {
            if !self.wants.contains_key(&cell) {
                self.feed(&mut step, FleaseEvent::Release(cell));
            }
        }
        Output { actions: step.actions, wake: step.wake }
    }
}

/// One step on its way.
struct Step {
    now: Instant,
    actions: Vec<PeerAction>,
    lost: Vec<Cell>,
    wake: Option<Instant>,
}

impl Step {
    fn new(now: Instant) -> Step {
        Step { now, actions: Vec::new(), lost: Vec::new(), wake: None }
    }
}

impl Machine for Peer {
    type Event = PeerEvent;
    type Action = PeerAction;

    fn on_event(&mut self, now: Instant, event: PeerEvent) -> Output<PeerAction> {
        let mut step = Step::new(now);
        if !matches!(event, PeerEvent::Machine(_)) {
            // A wake that comes early changes nothing, and says when to wake next.
            let output = self.machine.on_wake(now);
            self.take(&mut step, output);
        }
        self.perform(&mut step, event);
        self.finish(step)
    }

    fn on_wake(&mut self, now: Instant) -> Output<PeerAction> {
        let mut step = Step::new(now);
        let output = self.machine.on_wake(now);
        self.take(&mut step, output);
        self.finish(step)
    }
}

impl Drop for Peer {
    /// Whatever ended the driver, nobody renews any more.
    fn drop(&mut self) {
        self.wants.values().chain(self.releasing.values()).for_each(|want| want.end(Over::Stopped));
    }
}
