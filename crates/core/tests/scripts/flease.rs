//! A peer of Flease on stage: what its application and the other peers say to it, and what it does.

use std::time::Duration;

use centrifuge_core::flease::{
    Ballot, Body, Cell, FleaseAction, FleaseConfig, FleaseEvent, FleaseMachine, Holder, Lease, Message,
    Packet, PeerId,
};
use centrifuge_core::id::Nonce;
use centrifuge_core::machine::Output;
use centrifuge_core::random::Random;
use centrifuge_core::time::Instant;

use super::trace::{Around, Clock};
use super::words::{Words, duration, spaced, time};

/// One peer, p1, and its latest ballot: replies are to that unless they say otherwise.
#[derive(Default)]
pub(crate) struct FleaseStage {
    machine: Option<FleaseMachine>,
    config: Option<FleaseConfig>,
    clock: Clock,
    asked: Ballot,
}

impl Around for FleaseStage {
    type Machine = FleaseMachine;

    fn perform(&mut self, command: &str, words: &mut Words) -> Result<Vec<String>, String> {
        let verb = words.word()?;
        let event = match verb.as_str() {
            "peers" => return self.begin(words),
            "wake" => return self.pass(command, words),
            "check" => return self.check(words),
            "start" => FleaseEvent::Start,
            "clock-jumped" => FleaseEvent::ClockJumped,
            "acquire" => FleaseEvent::Acquire(cell(&words.word()?)?),
            "release" => FleaseEvent::Release(cell(&words.word()?)?),
            from => FleaseEvent::Receive { from: peer(from)?, packet: self.packet(from, words)? },
        };
        self.feed(event)
    }

    fn machine(&mut self) -> Result<&mut FleaseMachine, String> {
        self.machine.as_mut().ok_or_else(|| "there is no peer".into())
    }

    fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    fn tell(&mut self, output: Output<FleaseAction>) -> Vec<String> {
        let mut lines = Vec::new();
        for action in &output.actions {
            self.tell_action(action, &mut lines);
        }
        let Some(machine) = &self.machine else { return lines };
        let silent = ["rounds", "acquired", "renewed", "lost", "packets", "messages"];
        self.clock.tell_rest(machine.counters(), &silent, &mut lines);
        lines
    }
}

impl FleaseStage {
    /// `peers 3`: p1 is on stage, leases last 10 s, clocks differ by 1 s at most, a round takes 2 s at most. No wait is drawn
    /// at random.
    fn begin(&mut self, words: &mut Words) -> Result<Vec<String>, String> {
        let count: u16 = words.word()?.parse().map_err(|_| "how many?")?;
        let times = [10, 1, 2].map(Duration::from_secs);
        let config = FleaseConfig::new(PeerId(1), (1..=count).map(PeerId));
        let config =
            FleaseConfig { window: Duration::ZERO, ..config.with_times(times[0], times[1], times[2]) };
        config.check().map_err(|error| error.to_string())?;
        let machine = FleaseMachine::new(config.clone(), Random::from_number(1));
        self.clock.reset(None, machine.counters());
        (self.machine, self.config) = (Some(machine), Some(config));
        Ok(Vec::new())
    }

    fn check(&mut self, words: &mut Words) -> Result<Vec<String>, String> {
        let (cell, now) = (cell(&words.word()?)?, self.clock.now);
        let machine = self.machine()?;
        let held = machine.held(&cell, now).map(|held| format!("held until {}", time(held.until)));
        Ok(vec![held.unwrap_or_else(|| "not held".into())])
    }

    /// `p2 read a ballot=20s/p2`, `p2 read-ack a lease=p3 until=25s epoch=15s/p3 written=15s/p3`, `p2 write-ack a`. With `sent=` and
    /// `echo=` it has clocks; `agreement=other` is of a peer that was told something else.
    fn packet(&mut self, from: &str, words: &mut Words) -> Result<Packet, String> {
        let now = self.clock.now;
        let config = self.config.as_ref().ok_or("there is no peer")?;
        let is_other = words.value("agreement").is_some();
        let sent = words.value("sent").map_or(Ok(now), |at| instant(&at))?;
        let echo = words.value("echo").map_or(Ok(Instant::ZERO), |at| instant(&at))?;
        let packet = Packet {
            agreement: config.agreement() ^ u64::from(is_other),
            sent,
            echo,
            probe: false,
            messages: Vec::new(),
        };
        let verb = words.word()?;
        if verb == "probe" {
            return Ok(Packet { probe: true, ..packet });
        }
        let cell = cell(&words.word()?)?;
        let usual = if verb.ends_with("ack") { self.asked } else { Ballot { time: now, peer: peer(from)? } };
        let ballot = words.value("ballot").map_or(Ok(usual), |text| parse_ballot(&text))?;
        let body = self.body(&verb, words)?;
        Ok(Packet { messages: vec![Message { cell, ballot, body }], ..packet })
    }

