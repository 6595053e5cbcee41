//! The Manager on stage: what Owners, Lookups, operators, the election and the store say to it, and what it does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{Generation, Index, Lsn, OwnerName, Secret, Seq, Term};
use centrifuge_core::load::RangeLoad;
use centrifuge_core::machine::Output;
use centrifuge_core::manager::{
    AdminCommand, DeclaredNamespace, ElectionCommand, ElectionEvent, ManagerAction, ManagerConfig,
    ManagerEvent, ManagerMachine, StoreCommand, StoreEvent, StreamId,
};
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::message::{
    HeldLease, Hello, ImportedCopy, LeaseOrder, LookupRequest, ManagerToOwner, OwnerToManager, Position,
    Refusal, Release, Report, Warrant,
};
use centrifuge_core::namespace_kind::{Mode, NamespaceKind};
use centrifuge_core::random::Random;
use centrifuge_core::record::Batch;
use centrifuge_core::settings::Settings;

use super::manager_trace::{show, show_entry};
use super::operator::{FAR, admin, namespace, settings};
use super::trace::{Around, Clock, Stage};
use super::words::{self, Aliases, Words, show_range};

/// One Manager, its store, and what the other sides would know: commands need to say only what is unusual.
#[derive(Default)]
pub(crate) struct ManagerStage {
    machine: Option<ManagerMachine>,
    clock: Clock,
    aliases: Aliases,
    /// Whoever was ever heard from, by the number of its way back.
    peers: Vec<String>,
    talks: BTreeMap<(String, String), Talk>,
    lookups: BTreeMap<String, u64>,
    /// The latest request to the election or the store.
    request: u64,
    store: Store,
}

/// What an Owner would know of its conversation.
#[derive(Clone, Default)]
struct Talk {
    hello: u64,
    id: String,
    reported: u64,
    heard: u64,
    told: Vec<LeaseOrder>,
}

/// What is durable, and the batch under way.
#[derive(Default)]
struct Store {
    index: Index,
    group: ManagerState,
    under_way: Option<(Index, Arc<Batch>)>,
}

impl Around for ManagerStage {
    type Machine = ManagerMachine;

    fn perform(&mut self, command: &str, words: &mut Words) -> Result<Vec<String>, String> {
        let verb = words.word()?;
        let event = match verb.as_str() {
            "manager" => return self.begin(words),
            "pool" => return self.pool(words),
            "wake" => return self.pass(command, words),
            "table" => return self.table(words),
            // `quietly @5s accept a1; wake`: what other scripts show.
            "quietly" => {
                let commands = words.all().join(" ").replace('@', "at ");
                return self.quietly(&commands).map(|()| Vec::new());
            }
            "commit" => return self.commit(),
            "join" | "hello" | "report" | "accept" => return self.owner(&verb, words),
            "ask" => self.ask(words)?,
            "gone" => self.gone(words)?,
            "start" => ManagerEvent::Start,
            "resign" => ManagerEvent::Resign,
            "clock-jumped" => ManagerEvent::ClockJumped,
            "won" | "led-by" | "lost" | "renewed" => ManagerEvent::Election(self.election(&verb, words)?),
            "loaded" | "unknown" | "not-appended" | "fenced" => ManagerEvent::Store(self.stored(&verb)?),
            _ => ManagerEvent::Admin { request: 0, command: admin(&verb, words)? },
        };
        self.feed(event)
    }

    fn machine(&mut self) -> Result<&mut ManagerMachine, String> {
        self.machine.as_mut().ok_or_else(|| "there is no manager".into())
    }

    fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    fn tell(&mut self, output: Output<ManagerAction>) -> Vec<String> {
        let mut lines = Vec::new();
        for action in &output.actions {
            self.note(action);
            let peer = match action {
                ManagerAction::ToOwner { to, .. } | ManagerAction::ToLookup { to, .. } => {
                    self.peers[to.0 as usize].clone()
                }
                _ => String::new(),
            };
            lines.extend(show(action, &peer, &mut self.aliases));
        }
        let Some(machine) = &self.machine else { return lines };
        self.clock.tell_rest(machine.counters(), &["commits", "terms", "grants"], &mut lines);
        lines
    }
}

