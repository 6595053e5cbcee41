//! The one loop that runs any machine: the clock, events, wakes, actions.

use std::time::Duration;

use centrifuge_core::election::ElectionRequest;
use centrifuge_core::flease::{ClaimEvent, FleaseEvent};
use centrifuge_core::lookup::LookupEvent;
use centrifuge_core::machine::{Machine, Output};
use centrifuge_core::manager::ManagerEvent;
use centrifuge_core::owner::OwnerEvent;
use centrifuge_core::time::Instant;
use tokio::sync::mpsc;

use crate::clock::{self, JumpWatch};
use crate::credential;

/// A machine that was suspended is late by at most this much once it runs again.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// For how long a driver remembers how its clocks stood, unless its watch is made for something shorter.
const JUMP_SPAN: Duration = Duration::from_secs(3600);

/// An event by which a machine hears that its clock jumped.
pub trait DrivenEvent {
    /// That event.
    fn clock_jumped() -> Self;
}

impl DrivenEvent for OwnerEvent {
    fn clock_jumped() -> Self {
        // Without a session of its own the process must not go on; its leases end with it.
        let fresh = credential::draw().expect("the operating system has random bits");
        OwnerEvent::ClockJumped { fresh }
    }
}

impl DrivenEvent for LookupEvent {
    fn clock_jumped() -> Self {
        LookupEvent::ClockJumped
    }
}

impl DrivenEvent for ManagerEvent {
    fn clock_jumped() -> Self {
        ManagerEvent::ClockJumped
    }
}

impl DrivenEvent for FleaseEvent {
    fn clock_jumped() -> Self {
        FleaseEvent::ClockJumped
    }
}

impl DrivenEvent for ClaimEvent {
    fn clock_jumped() -> Self {
        ClaimEvent::Peer(FleaseEvent::ClockJumped)
    }
}

impl DrivenEvent for ElectionRequest {
    fn clock_jumped() -> Self {
        ElectionRequest::ClockJumped
    }
}

/// Where a driver takes the time that it tells its machine.
pub trait Clock: Send + Sync {
    /// The time, which never goes backwards, and whether the clock jumped since it was last asked.
    fn read(&mut self) -> (Instant, bool);

    /// How long it is until the clock shows `wake`; zero if it does already.
    fn rest(&self, wake: Instant) -> Duration;
}

/// Boot time: the clock of all machines that count with their own clock alone.
impl Clock for JumpWatch {
    fn read(&mut self) -> (Instant, bool) {
        let now = clock::now();
        (now, self.take_jump(now))
    }

    fn rest(&self, wake: Instant) -> Duration {
        wake.since(clock::now())
    }
}

/// Performs what a machine decides. Nothing here waits: what takes time is started, and its outcome is sent to the
/// driver as an event.
pub trait Host<M: Machine> {
    /// Performs one action.
    fn perform(&mut self, action: M::Action);

    /// Sees the machine after a step whose actions were performed, to publish what readers need.
    fn stepped(&mut self, now: Instant, machine: &M);
}

/// Sees everything a machine is fed and everything it answers, to record it.
pub trait Tee<M: Machine>: Send {
    /// A step: the event, or `None` for a wake, and what came of it.
    fn step(&mut self, now: Instant, event: Option<&M::Event>, output: &Output<M::Action>);
}

/// A machine with its host.
pub struct Driver<M: Machine, H, C = JumpWatch> {
    machine: M,
    host: H,
    clock: C,
    wake: Option<Instant>,
    tee: Option<Box<dyn Tee<M>>>,
}

impl<M, H> Driver<M, H>
where
    M: Machine,
    M::Event: DrivenEvent + Clone,
    H: Host<M>,
{
    /// A machine that has not been fed anything. Clocks that move against each other by more than `slack` within an hour are
    /// a jump.
    pub fn new(machine: M, host: H, slack: Duration) -> Driver<M, H> {
        Driver::with_clock(machine, host, JumpWatch::new(slack, JUMP_SPAN))
    }
}

impl<M, H, C> Driver<M, H, C>
where
    M: Machine,
    M::Event: DrivenEvent + Clone,
    H: Host<M>,
    C: Clock,
{
    /// A machine that has not been fed anything, and that counts with a clock of its own.
    pub fn with_clock(machine: M, host: H, clock: C) -> Driver<M, H, C> {
        Driver { machine, host, clock, wake: None, tee: None }
    }

    /// Shows every step to `tee` as well.
    #[must_use]
    pub fn with_tee(mut self, tee: Box<dyn Tee<M>>) -> Driver<M, H, C> {
        self.tee = Some(tee);
        self
    }

    /// Runs until every sender of events is gone, and gives the machine and the host back.
    pub async fn run(mut self, mut events: mpsc::Receiver<M::Event>) -> (M, H) {
        loop {
            let event = tokio::select! {
                biased;
                () = sleep_until(&self.clock, self.wake) => None,
                event = events.recv() => match event {
                    Some(event) => Some(event),
                    None => return (self.machine, self.host),
                },
            };
            self.step(event);
        }
    }

    fn step(&mut self, event: Option<M::Event>) {
        let (now, has_jumped) = self.clock.read();
        if has_jumped {
            self.feed(now, Some(M::Event::clock_jumped()));
        }
        self.feed(now, event);
    }

    fn feed(&mut self, now: Instant, event: Option<M::Event>) {
        let shown = self.tee.is_some().then(|| event.clone());
        let output = match event {
            Some(event) => self.machine.on_event(now, event),
            None => self.machine.on_wake(now),
        };
        if let (Some(tee), Some(event)) = (&mut self.tee, &shown) {
            tee.step(now, event.as_ref(), &output);
        }
        self.wake = output.wake;
        for action in output.actions {
            self.host.perform(action);
        }
        self.host.stepped(now, &self.machine);
    }
}

/// Sleeps until the clock shows `wake`; for ever without one.
///
/// Does not sleep at all if the clock shows it already: even the shortest sleep waits for the timer's next tick, and a flood of
/// events would put a wake off again and again. Sleeps in pieces, because the timer stands still while the machine is suspended.
async fn sleep_until(clock: &impl Clock, wake: Option<Instant>) {
    let Some(wake) = wake else { return std::future::pending().await };
    loop {
        let rest = clock.rest(wake);
        if rest.is_zero() {
            return;
        }
        tokio::time::sleep(rest.min(LONGEST_SLEEP)).await;
    }
}
