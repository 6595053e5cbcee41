//! A counter-example in plain words, step by step.

use std::fmt::Write;

use centrifuge_core::id::Generation;
use centrifuge_core::key::KeyRange;
use centrifuge_core::manager::AdminCommand;
use centrifuge_core::message::{
    Assign, LeaseOrder, ManagerToOwner, OrderKind, OwnerToManager, Release, Report,
};
use centrifuge_core::owner::OwnerEvent;

use super::{
    Action, Body, Breach, Command, Node, OwnerNode, PROBES, Packet, Scenario, State, Task, TaskKind, World,
    address, manager_id,
};

/// How many processes of a place have a name.
const LIVES: u8 = 8;

/// Tells a path: what happens, what is sent because of it, and who holds what from then on.
pub(super) fn story(world: &World, path: &[(State, Option<Action>)]) -> String {
    let first = path.first().map_or(&world.start, |(state, _)| state);
    let mut text = format!("      at first {}\n", holdings(first));
    for (number, pair) in path.windows(2).enumerate() {
        let [(before, Some(action)), (after, _)] = pair else { continue };
        let seconds = world.stage.real_time(after) as f64 / 1_000.0;
        let happens = happening(&world.stage.scenario, before, action);
        let _ = writeln!(text, "{:>4}. at {seconds} s {happens}", number + 1);
        for consequence in consequences(before, after) {
            let _ = writeln!(text, "        - {consequence}");
        }
    }
    if let Some(Breach(sentence, what)) = path.last().and_then(|(state, _)| state.breach.as_deref()) {
        let _ = writeln!(text, "      {sentence} is broken: {what}");
    }
    rename(&world.stage.scenario, text)
}

/// Puts the names of processes in place of addresses and sessions: the first process at a place has the place's name, later
/// ones have a number.
fn rename(scenario: &Scenario, mut text: String) -> String {
    for (slot, plan) in scenario.owners.iter().enumerate() {
        let namesakes = scenario.owners[..slot].iter().filter(|other| other.name == plan.name).count();
        let place = format!("{}{}", plan.name, "'".repeat(namesakes));
        text = text.replace(&*address(slot).to_string(), &place);
        for life in 1..=LIVES {
            let session = OwnerNode::new(scenario, slot, life).machine.session();
            text = text.replace(&session.to_string(), &numbered(&place, life));
        }
    }
    text
}

fn process(state: &State, slot: usize) -> String {
    numbered(&address(slot).to_string(), state.owners[slot].life)
}

fn node_name(state: &State, node: Node) -> String {
    match node {
        Node::Manager(manager) => manager_id(manager).to_string(),
        Node::Owner(slot) => process(state, slot),
    }
}

fn happening(scenario: &Scenario, before: &State, action: &Action) -> String {
    match action {
        Action::Deliver(packet) => {
            format!("{} gets {}", node_name(before, packet.to), packet_text(packet))
        }
        Action::Wake(node) => format!("{} is woken, because it is due", node_name(before, *node)),
        Action::Advance => "time has passed".into(),
        Action::Operate(command) => operator(command),
        Action::Wish(place) => wish(before, &scenario.wishes[*place]),
        Action::Commit(_) => "the store finishes a batch".into(),
        Action::Doubt(_) => "the store does not know what became of a batch".into(),
        Action::Arrive(_) => "a batch that was in doubt gets to the store".into(),
        Action::Work(task) => task_text(before, task),
        Action::Fail(task) => format!("a transfer of {} fails", process(before, task.slot)),
        Action::Write(slot, _) => format!("{} serves a write", process(before, *slot)),
        Action::Crash(slot) => format!("{} dies", process(before, *slot)),
        Action::Start(slot) => {
            let life = before.owners[*slot].life + 1;
            format!("{} starts", numbered(&address(*slot).to_string(), life))
        }
        Action::Break(slot) => format!("the stream of {} breaks", process(before, *slot)),
        Action::Keep(slot) => format!("the state of {} is kept", process(before, *slot)),
        Action::Restore(slot) => {
            let name = process(before, *slot);
            format!("{name} is restored from the state that was kept, and sees that its clock jumped")
        }
        Action::Elect(manager) => format!("{} is elected and starts to lead", manager_id(*manager)),
    }
}

fn wish(before: &State, (slot, event): &(usize, OwnerEvent)) -> String {
    let name = process(before, *slot);
    match event {
        OwnerEvent::Leave => format!("{name} leaves"),
        OwnerEvent::Drain => format!("{name} wants to be emptied"),
        OwnerEvent::ClockJumped { .. } => format!("{name} sees that its clock jumped"),
        OwnerEvent::Cloned { .. } => format!("{name} hears that it has a copy"),
        OwnerEvent::Undrain => format!("{name} wants to keep what it has"),
        event => format!("{name} is told {event:?}"),
    }
}

fn task_text(before: &State, task: &Task) -> String {
    let name = process(before, task.slot);
    match &task.kind {
        TaskKind::Quiesce => format!("the last operation at {name} ends"),
        TaskKind::Copy => format!("{name} has copied the state that it goes on serving"),
        TaskKind::Await => format!("{name} waits for word of its copy"),
        TaskKind::Finish { to, .. } => {
            let place = (0..before.owners.len()).find(|slot| address(*slot) == *to);
            let to = place.map_or_else(|| to.to_string(), |place| process(before, place));
            format!("{name} has sent the rest of its state to {to}")
        }
    }
}

