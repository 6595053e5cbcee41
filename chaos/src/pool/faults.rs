//! What befalls a pool: drawn from the seed, every kind again and again.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use tokio::time::Instant;

use super::addresses::Node;
use super::launch::Pool;
use super::siege::Siege;
use crate::dice::Dice;
use crate::plan::StoreKind;
use crate::proxy::Weather;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Kill(Part),
    Stop(Part),
    /// Two machines at once, each with its node of etcd and its Manager.
    KillTwoMachines,
    CutOneWay,
    CutTwoWay,
    Storm,
    /// etcd forgets who leads.
    Depose,
}

/// A kind of process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Etcd,
    Manager,
    Owner,
    Caller,
}

/// How often each comes, on average; never less than two thirds as often, unless too many are away. Leaders are left alone for long
/// enough to grant something: a new one waits for a hold first.
const KINDS: &[(Kind, Duration)] = &[
    (Kind::Kill(Part::Owner), Duration::from_millis(5_000)),
    (Kind::Kill(Part::Manager), Duration::from_millis(20_000)),
    (Kind::Kill(Part::Caller), Duration::from_millis(15_000)),
    (Kind::Kill(Part::Etcd), Duration::from_millis(24_000)),
    (Kind::Stop(Part::Owner), Duration::from_millis(3_000)),
    (Kind::Stop(Part::Manager), Duration::from_millis(18_000)),
    (Kind::Stop(Part::Caller), Duration::from_millis(9_000)),
    (Kind::Stop(Part::Etcd), Duration::from_millis(24_000)),
    (Kind::KillTwoMachines, Duration::from_millis(20_000)),
    (Kind::Depose, Duration::from_millis(45_000)),
    (Kind::CutOneWay, Duration::from_millis(3_500)),
    (Kind::CutTwoWay, Duration::from_millis(5_000)),
    (Kind::Storm, Duration::from_millis(2_500)),
];

/// What ends a fault.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cure {
    Restart(Node),
    /// Ends with the process, and another is started.
    Kill(Node),
    Continue(Node),
    Heal(Node, Node),
    Clear(Node, u8),
}

/// The faults of a run.
pub(crate) struct Faults {
    dice: Dice,
    due: Vec<(Kind, Duration, Instant)>,
    cures: Vec<(Instant, Cure)>,
    counts: BTreeMap<String, u64>,
    longest_stop: Duration,
    /// What befalls leaders instead, if something is wrong with them on purpose.
    siege: Option<Siege>,
}

impl Kind {
    fn name(self) -> String {
        match self {
            Kind::Kill(part) => format!("kill-{}", part.name()),
            Kind::Stop(part) => format!("stop-{}", part.name()),
            Kind::KillTwoMachines => "kill-two-machines".to_owned(),
            Kind::CutOneWay => "cut-one-way".to_owned(),
            Kind::CutTwoWay => "cut-two-way".to_owned(),
            Kind::Storm => "storm".to_owned(),
            Kind::Depose => "depose-leader".to_owned(),
        }
    }

    /// Whether it can come at all. What is planted is looked for while the Managers are well: after a change of leaders nobody
    /// is granted anything for a hold, and much that is wrong stays without consequence.
    fn is_possible(self, pool: &Pool) -> bool {
        let has_etcd = pool.plan.store == StoreKind::Etcd;
        match self {
            Kind::Kill(Part::Manager | Part::Etcd)
            | Kind::Stop(Part::Manager | Part::Etcd)
            | Kind::Depose
                if pool.plan.plant.is_some() =>
            {
                false
            }
            Kind::Kill(Part::Etcd) | Kind::Stop(Part::Etcd) | Kind::Depose => has_etcd,
            Kind::KillTwoMachines => has_etcd && pool.plan.sizes.etcd >= 5,
            _ => true,
        }
    }
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Etcd => "etcd",
            Part::Manager => "manager",
            Part::Owner => "owner",
            Part::Caller => "caller",
        }
    }

    fn is_of(self, node: Node) -> bool {
        node.kind() == self.name()
    }

    /// How many may be away at once.
    fn most_away(self, pool: &Pool) -> usize {
        let sizes = pool.plan.sizes;
        usize::from(match self {
            Part::Etcd => sizes.etcd.saturating_sub(1) / 2,
            Part::Manager => sizes.managers.saturating_sub(1).max(1),
            Part::Owner => sizes.owners / 2,
            Part::Caller => sizes.callers / 2,
        })
    }
}