    fn tell_action(&mut self, action: &FleaseAction, lines: &mut Vec<String>) {
        lines.push(match action {
            FleaseAction::Send { to, packet } if packet.messages.is_empty() => {
                format!("-> {to} {}", if packet.probe { "probe" } else { "nothing but the time" })
            }
            FleaseAction::Send { to, packet } => {
                let messages: Vec<String> =
                    packet.messages.iter().map(|message| self.show(message)).collect();
                format!("-> {to} {}", messages.join(", "))
            }
            FleaseAction::Held { cell, epoch, until } => {
                format!("held {cell} epoch={} until {}", show_ballot(*epoch), time(*until))
            }
            FleaseAction::Ended { cell, epoch, why } => {
                format!("ended {cell} epoch={}: {}", show_ballot(*epoch), spaced(why))
            }
            FleaseAction::HeldByOther { cell, lease } => format!("{cell} is held by {}", show_lease(*lease)),
            FleaseAction::Released(cell) => format!("{cell} is released"),
            FleaseAction::NotAMember(cell) => format!("not a member of {cell}"),
            FleaseAction::ClockApart { from } => format!("clock apart from {from:?}"),
            FleaseAction::ClockAgrees => "clock agrees".into(),
        });
    }

    fn show(&mut self, message: &Message) -> String {
        if matches!(message.body, Body::Read) {
            self.asked = message.ballot;
        }
        let body = match message.body {
            Body::Read => "read".to_owned(),
            Body::ReadAck { lease: None, .. } => "read-ack empty".into(),
            Body::ReadAck { lease: Some(lease), .. } => format!("read-ack {}", show_lease(lease)),
            Body::Write(None) => "write empty".into(),
            Body::Write(Some(lease)) => format!("write {}", show_lease(lease)),
            Body::WriteAck => "write-ack".into(),
            Body::Nack { promised } => format!("nack promised={}", show_ballot(promised)),
        };
        format!("{} {} {body}", message.cell, show_ballot(message.ballot))
    }

    fn body(&mut self, verb: &str, words: &mut Words) -> Result<Body, String> {
        let lease = match words.value("lease") {
            None => None,
            Some(holder) => {
                let until = instant(&words.value("until").ok_or("until when?")?)?;
                let epoch = parse_ballot(&words.value("epoch").ok_or("of which epoch?")?)?;
                let me = self.machine()?.holder();
                let other = Holder { peer: peer(&holder)?, incarnation: Nonce(7) };
                let holder = if other.peer == me.peer { me } else { other };
                Some(Lease { holder, epoch, until })
            }
        };
        let written = words.value("written").map_or(Ok(Ballot::ZERO), |text| parse_ballot(&text))?;
        Ok(match verb {
            "read" => Body::Read,
            "read-ack" => Body::ReadAck { written, lease },
            "write" => Body::Write(lease),
            "write-ack" => Body::WriteAck,
            "nack" => {
                Body::Nack { promised: parse_ballot(&words.value("promised").ok_or("promised what?")?)? }
            }
            _ => return Err("no such command".into()),
        })
    }
}

fn cell(name: &str) -> Result<Cell, String> {
    Cell::new(name).map_err(|error| error.to_string())
}

fn peer(text: &str) -> Result<PeerId, String> {
    let number = text.strip_prefix('p').and_then(|number| number.parse().ok());
    number.map(PeerId).ok_or_else(|| format!("{text} is no peer"))
}

fn instant(text: &str) -> Result<Instant, String> {
    duration(text).map(|length| Instant::ZERO + length)
}

fn parse_ballot(text: &str) -> Result<Ballot, String> {
    let (at, proposer) = text.split_once('/').ok_or("a ballot is a time and a peer: 20s/p2")?;
    Ok(Ballot { time: instant(at)?, peer: peer(proposer)? })
}

fn show_ballot(ballot: Ballot) -> String {
    format!("{}/{}", time(ballot.time), ballot.peer)
}

fn show_lease(lease: Lease) -> String {
    format!("{} epoch={} until {}", lease.holder.peer, show_ballot(lease.epoch), time(lease.until))
}
