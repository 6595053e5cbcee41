//! A cell: what can be leased, and how.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::flease::{Cell as Named, ClaimEnd, ClaimEvent};
use centrifuge_core::id::NameError;
use tokio::sync::{OwnedMutexGuard, watch};

use super::change::Epoch;
use super::lease::Lease;
use super::waiting::About;
use super::want::{News, Want};
use super::{Inner, Turn};

/// Something that one process of one peer can hold at a time. Cheap to clone.
///
/// Within this process it is as exclusive as among peers: who wants a cell that another task holds waits for its release.
#[derive(Clone)]
pub struct Cell {
    inner: Arc<Inner>,
    named: Named,
    turn: Arc<Turn>,
}

/// Why a cell cannot be named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CellError {
    /// The name is no name.
    #[error("the cell's name {0:?} is refused: {1}")]
    Name(String, NameError),
    /// A cell without members would have nobody to vote.
    #[error("the cell {0:?} names no members: name some peers, or use cell() for all")]
    NoMembers(String),
    /// Somebody who is no peer cannot vote.
    #[error(
        "the cell {cell:?} names {peer}, which is not on the list of peers: add it there or leave it out here"
    )]
    NoSuchPeer {
        /// The cell.
        cell: String,
        /// Who is no peer.
        peer: u16,
    },
    /// Only members hold a cell.
    #[error("the cell {0:?} does not name this peer: only a cell's members can hold it")]
    NotAMember(String),
}

/// Why a cell is not acquired, and will not be by waiting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AcquireError {
    /// This peer's clock is too far from the others'.
    #[error(
        "this peer's clock is more than epsilon away from that of peers {from:?}: set it right, for instance with chrony or ntpd"
    )]
    ClockApart {
        /// From which peers.
        from: Vec<u16>,
    },
    /// This peer does not vote on the cell.
    #[error("the cell {0:?} does not name this peer: only a cell's members can hold it")]
    NotAMember(String),
    /// The peer has ended.
    #[error(
        "the peer was stopped, or its task ended with its runtime or by a panic: see the log, and start it again"
    )]
    Stopped,
}

/// Why a cell is not acquired now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TryAcquireError {
    /// Another peer holds it.
    #[error(
        "peer {peer} holds the cell for another {rest:?} at least: try again then, or wait with acquire()"
    )]
    HeldByOther {
        /// The peer.
        peer: u16,
        /// Until its lease ends, if it is not renewed.
        rest: Duration,
    },
    /// Another task of this process holds it or waits for it.
    #[error("another task of this process holds the cell or waits for it: release it there first")]
    HeldHere,
    /// The peer takes no part yet.
    #[error("this peer started lately and takes no part for another {rest:?}: wait for ready()")]
    Recovering {
        /// Until it does.
        rest: Duration,
    },
    /// Too few answered.
    #[error(
        "no majority of the cell's members agreed within {within:?}: see whether they run and can be reached, and try again"
    )]
    NoMajority {
        /// How long it waited.
        within: Duration,
    },
    /// Waiting would not help either.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
}

/// What this peer knows of a cell. Others may know more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellStatus {
    /// The cell's name.
    pub cell: String,
    /// The members that it names; empty if all peers are.
    pub members: Vec<u16>,
    /// Who holds it, as far as this peer's register knows.
    pub holder: Option<KnownHolder>,
}

/// Who holds a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownHolder {
    /// The peer.
    pub peer: u16,
    /// Whether it is this very process, and its lease is valid now.
    pub is_this_process: bool,
    /// Under which epoch.
    pub epoch: Epoch,
    /// Until its lease ends, if it is not renewed.
    pub rest: Duration,
}

impl Cell {
    pub(super) fn new(inner: Arc<Inner>, named: Named) -> Cell {
        let turn = inner.turn_of(&named);
        Cell { inner, named, turn }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.named.name()
    }

    /// Waits until this process holds the cell: until the peer has recovered from its start, and everybody who holds it before
    /// has released it or was not heard of for the length of a lease. From then on the lease is renewed by itself. Dropping the
    /// future takes the wish back.
    pub async fn acquire(&self) -> Result<Lease, AcquireError> {
        let guard = Arc::clone(&self.turn).lock_owned().await;
        let wanted = self.ask(guard).await?;
        let over = wanted.news(|news| news.is_held || news.over.is_some());
        tokio::select! {
            news = over => self.lease(wanted, news),
            error = self.inner.unable() => Err(error),
        }
    }

    /// Acquires the cell if nobody holds it. Answers within about two rounds.
    pub async fn try_acquire(&self) -> Result<Lease, TryAcquireError> {
        let guard = Arc::clone(&self.turn).try_lock_owned().map_err(|_| TryAcquireError::HeldHere)?;
        self.inner.is_able()?;
        let rest = self.inner.until_ready();
        if !rest.is_zero() {
            return Err(TryAcquireError::Recovering { rest });
        }
        let wanted = self.ask(guard).await?;
        let within = self.inner.round * 2;
        let decided = wanted.news(|news| news.is_held || news.over.is_some() || news.other.is_some());
        tokio::select! {
            news = tokio::time::timeout(within, decided) => match news {
                Ok(News { is_held: false, over: None, other: Some(lease) }) => {
                    let rest = lease.until.since(self.inner.shared.offset.now());
                    Err(TryAcquireError::HeldByOther { peer: lease.holder.peer.0, rest })
                }
                Ok(news) => Ok(self.lease(wanted, news)?),
                Err(_) => Err(TryAcquireError::NoMajority { within }),
            },
            error = self.inner.unable() => Err(error.into()),
        }
    }

