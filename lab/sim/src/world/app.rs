//! The application of an Owner: keeps state in memory, moves it honestly, and serves by the papers' four steps; and its callers,
//! who are routed as well as callers can.

use std::collections::BTreeMap;

use centrifuge_core::id::{Generation, SessionId, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::{LoadMeasurement, RangeLoad};
use centrifuge_core::namespace_kind::{KeyKind, Mode};
use centrifuge_core::owner::{Grant, OwnerEvent, TransferId};
use centrifuge_core::range_map::RangeMap;

use crate::seen::Value;

use super::{Event, Rng, SECOND, Seen, World};

/// Something an application planned for itself.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AppEvent {
    /// An operation that began under this lease ends.
    EndOperation { probe: usize, generation: Generation },
    /// A copy is due, for the first time or because the earlier one was not confirmed.
    SendCopy { transfer: TransferId, last: bool, attempt: u32 },
    /// Operations on a range that is given back plainly have ended.
    Quiesced { transfer: TransferId, range: KeyRange },
}

/// State on its way from one application to another.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    /// The sender's process.
    pub(crate) from: SessionId,
    /// The attempt it belongs to; a higher one of the same process is newer.
    pub(crate) transfer: TransferId,
    pub(crate) range: KeyRange,
    /// The lease under which the sender holds the range.
    pub(crate) source: Generation,
    /// The term in which it began to move it.
    pub(crate) term: Term,
    /// Whether the range is frozen and this is all of its state.
    pub(crate) last: bool,
    /// The probe keys of the range; `None`: empty.
    pub(crate) values: Vec<(usize, Option<Value>)>,
}

/// The receiver's word that a copy arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyAnswer {
    /// The process that has it.
    pub(crate) by: SessionId,
    /// The process that sent it.
    pub(crate) to: SessionId,
    pub(crate) transfer: TransferId,
    pub(crate) last: bool,
}

/// One attempt to move or give back a range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub(crate) id: TransferId,
    pub(crate) range: KeyRange,
    pub(crate) generation: Generation,
    /// The term in which it began.
    pub(crate) term: Term,
    /// The node it goes to.
    pub(crate) to: usize,
    /// Whether the range is frozen.
    pub(crate) last: bool,
    /// Whether the copy of this stage was confirmed.
    pub(crate) confirmed: bool,
}

/// What one process of an application has in memory.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) session: SessionId,
    /// State by probe key, with the lease it is valid under.
    values: Vec<Option<(Value, Generation)>>,
    imports: Vec<Import>,
    /// The newest copy heard of each key from each process, so that a straggler does not overwrite it. The library
    /// counts on that for every key, also where there is nothing to copy.
    newest: BTreeMap<SessionId, RangeMap<TransferId>>,
    pub(crate) transfers: Vec<Transfer>,
    /// When the operations in flight end, by probe key.
    in_flight: Vec<(usize, u64)>,
}

/// The state of one probe key that another application held under `source`.
#[derive(Clone, Copy, Debug)]
struct Import {
    probe: usize,
    source: Generation,
    value: Option<Value>,
}

impl App {
    pub(crate) fn new(session: SessionId, probes: usize) -> App {
        App {
            session,
            values: vec![None; probes],
            imports: Vec::new(),
            newest: BTreeMap::new(),
            transfers: Vec::new(),
            in_flight: Vec::new(),
        }
    }

    /// Does the work of an operation: discards state that is not `current`, because its key was not held without a gap
    /// since it was written, and writes.
    pub(crate) fn operate(
        &mut self,
        probe: usize,
        generation: Generation,
        lineage: u64,
        is_current: impl Fn(Generation) -> bool,
    ) -> (Option<Value>, Value) {
        let before = self.values[probe].filter(|(_, under)| is_current(*under)).map(|(value, _)| value);
        let after = match before {
            Some(value) => Value { version: value.version + 1, ..value },
            None => Value { lineage, version: 1 },
        };
        self.values[probe] = Some((after, generation));
        (before, after)
    }

    /// Remembers an operation that ends at `end`.
    pub(crate) fn begin(&mut self, probe: usize, end: u64) {
        self.in_flight.push((probe, end));
    }

    /// Forgets one operation on a probe key.
    pub(crate) fn end(&mut self, probe: usize) {
        if let Some(at) = self.in_flight.iter().position(|(busy, _)| *busy == probe) {
            self.in_flight.remove(at);
        }
    }

