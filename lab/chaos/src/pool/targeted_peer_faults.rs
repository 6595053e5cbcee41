//! Faults aimed at peers, again and again, so that what is wrong with them has consequences.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

use super::addresses::Node;
use super::faults::Cure;
use super::launch::Pool;
use crate::bug::{Bug, PeerTrouble};
use crate::proxy::LinkFaults;

/// How long the peers are divided: some leases, and a recovery.
const SPLIT_LENGTH: Duration = Duration::from_millis(7_500);
/// When everybody has been renewed or has given up, with the votes of those whom it reaches.
const SETTLE_TIME: Duration = Duration::from_millis(3_500);
/// From one strike to the next.
const STRIKE_INTERVAL: Duration = Duration::from_millis(10_000);

/// What is done to the peers, in rounds.
pub(super) struct TargetedPeerFaults {
    trouble: PeerTrouble,
    due: Instant,
    round: u8,
}

impl TargetedPeerFaults {
    /// What a bug needs to be seen, if the usual faults do not show it.
    pub(super) fn of(bug: Bug) -> Option<TargetedPeerFaults> {
        Some(TargetedPeerFaults { trouble: bug.peer_trouble()?, due: Instant::now(), round: 0 })
    }

    /// What the report calls it.
    pub(super) fn name(&self) -> &'static str {
        match self.trouble {
            PeerTrouble::SharedVoterDies => "shared-voter-dies",
            PeerTrouble::DoubledMinority => "doubled-minority",
        }
    }

    /// Does what is due. True if that was a strike.
    pub(super) fn step(&mut self, pool: &mut Pool, cures: &mut Vec<(Instant, Cure)>) -> io::Result<bool> {
        let now = Instant::now();
        if now < self.due {
            return Ok(false);
        }
        self.due = now + STRIKE_INTERVAL;
        self.round = self.round.wrapping_add(1);
        let mut peers = Node::all(pool.plan.sizes);
        let turns = usize::from(self.round) % peers.len().max(1);
        peers.rotate_left(turns);
        match self.trouble {
            PeerTrouble::SharedVoterDies => {
                // Both sides have a majority with its vote, and nobody else tells one of the other.
                let Some(shared) = peers.pop() else { return Ok(false) };
                divide(pool, &peers, now, cures)?;
                cures.push((now + SETTLE_TIME, Cure::Kill(shared)));
            }
            PeerTrouble::DoubledMinority => {
                divide(pool, &peers, now, cures)?;
                let doubled = LinkFaults { doubled: 100, ..LinkFaults::NONE };
                for (from, to) in pairs(&peers, &peers) {
                    pool.set_link_faults(from, to, Some(doubled), SPLIT_LENGTH)?;
                    cures.push((now + SPLIT_LENGTH, Cure::Clear(from, to)));
                }
            }
        }
        Ok(true)
    }
}

/// Cuts the first half of them off from the rest.
fn divide(pool: &mut Pool, peers: &[Node], now: Instant, cures: &mut Vec<(Instant, Cure)>) -> io::Result<()> {
    let (one, other) = peers.split_at(peers.len() / 2);
    for (from, to) in pairs(one, other).into_iter().chain(pairs(other, one)) {
        pool.cut(from, to)?;
        cures.push((now + SPLIT_LENGTH, Cure::Heal(from, to)));
    }
    Ok(())
}

fn pairs(from: &[Node], to: &[Node]) -> Vec<(Node, Node)> {
    let all = from.iter().flat_map(|from| to.iter().map(|to| (*from, *to)));
    all.filter(|(from, to)| from != to).collect()
}
