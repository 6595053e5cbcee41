//! What befalls the peers: deaths, pauses, cuts, storms, clocks that turn, applications that change their minds.

use centrifuge_core::flease::FleaseEvent;

use crate::world::rng::Rng;

use super::plan::nanos;
use super::{Event, FleaseWorld, MILLISECOND};

/// An offset within half of epsilon, most often at its very edge.
pub(crate) fn offset(rng: &mut Rng, half: u64) -> i64 {
    let size = if rng.chance(700) { half } else { rng.between(0, half) };
    let size = i64::try_from(size).expect("epsilon is short");
    if rng.chance(500) { size } else { -size }
}

impl FleaseWorld {
    fn lease(&self) -> u64 {
        nanos(self.plan.config.lease)
    }

    /// Somebody's clock turns towards another offset; now and then everybody's.
    pub(super) fn turn(&mut self) {
        if self.rng.chance(300) {
            (0..self.peers.len()).for_each(|peer| self.turn_clock(peer));
        } else {
            let peer = self.somebody();
            self.turn_clock(peer);
        }
        let next = self.rng.between(1, 2 * self.plan.turn_every);
        self.queue.push(self.now.0 + next, Event::Turn);
    }

    fn turn_clock(&mut self, peer: usize) {
        let target = offset(&mut self.rng, nanos(self.plan.config.epsilon) / 2);
        self.peers[peer].clock.slew(self.now, target, self.plan.slowness);
        self.count("clock_turns");
        self.plan_wake(peer);
    }

    fn somebody(&mut self) -> usize {
        self.rng.below(self.peers.len() as u64) as usize
    }

    /// An application wants a cell, or wants it no more.
    pub(super) fn whim(&mut self) {
        if !self.faults_happen {
            return;
        }
        let peer = self.somebody();
        let cells = self.cells_of(peer);
        if !cells.is_empty() && !self.peers[peer].is_paused {
            let cell = self.rng.pick(&cells);
            let wants = self.rng.chance(650);
            self.count(if wants { "wanted" } else { "released" });
            let event = if wants { FleaseEvent::Acquire(cell) } else { FleaseEvent::Release(cell) };
            self.step(peer, Some(event));
        }
        let next = self.rng.between(1, 2 * self.plan.whim_every);
        self.queue.push(self.now.0 + next, Event::Whim);
    }

    pub(super) fn fault(&mut self) {
        if !self.faults_happen {
            return;
        }
        let peer = self.somebody();
        match self.rng.below(100) {
            0..25 => self.crash(peer),
            25..32 => self.crash_many(),
            32..50 => self.pause(peer),
            50..65 => self.isolate(peer),
            65..80 => self.cut_one_way(peer),
            80..92 => self.storm(),
            92..95 => self.distrust_clock(peer),
            _ => (0..self.peers.len()).for_each(|peer| self.turn_clock(peer)),
        }
        let next = self.rng.between(1, 2 * self.plan.fault_every);
        self.queue.push(self.now.0 + next, Event::Fault);
    }

    /// Right after an acquisition its holder is cut off, and another peer, which perhaps voted for it, is struck.
    pub(super) fn perhaps_ambush(&mut self, holder: usize) {
        if !self.faults_happen || !self.rng.chance(self.plan.ambush) {
            return;
        }
        self.count("ambush");
        self.isolate(holder);
        let other = self.somebody();
        if other != holder {
            self.crash(other);
        }
    }

    /// A process is paused right after it began a round, for a little longer than a recovery takes.
    pub(super) fn perhaps_strike_mid_round(&mut self, proposer: usize) {
        if !self.faults_happen || !self.rng.chance(self.plan.ambush / 10) {
            return;
        }
        self.count("ambush_mid_round");
        let length = nanos(self.plan.config.recovery) + self.rng.between(self.lease() / 4, self.lease());
        self.pause_for(proposer, length);
        self.struck = Some(proposer);
    }

    /// Another one acquires a cell meanwhile, and a third, which perhaps replied to both, dies and recovers in time for
    /// the first one's late write.
    pub(super) fn finish_strike(&mut self, holder: usize) {
        let Some(struck) = self.struck.take_if(|struck| *struck != holder) else { return };
        let other = self.somebody();
        if self.faults_happen && other != struck && other != holder {
            self.crash(other);
        }
    }

