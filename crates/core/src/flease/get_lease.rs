//! How a cell is acquired, renewed and released: rounds of the register, one after the other (Flease Alg. 4).

use std::time::Duration;

use super::message::{Ballot, Body, Cell, Lease, PeerId};
use super::register::Register;
use super::round::{Progress, Round};
use super::seeker::{Aim, Finding, HeldCell, Seeker};
use super::{EndedReason, FleaseAction, FleaseMachine, Step, TICK};
use crate::injected_bug::{Bug, injected};
use crate::key::Key;
use crate::time::Instant;

/// Half of a lease has so many instants for renewals, and each cell has its own of them: the renewals of many cells are spread
/// evenly, and those of one instant go together.
const RENEWAL_SLOTS: u64 = 64;

/// What a register answers to a request.
pub(super) fn reply(register: &mut Register, ballot: Ballot, request: Body) -> Body {
    let outcome = match request {
        Body::Write(lease) => register.write(ballot, lease).map(|()| Body::WriteAck),
        _ => register.read(ballot).map(|(written, lease)| Body::ReadAck { written, lease }),
    };
    outcome.unwrap_or_else(|promised| Body::Nack { promised })
}

impl FleaseMachine {
    pub(super) fn seeker(&mut self, cell: &Cell) -> Option<&mut Seeker> {
        self.cells.get_mut(cell)?.seeker.as_mut()
    }

    /// Does what is due for a cell.
    pub(super) fn tick(&mut self, step: &mut Step, cell: &Cell) {
        self.expire(step, cell);
        let longest = self.longest_round();
        let Some(seeker) = self.seeker(cell) else { return };
        if seeker.round.as_ref().is_some_and(|round| round.ballot().time + longest <= step.now) {
            self.counters.timed_out += 1;
            self.retry(step, cell, step.now);
        }
        if self.seeker(cell).is_some_and(|seeker| seeker.round.is_none() && seeker.next <= step.now) {
            self.start_round(step, cell);
        }
        self.arm(cell);
    }

    /// Sets the timer of a cell to what is due next, if anything is.
    pub(super) fn arm(&mut self, cell: &Cell) {
        let longest = self.longest_round();
        let deadline = self.seeker(cell).map_or(Instant::NEVER, |seeker| seeker.deadline(longest));
        if deadline == Instant::NEVER {
            self.timers.clear(cell);
        } else {
            self.timers.set(cell.clone(), deadline);
        }
    }

    /// Ends a lease that was not renewed in time.
    pub(super) fn expire(&mut self, step: &mut Step, cell: &Cell) {
        let held = self.seeker(cell).and_then(|seeker| seeker.held);
        if held.is_some_and(|held| held.until <= step.now) {
            self.end(step, cell, EndedReason::Expired);
        }
    }

    pub(super) fn end(&mut self, step: &mut Step, cell: &Cell, why: EndedReason) {
        let Some(held) = self.seeker(cell).and_then(|seeker| seeker.held.take()) else { return };
        self.counters.lost += u64::from(why != EndedReason::Released);
        step.actions.push(FleaseAction::Ended { cell: cell.clone(), epoch: held.epoch, why });
    }

    fn start_round(&mut self, step: &mut Step, cell: &Cell) {
        if let Some(later) = self.reason_to_wait(step.now, cell) {
            if let Some(seeker) = self.seeker(cell) {
                seeker.next = later;
            }
            return;
        }
        let ballot = Ballot { time: step.now, peer: self.config.me };
        let members = self.config.members(cell).len();
        let Some(seeker) = self.seeker(cell) else { return };
        if seeker.aim == Aim::Release && seeker.wrote <= step.now {
            return self.stop_seeking(step, cell);
        }
        seeker.round = Some(Round::new(ballot, members));
        seeker.again = false;
        self.counters.rounds += 1;
        self.ask(step, cell, ballot, Body::Read);
    }

    /// Until when a round would be in vain, if it would: before this peer takes part, up to what its own register has
    /// promised, and while that has the lease that the application was told of.
    fn reason_to_wait(&mut self, now: Instant, cell: &Cell) -> Option<Instant> {
        if !self.may_propose(now) {
            return Some(self.takes_part_from);
        }
        let epsilon = self.config.epsilon;
        let state = self.cells.get(cell)?;
        let seeker = state.seeker.as_ref()?;
        let known =
            state.register.lease().filter(|lease| seeker.aim == Aim::Hold && seeker.was_told_of(*lease));
        if let Some(lease) = known.filter(|lease| now <= lease.until + epsilon) {
            self.counters.kept_silent += 1;
            return Some(lease.until + epsilon + TICK + self.delay(0));
        }
        let promised = state.register.promised().time;
        (now <= promised).then(|| promised + TICK)
    }

