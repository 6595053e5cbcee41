//! Fault injection: drawn from the seed, every kind again and again.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use centrifuge_harness::Rng;
use tokio::time::Instant;

use super::addresses::{Node, Part};
use super::kinds::{Kind, most_away};
use super::launch::Pool;
use super::targeted_faults::TargetedFaults;
use crate::plan::World;
use crate::proxy::LinkFaults;

/// What ends a fault.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cure {
    Restart(Node),
    /// Ends with the process, and another is started.
    Kill(Node),
    Continue(Node),
    Heal(Node, Node),
    Clear(Node, Node),
}

/// What ends faults, and when.
pub(super) type Cures = Vec<(Instant, Cure)>;

/// The faults of a run.
pub(crate) struct Faults {
    rng: Rng,
    due: Schedule<Kind>,
    cures: Cures,
    counts: BTreeMap<String, u64>,
    longest_stop: Duration,
    /// Faults aimed at leaders or peers instead, if something is wrong with them on purpose.
    targeted_faults: Option<TargetedFaults>,
}

/// What comes again and again, each kind after a random time around its own.
pub(super) struct Schedule<K> {
    due: Vec<(K, Duration, Instant)>,
}

impl<K: Copy> Schedule<K> {
    pub(super) fn new(kinds: impl IntoIterator<Item = (K, Duration)>, rng: &mut Rng) -> Schedule<K> {
        let now = Instant::now();
        let first = |(kind, mean)| (kind, mean, now + rng.between(Duration::ZERO, mean));
        Schedule { due: kinds.into_iter().map(first).collect() }
    }

    /// The kinds whose time it is.
    pub(super) fn take_due(&mut self, now: Instant, rng: &mut Rng) -> Vec<K> {
        let mut taken = Vec::new();
        for (kind, mean, due) in self.due.iter_mut().filter(|(_, _, due)| *due <= now) {
            *due = now + rng.between(*mean / 2, *mean * 3 / 2);
            taken.push(*kind);
        }
        taken
    }
}

impl Faults {
    pub(crate) fn new(mut rng: Rng, pool: &Pool) -> Faults {
        let targeted_faults = pool.plan.bug.and_then(TargetedFaults::of);
        // Nothing else then: whatever happens beside it only keeps leaders from leading, and peers from holding.
        let is_usual = targeted_faults.is_none() && !pool.plan.is_planned_only;
        let kinds = if is_usual { Kind::of(pool) } else { Vec::new() };
        let names = kinds.iter().map(|(kind, _)| kind.name());
        let targeted = targeted_faults.iter().map(|targeted| targeted.name().to_owned());
        Faults {
            counts: names.chain(targeted).map(|name| (name, 0)).collect(),
            due: Schedule::new(kinds, &mut rng),
            rng,
            cures: Vec::new(),
            longest_stop: pool.plan.times.lease * 5 / 2,
            targeted_faults,
        }
    }

    /// How many of each kind there were.
    pub(crate) fn counts(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }

