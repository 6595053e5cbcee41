//! Faults aimed at leaders, again and again, so that what is wrong with them has consequences.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

use super::addresses::Node;
use super::faults::Cure;
use super::launch::Pool;
use crate::bug::{Bug, LeaderTrouble};

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

/// An Owner whose next process takes over from it.
const NEWCOMER: Node = Node::Owner(0);

/// What is done to the leader, in rounds.
pub(super) struct TargetedFaults {
    trouble: LeaderTrouble,
    /// Only this Manager's leadership is of interest.
    of: Option<u8>,
    due: Instant,
    /// Whom the next strike is for: what there is to decide for it was brought about.
    leader: Option<u8>,
}

/// The lengths of a round.
struct Times {
    /// How long the leader is cut off from etcd.
    cut: Duration,
    /// From one strike to the next.
    every: Duration,
}

impl TargetedFaults {
    /// What a bug needs, if it concerns leaders.
    pub(super) fn of(bug: Bug) -> Option<TargetedFaults> {
        let trouble = bug.trouble()?;
        let of = (bug == Bug::OutlivedLeader).then_some(0);
        Some(TargetedFaults { trouble, of, due: Instant::now(), leader: None })
    }

    /// What the report calls it.
    pub(super) fn name(&self) -> &'static str {
        match self.trouble {
            LeaderTrouble::CutOff => "leader-cut-off",
            LeaderTrouble::Deposed => "leader-deposed",
            LeaderTrouble::Undecided => "leader-cut-off-undecided",
            LeaderTrouble::Overwritten => "leader-deposed-unanswered",
        }
    }

    fn times(&self) -> Times {
        let (cut, every) = match self.trouble {
            // Longer than it takes the next leader to give the keys of those to others whom it does not hear.
            LeaderTrouble::CutOff => (16_000, 29_000),
            LeaderTrouble::Deposed => (7_000, 15_000),
            LeaderTrouble::Undecided => (6_000, 17_000),
            LeaderTrouble::Overwritten => (2_500, 12_000),
        };
        Times { cut: Duration::from_millis(cut), every: Duration::from_millis(every) }
    }

    /// Whether the leader must have something to decide when it is struck.
    fn must_decide(&self) -> bool {
        !matches!(self.trouble, LeaderTrouble::CutOff | LeaderTrouble::Deposed)
    }

    /// Does what is due. True if that was a strike.
    pub(super) async fn step(
        &mut self,
        pool: &mut Pool,
        cures: &mut Vec<(Instant, Cure)>,
    ) -> io::Result<bool> {
        if Instant::now() < self.due {
            return Ok(false);
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
            pool.kill(Node::Manager(leader))?;
            cures.push((now + AWAY, Cure::Restart(Node::Manager(leader))));
            return Ok(false);
        }
        self.leader = Some(leader);
        self.due = now;
        if self.must_decide() {
            self.due = now + BEFORE;
            kill_owner(pool, now + BEFORE + SOON, cures)?;
        }
        Ok(false)
    }

    fn strike(&mut self, pool: &mut Pool, leader: u8, cures: &mut Vec<(Instant, Cure)>) -> io::Result<()> {
        let me = Node::Manager(leader);
        let mut ways = Vec::new();
        if matches!(self.trouble, LeaderTrouble::CutOff | LeaderTrouble::Deposed) {
            ways.extend(divided(pool, me).into_iter().flat_map(|(one, other)| [(one, other), (other, one)]));
        }
        if self.trouble == LeaderTrouble::Overwritten {
            ways.extend([(NEWCOMER, me), (me, NEWCOMER)]);
        }
        let answers_only = self.trouble == LeaderTrouble::Overwritten;
        for etcd in (0..pool.plan.sizes.etcd).map(Node::Etcd) {
            ways.push((etcd, me));
            ways.extend((!answers_only).then_some((me, etcd)));
        }
        for (from, to) in &ways {
            pool.cut(*from, *to)?;
        }
        let (now, times) = (Instant::now(), self.times());
        cures.extend(ways.into_iter().map(|(from, to)| (now + times.cut, Cure::Heal(from, to))));
        if matches!(self.trouble, LeaderTrouble::Deposed | LeaderTrouble::Overwritten) {
            pool.depose()?;
        }
        match self.trouble {
            LeaderTrouble::Undecided => kill_owner(pool, now + LATE, cures)?,
            LeaderTrouble::Overwritten => {
                // It joins the next leader and is granted something at once, which must not be forgotten.
                pool.kill(NEWCOMER)?;
                cures.push((now + MOMENT, Cure::Restart(NEWCOMER)));
                let others = (0..pool.plan.sizes.managers).map(Node::Manager).filter(|other| *other != me);
                cures.extend(others.map(|other| (now + WRITTEN, Cure::Kill(other))));
            }
            LeaderTrouble::CutOff | LeaderTrouble::Deposed => {}
        }
        self.due = now + times.every;
        Ok(())
    }
}

/// Kills an Owner whose next process does not take over from it, so that its leases run out.
fn kill_owner(pool: &mut Pool, back: Instant, cures: &mut Vec<(Instant, Cure)>) -> io::Result<()> {
    let is_one = |node: &Node| matches!(node, Node::Owner(index) if index % 2 == 1);
    if let Some(owner) = pool.available().into_iter().find(is_one) {
        pool.kill(owner)?;
        cures.push((back, Cure::Restart(owner)));
    }
    Ok(())
}

/// Every second Owner reaches no Manager but the leader, and the others all but that one.
fn divided(pool: &Pool, leader: Node) -> Vec<(Node, Node)> {
    let managers: Vec<Node> = (0..pool.plan.sizes.managers).map(Node::Manager).collect();
    let owners = (0..pool.plan.sizes.owners).map(Node::Owner);
    let is_apart = |owner: &Node, manager: &Node| owner.index().is_multiple_of(2) == (*manager == leader);
    owners
        .flat_map(|owner| managers.iter().map(move |manager| (owner, *manager)))
        .filter(|(owner, manager)| is_apart(owner, manager))
        .collect()
}