    /// Asks all members, this peer too.
    fn ask(&mut self, step: &mut Step, cell: &Cell, ballot: Ballot, request: Body) {
        for peer in self.config.members(cell).iter().filter(|peer| **peer != self.config.me) {
            step.say(*peer, cell, ballot, request);
        }
        let Some(state) = self.cells.get_mut(cell) else { return };
        let reply = reply(&mut state.register, ballot, request);
        self.on_reply(step, cell, self.config.me, ballot, reply);
    }

    pub(super) fn on_reply(
        &mut self,
        step: &mut Step,
        cell: &Cell,
        from: PeerId,
        ballot: Ballot,
        reply: Body,
    ) {
        let longest = self.longest_round();
        let is_asked = |round: &&mut Round| round.ballot() == ballot && step.now <= ballot.time + longest;
        let round = self.seeker(cell).and_then(|seeker| seeker.round.as_mut()).filter(is_asked);
        let Some(round) = round else {
            self.counters.late_replies += 1;
            return;
        };
        match round.on_reply(from, reply) {
            Progress::Waiting => {}
            Progress::Read(lease) => self.go_on_from_read(step, cell, ballot, lease),
            Progress::Written(lease) => self.conclude(step, cell, ballot, lease),
            Progress::Aborted(promised) => {
                self.counters.aborted += 1;
                self.retry(step, cell, promised.time);
            }
        }
    }

    fn go_on_from_read(&mut self, step: &mut Step, cell: &Cell, ballot: Ballot, lease: Option<Lease>) {
        let epsilon = self.config.epsilon;
        let found = if injected(Bug::FleaseNoSafetyPeriod) {
            lease.filter(|lease| step.now < lease.until)
        } else {
            lease
        };
        let Some(aim) = self.seeker(cell).map(|seeker| seeker.aim) else { return };
        match (aim, Finding::of(found, self.me, step.now, epsilon)) {
            (Aim::Hold, Finding::Free) => self.write_own(step, cell, ballot, ballot),
            (Aim::Hold, Finding::Mine(lease)) => self.write_mine(step, cell, ballot, lease),
            (Aim::Hold, Finding::Theirs(lease)) => self.write(step, cell, ballot, Some(lease)),
            (Aim::Hold, Finding::Fading(lease)) => {
                self.counters.safety_waits += 1;
                self.wait_for(step, cell, lease);
            }
            (Aim::Release, Finding::Mine(_)) => self.write(step, cell, ballot, None),
            (Aim::Release, Finding::Theirs(_)) if injected(Bug::FleaseReleaseOfAnyLease) => {
                self.write(step, cell, ballot, None);
            }
            (Aim::Release, _) => self.stop_seeking(step, cell),
        }
    }

    /// Renews what is held. A lease of this process that is not held, because its round failed or it ran out, is given up
    /// for a new one: only so does an epoch mean that there was no gap.
    fn write_mine(&mut self, step: &mut Step, cell: &Cell, ballot: Ballot, lease: Lease) {
        let held = self.seeker(cell).and_then(|seeker| seeker.held);
        let is_held = held.is_some_and(|held| held.epoch == lease.epoch);
        let keeps_epoch = is_held || injected(Bug::FleaseEpochKept);
        self.write_own(step, cell, ballot, if keeps_epoch { lease.epoch } else { ballot });
    }

    /// Writes a lease of this process, which counts from the start of the round.
    fn write_own(&mut self, step: &mut Step, cell: &Cell, ballot: Ballot, epoch: Ballot) {
        let is_late = injected(Bug::FleaseExpiryAtWrite);
        let base = if is_late { step.now } else { ballot.time };
        let lease = Lease { holder: self.me, epoch, until: base + self.config.lease };
        if let Some(seeker) = self.seeker(cell) {
            seeker.wrote = seeker.wrote.max(lease.until);
        }
        self.write(step, cell, ballot, Some(lease));
    }

    fn write(&mut self, step: &mut Step, cell: &Cell, ballot: Ballot, lease: Option<Lease>) {
        let Some(round) = self.seeker(cell).and_then(|seeker| seeker.round.as_mut()) else { return };
        round.write(lease);
        self.ask(step, cell, ballot, Body::Write(lease));
    }

