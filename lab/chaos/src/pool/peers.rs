//! Flease peers: what each wants, how its clock wanders, and when all of them have begun.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use centrifuge_harness::Rng;
use centrifuge_harness::wait::poll;
use centrifuge_net::clock::{Astray, Wander};

use super::addresses::{Node, Part};
use super::launch::Pool;
use super::network::peer_id;
use crate::lines::{self, PeerLine, nanos, true_now};
use crate::plan::{EPSILON, ROUND, World};
use crate::roles::PeerRole;

/// The pause before the harness looks again.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// So many of a hundred lives have a clock that goes astray.
const ASTRAY: u64 = 30;
/// A clock is astray for at least this long, and at most twice.
const ASTRAY_FOR: Duration = Duration::from_secs(6);

impl Pool {
    /// Starts every peer, and waits until every cell has been held.
    pub(super) async fn peers_come_up(&mut self, timeout: Duration) -> io::Result<()> {
        for node in Node::all(self.plan.sizes) {
            self.start_process(node)?;
        }
        let wanted = self.plan.sizes.keys as usize;
        let all_held = async || match self.held_cells() {
            Ok(held) if held.len() < wanted => None,
            held => Some(held.map(drop)),
        };
        let late = || io::Error::other(format!("not all of {wanted} cells were acquired within {timeout:?}"));
        poll(POLL_INTERVAL, timeout, all_held).await.ok_or_else(late)?
    }

    /// The cells that the first processes have held.
    fn held_cells(&self) -> io::Result<BTreeSet<u32>> {
        let mut held = BTreeSet::new();
        for node in Node::all(self.plan.sizes) {
            let path = self.plan.directory.join(format!("{node}.1.jsonl"));
            // It may not have begun to write.
            let lines: Vec<PeerLine> = if path.exists() { lines::read(&path)? } else { Vec::new() };
            held.extend(lines.iter().filter_map(|line| match line {
                PeerLine::Held { cell, .. } => Some(*cell),
                _ => None,
            }));
        }
        Ok(held)
    }

    pub(super) fn peer_role(&self, index: u8, life: u32) -> PeerRole {
        let (sizes, id) = (self.plan.sizes, peer_id(index));
        let members = |cell: u32| (cell, members_of(cell, sizes.peers));
        let is_mine = |(_, members): &(u32, Vec<u16>)| members.is_empty() || members.contains(&id);
        PeerRole {
            id,
            peers: self.network.peers_of(index, sizes),
            cells: (0..sizes.keys).map(members).filter(is_mine).collect(),
            seed: self.plan.seed << 32 | u64::from(id) << 16 | u64::from(life),
        }
    }

    /// How the clock of a peer's next life wanders. Any two are within epsilon, unless one is astray.
    pub(super) fn wander_of(&mut self, node: Node) -> Option<Wander> {
        if self.plan.world == World::Diskless && self.plan.is_skewed && node.part == Part::Manager {
            return Some(within_epsilon(&mut self.rng));
        }
        if node.part != Part::Peer {
            return None;
        }
        let mut wander = within_epsilon(&mut self.rng);
        let (now, is_drawn) = (true_now(), self.rng.percent(ASTRAY));
        if is_drawn && self.plan.bug.is_none() && self.astray_until < now {
            let recovery = self.plan.times.lease + EPSILON * 3 + ROUND;
            let astray = astray(&mut self.rng, now, recovery);
            self.astray_until = astray.over_at() + nanos(recovery + ASTRAY_FOR);
            wander.astray = Some(astray);
        }
        Some(wander)
    }
}

/// Who votes on a cell; nobody named: all. Every third names three peers.
fn members_of(cell: u32, peers: u8) -> Vec<u16> {
    if !cell.is_multiple_of(3) || peers <= 3 {
        return Vec::new();
    }
    let at = |place: u32| u16::try_from((cell / 3 + place) % u32::from(peers)).unwrap_or(0) + 1;
    let mut members = [0, 1, 3].map(at).to_vec();
    members.sort_unstable();
    members.dedup();
    members
}

/// To and fro between the edges, or at one edge, or anywhere between: always within half of epsilon of true time, and
/// a little less, because two readings take a moment.
fn within_epsilon(rng: &mut Rng) -> Wander {
    let edge = i64::try_from(EPSILON.as_nanos()).unwrap_or(0) * 48 / 100;
    let share = i64::try_from(rng.below(101)).unwrap_or(0);
    let swing = match rng.below(3) {
        0 => edge,
        1 => 0,
        _ => edge * share / 100,
    };
    let sign = |rng: &mut Rng| if rng.percent(50) { 1 } else { -1 };
    let ahead = (edge - swing) * sign(rng);
    let period = nanos(rng.between(Duration::from_millis(2_400), Duration::from_millis(6_000)));
    Wander { ahead, swing: swing * sign(rng), period, astray: None }
}

/// Some from their start on, ahead or behind; the others later, by a jump ahead.
fn astray(rng: &mut Rng, now: u64, recovery: Duration) -> Astray {
    let by = nanos(rng.between(EPSILON * 5, EPSILON * 12)).cast_signed();
    let length = nanos(rng.between(ASTRAY_FOR, ASTRAY_FOR * 2));
    if rng.percent(50) {
        let ahead = if rng.percent(50) { by } else { -by };
        return Astray { from: 0, until: now + length, ahead };
    }
    let from = now + nanos(rng.between(recovery, recovery + ASTRAY_FOR));
    Astray { from, until: from + length, ahead: by }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_stay_within_epsilon_and_reach_its_edges() {
        let mut rng = Rng::new(1);
        let (mut least, mut most) = (0, 0);
        for _ in 0..200 {
            let wander = within_epsilon(&mut rng);
            for at in 0..1_000 {
                let error = wander.error_at(at * 7_000_000);
                (least, most) = (least.min(error), most.max(error));
            }
        }
        let epsilon = nanos(EPSILON).cast_signed();
        assert!(most - least < epsilon && most - least > epsilon * 9 / 10, "{least} {most}");
    }

    #[test]
    fn a_third_of_the_cells_have_three_members_and_everybody_is_among_them() {
        let cells: Vec<Vec<u16>> = (0..40).map(|cell| members_of(cell, 5)).collect();
        assert_eq!(cells.iter().filter(|members| members.len() == 3).count(), 14);
        let named: BTreeSet<u16> = cells.into_iter().flatten().collect();
        assert_eq!(named, (1..=5).collect());
    }
}
