//! What a large pool and a large report cost: a join commits nothing but what moves, and no batch is longer than its limit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{Generation, Index, Namespace, Nonce, OwnerName, Secret, Seq, SessionId, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::machine::Machine;
use centrifuge_core::manager::{
    ElectionCommand, ElectionEvent, ManagerAction, ManagerConfig, ManagerEvent, ManagerMachine, StoreCommand,
    StoreEvent, StreamId,
};
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::message::{
    Assign, HeldLease, Hello, ImportedCopy, LeaseOrder, ManagerToOwner, OrderKind, OwnerToManager, Refusal,
    Release, Report, Welcome,
};
use centrifuge_core::owner::{OwnerAction, OwnerConfig, OwnerEvent, OwnerMachine};
use centrifuge_core::partition::{ConsistentHash, PartitionOwner, Partitioner, PartitionerKind, overlay};
use centrifuge_core::random::Random;
use centrifuge_core::record::{Batch, Change, Reason, Record, SessionInfo};
use centrifuge_core::settings::Settings;
use centrifuge_core::table::Table;
use centrifuge_core::time::Instant;

const OWNERS: usize = 1_000;

/// A report with more changes than a Manager reads would be refused, again and again.
#[test]
fn whoever_leaves_with_more_leases_than_a_report_can_release_says_so_in_one_that_is_read() {
    let config = OwnerConfig {
        namespace: Namespace::new("pool").expect("a label"),
        name: OwnerName::new("a").expect("a name"),
        url: "http://a".into(),
        managers: ["m1".into()].into(),
        takes_over_previous: false,
        weight: 100,
        load_dimension: Default::default(),
        migrates: true,
        credential: None,
        expects: Default::default(),
    };
    let mut owner = OwnerMachine::new(config, Random::from_number(1));
    owner.on_event(at(0), OwnerEvent::Start);
    let (namespace, session, conversation) = (owner.namespace().clone(), owner.session(), Nonce(1));
    let say = |owner: &mut OwnerMachine, message| {
        let event = OwnerEvent::FromManager { from: "m1".into(), message };
        let actions = owner.on_event(at(1), event).actions;
        actions.into_iter().find_map(report_of)
    };
    let welcome = Welcome {
        namespace: namespace.clone(),
        session,
        number: 1,
        conversation,
        term: Term(1),
        kind: Default::default(),
    };
    say(&mut owner, ManagerToOwner::Welcome(welcome)).expect("a report");
    let leases = Settings::MOST_MOVES as u64 + 4_000;
    let grant = |number: u64| LeaseOrder {
        range: KeyRange::new(Key(number * 10), Key(number * 10 + 8)).expect("in order"),
        generation: Generation(1),
        state_since: Generation(1),
        kind: OrderKind::Grant { source: None },
        merge: None,
        recall: None,
        warrant: None,
    };
    let assign = Assign {
        namespace,
        session,
        conversation,
        term: Term(1),
        seq: Seq(1),
        heard: Seq(1),
        applied: Seq(1),
        lease: Duration::from_secs(60),
        renewal: Duration::from_secs(15),
        orders: (0..leases).map(grant).collect(),
        wants_answer: true,
        drain_waits: false,
        drained: false,
        void: Vec::new(),
        repeat: Vec::new(),
        evicted: false,
    };
    let held = say(&mut owner, ManagerToOwner::Assign(assign.clone())).expect("a report").held;
    assert_eq!(held.len() as u64, leases);
    let answered = Assign { seq: Seq(2), heard: Seq(2), applied: Seq(2), wants_answer: false, ..assign };
    assert_eq!(say(&mut owner, ManagerToOwner::Assign(answered)), None);
    let left = owner.on_event(at(2), OwnerEvent::Leave).actions.into_iter().find_map(report_of);
    let left = left.expect("a report");
    assert!(left.leaving && left.held.is_empty());
    assert_eq!(left.released.len(), Settings::MOST_MOVES);
}

