//! Which of the Managers this is, and what they share.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use centrifuge_core::election::ElectionConfig;
use centrifuge_core::flease::{FleaseConfig, PeerId};
use centrifuge_core::id::ManagerId;
use centrifuge_net::flease::Peers;
use centrifuge_net::secrets::{KeyFile, KeyFileError, KeyRing, SecretError};

/// Which of the Managers this is, and what they share. All but `me` and `listen` must be the same at all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerOptions {
    /// Every Manager by its number, with the address where it serves clients and, by datagrams, the others.
    pub peers: Peers,
    /// The number of this one, which is among them.
    pub me: u16,
    /// Where this one listens for datagrams; `None`: at the address and port where it serves clients.
    pub listen: Option<SocketAddr>,
    /// The secrets that they share.
    pub key: PeerKey,
    /// How long a Manager keeps the cell that the leader holds, unless it renews it.
    pub lease: Duration,
    /// The most by which two Managers' clocks differ.
    pub epsilon: Duration,
    /// How long two round trips between Managers may take.
    pub round: Duration,
    /// How far the Managers' clock is ahead of the machines': zero, unless the machines' clocks were ahead and were set back (ADR 17).
    pub clock_ahead: Duration,
}

impl PeerOptions {
    /// The lease of the leader's cell, unless set.
    pub const LEASE: Duration = Duration::from_secs(5);
    /// The most by which clocks differ, unless set.
    pub const EPSILON: Duration = Duration::from_millis(250);
    /// How long a round may take, unless set.
    pub const ROUND: Duration = Duration::from_secs(1);
    /// The most by which the Managers' clock can be ahead: ten years. Terms last until the year 2554.
    pub const MAX_CLOCK_AHEAD: Duration = Duration::from_secs(10 * 366 * 24 * 3_600);

    /// The usual times.
    #[must_use]
    pub fn new(peers: Peers, me: u16, key: PeerKey) -> PeerOptions {
        let (lease, epsilon, round) = (Self::LEASE, Self::EPSILON, Self::ROUND);
        PeerOptions { peers, me, listen: None, key, lease, epsilon, round, clock_ahead: Duration::ZERO }
    }

    /// The address where clients find this Manager, which is its name.
    #[must_use]
    pub fn own_address(&self) -> &str {
        self.peers.address(self.me).unwrap_or_default()
    }

    /// What the election is told.
    #[must_use]
    pub fn election(&self) -> ElectionConfig {
        let ids = self.peers.iter().map(|(peer, _)| PeerId(peer));
        let flease = FleaseConfig::new(PeerId(self.me), ids).with_times(self.lease, self.epsilon, self.round);
        let window = (self.epsilon * 2).min(self.lease / 8);
        let manager = |(peer, address): (u16, &str)| (PeerId(peer), ManagerId::from(address));
        ElectionConfig {
            flease: FleaseConfig { window, ..flease },
            managers: self.peers.iter().map(manager).collect(),
        }
    }
}

/// The secrets that Managers share. Each gives two keys: one for the datagrams between them, and one for the warrants
/// that Owners keep. Clones change together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerKey {
    ring: KeyRing,
    file: Option<PathBuf>,
}

impl PeerKey {
    /// Secrets as a file has them, which stay as they are.
    pub fn new(bytes: &[u8]) -> Result<PeerKey, SecretError> {
        Ok(PeerKey { ring: KeyRing::parse(bytes)?, file: None })
    }

    /// Secrets in a file, which a running Manager follows.
    pub fn open(file: &Path) -> Result<PeerKey, KeyFileError> {
        let opened = KeyFile::open(file)?;
        Ok(PeerKey { ring: opened.ring().clone(), file: Some(file.to_owned()) })
    }

    /// The secrets in force.
    #[must_use]
    pub fn ring(&self) -> &KeyRing {
        &self.ring
    }

    /// The file that they follow, if any.
    #[must_use]
    pub fn watched(&self) -> Option<KeyFile> {
        self.file.clone().map(|path| KeyFile::for_ring(path, self.ring.clone()))
    }
}
