//! Callers: operations on probe keys, routed as well as callers can, and the load that applications measure.

use centrifuge_core::id::Generation;
use centrifuge_core::load::RangeLoad;
use centrifuge_core::owner::OwnerEvent;

use crate::seen::Seen;
use crate::world::World;
use crate::world::app::AppEvent;
use crate::world::plan::SECOND;
use crate::world::queue::Event;

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
        let here = |owner: &usize| self.plan.owners[*owner].namespace == namespace;
        let owners: Vec<usize> = (0..self.owners.len()).filter(here).collect();
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
        if lookups.is_empty() {
            return None;
        }
        let lookup = self.rng.pick(&lookups);
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
        let key = self.plan.namespaces[self.plan.owners[owner].namespace].keys[probe];
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
        let key = namespace.keys[probe];
        let host = &mut self.owners[owner];
        let Some(process) = &mut host.process else { return };
        if !process.machine.check_lease_continuous(host.clock.read(self.now), key, generation) {
            return;
        }
        self.lineages += 1;
        let now = host.clock.read(self.now);
        let is_current = |lease| process.machine.check_lease_continuous(now, key, lease);
        let (before, after) = process.app.operate(probe, generation, self.lineages, is_current);
        let session = process.machine.session();
        if self.trace.is_on() {
            let text =
                format_args!("    Owner({owner}) serves {key} under {generation}: {before:?} -> {after:?}");
            self.trace.line(self.now, text);
        }
        let namespace = &namespace.name;
        let served = Seen::Served { session, namespace, key, generation, before, after };
        self.witness.see(self.now, &served);
    }

    /// Every application tells its library how loaded its ranges are; some keys are far hotter than others.
    pub(super) fn measure_load(&mut self, namespace: usize) {
        self.queue.push(self.now.0 + 20 * SECOND, Event::MeasureLoad { namespace });
        for owner in 0..self.owners.len() {
            if self.plan.owners[owner].namespace != namespace || !self.owners[owner].is_running() {
                continue;
            }
            let Some(process) = &self.owners[owner].process else { continue };
            let rng = &mut self.rng;
            let load = |(range, _)| RangeLoad { range, load: rng.spread(1, 1_000), hottest: None };
            let loads = process.machine.leases().iter().map(load).collect();
            self.feed_owner(owner, OwnerEvent::Load(loads));
        }
    }
}