fn report_of(action: OwnerAction) -> Option<Report> {
    match action {
        OwnerAction::ToManager { message: OwnerToManager::Report(report), .. } => Some(report),
        _ => None,
    }
}

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

/// How many pieces of one lease a report speaks of. Work that grows with the square of it would take minutes.
const PIECES: u64 = 65_536;

/// How many of them are given back, which takes many batches.
const RELEASED: u64 = 16_384;

/// No batch has many more records than this, however much there is to decide.
const BATCH: usize = 1_100;

#[test]
fn a_lease_listed_in_65536_pieces_is_renewed() {
    let mut leader = with_one_lease();
    let mut report = leader.next_report(0, 3);
    let lease = report.held[0];
    report.held = pieces(PIECES).map(|range| HeldLease { range, ..lease }).collect();
    assert_eq!(leader.send(at(61), report), None);
    assert_eq!(leader.leases(0), 1);
}

#[test]
fn a_release_of_every_second_of_16384_pieces_is_committed_in_batches() {
    let mut leader = with_one_lease();
    let mut report = leader.next_report(0, 3);
    let lease = report.held[0];
    report.held = pieces(RELEASED).skip(1).step_by(2).map(|range| HeldLease { range, ..lease }).collect();
    report.released = pieces(RELEASED).step_by(2).map(|range| release(range, lease.generation)).collect();
    let last = leader.send(at(61), report).expect("it is committed");
    assert!(leader.longest_batch <= BATCH, "{} records in one batch", leader.longest_batch);
    assert!(last.records.len() <= BATCH);
    let table = &leader.table();
    assert_eq!(leader.leases(0), RELEASED as usize, "what was given back is granted again, piece by piece");
    assert_eq!(table.iter().filter(|(_, entry)| entry.generation == lease.generation).count(), 8_192);
    assert_eq!(leader.applied, Seq(3), "and only then is the report applied");
}

#[test]
fn releases_refusals_and_copies_of_65536_leases_of_others_have_no_effect() {
    let mut leader = with_one_lease();
    for seq in [3, 4] {
        let mut report = leader.next_report(0, seq);
        let foreign = |number: u64| Generation(1_000 + number);
        report.released = (0..PIECES).map(|number| release(KeyRange::ALL, foreign(number))).collect();
        let refusal = |number| Refusal { range: KeyRange::ALL, generation: foreign(number) };
        report.refused = (0..PIECES).map(refusal).collect();
        let copy = |number| ImportedCopy { range: KeyRange::ALL, source: foreign(number) };
        report.imports = (0..PIECES).map(copy).collect();
        assert_eq!(leader.send(at(61), report), None);
        assert_eq!(leader.void, PIECES as usize, "no grant can follow any of the copies");
    }
    assert_eq!(leader.leases(0), 1);
}

#[test]
fn another_namespace_is_answered_between_the_batches_of_a_large_report() {
    let mut leader = with_one_lease();
    let mut report = leader.next_report(0, 3);
    let lease = report.held[0];
    report.held.clear();
    report.released = pieces(RELEASED).map(|range| release(range, lease.generation)).collect();
    leader.store_waits = true;
    leader.send(at(61), report);
    let mut batches = 0;
    while let Some((index, batch)) = leader.waiting.take() {
        batches += 1;
        assert!(batch.records.len() <= BATCH, "{} records in one batch", batch.records.len());
        // Whoever is in the other namespace renews, and hears the answer in the same step.
        let before = leader.answers;
        let renewal = leader.other_report(batches);
        leader.send(at(61), renewal);
        assert_eq!(leader.answers, before + 1, "after {batches} batches");
        leader.feed(at(61), Some(ManagerEvent::Store(StoreEvent::Appended { index })));
    }
    assert!(batches >= 16, "{batches} batches");
}

