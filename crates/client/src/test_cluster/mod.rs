//! A whole Centrifuge in one process on virtual time, for the tests of applications.

mod drive;
mod handles;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use centrifuge_core::id::{ManagerId, Namespace, OwnerName};
use centrifuge_core::lookup::{LookupConfig, LookupEvent, LookupMachine};
use centrifuge_core::manager::{AdminCommand, AdminError, ManagerConfig, ManagerEvent, ManagerMachine};
use centrifuge_core::message::{LookupRequest, ManagerToLookup, ManagerToOwner, OwnerToManager};
use centrifuge_core::namespace_kind::{ExpectedKind, KeyPrefix, Keys, Mode, NamespaceKind};
use centrifuge_core::owner::{OwnerConfig, OwnerEvent, OwnerMachine};
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::random::Random;
use centrifuge_core::time::Instant;

pub use centrifuge_core::settings::Settings;

use self::drive::Running;
pub use self::handles::{Member, TestLookup, TestOwner};
use self::store::Store;
use crate::hot::{HotLeases, HotRoutes};
use crate::keys::{Hashed, KeyOrder, Ordered};
use crate::leased_map::{LeasedMap, Place};
use crate::owner::{BoxError, ImportOffer, LeaseBook};

/// How long a message travels.
const LATENCY: Duration = Duration::from_millis(1);
/// The name of the one Manager.
const MANAGER: &str = "manager:7600";
/// More steps than this at one instant mean that the machines talk in circles.
const STEPS_AT_ONE_INSTANT: u32 = 100_000;

/// A Manager, Owners and Lookups: the very machines that run in production, with neither network nor clock. Time passes
/// only in [`TestCluster::advance`], and two runs of the same test are the same, step for step.
///
/// ```
/// use centrifuge::test_cluster::TestCluster;
/// use centrifuge::Key;
/// use std::time::Duration;
///
/// let mut cluster = TestCluster::new();
/// let (a, b) = (cluster.owner("a"), cluster.owner("b"));
/// let lookup = cluster.lookup();
/// cluster.advance(Duration::from_secs(60));
///
/// let key = Key::of(b"room-7");
/// let route = lookup.lookup(key)?;
/// let (owner, other) = if route.session() == a.session() { (a, b) } else { (b, a) };
/// assert_eq!(owner.check_lease_now(key), Ok(route.generation()));
/// assert!(other.check_lease_now(key).is_err());
///
/// lookup.take_losses();
/// cluster.crash(&owner);
/// cluster.advance(Duration::from_secs(120));
/// assert!(other.check_lease_now(key).is_ok());
/// assert!(lookup.take_losses().iter().any(|loss| loss.keys.contains(key)));
/// # Ok::<(), centrifuge::NoOwner>(())
/// ```
pub struct TestCluster<K: KeyOrder = Hashed> {
    now: Instant,
    /// The time as handles read it.
    clock: Arc<AtomicU64>,
    seed: u64,
    store: Store,
    manager: Option<Running<ManagerMachine>>,
    replies: BTreeMap<u64, Result<(), AdminError>>,
    owners: Vec<OwnerNode>,
    lookups: Vec<LookupNode>,
    cut: BTreeSet<Node>,
    queue: BTreeMap<(Instant, u64), Work>,
    queued: u64,
    keys: PhantomData<K>,
}

/// A part of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[doc(hidden)]
pub enum Node {
    #[doc(hidden)]
    Manager,
    #[doc(hidden)]
    Owner(usize),
    #[doc(hidden)]
    Lookup(usize),
}

struct OwnerNode {
    running: Option<Running<OwnerMachine>>,
    hot: HotLeases,
    book: LeaseBook,
    state: Option<Box<dyn State>>,
}

struct LookupNode {
    running: Option<Running<LookupMachine>>,
    hot: HotRoutes,
    losses: Arc<Mutex<Vec<crate::lookup::Loss>>>,
}

/// State that moves with its range.
trait State {
    fn export(&self, offer: ImportOffer) -> Result<Vec<u8>, BoxError>;
    fn import(&self, bytes: &[u8]) -> Result<ImportOffer, BoxError>;
    fn discard(&self, range: centrifuge_core::key::KeyRange);
}

impl<N: Place<K> + Eq + Hash + Clone, V, K: KeyOrder> State for LeasedMap<N, V, K> {
    fn export(&self, offer: ImportOffer) -> Result<Vec<u8>, BoxError> {
        self.export_all(offer)
    }

    fn import(&self, bytes: &[u8]) -> Result<ImportOffer, BoxError> {
        Ok(self.import_all(bytes)?)
    }

