//! The loop that runs machines, with a small machine that shows what it was fed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use centrifuge_core::machine::{Machine, Output};
use centrifuge_core::time::Instant;
use centrifuge_net::clock;
use centrifuge_net::driver::{DrivenEvent, Driver, Host, Tee};
use tokio::sync::mpsc;

/// How long a test waits for what should come at once.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);
/// A slack that no clock of a test machine exceeds.
const NO_JUMP: Duration = Duration::from_secs(1_000_000_000);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    /// Wants to be woken after so long.
    WakeAfter(Duration),
    /// Wants so many actions.
    Act(u32),
    Jumped,
}

impl DrivenEvent for Event {
    fn clock_jumped() -> Event {
        Event::Jumped
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Acted(u32),
    WokenAt { now: Instant, wanted: Instant },
    Jumped,
}

/// Does as its events say.
#[derive(Debug, Default)]
struct Small {
    wake: Option<Instant>,
    last: Instant,
    steps: usize,
    woken_at_step: usize,
}

impl Small {
    fn output(&mut self, now: Instant, actions: Vec<Action>) -> Output<Action> {
        assert!(now >= self.last, "time never goes backwards");
        self.last = now;
        self.steps += 1;
        Output { actions, wake: self.wake }
    }
}

impl Machine for Small {
    type Event = Event;
    type Action = Action;

    fn on_event(&mut self, now: Instant, event: Event) -> Output<Action> {
        let actions = match event {
            Event::WakeAfter(length) => {
                self.wake = Some(now + length);
                Vec::new()
            }
            Event::Act(count) => (0..count).map(Action::Acted).collect(),
            Event::Jumped => vec![Action::Jumped],
        };
        self.output(now, actions)
    }

    fn on_wake(&mut self, now: Instant) -> Output<Action> {
        let woken = self.wake.take_if(|wake| *wake <= now);
        if woken.is_some() {
            self.woken_at_step = self.steps;
        }
        let actions = woken.map(|wanted| Action::WokenAt { now, wanted }).into_iter().collect();
        self.output(now, actions)
    }
}

/// Passes on what it is told to perform, and counts steps.
struct Shown {
    actions: mpsc::UnboundedSender<Action>,
    steps: usize,
}

impl Host<Small> for Shown {
    fn perform(&mut self, action: Action) {
        self.actions.send(action).expect("the test listens");
    }