impl Faults {
    pub(crate) fn new(dice: Dice, pool: &Pool) -> Faults {
        let now = Instant::now();
        let mut faults = Faults {
            dice,
            due: Vec::new(),
            cures: Vec::new(),
            counts: BTreeMap::new(),
            longest_stop: pool.plan.times.lease * 5 / 2,
            siege: pool.plan.plant.and_then(Siege::of),
        };
        if let Some(siege) = &faults.siege {
            // Nothing else then: whatever happens beside it only keeps leaders from leading.
            faults.counts.insert(siege.name().to_owned(), 0);
            return faults;
        }
        for (kind, mean) in KINDS.iter().filter(|(kind, _)| kind.is_possible(pool)) {
            let first = now + faults.dice.between(Duration::ZERO, *mean);
            faults.due.push((*kind, *mean, first));
            faults.counts.insert(kind.name(), 0);
        }
        faults
    }

    /// How many of each kind there were.
    pub(crate) fn counts(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }

    /// Does what is due.
    pub(crate) async fn step(&mut self, pool: &mut Pool) -> io::Result<()> {
        let now = Instant::now();
        self.cure(pool, now)?;
        if let Some(siege) = &mut self.siege
            && siege.step(pool, &mut self.cures).await?
        {
            *self.counts.entry(siege.name().to_owned()).or_default() += 1;
        }
        for place in 0..self.due.len() {
            let (kind, mean, due) = self.due[place];
            if due <= now {
                self.due[place].2 = now + self.dice.between(mean / 2, mean * 3 / 2);
                if self.befall(pool, kind, now)? {
                    *self.counts.entry(kind.name()).or_default() += 1;
                }
            }
        }
        Ok(())
    }

    /// Ends every fault at once.
    pub(crate) fn end(&mut self, pool: &mut Pool) -> io::Result<()> {
        for (_, cure) in std::mem::take(&mut self.cures) {
            cure.apply(pool)?;
        }
        Ok(())
    }

    fn cure(&mut self, pool: &mut Pool, now: Instant) -> io::Result<()> {
        let due: Vec<(Instant, Cure)> = self.cures.extract_if(.., |(at, _)| *at <= now).collect();
        due.into_iter().try_for_each(|(_, cure)| cure.apply(pool))
    }

    /// Says whether it could be done.
    fn befall(&mut self, pool: &mut Pool, kind: Kind, now: Instant) -> io::Result<bool> {
        match kind {
            Kind::Kill(part) => {
                let Some(node) = self.victim(pool, part) else { return Ok(false) };
                self.kill(pool, node, now)?;
            }
            Kind::Stop(part) => {
                let Some(node) = self.victim(pool, part) else { return Ok(false) };
                let length = self.stop_length();
                pool.stop(node)?;
                self.cures.push((now + length, Cure::Continue(node)));
            }
            Kind::KillTwoMachines => return self.kill_two_machines(pool, now),
            Kind::CutOneWay => self.cut(pool, false, now)?,
            Kind::CutTwoWay => self.cut(pool, true, now)?,
            Kind::Storm => self.storm(pool, now)?,
            Kind::Depose => pool.depose()?,
        }
        Ok(true)
    }

    /// Somebody of a kind of whom not too many are away.
    fn victim(&mut self, pool: &Pool, part: Part) -> Option<Node> {
        let all = Node::all(pool.plan.sizes).into_iter().filter(|node| part.is_of(*node)).count();
        let here: Vec<Node> = pool.available().into_iter().filter(|node| part.is_of(*node)).collect();
        if all - here.len() >= part.most_away(pool) { None } else { self.dice.pick(here) }
    }

    fn kill(&mut self, pool: &mut Pool, node: Node, now: Instant) -> io::Result<()> {
        pool.kill(node)?;
        let away = self.dice.between(Duration::from_millis(100), Duration::from_secs(3));
        self.cures.push((now + away, Cure::Restart(node)));
        Ok(())
    }

