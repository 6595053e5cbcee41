//! A small cluster of the real machines under virtual time, for tests that tell a story step by step.
//!
//! Messages arrive at once (or after `latency`) unless a test holds, cuts or delivers them by hand. Applications move
//! state at once unless a test answers for them. After every step no key may have two owners.

// Every test binary compiles this for itself and uses a part of it.
#![allow(dead_code, unused_imports, unreachable_pub, missing_docs)]

mod clock;
mod drive;
mod network;
mod store;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{ManagerId, Namespace, OwnerName};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::lookup::{LookupAction, LookupConfig, LookupEvent, LookupMachine};
use centrifuge_core::machine::Machine;
use centrifuge_core::manager::{
    AdminCommand, AdminError, DeclaredNamespace, ManagerAction, ManagerConfig, ManagerEvent, ManagerMachine,
};
use centrifuge_core::namespace_kind::NamespaceKind;
use centrifuge_core::owner::{OwnerAction, OwnerConfig, OwnerEvent, OwnerMachine};
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::random::Random;
use centrifuge_core::settings::Settings;
use centrifuge_core::time::Instant;

pub use clock::Clock;
pub use network::{Envelope, Message, Node};
pub use store::Store;
pub use view::{halves, intervals, is_grant, some_keys};

use network::Links;

pub const M1: Node = Node::Manager(0);
pub const M2: Node = Node::Manager(1);
pub const M3: Node = Node::Manager(2);

/// More steps than this at one instant mean that the machines talk in circles.
const STEPS_AT_ONE_INSTANT: u32 = 200_000;

/// How a cluster begins.
pub struct Options {
    pub managers: usize,
    pub settings: Settings,
    pub kind: NamespaceKind,
    pub manager_clock: Clock,
    /// There is no store: every leader learns the table from the Owners.
    pub diskless: bool,
    /// How long no Owner arrives before a first assignment.
    pub arrival_pause: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            managers: 1,
            settings: papers(),
            kind: NamespaceKind::default(),
            manager_clock: Clock::TRUE,
            diskless: false,
            arrival_pause: Duration::ZERO,
        }
    }
}

/// Something that happens to a node by the test's hand.
#[derive(Clone, Debug)]
pub enum Event {
    Manager(ManagerEvent),
    Owner(OwnerEvent),
    Lookup(LookupEvent),
}

/// A machine with its clock and its next wake, in true time.
struct Host<M> {
    machine: M,
    clock: Clock,
    wake: Option<Instant>,
    alive: bool,
}

impl<M: Machine> Host<M> {
    fn step(&mut self, now: Instant, event: Option<M::Event>) -> Vec<M::Action> {
        let local = self.clock.read(now);
        let output = match event {
            Some(event) => self.machine.on_event(local, event),
            None => self.machine.on_wake(local),
        };
        let wake = output.wake.filter(|wake| *wake != Instant::NEVER);
        self.wake = wake.map(|wake| self.clock.when(wake).max(now));
        output.actions
    }
}

enum Work {
    Arrival(Envelope),
    Happens(Node, Event),
}

pub struct Cluster {
    /// True time.
    pub now: Instant,
    /// How long messages travel; the store answers at once.
    pub latency: Duration,
    /// Whether every step of an Owner checks that no key has two owners.
    pub watched: bool,
    pub store: Store,
    /// Every message ever sent, whatever became of it.
    pub sent: Vec<Envelope>,
    /// What Owners told their applications, Lookups their callers, and Managers their operators; messages apart.
    pub told: Vec<(Instant, Node, OwnerAction)>,
    pub raised: Vec<(Instant, Node, LookupAction)>,
    pub noted: Vec<(Instant, Node, ManagerAction)>,
    managers: Vec<Host<ManagerMachine>>,
    owners: Vec<Host<OwnerMachine>>,
    lookups: Vec<Host<LookupMachine>>,
    /// Owners whose application waits for the test, and what it was asked to do meanwhile.
    by_hand: BTreeSet<Node>,
    undone: Vec<(Node, OwnerAction)>,
    paused: BTreeSet<Node>,
    links: Links,
    held: Vec<Envelope>,
    queue: BTreeMap<(Instant, u64), Work>,
    queued: u64,
    seed: u64,
    leader_hold: Duration,
}