    /// When the last operation in flight on `range` ends; `at` if none is later.
    pub(crate) fn quiet_from(&self, keys: &[Key], range: KeyRange, at: u64) -> u64 {
        let concerned = self.in_flight.iter().filter(|(probe, _)| range.contains(keys[*probe]));
        concerned.map(|(_, end)| *end).fold(at, u64::max)
    }

    /// Whether an operation on `range` is in flight, however late it is.
    pub(crate) fn is_busy(&self, keys: &[Key], range: KeyRange) -> bool {
        self.in_flight.iter().any(|(probe, _)| range.contains(keys[*probe]))
    }

    /// Takes a new lease: installs the copy that came with it, and drops every other.
    pub(crate) fn granted(&mut self, keys: &[Key], grant: &Grant) {
        for probe in probes_in(keys, grant.range) {
            let fits = |import: &&Import| import.probe == probe && Some(import.source) == grant.source;
            let value = self.imports.iter().find(fits).and_then(|import| import.value);
            self.values[probe] = value.map(|value| (value, grant.generation));
        }
        self.discard(keys, grant.range);
    }

    /// Drops imported copies.
    pub(crate) fn discard(&mut self, keys: &[Key], range: KeyRange) {
        self.imports.retain(|import| !range.contains(keys[import.probe]));
    }

    /// Drops the imported copies that came from under one lease.
    pub(crate) fn refuse(&mut self, keys: &[Key], range: KeyRange, source: Generation) {
        self.imports.retain(|import| import.source != source || !range.contains(keys[import.probe]));
    }

    /// Takes a copy in; false if a newer one of the same keys has been heard from that process.
    pub(crate) fn import(&mut self, copy: &Copy) -> bool {
        let newest = self.newest.entry(copy.from).or_default();
        if newest.overlapping(copy.range).any(|(_, newest)| *newest > copy.transfer) {
            return false;
        }
        newest.insert(copy.range, copy.transfer);
        for (probe, value) in &copy.values {
            if copy.last {
                let import = Import { probe: *probe, source: copy.source, value: *value };
                self.imports.retain(|old| old.probe != *probe || old.source != copy.source);
                self.imports.push(import);
            }
        }
        true
    }

    /// Whether every key of a copy is still there: the library may have had it discarded at once.
    pub(crate) fn has_import(&self, copy: &Copy) -> bool {
        let kept = |probe: usize| self.imports.iter().any(|i| i.probe == probe && i.source == copy.source);
        copy.values.iter().all(|(probe, _)| kept(*probe))
    }

    /// The state of a transfer's range, as far as it is current.
    pub(crate) fn copy(
        &self,
        keys: &[Key],
        transfer: &Transfer,
        is_current: impl Fn(Key, Generation) -> bool,
    ) -> Copy {
        let valid = |probe: usize| self.values[probe].filter(|(_, under)| is_current(keys[probe], *under));
        let value = |probe: usize| (probe, valid(probe).map(|(value, _)| value));
        Copy {
            from: self.session,
            transfer: transfer.id,
            range: transfer.range,
            source: transfer.generation,
            term: transfer.term,
            last: transfer.last,
            values: probes_in(keys, transfer.range).map(value).collect(),
        }
    }

    pub(crate) fn transfer(&mut self, id: TransferId) -> Option<&mut Transfer> {
        self.transfers.iter_mut().find(|transfer| transfer.id == id)
    }

    pub(crate) fn forget(&mut self, id: TransferId) {
        self.transfers.retain(|transfer| transfer.id != id);
    }
}

/// The probe keys that lie in a range.
fn probes_in(keys: &[Key], range: KeyRange) -> impl Iterator<Item = usize> + '_ {
    (0..keys.len()).filter(move |probe| range.contains(keys[*probe]))
}

impl World {
    /// A caller wants an operation on some key, somewhere.
    pub(super) fn operation(&mut self, namespace: usize) {
        let next = self.now.0 + self.rng.below(2 * self.plan.apps.interval) + 1;
        self.queue.push(next, Event::Operation { namespace });
        let probe = self.some_probe(namespace);
        if let Some(owner) = self.route(namespace, probe)
            && self.owners[owner].is_running()
        {
            self.begin_operation(owner, probe);
        }
    }

    /// Where a caller sends an operation: mostly where a Lookup says, sometimes where the key really is, and
    /// sometimes anywhere.
    fn route(&mut self, namespace: usize, probe: usize) -> Option<usize> {
        let draw = self.rng.below(100);
        let owners: Vec<usize> = self.owners_of(namespace).collect();
        match draw {
            0..50 => self.route_by_lookup(namespace, probe),
            50..85 => self.route_by_table(namespace, probe),
            _ => Some(self.rng.pick(&owners)),
        }
    }

