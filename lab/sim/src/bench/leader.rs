//! A leader that is fed by hand, with a store that confirms at once: what each of its steps costs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{Generation, Index, Namespace, Nonce, OwnerName, Secret, Seq, SessionId, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::machine::Machine;
use centrifuge_core::manager::{
    DeclaredNamespace, ElectionCommand, ElectionEvent, ManagerAction, ManagerConfig, ManagerEvent,
    ManagerMachine, StoreCommand, StoreEvent, StreamId,
};
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::message::{Assign, HeldLease, Hello, ManagerToOwner, OwnerToManager, Release, Report};
use centrifuge_core::random::Random;
use centrifuge_core::record::{Batch, Change, Reason, Record, SessionInfo};
use centrifuge_core::settings::Settings;
use centrifuge_core::table::Entry;
use centrifuge_core::time::Instant;
use rustix::time::{ClockId, clock_gettime};

/// The term that it leads.
const TERM: Term = Term(2);

/// A leader and what it said last to each session.
pub(super) struct Leader {
    machine: ManagerMachine,
    group: Arc<ManagerState>,
    conversations: BTreeMap<SessionId, Conversation>,
    /// The sessions that were asked for an answer and gave none yet.
    unanswered: BTreeSet<SessionId>,
    /// What the machine has yet to be fed: an event, or a wake.
    queue: VecDeque<Option<ManagerEvent>>,
    wake: Option<Instant>,
    now: Instant,
}

/// A conversation as an Owner knows it.
#[derive(Default)]
struct Conversation {
    id: Nonce,
    seq: Seq,
    latest: Option<Assign>,
}

/// What came of an event.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    /// The time of all steps until nothing was left to do.
    pub(super) total: Duration,
    /// The time of the longest step.
    pub(super) longest: Duration,
    /// The records that were committed.
    pub(super) records: usize,
}

impl Leader {
    /// A leader that has found in its store what the records add up to, and has waited for a while.
    pub(super) fn of(records: Vec<Record>) -> Leader {
        let mut group = ManagerState::default();
        group.apply(&Batch { term: Term(1), records });
        let mut leader = Leader::new(group, None);
        leader.pass(Duration::from_secs(20));
        leader
    }

    /// A leader that finds `group` in its store, or has no store and begins with `namespaces`.
    pub(super) fn new(
        group: ManagerState,
        diskless: Option<Arc<BTreeMap<Namespace, DeclaredNamespace>>>,
    ) -> Leader {
        let config = ManagerConfig { diskless, ..ManagerConfig::new("manager".into()) };
        let machine = ManagerMachine::new(config, Random::from_number(1));
        let (group, now) = (Arc::new(group), Instant::ZERO);
        let (conversations, unanswered) = (BTreeMap::new(), BTreeSet::new());
        let queue = VecDeque::new();
        let mut leader = Leader { machine, group, conversations, unanswered, queue, wake: None, now };
        leader.feed(Some(ManagerEvent::Start));
        leader
    }

    /// What is committed.
    pub(super) fn group(&self) -> &ManagerState {
        self.machine.group().expect("it leads")
    }

    /// Lets time pass, and wakes the machine whenever it wants.
    pub(super) fn pass(&mut self, time: Duration) -> Cost {
        let end = self.now + time;
        let mut cost = Cost::default();
        while let Some(wake) = self.wake.filter(|wake| *wake <= end) {
            self.now = self.now.max(wake);
            cost.add(self.feed(None));
        }
        self.now = end;
        cost
    }

    /// A process asks for a conversation.
    pub(super) fn hello(&mut self, namespace: &Namespace, session: SessionId, name: &OwnerName) -> Cost {
        let hello = Hello {
            namespace: namespace.clone(),
            session,
            secret: Secret::default(),
            number: 1,
            name: name.clone(),
            url: "somewhere".into(),
            takes_over_previous: false,
            formerly: None,
            age: Duration::ZERO,
            term: Term::ZERO,
            expects: Default::default(),
        };
        self.feed(Some(from_owner(OwnerToManager::Hello(hello))))
    }