/// Starting and stopping.
impl Cluster {
    /// One Manager that leads, and the namespace `pool` with the default settings.
    pub fn new() -> Cluster {
        Cluster::with(Options::default())
    }

    /// A cluster in which Owners get equal slices in the order of their names: few ranges, all known beforehand.
    pub fn sliced() -> Cluster {
        Cluster::with(Options { settings: sliced(), ..Options::default() })
    }

    /// Like [`Cluster::sliced`], with that many Managers, of which the first leads.
    pub fn sliced_with_managers(managers: usize) -> Cluster {
        Cluster::with(Options { managers, settings: sliced(), ..Options::default() })
    }

    pub fn with(options: Options) -> Cluster {
        let mut cluster = Cluster {
            now: Instant(1_000_000_000),
            latency: Duration::ZERO,
            watched: true,
            store: Store::default(),
            sent: Vec::new(),
            told: Vec::new(),
            raised: Vec::new(),
            noted: Vec::new(),
            managers: Vec::new(),
            owners: Vec::new(),
            lookups: Vec::new(),
            by_hand: BTreeSet::new(),
            undone: Vec::new(),
            paused: BTreeSet::new(),
            links: Links::default(),
            held: Vec::new(),
            queue: BTreeMap::new(),
            queued: 0,
            seed: 0,
            leader_hold: ManagerConfig::new("m1".into()).leader_hold,
        };
        for number in 0..options.managers {
            let id = manager_id(number);
            let mut config = ManagerConfig { arrival_pause: options.arrival_pause, ..ManagerConfig::new(id) };
            if options.diskless {
                let (kind, settings) = (options.kind.clone(), Arc::new(options.settings.clone()));
                let namespaces = [(pool(), DeclaredNamespace { kind, settings })];
                config.diskless = Some(Arc::new(namespaces.into()));
            }
            let machine = ManagerMachine::new(config, cluster.random());
            let clock = options.manager_clock;
            cluster.managers.push(Host { machine, clock, wake: None, alive: true });
            cluster.tell(Node::Manager(number), ManagerEvent::Start);
        }
        cluster.store.forgets = options.diskless;
        if !options.diskless {
            let (kind, settings) = (options.kind, Arc::new(options.settings));
            let create = AdminCommand::Create { namespace: pool(), kind, settings };
            cluster.admin(create).expect("a leader, and settings that it accepts");
        }
        cluster
    }

    /// Starts an Owner process of a name.
    pub fn owner(&mut self, name: &str) -> Node {
        self.owner_with(name, Clock::TRUE, |_| {})
    }

    /// Starts several Owners, and gives them the time to share the keys.
    pub fn owners<const N: usize>(&mut self, names: [&str; N]) -> [Node; N] {
        let owners = names.map(|name| self.owner(name));
        self.run_for(secs(5));
        owners
    }

    /// Starts an Owner process with its own clock and whatever `set` makes of the usual configuration.
    pub fn owner_with(&mut self, name: &str, clock: Clock, set: impl FnOnce(&mut OwnerConfig)) -> Node {
        let mut config = OwnerConfig {
            namespace: pool(),
            name: OwnerName::new(name).expect("a name"),
            url: format!("http://{name}").as_str().into(),
            managers: self.manager_ids(),
            takes_over_previous: false,
            weight: 100,
            load_dimension: Default::default(),
            migrates: true,
            credential: None,
            expects: Default::default(),
        };
        set(&mut config);
        let machine = OwnerMachine::new(config, self.random());
        self.owners.push(Host { machine, clock, wake: None, alive: true });
        let node = Node::Owner(self.owners.len() - 1);
        self.tell(node, OwnerEvent::Start);
        node
    }