impl ManagerStage {
    /// `manager m1 leader-lease=10s`: a Manager begins; the store is what the one before left. `manager m1 diskless lease=60s`:
    /// it has none, and a pool of those settings.
    fn begin(&mut self, words: &mut Words) -> Result<Vec<String>, String> {
        let name = words.word()?;
        let mut config = ManagerConfig::new(name.as_str().into());
        config.leader_lease = words.time("leader-lease", FAR)?;
        config.leader_hold = config.drift.hold_for(config.leader_lease);
        if words.flag("diskless") {
            let (kind, settings) = (words.kind()?, Arc::new(settings(words)?));
            let pool = (namespace("pool")?, DeclaredNamespace { kind, settings });
            config.diskless = Some(Arc::new([pool].into()));
            self.store = Store::default();
            let used = Generation(words.number("generations-used", 0)?);
            self.store.group.removed.insert(namespace("pool")?, used);
        }
        let seed = self.aliases.nonce(&format!("seed of {name}")).0 as u64;
        let machine = ManagerMachine::new(config, Random::from_number(seed));
        self.clock.reset(None, machine.counters());
        self.machine = Some(machine);
        self.store.under_way = None;
        Ok(Vec::new())
    }

    /// `pool a1 b1 lease=60s`: a leader whose Owners have joined and accepted their shares, quietly. `pool affinity a1` is in that mode.
    fn pool(&mut self, words: &mut Words) -> Result<Vec<String>, String> {
        let first = words.value("generations-used").unwrap_or_default();
        let kind = words.kind()?;
        let hello = if kind.mode == Mode::Affinity { " affinity" } else { "" };
        let wanted = settings(words)?;
        let begin = format!("m1 leader-lease={}", words.value("leader-lease").unwrap_or_else(|| "1h".into()));
        let sessions = words.all();
        (self.store, self.talks) = (Store::default(), BTreeMap::new());
        self.begin(&mut Words::of(&begin))?;
        let gathering = Settings { min_owners: sessions.len(), settle: FAR, ..wanted.clone() };
        if let Ok(used) = first.parse() {
            self.store.group.removed.insert(namespace("pool")?, Generation(used));
        }
        self.quietly("start; won term=1; loaded; commit; wake; commit")?;
        self.configure("pool", gathering, Some(kind))?;
        for session in &sessions {
            self.quietly(&format!("join {session}{hello}; commit"))?;
        }
        for session in &sessions {
            self.quietly(&format!("accept {session}"))?;
        }
        self.configure("pool", wanted, None)?;
        let mut lines = self.table(&mut Words::of(""))?;
        if let Some(machine) = &self.machine {
            self.clock.reset(self.clock.wake(), machine.counters());
            self.clock.tell_rest(machine.counters(), &[], &mut lines);
        }
        Ok(lines)
    }

    fn quietly(&mut self, commands: &str) -> Result<(), String> {
        for command in commands.split("; ") {
            self.play(command)?;
        }
        Ok(())
    }

    /// Creates the namespace as what it is to be, or configures it.
    fn configure(
        &mut self,
        name: &str,
        settings: Settings,
        create: Option<NamespaceKind>,
    ) -> Result<(), String> {
        let (namespace, settings) = (namespace(name)?, Arc::new(settings));
        let command = match create {
            Some(kind) => AdminCommand::Create { kind, namespace, settings },
            None => AdminCommand::Configure { namespace, settings, expected: None, kind: None },
        };
        self.feed(ManagerEvent::Admin { request: 0, command })?;
        self.commit().map(|_| ())
    }

    fn table(&mut self, words: &mut Words) -> Result<Vec<String>, String> {
        let name = namespace(&words.value("in").unwrap_or_else(|| "pool".into()))?;
        let group = self.machine.as_ref().and_then(ManagerMachine::group).ok_or("nobody leads")?;
        let stored = group.namespaces.get(&name).ok_or("there is no such namespace")?;
        let names = &mut self.aliases;
        let rows = stored.table.iter();
        Ok(rows.map(|(range, entry)| format!("{} {}", show_range(range), show_entry(entry, names))).collect())
    }

    /// Notes what whoever gets an action would know by it.
    fn note(&mut self, action: &ManagerAction) {
        match action {
            ManagerAction::ToOwner { message: ManagerToOwner::Welcome(welcome), .. } => {
                let id = self.aliases.name(welcome.conversation, 'n');
                let session = self.aliases.of_session(welcome.session);
                let talk = self.talks.entry((welcome.namespace.to_string(), session)).or_default();
                *talk = Talk { hello: talk.hello, id, ..Talk::default() };
            }
            ManagerAction::ToOwner { message: ManagerToOwner::Assign(assign), .. } => {
                let session = self.aliases.of_session(assign.session);
                let talk = self.talks.entry((assign.namespace.to_string(), session)).or_default();
                talk.heard = assign.seq.0;
                talk.told = assign.orders.to_vec();
            }
            ManagerAction::Election(ElectionCommand::Campaign { request })
            | ManagerAction::Election(ElectionCommand::Renew { request, .. })
            | ManagerAction::Store(StoreCommand::Load { request }) => self.request = *request,
            ManagerAction::Store(StoreCommand::Append { index, batch, .. }) => {
                self.store.under_way = Some((*index, Arc::clone(batch)));
            }
            _ => {}
        }
    }

