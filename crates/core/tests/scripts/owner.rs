//! The Owner on stage: what a Manager and an application say to it, and what it does.

use std::time::Duration;

use centrifuge_core::id::{Credential, Generation, ManagerId, Namespace, OwnerName, Seq, SessionId, Term};
use centrifuge_core::load::RangeLoad;
use centrifuge_core::machine::Output;
use centrifuge_core::message::{
    Assign, Destination, ImportedCopy, LeaseOrder, ManagerToOwner, MovedLease, OrderKind, OwnerToManager,
    RecallOrder, Refused, RefusedReason, Warrant, Welcome,
};
use centrifuge_core::owner::{OwnerAction, OwnerConfig, OwnerEvent, OwnerMachine, TransferId};
use centrifuge_core::random::Random;

use super::owner_trace::{show, since};
use super::trace::{Around, Clock};
use super::words::{self, Aliases, Words, show_range, spaced, time};

const LEASE: Duration = Duration::from_secs(60);
const RENEWAL: Duration = Duration::from_secs(15);

/// One Owner, and what a Manager would know of its conversation: commands need to say only what is unusual.
#[derive(Default)]
pub(crate) struct OwnerStage {
    machine: Option<OwnerMachine>,
    clock: Clock,
    aliases: Aliases,
    /// The latest hello.
    hello: u64,
    /// The conversation of the latest welcome, and its term.
    talk: String,
    term: u64,
    /// The latest report.
    reported: u64,
    /// The latest message, and the leases it listed.
    sent: u64,
    listed: Vec<LeaseOrder>,
}

impl Around for OwnerStage {
    type Machine = OwnerMachine;

    fn perform(&mut self, command: &str, words: &mut Words) -> Result<Vec<String>, String> {
        let verb = words.word()?;
        let event = match verb.as_str() {
            "owner" => return self.begin(words),
            "wake" => return self.pass(command, words),
            "check" => return self.check(words),
            "start" => OwnerEvent::Start,
            "welcome" | "refused" | "unknown" | "not-leader" | "assign" | "answer" => {
                let from = words.value("from").unwrap_or_else(|| "m1".into());
                let message = self.message(&verb, words)?;
                OwnerEvent::FromManager { from: from.as_str().into(), message }
            }
            "disconnected" => OwnerEvent::Disconnected(words.word()?.as_str().into()),
            "managers" => OwnerEvent::ManagersChanged(managers(&words.word()?)),
            "ready" => OwnerEvent::TransferReady(transfer(words)?),
            "done" => {
                let transfer = transfer(words)?;
                let to = words.value("by").ok_or("done by whom?")?;
                OwnerEvent::TransferDone { transfer, to: self.aliases.session(&to) }
            }
            "failed" => OwnerEvent::TransferFailed(transfer(words)?),
            "quiesced" => OwnerEvent::Quiesced(transfer(words)?),
            "import" => {
                let range = words::range(&words.word()?)?;
                let source = Generation(words.number("source", 0)?);
                OwnerEvent::ImportReady { range, source, term: Term(words.number("term", 1)?) }
            }
            "load" => {
                let range = words::range(&words.word()?)?;
                let load = words.number("load", 0)?;
                OwnerEvent::Load(
                    vec![RangeLoad { range, load, heavy: Vec::new(), quantiles: Vec::new() }].into(),
                )
            }
            "weight" => OwnerEvent::Weight(words.word()?.parse().map_err(|_| "what weight?")?),
            "drain" => OwnerEvent::Drain,
            "undrain" => OwnerEvent::Undrain,
            "leave" => OwnerEvent::Leave,
            "clock-jumped" => {
                let alias = words.value("as").unwrap_or_else(|| "later".into());
                let SessionId(fresh) = self.aliases.session(&alias);
                OwnerEvent::ClockJumped { fresh: Credential::unproven(fresh) }
            }
            "cloned" => {
                let alias = words.value("as").unwrap_or_else(|| "later".into());
                let SessionId(fresh) = self.aliases.session(&alias);
                OwnerEvent::Cloned { fresh: Credential::unproven(fresh) }
            }
            _ => return Err("no such command".into()),
        };
        self.feed(event)
    }

    fn machine(&mut self) -> Result<&mut OwnerMachine, String> {
        self.machine.as_mut().ok_or_else(|| "there is no owner".into())
    }

    fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    fn tell(&mut self, output: Output<OwnerAction>) -> Vec<String> {
        let mut lines = Vec::new();
        for action in &output.actions {
            self.note(action);
            lines.extend(show(action, &mut self.aliases));
        }
        let Some(machine) = &self.machine else { return lines };
        let leases = machine.leases().iter().map(|(range, lease)| {
            let moving = if lease.frozen { " frozen" } else { "" };
            let since = since(lease.generation, lease.state_since);
            format!("{} gen={}{since}{moving}", show_range(range), lease.generation)
        });
        let held = leases.collect::<Vec<_>>().join(", ");
        let holds = match held.as_str() {
            "" => "holds nothing".to_owned(),
            held => format!("holds {held} until {}", time(machine.expiry())),
        };
        self.clock.tell("holds", holds, &mut lines);
        self.clock.tell_rest(machine.counters(), &[], &mut lines);
        lines
    }
}

