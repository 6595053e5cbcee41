//! A Lookup of a namespace in affinity mode, and requests that follow it.

use std::fmt;
use std::future::Future;
use std::ops::RangeBounds;
use std::path::PathBuf;
use std::time::Duration;

use centrifuge_core::id::{Namespace, SessionId};
use centrifuge_core::key::KeyRange;
use centrifuge_core::message::Position;

use crate::hot::{NoOwner, Route, Slice};
use crate::keys::{Hashed, Interval, KeyOrder, KeyPrefix, NoKey, Ordered, OrderedKey};
use crate::lookup::{ConnectError, Lookup, LookupBuilder, Loss, Losses, Positions};
use crate::managers::Managers;
use crate::router::{Refusal, Router, RouterError, VisitError};

/// A copy of the whole table of a namespace in affinity mode. Cheap to clone.
///
/// It raises losses as a [`Lookup`] does. A range that was taken from a silent Owner counts as lost, although that Owner may have its
/// state and even serve it for some time: the owner that callers are sent to began without it.
#[derive(Clone)]
pub struct AffinityLookup<K: KeyOrder = Hashed> {
    lookup: Lookup<K>,
}

/// Describes a Lookup in affinity mode before it connects. A [`LookupBuilder`] says more of each choice.
pub struct AffinityLookupBuilder<K: KeyOrder = Hashed> {
    builder: LookupBuilder<K>,
}

/// The choices that are the same in both modes.
macro_rules! same {
    ($($(#[doc = $text:literal])+ $name:ident($($argument:ident: $type:ty)?);)+) => {$(
        $(#[doc = $text])+
        #[must_use]
        pub fn $name(self $(, $argument: $type)?) -> AffinityLookupBuilder<K> {
            AffinityLookupBuilder { builder: self.builder.$name($($argument)?) }
        }
    )+};
}

impl<K: KeyOrder> AffinityLookupBuilder<K> {
    same! {
        /// How often it asks by itself; 30 s unless set.
        poll(every: Duration);
        /// After so long without contact everything counts as lost; 90 s unless set.
        contact_timeout(timeout: Duration);
        /// How long a range may be unowned before its state counts as lost; 30 s unless set.
        unowned_delay(delay: Duration);
        /// How long it waits for an answer before it asks all Managers; 5 s unless set.
        silence(silence: Duration);
        /// How long [`AffinityLookupBuilder::connect`] looks for a leader.
        connect_timeout(timeout: Duration);
        /// Writes everything that the Lookup's machine is fed to this file.
        record(file: impl Into<PathBuf>);
    }

    /// Called with every loss, one after the other, on a task of its own.
    #[must_use]
    pub fn on_loss<F, R>(self, callback: F) -> AffinityLookupBuilder<K>
    where
        F: Fn(Loss) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        AffinityLookupBuilder { builder: self.builder.on_loss(callback) }
    }

    /// Gets the table.
    pub async fn connect(self) -> Result<AffinityLookup<K>, ConnectError> {
        self.builder.connect().await.map(|lookup| AffinityLookup { lookup })
    }
}

impl AffinityLookup {
    /// Begins to describe a Lookup of the namespace that these Managers manage.
    #[must_use]
    pub fn builder(managers: Managers, namespace: &str) -> AffinityLookupBuilder {
        AffinityLookupBuilder { builder: Lookup::builder(managers, namespace).affinity() }
    }
}

impl AffinityLookup<Ordered> {
    /// Begins to describe a Lookup of a namespace with ordered keys.
    #[must_use]
    pub fn ordered(managers: Managers, namespace: &str) -> AffinityLookupBuilder<Ordered> {
        AffinityLookupBuilder { builder: Lookup::ordered(managers, namespace).affinity() }
    }

    /// The key of an application key, which must begin with the prefix of the namespace.
    pub fn key_of(&self, application_key: impl AsRef<[u8]>) -> Result<OrderedKey, NoKey> {
        self.lookup.key_of(application_key)
    }

    /// The preferred owners of an interval of application keys, in their order; see [`Lookup::scan`].
    pub fn scan<B: AsRef<[u8]>>(&self, bounds: impl RangeBounds<B>) -> Result<Vec<AffinitySlice>, NoKey> {
        let slice = |Slice { interval, range, owner }| {
            let owner = owner.map(|route| AffinityRoute { route }).map_err(NoRoute::of);
            AffinitySlice { interval, range, owner }
        };
        Ok(self.lookup.scan(bounds)?.into_iter().map(slice).collect())
    }

    /// What all application keys begin with. [`KeyPrefix::interval_of`] says which of them a range has.
    #[must_use]
    pub fn prefix(&self) -> Option<KeyPrefix> {
        self.lookup.prefix()
    }
}

impl<K: KeyOrder> AffinityLookup<K> {
    /// Where requests for `key` should preferably go. Takes no lock and allocates nothing.
    #[inline]
    pub fn lookup(&self, key: K::Key) -> Result<AffinityRoute, NoRoute> {
        match self.lookup.lookup(key) {
            Ok(route) => Ok(AffinityRoute { route }),
            Err(why) => Err(NoRoute::of(why)),
        }
    }

    /// The losses from now on.
    #[must_use]
    pub fn losses(&self) -> Losses {
        self.lookup.losses()
    }

    /// The positions of the table, now and from now on.
    #[must_use]
    pub fn table_changes(&self) -> Positions {
        self.lookup.table_changes()
    }

    /// Where in which log the table stands.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.lookup.position()
    }

    /// Whether the table was the whole truth within the contact timeout.
    #[must_use]
    pub fn in_contact(&self) -> bool {
        self.lookup.in_contact()
    }

    /// The pool.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        self.lookup.namespace()
    }
}

