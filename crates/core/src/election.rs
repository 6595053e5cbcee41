//! How Managers without disk choose their leader: one cell of Flease that all of them want (ADR 15).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::flease::{
    Ballot, Cell, FleaseAction, FleaseConfig, FleaseConfigError, FleaseEvent, FleaseMachine, Packet, PeerId,
};
use crate::id::{ManagerId, Term};
use crate::injected_bug::{Bug, injected};
use crate::machine::{Machine, Output};
use crate::manager::{ElectionCommand, ElectionEvent};
use crate::random::Random;
use crate::settings::Drift;
use crate::time::Instant;

/// A term is the time of the ballot that won it, in units of two to this many nanoseconds.
const UNIT_BITS: u32 = 24;

/// The name of the cell that all Managers want.
pub const CELL: &str = "managers";

/// What the election is told at its start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ElectionConfig {
    /// The peers and their times.
    pub flease: FleaseConfig,
    /// The Manager of each peer.
    pub managers: BTreeMap<PeerId, ManagerId>,
}

impl ElectionConfig {
    /// Refuses what would let two Managers lead, or two leaders share a term.
    pub fn check(&self) -> Result<(), ElectionConfigError> {
        self.flease.check().map_err(ElectionConfigError::Flease)?;
        if self.flease.lease.saturating_sub(self.flease.round) <= unit() {
            return Err(ElectionConfigError::LeaseWithinUnit);
        }
        let nameless = self.flease.peers.iter().find(|peer| !self.managers.contains_key(peer));
        nameless.map_or(Ok(()), |peer| Err(ElectionConfigError::NoManager(*peer)))
    }

    /// The longest leader lease that a lease of Flease covers. The Manager counts it by its boot clock from its asking, and
    /// the round that answers began later: a lease of Flease takes at least its length less epsilon.
    #[must_use]
    pub fn leader_lease(&self, drift: Drift) -> Duration {
        let covered = self.flease.lease.saturating_sub(self.flease.epsilon).as_nanos();
        let nanos = covered * u128::from(drift.lease) / u128::from(drift.hold.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Why a configuration is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElectionConfigError {
    /// Flease refuses it.
    Flease(FleaseConfigError),
    /// A lease can run out so soon that the next leader has the same term.
    LeaseWithinUnit,
    /// A peer has no Manager.
    NoManager(PeerId),
}

impl fmt::Display for ElectionConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ElectionConfigError::Flease(error) => error.fmt(f),
            ElectionConfigError::LeaseWithinUnit => {
                f.write_str("lease must exceed round by more than 17 ms: lengthen lease or shorten round")
            }
            ElectionConfigError::NoManager(peer) => {
                write!(f, "{peer} has no Manager: name one for every peer")
            }
        }
    }
}

impl std::error::Error for ElectionConfigError {}

/// What the election is asked, and what happens to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ElectionRequest {
    /// The process has started.
    Start,
    /// The Manager wants something. A later campaign replaces an earlier one.
    Command(ElectionCommand),
    /// A packet of another peer arrived.
    Receive {
        /// The peer, as the transport knows it for sure.
        from: PeerId,
        /// What it says.
        packet: Packet,
    },
    /// The clock stood still or jumped: nothing that was counted with it holds.
    ClockJumped,
}

/// What the election wants done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ElectionAction {
    /// Send to another peer.
    Send {
        /// The peer.
        to: PeerId,
        /// What to say.
        packet: Packet,
    },
    /// Tell the Manager.
    Answer(ElectionEvent),
    /// This peer's clock is too far from so many others' that it takes no part until that is over.
    ClockApart {
        /// From which peers.
        from: Vec<PeerId>,
    },
    /// This peer's clock is not known to be apart any more.
    ClockAgrees,
}

/// The election among Managers that have no store, as one of them takes part in it.
///
/// It promises that a term is announced to one Manager, once, and that terms rise from leader to leader; that a campaign or
/// a renewal is answered by a round of Flease that began after it was asked, so that a leader lease counted from the
/// asking ends before Flease lets anybody else in; and that it announces no term before its clock is past the term's
/// unit, so that no two leaders share one. `now` is Flease's clock, and no timer is trusted: what is held is asked of Flease,
/// which compares the clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FleaseElection {
    config: ElectionConfig,
    flease: FleaseMachine,
    cell: Cell,
    campaign: Option<Asked>,
    announced: Option<Announced>,
    /// Renewals without an answer, the earliest first.
    renewals: Vec<Asked>,
    /// Whether the cell is being given up, and others may not have heard of it yet.
    is_releasing: bool,
    /// Whether the clock has ever jumped.
    jumped: bool,
}

/// A request of the Manager, and when it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Asked {
    request: u64,
    at: Instant,
}

/// The lease that the Manager leads by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Announced {
    epoch: Ballot,
    term: Term,
}