    /// Does what is due.
    pub(crate) async fn step(&mut self, pool: &mut Pool) -> io::Result<()> {
        let now = Instant::now();
        self.cure(pool, now)?;
        if let Some(targeted_faults) = &mut self.targeted_faults
            && targeted_faults.step(pool, &mut self.cures).await?
        {
            *self.counts.entry(targeted_faults.name().to_owned()).or_default() += 1;
        }
        for kind in self.due.take_due(now, &mut self.rng) {
            if self.inject(pool, kind, now)? {
                *self.counts.entry(kind.name()).or_default() += 1;
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
    fn inject(&mut self, pool: &mut Pool, kind: Kind, now: Instant) -> io::Result<bool> {
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
            Kind::CutOneWay | Kind::CutTwoWay | Kind::Split => {
                let ways = if kind == Kind::Split { self.split(pool) } else { self.ways(pool) };
                self.cut(pool, ways, kind != Kind::CutOneWay)?;
            }
            Kind::Storm => self.storm(pool, now)?,
            Kind::Depose => pool.depose()?,
            Kind::KillTogether => {
                let (Some(manager), Some(owner)) =
                    (self.victim(pool, Part::Manager), self.victim(pool, Part::Owner))
                else {
                    return Ok(false);
                };
                self.kill(pool, manager, now)?;
                self.kill(pool, owner, now)?;
            }
        }
        Ok(true)
    }

    /// Somebody of a kind of whom not too many are away.
    fn victim(&mut self, pool: &Pool, part: Part) -> Option<Node> {
        let here: Vec<Node> = pool.available().into_iter().filter(|node| node.part == part).collect();
        if pool.away(part) >= most_away(part, pool.plan.sizes) { None } else { self.rng.pick(here) }
    }

    fn kill(&mut self, pool: &mut Pool, node: Node, now: Instant) -> io::Result<()> {
        pool.kill(node)?;
        let away = self.rng.between(Duration::from_millis(100), Duration::from_secs(3));
        self.cures.push((now + away, Cure::Restart(node)));
        Ok(())
    }

    /// Only if no other node of etcd is away: two are the most that five survive.
    fn kill_two_machines(&mut self, pool: &mut Pool, now: Instant) -> io::Result<bool> {
        let here = pool.available();
        let etcd: Vec<Node> = here.iter().copied().filter(|node| node.part == Part::Etcd).collect();
        if etcd.len() < usize::from(pool.plan.sizes.etcd) {
            return Ok(false);
        }
        let Some(first) = self.rng.pick(etcd.clone()) else { return Ok(false) };
        let others = etcd.into_iter().filter(|node| *node != first).collect();
        let Some(second) = self.rng.pick(others) else { return Ok(false) };
        for machine in [first, second] {
            self.kill(pool, machine, now)?;
            let manager = Part::Manager.node(machine.index);
            if here.contains(&manager) {
                self.kill(pool, manager, now)?;
            }
        }
        Ok(true)
    }

    /// Many are longer than a lease.
    fn stop_length(&mut self) -> Duration {
        let lease = self.longest_stop * 2 / 5;
        if self.rng.percent(40) {
            self.rng.between(Duration::from_millis(50), lease)
        } else {
            self.rng.between(lease, self.longest_stop)
        }
    }

    /// Cuts these ways, in both directions or in one.
    fn cut(&mut self, pool: &mut Pool, ways: Vec<(Node, Node)>, is_two_way: bool) -> io::Result<()> {
        let now = Instant::now();
        let length = self.rng.between(Duration::from_millis(300), self.longest_stop);
        let is_outward = self.rng.percent(50);
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

    /// The ways between somebody and everybody whom they depend on, or between two.
    fn ways(&mut self, pool: &Pool) -> Vec<(Node, Node)> {
        let (one, others) = match pool.plan.world {
            World::Managers | World::Diskless => self.ends_in_pool(pool),
            World::Flease => self.ends_among_peers(pool),
        };
        let ways =
            one.into_iter().flat_map(|one| others.iter().map(move |other| (one, *other)).collect::<Vec<_>>());
        ways.filter(|(one, other)| one != other).collect()
    }

    fn ends_among_peers(&mut self, pool: &Pool) -> (Option<Node>, Vec<Node>) {
        let peers = Node::all(pool.plan.sizes);
        let others = self.one_or_all(peers.clone(), 60);
        (self.rng.pick(peers), others)
    }

    /// All of them in so many of a hundred cases, otherwise one.
    fn one_or_all(&mut self, nodes: Vec<Node>, share: u64) -> Vec<Node> {
        if self.rng.percent(share) { nodes } else { self.rng.pick(nodes).into_iter().collect() }
    }

    /// The ways between two groups of peers.
    fn split(&mut self, pool: &Pool) -> Vec<(Node, Node)> {
        let (one, other): (Vec<Node>, Vec<Node>) =
            Node::all(pool.plan.sizes).into_iter().partition(|_| self.rng.percent(50));
        one.iter().flat_map(|from| other.iter().map(|to| (*from, *to))).collect()
    }

    fn ends_in_pool(&mut self, pool: &Pool) -> (Option<Node>, Vec<Node>) {
        let of = |part: Part| Node::all_of(part, pool.plan.sizes);
        let disturbs_leaders = pool.plan.sizes.etcd > 0 && pool.plan.bug.is_none();
        // On loopback nothing of ours is between the Managers.
        let is_diskless = pool.plan.world == World::Diskless && !pool.plan.is_loopback;
        match self.rng.below(20) {
            13..16 if is_diskless => {
                let others = self.one_or_all(of(Part::Manager), 50);
                (self.rng.pick(of(Part::Manager)), others)
            }
            0..9 => (self.rng.pick(of(Part::Owner)), of(Part::Manager)),
            9..13 => (self.rng.pick(of(Part::Caller)), of(Part::Manager)),
            13..15 if disturbs_leaders => (self.rng.pick(of(Part::Manager)), of(Part::Etcd)),
            // On loopback nothing of ours is between the nodes of etcd.
            15 if disturbs_leaders && !pool.plan.is_loopback => {
                (self.rng.pick(of(Part::Etcd)), of(Part::Etcd))
            }
            16..18 => (self.rng.pick(of(Part::Caller)), self.one_or_all(of(Part::Owner), 0)),
            _ => (self.rng.pick(of(Part::Owner)), self.one_or_all(of(Part::Owner), 0)),
        }
    }

    /// Link faults between a process and all that it talks to.
    fn storm(&mut self, pool: &Pool, now: Instant) -> io::Result<()> {
        let length = self.rng.between(Duration::from_secs(1), self.longest_stop);
        let (ways, longest_delay) = match pool.plan.world {
            World::Managers | World::Diskless => (self.links(pool), Duration::from_millis(1_500)),
            // A clock that is astray must not look right because its message was late.
            World::Flease => (self.both_ways(pool), Duration::from_millis(600)),
        };
        let link_faults = LinkFaults {
            lost: self.rng.below(50),
            doubled: self.rng.below(50),
            delayed: self.rng.below(60),
            longest_delay: self.rng.between(Duration::from_millis(20), longest_delay),
        };
        for (from, to) in ways {
            pool.set_link_faults(from, to, Some(link_faults), length)?;
            self.cures.push((now + length, Cure::Clear(from, to)));
        }
        Ok(())
    }

    /// Every Manager's link to one client.
    fn links(&mut self, pool: &Pool) -> Vec<(Node, Node)> {
        let is_client = |node: &Node| matches!(node.part, Part::Owner | Part::Caller);
        let client = self.rng.pick(Node::all(pool.plan.sizes).into_iter().filter(is_client).collect());
        let managers = || Part::Manager.nodes(pool.plan.sizes.managers);
        client.into_iter().flat_map(|client| managers().map(move |manager| (client, manager))).collect()
    }

    /// The ways to and from one peer.
    fn both_ways(&mut self, pool: &Pool) -> Vec<(Node, Node)> {
        let peers = Node::all(pool.plan.sizes);
        let Some(one) = self.rng.pick(peers.clone()) else { return Vec::new() };
        let others = peers.into_iter().filter(|other| *other != one);
        others.flat_map(|other| [(one, other), (other, one)]).collect()
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
            Cure::Clear(from, to) => pool.set_link_faults(from, to, None, Duration::ZERO),
        }
    }
}
