//! The table of a Lookup as readers see it.

mod ordered;

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use centrifuge_core::id::{Generation, Nonce, SessionId, Url};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::lookup::Row;
use centrifuge_core::table::PublishedOwner;

pub use self::ordered::Slice;
use super::index::RangeIndex;
use super::local::{Local, Published, View};
use crate::keys::KeySpace;

/// The owner's number of a range that has none.
const NOBODY: u32 = u32::MAX;
/// The same of a range that nobody will own soon.
const QUARANTINED: u32 = u32::MAX - 1;
/// Owners whose address is counted are numbered from here on: the quick way to a route does not find them.
const FIRST_COUNTED: u32 = 1 << 31;

thread_local! {
    // Counted, so that whoever looks up has it in hand: a closure that does the whole lookup would become a function of its
    // own, and its answer be copied twice.
    static LOCAL: Rc<RefCell<Local<RouteTable, RouteTable>>> = Rc::new(RefCell::new(Local::new()));
}

/// Where a key's requests should go.
///
/// A route is a copy: it stays as it was when it was made, though the table moves on. What it carries is as old as
/// the table; the owner itself knows best, and refuses what is not its own.
#[derive(Clone)]
pub struct Route {
    url: Address,
    session: SessionId,
    generation: Generation,
    range: KeyRange,
}

impl Route {
    /// Where the owner is reached, as its application said.
    #[must_use]
    pub fn url(&self) -> &str {
        self.url.as_str()
    }

    /// The owner's process.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The lease under which it holds the key.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The keys around the one asked for of which the same is true.
    #[must_use]
    pub fn range(&self) -> KeyRange {
        self.range
    }
}

impl PartialEq for Route {
    fn eq(&self, other: &Route) -> bool {
        let numbers = |route: &Route| (route.session, route.generation, route.range);
        numbers(self) == numbers(other) && self.url() == other.url()
    }
}

impl Eq for Route {}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.range, self.generation, self.session, self.url())
    }
}

/// Why a key has no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NoOwner {
    /// The range has no owner at the moment.
    #[error("the key has no owner at the moment: wait and look again, or let a Router do so")]
    Unowned {
        /// The keys around it of which the same is true.
        range: KeyRange,
        /// The last lease granted on it.
        generation: Generation,
    },
    /// Nobody owns the range, and nobody will before an operator or time ends that: Owners that got it died, one after the other.
    #[error(
        "the key is in quarantine, because servers that got it died one after the other: `centrifuge quarantine list` shows which, \
         and until when"
    )]
    Quarantined {
        /// The keys around it of which the same is true.
        range: KeyRange,
        /// The last lease granted on it.
        generation: Generation,
    },
    /// No table has arrived yet.
    #[error("the Lookup has no table yet: check that a Manager leads, then look again")]
    NoTable,
    /// Another namespace, whose keys have another prefix, has taken the place of the one that the key was made for.
    #[error("another namespace has the name now, with another prefix: make the key anew")]
    Replaced,
}

/// How many addresses are kept for ever, and how many bytes of them.
const MAX_INTERNED: usize = 16_384;
const MAX_INTERNED_BYTES: usize = 1 << 20;

/// The text of an address.
///
/// The first are kept for as long as the process lives, each once, so that a route is copied without touching anything that threads
/// share. Peers supply them, so that there is a bound: what comes after is counted, and goes with the last table and route that has it.
#[derive(Clone)]
enum Address {
    Interned(&'static str),
    Counted(Arc<str>),
}

impl Address {
    fn of(url: &Url) -> Address {
        static INTERNED: Mutex<Interner> = Mutex::new(Interner::new(MAX_INTERNED, MAX_INTERNED_BYTES));
        INTERNED.lock().unwrap_or_else(PoisonError::into_inner).address(url.as_str())
    }

    #[inline(always)]
    fn as_str(&self) -> &str {
        match self {
            Address::Interned(text) => text,
            Address::Counted(text) => text,
        }
    }
}

/// The addresses that are kept for ever.
struct Interner {
    known: BTreeSet<&'static str>,
    rest: usize,
    rest_bytes: usize,
}

impl Interner {
    const fn new(most: usize, most_bytes: usize) -> Interner {
        Interner { known: BTreeSet::new(), rest: most, rest_bytes: most_bytes }
    }

