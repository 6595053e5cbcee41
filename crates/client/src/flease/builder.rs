//! How a peer is described and starts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use centrifuge_core::flease::{
    ClaimEvent, ClaimMachine, FleaseConfig, FleaseConfigError, FleaseCounters, FleaseEvent, FleaseMachine,
    PeerId,
};
use centrifuge_core::random::Random;
use centrifuge_core::time::Instant;
use centrifuge_net::driver::Driver;
use centrifuge_net::flease::{PeerSocket, Peers, SocketError, SyncedClock};
use centrifuge_net::secrets::{KeyFile, KeyFileError, KeyRing, SecretError};
use tokio::runtime::Handle;
use tokio::sync::{broadcast, mpsc, watch};

use super::change::BACKLOG;
use super::host::PeerHost;
use super::times::Tally;
use super::waiting::Waiting;
use super::{Flease, Inner, PeerState, Shared};

/// How many events wait for the driver.
const QUEUE: usize = 1024;

/// Describes a peer before it starts. Only the key, or its file, must be given; the times must be the same at all
/// peers.
///
/// ```no_run
/// use centrifuge::flease::{Change, Flease, Peers};
/// use std::time::Duration;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let peers: Peers = "1=10.0.0.1:7700,2=10.0.0.2:7700,3=10.0.0.3:7700".parse()?;
/// let flease = Flease::builder(peers, 2)
///     .bind("0.0.0.0:7700")
///     .key_file("/etc/centrifuge/flease.key")
///     .lease(Duration::from_secs(5))
///     .epsilon(Duration::from_millis(200))
///     .round(Duration::from_secs(1))
///     .start()
///     .await?;
/// let mut changes = flease.changes();
/// flease.ready().await?;
/// while let Some(change) = changes.next().await {
///     if let Change::ClockApart { from } = change {
///         eprintln!("see to this machine's clock: it is apart from those of {from:?}");
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct FleaseBuilder {
    peers: Peers,
    me: u16,
    bind: Option<String>,
    key: Option<Key>,
    lease: Option<Duration>,
    epsilon: Option<Duration>,
    round: Option<Duration>,
    recovery: Option<Duration>,
    window: Option<Duration>,
    /// How far the clock is set ahead, in nanoseconds.
    pub(super) ahead: i64,
}

/// Where the secrets come from.
enum Key {
    Bytes(Vec<u8>),
    File(PathBuf),
}

