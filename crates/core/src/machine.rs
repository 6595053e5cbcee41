//! The contract between the machines, which decide, and the drivers, which act.

use crate::time::Instant;

/// A pure state machine: it is fed events and the time, and answers with actions.
///
/// A machine never waits, reads no clock, draws no randomness but from the seed it was built with, logs nothing and
/// touches no global. The same events at the same instants give the same actions.
pub trait Machine {
    /// What can happen to the machine.
    type Event;
    /// What the machine wants done.
    type Action;

    /// Takes one event. `now` never goes backwards.
    fn on_event(&mut self, now: Instant, event: Self::Event) -> Output<Self::Action>;

    /// Lets time pass. May be called early; it then changes nothing.
    fn on_wake(&mut self, now: Instant) -> Output<Self::Action>;
}

/// What a machine wants done after an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output<A> {
    /// To be performed in this order.
    pub actions: Vec<A>,
    /// When the machine wants `on_wake` next; it replaces every earlier wish. `None`: only an event can move it.
    pub wake: Option<Instant>,
}

impl<A> Default for Output<A> {
    fn default() -> Self {
        Output { actions: Vec::new(), wake: None }
    }
}
