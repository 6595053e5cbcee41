//! Faults aimed at leaders or at peers, again and again, so that what is wrong with them has consequences.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

use super::addresses::{Node, Part};
use super::faults::{Cure, Cures};
use super::launch::Pool;
use crate::bug::{Bug, Trouble};
use crate::proxy::LinkFaults;

/// The pause before the harness looks again for somebody who leads.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// How long a Manager is away that leads in place of another.
const AWAY: Duration = Duration::from_millis(2_500);
/// An Owner is killed this long before a leader that must decide something is struck: its hold is over a little
/// later, when the leader may still act.
const BEFORE: Duration = Duration::from_millis(2_500);
/// It comes back this long after the strike, while its keys are given to others.
const SOON: Duration = Duration::from_millis(900);
/// One that is killed with the strike comes back this long after it: the next leader finds other Owners than the last
/// had.
const LATE: Duration = Duration::from_millis(10_000);
/// The next leader is killed this long after the strike, when the last one has written what it could.
const WRITTEN: Duration = Duration::from_millis(2_100);
/// An Owner whose next process takes over from it is away for this long.
const MOMENT: Duration = Duration::from_millis(200);

/// How long peers are divided: some leases, and a recovery.
const SPLIT_LENGTH: Duration = Duration::from_millis(7_500);
/// When every peer has been renewed or has given up, with the votes of those whom it reaches.
const SETTLE_TIME: Duration = Duration::from_millis(3_500);

/// An Owner whose next process takes over from it.
const NEWCOMER: Node = Node { part: Part::Owner, index: 0 };

/// What is done to the leader or to the peers, in rounds.
pub(super) struct TargetedFaults {
    trouble: Trouble,
    /// Only this Manager's leadership is of interest.
    of: Option<u8>,
    due: Instant,
    /// Whom the next strike is for: what there is to decide for it was brought about.
    leader: Option<u8>,
    round: usize,
}

impl TargetedFaults {
    /// What a bug needs to be seen, if the usual faults do not show it.
    pub(super) fn of(bug: Bug) -> Option<TargetedFaults> {
        let of = (bug == Bug::OutlivedLeader).then_some(0);
        Some(TargetedFaults { trouble: bug.trouble()?, of, due: Instant::now(), leader: None, round: 0 })
    }

