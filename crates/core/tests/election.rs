//! The election among Managers without disk: which round answers what, and which terms come of it (ADR 15).

mod flease_peers;

use std::time::Duration;

use centrifuge_core::election::{
    ElectionAction, ElectionConfig, ElectionConfigError, ElectionRequest, FleaseElection,
};
use centrifuge_core::flease::{FleaseConfig, FleaseConfigError, Packet, PeerId};
use centrifuge_core::id::{ManagerId, Term};
use centrifuge_core::machine::{Machine, Output};
use centrifuge_core::manager::{ElectionCommand, ElectionEvent};
use centrifuge_core::random::Random;
use centrifuge_core::settings::Drift;
use centrifuge_core::time::Instant;

use flease_peers::{BEGIN, EPSILON, LEASE, ROUND, config};

const MILLISECOND: Duration = Duration::from_millis(1);
/// Terms count the time of ballots in units of this.
const UNIT: Duration = Duration::from_nanos(1 << 24);

/// A few Managers' parts in the election on a network that does what a test says.
struct Election {
    machines: Vec<FleaseElection>,
    wakes: Vec<Option<Instant>>,
    /// By how much each clock is ahead of the slowest.
    ahead: Vec<Duration>,
    now: Instant,
    flying: Vec<(usize, usize, Packet)>,
    answers: Vec<(usize, ElectionEvent)>,
}

fn election_config(place: usize, count: usize) -> ElectionConfig {
    let managers = (0..count).map(|place| (id(place), manager(place))).collect();
    ElectionConfig { flease: config(place, count), managers }
}

fn id(place: usize) -> PeerId {
    PeerId(u16::try_from(place + 1).expect("few peers"))
}

fn manager(place: usize) -> ManagerId {
    format!("manager-{place}").as_str().into()
}

impl Election {
    /// Three Managers that have recovered, with equal clocks at the beginning of a unit.
    fn new() -> Election {
        Election::among(|place| election_config(place, 3))
    }

    /// The same of Managers that want the cell as soon as it is free.
    fn without_delays() -> Election {
        Election::among(|place| {
            let config = election_config(place, 3);
            ElectionConfig { flease: FleaseConfig { window: Duration::ZERO, ..config.flease }, ..config }
        })
    }

    fn among(config: impl Fn(usize) -> ElectionConfig) -> Election {
        let machine = |place: usize| {
            let random = Random::from_number(place as u64);
            let mut machine = FleaseElection::new(config(place), random);
            machine.on_event(Instant::ZERO, ElectionRequest::Start);
            machine
        };
        Election {
            machines: (0..3).map(machine).collect(),
            wakes: vec![None; 3],
            ahead: vec![Duration::ZERO; 3],
            now: Instant(BEGIN.0 >> 24 << 24),
            flying: Vec::new(),
            answers: Vec::new(),
        }
    }

    fn clock(&self, place: usize) -> Instant {
        self.now + self.ahead[place]
    }

    fn ask(&mut self, place: usize, request: ElectionRequest) {
        let now = self.clock(place);
        let output = self.machines[place].on_event(now, request);
        self.take(place, output);
    }

    fn campaign(&mut self, place: usize, request: u64) {
        self.ask(place, ElectionRequest::Command(ElectionCommand::Campaign { request }));
    }

    fn renew(&mut self, place: usize, request: u64, term: Term) {
        self.ask(place, ElectionRequest::Command(ElectionCommand::Renew { request, term }));
    }

    fn take(&mut self, from: usize, output: Output<ElectionAction>) {
        self.wakes[from] = output.wake;
        for action in output.actions {
            match action {
                ElectionAction::Send { to, packet } => {
                    self.flying.push((from, usize::from(to.0) - 1, packet));
                }
                ElectionAction::Answer(event) => self.answers.push((from, event)),
                other => panic!("nobody's clock is apart: {other:?}"),
            }
        }
    }

    /// Everything that is on its way arrives at this instant, and what is sent because of it.
    fn deliver(&mut self) {
        while !self.flying.is_empty() {
            for (from, to, packet) in std::mem::take(&mut self.flying) {
                self.ask(to, ElectionRequest::Receive { from: id(from), packet });
            }
        }
    }

