//! What a large pool costs: a join commits nothing but what moves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::group::Group;
use centrifuge_core::id::{Generation, Index, Namespace, Nonce, OwnerName, Secret, Seq, SessionId, Term};
use centrifuge_core::machine::Machine;
use centrifuge_core::manager::{
    ElectionEvent, ManagerAction, ManagerConfig, ManagerEvent, ManagerMachine, Peer, StoreEvent,
};
use centrifuge_core::message::{HeldLease, Hello, ManagerToOwner, OwnerToManager, Report};
use centrifuge_core::partition::{ConsistentHash, PartitionOwner, Partitioner, overlay};
use centrifuge_core::plant::Plants;
use centrifuge_core::random::Random;
use centrifuge_core::record::{Batch, Change, Reason, Record, SessionInfo};
use centrifuge_core::settings::Settings;
use centrifuge_core::time::Instant;

const OWNERS: usize = 1_000;

#[test]
fn a_join_into_a_thousand_owners_commits_only_what_moves() {
    let mut leader = Leading::with(stored_pool());
    for number in 0..OWNERS {
        leader.say_hello(at(1), number);
    }
    for (second, seq) in [(1, 1), (30, 2), (60, 3)] {
        leader.pass_until(at(second));
        for number in 0..OWNERS {
            assert_eq!(leader.report(at(second), number, seq), None, "a renewal is not stored");
        }
    }
    // The takeover hold is over.
    leader.pass_until(at(80));

    leader.say_hello(at(80), OWNERS);
    let batch = leader.report(at(80), OWNERS, 1).expect("a join is committed");
    let recalled: BTreeSet<_> = batch
        .records
        .iter()
        .filter_map(|record| match record {
            Record::Namespace { change: Change::Recalled { range, to, .. }, .. } => {
                assert_eq!(*to, Some(session(OWNERS)));
                Some(*range)
            }
            _ => None,
        })
        .collect();
    let before = ConsistentHash.assign(&pool(OWNERS));
    let after = ConsistentHash.assign(&pool(OWNERS + 1));
    let moving: BTreeSet<_> =
        overlay(&before, &after).filter(|(_, from, to)| from != to).map(|(range, _, _)| range).collect();
    assert!((32..=64).contains(&moving.len()), "{} ranges should move", moving.len());
    assert_eq!(recalled, moving);
    assert_eq!(batch.records.len(), moving.len() + 1, "the join itself is the only other record");
}

/// A leader of one large namespace, fed by hand.
struct Leading {
    machine: ManagerMachine,
    group: Arc<Group>,
    /// By session: its conversation, and the number of the latest message to it.
    talks: BTreeMap<SessionId, (Nonce, Seq)>,
    wake: Option<Instant>,
}

impl Leading {
    fn with(group: Group) -> Leading {
        let group = Arc::new(group);
        let machine =
            ManagerMachine::new(ManagerConfig::new("m1".into()), Random::from_number(1), Plants::NONE);
        let mut leader = Leading { machine, group, talks: BTreeMap::new(), wake: None };
        leader.feed(at(0), Some(ManagerEvent::Start));
        leader
    }

    fn say_hello(&mut self, now: Instant, number: usize) {
        let hello = Hello {
            namespace: namespace(),
            session: session(number),
            secret: Secret::default(),
            number: 1,
            name: name(number),
            url: "somewhere".into(),
            takes_over_previous: false,
            formerly: None,
            age: Duration::ZERO,
            term: Term::ZERO,
        };
        self.feed(now, Some(from_owner(OwnerToManager::Hello(hello))));
    }

    /// Reports all that the table gives an Owner; returns what that made the leader commit.
    fn report(&mut self, now: Instant, number: usize, seq: u64) -> Option<Arc<Batch>> {
        let (conversation, heard) = self.talks[&session(number)];
        let held = self.group.namespaces[&namespace()].table.of_session(session(number));
        let held = held.map(|(range, entry)| HeldLease {
            range,
            generation: entry.generation,
            state_since: entry.state_since,
            warrant: None,
        });
        let report = Report {
            namespace: namespace(),
            session: session(number),
            conversation,
            seq: Seq(seq),
            heard,
            applied: heard,
            age: Duration::ZERO,
            held: held.collect(),
            released: Vec::new(),
            refused: Vec::new(),
            imports: Vec::new(),
            loads: Vec::new(),
            weight: 100,
            draining: false,
            leaving: false,
        };
        self.feed(now, Some(from_owner(OwnerToManager::Report(report))))
    }
}

