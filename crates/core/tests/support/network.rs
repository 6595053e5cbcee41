//! Who sends what to whom, and the links on which messages stay, get lost, or wait for the test's hand.

use std::collections::BTreeSet;
use std::time::Duration;

use centrifuge_core::manager::{ManagerAction, ManagerEvent};
use centrifuge_core::message::{
    Assign, LookupRequest, ManagerToLookup, ManagerToOwner, OwnerToManager, Report, Update,
};
use centrifuge_core::time::Instant;

use super::{Cluster, Work};

/// Anything that sends or receives. The store and the election are apart, so that each can fail alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    Manager(usize),
    /// One process: a restarted Owner is another node.
    Owner(usize),
    Lookup(usize),
    Store,
    Election,
}

/// What travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    FromOwner(OwnerToManager),
    ToOwner(ManagerToOwner),
    FromLookup(LookupRequest),
    ToLookup(ManagerToLookup),
    Request(ManagerAction),
    Answer(ManagerEvent),
}

/// A message on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    pub sent_at: Instant,
    pub from: Node,
    pub to: Node,
    pub message: Message,
}

impl Envelope {
    pub fn as_report(&self) -> Option<&Report> {
        match &self.message {
            Message::FromOwner(OwnerToManager::Report(report)) => Some(report),
            _ => None,
        }
    }

    pub fn as_assign(&self) -> Option<&Assign> {
        match &self.message {
            Message::ToOwner(ManagerToOwner::Assign(assign)) => Some(assign),
            _ => None,
        }
    }

    pub fn as_update(&self) -> Option<&Update> {
        match &self.message {
            Message::ToLookup(ManagerToLookup::Update(update)) => Some(update),
            _ => None,
        }
    }

    pub fn as_request(&self) -> Option<&LookupRequest> {
        match &self.message {
            Message::FromLookup(request) => Some(request),
            _ => None,
        }
    }

    /// The report inside, for a test to falsify.
    pub fn report(&mut self) -> &mut Report {
        match &mut self.message {
            Message::FromOwner(OwnerToManager::Report(report)) => report,
            other => panic!("a report, not {other:?}"),
        }
    }

    /// The assignment inside, for a test to falsify.
    pub fn assign(&mut self) -> &mut Assign {
        match &mut self.message {
            Message::ToOwner(ManagerToOwner::Assign(assign)) => assign,
            other => panic!("an assignment, not {other:?}"),
        }
    }
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Arrives,
    Waits,
    IsLost,
}

/// The state of the links; those that are not named deliver.
#[derive(Default)]
pub(super) struct Links {
    pub(super) held: BTreeSet<(Node, Node)>,
    pub(super) cut: BTreeSet<(Node, Node)>,
    pub(super) isolated: BTreeSet<Node>,
}

impl Links {
    pub(super) fn fate(&self, from: Node, to: Node) -> Fate {
        if self.isolated.contains(&from) || self.isolated.contains(&to) || self.cut.contains(&(from, to)) {
            Fate::IsLost
        } else if self.held.contains(&(from, to)) {
            Fate::Waits
        } else {
            Fate::Arrives
        }
    }
}

/// The network by hand.
impl Cluster {
    /// Messages from one node to another wait from now on.
    pub fn hold(&mut self, from: Node, to: Node) {
        self.links.held.insert((from, to));
    }

    /// Both directions.
    pub fn hold_both(&mut self, one: Node, other: Node) {
        self.hold(one, other);
        self.hold(other, one);
    }

    /// What waited arrives, in order, and nothing waits any more.
    pub fn release(&mut self, from: Node, to: Node) {
        self.links.held.remove(&(from, to));
        let on_link = |envelope: &mut Envelope| (envelope.from, envelope.to) == (from, to);
        let waiting = self.held.extract_if(.., on_link).collect();
        self.arrive(waiting);
    }

    /// Messages from one node to another are lost from now on.
    pub fn cut(&mut self, from: Node, to: Node) {
        self.links.cut.insert((from, to));
    }

    pub fn mend(&mut self, from: Node, to: Node) {
        self.links.cut.remove(&(from, to));
    }

    /// Whatever this node sends, or is sent, is lost from now on.
    pub fn isolate(&mut self, node: Node) {
        self.links.isolated.insert(node);
    }

    pub fn reconnect(&mut self, node: Node) {
        self.links.isolated.remove(&node);
    }

    /// Takes the oldest message that waits on a held link, to be delivered, changed or dropped.
    pub fn take(&mut self, from: Node, to: Node) -> Envelope {
        let place = self.held.iter().position(|envelope| (envelope.from, envelope.to) == (from, to));
        self.held.remove(place.unwrap_or_else(|| panic!("nothing waits from {from:?} to {to:?}")))
    }

    /// How many messages wait on a held link.
    pub fn waiting(&self, from: Node, to: Node) -> usize {
        self.held.iter().filter(|envelope| (envelope.from, envelope.to) == (from, to)).count()
    }

    /// A message arrives now, whatever the state of its link.
    pub fn deliver(&mut self, envelope: Envelope) {
        self.arrive(vec![envelope]);
    }

    pub(super) fn arrive(&mut self, envelopes: Vec<Envelope>) {
        for envelope in envelopes {
            self.push(self.now, Work::Arrival(envelope));
        }
        self.settle();
    }

    pub(super) fn send(&mut self, from: Node, to: Node, message: Message) {
        let envelope = Envelope { sent_at: self.now, from, to, message };
        self.sent.push(envelope.clone());
        match self.links.fate(from, to) {
            Fate::Arrives => {
                let is_store = |node| matches!(node, Node::Store | Node::Election);
                let travels = if is_store(from) || is_store(to) { Duration::ZERO } else { self.latency };
                self.push(self.now + travels, Work::Arrival(envelope));
            }
            Fate::Waits => self.held.push(envelope),
            Fate::IsLost => {}
        }
    }
}
