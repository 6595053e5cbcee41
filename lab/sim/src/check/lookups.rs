//! Every Lookup that there could be: after each change of the table each of them looks, by the changes or by a snapshot, or
//! does not. So every length of staleness is there at once, and all of it follows from the log: it costs no states.

use std::collections::BTreeSet;
use std::time::Duration;

use centrifuge_core::change_log::ChangeLog;
use centrifuge_core::id::{Generation, Lsn, Seq, Term};
use centrifuge_core::lookup::{LookupAction, LookupConfig, LookupEvent, LookupMachine};
use centrifuge_core::machine::Machine;
use centrifuge_core::manager_state::NamespaceState;
use centrifuge_core::message::{ManagerToLookup, Update, UpdateBody};
use centrifuge_core::random::Random;
use centrifuge_core::record::{Batch, Change, Record};
use centrifuge_core::table::PublishedEntry;
use centrifuge_core::time::Instant;

use super::{Breach, PROBES, Shared, manager_id, mix, namespace, print, print_without, probes_in};

/// The instant at which Lookups look: they are judged by what they were shown, whenever that was.
const NOW: Instant = Instant(1_000_000_000_000);
/// A time that never comes: a loss is told when its key has an owner again.
const NEVER: Duration = Duration::from_secs(1_000_000);

/// All Lookups, and what the oracle knows of the state that they count on.
#[derive(Clone, Debug, Default)]
pub(super) struct Lookups {
    /// The Lookups, in the order of their prints; no two know the same.
    all: Vec<Shared<Knowing>>,
    /// What they can ask for.
    log: Option<ChangeLog>,
    /// By watched key: the grant with which its state began, if it is there.
    states: [Option<Generation>; PROBES.len()],
    /// Numbers that leases got when they became one.
    merged: BTreeSet<Generation>,
    /// What happened to some Lookup.
    pub(super) met: Met,
}

/// What happened to some Lookup, so that a world in which nothing happens to any does not pass for a clean one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Met {
    /// It knew a key's state under an earlier number, and looked again when it had one that its lease shares.
    pub(super) merge: bool,
    /// The same, but the state was lost in between.
    pub(super) loss_and_merge: bool,
}

/// One Lookup.
#[derive(Clone, Debug)]
struct Knowing {
    machine: LookupMachine,
    /// The state of each watched key that its application counts on, if it counts on any.
    counts_on: [Option<Generation>; PROBES.len()],
}

impl Knowing {
    fn new() -> Knowing {
        let managers = [manager_id(0)].into();
        let times = LookupConfig::new(namespace(), managers);
        let config = LookupConfig {
            poll: NEVER,
            contact_timeout: NEVER,
            unowned_delay: NEVER,
            silence: NEVER,
            ..times
        };
        let mut machine = LookupMachine::new(config, Random::from_number(7));
        machine.on_event(NOW, LookupEvent::Start);
        Knowing { machine, counts_on: [None; PROBES.len()] }
    }

    fn share(self) -> Shared<Knowing> {
        let machine = print_without(&self.machine, self.machine.counters());
        Shared::printed(mix(&[machine, print(&self.counts_on)]), self)
    }
}

impl Lookups {
    /// What tells them apart from others.
    pub(super) fn share(self) -> Shared<Lookups> {
        let prints: Vec<u64> = self.all.iter().map(Shared::print).collect();
        Shared::printed(mix(&[print(&prints), print(&self.states), print(&self.met)]), self)
    }

    /// A batch is in the log: some look, some do not, and one more begins to.
    pub(super) fn see(
        &mut self,
        batch: &Batch,
        stored: &NamespaceState,
        published: &[PublishedEntry],
    ) -> Option<Breach> {
        self.note(batch, stored);
        let log = self.log.get_or_insert_with(|| ChangeLog::new(stored.log, Lsn::ZERO));
        if published.is_empty() {
            return None;
        }
        log.push(NOW, stored.lsn, published.into(), NEVER);
        let snapshot = UpdateBody::Snapshot { lsn: stored.lsn, entries: stored.publish_all().into() };
        let mut looks = vec![(Knowing::new().share(), snapshot.clone())];
        for lookup in &self.all {
            let position = lookup.machine.position();
            let answer = log.answer(position, usize::MAX, || stored.publish_all().into());
            looks.extend([(lookup.clone(), answer), (lookup.clone(), snapshot.clone())]);
        }
        let mut breach = None;
        for (lookup, body) in looks {
            let (lookup, wrong) = self.look(&lookup, batch.term, stored, body);
            breach = breach.or(wrong);
            if let Err(place) = self.all.binary_search_by_key(&lookup.print(), Shared::print) {
                self.all.insert(place, lookup);
            }
        }
        breach
    }

    /// What a batch does to the state of the watched keys.
    fn note(&mut self, batch: &Batch, stored: &NamespaceState) {
        for record in &batch.records {
            match record {
                Record::Namespace { change: Change::Granted { range, generation, source, .. }, .. } => {
                    for (probe, _) in probes_in(*range) {
                        let moved = self.states[probe].filter(|_| source.is_some());
                        self.states[probe] = moved.or(Some(*generation));
                    }
                }
                Record::Namespace { change: Change::Merged { generation, .. }, .. } => {
                    self.merged.insert(*generation);
                }
                _ => {}
            }
        }
        for (probe, key) in PROBES.iter().enumerate() {
            if stored.table.get(*key).1.owner.is_none() {
                self.states[probe] = None;
            }
        }
    }

    /// One Lookup looks. It must tell of exactly the keys whose state is another one than its application counts on; of keys
    /// that have no owner it tells later.
    fn look(
        &mut self,
        lookup: &Knowing,
        term: Term,
        stored: &NamespaceState,
        body: UpdateBody,
    ) -> (Shared<Knowing>, Option<Breach>) {
        let mut next = lookup.clone();
        let update = Update {
            namespace: namespace(),
            lookup: lookup.machine.nonce(),
            term,
            echo: Seq(1),
            log: stored.log,
            kind: stored.kind.clone(),
            body,
        };
        let message = ManagerToLookup::Update(update);
        let told = next.machine.on_event(NOW, LookupEvent::FromManager { from: manager_id(0), message });
        let mut breach = None;
        for (probe, key) in PROBES.iter().enumerate() {
            let Some(state) = self.states[probe] else { continue };
            let raised = told
                .actions
                .iter()
                .any(|action| matches!(action, LookupAction::Loss { keys, .. } if keys.contains(*key)));
            let knew = lookup.machine.lookup(*key).map(|route| route.generation);
            let generation = stored.table.get(*key).1.generation;
            let Some(counted_on) = next.counts_on[probe].replace(state) else { continue };
            if knew != Some(generation) && self.merged.contains(&generation) {
                self.met.merge |= counted_on == state;
                self.met.loss_and_merge |= counted_on != state;
            }
            let known = knew.unwrap_or_default();
            let wrong = match (raised, counted_on == state) {
                (true, true) => format!("tells that the state of key {key} is lost, which it is not"),
                (false, false) => format!("does not tell that the state of key {key} is lost"),
                _ => continue,
            };
            let shown = format!("a Lookup that knew lease {known} is shown lease {generation}");
            breach = breach.or_else(|| Some(Breach("S4", format!("{shown} and {wrong}"))));
        }
        (next.share(), breach)
    }
}
