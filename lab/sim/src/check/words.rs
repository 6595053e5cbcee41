//! Messages, leases and breaches in words.

use std::fmt::Write;

use centrifuge_core::id::{Generation, SessionId};
use centrifuge_core::key::KeyRange;
use centrifuge_core::message::{
    Assign, LeaseOrder, ManagerToOwner, OrderKind, OwnerToManager, Release, Report,
};

use super::network::{Body, Packet};
use super::nodes::OwnerNode;
use super::properties::Breach;
use super::scenario::{PROBES, Scenario};

/// How many processes of a place have a name.
const LIVES: u8 = 8;

/// The names of processes: the first at a place has the place's name, later ones have a number.
pub(super) struct Names {
    places: Vec<String>,
    sessions: Vec<(SessionId, String)>,
}

impl Names {
    /// The names of all processes that a world may have.
    pub(super) fn new(scenario: &Scenario) -> Names {
        let place = |slot: usize| {
            let name = scenario.owners[slot].name;
            let namesakes = scenario.owners[..slot].iter().filter(|plan| plan.name == name).count();
            format!("{name}{}", "'".repeat(namesakes))
        };
        let places: Vec<String> = (0..scenario.owners.len()).map(place).collect();
        let mut sessions = Vec::new();
        for (slot, place) in places.iter().enumerate() {
            let session = |life| OwnerNode::new(scenario, slot, life).machine.session();
            sessions.extend((1..=LIVES).map(|life| (session(life), numbered(place, life))));
        }
        Names { places, sessions }
    }

    /// The process of a life at a place.
    pub(super) fn process(&self, slot: usize, life: u8) -> String {
        numbered(&self.places[slot], life)
    }

    /// A process by its session.
    pub(super) fn session(&self, session: SessionId) -> String {
        let found = self.sessions.iter().find(|(known, _)| *known == session);
        found.map_or_else(|| session.to_string(), |(_, name)| name.clone())
    }

    /// What is wrong.
    pub(super) fn breach(&self, breach: Breach) -> String {
        match breach {
            Breach::TwoOwners { probe, slots: (one, other) } => {
                let (one, other) = (&self.places[one], &self.places[other]);
                format!("the processes at {one} and {other} both hold key {}", PROBES[probe])
            }
            Breach::GenerationNotNew { generation, before } => {
                format!("lease {generation} is granted after lease {before}")
            }
            Breach::HeldTwice { slot, generation } => {
                format!("the process at {} holds lease {generation} again after a gap", self.places[slot])
            }
            Breach::DeniesContinuity { slot, generation } => {
                let name = &self.places[slot];
                format!("the process at {name} denies that it has held on since it had lease {generation}")
            }
            Breach::FalseLoss { probe, known, generation } => format!(
                "a Lookup that knew lease {known} is shown lease {generation} and tells that the state of key {} is lost, \
                 which it is not",
                PROBES[probe]
            ),
            Breach::MissedLoss { probe, known, generation } => format!(
                "a Lookup that knew lease {known} is shown lease {generation} and does not tell that the state of key {} \
                 is lost",
                PROBES[probe]
            ),
            Breach::FalselyClean { session, generation, source } => {
                let session = self.session(session);
                format!(
                    "{session} takes up lease {generation} with the state of lease {source}, which it lacks"
                )
            }
            Breach::HidesLoss { session, generation, state_since } => {
                let session = self.session(session);
                format!(
                    "{session} takes up lease {generation} empty, but it claims state since {state_since}"
                )
            }
            Breach::LostWithoutCause { probe, generation } => {
                format!(
                    "the state of key {} under lease {generation} is given up without a cause",
                    PROBES[probe]
                )
            }
            Breach::OfferedForTooLong { session, generation } => {
                let session = self.session(session);
                format!("lease {generation} is still on offer to {session} after a hold, and is nobody's")
            }
            Breach::DeposedLeaderWrote { term, newest } => {
                format!("a batch of term {term} is committed though term {newest} has begun")
            }
            Breach::TermFell { slot, from, to } => {
                format!("the process at {} went from term {from} back to term {to}", self.places[slot])
            }
            Breach::NotCommitted { session, generation } => {
                format!("{} is told of lease {generation}, which is not committed", self.session(session))
            }
        }
    }