    fn election(&mut self, verb: &str, words: &mut Words) -> Result<ElectionEvent, String> {
        let request = self.request;
        Ok(match verb {
            "won" => ElectionEvent::Won { request, term: Term(words.number("term", 1)?) },
            "led-by" => ElectionEvent::LedBy { request, leader: Some(words.word()?.as_str().into()) },
            "renewed" => ElectionEvent::Renewed { request },
            _ => ElectionEvent::Lost { term: Term(words.number("term", 1)?) },
        })
    }

    fn stored(&mut self, verb: &str) -> Result<StoreEvent, String> {
        if verb == "loaded" {
            let Store { index, group, .. } = &self.store;
            let (index, group) = (*index, Arc::new(group.clone()));
            return Ok(StoreEvent::Loaded { request: self.request, index, group });
        }
        let index = self.store.under_way.as_ref().ok_or("no append is under way")?.0;
        Ok(match verb {
            "unknown" => StoreEvent::Unknown { index },
            "not-appended" => StoreEvent::NotAppended { index },
            _ => StoreEvent::Fenced { index },
        })
    }

    /// The batch under way becomes durable, and the Manager hears of it.
    fn commit(&mut self) -> Result<Vec<String>, String> {
        let (index, batch) = self.store.under_way.take().ok_or("no append is under way")?;
        self.store.group.apply(&batch);
        self.store.index = index;
        self.feed(ManagerEvent::Store(StoreEvent::Appended { index }))
    }

    fn peer(&mut self, name: &str) -> StreamId {
        let place = self.peers.iter().position(|known| known == name).unwrap_or_else(|| {
            self.peers.push(name.to_owned());
            self.peers.len() - 1
        });
        StreamId(place as u64)
    }

    /// What an Owner says: `hello a1 takeover`, `report a1 seq=2 heard=1 holds 00-7f gen=1`; `accept a1` reports all
    /// that it was last told as held, and `join a1` is a hello and the first report.
    fn owner(&mut self, verb: &str, words: &mut Words) -> Result<Vec<String>, String> {
        let session = words.word()?;
        let namespace = words.value("in").unwrap_or_else(|| "pool".into());
        let from = self.peer(&session);
        let mut lines = Vec::new();
        if verb == "hello" || verb == "join" {
            let message = OwnerToManager::Hello(self.hello(&namespace, &session, words)?);
            lines.extend(self.feed(ManagerEvent::FromOwner { from, message })?);
        }
        if verb != "hello" {
            let message =
                OwnerToManager::Report(self.report(&namespace, &session, verb == "accept", words)?);
            lines.extend(self.feed(ManagerEvent::FromOwner { from, message })?);
        }
        Ok(lines)
    }

    fn hello(&mut self, name: &str, session: &str, words: &mut Words) -> Result<Hello, String> {
        let talk = self.talks.entry((name.to_owned(), session.to_owned())).or_default();
        talk.hello += 1;
        let number = talk.hello;
        let owner = session.trim_end_matches(|c: char| c.is_ascii_digit());
        Ok(Hello {
            namespace: namespace(name)?,
            session: self.aliases.session(session),
            secret: Secret::default(),
            number: words.number("hello", number)?,
            name: OwnerName::new(owner).map_err(|error| error.to_string())?,
            url: session.into(),
            takes_over_previous: words.flag("takeover"),
            formerly: words.value("formerly").map(|earlier| self.aliases.session(&earlier)),
            age: Duration::from_secs(words.number("age", 0)?),
            term: Term(words.number("term", 0)?),
            expects: words.expected(),
        })
    }