    /// What this peer knows of the cell.
    pub async fn status(&self) -> Result<CellStatus, AcquireError> {
        let mut found = self.inner.look(About::Cell(self.named.clone())).await?;
        let unknown =
            || CellStatus { cell: self.name().to_owned(), members: members(&self.named), holder: None };
        Ok(found.pop().unwrap_or_else(unknown))
    }

    async fn ask(&self, guard: OwnedMutexGuard<()>) -> Result<Wanted, AcquireError> {
        let want = self.inner.shared.waiting.add(self.named.clone());
        let event = ClaimEvent::Acquire(want.claim(), self.named.clone());
        // From here on it is taken back when it is dropped, whether the machine has heard of it or not.
        let wanted = Wanted { want, inner: Arc::clone(&self.inner), guard: Some(guard) };
        self.inner.events.send(event).await.map_err(|_| AcquireError::Stopped)?;
        Ok(wanted)
    }

    /// A lease that was lost before it could be handed over says so itself.
    fn lease(&self, wanted: Wanted, news: News) -> Result<Lease, AcquireError> {
        match (wanted.want.held().map(|held| held.epoch), news.over) {
            (Some(epoch), _) => Ok(Lease::new(wanted, epoch.into())),
            (None, Some(ClaimEnd::NotAMember)) => Err(AcquireError::NotAMember(self.name().to_owned())),
            (None, _) => Err(AcquireError::Stopped),
        }
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cell({})", self.named)
    }
}

pub(super) fn members(named: &Named) -> Vec<u16> {
    named.named_members().unwrap_or_default().iter().map(|peer| peer.0).collect()
}

/// A wish that is taken back when it is dropped; until the machine knows of that nobody else in this process has its turn.
pub(super) struct Wanted {
    pub(super) want: Arc<Want>,
    inner: Arc<Inner>,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Wanted {
    /// Waits for news.
    async fn news(&self, are_awaited: impl Fn(&News) -> bool) -> News {
        wait(self.want.news(), are_awaited).await
    }

    /// Gives the cell back, and waits until others can know of it.
    pub(super) async fn release(mut self) {
        self.want.revoke();
        let mut over = self.want.news();
        if let Some(guard) = self.guard.take() {
            let (events, want) = (self.inner.events.clone(), Arc::clone(&self.want));
            // On a task of its own: it is given back even if nobody waits for that.
            self.inner.runtime.spawn(give_back(events, want, guard));
        }
        // The driver that could tell is gone: so is the lease.
        let _ = over.wait_for(|news| news.over.is_some()).await;
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.want.revoke();
        let Some(guard) = self.guard.take() else { return };
        let event = ClaimEvent::Release(self.want.claim(), self.want.cell().clone());
        if self.inner.events.try_send(event).is_err() {
            let inner = Arc::clone(&self.inner);
            let (events, want) = (inner.events.clone(), Arc::clone(&self.want));
            self.inner.runtime.spawn(async move {
                give_back(events, want, guard).await;
                drop(inner);
            });
        }
    }
}

async fn give_back(
    events: tokio::sync::mpsc::Sender<ClaimEvent>,
    want: Arc<Want>,
    guard: OwnedMutexGuard<()>,
) {
    // A driver that is gone renews nothing.
    let _ = events.send(ClaimEvent::Release(want.claim(), want.cell().clone())).await;
    drop(guard);
}

pub(super) async fn wait(mut news: watch::Receiver<News>, are_awaited: impl Fn(&News) -> bool) -> News {
    match news.wait_for(are_awaited).await {
        Ok(news) => *news,
        // The want that could tell is gone.
        Err(_) => News { over: Some(ClaimEnd::Stopped), ..News::default() },
    }
}

impl Inner {
    /// What the registers have, of one cell or of all.
    pub(super) async fn look(&self, about: About) -> Result<Vec<CellStatus>, AcquireError> {
        let (mark, answered) = self.shared.waiting.ask(about);
        self.events.send(ClaimEvent::Mark(mark)).await.map_err(|_| AcquireError::Stopped)?;
        let found = answered.await.map_err(|_| AcquireError::Stopped)?;
        let now = self.shared.offset.now();
        let status = |(named, lease): (Named, centrifuge_core::flease::Lease)| CellStatus {
            cell: named.name().to_owned(),
            members: members(&named),
            holder: Some(KnownHolder {
                peer: lease.holder.peer.0,
                is_this_process: lease.holder == self.holder,
                epoch: lease.epoch.into(),
                rest: lease.until.since(now),
            }),
        };
        Ok(found.into_iter().map(status).collect())
    }
}
