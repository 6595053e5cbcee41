//! What readers see is what the machine says, at every instant and after every step.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use centrifuge_core::id::{
    Credential, Generation, ManagerId, Namespace, Nonce, OwnerName, Seq, SessionId, Term,
};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::machine::Machine;
use centrifuge_core::message::{
    Assign, Destination, LeaseOrder, ManagerToOwner, OrderKind, OwnerToManager, RecallOrder, Welcome,
};
use centrifuge_core::owner::{OwnerAction, OwnerConfig, OwnerEvent, OwnerMachine, TransferId};
use centrifuge_core::random::Random;
use centrifuge_core::time::Instant;
use centrifuge_net::driver::Host;
use proptest::prelude::*;
use tokio::sync::{broadcast, mpsc, watch};

use super::builder::MigrateOut;
use super::change::Change;
use super::host::{Links, OwnerHost};
use super::load::LoadMeter;
use super::migration::Imports;
use super::{InFlight, Shared, Status};
use crate::hot::{HotLeases, NotOwner};

const LEASE: Duration = Duration::from_secs(60);
/// The edges of the ranges that orders are made of.
const EDGES: [u64; 7] = [0, 1 << 20, 1 << 40, 1 << 61, 1 << 62, 3 << 62, u64::MAX];

/// Remembers what was sent.
#[derive(Clone, Default)]
struct Sent(Arc<Mutex<Vec<OwnerToManager>>>);

impl Links for Sent {
    fn send(&mut self, _: &ManagerId, message: OwnerToManager) {
        self.0.lock().expect("no panic").push(message);
    }
}

/// What a Manager can do with a slice between two edges.
#[derive(Clone, Copy, Debug)]
enum Order {
    Nothing,
    Keep,
    Merge,
    Grant,
    Recall,
    Migrate,
}

#[derive(Clone, Debug)]
enum Step {
    Assign(Vec<Order>),
    Pass(u64),
    Report,
    TransferReady,
    TransferDone,
    Quiesced,
    ClockJumped,
}

fn step() -> impl Strategy<Value = Step> {
    let order = prop_oneof![
        1 => Just(Order::Nothing),
        4 => Just(Order::Keep),
        1 => Just(Order::Merge),
        3 => Just(Order::Grant),
        1 => Just(Order::Recall),
        1 => Just(Order::Migrate),
    ];
    prop_oneof![
        6 => proptest::collection::vec(order, EDGES.len() - 1).prop_map(Step::Assign),
        2 => (0_u64..70).prop_map(Step::Pass),
        2 => Just(Step::Report),
        1 => Just(Step::TransferReady),
        1 => Just(Step::TransferDone),
        1 => Just(Step::Quiesced),
        1 => Just(Step::ClockJumped),
    ]
}

/// A machine with its host, and the Manager's side by hand.
struct World {
    machine: OwnerMachine,
    host: OwnerHost<Sent>,
    shared: Arc<Shared>,
    sent: Sent,
    now: Instant,
    wake: Option<Instant>,
    seq: u64,
    generation: u64,
    transfers: Vec<TransferId>,
    queue: mpsc::Receiver<OwnerEvent>,
}

impl World {
    fn new() -> World {
        World::with(Arc::new(|_| Box::pin(std::future::pending())), mpsc::channel(64))
    }

    fn with(
        migrate: MigrateOut,
        (events, queue): (mpsc::Sender<OwnerEvent>, mpsc::Receiver<OwnerEvent>),
    ) -> World {
        let config = OwnerConfig {
            namespace: Namespace::new("pool").expect("a label"),
            name: OwnerName::new("a").expect("a name"),
            url: "http://a".into(),
            managers: Arc::from([ManagerId::from("m:1")]),
            takes_over_previous: false,
            weight: 100,
            load_dimension: Default::default(),
            migrates: true,
            credential: None,
            expects: Default::default(),
        };
        let machine = OwnerMachine::new(config, Random::from_number(1));
        let shared = Arc::new(shared(machine.session()));
        let sent = Sent::default();
        let host = OwnerHost::new(Arc::clone(&shared), sent.clone(), events, Some(migrate));
        let mut world = World {
            machine,
            host,
            shared,
            sent,
            now: Instant(1_000_000_000),
            wake: None,
            seq: 0,
            generation: 0,
            transfers: Vec::new(),
            queue,
        };
        world.feed(Some(OwnerEvent::Start));
        world
    }

