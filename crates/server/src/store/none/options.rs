//! Which of the Managers this is, and what they share.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use centrifuge_core::election::ElectionConfig;
use centrifuge_core::flease::{FleaseConfig, PeerId};
use centrifuge_core::id::ManagerId;
use centrifuge_net::flease::{Peers, Secret, SecretError};
use centrifuge_net::warrants::WarrantKey;

/// Which of the Managers this is, and what they share. All but `me` and `listen` must be the same at all of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerOptions {
    /// Every Manager by its number, with the address where it serves clients and, by datagrams, the others.
    pub peers: Peers,
    /// The number of this one, which is among them.
    pub me: u16,
    /// Where this one listens for datagrams; `None`: at the address and port where it serves clients.
    pub listen: Option<SocketAddr>,
    /// The secret that they share.
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

/// The secret that Managers share. It gives two keys: one for the datagrams between them, and one for the warrants that Owners keep;
/// each is made from the secret with a label of its own.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PeerKey(Vec<u8>);

impl PeerKey {
    /// A secret of at least 16 bytes. White space around it does not count, so that it can be the content of a file.
    pub fn new(bytes: &[u8]) -> Result<PeerKey, SecretError> {
        let bytes = bytes.trim_ascii();
        Secret::new(bytes).map(|_| PeerKey(bytes.to_vec()))
    }

    /// The key of the datagrams between Managers.
    pub(super) fn datagrams(&self) -> Result<Secret, SecretError> {
        Secret::new(&self.0)
    }

    /// The key of the warrants that Owners keep.
    pub fn warrants(&self) -> Result<WarrantKey, SecretError> {
        WarrantKey::new(&self.0)
    }
}

impl fmt::Debug for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerKey(..)")
    }
}
