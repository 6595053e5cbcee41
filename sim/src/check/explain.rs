//! A counter-example in plain words, step by step.

use std::fmt::Write;

use centrifuge_core::id::{Generation, SessionId};
use centrifuge_core::key::KeyRange;
use centrifuge_core::message::{
    Assign, LeaseOrder, ManagerToOwner, OrderKind, OwnerToManager, Release, Report,
};

use super::app::TaskKind;
use super::nodes::OwnerNode;
use super::scenario::{PROBES, Scenario, manager_id};
use super::world::{Action, Body, Node, Packet, State, World};

/// How many processes of a place have a name in explanations.
const LIVES: u8 = 8;

/// Tells a path: what happens, what is sent because of it, and who holds what from then on.
pub(super) fn story(world: &World, path: &[(State, Option<Action>)]) -> String {
    let teller = Teller { scenario: &world.stage.scenario, sessions: sessions(&world.stage.scenario) };
    let mut text = String::new();
    let _ = writeln!(text, "  at first: {}", teller.holdings(&world.start));
    let mut number = 0;
    for pair in path.windows(2) {
        let [(before, Some(action)), (after, _)] = pair else { continue };
        number += 1;
        let time = world.stage.real_time(after);
        let _ = writeln!(
            text,
            "{number:>3}. [{:>6.3} s] {}",
            time as f64 / 1_000.0,
            teller.action(before, action)
        );
        for consequence in teller.consequences(before, after) {
            let _ = writeln!(text, "                    {consequence}");
        }
    }
    if let Some(breach) = path.last().and_then(|(state, _)| state.breach) {
        let _ =
            writeln!(text, "  {} is broken: {}", breach.sentence(), teller.name_sessions(breach.to_string()));
    }
    text
}

struct Teller<'a> {
    scenario: &'a Scenario,
    /// Every process there may be, with its name.
    sessions: Vec<(SessionId, String)>,
}

/// The names of all processes: the first at a place has the place's name, later ones have a number.
fn sessions(scenario: &Scenario) -> Vec<(SessionId, String)> {
    let mut sessions = Vec::new();
    for slot in 0..scenario.owners.len() {
        for life in 1..=LIVES {
            let session = OwnerNode::new(scenario, slot, life).machine.session();
            sessions.push((session, process_name(scenario, slot, life)));
        }
    }
    sessions
}

fn process_name(scenario: &Scenario, slot: usize, life: u8) -> String {
    let name = scenario.owners[slot].name;
    let namesakes = scenario.owners[..slot].iter().filter(|plan| plan.name == name).count();
    let marks = "'".repeat(namesakes);
    if life > 1 { format!("{name}{marks}/{life}") } else { format!("{name}{marks}") }
}