    fn route_by_lookup(&mut self, namespace: usize, probe: usize) -> Option<usize> {
        let here = |lookup: &usize| {
            self.plan.lookups[*lookup].namespace == namespace && self.lookups[*lookup].is_running()
        };
        let lookups: Vec<usize> = (0..self.lookups.len()).filter(here).collect();
        let lookup = self.rng.pick_any(&lookups)?;
        let process = self.lookups[lookup].process.as_ref()?;
        let route = process.machine.lookup(self.plan.namespaces[namespace].keys[probe])?;
        let url = &route.owner?.url;
        self.plan.owners.iter().position(|owner| owner.url == *url)
    }

    fn route_by_table(&self, namespace: usize, probe: usize) -> Option<usize> {
        let plan = &self.plan.namespaces[namespace];
        let stored = self.stored(&plan.name)?;
        let session = stored.table.get(plan.keys[probe]).1.owner?;
        let is_it = |owner: &crate::world::host::Host<_>| {
            let process: Option<&crate::world::owner_node::OwnerProcess> = owner.process.as_ref();
            process.is_some_and(|process| process.machine.session() == session)
        };
        self.owners.iter().position(is_it)
    }

    /// The first of the four steps (Centrifuge figure 10): is the key ours now? The rest may come later.
    fn begin_operation(&mut self, owner: usize, probe: usize) {
        let key = self.plan.keys_of(owner)[probe];
        let host = &mut self.owners[owner];
        let Some(process) = &mut host.process else { return };
        let Ok(generation) = process.machine.check_lease_now(host.clock.read(self.now), key) else { return };
        if !self.rng.chance(self.plan.apps.lasting) {
            return self.finish_operation(owner, probe, generation);
        }
        let end = self.now.0 + self.rng.spread(SECOND / 1_000, self.plan.apps.longest);
        process.app.begin(probe, end);
        self.plan_for_app(owner, end, AppEvent::EndOperation { probe, generation });
    }

    pub(super) fn end_operation(&mut self, owner: usize, probe: usize, generation: Generation) {
        if let Some(process) = &mut self.owners[owner].process {
            process.app.end(probe);
        }
        self.finish_operation(owner, probe, generation);
    }

    /// The other three: discard stale state, operate, and answer only if the key has been ours throughout.
    fn finish_operation(&mut self, owner: usize, probe: usize, generation: Generation) {
        let namespace = &self.plan.namespaces[self.plan.owners[owner].namespace];
        let key = self.plan.keys_of(owner)[probe];
        let host = &mut self.owners[owner];
        let Some(process) = &mut host.process else { return };
        if !process.machine.check_lease_continuous(host.clock.read(self.now), key, generation) {
            return;
        }
        self.lineages += 1;
        let now = host.clock.read(self.now);
        let is_current = |lease| process.machine.check_lease_continuous(now, key, lease);
        let (before, after) = process.app.operate(probe, generation, self.lineages, is_current);
        let (session, mode) = (process.machine.session(), process.machine.mode());
        let token = process.machine.fencing_token(now, key);
        let text =
            format_args!("    Owner({owner}) serves {key} under {generation}: {before:?} -> {after:?}");
        self.trace.line(self.now, text);
        let namespace = &namespace.name;
        let served = Seen::Served { session, namespace, key, generation, before, after };
        self.witness.see(self.now, &served);
        self.present(owner, (key, mode), token);
    }

    /// What an answer changes elsewhere is fenced there: the receiver takes a number that is not below the highest it has seen. No answer
    /// of an Owner that may have a rival brings one.
    fn present(&mut self, owner: usize, (key, mode): (Key, Mode), token: Option<Generation>) {
        let Some(token) = token else { return };
        let highest = self.fences.entry((self.plan.owners[owner].namespace, key)).or_default();
        let accepted = token >= *highest;
        *highest = token.max(*highest);
        if accepted && mode == Mode::Affinity {
            let what = format!("a receiver took {token} for key {key} from an Owner in affinity mode");
            self.witness.accuse(self.now, "S1", what);
        }
    }