    fn discard(&self, range: centrifuge_core::key::KeyRange) {
        self.discard_import(range, None);
    }
}

/// Something that happens at its time.
enum Work {
    ToManager(Node, ToManager),
    ToOwner(usize, ManagerToOwner),
    ToLookup(usize, ManagerToLookup),
    AtManager(ManagerEvent),
    AtOwner(usize, OwnerEvent),
    AtLookup(usize, LookupEvent),
}

/// What Managers are sent.
enum ToManager {
    Owner(OwnerToManager),
    Lookup(LookupRequest),
}

impl Default for TestCluster {
    fn default() -> TestCluster {
        TestCluster::new()
    }
}

impl TestCluster {
    /// A Manager that leads, and a namespace with the usual settings.
    #[must_use]
    pub fn new() -> TestCluster {
        TestCluster::with_settings(Settings::default())
    }

    /// A Manager that leads, and a namespace with these settings.
    ///
    /// # Panics
    /// If the settings are refused.
    #[must_use]
    pub fn with_settings(settings: Settings) -> TestCluster {
        TestCluster::of_kind(NamespaceKind::default(), settings)
    }
}

impl TestCluster<Ordered> {
    /// A Manager that leads, and a namespace with ordered keys after a prefix. Its Owners have equal slices of the key space, in the order of
    /// their names: nobody reports load here, by which the usual partitioner would divide it.
    ///
    /// # Panics
    /// If the prefix is too long.
    #[must_use]
    pub fn ordered(prefix: impl AsRef<[u8]>) -> TestCluster<Ordered> {
        let settings = Settings { partitioner: PartitionerKind::Fixed, ..Settings::default() };
        TestCluster::ordered_with_settings(prefix, settings)
    }

    /// The same with these settings.
    ///
    /// # Panics
    /// If the prefix is too long, or the settings are refused.
    #[must_use]
    pub fn ordered_with_settings(prefix: impl AsRef<[u8]>, settings: Settings) -> TestCluster<Ordered> {
        let prefix = KeyPrefix::new(prefix.as_ref()).expect("a prefix that is short enough");
        let kind = NamespaceKind { keys: Keys::Ordered(prefix), mode: Mode::Exclusive };
        TestCluster::of_kind(kind, settings)
    }
}

impl<K: KeyOrder> TestCluster<K> {
    fn of_kind(kind: NamespaceKind, settings: Settings) -> TestCluster<K> {
        let now = Instant(1_000_000_000);
        let mut cluster = TestCluster {
            now,
            clock: Arc::new(AtomicU64::new(now.0)),
            seed: 0,
            store: Store::default(),
            manager: None,
            replies: BTreeMap::new(),
            owners: Vec::new(),
            lookups: Vec::new(),
            cut: BTreeSet::new(),
            queue: BTreeMap::new(),
            queued: 0,
            keys: PhantomData,
        };
        cluster.start_manager();
        cluster.advance(Duration::ZERO);
        let settings = Arc::new(settings);
        cluster.admin(AdminCommand::Create { namespace: namespace(), kind, settings });
        cluster
    }

    /// Starts an Owner without state to move.
    pub fn owner(&mut self, name: &str) -> TestOwner<K> {
        self.start_owner(name, HotLeases::default(), None)
    }

    /// Starts an Owner whose state is in `map` and moves with its ranges.
    pub fn owner_with<N, V>(&mut self, name: &str, map: &LeasedMap<N, V, K>) -> TestOwner<K>
    where
        N: Place<K> + Eq + Hash + Clone + 'static,
        V: 'static,
    {
        let hot = HotLeases::default();
        let owner = self.start_owner(name, hot, Some(Box::new(map.clone())));
        map.attach(owner.clone());
        owner
    }

    fn start_owner(&mut self, name: &str, hot: HotLeases, state: Option<Box<dyn State>>) -> TestOwner<K> {
        let config = OwnerConfig {
            namespace: namespace(),
            name: OwnerName::new(name).expect("a name without control characters"),
            url: format!("http://{name}").as_str().into(),
            managers: managers(),
            takes_over_previous: false,
            weight: 100,
            load_dimension: Default::default(),
            migrates: state.is_some(),
            credential: None,
            expects: expects::<K>(),
        };
        let machine = OwnerMachine::new(config, self.random());
        let session = machine.session();
        let running = Some(Running::new(machine));
        let (number, clock) = (self.owners.len(), Arc::clone(&self.clock));
        self.owners.push(OwnerNode { running, hot: hot.clone(), book: LeaseBook::default(), state });
        self.soon(Work::AtOwner(number, OwnerEvent::Start));
        TestOwner { number, session, hot, clock, keys: PhantomData }
    }