/// A leader past its takeover whose first Owner has everything as one lease, and has said so twice.
fn with_one_lease() -> Leading {
    let mut group = stored_pool_of(1, &[(KeyRange::ALL, 0)]);
    let record = |change| Record::Namespace { namespace: other(), change, reason: Reason::Joined };
    let settings = Arc::new(Settings { partitioner: PartitionerKind::ConsistentHash, ..Settings::default() });
    let created =
        Change::Created { kind: Default::default(), settings, log: Nonce(8), floor: Generation::ZERO };
    group.apply(&Batch { term: Term(1), records: vec![record(created)] });
    let mut leader = Leading::with(group);
    leader.pass_until(at(20));
    leader.say_hello(at(20), 0);
    let hello = |mut hello: Hello| {
        hello.namespace = other();
        hello.session = session(7);
        hello
    };
    leader.say_hello_as(at(20), 7, hello);
    for (second, seq) in [(20, 1), (40, 2)] {
        leader.pass_until(at(second));
        leader.report(at(second), 0, seq);
    }
    leader.pass_until(at(61));
    leader
}

fn pieces(count: u64) -> impl Iterator<Item = KeyRange> {
    let width = u64::MAX / count;
    let last = move |piece: u64| if piece + 1 == count { u64::MAX } else { (piece + 1) * width - 1 };
    (0..count).filter_map(move |piece| KeyRange::new(Key(piece * width), Key(last(piece))))
}

fn release(range: KeyRange, generation: Generation) -> Release {
    Release { range, generation, clean_to: None, state_since: Generation::ZERO, warrant: None }
}

fn other() -> Namespace {
    Namespace::new("other").expect("a plain name")
}

/// A leader of one large namespace, fed by hand.
struct Leading {
    machine: ManagerMachine,
    group: Arc<ManagerState>,
    /// By session: its conversation, and the number of the latest message to it.
    talks: BTreeMap<SessionId, (Nonce, Seq)>,
    wake: Option<Instant>,
    longest_batch: usize,
    /// What the latest message said was applied, and how many copies it said are void.
    applied: Seq,
    void: usize,
    answers: u64,
    /// The store answers only when the test says so.
    store_waits: bool,
    waiting: Option<(Index, Arc<Batch>)>,
}

impl Leading {
    fn with(group: ManagerState) -> Leading {
        let group = Arc::new(group);
        let machine = ManagerMachine::new(ManagerConfig::new("m1".into()), Random::from_number(1));
        let mut leader = Leading {
            machine,
            group,
            talks: BTreeMap::new(),
            wake: None,
            longest_batch: 0,
            applied: Seq::ZERO,
            void: 0,
            answers: 0,
            store_waits: false,
            waiting: None,
        };
        leader.feed(at(0), Some(ManagerEvent::Start));
        leader
    }

    fn say_hello(&mut self, now: Instant, number: usize) {
        self.say_hello_as(now, number, |hello| hello);
    }

