//! Planned operations: what operators and upgrades do to a pool. They overlap with each other and with faults, and
//! lose nothing.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use centrifuge_harness::Rng;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::addresses::{Node, Part};
use super::departures::{Return, Rolling};
use super::faults::Schedule;
use super::launch::Pool;
use super::operator::{Operator, Wish};
use crate::bug::Bug;
use crate::lines::{HarnessLine, true_now};
use crate::plan::World;
use crate::roles::set_weight;

/// A kind of planned operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    /// An Owner is told to end: it drains itself, and another process of its name comes.
    DrainRestart,
    /// An operator drains an Owner, and later restarts its process.
    OperatorDrain,
    /// An operator moves a range to an Owner, and cancels that later, or while it still moves.
    Move,
    Weight,
    /// No range moves for a while.
    Freeze,
    /// The leading Manager is told to end, and another process of its name comes.
    ResignLeader,
    RollingOwners,
    RollingManagers,
    /// Several Owners join at once, and leave again by draining themselves.
    JoinStorm,
}

/// How often each comes, on average, in milliseconds, and the names under which it is counted.
const TABLE: &[(Operation, u64, &[&str])] = &[
    (Operation::DrainRestart, 6_000, &["drain-restart"]),
    (Operation::OperatorDrain, 11_000, &["operator-drain"]),
    (Operation::Move, 3_000, &["operator-move", "cancel-move"]),
    (Operation::Weight, 5_000, &["set-weight"]),
    (Operation::Freeze, 10_000, &["freeze", "unfreeze"]),
    (Operation::ResignLeader, 13_000, &["resign-leader"]),
    (Operation::RollingOwners, 25_000, &["rolling-owners"]),
    (Operation::RollingManagers, 30_000, &["rolling-managers"]),
    (Operation::JoinStorm, 16_000, &["join-storm"]),
];

/// How long an operator tries to be heard.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// ... if what was begun must not stay.
const UNDO_TIMEOUT: Duration = Duration::from_secs(60);
/// A range that moves is one of so many equal parts of the key space.
const SHARES: u64 = 16;
/// What a server can carry, in percent of the usual.
const WEIGHTS: [u32; 4] = [25, 50, 100, 200];

/// What a request of an operator led to.
enum Answer {
    /// It was done.
    Done { name: &'static str, what: String },
    /// This Manager leads.
    Leader(u8),
}

/// The planned operations of a run.
pub(crate) struct Operations {
    rng: Rng,
    due: Schedule<Operation>,
    counts: BTreeMap<String, u64>,
    answers: mpsc::UnboundedReceiver<Answer>,
    answer_to: mpsc::UnboundedSender<Answer>,
    /// Owners that are told to end later: one that an operator drains, and those of a join storm.
    leaving: Vec<(Instant, Node, Return)>,
    owners: Option<Rolling>,
    managers: Option<Rolling>,
}

impl Operations {
    pub(crate) fn new(mut rng: Rng, pool: &Pool) -> Operations {
        let (answer_to, answers) = mpsc::unbounded_channel();
        // What is wrong on purpose is looked for where nothing else happens.
        let is_on =
            pool.plan.world != World::Flease && pool.plan.bug.is_none_or(|bug| bug == Bug::HastyOwner);
        let table = if is_on { TABLE } else { &[] };
        let names = table.iter().flat_map(|(_, _, names)| *names);
        let means = table.iter().map(|(operation, mean, _)| (*operation, Duration::from_millis(*mean)));
        Operations {
            counts: names.map(|name| ((*name).to_owned(), 0)).collect(),
            due: Schedule::new(means, &mut rng),
            rng,
            answers,
            answer_to,
            leaving: Vec::new(),
            owners: None,
            managers: None,
        }
    }

    /// How many of each there were.
    pub(crate) fn counts(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }

    /// Does what is due.
    pub(crate) fn step(&mut self, pool: &mut Pool) -> io::Result<()> {
        let now = Instant::now();
        while let Ok(answer) = self.answers.try_recv() {
            self.take(pool, answer)?;
        }
        self.leave(pool, now)?;
        for operation in self.due.take_due(now, &mut self.rng) {
            self.begin(pool, operation, now)?;
        }
        self.roll(pool)
    }

