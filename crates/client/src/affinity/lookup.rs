//! A Lookup of a namespace in affinity mode, and requests that follow it.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use centrifuge_core::id::{Namespace, SessionId};
use centrifuge_core::key::KeyRange;
use centrifuge_core::message::Position;

use crate::hot::{NoOwner, Route};
use crate::keys::{Hashed, KeyOrder, KeyPrefix, NoKey, Ordered, OrderedKey};
use crate::lookup::{ConnectError, Lookup, LookupBuilder, Loss, Losses, Positions};
use crate::managers::Managers;
use crate::router::{Refusal, Router, RouterError};

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
            Err(NoOwner::Unowned { range, .. }) => Err(NoRoute::Unowned { range }),
            Err(NoOwner::Quarantined { range, .. }) => Err(NoRoute::Quarantined { range }),
            Err(NoOwner::NoTable) => Err(NoRoute::NoTable),
            Err(NoOwner::Replaced) => Err(NoRoute::Replaced),
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
        sent.map_err(|error| match error {
            RouterError::NoOwner { attempts, .. } => RouterError::NoPreferredOwner { attempts },
            error => error,
        })
    }
}
