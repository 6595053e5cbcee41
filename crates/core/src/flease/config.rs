//! What a peer is told at its start, and what is refused because the guarantees would not hold.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

use super::message::{Cell, PeerId};

/// What a peer is told at its start. All but `me`, `recovery` and `window` must be the same at all peers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct FleaseConfig {
    /// Which of the peers this is.
    pub me: PeerId,
    /// All peers, in order.
    pub peers: Arc<[PeerId]>,
    /// How long a lease lasts from the start of the round that wrote it: the paper's tmax.
    pub lease: Duration,
    /// The most by which two peers' clocks differ at any time.
    pub epsilon: Duration,
    /// How long a round may take, both of its round trips together.
    pub round: Duration,
    /// How long a peer takes no part after its start.
    pub recovery: Duration,
    /// The random delay before a round that others may want to start at the same time is at most this; failures make it
    /// longer. Below twice epsilon the fastest clock wins more often than the others.
    pub window: Duration,
}

impl FleaseConfig {
    /// The default times: leases of 10 s among clocks that differ by half a second at most.
    #[must_use]
    pub fn new(me: PeerId, peers: impl IntoIterator<Item = PeerId>) -> FleaseConfig {
        let mut peers: Vec<PeerId> = peers.into_iter().collect();
        peers.sort_unstable();
        let (lease, epsilon) = (Duration::from_secs(10), Duration::from_millis(500));
        let round = Duration::from_secs(2);
        FleaseConfig {
            me,
            peers: peers.into(),
            lease,
            epsilon,
            round,
            recovery: shortest_recovery(lease, epsilon, round),
            window: epsilon * 2,
        }
    }

    /// The same with other times, and the recovery that they ask for.
    #[must_use]
    pub fn with_times(self, lease: Duration, epsilon: Duration, round: Duration) -> FleaseConfig {
        FleaseConfig { lease, epsilon, round, recovery: shortest_recovery(lease, epsilon, round), ..self }
    }

    /// Refuses what would let two peers hold a cell, or nobody.
    pub fn check(&self) -> Result<(), FleaseConfigError> {
        let rises = self.peers.windows(2).all(|pair| pair[0] < pair[1]);
        if !rises {
            return Err(FleaseConfigError::PeersNotInOrder);
        }
        if !self.peers.contains(&self.me) {
            return Err(FleaseConfigError::NotAPeer(self.me));
        }
        if self.round.is_zero() {
            return Err(FleaseConfigError::NoRound);
        }
        if self.lease <= self.epsilon.saturating_mul(2).saturating_add(self.round) {
            return Err(FleaseConfigError::LeaseTooShort);
        }
        if self.recovery < shortest_recovery(self.lease, self.epsilon, self.round) {
            return Err(FleaseConfigError::RecoveryTooShort);
        }
        if self.window > self.lease / 8 {
            return Err(FleaseConfigError::WindowTooLong);
        }
        Ok(())
    }

    /// How old the round of a request may be when it arrives: it may take its time, and come from a slow clock.
    #[must_use]
    pub fn oldest(&self) -> Duration {
        self.round.saturating_add(self.epsilon)
    }

    /// The peers that vote on a cell.
    #[must_use]
    pub fn members<'a>(&'a self, cell: &'a Cell) -> &'a [PeerId] {
        cell.named_members().unwrap_or(&self.peers)
    }

    /// Whether all members of a cell are peers, and this peer is one of them.
    #[must_use]
    pub fn takes_part(&self, cell: &Cell) -> bool {
        let members = self.members(cell);
        members.binary_search(&self.me).is_ok() && members.iter().all(|peer| self.peers.contains(peer))
    }

    /// Stands for everything on which peers must agree: a packet with another number is refused.
    #[must_use]
    pub fn agreement(&self) -> u64 {
        let times = [self.lease, self.epsilon, self.round].map(|time| time.as_nanos().to_le_bytes());
        let peers = self.peers.iter().flat_map(|peer| peer.0.to_le_bytes());
        let bytes: Vec<u8> = times.into_iter().flatten().chain(peers).collect();
        xxh3_64(&bytes)
    }
}

/// How long what a peer voted for before it died may matter: lease + 2 epsilon + the oldest message that is accepted
/// (protocol §9.4).
fn shortest_recovery(lease: Duration, epsilon: Duration, round: Duration) -> Duration {
    let oldest = round.saturating_add(epsilon);
    lease.saturating_add(epsilon.saturating_mul(2)).saturating_add(oldest)
}

/// Why a configuration is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FleaseConfigError {
    /// The list of peers is not sorted, or has a peer twice.
    PeersNotInOrder,
    /// The list of peers lacks this one.
    NotAPeer(PeerId),
    /// There is no time for a round.
    NoRound,
    /// A lease does not outlast the difference of clocks and a round.
    LeaseTooShort,
    /// What was voted for before a restart may matter after it.
    RecoveryTooShort,
    /// Random delays may cost the holder its lease.
    WindowTooLong,
}

impl fmt::Display for FleaseConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FleaseConfigError::PeersNotInOrder => "peers must be in order, each once: sort the list",
            FleaseConfigError::NotAPeer(me) => return write!(f, "{me} is not on the list of peers: add it"),
            FleaseConfigError::NoRound => {
                "round must not be zero: a round takes two round trips of the network"
            }
            FleaseConfigError::LeaseTooShort => {
                "lease must exceed 2 x epsilon + round: lengthen lease or shorten the others"
            }
            FleaseConfigError::RecoveryTooShort => {
                "recovery must be at least lease + 3 x epsilon + round: lengthen recovery"
            }
            FleaseConfigError::WindowTooLong => "window must be at most lease / 8: shorten window",
        })
    }
}

impl std::error::Error for FleaseConfigError {}