    /// Begins nothing more. What an operator drained is restarted.
    pub(crate) fn end(&mut self, pool: &mut Pool) -> io::Result<()> {
        let drained =
            std::mem::take(&mut self.leaving).into_iter().filter(|(_, node, _)| !pool.is_joiner(*node));
        let drained: Vec<_> = drained.collect();
        drained.into_iter().try_for_each(|(_, node, next)| pool.ask_to_leave(node, next))
    }

    fn count(&mut self, name: &str) {
        *self.counts.entry(name.to_owned()).or_default() += 1;
    }

    fn take(&mut self, pool: &mut Pool, answer: Answer) -> io::Result<()> {
        match answer {
            Answer::Done { name, what } => {
                self.count(name);
                pool.note(HarnessLine::Operated { what, at: true_now() })
            }
            Answer::Leader(manager) if pool.are_managers_settled() => {
                self.count("resign-leader");
                let away = self.rng.between(Duration::ZERO, Duration::from_secs(1));
                pool.ask_to_leave(Part::Manager.node(manager), Return::After(away))
            }
            Answer::Leader(_) => Ok(()),
        }
    }

    fn leave(&mut self, pool: &mut Pool, now: Instant) -> io::Result<()> {
        let due: Vec<_> = self.leaving.extract_if(.., |(at, _, _)| *at <= now).collect();
        due.into_iter().try_for_each(|(_, node, next)| pool.ask_to_leave(node, next))
    }

    fn roll(&mut self, pool: &mut Pool) -> io::Result<()> {
        let rounds = [(&mut self.owners, "rolling-owners"), (&mut self.managers, "rolling-managers")];
        for (round, name) in rounds {
            if let Some(rolling) = round
                && rolling.step(pool, &mut self.rng)?
            {
                *round = None;
                *self.counts.entry(name.to_owned()).or_default() += 1;
            }
        }
        Ok(())
    }

    fn begin(&mut self, pool: &mut Pool, operation: Operation, now: Instant) -> io::Result<()> {
        match operation {
            Operation::DrainRestart => self.drain_restart(pool)?,
            Operation::OperatorDrain => self.operator_drain(pool, now),
            Operation::Move => self.move_range(pool),
            Operation::Weight => self.weigh(pool),
            Operation::Freeze => self.freeze(pool),
            Operation::ResignLeader => self.find_leader(pool),
            Operation::RollingOwners if self.owners.is_none() => {
                self.owners = Some(Rolling::new(Part::Owner, pool));
            }
            Operation::RollingManagers if self.managers.is_none() => {
                self.managers = Some(Rolling::new(Part::Manager, pool));
            }
            Operation::RollingOwners | Operation::RollingManagers => {}
            Operation::JoinStorm => self.join_storm(pool, now)?,
        }
        Ok(())
    }

    /// An Owner that can go: half of them stay.
    fn dispensable(&mut self, pool: &Pool) -> Option<Node> {
        let is_leaving = |node: &Node| self.leaving.iter().any(|(_, leaving, _)| leaving == node);
        let staying: Vec<Node> =
            pool.staying(Part::Owner).into_iter().filter(|node| !is_leaving(node)).collect();
        let enough = usize::from(pool.plan.sizes.owners).div_ceil(2);
        if staying.len() > enough { self.rng.pick(staying) } else { None }
    }

    fn drain_restart(&mut self, pool: &mut Pool) -> io::Result<()> {
        let Some(owner) = self.dispensable(pool) else { return Ok(()) };
        self.count("drain-restart");
        let away = self.rng.between(Duration::ZERO, Duration::from_millis(1_500));
        pool.ask_to_leave(owner, Return::After(away))
    }

    fn operator_drain(&mut self, pool: &Pool, now: Instant) {
        let Some(owner) = self.dispensable(pool) else { return };
        let restart_at = now + self.rng.between(Duration::from_secs(1), Duration::from_secs(6));
        self.leaving.push((restart_at, owner, Return::After(Duration::ZERO)));
        let (operator, answer_to) = (pool.operator.clone(), self.answer_to.clone());
        tokio::spawn(async move {
            ask(&operator, "operator-drain", &Wish::Drain(owner.to_string()), REQUEST_TIMEOUT, &answer_to)
                .await;
        });
    }

