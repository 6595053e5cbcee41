//! The Lookup on stage: what Managers say to it, and what it does.

use std::sync::Arc;

use centrifuge_core::id::{Generation, Lsn, ManagerId, Namespace, Seq, Term};
use centrifuge_core::lookup::{LookupAction, LookupConfig, LookupEvent, LookupMachine};
use centrifuge_core::machine::Output;
use centrifuge_core::message::{ManagerToLookup, Update, UpdateBody};
use centrifuge_core::namespace_kind::KindMismatch;
use centrifuge_core::random::Random;
use centrifuge_core::table::{PublishedEntry, PublishedOwner};

use super::trace::{Around, Clock};
use super::words::{self, Aliases, Words, show_expected, show_range, show_ranges, spaced};

/// One Lookup, and its latest request: commands need to say only what is unusual.
#[derive(Default)]
pub(crate) struct LookupStage {
    machine: Option<LookupMachine>,
    clock: Clock,
    aliases: Aliases,
    asked: u64,
    term: u64,
    log: String,
}

impl Around for LookupStage {
    type Machine = LookupMachine;

    fn perform(&mut self, command: &str, words: &mut Words) -> Result<Vec<String>, String> {
        let verb = words.word()?;
        let event = match verb.as_str() {
            "lookup" => return self.begin(words),
            "wake" => return self.pass(command, words),
            "route" => return self.route(words),
            "start" => LookupEvent::Start,
            "clock-jumped" => LookupEvent::ClockJumped,
            "disconnected" => LookupEvent::Disconnected(words.word()?.as_str().into()),
            "managers" => LookupEvent::ManagersChanged(managers(&words.word()?)),
            _ => {
                let from = words.value("from").unwrap_or_else(|| "m1".into());
                let message = self.message(&verb, words)?;
                LookupEvent::FromManager { from: from.as_str().into(), message }
            }
        };
        self.feed(event)
    }

    fn machine(&mut self) -> Result<&mut LookupMachine, String> {
        self.machine.as_mut().ok_or_else(|| "there is no lookup".into())
    }

    fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    fn tell(&mut self, output: Output<LookupAction>) -> Vec<String> {
        let mut lines = Vec::new();
        for action in &output.actions {
            lines.push(self.tell_action(action));
        }
        let Some(machine) = &self.machine else { return lines };
        let pending = machine.pending_losses();
        let waits = match pending.is_empty() {
            true => "no loss waits".to_owned(),
            false => format!("loss waits for an owner: {}", show_ranges(pending.iter())),
        };
        self.clock.tell("pending", waits, &mut lines);
        let silent = ["requests", "broadcasts", "snapshots", "changes", "not-leader"];
        self.clock.tell_rest(machine.counters(), &silent, &mut lines);
        lines
    }
}

impl LookupStage {
    /// `lookup l1 managers=m1,m2`; with a table it has asked for it and got it, quietly.
    fn begin(&mut self, words: &mut Words) -> Result<Vec<String>, String> {
        let alias = words.word()?;
        let entries = words.clauses(&["row"]);
        let namespace = Namespace::new("pool").map_err(|error| error.to_string())?;
        let list = managers(&words.value("managers").unwrap_or_else(|| "m1".into()));
        let config = LookupConfig { expects: words.expected(), ..LookupConfig::new(namespace, list) };
        let seed = self.aliases.nonce(&format!("seed of {alias}")).0 as u64;
        let machine = LookupMachine::new(config, Random::from_number(seed));
        self.aliases.call(machine.nonce(), &alias);
        self.clock.reset(None, machine.counters());
        (self.asked, self.term, self.log) = (0, 1, "g1".into());
        self.machine = Some(machine);
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        self.feed(LookupEvent::Start)?;
        let rows: Vec<String> = entries.into_iter().map(|mut entry| entry.all().join(" ")).collect();
        let message = self.message("snapshot", &mut Words::of(&format!("lsn=1 {}", rows.join(" "))))?;
        self.clock.reset(None, &());
        self.feed(LookupEvent::FromManager { from: "m1".into(), message })
    }

    fn route(&mut self, words: &mut Words) -> Result<Vec<String>, String> {
        let key = words::key(&words.value("key").ok_or("route which key?")?)?;
        let Some(machine) = &self.machine else { return Err("there is no lookup".into()) };
        let line = match machine.lookup(key) {
            None => "no table yet".to_owned(),
            Some(route) => {
                let range = show_range(route.range);
                let owner = route.owner.map(|owner| self.aliases.of_session(owner.session));
                let nobody = if route.quarantined { "nobody (quarantined)" } else { "nobody" };
                format!("{} gen={} for {range}", owner.as_deref().unwrap_or(nobody), route.generation)
            }
        };
        let contact = if machine.in_contact(self.clock.now) { "in contact" } else { "out of contact" };
        Ok(vec![format!("{line}, {contact}")])
    }