type Actions = Vec<ElectionAction>;

impl FleaseElection {
    /// An election that takes no part before it is started and has recovered. `config` has been checked.
    #[must_use]
    pub fn new(config: ElectionConfig, random: Random) -> FleaseElection {
        FleaseElection {
            flease: FleaseMachine::new(config.flease.clone(), random),
            cell: Cell::new(CELL).unwrap_or_else(|_| unreachable!("the name is a good one")),
            config,
            campaign: None,
            announced: None,
            renewals: Vec::new(),
            is_releasing: false,
            jumped: false,
        }
    }

    /// The term that was announced, while the lease it stands for is held.
    #[must_use]
    pub fn leading(&self, now: Instant) -> Option<Term> {
        let held = self.flease.held(&self.cell, now)?;
        self.announced.filter(|announced| announced.epoch == held.epoch).map(|announced| announced.term)
    }

    /// The Manager that holds the cell, as far as this peer knows. A hint.
    #[must_use]
    pub fn known_leader(&self, now: Instant) -> Option<&ManagerId> {
        self.config.managers.get(&self.flease.known(&self.cell, now)?.holder.peer)
    }

    /// The term of the lease that this peer's register has, if it is valid by this peer's clock. A hint.
    #[must_use]
    pub fn known_term(&self, now: Instant) -> Option<Term> {
        self.flease.known(&self.cell, now).map(|lease| term_of(lease.epoch))
    }

    /// Whether the Manager resigned and others may not have heard of it: a process that waits until this is over hands over
    /// at once, and one that does not lets the lease run out.
    #[must_use]
    pub fn is_releasing(&self) -> bool {
        self.is_releasing
    }

    /// The peer that votes here.
    #[must_use]
    pub fn peer(&self) -> &FleaseMachine {
        &self.flease
    }

    fn on_command(&mut self, now: Instant, command: ElectionCommand, actions: &mut Actions) {
        match command {
            ElectionCommand::Campaign { request } => self.on_campaign(now, request, actions),
            ElectionCommand::Renew { request, term } => self.on_renew(now, request, term, actions),
            ElectionCommand::Resign { term } => self.on_resign(now, term, actions),
        }
    }

    fn on_campaign(&mut self, now: Instant, request: u64, actions: &mut Actions) {
        if self.announced.is_some() {
            if injected(Bug::TermAnnouncedTwice) {
                self.announced = None;
            } else {
                self.feed(now, FleaseEvent::Release(self.cell.clone()), actions);
            }
        }
        self.campaign = Some(Asked { request, at: now });
        self.is_releasing = false;
        self.feed(now, FleaseEvent::Acquire(self.cell.clone()), actions);
        self.feed(now, FleaseEvent::Renew(self.cell.clone()), actions);
        if let Some(lease) = self.flease.known(&self.cell, now).filter(|l| l.holder != self.flease.holder()) {
            self.say_who_leads(lease.holder.peer, actions);
        }
        self.say_nobody_leads(now, actions);
    }

    /// While the peer recovers from a jump of its clock, who was known to lead before is nobody to be asked.
    fn say_nobody_leads(&self, now: Instant, actions: &mut Actions) {
        if let Some(Asked { request, .. }) =
            self.campaign.filter(|_| self.jumped && !self.flease.takes_part(now))
        {
            actions.push(ElectionAction::Answer(ElectionEvent::LedBy { request, leader: None }));
        }
    }

    /// An earlier life of this very peer is nobody to be asked.
    fn say_who_leads(&self, holder: PeerId, actions: &mut Actions) {
        let Some(Asked { request, .. }) = self.campaign else { return };
        let leader = self.config.managers.get(&holder).filter(|_| holder != self.config.flease.me).cloned();
        actions.push(ElectionAction::Answer(ElectionEvent::LedBy { request, leader }));
    }

    fn on_renew(&mut self, now: Instant, request: u64, term: Term, actions: &mut Actions) {
        if self.leading(now) != Some(term) {
            self.lose(|announced| announced.term == term);
            actions.push(ElectionAction::Answer(ElectionEvent::Lost { term }));
            return;
        }
        self.renewals.push(Asked { request, at: now });
        if injected(Bug::RenewalByOldRound) {
            self.answer_renewals(now, actions);
        }
        self.feed(now, FleaseEvent::Renew(self.cell.clone()), actions);
    }

    fn on_resign(&mut self, now: Instant, term: Term, actions: &mut Actions) {
        if self.announced.is_some_and(|announced| announced.term == term) {
            self.is_releasing = true;
            self.feed(now, FleaseEvent::Release(self.cell.clone()), actions);
        }
    }

    /// Lets Flease take a step, and makes answers of what it did.
    fn feed(&mut self, now: Instant, event: FleaseEvent, actions: &mut Actions) {
        let output = self.flease.on_event(now, event);
        self.take(output, actions);
    }