    /// A message.
    pub(super) fn packet(&self, packet: &Packet) -> String {
        match &packet.body {
            Body::ToManager(OwnerToManager::Hello(hello)) => {
                let vouches = if hello.takes_over_previous { ", which takes over" } else { "" };
                format!("hello {} of {}{vouches}", hello.number, self.session(hello.session))
            }
            Body::ToManager(OwnerToManager::Report(report)) => self.report(report),
            Body::ToOwner(message) => self.to_owner(message),
            Body::Copied { source, transfer, to } => {
                let (source, to) = (self.session(*source), self.session(*to));
                format!("word that {to} has all state of transfer {} of {source}", transfer.0)
            }
        }
    }

    fn to_owner(&self, message: &ManagerToOwner) -> String {
        match message {
            ManagerToOwner::Welcome(welcome) => {
                format!("a welcome to hello {} of {}", welcome.number, self.session(welcome.session))
            }
            ManagerToOwner::Refused(refused) => {
                let session = self.session(refused.session);
                format!("a refusal of hello {} of {session}: {:?}", refused.number, refused.why)
            }
            ManagerToOwner::Unknown { session, .. } => {
                format!("word that a conversation of {} is unknown", self.session(*session))
            }
            ManagerToOwner::NotLeader { .. } => "word that somebody else leads".into(),
            ManagerToOwner::Assign(assign) => self.assign(assign),
        }
    }

    fn report(&self, report: &Report) -> String {
        let held = list(report.held.iter().map(|held| lease(held.generation, held.range)));
        let released = list(report.released.iter().map(|release| self.release(release)));
        let refused = list(report.refused.iter().map(|refusal| lease(refusal.generation, refusal.range)));
        let name = self.session(report.session);
        let mut text = format!("report {} of {name} (heard {}): it holds {held}", report.seq, report.heard);
        if !report.released.is_empty() {
            let _ = write!(text, ", gave up {released}");
        }
        if !report.refused.is_empty() {
            let _ = write!(text, ", refused {refused}");
        }
        if report.leaving {
            text.push_str(", and goes");
        }
        text
    }

    fn release(&self, release: &Release) -> String {
        let text = lease(release.generation, release.range);
        release.clean_to.map_or(text.clone(), |to| format!("{text} with its state to {}", self.session(to)))
    }

    fn assign(&self, assign: &Assign) -> String {
        let orders = list(assign.orders.iter().map(|order| self.order(order)));
        let name = self.session(assign.session);
        format!("message {} of term {} to {name} (heard {}): {orders}", assign.seq, assign.term, assign.heard)
    }

    fn order(&self, order: &LeaseOrder) -> String {
        let mut text = match order.kind {
            OrderKind::Grant { .. } => "a grant of ".to_owned(),
            OrderKind::Renewal => "a renewal of ".to_owned(),
        };
        text.push_str(&lease(order.generation, order.range));
        if let OrderKind::Grant { source: Some(source) } = order.kind {
            let _ = write!(text, " with the state of lease {source}");
        }
        if let Some(merge) = order.merge {
            let _ = write!(text, ", from now on lease {merge}");
        }
        if let Some(recall) = &order.recall {
            text.push_str(", recalled");
            if let Some(to) = &recall.to {
                let _ = write!(text, " for {}", self.session(to.session));
            }
        }
        text
    }
}

fn numbered(place: &str, life: u8) -> String {
    if life > 1 { format!("{place}/{life}") } else { place.to_owned() }
}

fn lease(generation: Generation, range: KeyRange) -> String {
    format!("lease {generation} on {}", keys(range))
}

/// The keys of a range, as far as the watched ones tell.
pub(super) fn keys(range: KeyRange) -> String {
    match PROBES.map(|key| range.contains(key)) {
        [true, true] => "all keys".into(),
        [true, false] => "the lower keys".into(),
        [false, true] => "the upper keys".into(),
        [false, false] => range.to_string(),
    }
}

/// Things in a row.
pub(super) fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() { "nothing".into() } else { items.join(" and ") }
}
