//! Flease: exclusive leases among peers, with no server, no disk and no other service.
//!
//! A few processes, the peers, know each other's addresses, a secret, and how far their clocks may differ. Each can
//! hold **cells**: anything with a name. While a majority of a cell's members can be reached, a free cell is acquired within two
//! round trips, and one whose holder died after the length of a lease.
//!
//! ```no_run
//! use centrifuge::flease::{Flease, Peers};
//!
//! # async fn serve(epoch: centrifuge::flease::Epoch) {}
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let peers = Peers::list([(1, "10.0.0.1:7700"), (2, "10.0.0.2:7700"), (3, "10.0.0.3:7700")])?;
//! let flease = Flease::builder(peers, 1).key_file("/etc/centrifuge/flease.key").start().await?;
//!
//! let lease = flease.cell("primary")?.acquire().await?;
//! println!("this process is the primary, under epoch {}", lease.epoch());
//! tokio::select! {
//!     () = serve(lease.epoch()) => lease.release().await,
//!     why = lease.ended() => println!("it is not any more: {why}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Clocks must be synchronised: any two peers' within `epsilon`, half of which is for how well they are kept. A peer that finds its
//! own clock apart from a majority's gives up its leases and says so.

mod builder;
mod cell;
mod change;
mod host;
mod lease;
#[cfg(test)]
mod tests;
mod times;
mod waiting;
mod want;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use centrifuge_core::flease::{Cell as Named, ClaimEvent, FleaseCounters, Holder, PeerId};
use centrifuge_core::time::Instant;
use centrifuge_net::flease::{Offset, PeerSocket};
use tokio::runtime::Handle;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::AbortHandle;

pub use self::builder::{FleaseBuilder, StartError};
pub use self::cell::{AcquireError, Cell, CellError, CellStatus, KnownHolder, TryAcquireError};
pub use self::change::{Change, Changes, Epoch, LeaseEnd};
pub use self::lease::Lease;
use self::times::Tally;
pub use self::times::{RoundTimes, Times};
use self::waiting::{About, Waiting};
pub use centrifuge_core::flease::FleaseConfigError;
pub use centrifuge_net::flease::{Peers, PeersError, SocketError};
pub use centrifuge_net::secrets::{KeyFileError, SecretError};

/// Whose turn it is in this process to want a cell.
type Turn = tokio::sync::Mutex<()>;

/// A peer. Cheap to clone.
///
/// When the last clone, cell and lease is dropped, what was held is given back, and the peer ends.
#[derive(Clone)]
pub struct Flease {
    inner: Arc<Inner>,
}

/// What handles, cells and leases share. Ends the peer when the last of them goes.
struct Inner {
    shared: Arc<Shared>,
    events: mpsc::Sender<ClaimEvent>,
    socket: Arc<PeerSocket>,
    driver: AbortHandle,
    runtime: Handle,
    me: PeerId,
    holder: Holder,
    peers: Arc<[PeerId]>,
    lease: Duration,
    round: Duration,
    turns: Mutex<Turns>,
}

/// What the handles and the driver share.
struct Shared {
    waiting: Waiting,
    changes: broadcast::Sender<Change>,
    status: watch::Sender<PeerState>,
    /// Cells that are wanted, held or being released. Apart from the rest, because it changes with every cell, and whoever waits
    /// for one looks at the rest.
    busy: watch::Sender<usize>,
    counters: Mutex<FleaseCounters>,
    acquired: Tally,
    renewed: Tally,
    offset: Offset,
}

/// How far a peer is.
#[derive(Clone, Debug)]
struct PeerState {
    takes_part_from: Instant,
    apart: Vec<u16>,
    is_stopped: bool,
}

/// The cells that somebody has in hand.
#[derive(Default)]
struct Turns {
    cells: BTreeMap<Named, Weak<Turn>>,
    /// When there are this many, those that nobody has in hand are forgotten.
    sweep_at: usize,
}

/// What a peer is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Its number.
    pub peer: u16,
    /// How long it takes no part yet; zero if it does. `None`: until its clock agrees with the others'.
    pub ready_in: Option<Duration>,
    /// The peers from whose clocks its own is apart, if these are so many that it stepped down.
    pub apart: Vec<u16>,
    /// Cells that this process wants, holds or is releasing.
    pub busy: usize,
}

/// What a peer has met so far.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Counters {
    /// Rounds, leases and messages. `acquired` beside that of the other peers is this peer's share.
    pub leases: FleaseCounters,
    /// Datagrams.
    pub datagrams: centrifuge_net::flease::SocketCounters,
}

impl Flease {
    /// Begins to describe a peer: all peers, and which of them it is.
    #[must_use]
    pub fn builder(peers: Peers, my_id: u16) -> FleaseBuilder {
        FleaseBuilder::new(peers, my_id)
    }

    /// The cell of that name on which all peers vote.
    pub fn cell(&self, name: &str) -> Result<Cell, CellError> {
        let named = Named::new(name).map_err(|error| CellError::Name(name.to_owned(), error))?;
        Ok(Cell::new(Arc::clone(&self.inner), named))
    }

    /// The cell of that name on which these peers vote, and which only they can hold: so the work for many cells is spread over
    /// many peers. All of them must name the same members: with others it is another cell.
    pub fn cell_among(&self, name: &str, members: &[u16]) -> Result<Cell, CellError> {
        let named = Named::new(name).map_err(|error| CellError::Name(name.to_owned(), error))?;
        if members.is_empty() {
            return Err(CellError::NoMembers(name.to_owned()));
        }
        let is_stranger = |peer: &&u16| self.inner.peers.binary_search(&PeerId(**peer)).is_err();
        if let Some(peer) = members.iter().find(is_stranger) {
            return Err(CellError::NoSuchPeer { cell: name.to_owned(), peer: *peer });
        }
        if !members.contains(&self.inner.me.0) {
            return Err(CellError::NotAMember(name.to_owned()));
        }
        let named = named.among(members.iter().map(|peer| PeerId(*peer)));
        Ok(Cell::new(Arc::clone(&self.inner), named))
    }

