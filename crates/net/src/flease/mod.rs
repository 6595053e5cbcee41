//! What Flease peers need of the real world: a clock that they share, and datagrams that nobody else can write.
//!
//! `docs/adr/0014-flease-transport.md` says why datagrams.

mod clock;
mod datagram;
mod peers;
mod socket;

pub use clock::{Deadline, Offset, SyncedClock};
pub use datagram::{Opened, Refused, open, seal};
pub use peers::{Peers, PeersError};
pub use socket::{PeerSocket, SocketCounters, SocketError};