    fn report(
        &mut self,
        name: &str,
        session: &str,
        accepts: bool,
        words: &mut Words,
    ) -> Result<Report, String> {
        let mut talk = self.talks.get(&(name.to_owned(), session.to_owned())).cloned().unwrap_or_default();
        let id = words.value("talk").unwrap_or_else(|| talk.id.clone());
        let seq = words.number("seq", talk.reported.saturating_add(1))?;
        let heard = words.number("heard", talk.heard)?;
        talk.reported = talk.reported.max(seq);
        let told = if accepts { std::mem::take(&mut talk.told) } else { Vec::new() };
        let known = self.talks.entry((name.to_owned(), session.to_owned())).or_default();
        known.reported = talk.reported;
        let mut report = Report {
            namespace: namespace(name)?,
            session: self.aliases.session(session),
            conversation: self.aliases.nonce(&id),
            seq: Seq(seq),
            heard: Seq(heard),
            applied: Seq(0),
            age: Duration::from_secs(words.number("age", 0)?),
            held: told.iter().map(as_held).collect(),
            released: Vec::new(),
            refused: Vec::new(),
            imports: Vec::new(),
            loads: Vec::new(),
            load_dimension: Default::default(),
            load_span: Duration::ZERO,
            weight: 100,
            draining: false,
            leaving: false,
        };
        for clause in words.clauses(&["holds", "released", "refused", "copy", "load"]) {
            self.clause(clause, &mut report)?;
        }
        report.applied = Seq(words.number("applied", heard)?);
        report.weight = u32::try_from(words.number("weight", 100)?).map_err(|_| "what weight?")?;
        report.draining = words.flag("draining");
        report.leaving = words.flag("leaving");
        Ok(report)
    }

    /// `holds 00-7f gen=1 since=1 warrant=00-7f`, `released 00-7f gen=1 to=b1`, `refused 00-7f gen=1`, `load 00-7f 100`.
    fn clause(&mut self, mut words: Words, report: &mut Report) -> Result<(), String> {
        let verb = words.word()?;
        let range = words::range(&words.word()?)?;
        let generation = Generation(words.number("gen", 0)?);
        match verb.as_str() {
            "holds" => {
                let state_since = Generation(words.number("since", generation.0)?);
                let warrant = warrant(&mut words)?;
                report.held.push(HeldLease { range, generation, state_since, warrant });
            }
            "released" => {
                let clean_to = words.value("to").map(|to| self.aliases.session(&to));
                let state_since = Generation(words.number("since", generation.0)?);
                let warrant = warrant(&mut words)?;
                report.released.push(Release { range, generation, clean_to, state_since, warrant });
            }
            "refused" => report.refused.push(Refusal { range, generation }),
            "copy" => report.imports.push(ImportedCopy { range, source: generation }),
            _ => {
                let load = words.word()?.parse().map_err(|_| "what load?")?;
                report.loads.push(RangeLoad { range, load, heavy: Vec::new(), quantiles: Vec::new() });
            }
        }
        words.end()
    }

    /// `ask l1 has=g1:3 by=w2`: a Lookup's request, by a way back of that name.
    fn ask(&mut self, words: &mut Words) -> Result<ManagerEvent, String> {
        let name = words.word()?;
        let asked = self.lookups.entry(name.clone()).or_default();
        *asked += 1;
        let seq = Seq(words.number("seq", *asked)?);
        let position = match words.value("has") {
            None => None,
            Some(text) => {
                let (log, lsn) = text.split_once(':').ok_or("has what?")?;
                let lsn = lsn.parse().map_err(|_| "has what?")?;
                Some(Position { log: self.aliases.nonce(log), lsn: Lsn(lsn) })
            }
        };
        let request = LookupRequest {
            namespace: namespace(&words.value("in").unwrap_or_else(|| "pool".into()))?,
            lookup: self.aliases.nonce(&name),
            seq,
            position,
            term: Term(words.number("term", 0)?),
            expects: words.expected(),
        };
        let by = words.value("by").unwrap_or(name);
        Ok(ManagerEvent::FromLookup { from: self.peer(&by), request })
    }

    /// `gone l1 by=w2`: that way back to a Lookup is no more.
    fn gone(&mut self, words: &mut Words) -> Result<ManagerEvent, String> {
        let name = words.word()?;
        let by = words.value("by").unwrap_or_else(|| name.clone());
        let namespace = namespace(&words.value("in").unwrap_or_else(|| "pool".into()))?;
        Ok(ManagerEvent::LookupGone { from: self.peer(&by), namespace, lookup: self.aliases.nonce(&name) })
    }
}

/// `warrant=00-7f lease=60s nodes=64`, if it is there.
fn warrant(words: &mut Words) -> Result<Option<Warrant>, String> {
    let Some(keys) = words.value("warrant") else { return Ok(None) };
    Ok(Some(Warrant {
        range: words::range(&keys)?,
        lease: words.time("lease", Duration::from_secs(60))?,
        virtual_nodes: u32::try_from(words.number("nodes", 64)?).map_err(|_| "what nodes?")?,
        code: [0; 32],
    }))
}

fn as_held(order: &LeaseOrder) -> HeldLease {
    let LeaseOrder { range, generation, state_since, .. } = *order;
    HeldLease { range, generation, state_since, warrant: order.warrant.as_deref().copied() }
}