/// Why a peer does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// This peer is not on the list.
    #[error("peer {0} is not on the list of peers: add it there, or say which of them this is")]
    NotOnTheList(u16),
    /// There is no secret.
    #[error(
        "the peers share no secret: give all of them the same with key_file() or key(), at least 16 random bytes"
    )]
    NoKey,
    /// The secret is none.
    #[error(transparent)]
    Key(#[from] SecretError),
    /// The file of the secret cannot be used.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// The times would let two peers hold a cell, or nobody.
    #[error("these times are refused: {0}")]
    Times(#[from] FleaseConfigError),
    /// The operating system gave no random bits, which the peer's identity needs.
    #[error("the operating system gave no randomness: {0}")]
    Randomness(String),
    /// There is no socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
}

impl FleaseBuilder {
    pub(super) fn new(peers: Peers, me: u16) -> FleaseBuilder {
        FleaseBuilder {
            peers,
            me,
            bind: None,
            key: None,
            lease: None,
            epsilon: None,
            round: None,
            recovery: None,
            window: None,
            ahead: 0,
        }
    }

    /// Where to listen for datagrams; the peer's own address on the list unless set.
    #[must_use]
    pub fn bind(mut self, address: impl Into<String>) -> FleaseBuilder {
        self.bind = Some(address.into());
        self
    }

    /// The secret that all peers share, as [`key_file`](Self::key_file) would find it; it stays as it is for as long as
    /// the peer runs.
    #[must_use]
    pub fn key(mut self, secret: impl Into<Vec<u8>>) -> FleaseBuilder {
        self.key = Some(Key::Bytes(secret.into()));
        self
    }

    /// A file with the secret that all peers share: at least 16 bytes, better 32 random ones. Whoever knows it can
    /// speak as any peer.
    ///
    /// The file is reloaded when it changes; it is looked at every second. A second line can have another secret that
    /// is accepted, too: the first one signs. So a secret is replaced without a restart: put the new one second at
    /// every peer, then first at every peer, then remove the old one at every peer. White space around a secret, blank
    /// lines, and lines that begin with `#` do not count.
    #[must_use]
    pub fn key_file(mut self, path: impl Into<PathBuf>) -> FleaseBuilder {
        self.key = Some(Key::File(path.into()));
        self
    }

    /// How long a lease lasts unless it is renewed; 10 s unless set. A dead holder's cells are free after that.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> FleaseBuilder {
        self.lease = Some(lease);
        self
    }

    /// The most by which two peers' clocks differ at any time; 500 ms unless set. Half of it is for how well the machines'
    /// clocks are kept.
    #[must_use]
    pub fn epsilon(mut self, epsilon: Duration) -> FleaseBuilder {
        self.epsilon = Some(epsilon);
        self
    }

    /// How long two round trips between peers may take; 2 s unless set.
    #[must_use]
    pub fn round(mut self, round: Duration) -> FleaseBuilder {
        self.round = Some(round);
        self
    }

    /// How long the peer takes no part after its start; what the other times ask for unless set. Only a change of the lease's
    /// length needs more.
    #[must_use]
    pub fn recovery(mut self, recovery: Duration) -> FleaseBuilder {
        self.recovery = Some(recovery);
        self
    }

    /// When a cell comes free each peer that waits for it tries after a random delay of at most this; twice epsilon or an eighth
    /// of a lease unless set, whichever is shorter.
    #[must_use]
    pub fn window(mut self, window: Duration) -> FleaseBuilder {
        self.window = Some(window);
        self
    }

    /// Starts the peer. It takes part after its recovery: see [`Flease::ready`].
    pub async fn start(self) -> Result<Flease, StartError> {
        let config = self.config()?;
        let (keys, file) = self.keys()?;
        let seed = crate::seed::os_seed().map_err(StartError::Randomness)?;
        let (events, queue) = mpsc::channel(QUEUE);
        let own = self.peers.address(self.me).ok_or(StartError::NotOnTheList(self.me))?;
        let bind = self.bind.as_deref().unwrap_or(own);
        let event = |from, packet| ClaimEvent::Peer(FleaseEvent::Receive { from, packet });
        let mut socket =
            PeerSocket::start(bind, keys, config.me, self.others(), events.clone(), event).await?;
        file.into_iter().for_each(|file| socket.watch(file));
        let clock = SyncedClock::new(config.epsilon, self.ahead);
        let machine = FleaseMachine::new(config.clone(), Random::from_seed(seed));
        Ok(start(config, machine, clock, Arc::new(socket), (events, queue)))
    }

    /// The secrets, and the file that they follow.
    fn keys(&self) -> Result<(KeyRing, Option<KeyFile>), StartError> {
        match self.key.as_ref().ok_or(StartError::NoKey)? {
            Key::Bytes(bytes) => Ok((KeyRing::parse(bytes)?, None)),
            Key::File(path) => {
                let file = KeyFile::open(path)?;
                Ok((file.ring().clone(), Some(file)))
            }
        }
    }

    fn others(&self) -> BTreeMap<PeerId, String> {
        let others = self.peers.iter().filter(|(peer, _)| *peer != self.me);
        others.map(|(peer, address)| (PeerId(peer), address.to_owned())).collect()
    }

    fn config(&self) -> Result<FleaseConfig, StartError> {
        if self.peers.address(self.me).is_none() {
            return Err(StartError::NotOnTheList(self.me));
        }
        let usual = FleaseConfig::new(PeerId(self.me), self.peers.iter().map(|(peer, _)| PeerId(peer)));
        let (lease, epsilon, round) = (usual.lease, usual.epsilon, usual.round);
        let mut config = usual.with_times(
            self.lease.unwrap_or(lease),
            self.epsilon.unwrap_or(epsilon),
            self.round.unwrap_or(round),
        );
        config.recovery = self.recovery.unwrap_or(config.recovery);
        config.window = self.window.unwrap_or((config.epsilon * 2).min(config.lease / 8));
        config.check()?;
        Ok(config)
    }
}

fn start(
    config: FleaseConfig,
    machine: FleaseMachine,
    clock: SyncedClock,
    socket: Arc<PeerSocket>,
    (events, queue): (mpsc::Sender<ClaimEvent>, mpsc::Receiver<ClaimEvent>),
) -> Flease {
    let state = PeerState { takes_part_from: Instant::NEVER, apart: Vec::new(), is_stopped: false };
    let shared = Arc::new(Shared {
        waiting: Waiting::default(),
        changes: broadcast::channel(BACKLOG).0,
        status: watch::channel(state).0,
        busy: watch::channel(0).0,
        counters: Mutex::new(FleaseCounters::default()),
        acquired: Tally::default(),
        renewed: Tally::default(),
        offset: clock.offset(),
    });
    let holder = machine.holder();
    let host = PeerHost::new(Arc::clone(&shared), Arc::clone(&socket), config.lease);
    let driver = Driver::with_clock(ClaimMachine::new(machine), host, clock);
    let starting = events.clone();
    let driver = tokio::spawn(async move {
        // The receiver is there.
        let _ = starting.send(ClaimEvent::Peer(FleaseEvent::Start)).await;
        drop(starting);
        driver.run(queue).await;
    });
    Flease {
        inner: Arc::new(Inner {
            shared,
            events,
            socket,
            driver: driver.abort_handle(),
            runtime: Handle::current(),
            me: config.me,
            holder,
            peers: config.peers,
            lease: config.lease,
            round: config.round,
            turns: Mutex::default(),
        }),
    }
}