impl<K: KeyOrder> fmt::Debug for AffinityLookup<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AffinityLookup({} {})", self.lookup.namespace(), self.lookup.nonce())
    }
}

/// Where a key's requests should preferably go.
#[derive(Clone, PartialEq, Eq)]
pub struct AffinityRoute {
    route: Route,
}

impl AffinityRoute {
    /// Where the preferred owner is reached, as its application said.
    #[must_use]
    pub fn url(&self) -> &str {
        self.route.url()
    }

    /// The preferred owner's process.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.route.session()
    }

    /// The keys around the one asked for of which the same is true.
    #[must_use]
    pub fn range(&self) -> KeyRange {
        self.route.range()
    }
}

impl fmt::Debug for AffinityRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.range(), self.session(), self.url())
    }
}

/// A part of an interval of ordered keys that has one preferred owner, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AffinitySlice {
    /// The application keys.
    pub interval: Interval,
    /// Their keys. Those of the first and the last may also be the keys of neighbours outside of the interval.
    pub range: KeyRange,
    /// Where their preferred owner is, or why they have none.
    pub owner: Result<AffinityRoute, NoRoute>,
}

/// Why a key has no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NoRoute {
    /// The range has no owner at the moment.
    #[error("the key has no owner at the moment: wait and look again, or ask any server")]
    Unowned {
        /// The keys around it of which the same is true.
        range: KeyRange,
    },
    /// Nobody owns the range, and nobody will soon: servers that got it died, one after the other.
    #[error("the key is in quarantine: `centrifuge quarantine list` shows why and until when")]
    Quarantined {
        /// The keys around it of which the same is true.
        range: KeyRange,
    },
    /// No table has arrived yet.
    #[error("the Lookup has no table yet: check that a Manager leads, then look again")]
    NoTable,
    /// Another namespace has the name now, whose keys begin with another prefix.
    #[error("the key was made for an earlier namespace of this name: make it anew with `key_of`")]
    Replaced,
}

impl NoRoute {
    fn of(why: NoOwner) -> NoRoute {
        match why {
            NoOwner::Unowned { range, .. } => NoRoute::Unowned { range },
            NoOwner::Quarantined { range, .. } => NoRoute::Quarantined { range },
            NoOwner::NoTable => NoRoute::NoTable,
            NoOwner::Replaced => NoRoute::Replaced,
        }
    }
}

/// Sends requests to where the preferred owner is, and retries as a [`Router`] does.
#[derive(Clone, Debug)]
pub struct AffinityRouter<K: KeyOrder = Hashed> {
    router: Router<K>,
}

impl<K: KeyOrder> AffinityRouter<K> {
    /// Routes by a Lookup: a changed table ends a wait early.
    #[must_use]
    pub fn new(lookup: AffinityLookup<K>) -> AffinityRouter<K> {
        AffinityRouter { router: Router::new(lookup.lookup) }
    }

    /// How long a request is tried; 90 s unless set.
    #[must_use]
    pub fn patience(self, patience: Duration) -> AffinityRouter<K> {
        AffinityRouter { router: self.router.patience(patience) }
    }

    /// Sends a request for `key`; see [`Router::send`]. That nobody owns the key is a [`RouterError::NoPreferredOwner`].
    pub async fn send<T, E, F, R>(&self, key: K::Key, mut attempt: F) -> Result<T, RouterError<E>>
    where
        F: FnMut(AffinityRoute) -> R,
        R: Future<Output = Result<T, Refusal<E>>>,
    {
        let sent = self.router.send(key, |route| attempt(AffinityRoute { route })).await;
        sent.map_err(without_numbers)
    }
}

impl AffinityRouter<Ordered> {
    /// Asks the preferred owners of an interval of application keys, in the order of the keys; see [`Router::visit`].
    pub async fn visit<B, T, E, F, R>(
        &self,
        bounds: impl RangeBounds<B>,
        mut attempt: F,
    ) -> Result<Vec<T>, VisitError<E>>
    where
        B: AsRef<[u8]>,
        F: FnMut(AffinityRoute, Interval) -> R,
        R: Future<Output = Result<T, Refusal<E>>>,
    {
        let visited = self.router.visit(bounds, |route, part| attempt(AffinityRoute { route }, part)).await;
        visited.map_err(|error| match error {
            VisitError::Owner(error) => VisitError::Owner(without_numbers(error)),
            VisitError::Key(error) => VisitError::Key(error),
        })
    }
}

/// That nobody owns a key is told without the number of the last lease.
fn without_numbers<E>(error: RouterError<E>) -> RouterError<E> {
    match error {
        error @ RouterError::NoOwner { why: NoOwner::Replaced, .. } => error,
        RouterError::NoOwner { attempts, .. } => RouterError::NoPreferredOwner { attempts },
        error => error,
    }
}