fn consequences(before: &State, after: &State) -> Vec<String> {
    let mut lines = Vec::new();
    for packet in after.network.iter().filter(|packet| !before.network.has(packet)) {
        let (from, to) = (node_name(after, packet.from), node_name(after, packet.to));
        lines.push(format!("{from} sends {to} {}", packet_text(packet)));
    }
    if after.store.index() != before.store.index() {
        lines.push(format!("it is committed that {}", table(after)));
    }
    if after.memory != before.memory {
        lines.push(format!("now {}", holdings(after)));
    }
    lines
}

/// Who holds what by its own clock.
fn holdings(state: &State) -> String {
    let mut parts = Vec::new();
    for slot in 0..state.owners.len() {
        let [low, high] = [0, 1].map(|probe| state.memory.holds(slot, probe));
        let name = process(state, slot);
        match (low, high) {
            (Some(low), Some(high)) if low == high => {
                parts.push(format!("{name} holds all keys under lease {low}"));
            }
            _ => {
                parts.extend(low.map(|lease| format!("{name} holds the lower keys under lease {lease}")));
                parts.extend(high.map(|lease| format!("{name} holds the upper keys under lease {lease}")));
            }
        }
    }
    if parts.is_empty() { "nobody holds anything".into() } else { list(parts.into_iter()) }
}

/// Who has what by the committed table.
fn table(state: &State) -> String {
    let tables = state.store.group.namespaces.values().map(|stored| &stored.table);
    let entries = tables.flat_map(|table| table.overlapping(KeyRange::ALL));
    list(entries.map(|(range, entry)| {
        let owner = entry.owner.map_or_else(|| "nobody".into(), |owner| owner.to_string());
        let recall = match entry.recall.map(|recall| recall.to) {
            None => String::new(),
            Some(None) => ", recalled".into(),
            Some(Some(to)) => format!(", recalled for {to}"),
        };
        let merge = entry.merge.map_or(String::new(), |merge| format!(", to become lease {merge}"));
        format!("{owner} has lease {} on {}{merge}{recall}", entry.generation, keys(range))
    }))
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

/// A message.
fn packet_text(packet: &Packet) -> String {
    match &packet.body {
        Body::ToManager(OwnerToManager::Hello(hello)) => {
            let vouches = if hello.takes_over_previous { ", which takes over" } else { "" };
            format!("hello {} of {}{vouches}", hello.number, hello.session)
        }
        Body::ToManager(OwnerToManager::Report(report)) => report_text(report),
        Body::ToOwner(message) => message_text(message),
        Body::Copied { source, transfer, to } => {
            format!("word that {to} has all state of transfer {} of {source}", transfer.0)
        }
    }
}

fn message_text(message: &ManagerToOwner) -> String {
    match message {
        ManagerToOwner::Welcome(welcome) => {
            format!("a welcome to hello {} of {}", welcome.number, welcome.session)
        }
        ManagerToOwner::Refused(refused) => {
            format!("a refusal of hello {} of {}: {:?}", refused.number, refused.session, refused.why)
        }
        ManagerToOwner::Unknown { session, .. } => {
            format!("word that a conversation of {session} is unknown")
        }
        ManagerToOwner::NotLeader { .. } => "word that somebody else leads".into(),
        ManagerToOwner::Assign(Assign { seq, term, session, heard, orders, .. }) => {
            let orders = list(orders.iter().map(order_text));
            format!("message {seq} of term {term} to {session} (heard {heard}): {orders}")
        }
    }
}

fn report_text(report: &Report) -> String {
    let Report { session, seq, heard, held, released, refused, leaving, .. } = report;
    let held = list(held.iter().map(|held| lease(held.generation, held.range)));
    let mut text = format!("report {seq} of {session} (heard {heard}): it holds {held}");
    if !released.is_empty() {
        let _ = write!(text, ", gave up {}", list(released.iter().map(release_text)));
    }
    if !refused.is_empty() {
        let refused = list(refused.iter().map(|refusal| lease(refusal.generation, refusal.range)));
        let _ = write!(text, ", refused {refused}");
    }
    if *leaving {
        text.push_str(", and goes");
    }
    text
}

fn release_text(release: &Release) -> String {
    let text = lease(release.generation, release.range);
    release.clean_to.map_or(text.clone(), |to| format!("{text} with its state to {to}"))
}

fn order_text(order: &LeaseOrder) -> String {
    let kind = match order.kind {
        OrderKind::Grant { .. } => "grant",
        OrderKind::Renewal => "renewal",
    };
    let mut text = format!("a {kind} of {}", lease(order.generation, order.range));
    if let OrderKind::Grant { source: Some(source) } = order.kind {
        let _ = write!(text, " with the state of lease {source}");
    }
    if let Some(merge) = order.merge {
        let _ = write!(text, ", from now on lease {merge}");
    }
    if let Some(recall) = &order.recall {
        text.push_str(", recalled");
        if let Some(to) = &recall.to {
            let _ = write!(text, " for {}", to.session);
        }
    }
    text
}

fn numbered(place: &str, life: u8) -> String {
    if life > 1 { format!("{place}/{life}") } else { place.to_owned() }
}

fn lease(generation: Generation, range: KeyRange) -> String {
    format!("lease {generation} on {}", keys(range))
}

/// The keys of a range, as far as the watched ones tell.
fn keys(range: KeyRange) -> String {
    match PROBES.map(|key| range.contains(key)) {
        [true, true] => "all keys".into(),
        [true, false] => "the lower keys".into(),
        [false, true] => "the upper keys".into(),
        [false, false] => range.to_string(),
    }
}

/// Things in a row.
fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() { "nothing".into() } else { items.join(" and ") }
}