    /// Waits until the peer takes part: after its start for as long as what an earlier life of it voted for may matter.
    pub async fn ready(&self) -> Result<(), AcquireError> {
        let mut status = self.inner.shared.status.subscribe();
        loop {
            self.inner.is_able()?;
            status.mark_unchanged();
            let rest = self.inner.until_ready();
            if rest.is_zero() {
                return Ok(());
            }
            tokio::select! {
                () = tokio::time::sleep(rest) => {}
                _ = status.changed() => {}
            }
        }
    }

    /// The changes from now on.
    #[must_use]
    pub fn changes(&self) -> Changes {
        Changes::new(self.inner.shared.changes.subscribe())
    }

    /// What the peer is doing.
    #[must_use]
    pub fn status(&self) -> PeerStatus {
        let state = self.inner.shared.status.borrow().clone();
        let ready_in = (state.takes_part_from != Instant::NEVER).then(|| self.inner.until_ready());
        let busy = *self.inner.shared.busy.borrow();
        PeerStatus { peer: self.inner.me.0, ready_in, apart: state.apart, busy }
    }

    /// The cells of which this peer's registers have a valid lease.
    pub async fn known_cells(&self) -> Result<Vec<CellStatus>, AcquireError> {
        self.inner.look(About::All).await
    }

    /// What the peer has met so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let leases = self.inner.shared.counters.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Counters { leases, datagrams: self.inner.socket.counters() }
    }

    /// How long this peer's rounds took so far: to be compared with what they may take.
    #[must_use]
    pub fn round_times(&self) -> RoundTimes {
        let shared = &self.inner.shared;
        RoundTimes { acquired: shared.acquired.read(), renewed: shared.renewed.read() }
    }

    /// Where the peer listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.inner.socket.address()
    }

    /// Gives back everything that this process holds, waits until the others can know of it, and ends the peer.
    pub async fn stop(self) {
        if self.inner.events.send(ClaimEvent::Stop).await.is_ok() {
            settle(&self.inner.shared, &self.inner.events, self.inner.lease).await;
        }
        self.inner.driver.abort();
    }
}

impl Inner {
    fn turn_of(&self, named: &Named) -> Arc<Turn> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).of(named)
    }

    /// How long it is until the peer takes part.
    fn until_ready(&self) -> Duration {
        self.shared.status.borrow().takes_part_from.since(self.shared.offset.now())
    }

    /// Whether waiting can help.
    fn is_able(&self) -> Result<(), AcquireError> {
        let state = self.shared.status.borrow();
        if state.is_stopped {
            return Err(AcquireError::Stopped);
        }
        match &state.apart[..] {
            [] => Ok(()),
            from => Err(AcquireError::ClockApart { from: from.to_vec() }),
        }
    }

    /// Waits until waiting cannot help.
    async fn unable(&self) -> AcquireError {
        let mut status = self.shared.status.subscribe();
        loop {
            status.mark_unchanged();
            if let Err(error) = self.is_able() {
                return error;
            }
            if status.changed().await.is_err() {
                return AcquireError::Stopped;
            }
        }
    }
}

impl Drop for Inner {
    /// Nobody can hold anything any more; what was given back is made known first.
    fn drop(&mut self) {
        let (shared, socket) = (Arc::clone(&self.shared), Arc::clone(&self.socket));
        let (events, driver, longest) = (self.events.clone(), self.driver.clone(), self.lease);
        self.runtime.spawn(async move {
            settle(&shared, &events, longest).await;
            driver.abort();
            drop(socket);
        });
    }
}

/// Waits until all that was given back is known to the others, or has ended by itself.
async fn settle(shared: &Shared, events: &mpsc::Sender<ClaimEvent>, longest: Duration) {
    let settled = async {
        // When this is answered all that was said before has been heard.
        let (mark, answered) = shared.waiting.ask(About::Nothing);
        if events.send(ClaimEvent::Mark(mark)).await.is_ok() {
            let _ = answered.await;
        }
        let (mut busy, mut status) = (shared.busy.subscribe(), shared.status.subscribe());
        tokio::select! {
            _ = busy.wait_for(|busy| *busy == 0) => {}
            _ = status.wait_for(|state| state.is_stopped) => {}
        }
    };
    let _ = tokio::time::timeout(longest, settled).await;
}

impl Shared {
    fn tell(&self, change: Change) {
        // Without readers nobody wants to know.
        let _ = self.changes.send(change);
    }

    fn publish(&self, counters: &FleaseCounters) {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner).clone_from(counters);
    }
}

impl Turns {
    fn of(&mut self, named: &Named) -> Arc<Turn> {
        if let Some(turn) = self.cells.get(named).and_then(Weak::upgrade) {
            return turn;
        }
        if self.cells.len() >= self.sweep_at {
            self.cells.retain(|_, turn| turn.strong_count() > 0);
            self.sweep_at = self.cells.len() * 2 + 16;
        }
        let turn = Arc::<Turn>::default();
        self.cells.insert(named.clone(), Arc::downgrade(&turn));
        turn
    }
}

impl fmt::Debug for Flease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flease({} {:?})", self.inner.me, self.inner.holder)
    }
}
