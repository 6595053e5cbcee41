//! The Lookup: what a caller links to find the owner of a key, and to hear what was lost.

mod builder;
mod host;
mod links;
mod news;

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{Generation, Namespace, Nonce};
use centrifuge_core::message::Position;
use centrifuge_core::namespace_kind::{ExpectedKind, KindMismatch};
use tokio::sync::{broadcast, watch};
use tokio::task::AbortHandle;

pub use self::builder::{ConnectError, LookupBuilder};
pub use self::news::{Loss, LossReason, Losses, Positions};
use crate::hot::{HotRoutes, NoOwner, Route, Slice};
use crate::keys::{Hashed, KeyOrder, KeyPrefix, NoKey, Ordered, OrderedKey};
use crate::managers::Managers;

/// A copy of the whole table of a namespace, kept up to date by its Manager. Cheap to clone.
///
/// It may be behind: the owner itself knows best. It never misses a loss, though it may tell of one that was none.
///
/// ```no_run
/// use centrifuge::{Key, Lookup, Managers};
///
/// # async fn publish_again(keys: &centrifuge::lookup::Loss) {}
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let lookup = Lookup::builder(Managers::list(["manager-1:7600"])?, "rooms").connect().await?;
/// match lookup.lookup(Key::of(b"room-7")) {
///     Ok(route) => println!("ask {}, under lease {}", route.url(), route.generation()),
///     Err(nobody) => println!("{nobody}"),
/// }
/// // Losses as a stream; `on_loss` of the builder is the same as a callback.
/// let mut losses = lookup.losses();
/// while let Some(loss) = losses.next().await {
///     publish_again(&loss).await;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Lookup<K: KeyOrder = Hashed> {
    inner: Arc<Inner>,
    keys: PhantomData<K>,
}

/// Ends the tasks when the last handle goes.
struct Inner {
    shared: Arc<Shared>,
    tasks: Vec<AbortHandle>,
    namespace: Namespace,
    nonce: Nonce,
    expects: ExpectedKind,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// What the handle and the driver share.
struct Shared {
    hot: HotRoutes,
    losses: broadcast::Sender<Loss>,
    status: watch::Sender<Status>,
}

/// How far a Lookup is.
#[derive(Clone, Copy, Debug, Default)]
struct Status {
    position: Option<Position>,
    is_in_contact: bool,
    is_unknown: bool,
    /// The namespace is not of the kind that the Lookup is built for: it asks no more.
    refused: Option<KindMismatch>,
    /// Every Manager was asked, and none that leads has answered yet.
    seeks_leader: bool,
    /// How long the leader may take to learn the first table from the Owners.
    learning: Option<Duration>,
}

/// Whom a Lookup can ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// A leader, which knows the namespace.
    Leader,
    /// A leader, which does not know the namespace.
    UnknownNamespace,
    /// A leader, whose namespace is not of the kind that the Lookup is built for. Nobody is asked any more.
    WrongKind,
    /// Nobody who leads.
    NoLeader,
}

impl Lookup {
    /// Begins to describe a Lookup of the namespace that these Managers manage.
    #[must_use]
    pub fn builder(managers: Managers, namespace: &str) -> LookupBuilder {
        LookupBuilder::new(managers, namespace)
    }

    /// The table that readers share, to hand to code that only looks keys up.
    #[must_use]
    pub fn routes(&self) -> HotRoutes {
        self.hot()
    }
}

impl Lookup<Ordered> {
    /// Begins to describe a Lookup of a namespace with ordered keys.
    #[must_use]
    pub fn ordered(managers: Managers, namespace: &str) -> LookupBuilder<Ordered> {
        LookupBuilder::new(managers, namespace)
    }

    /// The key of an application key, which must begin with the prefix of the namespace.
    pub fn key_of(&self, application_key: impl AsRef<[u8]>) -> Result<OrderedKey, NoKey> {
        self.inner.shared.hot.key_of(application_key.as_ref())
    }

    /// The owners of an interval of application keys, in their order: each with the part of the interval that it owns. All are of one
    /// table. The bounds must begin with the prefix of the namespace; `scan::<&str>(..)` is the whole of it.
    ///
    /// A [`Router`](crate::Router) visits them, also while they change.
    pub fn scan<B: AsRef<[u8]>>(&self, bounds: impl RangeBounds<B>) -> Result<Vec<Slice>, NoKey> {
        self.inner.shared.hot.scan(&bounds)
    }

    /// What all application keys begin with. [`KeyPrefix::interval_of`] says which of them a range has.
    #[must_use]
    pub fn prefix(&self) -> Option<KeyPrefix> {
        self.inner.shared.hot.prefix()
    }
}

impl<K: KeyOrder> Lookup<K> {
    fn new(inner: Arc<Inner>) -> Lookup<K> {
        Lookup { inner, keys: PhantomData }
    }

    pub(crate) fn hot(&self) -> HotRoutes {
        self.inner.shared.hot.clone()
    }

    /// Where requests for `key` should go. Reads a table in this process: takes no lock, allocates nothing, and takes
    /// nanoseconds.
    #[inline]
    pub fn lookup(&self, key: K::Key) -> Result<Route, NoOwner> {
        K::route(&self.inner.shared.hot, key)
    }

    /// The lease at which the state of `key` last began empty, as the table has it; `None` before there is a table.
    ///
    /// A number that has risen since it was last looked at is a loss, whoever looked last. State that keeps the number and
    /// moves from server to server thus misses no loss, although each server hears of it at another time. Only while the
    /// Lookup is [in contact](Lookup::in_contact): otherwise the table is too old to say.
    #[must_use]
    pub fn state_since(&self, key: K::Key) -> Option<Generation> {
        self.inner.shared.hot.state_since(K::point(key))
    }

    /// The losses from now on.
    #[must_use]
    pub fn losses(&self) -> Losses {
        Losses::new(self.inner.shared.losses.subscribe())
    }

    /// The positions of the table, now and from now on. A slow reader sees the latest.
    #[must_use]
    pub fn table_changes(&self) -> Positions {
        Positions::new(self.inner.shared.status.subscribe())
    }

    /// Where in which log the table stands.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.inner.shared.status.borrow().position
    }

    /// Whether the table was the whole truth within the contact timeout. If not, everything was or will be taken for
    /// lost.
    #[must_use]
    pub fn in_contact(&self) -> bool {
        self.inner.shared.status.borrow().is_in_contact
    }

    /// Whom it can ask now, as far as it has noticed.
    pub(crate) fn reach(&self) -> Reach {
        let status = *self.inner.shared.status.borrow();
        if status.refused.is_some() {
            Reach::WrongKind
        } else if status.seeks_leader || !status.is_in_contact {
            Reach::NoLeader
        } else if status.is_unknown {
            Reach::UnknownNamespace
        } else {
            Reach::Leader
        }
    }

    /// Waits until the table is another than at `seen`, and says where it stands; `None` if the Lookup has ended.
    pub async fn changed_since(&self, seen: Option<Position>) -> Option<Position> {
        let mut status = self.inner.shared.status.subscribe();
        let status = status.wait_for(|status| status.position != seen).await.ok()?;
        status.position
    }

    /// What names this life of this Lookup.
    #[must_use]
    pub fn nonce(&self) -> Nonce {
        self.inner.nonce
    }

    /// The pool.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.inner.namespace
    }
}

impl<K: KeyOrder> fmt::Debug for Lookup<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lookup({} {})", self.inner.namespace, self.inner.nonce)
    }
}