    /// Time passes; everybody is woken when it wants to be, and everything arrives at once.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        self.deliver();
        loop {
            let due = |place: usize| Some((self.wakes[place]? - self.ahead[place], place));
            let next = (0..self.machines.len()).filter_map(due).min();
            let Some((at, place)) = next.filter(|(at, _)| *at <= end) else { break };
            self.now = self.now.max(at);
            let local = self.clock(place);
            let output = self.machines[place].on_wake(local);
            self.take(place, output);
            self.deliver();
        }
        self.now = end;
    }

    /// What was answered since the last time.
    fn answers(&mut self) -> Vec<(usize, ElectionEvent)> {
        std::mem::take(&mut self.answers)
    }

    /// Has a Manager win, and says which term.
    fn elect(&mut self, place: usize, request: u64) -> Term {
        self.campaign(place, request);
        self.pass(LEASE);
        let won = |(at, event): (usize, ElectionEvent)| match event {
            ElectionEvent::Won { request: won, term } if (at, won) == (place, request) => Some(term),
            _ => None,
        };
        self.answers().into_iter().find_map(won).expect("the campaign is won")
    }
}

#[test]
fn one_manager_wins_and_the_others_are_told_who() {
    let mut election = Election::new();
    let term = election.elect(0, 1);
    assert_eq!(election.machines[0].leading(election.clock(0)), Some(term));
    election.campaign(1, 7);
    election.pass(MILLISECOND);
    let led = ElectionEvent::LedBy { request: 7, leader: Some(manager(0)) };
    assert!(election.answers().iter().all(|answer| *answer == (1, led.clone())));
    assert_eq!(election.machines[1].known_leader(election.clock(1)), Some(&manager(0)));
    assert_eq!(election.machines[1].known_term(election.clock(1)), Some(term));
}

#[test]
fn a_term_is_announced_when_its_unit_is_over() {
    let mut election = Election::new();
    election.now = election.now + MILLISECOND * 3;
    let begun = election.now;
    election.campaign(0, 1);
    election.deliver();
    assert_eq!(election.answers(), [], "the cell is held, and its unit lasts");
    let end = Instant(begun.0 >> 24 << 24) + UNIT;
    election.pass(end.since(begun) - Duration::from_nanos(1));
    assert_eq!(election.answers(), []);
    election.pass(Duration::from_nanos(1));
    assert_eq!(election.answers(), [(0, ElectionEvent::Won { request: 1, term: Term(begun.0 >> 24) })]);
}

#[test]
fn a_campaign_is_won_by_a_round_that_began_after_it() {
    let mut election = Election::new();
    election.campaign(0, 1);
    election.deliver();
    election.pass(MILLISECOND);
    let term = Term(election.machines[0].known_term(election.clock(0)).expect("it holds the cell").0);
    election.campaign(0, 2);
    let round = std::mem::take(&mut election.flying);
    assert!(!round.is_empty(), "a round begins at once");
    election.pass(UNIT * 2);
    assert_eq!(election.answers(), [], "the round that acquired the cell is older than the campaign");
    election.flying = round;
    election.pass(MILLISECOND);
    assert_eq!(election.answers(), [(0, ElectionEvent::Won { request: 2, term })]);
}

#[test]
fn a_renewal_is_answered_by_a_round_that_began_after_it() {
    let mut election = Election::new();
    let term = election.elect(0, 1);
    election.renew(0, 2, term);
    election.now = election.now + MILLISECOND;
    election.renew(0, 3, term);
    election.deliver();
    assert_eq!(election.answers(), [(0, ElectionEvent::Renewed { request: 2 })], "3 came in the middle");
    election.pass(MILLISECOND);
    assert_eq!(election.answers(), [(0, ElectionEvent::Renewed { request: 3 })], "by the round right after");
    election.pass(MILLISECOND);
    assert_eq!(election.answers(), [], "nobody asked");
}