    /// The next report of a session, with nothing but what it holds; the caller changes the rest.
    pub(super) fn report(
        &mut self,
        namespace: &Namespace,
        session: SessionId,
        held: Vec<HeldLease>,
    ) -> Report {
        let conversation = self.conversations.entry(session).or_default();
        conversation.seq = Seq(conversation.seq.0 + 1);
        let heard = conversation.latest.as_ref().map_or(Seq::ZERO, |assign| assign.seq);
        Report {
            namespace: namespace.clone(),
            session,
            conversation: conversation.id,
            seq: conversation.seq,
            heard,
            applied: heard,
            age: Duration::ZERO,
            held,
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

    /// The sessions that were asked for an answer since this was last asked.
    pub(super) fn take_unanswered(&mut self) -> BTreeSet<SessionId> {
        std::mem::take(&mut self.unanswered)
    }

    /// The latest message to a session.
    pub(super) fn latest(&self, session: SessionId) -> Option<&Assign> {
        self.conversations.get(&session)?.latest.as_ref()
    }

    /// A process asks for a conversation, and reports twice that it has what the table says.
    pub(super) fn join(&mut self, namespace: &Namespace, number: u64) {
        self.hello(namespace, session(number), &name(number));
        for _ in 0..2 {
            self.renew(namespace, number);
        }
    }

    /// A process reports that it has what the table says.
    pub(super) fn renew(&mut self, namespace: &Namespace, number: u64) -> Cost {
        let held = self.leases(number);
        let report = self.report(namespace, session(number), held);
        self.send(report)
    }

    /// What the table says that a session has.
    pub(super) fn leases(&self, number: u64) -> Vec<HeldLease> {
        let tables = self.group().namespaces.values().map(|stored| &stored.table);
        let entries = tables.flat_map(|table| table.of_session(session(number)));
        let lease = |(range, entry): (KeyRange, &Entry)| {
            let Entry { generation, state_since, .. } = *entry;
            HeldLease { range, generation, state_since, warrant: None }
        };
        entries.map(lease).collect()
    }

    /// Sends a report.
    pub(super) fn send(&mut self, report: Report) -> Cost {
        self.feed(Some(from_owner(OwnerToManager::Report(report))))
    }

    /// Sends reports, and lets the store answer once all of them have come, as one does that takes as long as they do.
    pub(super) fn send_all(&mut self, reports: Vec<Report>) -> Cost {
        let events = reports.into_iter().map(|report| Some(from_owner(OwnerToManager::Report(report))));
        self.queue.extend(events);
        self.drain()
    }

    /// Puts a report where the next step finds it.
    pub(super) fn post(&mut self, report: Report) {
        self.queue.push_front(Some(from_owner(OwnerToManager::Report(report))));
    }

    /// Feeds an event, or a wake, and then the answers of the store and the election until nothing is left.
    fn feed(&mut self, event: Option<ManagerEvent>) -> Cost {
        self.queue.push_back(event);
        self.drain()
    }

    fn drain(&mut self) -> Cost {
        let mut cost = Cost::default();
        while let Some(step) = self.step() {
            cost.add(step);
        }
        cost
    }

    /// Feeds the first of what waits; `None` if nothing does.
    pub(super) fn step(&mut self) -> Option<Cost> {
        let event = self.queue.pop_front()?;
        let mut cost = Cost::default();
        let start = cpu_time();
        let output = match event {
            Some(event) => self.machine.on_event(self.now, event),
            None => self.machine.on_wake(self.now),
        };
        cost.add_step(cpu_time().saturating_sub(start));
        self.wake = output.wake;
        for action in output.actions {
            let answer = self.perform(action, &mut cost);
            self.queue.extend(answer.map(Some));
        }
        Some(cost)
    }

    fn perform(&mut self, action: ManagerAction, cost: &mut Cost) -> Option<ManagerEvent> {
        match action {
            ManagerAction::Election(ElectionCommand::Campaign { request }) => {
                Some(ManagerEvent::Election(ElectionEvent::Won { request, term: TERM }))
            }
            ManagerAction::Election(ElectionCommand::Renew { request, .. }) => {
                Some(ManagerEvent::Election(ElectionEvent::Renewed { request }))
            }
            ManagerAction::Store(StoreCommand::Load { request }) => {
                let group = Arc::clone(&self.group);
                Some(ManagerEvent::Store(StoreEvent::Loaded { request, index: Index(1), group }))
            }
            ManagerAction::Store(StoreCommand::Append { index, batch, .. }) => {
                cost.records += batch.records.len();
                Some(ManagerEvent::Store(StoreEvent::Appended { index }))
            }
            ManagerAction::ToOwner { message: ManagerToOwner::Welcome(welcome), .. } => {
                let fresh = Conversation { id: welcome.conversation, ..Conversation::default() };
                self.conversations.insert(welcome.session, fresh);
                None
            }
            ManagerAction::ToOwner { message: ManagerToOwner::Assign(assign), .. } => {
                if assign.wants_answer {
                    self.unanswered.insert(assign.session);
                }
                if let Some(conversation) = self.conversations.get_mut(&assign.session) {
                    conversation.latest = Some(assign);
                }
                None
            }
            _ => None,
        }
    }
}

impl Cost {
    /// Adds what came of another event.
    pub(super) fn add(&mut self, other: Cost) {
        self.total += other.total;
        self.longest = self.longest.max(other.longest);
        self.records += other.records;
    }

    fn add_step(&mut self, time: Duration) {
        self.total += time;
        self.longest = self.longest.max(time);
    }
}

/// What is stored of a namespace in which each session has its ranges, each under a lease of its own.
pub(super) fn stored(
    namespace: &Namespace,
    settings: Settings,
    pool: &[(SessionId, OwnerName, Vec<KeyRange>)],
) -> Vec<Record> {
    let log = Nonce(7);
    let mut changes = vec![Change::Created {
        kind: Default::default(),
        settings: Arc::new(settings),
        log,
        floor: Generation::ZERO,
    }];
    let mut generation = Generation::ZERO;
    for (session, name, ranges) in pool {
        let info = SessionInfo {
            name: name.clone(),
            url: "somewhere".into(),
            weight: 100,
            virtual_nodes: 64,
            drain_requested: false,
            drain_ordered: false,
            evicted: false,
        };
        changes.push(Change::SessionStarted { session: *session, info });
        for range in ranges {
            generation = generation.next().expect("few leases");
            changes.push(Change::Granted {
                range: *range,
                generation,
                session: *session,
                source: None,
                state_since: None,
            });
        }
    }
    let record = |change| Record::Namespace { namespace: namespace.clone(), change, reason: Reason::Joined };
    changes.into_iter().map(record).collect()
}

/// The key space in equal parts.
pub(super) fn parts(count: u64) -> Vec<KeyRange> {
    let width = u64::MAX / count;
    let last = |part: u64| if part + 1 == count { u64::MAX } else { (part + 1) * width - 1 };
    (0..count).filter_map(|part| KeyRange::new(Key(part * width), Key(last(part)))).collect()
}

/// The session of a number.
pub(super) fn session(number: u64) -> SessionId {
    SessionId(Nonce(u128::from(number) + 1))
}

/// The Owner's name of a number.
pub(super) fn name(number: u64) -> OwnerName {
    OwnerName::new(&format!("owner-{number:05}")).expect("a plain name")
}

/// A namespace by name.
pub(super) fn namespace(name: &str) -> Namespace {
    Namespace::new(name).expect("a plain name")
}

/// The time that this thread has been running: what else the machine does is not in it.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |number: i64| u64::try_from(number).unwrap_or_default();
    Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
}

/// A lease's keys are given back without their state.
pub(super) fn release(range: KeyRange, generation: Generation, state_since: Generation) -> Release {
    Release { range, generation, clean_to: None, state_since, warrant: None }
}

fn from_owner(message: OwnerToManager) -> ManagerEvent {
    ManagerEvent::FromOwner { from: StreamId(1), message }
}