impl OwnerStage {
    /// Notes what whoever gets an action would know by it.
    fn note(&mut self, action: &OwnerAction) {
        match action {
            OwnerAction::ToManager { message: OwnerToManager::Hello(hello), .. } => self.hello = hello.number,
            OwnerAction::ToManager { message: OwnerToManager::Report(report), .. } => {
                self.reported = report.seq.0;
            }
            _ => {}
        }
    }

    /// `owner o1 name=a`: a process begins, without memory of any before. With leases it has joined, quietly.
    fn begin(&mut self, words: &mut Words) -> Result<Vec<String>, String> {
        let alias = words.word()?;
        let name = words.value("name").unwrap_or_else(|| "a".into());
        let leases = words.clauses(&["holds"]);
        let config = OwnerConfig {
            namespace: pool("pool")?,
            name: OwnerName::new(&name).map_err(|error| error.to_string())?,
            url: name.as_str().into(),
            managers: managers(&words.value("managers").unwrap_or_else(|| "m1".into())),
            takes_over_previous: words.flag("takeover"),
            weight: 100,
            load_dimension: Default::default(),
            migrates: !words.flag("cannot-migrate"),
            credential: None,
            expects: words.expected(),
        };
        let seed = self.aliases.nonce(&format!("seed of {alias}")).0 as u64;
        let machine = OwnerMachine::new(config, Random::from_number(seed));
        self.aliases.call(machine.session().0, &alias);
        self.clock.reset(None, machine.counters());
        self.machine = Some(machine);
        (self.reported, self.sent) = (0, 0);
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        self.join(leases)
    }

    fn join(&mut self, leases: Vec<Words>) -> Result<Vec<String>, String> {
        self.feed(OwnerEvent::Start)?;
        let welcome = self.message("welcome", &mut Words::of("n1 term=1"))?;
        self.feed(OwnerEvent::FromManager { from: "m1".into(), message: welcome })?;
        let grants: Vec<String> =
            leases.into_iter().map(|mut lease| lease.all().join(" ").replacen("holds", "grant", 1)).collect();
        let assign = self.message("assign", &mut Words::of(&grants.join(" ")))?;
        if let Some(machine) = &self.machine {
            self.clock.reset(None, machine.counters());
        }
        let mut lines = self.feed(OwnerEvent::FromManager { from: "m1".into(), message: assign })?;
        lines.retain(|line| !line.starts_with("granted"));
        Ok(lines)
    }

    fn check(&mut self, words: &mut Words) -> Result<Vec<String>, String> {
        let now = self.clock.now;
        let key = words::key(&words.value("key").ok_or("check which key?")?)?;
        let machine = self.machine()?;
        let now_held = match machine.check_lease_now(now, key) {
            Ok(generation) => format!("lease {generation}"),
            Err(why) => spaced(&why),
        };
        let line = match words.number("since", 0)? {
            0 => now_held,
            lease if machine.check_lease_continuous(now, key, Generation(lease)) => {
                format!("{now_held}, held without a gap since lease {lease}")
            }
            lease => format!("{now_held}, not held without a gap since lease {lease}"),
        };
        Ok(vec![line])
    }