    /// The round's write committed.
    fn conclude(&mut self, step: &mut Step, cell: &Cell, ballot: Ballot, lease: Option<Lease>) {
        let me = self.me;
        let Some(seeker) = self.seeker(cell) else { return };
        seeker.failures = 0;
        match lease {
            Some(lease) if lease.holder == me => self.take(step, cell, ballot, lease),
            Some(lease) => self.wait_for(step, cell, lease),
            None if seeker.aim == Aim::Hold => seeker.go_on_at(step.now + TICK),
            None => self.stop_seeking(step, cell),
        }
    }

    /// Starts a round for a cell that is held, or has another follow the one under way.
    pub(super) fn on_renew(&mut self, step: &mut Step, cell: &Cell) {
        let holds = |seeker: &&mut Seeker| seeker.held.is_some_and(|held| step.now < held.until);
        let Some(seeker) = self.seeker(cell).filter(holds) else { return };
        match seeker.round {
            Some(_) => seeker.again = true,
            None => seeker.next = step.now,
        }
        self.tick(step, cell);
    }

    /// Holds what was committed, unless it came too late: a lease is not revived.
    fn take(&mut self, step: &mut Step, cell: &Cell, ballot: Ballot, lease: Lease) {
        let renewal = renewal(cell, lease.until, self.config.lease);
        let is_revived = injected(Bug::FleaseEpochKept);
        let Some(seeker) = self.seeker(cell) else { return };
        let renews = seeker.held.is_some_and(|held| held.epoch == lease.epoch);
        if lease.until <= step.now || !(renews || lease.epoch == ballot || is_revived) {
            return seeker.go_on_at(step.now + TICK);
        }
        seeker.held = Some(HeldCell { epoch: lease.epoch, until: lease.until });
        seeker.told = None;
        let next = if seeker.again { step.now } else { renewal };
        seeker.go_on_at(next.max(step.now + TICK));
        *(if renews { &mut self.counters.renewed } else { &mut self.counters.acquired }) += 1;
        step.actions.push(FleaseAction::Held { cell: cell.clone(), epoch: lease.epoch, until: lease.until });
    }

    /// Waits until a lease of another is over for everybody; tells of it if it is valid and news.
    fn wait_for(&mut self, step: &mut Step, cell: &Cell, lease: Lease) {
        let next = lease.until + self.config.epsilon + TICK + self.delay(0);
        let Some(seeker) = self.seeker(cell) else { return };
        seeker.go_on_at(next.max(step.now + TICK));
        if step.now < lease.until && !seeker.was_told_of(lease) {
            seeker.told = Some((lease.holder, lease.epoch));
            step.actions.push(FleaseAction::HeldByOther { cell: cell.clone(), lease });
        }
    }

    /// A write of "none" reached this peer's register: the cell is probably free.
    pub(super) fn on_release_noticed(&mut self, step: &mut Step, cell: &Cell) {
        let soon = step.now + TICK + self.delay(0);
        let waits = |seeker: &&mut Seeker| seeker.round.is_none() && seeker.held.is_none();
        let Some(seeker) = self.seeker(cell).filter(waits) else { return };
        seeker.next = seeker.next.min(soon);
        self.arm(cell);
    }

    /// The round failed; the next one starts after a random wait, and above the ballot that was in the way.
    fn retry(&mut self, step: &mut Step, cell: &Cell, above: Instant) {
        let failures = self.seeker(cell).map_or(0, |seeker| seeker.failures);
        let next = (step.now + TICK + self.delay(failures)).max(above + TICK);
        let never = injected(Bug::FleaseNeverRetries);
        let Some(seeker) = self.seeker(cell) else { return };
        seeker.failures = failures.saturating_add(1);
        seeker.go_on_at(if never { Instant::NEVER } else { next });
    }

    fn stop_seeking(&mut self, step: &mut Step, cell: &Cell) {
        if let Some(state) = self.cells.get_mut(cell) {
            state.seeker = None;
        }
        self.timers.clear(cell);
        step.actions.push(FleaseAction::Released(cell.clone()));
    }
}

/// When to renew: at the last of the cell's own instants that leaves half of the lease. Whatever made the renewals of many cells
/// come together, a start or a pause, the next ones are spread again.
fn renewal(cell: &Cell, until: Instant, lease: Duration) -> Instant {
    let latest = until - lease / 2;
    let period = u64::try_from((lease / 2).as_nanos()).unwrap_or(u64::MAX).max(1);
    let slot = (period / RENEWAL_SLOTS).max(1);
    let phase = Key::of(cell.name().as_bytes()).0 % RENEWAL_SLOTS * slot % period;
    // By how much the latest instant is behind one of the cell's own.
    let late = (latest.0 % period + (period - phase)) % period;
    Instant(latest.0.saturating_sub(late))
}
