//! What peers say to each other about cells, before any wire format.

use std::fmt;
use std::sync::Arc;

use crate::id::{NameError, Nonce};
use crate::injected_bug::{Bug, injected};
use crate::text::unprintable_in;
use crate::time::Instant;

/// A peer, by its number; no two peers have the same, by configuration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PeerId(pub u16);

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

/// What one round goes by: the proposer's clock at its start, and the proposer. Ballots have a total order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ballot {
    /// When the round started, by the proposer's clock.
    pub time: Instant,
    /// The proposer.
    pub peer: PeerId,
}

impl Ballot {
    /// The ballot before the first.
    pub const ZERO: Ballot = Ballot { time: Instant::ZERO, peer: PeerId(0) };

    /// Whether it is above another: by time, then by peer.
    ///
    /// The paper takes times within epsilon for equal (Flease §3.6). That is no order: with epsilon 2, (5, p1) would be below
    /// (3, p2), that below (1, p3), and that below (5, p1).
    #[must_use]
    pub fn is_above(self, other: Ballot) -> bool {
        let are_near = self.time.0.abs_diff(other.time.0) <= 1_000_000_000 && self.peer != other.peer;
        if injected(Bug::FleaseBallotRanges) && are_near { self.peer > other.peer } else { self > other }
    }
}

impl fmt::Debug for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.time, self.peer)
    }
}

/// One life of one peer: a restarted holder is somebody else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Holder {
    /// The peer.
    pub peer: PeerId,
    /// The nonce that its process drew at its start.
    pub incarnation: Nonce,
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.peer, self.incarnation)
    }
}

/// A lease, as registers keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Lease {
    /// Who holds it, if the write that carries it committed.
    pub holder: Holder,
    /// The ballot of the round that acquired it; renewals keep it. It is what applications fence with: it rises with
    /// every acquisition of the cell.
    pub epoch: Ballot,
    /// When it ends: the holder counts by its own clock, everybody else adds epsilon.
    pub until: Instant,
}

/// What can be leased: a name, and the peers that vote on it. Another set of members makes another cell.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Cell {
    name: Arc<str>,
    /// Sorted; `None` stands for all peers.
    members: Option<Arc<[PeerId]>>,
}

impl Cell {
    /// The most bytes of a cell's name.
    pub const MAX_LEN: usize = 253;

    /// A cell on which all peers vote. Its name is not empty, not too long and has no unprintable character.
    pub fn new(name: &str) -> Result<Cell, NameError> {
        if name.is_empty() || name.len() > Self::MAX_LEN {
            return Err(NameError::Length { at_most: Self::MAX_LEN });
        }
        if let Some(character) = unprintable_in(name) {
            return Err(NameError::Unprintable { character });
        }
        Ok(Cell { name: name.into(), members: None })
    }

    /// The cell of that name on which these peers vote, and which only they can hold.
    #[must_use]
    pub fn among(self, members: impl IntoIterator<Item = PeerId>) -> Cell {
        let mut members: Vec<PeerId> = members.into_iter().collect();
        members.sort_unstable();
        members.dedup();
        Cell { members: Some(members.into()), ..self }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The peers that it names, in order; `None` if all vote.
    #[must_use]
    pub fn named_members(&self) -> Option<&[PeerId]> {
        self.members.as_deref()
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.members.as_ref().map_or(Ok(()), |members| write!(f, "{members:?}"))
    }
}

/// One request or reply of one round (Flease Alg. 1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Message {
    /// The cell whose register is meant.
    pub cell: Cell,
    /// The round.
    pub ballot: Ballot,
    /// What is asked or answered.
    pub body: Body,
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Body {
    /// Asks for the lease in the register, and for the promise to take part in no lower round.
    Read,
    /// The promise, and what is in the register.
    ReadAck {
        /// The ballot that wrote it.
        written: Ballot,
        /// The lease, if the last write was one.
        lease: Option<Lease>,
    },
    /// Asks to write a lease, or that there is none.
    Write(Option<Lease>),
    /// It is written.
    WriteAck,
    /// A higher ballot was there first.
    Nack {
        /// That ballot.
        promised: Ballot,
    },
}

/// Everything that one step of one peer has to say to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Packet {
    /// Stands for all on which the two must agree; see `FleaseConfig::agreement`.
    pub agreement: u64,
    /// The sender's clock when it was sent.
    pub sent: Instant,
    /// The receiver's clock in the latest packet of its that the sender has; zero if it has none.
    pub echo: Instant,
    /// Whether an answer is wanted though there is nothing to say: for the clocks.
    pub probe: bool,
    /// The messages.
    pub messages: Vec<Message>,
}
