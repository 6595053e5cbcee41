//! What the world shows its all-seeing oracle.

use std::fmt;
use std::time::Duration;

use centrifuge_core::id::{Generation, Index, Namespace, SessionId};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::lookup::{LookupAction, LookupMachine};
use centrifuge_core::manager::{ManagerAction, ManagerMachine};
use centrifuge_core::owner::{OwnerAction, OwnerMachine};
use centrifuge_core::record::Batch;
use centrifuge_core::time::Instant;

use crate::clock::Clock;

/// Real time, which no node can read, in nanoseconds from the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TrueTime(pub u64);

impl fmt::Display for TrueTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Instant(self.0), f)
    }
}

/// One node of the world: its kind's index, stable across restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Node {
    /// A Manager.
    Manager(usize),
    /// An Owner.
    Owner(usize),
    /// A Lookup.
    Lookup(usize),
}

/// The state of one probe key in an application, as the world's applications keep it.
///
/// `lineage` is drawn fresh whenever an application starts a key empty; `version` counts the writes since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Value {
    /// Which beginning this state goes back to.
    pub lineage: u64,
    /// How many writes since.
    pub version: u64,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}/{}", self.lineage, self.version)
    }
}

/// Something that happened, shown right after it happened.
#[derive(Debug)]
pub enum Seen<'a> {
    /// A process of an Owner began (a restart is a new process).
    OwnerStarted {
        /// Which node.
        node: usize,
        /// Its process.
        session: SessionId,
        /// Its pool.
        namespace: &'a Namespace,
        /// Whether its application can move state.
        migrates: bool,
        /// What it makes of the application keys that are watched.
        keys: &'a [Key],
    },
    /// A process of an Owner is gone, with all it had in memory.
    OwnerEnded {
        /// Which node.
        node: usize,
        /// Its process.
        session: SessionId,
    },
    /// An Owner machine took an event or a wake.
    OwnerStepped {
        /// Which node.
        node: usize,
        /// Its state after the step.
        machine: &'a OwnerMachine,
        /// Its clock.
        clock: &'a Clock,
        /// What it wants done.
        actions: &'a [OwnerAction],
    },
    /// An Owner dies of a key that it has; its end is shown next.
    KilledByKey {
        /// Its process.
        session: SessionId,
        /// Its pool.
        namespace: &'a Namespace,
        /// The key.
        key: Key,
        /// How many may die of it; `None`: other things happen as well, and nobody can say.
        most: Option<u32>,
    },
    /// An application gives up all that it has, and goes.
    OwnerLeaves {
        /// Its process.
        session: SessionId,
    },
    /// An application could not copy the state of a range to its next owner, or will never say whether it did.
    TransferTroubled {
        /// Its process.
        session: SessionId,
        /// The keys.
        range: KeyRange,
        /// The lease under which it has them.
        generation: Generation,
    },
    /// A node stands still, or not all that it sends or waits for comes in time.
    Disturbed {
        /// Which node.
        node: Node,
        /// Until when.
        until: TrueTime,
    },
    /// A suspended Owner's clock stands still until it is resumed; what it believes in that time reaches nobody.
    OwnerSuspended {
        /// Which node.
        node: usize,
        /// Whether it is now suspended.
        suspended: bool,
    },
    /// A Manager machine took an event or a wake.
    ManagerStepped {
        /// Which node.
        node: usize,
        /// Its state after the step.
        machine: &'a ManagerMachine,
        /// What it wants done.
        actions: &'a [ManagerAction],
    },
    /// A Lookup process began.
    LookupStarted {
        /// Which node.
        node: usize,
        /// Its pool.
        namespace: &'a Namespace,
        /// How long after a leader knows of a loss it must have raised it, in real time.
        told_within: Duration,
    },
    /// A Lookup process is gone.
    LookupEnded {
        /// Which node.
        node: usize,
    },
    /// A Lookup process is paused (its timers do not run and its messages wait) or goes on.
    LookupPaused {
        /// Which node.
        node: usize,
        /// Whether it is now paused.
        paused: bool,
    },
    /// A Lookup machine took an event or a wake.
    LookupStepped {
        /// Which node.
        node: usize,
        /// Its state after the step.
        machine: &'a LookupMachine,
        /// Its clock.
        clock: &'a Clock,
        /// What it wants done.
        actions: &'a [LookupAction],
    },
    /// A batch became durable.
    Committed {
        /// Where.
        index: Index,
        /// What.
        batch: &'a Batch,
        /// The Manager that sent it.
        by: usize,
    },
    /// An application served an operation on a probe key under the four-step pattern (Centrifuge figure 10): it
    /// checked the lease, found `before` (`None`: started empty because it had nothing valid), and wrote `after`.
    Served {
        /// The process that served.
        session: SessionId,
        /// Its pool.
        namespace: &'a Namespace,
        /// The key.
        key: Key,
        /// The lease it was served under.
        generation: Generation,
        /// What it found.
        before: Option<Value>,
        /// What it left.
        after: Value,
    },
    /// No fault happens any more; messages are delivered quickly.
    FaultsEnded,
    /// The run is over.
    Ended,
}

/// A sentence of the design that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant, as protocol §11 numbers it.
    pub invariant: &'static str,
    /// When.
    pub at: TrueTime,
    /// What happened, in words that name keys, sessions and leases.
    pub what: String,
    /// Keys whose history explains it.
    pub keys: Vec<Key>,
    /// In which namespace.
    pub namespace: Option<Namespace>,
}

impl Violation {
    /// A violation that no keys and no namespace explain.
    pub fn new(invariant: &'static str, at: TrueTime, what: String) -> Violation {
        Violation { invariant, at, what, keys: Vec::new(), namespace: None }
    }
}
