//! What a test asks of a cluster.

use std::time::Duration;

use centrifuge_core::id::{Generation, ManagerId, Namespace, SessionId};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::lookup::{LookupAction, LookupMachine, LossReason, Row};
use centrifuge_core::manager::ManagerMachine;
use centrifuge_core::manager_state::NamespaceState;
use centrifuge_core::message::{LeaseOrder, OrderKind};
use centrifuge_core::owner::{NotOwner, OwnerAction, OwnerMachine};
use centrifuge_core::range_map::RangeMap;
use centrifuge_core::range_set::RangeSet;
use centrifuge_core::table::{Entry, Table};
use centrifuge_core::time::Instant;

use super::{Cluster, Envelope, Host, Node, pool};

/// The machines.
impl Cluster {
    pub fn owner_machine(&self, owner: Node) -> &OwnerMachine {
        let Node::Owner(number) = owner else { panic!("{owner:?} is no Owner") };
        &self.owners[number].machine
    }

    pub fn lookup_machine(&self, lookup: Node) -> &LookupMachine {
        let Node::Lookup(number) = lookup else { panic!("{lookup:?} is no Lookup") };
        &self.lookups[number].machine
    }

    pub fn manager_machine(&self, manager: Node) -> &ManagerMachine {
        let Node::Manager(number) = manager else { panic!("{manager:?} is no Manager") };
        &self.managers[number].machine
    }

    /// The Manager that leads now.
    pub fn leader(&self) -> Node {
        self.leaders().next().expect("a leader")
    }

    /// Every live Manager that takes itself for the leader now.
    pub fn leaders(&self) -> impl Iterator<Item = Node> {
        let hosts = self.managers.iter().enumerate().filter(|(_, host)| host.alive);
        let leading = hosts.filter(|(_, host)| host.machine.leading(host.clock.read(self.now)).is_some());
        leading.map(|(number, _)| Node::Manager(number))
    }

    pub(super) fn manager_named(&self, id: &ManagerId) -> Node {
        let number = id.as_str().strip_prefix('m').and_then(|number| number.parse::<usize>().ok());
        Node::Manager(number.expect("Managers are called m1, m2, ...") - 1)
    }

    pub fn session(&self, owner: Node) -> SessionId {
        self.owner_machine(owner).session()
    }
}

/// The table, as the leader has committed it.
impl Cluster {
    pub fn stored(&self) -> &NamespaceState {
        self.stored_of(&pool())
    }

    pub fn stored_of(&self, namespace: &Namespace) -> &NamespaceState {
        let group = self.manager_machine(self.leader()).group().expect("a leader has a group");
        group.namespaces.get(namespace).expect("a namespace")
    }

    pub fn table(&self) -> &Table {
        &self.stored().table
    }

    pub fn entry(&self, key: Key) -> Entry {
        *self.table().get(key).1
    }

    /// The keys that the table gives an Owner.
    pub fn keys_of(&self, owner: Node) -> RangeSet {
        self.table().of_session(self.session(owner)).map(|(range, _)| range).collect()
    }

    /// The table as Lookups should have it.
    pub fn published(&self) -> RangeMap<Row> {
        self.stored().publish_all().iter().map(|entry| (entry.range, Row::from(entry))).collect()
    }
}

/// What Owners believe and say.
impl Cluster {
    fn local(&self, owner: Node) -> Instant {
        let Node::Owner(number) = owner else { panic!("{owner:?} is no Owner") };
        self.owners[number].clock.read(self.now)
    }

    pub fn check_now(&self, owner: Node, key: Key) -> Result<Generation, NotOwner> {
        self.owner_machine(owner).check_lease_now(self.local(owner), key)
    }

    pub fn check_continuous(&self, owner: Node, key: Key, lease: Generation) -> bool {
        self.owner_machine(owner).check_lease_continuous(self.local(owner), key, lease)
    }

    /// Whether an Owner holds every key of a range.
    pub fn holds(&self, owner: Node, range: KeyRange) -> bool {
        self.held_keys(owner).contains_range(range)
    }

    /// The keys that an Owner believes to hold now, frozen or not.
    pub fn held_keys(&self, owner: Node) -> RangeSet {
        let machine = self.owner_machine(owner);
        if self.local(owner) < machine.expiry() { machine.leases().keys() } else { RangeSet::new() }
    }