    fn message(&mut self, verb: &str, words: &mut Words) -> Result<ManagerToLookup, String> {
        if verb == "not-leader" {
            let leader = words.value("leader").map(|leader| leader.as_str().into());
            return Ok(ManagerToLookup::NotLeader { leader });
        }
        let lookup = match words.value("for") {
            Some(alias) => self.aliases.nonce(&alias),
            None => self.machine()?.nonce(),
        };
        let term = words.number("term", self.term)?;
        self.term = self.term.max(term);
        let term = Term(term);
        let echo = Seq(words.number("echo", self.asked)?);
        if verb == "unknown-namespace" {
            return Ok(ManagerToLookup::UnknownNamespace { term, lookup, echo });
        }
        if verb == "wrong-keys" || verb == "wrong-mode" {
            let why = if verb == "wrong-keys" { KindMismatch::Keys } else { KindMismatch::Mode };
            let namespace = words.value("in").unwrap_or_else(|| "pool".into());
            let namespace = Some(Namespace::new(&namespace).map_err(|error| error.to_string())?);
            return Ok(ManagerToLookup::WrongKind { term, lookup, echo, why, namespace });
        }
        let namespace = words.value("in").unwrap_or_else(|| "pool".into());
        let namespace = Namespace::new(&namespace).map_err(|error| error.to_string())?;
        self.log = words.value("log").unwrap_or_else(|| self.log.clone());
        let log = self.aliases.nonce(&self.log);
        let body = self.body(verb, words)?;
        let kind = words.kind()?;
        Ok(ManagerToLookup::Update(Update { namespace, lookup, term, echo, log, kind, body }))
    }

    fn body(&mut self, verb: &str, words: &mut Words) -> Result<UpdateBody, String> {
        let rows = words.clauses(&["row"]);
        let entries: Arc<[PublishedEntry]> =
            rows.into_iter().map(|row| self.entry(row)).collect::<Result<Vec<_>, String>>()?.into();
        let lsn = Lsn(words.number("lsn", 0)?);
        Ok(match verb {
            "heartbeat" => UpdateBody::Heartbeat { lsn },
            "unchanged" => {
                UpdateBody::Unchanged { hold: words.time("hold", std::time::Duration::from_secs(65))? }
            }
            "snapshot" => UpdateBody::Snapshot { lsn, entries },
            "changes" => UpdateBody::Changes { from: Lsn(words.number("after", 0)?), to: lsn, entries },
            _ => return Err("no such command".into()),
        })
    }

    /// `row 00-7f a1 gen=5 since=3`, `row 80-ff nobody gen=4`.
    fn entry(&mut self, mut words: Words) -> Result<PublishedEntry, String> {
        words.word()?;
        let range = words::range(&words.word()?)?;
        let owner = match words.word()?.as_str() {
            "nobody" => None,
            alias => Some(PublishedOwner { session: self.aliases.session(alias), url: alias.into() }),
        };
        let generation = words.number("gen", 0)?;
        let state_since = Generation(words.number("since", generation)?);
        let quarantined = words.flag("quarantined");
        words.end()?;
        Ok(PublishedEntry { range, owner, generation: Generation(generation), state_since, quarantined })
    }

    fn tell_action(&mut self, action: &LookupAction) -> String {
        match action {
            LookupAction::ToManager { to, request } => {
                self.asked = request.seq.0;
                let position =
                    request.position.map(|at| format!("{}:{}", self.aliases.name(at.log, 'g'), at.lsn));
                let position = position.unwrap_or_else(|| "nothing".into());
                let expects = show_expected(request.expects);
                format!("-> {to} ask seq={} has {position}, term {}{expects}", request.seq, request.term)
            }
            LookupAction::TableChanged(at) => format!("table {}:{}", self.aliases.name(at.log, 'g'), at.lsn),
            LookupAction::Loss { keys, why } => format!("loss {}: {}", show_ranges(keys.iter()), spaced(why)),
            LookupAction::Contact(true) => "in contact".into(),
            LookupAction::Contact(false) => "out of contact".into(),
            LookupAction::UnknownNamespace => "unknown namespace".into(),
            LookupAction::TableGone => "the table is gone".into(),
            LookupAction::Refused(why) => format!("refused: wrong {}", spaced(why)),
        }
    }
}

fn managers(list: &str) -> Arc<[ManagerId]> {
    list.split(',').map(ManagerId::from).collect()
}