    fn address(&mut self, url: &str) -> Address {
        if let Some(known) = self.known.get(url) {
            return Address::Interned(known);
        }
        if self.rest == 0 || self.rest_bytes < url.len() {
            return Address::Counted(url.into());
        }
        self.rest -= 1;
        self.rest_bytes -= url.len();
        let text: &'static str = Box::leak(Box::from(url));
        self.known.insert(text);
        Address::Interned(text)
    }
}

/// Sessions are drawn by chance, so that their own bits are as good as a hash of them.
#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, bits: u128) {
        self.0 = bits as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A whole table, built once and never changed; copies share it.
#[derive(Clone, Debug)]
pub(super) struct RouteTable {
    index: RangeIndex<Target>,
    owners: Arc<[Owner<&'static str>]>,
    /// Those that came when no more addresses could be kept for ever.
    counted: Arc<[Owner<Arc<str>>]>,
    /// When the state of each range last began empty. Apart from the targets, two of which fit a cache line.
    since: Arc<[(KeyRange, Generation)]>,
    /// What the keys are, if they are ordered.
    space: Option<KeySpace>,
    is_known: bool,
}

/// What the table says of a range.
#[derive(Clone, Copy, Debug)]
struct Target {
    first: Key,
    generation: Generation,
    owner: u32,
}

/// An owner, once for all its ranges.
#[derive(Clone, Copy, Debug)]
struct Owner<U> {
    session: SessionId,
    url: U,
}

impl View<RouteTable> for RouteTable {
    fn of(latest: &RouteTable) -> RouteTable {
        latest.clone()
    }

    fn refresh(&mut self, latest: &RouteTable) {
        self.clone_from(latest);
    }
}

impl RouteTable {
    /// What is said of keys of which nothing is known.
    const NOTHING: Target = Target { first: Key::MIN, generation: Generation::ZERO, owner: NOBODY };

    fn unknown() -> RouteTable {
        let index = RangeIndex::new([], RouteTable::NOTHING);
        RouteTable {
            index,
            owners: Arc::default(),
            counted: Arc::default(),
            since: Arc::default(),
            space: None,
            is_known: false,
        }
    }

    fn new<'a>(rows: impl IntoIterator<Item = (KeyRange, &'a Row)>) -> RouteTable {
        let mut numbers: HashMap<SessionId, u32, BuildHasherDefault<IdentityHasher>> = HashMap::default();
        let (mut owners, mut counted) = (Vec::new(), Vec::new());
        let place = |len: usize| u32::try_from(len - 1).expect("fewer owners than two to the power of 31");
        let mut number = |owner: &'a PublishedOwner| {
            let session = owner.session;
            *numbers.entry(session).or_insert_with(|| match Address::of(&owner.url) {
                Address::Interned(url) => {
                    owners.push(Owner { session, url });
                    place(owners.len())
                }
                Address::Counted(url) => {
                    counted.push(Owner { session, url });
                    FIRST_COUNTED + place(counted.len())
                }
            })
        };
        let mut since = Vec::new();
        let targets = rows.into_iter().map(|(range, row)| {
            since.push((range, row.state_since));
            let nobody = if row.quarantined { QUARANTINED } else { NOBODY };
            let owner = row.owner.as_ref().map_or(nobody, &mut number);
            (range, Target { first: range.first(), generation: row.generation, owner })
        });
        let index = RangeIndex::new(targets, RouteTable::NOTHING);
        RouteTable {
            index,
            owners: owners.into(),
            counted: counted.into(),
            since: since.into(),
            space: None,
            is_known: true,
        }
    }

    /// What the table says of a key that has an owner whose address is kept.
    #[inline(always)]
    fn find(&self, key: Key) -> Option<Route> {
        let (last, target) = self.index.run(self.index.find(key));
        let Owner { session, url } = *self.owners.get(target.owner as usize)?;
        let range = KeyRange::new(target.first, last)?;
        Some(Route { url: Address::Interned(url), session, generation: target.generation, range })
    }

    /// The same of an owner whose address is counted.
    fn find_counted(&self, key: Key) -> Option<Route> {
        let (last, target) = self.index.run(self.index.find(key));
        let Owner { session, url } = self.counted.get(target.owner.checked_sub(FIRST_COUNTED)? as usize)?;
        let range = KeyRange::new(target.first, last)?;
        let url = Address::Counted(Arc::clone(url));
        Some(Route { url, session: *session, generation: target.generation, range })
    }

    /// Why a key has no route.
    fn nobody(&self, key: Key) -> NoOwner {
        let run = self.index.find(key);
        let (range, target) = (self.index.range(run), self.index.value(run));
        let generation = target.generation;
        match target.owner {
            _ if !self.is_known => NoOwner::NoTable,
            QUARANTINED => NoOwner::Quarantined { range, generation },
            _ => NoOwner::Unowned { range, generation },
        }
    }
}

/// The table that readers of a Lookup share; cheap to clone.
#[derive(Clone, Debug)]
pub struct HotRoutes {
    published: Arc<Published<RouteTable>>,
}