    fn move_range(&mut self, pool: &Pool) {
        let Some(owner) = self.rng.pick(pool.staying(Part::Owner)) else { return };
        let width = u64::MAX / SHARES;
        let first = self.rng.below(SHARES) * width;
        let wish = |to| Wish::Move { first, last: first + width, to };
        let (there, back) = (wish(Some(owner.to_string())), wish(None));
        // Some are cancelled while the range still moves.
        let longest = if self.rng.percent(50) { 400 } else { 6_000 };
        let stay = self.rng.between(Duration::ZERO, Duration::from_millis(longest));
        self.there_and_back(pool, [("operator-move", there), ("cancel-move", back)], stay);
    }

    fn freeze(&mut self, pool: &Pool) {
        let stay = self.rng.between(Duration::from_millis(300), Duration::from_secs(3));
        self.there_and_back(pool, [("freeze", Wish::Freeze), ("unfreeze", Wish::Unfreeze)], stay);
    }

    /// Asks for something, and some time later that it be undone.
    fn there_and_back(&self, pool: &Pool, wishes: [(&'static str, Wish); 2], stay: Duration) {
        let (operator, answer_to) = (pool.operator.clone(), self.answer_to.clone());
        let [(doing, there), (undoing, back)] = wishes;
        tokio::spawn(async move {
            ask(&operator, doing, &there, REQUEST_TIMEOUT, &answer_to).await;
            tokio::time::sleep(stay).await;
            ask(&operator, undoing, &back, UNDO_TIMEOUT, &answer_to).await;
        });
    }

    fn weigh(&mut self, pool: &Pool) {
        let (Some(owner), Some(percent)) =
            (self.rng.pick(pool.staying(Part::Owner)), self.rng.pick(WEIGHTS.to_vec()))
        else {
            return;
        };
        let (address, answer_to) = (pool.addresses.application(owner.index), self.answer_to.clone());
        tokio::spawn(async move {
            let weighed = tokio::time::timeout(REQUEST_TIMEOUT, set_weight(address, percent)).await;
            if matches!(weighed, Ok(Ok(()))) {
                let what = format!("weight of {owner}: {percent} %");
                // The harness may be at its end.
                let _ = answer_to.send(Answer::Done { name: "set-weight", what });
            }
        });
    }

    fn find_leader(&self, pool: &Pool) {
        let (operator, answer_to) = (pool.operator.clone(), self.answer_to.clone());
        tokio::spawn(async move {
            if let Some((leader, _)) = operator.leader().await {
                let _ = answer_to.send(Answer::Leader(leader));
            }
        });
    }

    fn join_storm(&mut self, pool: &mut Pool, now: Instant) -> io::Result<()> {
        let sizes = pool.plan.sizes;
        let joiners: Vec<Node> =
            (sizes.owners..sizes.owners + sizes.joiners).map(|index| Part::Owner.node(index)).collect();
        let here: Vec<Node> =
            joiners.iter().copied().filter(|node| pool.running_life(*node).is_some()).collect();
        if !here.is_empty() {
            // Killed when it was to leave, and started again.
            return here.into_iter().try_for_each(|node| pool.ask_to_leave(node, Return::Never));
        }
        self.count("join-storm");
        for node in joiners {
            pool.start_process(node)?;
            let stay = self.rng.between(Duration::from_secs(3), Duration::from_secs(8));
            self.leaving.push((now + stay, node, Return::Never));
        }
        Ok(())
    }
}

/// Asks the Managers for something, and says if it was done.
async fn ask(
    operator: &Operator,
    name: &'static str,
    wish: &Wish,
    patience: Duration,
    answer_to: &mpsc::UnboundedSender<Answer>,
) {
    if operator.perform(wish, patience).await {
        let _ = answer_to.send(Answer::Done { name, what: wish.to_string() });
    }
}