    /// Starts a Lookup.
    pub fn lookup(&mut self) -> TestLookup<K> {
        let config = LookupConfig { expects: expects::<K>(), ..LookupConfig::new(namespace(), managers()) };
        let running = Some(Running::new(LookupMachine::new(config, self.random())));
        let node = LookupNode { running, hot: HotRoutes::new(), losses: Arc::default() };
        let (number, hot, losses) = (self.lookups.len(), node.hot.clone(), Arc::clone(&node.losses));
        self.lookups.push(node);
        self.soon(Work::AtLookup(number, LookupEvent::Start));
        TestLookup { number, hot, losses, keys: PhantomData }
    }

    /// Ends a process at once. It says nothing to anyone, and never comes back.
    pub fn crash(&mut self, member: &impl Member) {
        match member.node() {
            Node::Manager => self.crash_manager(),
            Node::Owner(number) => {
                self.owners[number].running = None;
                self.owners[number].hot.clear();
            }
            Node::Lookup(number) => self.lookups[number].running = None,
        }
    }

    /// Whatever is sent to a process, and whatever it sends, is lost from now on.
    pub fn partition(&mut self, member: &impl Member) {
        self.cut.insert(member.node());
    }

    /// Messages to and from a process arrive again.
    pub fn heal(&mut self, member: &impl Member) {
        self.cut.remove(&member.node());
    }

    /// Ends the Manager at once. What it committed stays.
    pub fn crash_manager(&mut self) {
        self.manager = None;
    }

    /// Starts a Manager again, which leads once the earlier one's leader lease has run out.
    pub fn restart_manager(&mut self) {
        if self.manager.is_none() {
            self.start_manager();
        }
    }

    /// The Owner wants to be emptied: its ranges move away, with their state if it has a map.
    pub fn drain(&mut self, owner: &TestOwner<K>) {
        self.soon(Work::AtOwner(owner.number, OwnerEvent::Drain));
    }

    /// The Owner wants to keep what it still has after all.
    pub fn undrain(&mut self, owner: &TestOwner<K>) {
        self.soon(Work::AtOwner(owner.number, OwnerEvent::Undrain));
    }

    /// The Owner gives everything up and goes.
    pub fn leave(&mut self, owner: &TestOwner<K>) {
        self.soon(Work::AtOwner(owner.number, OwnerEvent::Leave));
    }

    /// Lets time pass, with everything that happens in it.
    pub fn advance(&mut self, duration: Duration) {
        let end = self.now + duration;
        let mut steps = 0;
        while let Some(at) = self.next_step().filter(|at| *at <= end) {
            steps = if at > self.now { 0 } else { steps + 1 };
            assert!(steps < STEPS_AT_ONE_INSTANT, "at {at} the machines talk in circles");
            self.pass_to(at);
            self.step();
        }
        self.pass_to(end);
    }

    /// How long the cluster has existed, in its own time.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.now.since(Instant(1_000_000_000))
    }

    fn start_manager(&mut self) {
        let config = ManagerConfig::new(ManagerId::from(MANAGER));
        self.manager = Some(Running::new(ManagerMachine::new(config, self.random())));
        self.soon(Work::AtManager(ManagerEvent::Start));
    }

    /// Asks the Manager, and waits for its answer.
    fn admin(&mut self, command: AdminCommand) {
        let request = self.queued;
        self.soon(Work::AtManager(ManagerEvent::Admin { request, command }));
        self.advance(Duration::ZERO);
        let reply = self.replies.remove(&request).expect("a leader answers at once");
        reply.unwrap_or_else(|why| panic!("the Manager refuses: {why:?}"));
    }

    fn pass_to(&mut self, at: Instant) {
        self.now = self.now.max(at);
        self.clock.store(self.now.0, Ordering::SeqCst);
    }

    fn random(&mut self) -> Random {
        self.seed += 1;
        Random::from_number(self.seed)
    }

    fn soon(&mut self, work: Work) {
        self.later(Duration::ZERO, work);
    }

    fn later(&mut self, delay: Duration, work: Work) {
        self.queued += 1;
        self.queue.insert((self.now + delay, self.queued), work);
    }
}

fn expects<K: KeyOrder>() -> ExpectedKind {
    ExpectedKind { keys: K::KIND, mode: Mode::Exclusive }
}

fn namespace() -> Namespace {
    Namespace::new("test").expect("a label")
}

fn managers() -> Arc<[ManagerId]> {
    Arc::from([ManagerId::from(MANAGER)])
}
