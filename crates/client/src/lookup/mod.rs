//! The Lookup: what a caller links to find the owner of a key, and to hear what was lost.

mod builder;
mod host;
mod links;
mod news;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{Generation, Namespace, Nonce};
use centrifuge_core::key::Key;
use centrifuge_core::message::Position;
use centrifuge_core::namespace_kind::{ExpectedKind, KindMismatch};
use tokio::sync::{broadcast, watch};
use tokio::task::AbortHandle;

pub use self::builder::{ConnectError, LookupBuilder};
pub use self::news::{Loss, LossReason, Losses, Positions};
use crate::hot::{HotRoutes, NoOwner, Route};
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
pub struct Lookup {
    inner: Arc<Inner>,
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

    /// Where requests for `key` should go. Reads a table in this process: takes no lock, allocates nothing, and takes
    /// nanoseconds.
    #[inline]
    pub fn lookup(&self, key: Key) -> Result<Route, NoOwner> {
        self.inner.shared.hot.lookup(key)
    }

    /// The lease at which the state of `key` last began empty, as the table has it; `None` before there is a table.
    ///
    /// A number that has risen since it was last looked at is a loss, whoever looked last. State that keeps the number and
    /// moves from server to server thus misses no loss, although each server hears of it at another time. Only while the
    /// Lookup is [in contact](Lookup::in_contact): otherwise the table is too old to say.
    #[must_use]
    pub fn state_since(&self, key: Key) -> Option<Generation> {
        self.inner.shared.hot.state_since(key)
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

    /// The table that readers share, to hand to code that only looks keys up.
    #[must_use]
    pub fn routes(&self) -> HotRoutes {
        self.inner.shared.hot.clone()
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

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lookup({} {})", self.inner.namespace, self.inner.nonce)
    }
}