    /// The live Owners whose check of `key` succeeds now.
    pub fn owners_of(&self, key: Key) -> Vec<Node> {
        let live = (0..self.owners.len()).filter(|number| self.owners[*number].alive).map(Node::Owner);
        live.filter(|owner| self.check_now(*owner, key).is_ok()).collect()
    }

    /// Keys that two Owners believe to hold now.
    pub fn held_twice(&self) -> Option<KeyRange> {
        let believes =
            |host: &&Host<OwnerMachine>| host.alive && host.clock.read(self.now) < host.machine.expiry();
        let believers = self.owners.iter().filter(believes);
        let mut held: Vec<KeyRange> =
            believers.flat_map(|host| host.machine.leases().iter().map(|(range, _)| range)).collect();
        held.sort_unstable();
        held.windows(2).find_map(|pair| pair[0].intersection(pair[1]))
    }

    /// What an Owner told its application from an instant on.
    pub fn upcalls(&self, owner: Node, from: Instant) -> Vec<&OwnerAction> {
        let upcalls = self.told.iter().filter(|(at, node, _)| *node == owner && *at >= from);
        upcalls.map(|(_, _, action)| action).collect()
    }
}

/// What Lookups believe and say.
impl Cluster {
    /// The Owner process to which a Lookup sends what concerns a key.
    pub fn route(&self, lookup: Node, key: Key) -> Option<Node> {
        let session = self.lookup_machine(lookup).lookup(key)?.owner?.session;
        (0..self.owners.len()).map(Node::Owner).find(|owner| self.session(*owner) == session)
    }

    /// Whether a Lookup has the table that the leader has.
    pub fn is_current(&self, lookup: Node) -> bool {
        self.lookup_machine(lookup).table() == Some(&self.published())
    }

    /// The losses that a Lookup raised from an instant on.
    pub fn losses(&self, lookup: Node, from: Instant) -> Vec<(Instant, &RangeSet, LossReason)> {
        let raised = self.raised.iter().filter(|(at, node, _)| *node == lookup && *at >= from);
        let losses = raised.filter_map(|(at, _, action)| match action {
            LookupAction::Loss { keys, why } => Some((*at, keys, *why)),
            _ => None,
        });
        losses.collect()
    }

    /// The keys of those losses.
    pub fn lost_keys(&self, lookup: Node, from: Instant) -> RangeSet {
        self.losses(lookup, from)
            .into_iter()
            .flat_map(|(_, keys, _)| keys.iter().collect::<Vec<_>>())
            .collect()
    }
}

/// What was sent.
impl Cluster {
    /// The messages from one node to another, sent from an instant on.
    pub fn messages(&self, from: Node, to: Node, since: Instant) -> impl Iterator<Item = &Envelope> {
        let on_link = move |envelope: &&Envelope| (envelope.from, envelope.to) == (from, to);
        self.sent.iter().filter(on_link).filter(move |envelope| envelope.sent_at >= since)
    }

    /// Everything that a node sent from an instant on.
    pub fn sent_by(&self, from: Node, since: Instant) -> impl Iterator<Item = &Envelope> {
        self.sent.iter().filter(move |envelope| envelope.from == from && envelope.sent_at >= since)
    }

    /// The latest message of a kind from one node to another.
    pub fn latest<T>(&self, from: Node, to: Node, kind: impl Fn(&Envelope) -> Option<T>) -> T {
        let found = self.messages(from, to, Instant::ZERO).filter_map(kind).last();
        found.unwrap_or_else(|| panic!("nothing of the kind from {from:?} to {to:?}"))
    }
}

/// The time between one instant and the next.
pub fn intervals(instants: &[Instant]) -> Vec<Duration> {
    instants.windows(2).map(|pair| pair[1].since(pair[0])).collect()
}

pub fn is_grant(order: &LeaseOrder) -> bool {
    matches!(order.kind, OrderKind::Grant { .. })
}

/// Keys all over the key space.
pub fn some_keys() -> impl Iterator<Item = Key> {
    (0..256_u32).map(|number| Key::of(&number.to_le_bytes())).chain([Key::MIN, Key::MAX])
}

/// The two halves of the key space: what two Owners of equal slices get.
pub fn halves() -> (KeyRange, KeyRange) {
    KeyRange::ALL.split_at(Key(1 << 63)).expect("both halves have keys")
}