    /// Starts a Lookup.
    pub fn lookup(&mut self) -> Node {
        self.lookup_with(|_| {})
    }

    /// Starts a Lookup with whatever `set` makes of the usual configuration.
    pub fn lookup_with(&mut self, set: impl FnOnce(&mut LookupConfig)) -> Node {
        let mut config = LookupConfig::new(pool(), self.manager_ids());
        set(&mut config);
        let machine = LookupMachine::new(config, self.random());
        self.lookups.push(Host { machine, clock: Clock::TRUE, wake: None, alive: true });
        let node = Node::Lookup(self.lookups.len() - 1);
        self.tell(node, LookupEvent::Start);
        node
    }

    /// Ends a process for good.
    pub fn crash(&mut self, node: Node) {
        match node {
            Node::Manager(number) => self.managers[number].alive = false,
            Node::Owner(number) => self.owners[number].alive = false,
            Node::Lookup(number) => self.lookups[number].alive = false,
            Node::Store | Node::Election => panic!("the store does not crash"),
        }
    }

    /// The process gets no processor: its clock goes on, and what arrives waits.
    pub fn pause(&mut self, node: Node) {
        self.paused.insert(node);
    }

    pub fn resume(&mut self, node: Node) {
        self.paused.remove(&node);
        let waiting = self.held.extract_if(.., |envelope| envelope.to == node).collect();
        self.arrive(waiting);
    }

    /// The application of this Owner waits for the test from now on, when state is to be moved.
    pub fn by_hand(&mut self, owner: Node) {
        self.by_hand.insert(owner);
    }

    /// The application of this Owner moves what it was asked to, and whatever it is asked to from now on.
    pub fn let_move(&mut self, owner: Node) {
        self.by_hand.remove(&owner);
        let asked: Vec<_> = self.undone.extract_if(.., |(node, _)| *node == owner).collect();
        for (node, action) in asked {
            self.move_state(node, &action);
        }
        self.settle();
    }

    /// Asks the leader, and waits for its answer.
    pub fn admin(&mut self, command: AdminCommand) -> Result<(), AdminError> {
        let request = self.noted.len() as u64;
        let leader = self.leader();
        self.tell(leader, ManagerEvent::Admin { request, command });
        let mut replies = self.noted.iter().rev();
        replies.find_map(|(_, _, action)| as_reply(action, request)).expect("an answer at once")
    }

    /// An operator wants a range at an Owner, whatever the partitioner wants.
    pub fn pin(&mut self, range: KeyRange, owner: &str) {
        let to = Some(OwnerName::new(owner).expect("a name"));
        let command = AdminCommand::Move { namespace: pool(), range, to, why: "a test".into() };
        self.admin(command).expect("an Owner to move it to");
    }

    /// The lowest key moves to an Owner of that name, which does not hear that it has it: what the leader says to it is lost.
    pub fn move_unheard(&mut self, name: &str, to: Node) {
        let leader = self.leader();
        self.cut(leader, to);
        self.cut(to, leader);
        self.pin(KeyRange::one(Key::MIN), name);
        self.run_for(secs(1));
        self.mend(leader, to);
        self.mend(to, leader);
        let granted = self.entry(Key::MIN);
        assert!(granted.owner == Some(self.session(to)) && granted.source.is_some(), "{granted:?}");
        assert_eq!(self.owners_of(Key::MIN), []);
    }

    fn random(&mut self) -> Random {
        self.seed += 1;
        Random::from_number(self.seed)
    }

    fn manager_ids(&self) -> Arc<[ManagerId]> {
        (0..self.managers.len()).map(manager_id).collect()
    }
}

/// Time.
impl Cluster {
    /// Something happens to a node; what follows from it at this instant happens too.
    pub fn tell(&mut self, node: Node, event: impl Into<Event>) {
        self.push(self.now, Work::Happens(node, event.into()));
        self.settle();
    }