    fn say_hello_as(&mut self, now: Instant, number: usize, change: impl FnOnce(Hello) -> Hello) {
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
            expects: Default::default(),
        };
        self.feed(now, Some(from_owner(OwnerToManager::Hello(change(hello)))));
    }

    /// Reports all that the table gives an Owner; returns what that made the leader commit.
    fn report(&mut self, now: Instant, number: usize, seq: u64) -> Option<Arc<Batch>> {
        let report = self.next_report(number, seq);
        self.send(now, report)
    }

    fn send(&mut self, now: Instant, report: Report) -> Option<Arc<Batch>> {
        self.feed(now, Some(from_owner(OwnerToManager::Report(report))))
    }

    fn table(&self) -> &Table {
        &self.machine.group().expect("it leads").namespaces[&namespace()].table
    }

    fn leases(&self, number: usize) -> usize {
        self.table().of_session(session(number)).count()
    }

    /// A report of the Owner of the other namespace, which has nothing there to lose.
    fn other_report(&self, seq: u64) -> Report {
        let (conversation, heard) = self.talks[&session(7)];
        let namespace = other();
        Report {
            namespace,
            session: session(7),
            conversation,
            heard,
            applied: heard,
            ..self.next_report_of(&[], seq)
        }
    }

    fn next_report(&self, number: usize, seq: u64) -> Report {
        let (conversation, heard) = self.talks[&session(number)];
        let held = self.group.namespaces[&namespace()].table.of_session(session(number));
        let held = held.map(|(range, entry)| HeldLease {
            range,
            generation: entry.generation,
            state_since: entry.state_since,
            warrant: None,
        });
        let held: Vec<HeldLease> = held.collect();
        let session = session(number);
        Report { session, conversation, heard, applied: heard, ..self.next_report_of(&held, seq) }
    }

    fn next_report_of(&self, held: &[HeldLease], seq: u64) -> Report {
        Report {
            namespace: namespace(),
            session: session(0),
            conversation: Nonce(0),
            seq: Seq(seq),
            heard: Seq::ZERO,
            applied: Seq::ZERO,
            age: Duration::ZERO,
            held: held.to_vec(),
            released: Vec::new(),
            refused: Vec::new(),
            imports: Vec::new(),
            loads: Vec::new(),
            load_dimension: Default::default(),
            load_span: Duration::ZERO,
            weight: 100,
            draining: false,
            leaving: false,
        }
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
                    ManagerAction::Election(ElectionCommand::Campaign { request }) => {
                        let won = ElectionEvent::Won { request, term: Term(2) };
                        events.push(Some(ManagerEvent::Election(won)));
                    }
                    ManagerAction::Election(ElectionCommand::Renew { request, .. }) => {
                        events.push(Some(ManagerEvent::Election(ElectionEvent::Renewed { request })));
                    }
                    ManagerAction::Store(StoreCommand::Load { request }) => {
                        let (index, group) = (Index(1), Arc::clone(&self.group));
                        events.push(Some(ManagerEvent::Store(StoreEvent::Loaded { request, index, group })));
                    }
                    ManagerAction::Store(StoreCommand::Append { index, batch, .. }) if self.store_waits => {
                        self.waiting = Some((index, batch));
                    }
                    ManagerAction::Store(StoreCommand::Append { index, batch, .. }) => {
                        self.longest_batch = self.longest_batch.max(batch.records.len());
                        committed = Some(batch);
                        events.push(Some(ManagerEvent::Store(StoreEvent::Appended { index })));
                    }
                    ManagerAction::ToOwner { message: ManagerToOwner::Welcome(welcome), .. } => {
                        self.talks.insert(welcome.session, (welcome.conversation, Seq::ZERO));
                    }
                    ManagerAction::ToOwner { message: ManagerToOwner::Assign(assign), .. } => {
                        self.talks.insert(assign.session, (assign.conversation, assign.seq));
                        (self.applied, self.void) = (assign.applied, assign.void.len());
                        self.answers += 1;
                    }
                    _ => {}
                }
            }
        }
        committed
    }
}

/// What is stored of a pool at rest: every Owner has what the partitioner gives it.
fn stored_pool() -> ManagerState {
    stored_pool_of(OWNERS, &ConsistentHash.assign(&pool(OWNERS)))
}

fn stored_pool_of(owners: usize, assignment: &[(KeyRange, usize)]) -> ManagerState {
    let settings = Arc::new(Settings { partitioner: PartitionerKind::ConsistentHash, ..Settings::default() });
    let mut changes =
        vec![Change::Created { kind: Default::default(), settings, log: Nonce(7), floor: Generation::ZERO }];
    for number in 0..owners {
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
    for (generation, &(range, owner)) in (1..).zip(assignment) {
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
    let mut group = ManagerState::default();
    group.apply(&Batch { term: Term(1), records: changes.into_iter().map(record).collect() });
    group
}

fn pool(owners: usize) -> Vec<PartitionOwner> {
    (0..owners).map(|number| PartitionOwner { name: name(number), virtual_nodes: 64, weight: 100 }).collect()
}

fn from_owner(message: OwnerToManager) -> ManagerEvent {
    ManagerEvent::FromOwner { from: StreamId(1), message }
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