impl Teller<'_> {
    fn session(&self, session: SessionId) -> String {
        let found = self.sessions.iter().find(|(known, _)| *known == session);
        found.map_or_else(|| session.to_string(), |(_, name)| name.clone())
    }

    fn name_sessions(&self, mut text: String) -> String {
        for (session, name) in &self.sessions {
            text = text.replace(&session.to_string(), name);
        }
        for (slot, plan) in self.scenario.owners.iter().enumerate() {
            text = text.replace(&format!("place {slot}"), &format!("place {slot} ({})", plan.name));
        }
        text
    }

    fn process(&self, state: &State, slot: usize) -> String {
        process_name(self.scenario, slot, state.owners[slot].life.max(1))
    }

    fn node(&self, state: &State, node: Node) -> String {
        match node {
            Node::Manager(manager) => manager_id(manager).to_string(),
            Node::Owner(slot) => self.process(state, slot),
        }
    }

    fn action(&self, before: &State, action: &Action) -> String {
        match action {
            Action::Deliver(packet) => {
                format!("{} gets {}", self.node(before, packet.to), self.packet(packet))
            }
            Action::Wake(node) => format!("{} is woken, because it is due", self.node(before, *node)),
            Action::Advance => "time passes".into(),
            Action::Operate => {
                format!("the operator asks for {:?}", self.scenario.commands[before.spent.commands])
            }
            Action::Wish(place) => {
                let (slot, event) = &self.scenario.wishes[*place];
                format!("the application of {} says {event:?}", self.process(before, *slot))
            }
            Action::Commit(_) => "the store finishes a batch".into(),
            Action::Doubt(_) => "the store does not know what became of a batch".into(),
            Action::Arrive(_) => "a batch that was in doubt gets to the log".into(),
            Action::Work(task) => {
                let name = self.process(before, task.slot);
                match &task.kind {
                    TaskKind::Quiesce => format!("the last operation at {name} ends"),
                    TaskKind::Copy => format!("{name} has copied the state that it serves on"),
                    TaskKind::Await => format!("{name} waits"),
                    TaskKind::Finish { to, .. } => format!("{name} sends the rest of its state to {to}"),
                }
            }
            Action::Fail(task) => format!("the transfer of {} fails", self.process(before, task.slot)),
            Action::Write(slot, _) => format!("{} serves a write", self.process(before, *slot)),
            Action::Crash(slot) => format!("{} dies", self.process(before, *slot)),
            Action::Start(slot) => {
                let life = before.owners[*slot].life + 1;
                format!("{} starts", process_name(self.scenario, *slot, life))
            }
            Action::Elect(manager) => format!("{} wins an election", manager_id(*manager)),
        }
    }

    fn consequences(&self, before: &State, after: &State) -> Vec<String> {
        let mut lines = Vec::new();
        for packet in after.network.iter().filter(|packet| !before.network.has(packet)) {
            let from = self.node(after, packet.from);
            lines.push(format!("{from} sends {} to {}", self.packet(packet), self.node(after, packet.to)));
        }
        if after.store.index() != before.store.index() {
            lines.push(format!("committed: {}", self.table(after)));
        }
        if after.memory != before.memory {
            lines.push(format!("now {}", self.holdings(after)));
        }
        lines
    }

    fn holdings(&self, state: &State) -> String {
        let mut parts = Vec::new();
        for slot in 0..state.owners.len() {
            for (probe, key) in PROBES.iter().enumerate() {
                if let Some(generation) = state.memory.holds(slot, probe) {
                    parts.push(format!(
                        "{} holds key {key} under lease {generation}",
                        self.process(state, slot)
                    ));
                }
            }
        }
        if parts.is_empty() { "nobody holds anything".into() } else { parts.join(", ") }
    }

    fn table(&self, state: &State) -> String {
        let mut parts = Vec::new();
        for stored in state.store.group.namespaces.values() {
            for (range, entry) in stored.table.iter() {
                let owner = entry.owner.map_or_else(|| "nobody".into(), |owner| self.session(owner));
                let recall = match entry.recall {
                    None => String::new(),
                    Some(recall) => match recall.to {
                        Some(to) => format!(", recalled for {}", self.session(to)),
                        None => ", recalled".into(),
                    },
                };
                parts.push(format!("{} has lease {} on {}{recall}", owner, entry.generation, keys(range)));
            }
        }
        parts.join("; ")
    }

    fn packet(&self, packet: &Packet) -> String {
        match &packet.body {
            Body::ToManager(OwnerToManager::Hello(hello)) => {
                let vouches = if hello.takes_over_previous { ", taking over" } else { "" };
                format!("hello {} of {}{vouches}", hello.number, self.session(hello.session))
            }
            Body::ToManager(OwnerToManager::Report(report)) => self.report(report),
            Body::ToOwner(ManagerToOwner::Welcome(welcome)) => {
                let session = self.session(welcome.session);
                format!(
                    "a welcome to hello {} of {session}, conversation {}",
                    welcome.number, welcome.conversation
                )
            }
            Body::ToOwner(ManagerToOwner::Refused(refused)) => {
                format!(
                    "a refusal of hello {} of {}: {:?}",
                    refused.number,
                    self.session(refused.session),
                    refused.why
                )
            }
            Body::ToOwner(ManagerToOwner::Unknown { session, conversation }) => {
                format!("word that conversation {conversation} of {} is unknown", self.session(*session))
            }
            Body::ToOwner(ManagerToOwner::NotLeader { .. }) => "word that it does not lead".into(),
            Body::ToOwner(ManagerToOwner::Assign(assign)) => self.assign(assign),
            Body::Copied { source, transfer, to } => {
                let (source, to) = (self.session(*source), self.session(*to));
                format!("word that {to} has all state of transfer {} of {source}", transfer.0)
            }
        }
    }

    fn report(&self, report: &Report) -> String {
        let mut text = format!(
            "report {} of {} (heard {}, applied {}) holding {}",
            report.seq,
            self.session(report.session),
            report.heard,
            report.applied,
            list(report.held.iter().map(|held| lease(held.generation, held.range)))
        );
        if !report.released.is_empty() {
            let _ = write!(
                text,
                ", releasing {}",
                list(report.released.iter().map(|release| self.release(release)))
            );
        }
        if !report.refused.is_empty() {
            let refused = report.refused.iter().map(|refusal| lease(refusal.generation, refusal.range));
            let _ = write!(text, ", refusing {}", list(refused));
        }
        text
    }

    fn release(&self, release: &Release) -> String {
        let text = lease(release.generation, release.range);
        release.clean_to.map_or(text.clone(), |to| format!("{text} clean to {}", self.session(to)))
    }

    fn assign(&self, assign: &Assign) -> String {
        format!(
            "message {} to {} (term {}, heard {}, applied {}) listing {}",
            assign.seq,
            self.session(assign.session),
            assign.term,
            assign.heard,
            assign.applied,
            list(assign.orders.iter().map(|order| self.order(order)))
        )
    }

    fn order(&self, order: &LeaseOrder) -> String {
        let mut text = match order.kind {
            OrderKind::Grant { source: None } => "a grant of ".to_owned(),
            OrderKind::Grant { source: Some(source) } => {
                format!("a grant, with the state of lease {source}, of ")
            }
            OrderKind::Renewal => "a renewal of ".to_owned(),
        };
        text.push_str(&lease(order.generation, order.range));
        if let Some(recall) = &order.recall {
            text.push_str(", recalled");
            if let Some(to) = &recall.to {
                let _ = write!(text, " for {}", self.session(to.session));
            }
        }
        text
    }
}

fn lease(generation: Generation, range: KeyRange) -> String {
    format!("lease {generation} on {}", keys(range))
}

fn keys(range: KeyRange) -> String {
    match (range.contains(PROBES[0]), range.contains(PROBES[1])) {
        (true, true) => "all keys".into(),
        (true, false) => "the lower keys".into(),
        (false, true) => "the upper keys".into(),
        (false, false) => range.to_string(),
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() { "nothing".into() } else { items.join(" and ") }
}
