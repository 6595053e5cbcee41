//! What a device remembers, as on its disk: of its peers, of its queue, and what it has yet to do.

use std::collections::BTreeMap;
use std::fmt;

use centrifuge_examples::shared::stamp::Stamp;
use serde::Deserialize;

use crate::story::{CONNECTIVITY, PUBSUB};

/// The section of a device's document that says where the device is.
pub(super) const ADDRESS: &str = "address";

/// What a device would say if it were asked where a peer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::story) enum Belief {
    /// There.
    Known(String),
    /// It may have missed something: it must ask before it can say.
    MustPoll,
}

impl fmt::Display for Belief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Belief::Known(address) => write!(f, "it is at {address}"),
            Belief::MustPoll => f.write_str("it must ask"),
        }
    }
}

/// An entry of a device's queue.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Entry {
    /// A document changed.
    Message { number: u64, message: Change },
    /// Servers crashed, and with them state that this device has an interest in.
    Lost { number: u64, lost: Lost },
    /// The queue was full, or messages became too old.
    Dropped { number: u64, dropped: u64 },
}

/// A change of a document, as the connectivity server published it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Change {
    document: String,
    section: Option<String>,
    version: Stamp,
    /// Nothing if it was deleted.
    value: Option<String>,
}

/// The names in a pool whose state is gone.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Lost {
    pub(super) pool: String,
    pub(super) names: Vec<String>,
}

/// All that a device knows. A device that was switched off goes on with it.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    pub(super) name: String,
    /// Where it is now.
    pub(super) address: String,
    /// Its document is not known to say so.
    pub(super) must_publish: bool,
    /// The version of its document, as far as it knows: it changes no other, so that a request that was given up and
    /// arrives late changes nothing.
    pub(super) document: Option<Stamp>,
    /// Its queue is not known to be there.
    pub(super) must_open: bool,
    /// Which life of its queue it reads.
    pub(super) incarnation: Option<Stamp>,
    /// The last entry that it has read.
    pub(super) after: u64,
    pub(super) peers: BTreeMap<String, Peer>,
}

/// What it remembers of a device that it follows.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// The subscription is not known to be there.
    pub(super) must_subscribe: bool,
    /// The subscription that it had last.
    pub(super) subscription: Option<Stamp>,
    /// A change may have been missed.
    pub(super) must_poll: bool,
    /// The newest address that it has heard of.
    newest: Option<(Stamp, String)>,
}

impl Memory {
    /// A new device, which has done nothing yet.
    pub(super) fn new(name: &str, peers: &[String]) -> Memory {
        let stranger = Peer { must_subscribe: true, subscription: None, must_poll: true, newest: None };
        Memory {
            name: name.to_owned(),
            address: String::new(),
            must_publish: true,
            document: None,
            must_open: true,
            incarnation: None,
            after: 0,
            peers: peers.iter().map(|peer| (peer.clone(), stranger.clone())).collect(),
        }
    }

    /// It has a new address.
    pub(super) fn moves_to(&mut self, address: &str) {
        if self.address != address {
            self.address = address.to_owned();
            self.must_publish = true;
        }
    }

    /// Everything is to be done again: open, publish, subscribe and ask.
    pub(super) fn begin_anew(&mut self) {
        self.must_open = true;
        self.must_publish = true;
        for peer in self.peers.values_mut() {
            peer.must_subscribe = true;
            peer.must_poll = true;
        }
    }

    /// Its subscriptions are to be renewed before they end.
    pub(super) fn renew(&mut self) {
        self.peers.values_mut().for_each(|peer| peer.must_subscribe = true);
    }

    /// Its queue is open.
    pub(super) fn opened(&mut self, incarnation: Stamp) {
        self.must_open = false;
        if self.incarnation.replace(incarnation) != Some(incarnation) {
            self.after = 0;
        }
    }

    /// Takes in the next entry of its queue.
    pub(super) fn hear(&mut self, entry: &Entry) {
        match entry {
            Entry::Message { message, .. } => self.read(message),
            Entry::Lost { lost, .. } => lost.names.iter().for_each(|name| self.lose(&lost.pool, name)),
            // Losses may be among what was dropped.
            Entry::Dropped { dropped, .. } if *dropped > 0 => self.begin_anew(),
            Entry::Dropped { .. } => {}
        }
        self.after = entry.number();
    }

    fn read(&mut self, change: &Change) {
        let (Some(peer), Some(value)) = (self.peers.get_mut(&change.document), &change.value) else { return };
        if change.section.as_deref() == Some(ADDRESS) {
            peer.learn(change.version, value);
        }
    }