    /// A moment later: what is sent, told or raised from the instant on that this returns is new.
    pub fn mark(&mut self) -> Instant {
        self.run_for(Duration::from_micros(1));
        self.now
    }

    /// Lets everything happen that is due now.
    pub fn settle(&mut self) {
        self.run_for(Duration::ZERO);
    }

    pub fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        let mut steps = 0;
        while let Some(at) = self.next_step().filter(|at| *at <= end) {
            steps = if at > self.now { 0 } else { steps + 1 };
            assert!(steps < STEPS_AT_ONE_INSTANT, "at {at} the machines talk in circles");
            self.step(at);
        }
        self.now = end;
    }

    /// Runs until the condition holds, and says how long that took; it must not take longer than `bound`.
    pub fn run_until(&mut self, bound: Duration, condition: impl Fn(&Cluster) -> bool) -> Duration {
        let start = self.now;
        while !condition(self) {
            let next = self.next_step().filter(|at| *at <= start + bound);
            let at = next.unwrap_or_else(|| panic!("not within {bound:?} of {start}"));
            self.step(at);
        }
        self.now.since(start)
    }

    fn next_step(&self) -> Option<Instant> {
        let wakes = self.wakes().map(|(at, _)| at);
        wakes.chain(self.queue.keys().map(|(at, _)| *at).take(1)).min()
    }

    fn wakes(&self) -> impl Iterator<Item = (Instant, Node)> {
        let managers = self.managers.iter().enumerate();
        let managers = managers.map(|(n, host)| (host.wake, host.alive, Node::Manager(n)));
        let owners = self.owners.iter().enumerate();
        let owners = owners.map(|(n, host)| (host.wake, host.alive, Node::Owner(n)));
        let lookups = self.lookups.iter().enumerate();
        let lookups = lookups.map(|(n, host)| (host.wake, host.alive, Node::Lookup(n)));
        let all = managers.chain(owners).chain(lookups);
        let runs = |alive, node| alive && !self.paused.contains(&node);
        all.filter_map(move |(wake, alive, node)| Some((wake.filter(|_| runs(alive, node))?, node)))
    }

    /// Takes the one step that is next: a message or event if one is due, else a wake.
    fn step(&mut self, at: Instant) {
        self.now = self.now.max(at);
        let due = self.queue.first_entry().filter(|first| first.key().0 <= self.now);
        match due.map(|first| first.remove()) {
            Some(Work::Arrival(envelope)) => self.receive(envelope),
            Some(Work::Happens(node, event)) => self.happen(node, event),
            None => {
                let (_, node) = self.wakes().min().expect("a step is a wake if it is nothing else");
                self.wake(node);
            }
        }
    }

    fn push(&mut self, at: Instant, work: Work) {
        self.queued += 1;
        self.queue.insert((at, self.queued), work);
    }
}

impl From<ManagerEvent> for Event {
    fn from(event: ManagerEvent) -> Event {
        Event::Manager(event)
    }
}

impl From<OwnerEvent> for Event {
    fn from(event: OwnerEvent) -> Event {
        Event::Owner(event)
    }
}

impl From<LookupEvent> for Event {
    fn from(event: LookupEvent) -> Event {
        Event::Lookup(event)
    }
}

/// The namespace that every cluster begins with.
pub fn pool() -> Namespace {
    Namespace::new("pool").expect("a label")
}

/// The default settings, but for the papers' partitioner.
pub fn papers() -> Settings {
    Settings { partitioner: PartitionerKind::ConsistentHash, ..Settings::default() }
}

/// The default settings, but for equal slices.
pub fn sliced() -> Settings {
    Settings { partitioner: PartitionerKind::Fixed, ..Settings::default() }
}

pub fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub fn manager_id(number: usize) -> ManagerId {
    format!("m{}", number + 1).as_str().into()
}

fn as_reply(action: &ManagerAction, wanted: u64) -> Option<Result<(), AdminError>> {
    match action {
        ManagerAction::AdminReply { request, result } if *request == wanted => Some(result.clone()),
        _ => None,
    }
}