    fn take(&mut self, output: Output<FleaseAction>, actions: &mut Actions) {
        for action in output.actions {
            match action {
                FleaseAction::Send { to, packet } => actions.push(ElectionAction::Send { to, packet }),
                FleaseAction::Held { until, .. } => {
                    self.answer_renewals(until - self.config.flease.lease, actions);
                }
                FleaseAction::Ended { epoch, .. } => {
                    if let Some(Announced { term, .. }) = self.lose(|announced| announced.epoch == epoch) {
                        actions.push(ElectionAction::Answer(ElectionEvent::Lost { term }));
                    }
                }
                FleaseAction::HeldByOther { lease, .. } => self.say_who_leads(lease.holder.peer, actions),
                FleaseAction::ClockApart { from } => actions.push(ElectionAction::ClockApart { from }),
                FleaseAction::ClockAgrees => actions.push(ElectionAction::ClockAgrees),
                FleaseAction::Released(_) => self.is_releasing = false,
                FleaseAction::NotAMember(_) => {}
            }
        }
    }

    fn lose(&mut self, is_meant: impl Fn(&Announced) -> bool) -> Option<Announced> {
        let lost = self.announced.take_if(|announced| is_meant(announced))?;
        self.renewals.clear();
        Some(lost)
    }

    /// A round that began at `begun` committed: it answers what was asked before, the latest for all.
    fn answer_renewals(&mut self, begun: Instant, actions: &mut Actions) {
        let covered = self.renewals.partition_point(|renewal| renewal.at <= begun);
        if let Some(Asked { request, .. }) = self.renewals.drain(..covered).next_back() {
            actions.push(ElectionAction::Answer(ElectionEvent::Renewed { request }));
        }
    }

    /// From when on the term may be announced, if the latest round began late enough for the campaign.
    fn announces_from(&self, now: Instant) -> Option<(Asked, Ballot, Instant)> {
        let campaign = self.campaign.filter(|_| self.announced.is_none())?;
        let held = self.flease.held(&self.cell, now)?;
        let answers = campaign.at <= held.until - self.config.flease.lease;
        answers.then(|| (campaign, held.epoch, end_of_unit(held.epoch.time)))
    }

    fn announce(&mut self, now: Instant, actions: &mut Actions) {
        let Some((Asked { request, .. }, epoch, from)) = self.announces_from(now) else { return };
        if now < from && !injected(Bug::TermAnnouncedEarly) {
            return;
        }
        let term = term_of(epoch);
        self.announced = Some(Announced { epoch, term });
        self.campaign = None;
        actions.push(ElectionAction::Answer(ElectionEvent::Won { request, term }));
    }

    fn finish(&mut self, now: Instant, mut actions: Actions) -> Output<ElectionAction> {
        self.announce(now, &mut actions);
        let announcement = self.announces_from(now).map(|(_, _, from)| from);
        let wake = self.flease.next_wake().into_iter().chain(announcement).min();
        Output { actions, wake }
    }
}

impl Machine for FleaseElection {
    type Event = ElectionRequest;
    type Action = ElectionAction;

    fn on_event(&mut self, now: Instant, event: ElectionRequest) -> Output<ElectionAction> {
        let mut actions = Vec::new();
        match event {
            ElectionRequest::Start => self.feed(now, FleaseEvent::Start, &mut actions),
            ElectionRequest::Command(command) => self.on_command(now, command, &mut actions),
            ElectionRequest::Receive { from, packet } => {
                self.feed(now, FleaseEvent::Receive { from, packet }, &mut actions);
            }
            ElectionRequest::ClockJumped => {
                self.feed(now, FleaseEvent::ClockJumped, &mut actions);
                self.jumped = true;
                self.say_nobody_leads(now, &mut actions);
            }
        }
        self.finish(now, actions)
    }

    fn on_wake(&mut self, now: Instant) -> Output<ElectionAction> {
        let mut actions = Vec::new();
        let output = self.flease.on_wake(now);
        self.take(output, &mut actions);
        self.finish(now, actions)
    }
}

fn unit() -> Duration {
    Duration::from_nanos(1 << UNIT_BITS)
}

fn term_of(epoch: Ballot) -> Term {
    Term(epoch.time.0 >> UNIT_BITS)
}

/// From when on, by the Managers' clock, whoever wins has a higher term than this one.
#[must_use]
pub fn after_term(term: Term) -> Instant {
    Instant(u64::try_from((u128::from(term.0) + 1) << UNIT_BITS).unwrap_or(u64::MAX))
}

/// The first instant after the unit in which `at` is.
fn end_of_unit(at: Instant) -> Instant {
    Instant(at.0 >> UNIT_BITS << UNIT_BITS) + unit()
}
