//! The messages of a small world: once sent, always on their way, or until they arrive where none arrives twice.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use centrifuge_core::id::SessionId;
use centrifuge_core::message::{ManagerToOwner, OwnerToManager};
use centrifuge_core::owner::TransferId;

use super::Shared;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    /// A Manager.
    Manager(usize),
    /// The Owner process at a place.
    Owner(usize),
}

/// A message on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Packet {
    /// Where it comes from.
    pub(super) from: Node,
    /// Where it goes: to whatever process is there when it arrives.
    pub(super) to: Node,
    /// What it says.
    pub(super) body: Body,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Body {
    /// An Owner speaks to a Manager.
    ToManager(OwnerToManager),
    /// A Manager speaks to an Owner.
    ToOwner(ManagerToOwner),
    /// One application tells another that it has all of a range's state.
    Copied {
        /// The process that sent the state.
        source: SessionId,
        /// Its transfer.
        transfer: TransferId,
        /// The process that has the state.
        to: SessionId,
    },
}

/// The messages, in the order of their prints.
#[derive(Clone, Debug, Default)]
pub(super) struct Network {
    packets: Arc<Vec<Shared<Packet>>>,
    /// The sum of all prints.
    print: u64,
    /// How many messages were sent.
    sent: usize,
}

impl Network {
    /// Sends a message; one that says the same as an earlier one is that one.
    pub(super) fn send(&mut self, packet: Packet) {
        let packet = Shared::new(packet);
        if let Err(place) = self.packets.binary_search_by_key(&packet.print(), Shared::print) {
            self.print = self.print.wrapping_add(packet.print());
            self.sent += 1;
            Arc::make_mut(&mut self.packets).insert(place, packet);
        }
    }

    /// A message has arrived and does not arrive again.
    pub(super) fn take(&mut self, packet: &Shared<Packet>) {
        if let Ok(place) = self.packets.binary_search_by_key(&packet.print(), Shared::print) {
            self.print = self.print.wrapping_sub(packet.print());
            Arc::make_mut(&mut self.packets).remove(place);
        }
    }

    /// How many different messages were sent.
    pub(super) fn sent(&self) -> usize {
        self.sent
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Shared<Packet>> {
        self.packets.iter()
    }

    /// Whether a message has been sent.
    pub(super) fn has(&self, packet: &Shared<Packet>) -> bool {
        self.packets.binary_search_by_key(&packet.print(), Shared::print).is_ok()
    }
}

impl PartialEq for Network {
    fn eq(&self, other: &Self) -> bool {
        (self.print, self.sent) == (other.print, other.sent)
    }
}

impl Hash for Network {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.print);
        state.write_usize(self.sent);
    }
}