    /// Every application tells its library how loaded its ranges are; some keys are far hotter than others.
    pub(super) fn measure_load(&mut self, namespace: usize) {
        if let Some(loads) = self.true_loads() {
            return self.measure_true_load(namespace, loads);
        }
        self.queue.push(self.now.0 + 20 * SECOND, Event::MeasureLoad { namespace });
        let is_ordered = self.plan.namespaces[namespace].kind().keys.kind() == KeyKind::Ordered;
        self.tell_loads(namespace, |range, rng| {
            let load = rng.spread(1, 1_000);
            // Names that begin alike have most of it.
            let quantiles = if is_ordered { vec![range.first(); (load % 16) as usize] } else { Vec::new() };
            RangeLoad { range, load, heavy: Vec::new(), quantiles }
        });
    }

    /// Tells the library of every application of a namespace what the load of its ranges is.
    pub(super) fn tell_loads(&mut self, namespace: usize, load: impl Fn(KeyRange, &mut Rng) -> RangeLoad) {
        for owner in 0..self.owners.len() {
            if self.plan.owners[owner].namespace != namespace || !self.owners[owner].is_running() {
                continue;
            }
            let Some(process) = &self.owners[owner].process else { continue };
            let rng = &mut self.rng;
            let loads = process.machine.leases().iter().map(|(range, _)| load(range, rng)).collect();
            let is_urgent = rng.chance(250);
            let measured = LoadMeasurement { loads, is_urgent, ..Default::default() };
            self.feed_owner(owner, OwnerEvent::Load(measured));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use centrifuge_core::id::Nonce;

    const KEYS: [Key; 2] = [Key(10), Key(20)];
    const LOW: KeyRange = KeyRange::ALL;

    fn app(number: u128) -> App {
        App::new(SessionId(Nonce(number)), KEYS.len())
    }

    fn transfer(id: u64, generation: u64) -> Transfer {
        let generation = Generation(generation);
        Transfer {
            id: TransferId(id),
            range: LOW,
            generation,
            term: Term(1),
            to: 0,
            last: true,
            confirmed: false,
        }
    }

    fn is_first(_key: Key, lease: Generation) -> bool {
        lease == Generation(1)
    }

    fn grant(generation: u64, source: Option<u64>) -> Grant {
        let (generation, source) = (Generation(generation), source.map(Generation));
        Grant { range: LOW, generation, state_since: Generation(1), source }
    }

    #[test]
    fn state_of_another_lease_is_discarded() {
        let mut app = app(1);
        assert_eq!(
            app.operate(0, Generation(1), 7, |lease| lease == Generation(1)),
            (None, Value { lineage: 7, version: 1 })
        );
        let (before, after) = app.operate(0, Generation(1), 8, |lease| lease == Generation(1));
        assert_eq!((before.map(|value| value.version), after.version, after.lineage), (Some(1), 2, 7));
        assert_eq!(
            app.operate(0, Generation(2), 9, |lease| lease == Generation(2)),
            (None, Value { lineage: 9, version: 1 })
        );
    }

    #[test]
    fn a_clean_grant_installs_the_copy_and_a_plain_one_drops_it() {
        let (mut from, mut to) = (app(1), app(2));
        from.operate(0, Generation(1), 7, |lease| lease == Generation(1));
        let copy = from.copy(&KEYS, &transfer(1, 1), is_first);
        assert!(to.import(&copy) && to.has_import(&copy));
        to.granted(&KEYS, &grant(2, Some(1)));
        assert_eq!(
            to.operate(0, Generation(2), 8, |lease| lease == Generation(2)).1,
            Value { lineage: 7, version: 2 }
        );
        assert!(to.import(&copy));
        to.granted(&KEYS, &grant(3, None));
        assert_eq!(to.operate(0, Generation(3), 9, |lease| lease == Generation(3)).0, None);
    }

    #[test]
    fn a_straggling_copy_does_not_overwrite_a_newer_one() {
        let (mut from, mut to) = (app(1), app(2));
        let old = from.copy(&KEYS, &transfer(1, 1), is_first);
        from.operate(0, Generation(1), 7, |lease| lease == Generation(1));
        assert!(to.import(&from.copy(&KEYS, &transfer(2, 1), is_first)));
        assert!(!to.import(&old));
        to.granted(&KEYS, &grant(2, Some(1)));
        assert_eq!(to.operate(0, Generation(2), 8, |lease| lease == Generation(2)).1.version, 2);
    }

    #[test]
    fn a_range_is_quiet_when_its_last_operation_has_ended() {
        let mut app = app(1);
        app.begin(0, 50);
        assert_eq!(app.quiet_from(&KEYS, KeyRange::one(Key(10)), 5), 50);
        assert_eq!(app.quiet_from(&KEYS, KeyRange::one(Key(20)), 5), 5);
        app.end(0);
        assert!(!app.is_busy(&KEYS, LOW));
    }
}