    fn feed(&mut self, event: Option<OwnerEvent>) {
        let output = match event {
            Some(event) => self.machine.on_event(self.now, event),
            None => self.machine.on_wake(self.now),
        };
        self.wake = output.wake;
        for action in output.actions {
            if let OwnerAction::StartTransfer { transfer, .. } | OwnerAction::Freeze { transfer, .. } =
                &action
            {
                self.transfers.push(*transfer);
            }
            self.host.perform(action);
        }
        self.host.stepped(self.now, &self.machine);
    }

    fn welcome(&mut self, number: u64) {
        self.seq = 0;
        let message = ManagerToOwner::Welcome(Welcome {
            namespace: Namespace::new("pool").expect("a label"),
            session: self.shared.session(),
            number,
            conversation: Nonce(u128::from(number)),
            term: Term(1),
            kind: Default::default(),
        });
        self.feed(Some(OwnerEvent::FromManager { from: "m:1".into(), message }));
    }

    /// Answers hellos until there is a report, and gives it.
    fn report(&mut self) -> centrifuge_core::message::Report {
        for _ in 0..10 {
            let last = self.sent.0.lock().expect("no panic").last().cloned();
            match last {
                Some(OwnerToManager::Report(report)) => return report,
                Some(OwnerToManager::Hello(hello)) => self.welcome(hello.number),
                None => {}
            }
        }
        panic!("no report")
    }

    fn assign(&mut self, orders: &[Order]) {
        let report = self.report();
        let held = self.machine.leases().clone();
        let mut leases = Vec::new();
        for (slice, order) in EDGES.windows(2).zip(orders) {
            let last = if slice[1] == u64::MAX { u64::MAX } else { slice[1] - 1 };
            let range = KeyRange::new(Key(slice[0]), Key(last)).expect("in order");
            let lease = held.get(range.first()).map(|(_, lease)| *lease);
            let renewal = |generation, state_since, recall| LeaseOrder {
                range,
                generation,
                state_since,
                kind: OrderKind::Renewal,
                merge: None,
                recall,
                warrant: None,
            };
            match (order, lease) {
                (Order::Nothing, _) | (Order::Keep | Order::Merge | Order::Recall | Order::Migrate, None) => {
                }
                (Order::Keep, Some(lease)) => {
                    leases.push(renewal(lease.generation, lease.state_since, None));
                }
                (Order::Merge, Some(lease)) => {
                    self.generation += 1;
                    let merge = Some(Generation(self.generation));
                    let order = renewal(lease.generation, lease.state_since, None);
                    leases.push(LeaseOrder { merge, ..order });
                }
                (Order::Recall, Some(lease)) => {
                    let recall = Some(RecallOrder { to: None });
                    leases.push(renewal(lease.generation, lease.state_since, recall));
                }
                (Order::Migrate, Some(lease)) => {
                    let name = OwnerName::new("b").expect("a name");
                    let to = Destination { session: SessionId(Nonce(2)), name, url: "http://b".into() };
                    let recall = Some(RecallOrder { to: Some(to) });
                    leases.push(renewal(lease.generation, lease.state_since, recall));
                }
                (Order::Grant, _) => {
                    self.generation += 1;
                    let generation = Generation(self.generation);
                    let kind = OrderKind::Grant { source: None };
                    leases.push(LeaseOrder {
                        range,
                        generation,
                        state_since: generation,
                        kind,
                        merge: None,
                        recall: None,
                        warrant: None,
                    });
                }
            }
        }
        self.seq += 1;
        let message = ManagerToOwner::Assign(Assign {
            namespace: report.namespace,
            session: report.session,
            conversation: report.conversation,
            term: Term(1),
            seq: Seq(self.seq),
            heard: report.seq,
            applied: report.seq,
            lease: LEASE,
            renewal: LEASE / 4,
            orders: leases.into(),
            wants_answer: false,
            drain_waits: false,
            drained: false,
            void: Vec::new(),
            repeat: Vec::new(),
            evicted: false,
        });
        self.feed(Some(OwnerEvent::FromManager { from: "m:1".into(), message }));
    }