#[test]
fn the_latest_renewal_is_answered_for_all_before_it() {
    let mut election = Election::new();
    let term = election.elect(0, 1);
    // The lease is as long as it can be when the next renewals fail.
    election.renew(0, 9, term);
    election.pass(MILLISECOND);
    assert_eq!(election.answers(), [(0, ElectionEvent::Renewed { request: 9 })]);
    for request in 12..=14 {
        election.renew(0, request, term);
        election.flying.clear();
        election.now = election.now + ROUND;
    }
    election.pass(LEASE / 4);
    assert_eq!(election.answers(), [(0, ElectionEvent::Renewed { request: 14 })]);
}

#[test]
fn a_renewal_whose_packets_are_lost_is_not_answered_and_the_term_ends() {
    let mut election = Election::new();
    let term = election.elect(0, 1);
    election.renew(0, 2, term);
    let until = election.machines[0].peer().held(&cell(), election.clock(0)).expect("it holds").until;
    while election.now < until {
        election.flying.clear();
        assert_eq!(election.answers(), []);
        election.now = election.wakes[0].expect("it holds a lease").min(until);
        let output = election.machines[0].on_wake(election.now);
        election.take(0, output);
    }
    assert_eq!(election.answers(), [(0, ElectionEvent::Lost { term })]);
    assert_eq!(election.machines[0].leading(election.now), None);
}

fn cell() -> centrifuge_core::flease::Cell {
    flease_peers::cell(centrifuge_core::election::CELL)
}

#[test]
fn a_lease_that_is_over_is_lost_though_no_timer_said_so() {
    let mut election = Election::new();
    let term = election.elect(0, 1);
    election.now = election.now + LEASE * 2;
    assert_eq!(election.machines[0].leading(election.now), None);
    election.renew(0, 2, term);
    assert_eq!(election.answers(), [(0, ElectionEvent::Lost { term })]);
}

#[test]
fn a_renewal_of_another_term_is_refused_and_harms_nobody() {
    let mut election = Election::new();
    let term = election.elect(0, 1);
    let other = Term(term.0 - 1);
    election.renew(0, 2, other);
    assert_eq!(election.answers(), [(0, ElectionEvent::Lost { term: other })]);
    election.renew(1, 3, term);
    assert_eq!(election.answers(), [(1, ElectionEvent::Lost { term })]);
    assert_eq!(election.machines[0].leading(election.clock(0)), Some(term));
}

#[test]
fn a_manager_that_campaigns_while_it_holds_the_cell_gets_a_new_term() {
    let mut election = Election::new();
    let term = election.elect(0, 1);
    election.campaign(0, 2);
    assert_eq!(election.answers(), [(0, ElectionEvent::Lost { term })]);
    let next = election.elect(0, 3);
    assert!(next > term);
}

#[test]
fn who_resigns_lets_the_next_one_in_at_once() {
    let mut election = Election::new();
    let term = election.elect(0, 1);
    election.campaign(1, 2);
    election.pass(MILLISECOND);
    election.answers();
    election.ask(0, ElectionRequest::Command(ElectionCommand::Resign { term }));
    assert!(election.machines[0].is_releasing());
    assert_eq!(election.answers(), [(0, ElectionEvent::Lost { term })]);
    election.deliver();
    assert!(!election.machines[0].is_releasing(), "the others have heard of it");
    election.pass(LEASE / 8 + UNIT);
    let answers = election.answers();
    let [(1, ElectionEvent::Won { request: 2, term: next })] = answers[..] else { panic!("{answers:?}") };
    assert!(next > term);
}

#[test]
fn resigning_another_term_does_nothing() {
    let mut election = Election::new();
    let term = election.elect(0, 1);
    election.ask(0, ElectionRequest::Command(ElectionCommand::Resign { term: Term(term.0 - 1) }));
    assert_eq!(election.machines[0].leading(election.clock(0)), Some(term));
}