impl Leading {
    /// Lets time pass, waking the leader whenever it wants.
    fn pass_until(&mut self, end: Instant) {
        while let Some(wake) = self.wake.filter(|wake| *wake <= end) {
            self.feed(wake, None);
        }
    }

    /// Feeds an event, or a wake, and answers for the store and the election; returns the last batch of it.
    fn feed(&mut self, now: Instant, event: Option<ManagerEvent>) -> Option<Arc<Batch>> {
        let mut events = vec![event];
        let mut committed = None;
        while let Some(event) = events.pop() {
            let output = match event {
                Some(event) => self.machine.on_event(now, event),
                None => self.machine.on_wake(now),
            };
            self.wake = output.wake;
            for action in output.actions {
                match action {
                    ManagerAction::Campaign { request } => {
                        let won = ElectionEvent::Won { request, term: Term(2) };
                        events.push(Some(ManagerEvent::Election(won)));
                    }
                    ManagerAction::RenewLeadership { request, .. } => {
                        events.push(Some(ManagerEvent::Election(ElectionEvent::Renewed { request })));
                    }
                    ManagerAction::Load { request } => {
                        let (index, group) = (Index(1), Arc::clone(&self.group));
                        events.push(Some(ManagerEvent::Store(StoreEvent::Loaded { request, index, group })));
                    }
                    ManagerAction::Append { index, batch, .. } => {
                        committed = Some(batch);
                        events.push(Some(ManagerEvent::Store(StoreEvent::Appended { index })));
                    }
                    ManagerAction::ToOwner { message: ManagerToOwner::Welcome(welcome), .. } => {
                        self.talks.insert(welcome.session, (welcome.conversation, Seq::ZERO));
                    }
                    ManagerAction::ToOwner { message: ManagerToOwner::Assign(assign), .. } => {
                        self.talks.insert(assign.session, (assign.conversation, assign.seq));
                    }
                    _ => {}
                }
            }
        }
        committed
    }
}

/// What is stored of a pool at rest: every Owner has what the partitioner gives it.
fn stored_pool() -> Group {
    let settings = Arc::new(Settings::default());
    let mut changes = vec![Change::Created { settings, log: Nonce(7), floor: Generation::ZERO }];
    for number in 0..OWNERS {
        let info = SessionInfo {
            name: name(number),
            url: "somewhere".into(),
            weight: 100,
            virtual_nodes: 64,
            drain_requested: false,
            drain_ordered: false,
            evicted: false,
        };
        changes.push(Change::SessionStarted { session: session(number), info });
    }
    for (generation, (range, owner)) in (1..).zip(ConsistentHash.assign(&pool(OWNERS))) {
        let generation = Generation(generation);
        changes.push(Change::Granted {
            range,
            generation,
            session: session(owner),
            source: None,
            state_since: None,
        });
    }
    let record = |change| Record::Namespace { namespace: namespace(), change, reason: Reason::Joined };
    let mut group = Group::default();
    group.apply(&Batch { term: Term(1), records: changes.into_iter().map(record).collect() }, Plants::NONE);
    group
}

fn pool(owners: usize) -> Vec<PartitionOwner> {
    (0..owners).map(|number| PartitionOwner { name: name(number), virtual_nodes: 64, weight: 100 }).collect()
}

fn from_owner(message: OwnerToManager) -> ManagerEvent {
    ManagerEvent::FromOwner { from: Peer(1), message }
}

fn session(number: usize) -> SessionId {
    SessionId(Nonce(number as u128 + 1))
}

fn name(number: usize) -> OwnerName {
    OwnerName::new(&format!("owner-{number:04}")).expect("a plain name")
}

fn namespace() -> Namespace {
    Namespace::new("presence").expect("a plain name")
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}
