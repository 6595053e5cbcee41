//! The people who run the pool: they create its namespaces, change their minds, and look after it once faults end.

use std::sync::Arc;

use centrifuge_core::id::{Namespace, OwnerName};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::manager::{AdminCommand, ManagerEvent};
use centrifuge_core::manager_state::NamespaceState;
use centrifuge_core::namespace_kind::NamespaceKind;

use super::{Event, Node, Part, SECOND, Undo, World};

impl World {
    /// Asks the leader for something, if there is one; true if there is.
    pub(super) fn ask_leader(&mut self, command: AdminCommand) -> bool {
        let Some(leader) = self.leader() else { return false };
        self.requests += 1;
        self.trace.line(self.now, format_args!("operator: {command:?}"));
        self.feed_manager(leader, ManagerEvent::Admin { request: self.requests, command });
        true
    }

    /// Creates the namespaces that are missing, and lets nothing of an operator's doing outlast the faults.
    pub(super) fn tend(&mut self) {
        let mut missing = false;
        for number in 0..self.plan.namespaces.len() {
            let namespace = self.plan.namespaces[number].name.clone();
            match self.stored(&namespace) {
                None if self.plan.diskless.is_some() => {}
                None => {
                    missing = true;
                    let plan = &self.plan.namespaces[number];
                    let (kind, settings) = (self.kind_at_creation(number), Arc::clone(&plan.settings[0]));
                    self.ask_leader(AdminCommand::Create { namespace, kind, settings });
                }
                Some(stored) if !self.faults_happen => {
                    let frozen = stored.frozen;
                    self.tend_calmly(number, frozen);
                }
                Some(_) => {}
            }
        }
        let pause = if missing { SECOND } else { 5 * SECOND };
        self.queue.push(self.now.0 + pause, Event::Tend);
    }

    /// A namespace that somebody removed may come back with another prefix.
    fn kind_at_creation(&self, number: usize) -> NamespaceKind {
        let plan = &self.plan.namespaces[number];
        let used = self.store.group().removed.get(&plan.name);
        plan.kinds[used.map_or(0, |generation| generation.0 % 2) as usize].clone()
    }

    fn tend_calmly(&mut self, number: usize, frozen: bool) {
        if frozen {
            self.unfreeze(number);
        }
        self.unpin(number);
        if !self.somebody_can_own(number) {
            for owner in self.running_owners(number) {
                self.kill(Node::Owner(owner), true);
            }
        }
    }

    /// What is stored of a namespace, or what the leader knows of it where there is no store.
    pub(super) fn stored(&self, namespace: &Namespace) -> Option<&NamespaceState> {
        let group = match &self.plan.diskless {
            Some(_) => self.managers[self.leader()?].process.as_ref()?.machine.group()?,
            None => self.store.group(),
        };
        group.namespaces.get(namespace)
    }

    /// Whether some running Owner of a namespace is not about to be emptied, as far as is stored.
    fn somebody_can_own(&self, number: usize) -> bool {
        let Some(stored) = self.stored(&self.plan.namespaces[number].name) else { return true };
        let kind = self.plan.namespaces[number].kind();
        self.owners.iter().zip(&self.plan.owners).enumerate().any(|(owner, (host, plan))| {
            let willing = host.process.as_ref().is_some_and(|process| {
                let known = stored.sessions.get(&process.machine.session());
                !process.leaving && known.is_none_or(|info| !info.is_draining() && !info.evicted)
            });
            let fits = self.plan.expected_by(owner) == kind.expected();
            plan.namespace == number && willing && fits
        })
    }

    pub(super) fn unfreeze(&mut self, number: usize) -> bool {
        let namespace = self.plan.namespaces[number].name.clone();
        self.ask_leader(AdminCommand::Unfreeze { namespace, why: "enough".into() })
    }

    pub(super) fn freeze(&mut self, number: usize) -> bool {
        let namespace = self.plan.namespaces[number].name.clone();
        self.ask_leader(AdminCommand::Freeze { namespace, why: "let me look".into() })
    }

    pub(super) fn configure(&mut self, number: usize) -> bool {
        let plan = &self.plan.namespaces[number];
        let (namespace, settings) = (plan.name.clone(), self.rng.pick(&plan.settings));
        // Some operators say what they have seen, which may not be so any more.
        let expected = self.rng.chance(300).then(|| self.rng.pick(&plan.settings));
        self.ask_leader(AdminCommand::Configure { namespace, settings, expected, kind: None })
    }

