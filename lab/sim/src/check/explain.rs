//! A counter-example in plain words, step by step.

use std::fmt::Write;

use centrifuge_core::key::KeyRange;
use centrifuge_core::manager::AdminCommand;
use centrifuge_core::owner::OwnerEvent;

use super::app::{Task, TaskKind};
use super::network::Node;
use super::scenario::{Command, PROBES, Scenario, address, manager_id};
use super::words::{Names, keys, list};
use super::world::{Action, State, World};

/// Tells a path: what happens, what is sent because of it, and who holds what from then on.
pub(super) fn story(world: &World, path: &[(State, Option<Action>)]) -> String {
    let scenario = &world.stage.scenario;
    let teller = Teller { scenario, names: Names::new(scenario) };
    let first = path.first().map_or(&world.start, |(state, _)| state);
    let mut text = format!("      at first {}\n", teller.holdings(first));
    for (number, pair) in path.windows(2).enumerate() {
        let [(before, Some(action)), (after, _)] = pair else { continue };
        let seconds = world.stage.real_time(after) as f64 / 1_000.0;
        let _ = writeln!(text, "{:>4}. at {seconds} s {}", number + 1, teller.action(before, action));
        for consequence in teller.consequences(before, after) {
            let _ = writeln!(text, "        - {consequence}");
        }
    }
    if let Some(breach) = path.last().and_then(|(state, _)| state.breach) {
        let _ = writeln!(text, "      {} is broken: {}", breach.sentence(), teller.names.breach(breach));
    }
    text
}

struct Teller<'a> {
    scenario: &'a Scenario,
    names: Names,
}

impl Teller<'_> {
    fn process(&self, state: &State, slot: usize) -> String {
        self.names.process(slot, state.owners[slot].life)
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
                format!("{} gets {}", self.node(before, packet.to), self.names.packet(packet))
            }
            Action::Wake(node) => format!("{} is woken, because it is due", self.node(before, *node)),
            Action::Advance => "time has passed".into(),
            Action::Operate(command) => operator(command),
            Action::Wish(place) => self.wish(before, *place),
            Action::Commit(_) => "the store finishes a batch".into(),
            Action::Doubt(_) => "the store does not know what became of a batch".into(),
            Action::Arrive(_) => "a batch that was in doubt gets to the store".into(),
            Action::Work(task) => self.task(before, task),
            Action::Fail(task) => format!("a transfer of {} fails", self.process(before, task.slot)),
            Action::Write(slot, _) => format!("{} serves a write", self.process(before, *slot)),
            Action::Crash(slot) => format!("{} dies", self.process(before, *slot)),
            Action::Start(slot) => {
                format!("{} starts", self.names.process(*slot, before.owners[*slot].life + 1))
            }
            Action::Break(slot) => format!("the stream of {} breaks", self.process(before, *slot)),
            Action::Keep(slot) => format!("the state of {} is kept", self.process(before, *slot)),
            Action::Restore(slot) => {
                let name = self.process(before, *slot);
                format!("{name} is restored from the state that was kept, and sees that its clock jumped")
            }
            Action::Elect(manager) => format!("{} is elected and starts to lead", manager_id(*manager)),
        }
    }

    fn wish(&self, before: &State, place: usize) -> String {
        let (slot, event) = &self.scenario.wishes[place];
        let name = self.process(before, *slot);
        match event {
            OwnerEvent::Leave => format!("{name} leaves"),
            OwnerEvent::Drain => format!("{name} wants to be emptied"),
            OwnerEvent::ClockJumped { .. } => format!("{name} sees that its clock jumped"),
            OwnerEvent::Cloned { .. } => format!("{name} hears that it has a copy"),
            OwnerEvent::Undrain => format!("{name} wants to keep what it has"),
            event => format!("{name} is told {event:?}"),
        }
    }

    fn task(&self, before: &State, task: &Task) -> String {
        let name = self.process(before, task.slot);
        match &task.kind {
            TaskKind::Quiesce => format!("the last operation at {name} ends"),
            TaskKind::Copy => format!("{name} has copied the state that it goes on serving"),
            TaskKind::Await => format!("{name} waits for word of its copy"),
            TaskKind::Finish { to, .. } => {
                let place = (0..before.owners.len()).find(|slot| address(*slot) == *to);
                let to = place.map_or_else(|| to.to_string(), |place| self.process(before, place));
                format!("{name} has sent the rest of its state to {to}")
            }
        }
    }

    fn consequences(&self, before: &State, after: &State) -> Vec<String> {
        let mut lines = Vec::new();
        for packet in after.network.iter().filter(|packet| !before.network.has(packet)) {
            let (from, to) = (self.node(after, packet.from), self.node(after, packet.to));
            lines.push(format!("{from} sends {to} {}", self.names.packet(packet)));
        }
        if after.store.index() != before.store.index() {
            lines.push(format!("it is committed that {}", self.table(after)));
        }
        if after.memory != before.memory {
            lines.push(format!("now {}", self.holdings(after)));
        }
        lines
    }

    /// Who holds what by its own clock.
    fn holdings(&self, state: &State) -> String {
        let mut parts = Vec::new();
        for slot in 0..state.owners.len() {
            let [low, high] = [0, 1].map(|probe| state.memory.holds(slot, probe));
            let name = self.process(state, slot);
            match (low, high) {
                (Some(low), Some(high)) if low == high => {
                    parts.push(format!("{name} holds all keys under lease {low}"));
                }
                _ => {
                    parts.extend(low.map(|lease| format!("{name} holds the lower keys under lease {lease}")));
                    parts
                        .extend(high.map(|lease| format!("{name} holds the upper keys under lease {lease}")));
                }
            }
        }
        if parts.is_empty() { "nobody holds anything".into() } else { list(parts.into_iter()) }
    }

    /// Who has what by the committed table.
    fn table(&self, state: &State) -> String {
        let tables = state.store.group.namespaces.values().map(|stored| &stored.table);
        let entries = tables.flat_map(|table| table.overlapping(KeyRange::ALL));
        list(entries.map(|(range, entry)| {
            let owner = entry.owner.map_or_else(|| "nobody".into(), |owner| self.names.session(owner));
            let recall = match entry.recall.map(|recall| recall.to) {
                None => String::new(),
                Some(None) => ", recalled".into(),
                Some(Some(to)) => format!(", recalled for {}", self.names.session(to)),
            };
            let merge = entry.merge.map_or(String::new(), |merge| format!(", to become lease {merge}"));
            format!("{owner} has lease {} on {}{merge}{recall}", entry.generation, keys(range))
        }))
    }
}

fn operator(command: &Command) -> String {
    match command {
        Command::Resign => "the leader is asked to resign".into(),
        Command::Admin(AdminCommand::Create { .. }) => "the operator creates the namespace".into(),
        Command::Admin(AdminCommand::Move { range, to: Some(to), .. }) => {
            format!("the operator wants {} at {to}", keys(*range))
        }
        Command::Admin(AdminCommand::Evict { owner, .. }) => format!("the operator evicts {owner}"),
        Command::Admin(AdminCommand::Configure { settings, .. }) => {
            format!("the operator wants leases of {:?}, held for {:?}", settings.lease, settings.hold)
        }
        Command::Admin(command) => format!("the operator wants {command:?}"),
    }
}

const _: () = assert!(PROBES.len() == 2, "stories know a lower and an upper part");