    /// What the report calls it.
    pub(super) fn name(&self) -> &'static str {
        self.label().0
    }

    /// What the report calls it, how many milliseconds ways are cut, and how many are from one strike to the next.
    fn label(&self) -> (&'static str, u64, u64) {
        match self.trouble {
            // Longer than it takes the next leader to give the keys of those to others whom it does not hear.
            Trouble::CutOff => ("leader-cut-off", 16_000, 29_000),
            Trouble::Deposed => ("leader-deposed", 7_000, 15_000),
            Trouble::Undecided => ("leader-cut-off-undecided", 6_000, 17_000),
            Trouble::Overwritten => ("leader-deposed-unanswered", 2_500, 12_000),
            Trouble::SharedVoterDies => ("shared-voter-dies", 7_500, 10_000),
            Trouble::DoubledMinority => ("doubled-minority", 7_500, 10_000),
        }
    }

    /// Does what is due. True if that was a strike.
    pub(super) async fn step(&mut self, pool: &mut Pool, cures: &mut Cures) -> io::Result<bool> {
        if Instant::now() < self.due {
            return Ok(false);
        }
        if matches!(self.trouble, Trouble::SharedVoterDies | Trouble::DoubledMinority) {
            self.strike_peers(pool, cures)?;
            return Ok(true);
        }
        if let Some(leader) = self.leader.take() {
            self.strike(pool, leader, cures)?;
            return Ok(true);
        }
        let found = pool.operator.leader().await;
        let now = Instant::now();
        self.due = now + POLL_INTERVAL;
        let Some((leader, _)) = found else { return Ok(false) };
        if self.of.is_some_and(|wanted| wanted != leader) {
            let other = Part::Manager.node(leader);
            pool.kill(other)?;
            cures.push((now + AWAY, Cure::Restart(other)));
            return Ok(false);
        }
        self.leader = Some(leader);
        self.due = now;
        // The leader must have something to decide when it is struck.
        if matches!(self.trouble, Trouble::Undecided | Trouble::Overwritten) {
            self.due = now + BEFORE;
            kill_owner(pool, now + BEFORE + SOON, cures)?;
        }
        Ok(false)
    }

    /// Cuts ways, and says when. The next strike comes in its time.
    fn cut(&mut self, pool: &mut Pool, ways: Vec<(Node, Node)>, cures: &mut Cures) -> io::Result<Instant> {
        let (now, (_, cut, every)) = (Instant::now(), self.label());
        for (from, to) in ways {
            pool.cut(from, to)?;
            cures.push((now + Duration::from_millis(cut), Cure::Heal(from, to)));
        }
        self.due = now + Duration::from_millis(every);
        Ok(now)
    }

    fn strike_peers(&mut self, pool: &mut Pool, cures: &mut Cures) -> io::Result<()> {
        let mut peers = Node::all(pool.plan.sizes);
        self.round += 1;
        let turns = self.round % peers.len().max(1);
        peers.rotate_left(turns);
        // Both sides have a majority with its vote, and nobody else tells one of the other.
        let shared = peers.pop_if(|_| self.trouble == Trouble::SharedVoterDies);
        let (one, other) = peers.split_at(peers.len() / 2);
        let now = self.cut(pool, [pairs(one, other), pairs(other, one)].concat(), cures)?;
        cures.extend(shared.map(|shared| (now + SETTLE_TIME, Cure::Kill(shared))));
        if self.trouble == Trouble::DoubledMinority {
            let doubled = LinkFaults { doubled: 100, ..LinkFaults::NONE };
            for (from, to) in pairs(&peers, &peers) {
                pool.set_link_faults(from, to, Some(doubled), SPLIT_LENGTH)?;
                cures.push((now + SPLIT_LENGTH, Cure::Clear(from, to)));
            }
        }
        Ok(())
    }

    fn strike(&mut self, pool: &mut Pool, leader: u8, cures: &mut Cures) -> io::Result<()> {
        let me = Part::Manager.node(leader);
        let answers_only = self.trouble == Trouble::Overwritten;
        let mut ways = Vec::new();
        if matches!(self.trouble, Trouble::CutOff | Trouble::Deposed) {
            ways.extend(divided(pool, me).into_iter().flat_map(|(one, other)| [(one, other), (other, one)]));
        }
        if answers_only {
            ways.extend([(NEWCOMER, me), (me, NEWCOMER)]);
        }
        for etcd in Part::Etcd.nodes(pool.plan.sizes.etcd) {
            ways.push((etcd, me));
            ways.extend((!answers_only).then_some((me, etcd)));
        }
        let now = self.cut(pool, ways, cures)?;
        if matches!(self.trouble, Trouble::Deposed | Trouble::Overwritten) {
            pool.depose()?;
        }
        if self.trouble == Trouble::Undecided {
            kill_owner(pool, now + LATE, cures)?;
        }
        if self.trouble == Trouble::Overwritten {
            // It joins the next leader and is granted something at once, which must not be forgotten.
            pool.kill(NEWCOMER)?;
            cures.push((now + MOMENT, Cure::Restart(NEWCOMER)));
            let others = Part::Manager.nodes(pool.plan.sizes.managers).filter(|other| *other != me);
            cures.extend(others.map(|other| (now + WRITTEN, Cure::Kill(other))));
        }
        Ok(())
    }
}

/// Kills an Owner whose next process does not take over from it, so that its leases run out.
fn kill_owner(pool: &mut Pool, back: Instant, cures: &mut Cures) -> io::Result<()> {
    let is_one = |node: &Node| node.part == Part::Owner && node.index % 2 == 1;
    if let Some(owner) = pool.available().into_iter().find(is_one) {
        pool.kill(owner)?;
        cures.push((back, Cure::Restart(owner)));
    }
    Ok(())
}

/// Every second Owner reaches no Manager but the leader, and the others all but that one.
fn divided(pool: &Pool, leader: Node) -> Vec<(Node, Node)> {
    let managers: Vec<Node> = Part::Manager.nodes(pool.plan.sizes.managers).collect();
    let owners: Vec<Node> = Part::Owner.nodes(pool.plan.sizes.owners).collect();
    let is_apart = |owner: Node, manager: Node| owner.index.is_multiple_of(2) == (manager == leader);
    pairs(&owners, &managers).into_iter().filter(|(owner, manager)| is_apart(*owner, *manager)).collect()
}

fn pairs(from: &[Node], to: &[Node]) -> Vec<(Node, Node)> {
    let all = from.iter().flat_map(|from| to.iter().map(|to| (*from, *to)));
    all.filter(|(from, to)| from != to).collect()
}