impl Default for HotRoutes {
    fn default() -> HotRoutes {
        HotRoutes { published: Published::new(RouteTable::unknown()) }
    }
}

impl HotRoutes {
    /// A table that is not known yet: every key has [`NoOwner::NoTable`].
    #[must_use]
    pub fn new() -> HotRoutes {
        HotRoutes::default()
    }

    /// So many ranges of equal size dealt out to so many owners, for whoever measures lookups without a Manager.
    #[must_use]
    pub fn evenly(ranges: u32, owners: u32) -> HotRoutes {
        let owner = |number: u32| PublishedOwner {
            session: SessionId(Nonce(u128::from(number) + 1)),
            url: format!("http://10.0.{}.{}:8080", number / 256 % 256, number % 256).as_str().into(),
        };
        let row = |(range, number): (KeyRange, u32)| {
            // Neighbours have different owners, as they have on a ring.
            let owner = Some(owner(number.wrapping_mul(2_654_435_761) % owners.max(1)));
            let generation = Generation(u64::from(number) + 1);
            (range, Row { owner, generation, state_since: generation, quarantined: false })
        };
        let rows: Vec<(KeyRange, Row)> = super::slices(ranges).zip(0..).map(row).collect();
        let routes = HotRoutes::new();
        routes.publish(rows.iter().map(|(range, row)| (*range, row)));
        routes
    }

    /// Replaces the table by these rows, which are in key order and do not overlap.
    pub fn publish<'a>(&self, rows: impl IntoIterator<Item = (KeyRange, &'a Row)>) {
        self.published.publish(RouteTable::new(rows));
    }

    /// Forgets the table: it is not known any more.
    pub fn clear(&self) {
        self.published.publish(RouteTable::unknown());
    }

    /// Where requests for `key` should go. Takes no lock, allocates nothing and writes nothing that is shared.
    #[inline(always)]
    pub fn lookup(&self, key: Key) -> Result<Route, NoOwner> {
        if let Ok(local) = LOCAL.try_with(Rc::clone)
            && let Some(route) = local.borrow_mut().view(&self.published).find(key)
        {
            return Ok(route);
        }
        // No owner, or one among too many, or a thread that is ending and has lost its copy.
        self.lookup_slowly(key)
    }

    /// The same from one table, for keys without an owner or with one whose address is counted, and threads without a copy.
    #[cold]
    fn lookup_slowly(&self, key: Key) -> Result<Route, NoOwner> {
        let table = self.published.get();
        table.find(key).or_else(|| table.find_counted(key)).ok_or_else(|| table.nobody(key))
    }

    /// The lease at which the state of `key` last began empty; `None` while that is not known.
    #[must_use]
    pub fn state_since(&self, key: Key) -> Option<Generation> {
        let table = self.published.get();
        let place = table.since.partition_point(|(range, _)| range.last() < key);
        let (range, since) = table.since.get(place)?;
        range.contains(key).then_some(*since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table whose addresses are counted is looked up as any other.
    #[test]
    fn owners_beyond_the_bound_are_found() {
        let session = SessionId(Nonce(7));
        let row = Target { first: Key::MIN, generation: Generation(3), owner: FIRST_COUNTED };
        let table = RouteTable {
            index: RangeIndex::new([(KeyRange::ALL, row)], RouteTable::NOTHING),
            owners: Arc::default(),
            counted: Arc::from([Owner { session, url: Arc::from("http://late") }]),
            since: Arc::default(),
            space: None,
            is_known: true,
        };
        assert!(table.find(Key(9)).is_none());
        let routes = HotRoutes { published: Published::new(table) };
        let route = routes.lookup(Key(9)).expect("an owner");
        assert_eq!((route.url(), route.session()), ("http://late", session));
    }

    #[test]
    fn addresses_beyond_the_bound_go_with_the_last_that_has_them() {
        let mut interner = Interner::new(2, 20);
        let is_interned = |address: &Address| matches!(address, Address::Interned(_));
        assert!(is_interned(&interner.address("http://a")));
        assert!(!is_interned(&interner.address("http://much-too-long")), "there is no room for its bytes");
        assert!(is_interned(&interner.address("http://b")));
        assert!(is_interned(&interner.address("http://a")), "it is known");
        let counted = interner.address("c");
        assert_eq!(counted.as_str(), "c");
        let Address::Counted(text) = &counted else { panic!("two are known") };
        let last = Arc::downgrade(text);
        drop(counted.clone());
        assert!(last.upgrade().is_some());
        drop(counted);
        assert!(last.upgrade().is_none(), "nothing is left of it");
        assert_eq!((interner.known.len(), interner.rest_bytes), (2, 4));
    }
}
