//! A counter-example of Flease in plain words, step by step.

use std::fmt::Write;

use centrifuge_core::flease::{Ballot, Body, Lease, Message};
use centrifuge_core::time::Instant;

use super::world::{Action, Sent, State, World};
use super::{ORIGIN, id};

/// Tells a path: what happens, what is sent because of it, and who holds the cell from then on.
pub(in crate::check) fn story(world: &World, path: &[(State, Option<Action>)]) -> String {
    let mut text = String::new();
    if let Some((first, _)) = path.first() {
        let _ = writeln!(text, "      at first {}", clocks(world, first));
    }
    for (number, pair) in path.windows(2).enumerate() {
        let [(before, Some(action)), (after, _)] = pair else { continue };
        let seconds = world.scenario.instants[after.instant];
        let _ = writeln!(text, "{:>4}. at {seconds} s {}", number + 1, happening(world, action, after));
        for line in consequences(world, before, after) {
            let _ = writeln!(text, "        - {line}");
        }
    }
    if let Some(breach) = path.last().and_then(|(state, _)| state.breach) {
        let _ = writeln!(text, "      {breach} is broken: {}", sentence(breach));
    }
    text
}

fn sentence(breach: &str) -> &'static str {
    match breach {
        "F1" => "two peers hold the cell at once",
        _ => "the cell is acquired under an epoch that is not above all before",
    }
}

fn happening(world: &World, action: &Action, after: &State) -> String {
    match action {
        Action::Deliver(sent) => format!("{} gets {}", id(sent.to), packet(sent)),
        Action::Wake(peer) => format!("{} is woken, because it is due", id(*peer)),
        Action::Advance(_) => format!("time has passed; {}", clocks(world, after)),
        Action::Acquire(peer) => format!("the application at {} wants the cell", id(*peer)),
        Action::Release(peer) => format!("the application at {} gives the cell up", id(*peer)),
        Action::Restart(peer) => format!("the process at {} dies, and another one starts there", id(*peer)),
    }
}

fn clocks(world: &World, state: &State) -> String {
    let shows = |peer| format!("{} shows {}", id(peer), time(world.clock(state, peer)));
    let list: Vec<String> = (0..state.peers.len()).map(shows).collect();
    format!("the clock of {}", list.join(", of "))
}

fn consequences(world: &World, before: &State, after: &State) -> Vec<String> {
    let is_new = |sent: &&crate::check::print::Shared<Sent>| !before.network.contains(sent);
    let mut lines: Vec<String> = after
        .network
        .iter()
        .filter(is_new)
        .map(|sent| format!("{} sends {} {}", id(sent.from), id(sent.to), words(&sent.packet.messages)))
        .collect();
    for peer in 0..after.peers.len() {
        match (world.held(before, peer), world.held(after, peer)) {
            (None, Some(epoch)) => {
                let until = after.peers[peer].1.machine.held(&world.cell, world.clock(after, peer));
                let until = until.map_or(Instant::ZERO, |held| held.until);
                lines.push(format!(
                    "now {} holds the cell under epoch {}, until {}",
                    id(peer),
                    ballot(epoch),
                    time(until)
                ));
            }
            (Some(_), None) => lines.push(format!("now {} holds the cell no more", id(peer))),
            _ => {}
        }
    }
    lines
}

fn packet(sent: &Sent) -> String {
    format!("{}'s {}", id(sent.from), words(&sent.packet.messages))
}

fn words(messages: &[Message]) -> String {
    let list: Vec<String> = messages.iter().map(message).collect();
    list.join(" and ")
}

fn message(message: &Message) -> String {
    let round = ballot(message.ballot);
    match message.body {
        Body::Read => format!("READ {round}"),
        Body::ReadAck { lease: None, .. } => format!("ack of READ {round}: empty"),
        Body::ReadAck { lease: Some(found), written } => {
            format!("ack of READ {round}: {}, written by {}", lease(found), ballot(written))
        }
        Body::Write(None) => format!("WRITE {round}: empty"),
        Body::Write(Some(written)) => format!("WRITE {round}: {}", lease(written)),
        Body::WriteAck => format!("ack of WRITE {round}"),
        Body::Nack { promised } => format!("refusal of {round} because of {}", ballot(promised)),
    }
}

fn lease(lease: Lease) -> String {
    format!("{} until {}", lease.holder.peer, time(lease.until))
}

fn ballot(ballot: Ballot) -> String {
    format!("({}, {})", time(ballot.time), ballot.peer)
}

/// An instant, counted from what clocks show at the start.
fn time(at: Instant) -> String {
    let seconds = at.0 / 1_000_000_000;
    format!("{}", i128::from(seconds) - i128::from(ORIGIN))
}
