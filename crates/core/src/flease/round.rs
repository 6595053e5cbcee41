//! One round of one proposer: first it reads the register, then it writes it (Flease Alg. 1).

use super::message::{Ballot, Body, Lease, PeerId};
use crate::injected_bug::{Bug, injected};

/// A round. It commits a phase when a majority acknowledged it, and ends with the first refusal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Round {
    ballot: Ballot,
    phase: Phase,
    /// Who acknowledged this phase: each peer counts once.
    votes: Vec<PeerId>,
    majority: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Reading { written: Ballot, lease: Option<Lease> },
    Writing(Option<Lease>),
    Ended,
}

/// What a reply makes of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing yet.
    Waiting,
    /// The read committed with this value; a write may follow.
    Read(Option<Lease>),
    /// The write of this value committed.
    Written(Option<Lease>),
    /// The round was refused, because of this ballot.
    Aborted(Ballot),
}

impl Round {
    /// A round among `members` peers, before any reply to its reads.
    #[must_use]
    pub fn new(ballot: Ballot, members: usize) -> Round {
        let phase = Phase::Reading { written: Ballot::ZERO, lease: None };
        Round { ballot, phase, votes: Vec::new(), majority: members / 2 + 1 }
    }

    /// What it goes by.
    #[must_use]
    pub fn ballot(&self) -> Ballot {
        self.ballot
    }

    /// Whether it waits for replies to its reads.
    #[must_use]
    pub fn is_reading(&self) -> bool {
        matches!(self.phase, Phase::Reading { .. })
    }

    /// Goes on to write; replies to the reads count no more.
    pub fn write(&mut self, lease: Option<Lease>) {
        self.phase = Phase::Writing(lease);
        self.votes.clear();
    }

    /// Takes a reply of a peer to a request of this round.
    pub fn on_reply(&mut self, from: PeerId, reply: Body) -> Progress {
        match (&mut self.phase, reply) {
            (Phase::Ended, _) => return Progress::Waiting,
            (_, Body::Nack { promised }) if !injected(Bug::FleaseNackSwallowed) => {
                self.phase = Phase::Ended;
                return Progress::Aborted(promised);
            }
            (_, Body::Nack { .. }) | (Phase::Writing(_), Body::WriteAck) => {}
            (Phase::Reading { written, lease }, Body::ReadAck { written: other, lease: found }) => {
                if other.is_above(*written) {
                    (*written, *lease) = (other, found);
                }
            }
            _ => return Progress::Waiting,
        }
        self.count(from)
    }

    fn count(&mut self, from: PeerId) -> Progress {
        if self.votes.contains(&from) && !injected(Bug::FleaseAcksCountedTwice) {
            return Progress::Waiting;
        }
        self.votes.push(from);
        self.votes.sort_unstable();
        if self.votes.len() < self.majority {
            return Progress::Waiting;
        }
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Reading { lease, .. } => Progress::Read(lease),
            Phase::Writing(lease) => Progress::Written(lease),
            Phase::Ended => Progress::Waiting,
        }
    }
}