    fn take(&mut self, step: &Step) {
        let transfer = self.transfers.last().copied().unwrap_or(TransferId(0));
        match step {
            Step::Assign(orders) => self.assign(orders),
            Step::Pass(seconds) => self.now = self.now + Duration::from_secs(*seconds),
            Step::Report => {
                self.now = self.wake.map_or(self.now, |wake| wake.max(self.now));
                self.feed(None);
            }
            Step::TransferReady => self.feed(Some(OwnerEvent::TransferReady(transfer))),
            Step::TransferDone => {
                self.feed(Some(OwnerEvent::TransferDone { transfer, to: SessionId(Nonce(2)) }));
            }
            Step::Quiesced => self.feed(Some(OwnerEvent::Quiesced(transfer))),
            Step::ClockJumped => {
                self.feed(Some(OwnerEvent::ClockJumped { fresh: Credential::unproven(Nonce(0xa2)) }))
            }
        }
    }

    /// Compares at the edges of every range and at the instants around the expiry.
    fn compare(&self) {
        let machine = &self.machine;
        let snapshot = self.shared.hot.snapshot();
        let offset = snapshot.validity.offset;
        let keys = EDGES.iter().flat_map(|edge| [edge.saturating_sub(1), *edge, edge.saturating_add(1)]);
        let expiry = machine.expiry();
        let instants = [self.now, expiry - Duration::from_nanos(1), expiry, expiry + Duration::from_nanos(1)];
        for key in keys.map(Key) {
            for now in instants.into_iter().filter(|now| *now >= self.now) {
                let says = machine.check_lease_now(now, key).map_err(NotOwner::from);
                assert_eq!(snapshot.check_at(now, offset, key), says, "{key} at {now}");
                for lease in (0..=self.generation).map(Generation) {
                    let says = machine.check_lease_continuous(now, key, lease);
                    assert_eq!(snapshot.is_held_at(now, offset, key, lease), says, "{key} {lease} at {now}");
                }
            }
            let moved = offset.wrapping_add(1_100_000_000);
            assert_eq!(snapshot.check_at(self.now, moved, key), Err(NotOwner::NoLease));
        }
    }
}

fn shared(session: SessionId) -> Shared {
    let hot = HotLeases::default();
    let meter = LoadMeter::new(Arc::clone(&hot.snapshot().table), Instant(0));
    Shared {
        session: Mutex::new(session),
        hot,
        in_flight: Arc::new(InFlight::default()),
        imports: Imports::default(),
        discard_hooks: Vec::new(),
        changes: broadcast::channel::<Change>(64).0,
        status: watch::channel(Status::default()).0,
        meter: Mutex::new(meter),
        reported_at: AtomicU64::new(0),
        renewal: AtomicU64::new(0),
        load_per_check: 1,
        alive_at: AtomicU64::new(0),
        gives_up: AtomicBool::new(false),
        drain_waits: AtomicBool::new(false),
    }
}

#[tokio::test]
async fn a_transfer_that_panics_is_told_however_full_the_queue_is() {
    let (events, queue) = mpsc::channel(1);
    events.try_send(OwnerEvent::Weight(1)).expect("room for one");
    let panics: MigrateOut = Arc::new(|_| Box::pin(async { panic!("the application's own") }));
    let mut world = World::with(panics, (events, queue));
    let transfer = TransferId(7);
    let to = Destination {
        session: SessionId(Nonce(2)),
        name: OwnerName::new("b").expect("a name"),
        url: "http://b".into(),
    };
    let (range, generation) = (KeyRange::ALL, Generation(1));
    world.host.perform(OwnerAction::StartTransfer { transfer, range, generation, to, term: Term(1) });
    world.host.stepped(world.now, &world.machine);
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.queue.recv().await, Some(OwnerEvent::Weight(1)), "it was full all the while");
    let told = tokio::time::timeout(Duration::from_secs(10), world.queue.recv()).await;
    assert_eq!(told, Ok(Some(OwnerEvent::TransferFailed(transfer))));
}

proptest! {
    #[test]
    fn readers_see_what_the_machine_says(steps in proptest::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let _inside = runtime.enter();
        let mut world = World::new();
        world.compare();
        for step in &steps {
            world.take(step);
            world.compare();
        }
    }
}