    fn lose(&mut self, pool: &str, name: &str) {
        if pool == CONNECTIVITY && name == self.name {
            self.must_publish = true;
        }
        let Some(peer) = self.peers.get_mut(name) else { return };
        if pool == CONNECTIVITY || pool == PUBSUB {
            peer.must_poll = true;
            peer.must_subscribe |= pool == PUBSUB;
        }
    }

    /// It has asked where a peer is, after all that it has heard.
    pub(super) fn polled(&mut self, peer: &str, version: Stamp, address: &str) {
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.learn(version, address);
            peer.must_poll = false;
        }
    }

    /// Whether it has nothing to do but to listen.
    pub(super) fn is_at_ease(&self) -> bool {
        let is_at_ease = |peer: &Peer| !peer.must_subscribe && !peer.must_poll;
        !self.must_open && !self.must_publish && self.peers.values().all(is_at_ease)
    }
}

impl Peer {
    /// What comes late or twice is older than what is known.
    fn learn(&mut self, version: Stamp, address: &str) {
        if self.newest.as_ref().is_none_or(|(newest, _)| *newest < version) {
            self.newest = Some((version, address.to_owned()));
        }
    }

    pub(super) fn belief(&self) -> Belief {
        match &self.newest {
            Some((_, address)) if !self.must_poll => Belief::Known(address.clone()),
            _ => Belief::MustPoll,
        }
    }
}

impl Entry {
    fn number(&self) -> u64 {
        match self {
            Entry::Message { number, .. } | Entry::Lost { number, .. } | Entry::Dropped { number, .. } => {
                *number
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(text: &str) -> Stamp {
        text.parse().expect("a stamp")
    }

    /// A device that has done everything it must.
    fn at_ease() -> Memory {
        let mut memory = Memory::new("work-1", &["home-1".to_owned()]);
        memory.moves_to("10.0.0.1");
        memory.opened(stamp("4.1"));
        memory.must_publish = false;
        memory.peers.get_mut("home-1").expect("it follows it").must_subscribe = false;
        memory.polled("home-1", stamp("5.2"), "10.1.0.1");
        assert!(memory.is_at_ease());
        memory
    }

    fn hear(memory: &mut Memory, entry: &str) -> Belief {
        memory.hear(&serde_json::from_str(entry).expect("an entry"));
        memory.peers["home-1"].belief()
    }

    fn known(address: &str) -> Belief {
        Belief::Known(address.to_owned())
    }

    #[test]
    fn the_newest_version_counts_in_whatever_order_they_come() {
        let mut memory = at_ease();
        let message = |number: u64, version: &str, address: &str| {
            format!(
                r#"{{"number":{number},"message":{{"document":"home-1","section":"address","version":"{version}","value":"{address}"}}}}"#
            )
        };
        assert_eq!(hear(&mut memory, &message(1, "5.10", "10.1.0.3")), known("10.1.0.3"));
        assert_eq!(hear(&mut memory, &message(2, "5.9", "10.1.0.2")), known("10.1.0.3"));
        assert_eq!(hear(&mut memory, &message(3, "7.1", "10.1.0.4")), known("10.1.0.4"));
        assert_eq!(memory.after, 3);
        assert!(memory.is_at_ease());
    }

    #[test]
    fn a_loss_says_what_is_to_be_done_again() {
        let lost = |pool: &str, name: &str| {
            format!(r#"{{"number":1,"lost":{{"pool":"{pool}","names":["{name}","someone"]}}}}"#)
        };
        let mut memory = at_ease();
        assert_eq!(hear(&mut memory, &lost("connectivity", "work-1")), known("10.1.0.1"));
        assert!(memory.must_publish);

        let mut memory = at_ease();
        assert_eq!(hear(&mut memory, &lost("connectivity", "home-1")), Belief::MustPoll);
        assert!(!memory.must_publish && !memory.peers["home-1"].must_subscribe);

        let mut memory = at_ease();
        assert_eq!(hear(&mut memory, &lost("pubsub", "home-1")), Belief::MustPoll);
        assert!(memory.peers["home-1"].must_subscribe);

        let mut memory = at_ease();
        assert_eq!(hear(&mut memory, r#"{"number":1,"dropped":3}"#), Belief::MustPoll);
        assert!(memory.must_open && memory.must_publish && memory.peers["home-1"].must_subscribe);
    }

    #[test]
    fn another_life_of_the_queue_is_read_from_its_beginning() {
        let mut memory = at_ease();
        hear(&mut memory, r#"{"number":9,"lost":{"pool":"pubsub","names":[]}}"#);
        memory.opened(stamp("4.1"));
        assert_eq!(memory.after, 9);
        memory.opened(stamp("4.2"));
        assert_eq!(memory.after, 0);
    }
}