#[test]
fn two_leaders_in_a_row_never_share_a_term() {
    for ahead in [[Duration::ZERO; 3], [EPSILON, Duration::ZERO, UNIT], [Duration::ZERO, EPSILON, UNIT / 2]] {
        for phase in 0..17 {
            let mut election = Election::without_delays();
            election.ahead = ahead.to_vec();
            election.now = election.now + MILLISECOND * phase;
            (0..3).for_each(|place| election.campaign(place, 0));
            let mut terms = Vec::new();
            for request in 1..4_000 {
                election.pass(MILLISECOND / 4);
                for (place, event) in election.answers() {
                    // Whoever wins resigns at once, and others wait for nothing else.
                    if let ElectionEvent::Won { term, .. } = event {
                        terms.push(term);
                        election.ask(place, ElectionRequest::Command(ElectionCommand::Resign { term }));
                        election.campaign(place, request);
                    }
                }
            }
            assert!(terms.len() > 5, "they take turns: {terms:?}");
            assert!(terms.windows(2).all(|pair| pair[0] < pair[1]), "{terms:?}");
        }
    }
}

#[test]
fn a_clock_that_jumped_ends_the_term_and_begins_a_recovery() {
    let mut election = Election::new();
    let term = election.elect(0, 1);
    election.campaign(0, 2);
    let next = election.elect(0, 3);
    election.answers();
    election.ask(0, ElectionRequest::ClockJumped);
    assert_eq!(election.answers(), [(0, ElectionEvent::Lost { term: next })]);
    election.campaign(0, 4);
    election.pass(election_config(0, 3).flease.recovery - MILLISECOND);
    assert!(!election.answers().iter().any(|(_, event)| matches!(event, ElectionEvent::Won { .. })));
    assert!(election.elect(0, 5) > next && next > term);
}

/// So a Manager that knows who leads takes part: who restarts one after the other need not wait for anything else.
#[test]
fn a_restarted_manager_is_told_who_leads_when_it_has_recovered() {
    let mut election = Election::new();
    election.elect(0, 1);
    let config = election_config(1, 3);
    let recovery = config.flease.recovery;
    election.machines[1] = FleaseElection::new(config, Random::from_number(7));
    election.ask(1, ElectionRequest::Start);
    election.campaign(1, 2);
    election.pass(recovery - MILLISECOND);
    assert!(!election.answers().iter().any(|(place, _)| *place == 1));
    assert_eq!(election.machines[1].known_leader(election.clock(1)), None);
    election.pass(LEASE);
    let led = (1, ElectionEvent::LedBy { request: 2, leader: Some(manager(0)) });
    assert!(election.answers().contains(&led) && election.machines[1].peer().takes_part(election.clock(1)));
}

#[test]
fn a_wake_that_comes_early_changes_nothing() {
    let mut election = Election::new();
    election.campaign(0, 1);
    election.deliver();
    for place in 0..3 {
        let (before, wake) = (election.machines[place].clone(), election.wakes[place]);
        let now = election.clock(place);
        let output = election.machines[place].on_wake(now);
        assert_eq!((output.actions, output.wake), (Vec::new(), wake));
        assert_eq!(election.machines[place], before);
    }
}

#[test]
fn a_leader_lease_is_the_longest_that_flease_covers() {
    let config = election_config(0, 3);
    let drift = Drift::default();
    let lease = config.leader_lease(drift);
    assert!(drift.hold_for(lease) <= LEASE - EPSILON);
    assert!(drift.hold_for(lease + Duration::from_nanos(1)) > LEASE - EPSILON);
}

#[test]
fn what_would_let_two_lead_is_refused() {
    let good = election_config(0, 3);
    assert_eq!(good.check(), Ok(()));
    let mut nameless = good.clone();
    nameless.managers.remove(&id(2));
    assert_eq!(nameless.check(), Err(ElectionConfigError::NoManager(id(2))));
    let mut wrong = good.clone();
    wrong.flease.me = PeerId(9);
    assert_eq!(wrong.check(), Err(ElectionConfigError::Flease(FleaseConfigError::NotAPeer(PeerId(9)))));
    let short = good.flease.clone().with_times(MILLISECOND * 20, MILLISECOND, MILLISECOND * 4);
    let short = ElectionConfig { flease: FleaseConfig { window: MILLISECOND, ..short }, ..good };
    assert_eq!(short.check(), Err(ElectionConfigError::LeaseWithinUnit));
}