    /// Only if no other node of etcd is away: two are the most that five survive.
    fn kill_two_machines(&mut self, pool: &mut Pool, now: Instant) -> io::Result<bool> {
        let here = pool.available();
        let etcd: Vec<Node> = here.iter().copied().filter(|node| Part::Etcd.is_of(*node)).collect();
        if etcd.len() < usize::from(pool.plan.sizes.etcd) {
            return Ok(false);
        }
        let Some(first) = self.dice.pick(etcd.clone()) else { return Ok(false) };
        let others = etcd.into_iter().filter(|node| *node != first).collect();
        let Some(second) = self.dice.pick(others) else { return Ok(false) };
        for machine in [first, second] {
            self.kill(pool, machine, now)?;
            if let Node::Etcd(index) = machine
                && here.contains(&Node::Manager(index))
            {
                self.kill(pool, Node::Manager(index), now)?;
            }
        }
        Ok(true)
    }

    /// Many are longer than a lease.
    fn stop_length(&mut self) -> Duration {
        let lease = self.longest_stop * 2 / 5;
        if self.dice.percent(40) {
            self.dice.between(Duration::from_millis(50), lease)
        } else {
            self.dice.between(lease, self.longest_stop)
        }
    }

    /// Cuts somebody from everybody whom they depend on, or two from each other.
    fn cut(&mut self, pool: &mut Pool, is_two_way: bool, now: Instant) -> io::Result<()> {
        let ways = self.ways(pool);
        let length = self.dice.between(Duration::from_millis(300), self.longest_stop);
        let is_outward = self.dice.percent(50);
        for (one, other) in ways {
            let directions =
                [(one, other, is_outward || is_two_way), (other, one, !is_outward || is_two_way)];
            for (from, to, is_wanted) in directions {
                if is_wanted {
                    pool.cut(from, to)?;
                    self.cures.push((now + length, Cure::Heal(from, to)));
                }
            }
        }
        Ok(())
    }

    fn ways(&mut self, pool: &Pool) -> Vec<(Node, Node)> {
        let all = Node::all(pool.plan.sizes);
        let of = |part: Part| -> Vec<Node> { all.iter().copied().filter(|node| part.is_of(*node)).collect() };
        let disturbs_leaders = pool.plan.sizes.etcd > 0 && pool.plan.plant.is_none();
        let (one, others) = match self.dice.below(20) {
            0..9 => (self.dice.pick(of(Part::Owner)), of(Part::Manager)),
            9..13 => (self.dice.pick(of(Part::Caller)), of(Part::Manager)),
            13..15 if disturbs_leaders => (self.dice.pick(of(Part::Manager)), of(Part::Etcd)),
            // On loopback nothing of ours is between the nodes of etcd.
            15 if disturbs_leaders && !pool.plan.is_loopback => {
                (self.dice.pick(of(Part::Etcd)), of(Part::Etcd))
            }
            16..18 => {
                (self.dice.pick(of(Part::Caller)), self.dice.pick(of(Part::Owner)).into_iter().collect())
            }
            _ => (self.dice.pick(of(Part::Owner)), self.dice.pick(of(Part::Owner)).into_iter().collect()),
        };
        let ways =
            one.into_iter().flat_map(|one| others.iter().map(move |other| (one, *other)).collect::<Vec<_>>());
        ways.filter(|(one, other)| one != other).collect()
    }

    /// Bad weather between somebody and every Manager.
    fn storm(&mut self, pool: &Pool, now: Instant) -> io::Result<()> {
        let clients = Node::all(pool.plan.sizes)
            .into_iter()
            .filter(|node| Part::Owner.is_of(*node) || Part::Caller.is_of(*node));
        let Some(client) = self.dice.pick(clients.collect()) else { return Ok(()) };
        let length = self.dice.between(Duration::from_secs(1), self.longest_stop);
        let weather = Weather {
            lost: self.dice.below(50),
            doubled: self.dice.below(50),
            delayed: self.dice.below(60),
            longest_delay: self.dice.between(Duration::from_millis(20), Duration::from_millis(1_500)),
        };
        for manager in 0..pool.plan.sizes.managers {
            pool.set_weather(client, manager, Some(weather), length)?;
            self.cures.push((now + length, Cure::Clear(client, manager)));
        }
        Ok(())
    }
}

impl Cure {
    fn apply(self, pool: &mut Pool) -> io::Result<()> {
        match self {
            Cure::Restart(node) => pool.start_process(node),
            Cure::Kill(node) => {
                pool.kill(node)?;
                pool.start_process(node)
            }
            Cure::Continue(node) => pool.go_on(node),
            Cure::Heal(from, to) => pool.heal(from, to),
            Cure::Clear(client, manager) => pool.set_weather(client, manager, None, Duration::ZERO),
        }
    }
}