    fn stepped(&mut self, now: Instant, machine: &Small) {
        assert_eq!(machine.last, now, "the host sees the machine after its step");
        self.steps += 1;
    }
}

type Actions = mpsc::UnboundedReceiver<Action>;

fn driver(slack: Duration) -> (Driver<Small, Shown>, Actions) {
    let (actions, shown) = mpsc::unbounded_channel();
    (Driver::new(Small::default(), Shown { actions, steps: 0 }, slack), shown)
}

async fn next(actions: &mut Actions) -> Action {
    tokio::time::timeout(TEST_TIMEOUT, actions.recv()).await.expect("in time").expect("the driver runs")
}

#[tokio::test]
async fn actions_are_performed_in_their_order_and_the_end_of_senders_is_the_end() {
    let (driver, mut actions) = driver(NO_JUMP);
    let (send, events) = mpsc::channel(8);
    let running = tokio::spawn(driver.run(events));
    send.send(Event::Act(3)).await.expect("the driver listens");
    send.send(Event::Act(1)).await.expect("the driver listens");
    for expected in [0, 1, 2, 0] {
        assert_eq!(next(&mut actions).await, Action::Acted(expected));
    }
    drop(send);
    let (machine, host) =
        tokio::time::timeout(TEST_TIMEOUT, running).await.expect("in time").expect("no panic");
    assert_eq!(host.steps, 2);
    assert!(machine.wake.is_none());
}

#[tokio::test]
async fn a_wake_comes_when_it_is_due_and_before_events_that_wait() {
    let (driver, mut actions) = driver(NO_JUMP);
    let (send, events) = mpsc::channel(8);
    let before = clock::now();
    // All of this is waiting when the driver starts; the wake is due at once after the first event.
    send.send(Event::WakeAfter(Duration::ZERO)).await.expect("room");
    send.send(Event::Act(1)).await.expect("room");
    let running = tokio::spawn(driver.run(events));
    let Action::WokenAt { wanted, .. } = next(&mut actions).await else { panic!("the wake goes first") };
    assert!(wanted >= before);
    assert_eq!(next(&mut actions).await, Action::Acted(0));

    send.send(Event::WakeAfter(Duration::from_millis(50))).await.expect("the driver listens");
    let Action::WokenAt { now, wanted } = next(&mut actions).await else { panic!("nothing else was asked") };
    assert!(now >= wanted, "never early enough to change nothing: {now} for {wanted}");
    drop(send);
    tokio::time::timeout(TEST_TIMEOUT, running).await.expect("in time").expect("no panic");
}

#[tokio::test]
async fn a_flood_of_events_does_not_put_a_wake_off() {
    const FLOOD: usize = 200_000;
    let (driver, mut actions) = driver(NO_JUMP);
    let (send, events) = mpsc::channel(FLOOD + 1);
    send.send(Event::WakeAfter(Duration::from_millis(1))).await.expect("room");
    for _ in 0..FLOOD {
        send.send(Event::Act(0)).await.expect("room");
    }
    drop(send);
    let (machine, _) = tokio::time::timeout(TEST_TIMEOUT, driver.run(events)).await.expect("in time");
    assert!(matches!(next(&mut actions).await, Action::WokenAt { .. }));
    assert!(machine.steps > FLOOD, "every event was fed");
    assert!(machine.woken_at_step < FLOOD, "the wake did not wait for all of them");
}

#[tokio::test]
async fn a_later_wish_replaces_an_earlier_one() {
    let (driver, mut actions) = driver(NO_JUMP);
    let (send, events) = mpsc::channel(8);
    let running = tokio::spawn(driver.run(events));
    send.send(Event::WakeAfter(Duration::from_secs(3_600))).await.expect("the driver listens");
    send.send(Event::WakeAfter(Duration::from_millis(10))).await.expect("the driver listens");
    assert!(matches!(next(&mut actions).await, Action::WokenAt { .. }));
    drop(send);
    let (machine, _) = tokio::time::timeout(TEST_TIMEOUT, running).await.expect("in time").expect("no panic");
    assert!(machine.wake.is_none(), "the hour was forgotten");
}

/// Remembers what it was shown.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<Option<Event>>>>);

impl Tee<Small> for Seen {
    fn step(&mut self, _now: Instant, event: Option<&Event>, _output: &Output<Action>) {
        self.0.lock().expect("no panic").push(event.cloned());
    }
}

#[tokio::test]
async fn a_jump_is_told_before_the_event_and_the_tee_sees_every_step() {
    // With no slack at all the coarse wall clock moves against the boot-time clock at nearly every reading.
    let (driver, mut actions) = driver(Duration::ZERO);
    let seen = Seen::default();
    let (send, events) = mpsc::channel(8);
    let running = tokio::spawn(driver.with_tee(Box::new(seen.clone())).run(events));
    let jumped = async {
        loop {
            send.send(Event::Act(1)).await.expect("the driver listens");
            if next(&mut actions).await == Action::Jumped {
                return next(&mut actions).await;
            }
        }
    };
    let after = tokio::time::timeout(TEST_TIMEOUT, jumped).await.expect("a jump in time");
    assert_eq!(after, Action::Acted(0), "the event that was on its way comes right after the jump");
    drop(send);
    tokio::time::timeout(TEST_TIMEOUT, running).await.expect("in time").expect("no panic");
    let seen = seen.0.lock().expect("no panic");
    assert!(seen.ends_with(&[Some(Event::Jumped), Some(Event::Act(1))]), "{seen:?}");
}
