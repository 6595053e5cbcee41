//! What a leader commits: the same records on every store.

use std::sync::Arc;
use std::time::Duration;

use crate::id::{Generation, Namespace, Nonce, OwnerName, SessionId, Term, Url};
use crate::key::KeyRange;
use crate::namespace_kind::NamespaceKind;
use crate::settings::Settings;

/// One transaction: applied whole or not at all. Its term and index identify it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Batch {
    /// The leader's term.
    pub term: Term,
    /// What changes, in this order.
    pub records: Vec<Record>,
}

/// One committed fact.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Record {
    /// A Manager begins to lead.
    LeaderStarted {
        /// How long its leader lease may run on, by anyone's clock.
        leader_hold: Duration,
    },
    /// No earlier leader can act any more.
    LeaderSettled,
    /// The leader stopped acting before it wrote this.
    LeaderResigned,
    /// A fact about one namespace.
    Namespace {
        /// Which.
        namespace: Namespace,
        /// What.
        change: Change,
        /// Why.
        reason: Reason,
    },
}

/// One committed fact about one namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// The namespace exists.
    Created {
        /// What it is, for as long as it exists. No other change has it.
        kind: NamespaceKind,
        /// Its settings.
        settings: Arc<Settings>,
        /// The identity of its change log.
        log: Nonce,
        /// Its generations are above this one, and so is the age of whatever state nobody claims.
        floor: Generation,
    },
    /// The namespace is gone; its generations stay used up.
    Removed,
    /// Its settings are others.
    Configured {
        /// The new settings.
        settings: Arc<Settings>,
    },
    /// No lease of an earlier, longer hold can still run.
    HoldSettled,
    /// A session joined.
    SessionStarted {
        /// The process.
        session: SessionId,
        /// Its name, address and share.
        info: SessionInfo,
    },
    /// A session's share or wishes are others.
    SessionChanged {
        /// The process.
        session: SessionId,
        /// Its name, address and share.
        info: SessionInfo,
    },
    /// A session is over. Its leases are released by records of their own in the same batch.
    SessionEnded {
        /// The process.
        session: SessionId,
    },
    /// A range has a new lease.
    Granted {
        /// The keys.
        range: KeyRange,
        /// The new lease.
        generation: Generation,
        /// Who gets it.
        session: SessionId,
        /// The lease under which the state that comes along was held. `None`: the state begins empty.
        source: Option<Generation>,
        /// Where the state begins empty: the number from which on it does. `None`: the lease's own.
        state_since: Option<Generation>,
    },
    /// A leader that has no store learns of a lease that an earlier one granted.
    Claimed {
        /// The keys.
        range: KeyRange,
        /// The lease.
        generation: Generation,
        /// When the state of these keys last began empty.
        state_since: Generation,
        /// Who holds it.
        session: SessionId,
    },
    /// A range has no owner any more, and its state is gone.
    Released {
        /// The keys.
        range: KeyRange,
        /// The lease that ended.
        generation: Generation,
    },
    /// The Manager wants a range back.
    Recalled {
        /// The keys.
        range: KeyRange,
        /// The lease that is recalled.
        generation: Generation,
        /// Who gets it next; `None`: give it back at once.
        to: Option<SessionId>,
    },
    /// The Manager does not want it back any more.
    RecallCancelled {
        /// The keys.
        range: KeyRange,
        /// The lease that stays.
        generation: Generation,
    },
    /// Neighbouring leases of one session are to be one lease, under a number that their holder is told of.
    MergeBegun {
        /// The keys.
        range: KeyRange,
        /// The new number.
        generation: Generation,
    },
    /// The holder has taken the new number: it is the lease's from now on.
    Merged {
        /// The keys.
        range: KeyRange,
        /// The new number.
        generation: Generation,
    },
    /// An operator stopped all moves.
    Frozen,
    /// An operator allowed moves again.
    Unfrozen,
    /// An operator wants a range at an Owner, whatever the partitioner wants.
    Pinned {
        /// The keys.
        range: KeyRange,
        /// The Owner; `None` takes the wish back.
        to: Option<OwnerName>,
    },
    /// A range that nobody owns is granted to nobody any more: Owners that got it died, one after the other.
    Quarantined {
        /// The keys.
        range: KeyRange,
        /// Who died.
        evidence: Arc<[DeathEvidence]>,
    },
    /// Every quarantine that has one of these keys is over: its keys may have an owner again.
    Unquarantined {
        /// The keys.
        range: KeyRange,
    },
}

/// A death that speaks against a range: an Owner died soon after it got it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeathEvidence {
    /// The Owner's name.
    pub name: OwnerName,
    /// The process that died.
    pub session: SessionId,
    /// The lease under which it had the range.
    pub generation: Generation,
    /// How long it had it, from the grant to its last word.
    pub held: Duration,
    /// How long before the quarantine its last word was.
    pub ago: Duration,
}

/// What is stored of a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SessionInfo {
    /// The Owner's name.
    pub name: OwnerName,
    /// Where callers reach it.
    pub url: Url,
    /// Its capacity, in percent of the usual.
    pub weight: u32,
    /// Its virtual nodes.
    pub virtual_nodes: u32,
    /// Its latest report asks for it to be emptied.
    pub drain_requested: bool,
    /// An operator wants it emptied, whatever its reports say.
    pub drain_ordered: bool,
    /// An operator wants it gone.
    pub evicted: bool,
}

impl SessionInfo {
    /// Whether it is being emptied, whoever asked for that.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.drain_requested || self.drain_ordered
    }
}

/// Why something was decided; travels to the log, the console and the history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// An operator asked for it, in these words.
    Operator(Arc<str>),
    /// An Owner joined.
    Joined,
    /// An Owner said it goes, holding nothing.
    Left,
    /// An Owner was silent for longer than the hold.
    HoldExpired,
    /// A new process of the name vouched that the earlier one is gone.
    TakenOver,
    /// The Owner does not hold it any more, and did not say why.
    Dropped,
    /// The Owner did not accept it.
    RefusedByOwner,
    /// The Owner gave it back without moving its state.
    GivenBack,
    /// The state was moved, and the lease follows it.
    Migrated,
    /// The state was moved to a process that is gone.
    DestinationGone,
    /// Its owner said so to a leader that has no store.
    Claimed,
    /// It had no owner, and the partitioner names this one.
    Unowned,
    /// The partitioner names another owner.
    Repartitioned,
    /// Its owner is to be emptied.
    Draining,
    /// The migration took too long.
    MigrationTimedOut,
    /// The owner it has is the one it should have.
    NoLongerWanted,
    /// The Owner said so.
    Reported,
    /// The load policy moved a virtual node.
    LoadBalanced,
    /// Trim moves it, for the reason and at the cost that stand there.
    Balanced(Arc<str>),
    /// Neighbours with one owner and state of one age need but one lease.
    Neighbours,
    /// The time it takes for old leases to run out, or that a quarantine lasts, has passed.
    TimePassed,
    /// Owners that got it died soon after, one after the other.
    KilledOwners,
    /// It had no owner, and an Owner that got it died soon after: it goes to another, or in parts to several.
    Suspected,
}