    /// What a Manager says. `answer` is its answer to the latest report: it lists again, as renewals, what it last did.
    fn message(&mut self, verb: &str, words: &mut Words) -> Result<ManagerToOwner, String> {
        let session = match words.value("session") {
            Some(alias) => self.aliases.session(&alias),
            None => self.machine()?.session(),
        };
        let namespace = pool(&words.value("in").unwrap_or_else(|| "pool".into()))?;
        Ok(match verb {
            "welcome" => {
                let number = words.number("hello", self.hello)?;
                let term = words.number("term", self.term)?;
                let talk = words.word()?;
                let conversation = self.aliases.nonce(&talk);
                if number == self.hello && term >= self.term {
                    (self.talk, self.term) = (talk, term);
                    (self.reported, self.sent) = (0, 0);
                }
                ManagerToOwner::Welcome(Welcome {
                    namespace,
                    session,
                    number,
                    conversation,
                    term: Term(term),
                    kind: words.kind()?,
                })
            }
            "refused" => {
                let number = words.number("hello", self.hello)?;
                let why = refusal(&words.word()?)?;
                let term = Term(words.number("term", self.term)?);
                ManagerToOwner::Refused(Refused { session, number, term, why, namespace: Some(namespace) })
            }
            "unknown" => ManagerToOwner::Unknown { session, conversation: self.aliases.nonce(&self.talk) },
            "not-leader" => {
                let leader = words.value("leader").map(|leader| leader.as_str().into());
                ManagerToOwner::NotLeader { leader }
            }
            _ => {
                let talk = words.value("talk").unwrap_or_else(|| self.talk.clone());
                let heard = words.number("heard", self.reported)?;
                let seq = words.number("seq", self.sent.saturating_add(1))?;
                self.sent = self.sent.max(seq);
                let mut clauses = words.clauses(&["grant", "renew", "void", "repeat"]);
                let void = clauses.extract_if(.., |clause| clause.begins_with("void")).map(void_copy);
                let void = void.collect::<Result<_, _>>()?;
                let repeat = clauses.extract_if(.., |clause| clause.begins_with("repeat")).map(moved_lease);
                let repeat = repeat.collect::<Result<_, _>>()?;
                if verb == "assign" {
                    self.listed =
                        clauses.into_iter().map(|clause| self.order(clause)).collect::<Result<_, _>>()?;
                } else {
                    self.listed.iter_mut().for_each(|order| order.kind = OrderKind::Renewal);
                }
                ManagerToOwner::Assign(Assign {
                    namespace,
                    session,
                    conversation: self.aliases.nonce(&talk),
                    term: Term(words.number("term", self.term)?),
                    seq: Seq(seq),
                    heard: Seq(heard),
                    applied: Seq(words.number("applied", heard)?),
                    lease: words.time("lease", LEASE)?,
                    renewal: words.time("renewal", RENEWAL)?,
                    wants_answer: words.flag("wants-answer"),
                    drain_waits: words.flag("drain-waits"),
                    drained: words.flag("drained"),
                    void,
                    repeat,
                    evicted: words.flag("evicted"),
                    orders: self.listed.clone().into(),
                })
            }
        })
    }

    /// `grant 00-7f gen=5 since=3 source=4`, `renew 00-7f gen=5 merge=7 recall`, `renew 00-7f gen=5 recall to=o2`.
    fn order(&mut self, mut words: Words) -> Result<LeaseOrder, String> {
        let is_grant = words.word()? == "grant";
        let range = words::range(&words.word()?)?;
        let generation = words.number("gen", 0)?;
        let source = words.number("source", 0)?;
        let kind = if is_grant {
            OrderKind::Grant { source: (source > 0).then_some(Generation(source)) }
        } else {
            OrderKind::Renewal
        };
        let to = words.value("to").map(|alias| Destination {
            session: self.aliases.session(&alias),
            name: OwnerName::new("next").expect("a name"),
            url: "next".into(),
        });
        let recall = words.flag("recall").then_some(RecallOrder { to });
        let state_since = Generation(words.number("since", generation)?);
        let merge = words.number("merge", 0)?;
        let merge = (merge > 0).then_some(Generation(merge));
        let warrant = words.flag("warranted").then_some(Warrant {
            range,
            lease: LEASE,
            virtual_nodes: 64,
            code: [0; 32],
        });
        words.end()?;
        let generation = Generation(generation);
        Ok(LeaseOrder { range, generation, state_since, kind, merge, recall, warrant: warrant.map(Box::new) })
    }
}

/// `repeat 00-0f gen=9`.
fn moved_lease(mut words: Words) -> Result<MovedLease, String> {
    words.word()?;
    let range = words::range(&words.word()?)?;
    let generation = Generation(words.number("gen", 0)?);
    words.end()?;
    Ok(MovedLease { range, generation })
}

/// `void 00-0f source=9`.
fn void_copy(mut words: Words) -> Result<ImportedCopy, String> {
    words.word()?;
    let range = words::range(&words.word()?)?;
    let source = Generation(words.number("source", 0)?);
    words.end()?;
    Ok(ImportedCopy { range, source })
}

fn transfer(words: &mut Words) -> Result<TransferId, String> {
    let word = words.word()?;
    let number = word.strip_prefix('t').and_then(|number| number.parse().ok());
    number.map(TransferId).ok_or_else(|| format!("{word} is not a transfer"))
}

fn refusal(word: &str) -> Result<RefusedReason, String> {
    Ok(match word {
        "name-in-use" => RefusedReason::NameInUse,
        "unknown-namespace" => RefusedReason::UnknownNamespace,
        "evicted" => RefusedReason::Evicted,
        "wrong-keys" => RefusedReason::WrongKeys,
        "wrong-mode" => RefusedReason::WrongMode,
        _ => return Err(format!("{word} is no refusal")),
    })
}

fn managers(list: &str) -> std::sync::Arc<[ManagerId]> {
    list.split(',').map(ManagerId::from).collect()
}

fn pool(name: &str) -> Result<Namespace, String> {
    Namespace::new(name).map_err(|error| error.to_string())
}