    /// Kills a process. Often the next one starts at once.
    fn crash(&mut self, peer: usize) {
        if self.peers[peer].machine.take().is_none() {
            return;
        }
        self.count("crash");
        self.peers[peer].is_paused = false;
        self.peers[peer].waiting.clear();
        let longest = nanos(self.plan.config.recovery) * 2;
        let down = if self.rng.chance(600) { MILLISECOND } else { self.rng.below(longest) };
        self.queue.push(self.now.0 + down, Event::Start { peer });
    }

    /// More than a minority dies.
    fn crash_many(&mut self) {
        self.count("crash_of_many");
        let spared = if self.rng.chance(500) { Some(self.somebody()) } else { None };
        (0..self.peers.len()).filter(|peer| Some(*peer) != spared).for_each(|peer| self.crash(peer));
    }

    fn pause(&mut self, peer: usize) {
        let longest = nanos(self.plan.config.recovery) * 2;
        let length = self.rng.spread(MILLISECOND, longest);
        self.pause_for(peer, length);
    }

    fn pause_for(&mut self, peer: usize, length: u64) {
        let place = &mut self.peers[peer];
        if place.machine.is_none() || place.is_paused {
            return;
        }
        place.is_paused = true;
        let life = place.life;
        self.count("pause");
        self.queue.push(self.now.0 + length, Event::Resume { peer, life });
    }

    /// A paused process goes on, and finds what arrived in the meantime: in any order with its own timers.
    pub(super) fn resume(&mut self, peer: usize, life: u32) {
        let place = &mut self.peers[peer];
        if place.life != life || !place.is_paused {
            return;
        }
        place.is_paused = false;
        for event in std::mem::take(&mut self.peers[peer].waiting) {
            let soon = self.now.0 + self.rng.below(MILLISECOND);
            self.queue.push(soon, event);
        }
    }

    fn isolate(&mut self, peer: usize) {
        self.count("isolated");
        let (one, all) = (1 << peer, u64::MAX);
        let away = self.rng.between(1, 3 * self.lease());
        for (from, to) in [(one, all), (all, one)] {
            let cut = self.network.cut(from, to);
            self.queue.push(self.now.0 + away, Event::Heal { cut });
        }
    }

    fn cut_one_way(&mut self, peer: usize) {
        self.count("cut_one_way");
        let others = self.rng.next();
        let away = self.rng.between(1, 3 * self.lease());
        let cut = if self.rng.chance(500) {
            self.network.cut(1 << peer, others)
        } else {
            self.network.cut(others, 1 << peer)
        };
        self.queue.push(self.now.0 + away, Event::Heal { cut });
    }

    fn storm(&mut self) {
        self.count("network_storm");
        self.network.storm();
        let ends = self.now.0 + self.rng.between(1, 2 * self.lease());
        self.queue.push(ends, Event::Calm);
    }

    /// A process is told that its clock jumped, which it did not: it must give up everything all the same.
    fn distrust_clock(&mut self, peer: usize) {
        if !self.peers[peer].is_paused {
            self.count("clock_distrusted");
            self.step(peer, Some(FleaseEvent::ClockJumped));
        }
    }

    /// Everything heals but a minority of every cell's members, which is dead; everybody else wants everything.
    pub(super) fn end_faults(&mut self) {
        self.network.become_reliable();
        self.leave_some_dead();
        self.faults_happen = false;
        for peer in 0..self.peers.len() {
            let life = self.peers[peer].life;
            self.resume(peer, life);
            self.start(peer);
            for cell in self.cells_of(peer) {
                self.step(peer, Some(FleaseEvent::Acquire(cell)));
            }
        }
    }

    fn leave_some_dead(&mut self) {
        let most = (self.peers.len() - 1) / 2;
        for _ in 0..self.rng.between(0, most as u64) {
            let peer = self.somebody();
            self.peers[peer].stays_dead = true;
            if !self.plan.cells.iter().all(|cell| self.has_majority(cell)) {
                self.peers[peer].stays_dead = false;
                continue;
            }
            self.crash(peer);
        }
    }

    fn has_majority(&self, cell: &centrifuge_core::flease::Cell) -> bool {
        let members = self.plan.config.members(cell);
        let lives = |peer: &usize| !self.peers[*peer].stays_dead && members.contains(&self.id(*peer));
        (0..self.peers.len()).filter(lives).count() > members.len() / 2
    }
}