    /// Stops every Owner of a namespace and wants it gone, which is refused while anybody holds a range of it; whoever
    /// tends the pool creates it anew.
    pub(super) fn remove(&mut self, number: usize) -> bool {
        let back = self.now.0 + self.outlasting() + 30 * SECOND;
        for owner in 0..self.owners.len() {
            let plan = &self.plan.owners[owner];
            if plan.namespace == number {
                let (node, returns) = (Node::Owner(owner), plan.part == Part::Regular);
                self.kill(node, false);
                if returns {
                    self.queue.push(back, Event::Undo(Undo::Start { node }));
                }
            }
        }
        self.remove_on(number, back);
        true
    }

    pub(super) fn remove_on(&mut self, number: usize, until: u64) {
        let namespace = self.plan.namespaces[number].name.clone();
        let is_there = self.store.group().namespaces.contains_key(&namespace);
        if !self.faults_happen || !is_there || self.now.0 >= until {
            return;
        }
        self.ask_leader(AdminCommand::Remove { namespace });
        let retry = self.now.0 + 5 * SECOND;
        self.queue.push(retry, Event::Undo(Undo::Remove { namespace: number, until }));
    }

    /// Wants some range at some Owner, or nowhere in particular any more.
    pub(super) fn move_range(&mut self, number: usize) -> bool {
        let namespace = self.plan.namespaces[number].name.clone();
        let range = self.some_range(number);
        let to = if self.rng.chance(200) { None } else { Some(self.some_owner_name(number)) };
        self.ask_leader(AdminCommand::Move { namespace, range, to, why: "better there".into() })
    }

    /// Moves a range to an Owner and back, several times, faster than migrations end.
    pub(super) fn dither(&mut self, number: usize) -> bool {
        let (range, to) = (self.some_range(number), self.some_owner_name(number));
        let times = self.rng.between(3, 8) as u32;
        self.dither_on(number, range, to, times);
        true
    }

    pub(super) fn dither_on(&mut self, number: usize, range: KeyRange, owner: OwnerName, times: u32) {
        if !self.faults_happen || times == 0 {
            return;
        }
        let namespace = self.plan.namespaces[number].name.clone();
        let to = times.is_multiple_of(2).then(|| owner.clone());
        self.ask_leader(AdminCommand::Move { namespace, range, to, why: "or rather there".into() });
        let next = self.now.0 + self.rng.spread(SECOND / 4, 12 * SECOND);
        let again = Undo::Dither { namespace: number, range, owner, times: times - 1 };
        self.queue.push(next, Event::Undo(again));
    }

    pub(super) fn evict(&mut self, number: usize) -> bool {
        let namespace = self.plan.namespaces[number].name.clone();
        let owner = self.some_owner_name(number);
        self.ask_leader(AdminCommand::Evict { namespace, owner, why: "it misbehaves".into() })
    }

    pub(super) fn some_owner_name(&mut self, number: usize) -> OwnerName {
        let here: Vec<_> = self.plan.owners.iter().filter(|owner| owner.namespace == number).collect();
        self.rng.pick(&here).name.clone()
    }

    /// A probe key, by its place: often the busiest.
    pub(super) fn some_probe(&mut self, number: usize) -> usize {
        let plan = &self.plan.namespaces[number];
        if self.rng.chance(plan.busy) {
            plan.busiest
        } else {
            self.rng.below(plan.keys.len() as u64) as usize
        }
    }

    /// A range around one probe key, or between two.
    fn some_range(&mut self, number: usize) -> KeyRange {
        let one = self.some_probe(number);
        let keys = &self.plan.namespaces[number].keys;
        let (one, two) = (keys[one], self.rng.pick(keys));
        match self.rng.below(3) {
            0 => KeyRange::one(one),
            1 => KeyRange::new(one.min(two), one.max(two)).expect("the keys are in order"),
            _ => {
                let width = self.rng.spread(1, u64::MAX / 8);
                let last = Key(one.0.saturating_add(width));
                KeyRange::new(one, last).expect("the keys are in order")
            }
        }
    }
}
