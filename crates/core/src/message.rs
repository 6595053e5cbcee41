//! What Owners, Lookups and Managers say to each other, before any wire format.

use std::sync::Arc;
use std::time::Duration;

use crate::id::{
    Generation, LoadDimension, Lsn, ManagerId, Namespace, Nonce, OwnerName, Secret, Seq, SessionId, Term, Url,
};
use crate::key::KeyRange;
use crate::load::RangeLoad;
use crate::namespace_kind::{ExpectedKind, KindMismatch, NamespaceKind};
use crate::table::PublishedEntry;

/// What an Owner sends to a Manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum OwnerToManager {
    /// Asks for a conversation. Changes nothing by itself.
    Hello(Hello),
    /// The Owner's complete view, within a conversation.
    Report(Report),
}

/// An Owner introduces itself; the answer is a welcome, a refusal, or the name of the leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Hello {
    /// The pool the Owner belongs to.
    pub namespace: Namespace,
    /// The Owner's process.
    pub session: SessionId,
    /// What proves that the sender is that process. Only hellos have it: reports count by the conversation that they opened.
    #[cfg_attr(feature = "serde", serde(default))]
    pub secret: Secret,
    /// Which of this session's hellos this is; the welcome names it.
    pub number: u64,
    /// The Owner's name, which its restarts share.
    pub name: OwnerName,
    /// Where callers reach it.
    pub url: Url,
    /// The application knows that the previous process of this name is gone.
    pub takes_over_previous: bool,
    /// The session that this process was before its clock jumped: nobody acts under it any more.
    #[cfg_attr(feature = "serde", serde(default))]
    pub formerly: Option<SessionId>,
    /// How long the process has been running, by its own clock.
    pub age: Duration,
    /// The highest term the Owner has seen.
    pub term: Term,
    /// The kind of namespace that the Owner is built for.
    #[cfg_attr(feature = "serde", serde(default))]
    pub expects: ExpectedKind,
}

/// The Owner's complete view: what it holds, gave up and refused, how loaded it is, and what it wants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Report {
    /// The pool the Owner belongs to.
    pub namespace: Namespace,
    /// The Owner's process.
    pub session: SessionId,
    /// The Manager's nonce, from its welcome.
    pub conversation: Nonce,
    /// The number of this transmission.
    pub seq: Seq,
    /// The highest number heard from the Manager.
    pub heard: Seq,
    /// The last of the Manager's messages that took effect here.
    pub applied: Seq,
    /// How long the process has been running, by its own clock: its word about a previous process is as old.
    pub age: Duration,
    /// Every lease held, in key order.
    pub held: Vec<HeldLease>,
    /// What was given up on purpose; repeated until the Manager has applied it.
    pub released: Vec<Release>,
    /// What was not accepted; repeated until the Manager has applied it.
    pub refused: Vec<Refusal>,
    /// The copies of others' state that a grant may still follow. An Owner that wants to be emptied takes no new ones.
    #[cfg_attr(feature = "serde", serde(default))]
    pub imports: Vec<ImportedCopy>,
    /// The load of what is held, range by range.
    pub loads: Vec<RangeLoad>,
    /// What the loads are counted in.
    #[cfg_attr(feature = "serde", serde(default))]
    pub load_dimension: LoadDimension,
    /// Over how long they were counted; zero: about a renewal.
    #[cfg_attr(feature = "serde", serde(default))]
    pub load_span: Duration,
    /// The Owner's capacity, in percent of the usual.
    pub weight: u32,
    /// The Owner wants to be emptied.
    pub draining: bool,
    /// The Owner holds nothing any more and goes.
    pub leaving: bool,
}

/// One lease that an Owner holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HeldLease {
    /// The keys.
    pub range: KeyRange,
    /// The lease's number.
    pub generation: Generation,
    /// When the state of these keys last began empty.
    pub state_since: Generation,
    /// What shows a leader that has no store that a Manager granted it.
    #[cfg_attr(feature = "serde", serde(default))]
    pub warrant: Option<Warrant>,
}

/// A Manager's word that it granted a lease, for a leader that knows nothing (ADR 15). Owners keep and repeat it, and read
/// nothing in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Warrant {
    /// The keys; whoever holds a part of them can claim that part.
    pub range: KeyRange,
    /// How long the lease lasts.
    pub lease: Duration,
    /// The Owner's virtual nodes.
    pub virtual_nodes: u32,
    /// A code over these, the namespace, the session, the generation and the state's age. The core neither makes nor
    /// checks it: that happens where messages leave and enter a Manager.
    pub code: [u8; 32],
}

/// A lease given up on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Release {
    /// The keys given up.
    pub range: KeyRange,
    /// The lease they were held under.
    pub generation: Generation,
    /// The session that has a complete copy of the state, if one does.
    pub clean_to: Option<SessionId>,
    /// When the state of these keys last began empty.
    #[cfg_attr(feature = "serde", serde(default))]
    pub state_since: Generation,
    /// What shows a leader that has no store that a Manager granted the lease. Only where the state was moved, and only while
    /// the Owner has been in contact without a lapse since: afterwards somebody else may have been granted the keys.
    #[cfg_attr(feature = "serde", serde(default))]
    pub warrant: Option<Warrant>,
}

/// A lease whose state was moved, by the keys and the number that its release named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MovedLease {
    /// The keys.
    pub range: KeyRange,
    /// The lease they were held under.
    pub generation: Generation,
}

/// A complete copy of state that somebody else held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ImportedCopy {
    /// The keys.
    pub range: KeyRange,
    /// The lease under which they were held.
    pub source: Generation,
}

/// A lease that was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Refusal {
    /// The keys refused.
    pub range: KeyRange,
    /// The lease refused.
    pub generation: Generation,
}

/// What a Manager sends to an Owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ManagerToOwner {
    /// Offers a conversation, which begins with the first report that names its nonce.
    Welcome(Welcome),
    /// The hello was understood and is refused.
    Refused(Refused),
    /// The report belongs to no conversation of this Manager: say hello again.
    Unknown {
        /// The session that was not recognised.
        session: SessionId,
        /// The conversation it named.
        conversation: Nonce,
    },
    /// This Manager does not lead.
    NotLeader {
        /// Who leads, as far as it knows.
        leader: Option<ManagerId>,
    },
    /// The complete set of leases the Owner should hold.
    Assign(Assign),
}

/// A Manager's answer to a hello.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Welcome {
    /// The pool.
    pub namespace: Namespace,
    /// The Owner's session.
    pub session: SessionId,
    /// The hello that is answered.
    pub number: u64,
    /// The Manager's fresh nonce for this conversation.
    pub conversation: Nonce,
    /// The Manager's term.
    pub term: Term,
    /// What the namespace is: for the whole conversation.
    #[cfg_attr(feature = "serde", serde(default))]
    pub kind: NamespaceKind,
}

/// A Manager's refusal of a hello.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Refused {
    /// The Owner's session.
    pub session: SessionId,
    /// The hello that is answered.
    pub number: u64,
    /// The Manager's term.
    pub term: Term,
    /// Why.
    pub why: RefusedReason,
    /// The namespace that refuses; `None` from a Manager of a version that does not say it.
    #[cfg_attr(feature = "serde", serde(default))]
    pub namespace: Option<Namespace>,
}

/// Why a hello is refused, and so what its sender should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum RefusedReason {
    /// Another process of that name was heard from within the hold: choose another name, or wait.
    NameInUse,
    /// There is no such namespace: create it first.
    UnknownNamespace,
    /// An operator evicted this process: start a new one.
    Evicted,
    /// The namespace has as many Owners as it may have.
    TooManyOwners,
    /// The hello carries a term that this leader has not reached: it is deposed and does not know yet.
    StaleTerm,
    /// The namespace makes keys in the other way: use the one that the Owner is built for, or build it for this one.
    WrongKeys,
    /// The namespace is of the other mode: use the one that the Owner is built for, or build it for this one.
    WrongMode,
}

impl RefusedReason {
    /// Whether asking again is of no use, however long the process lives.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, RefusedReason::Evicted | RefusedReason::WrongKeys | RefusedReason::WrongMode)
    }
}

impl From<KindMismatch> for RefusedReason {
    fn from(mismatch: KindMismatch) -> RefusedReason {
        match mismatch {
            KindMismatch::Keys => RefusedReason::WrongKeys,
            KindMismatch::Mode => RefusedReason::WrongMode,
        }
    }
}

/// The complete set of leases an Owner should hold now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Assign {
    /// The pool.
    pub namespace: Namespace,
    /// The Owner's session.
    pub session: SessionId,
    /// The conversation.
    pub conversation: Nonce,
    /// The Manager's term.
    pub term: Term,
    /// The number of this transmission.
    pub seq: Seq,
    /// The highest number heard from the Owner; leases count from the send of that report.
    pub heard: Seq,
    /// The last of the Owner's reports whose effects are committed.
    pub applied: Seq,
    /// How long leases last.
    pub lease: Duration,
    /// How often the Owner should report.
    pub renewal: Duration,
    /// The leases, in key order.
    pub orders: Arc<[LeaseOrder]>,
    /// The Manager waits for a report that acknowledges this message.
    pub wants_answer: bool,
    /// The Owner, which asked to be emptied, is not emptied yet because nobody else can take what it holds.
    pub drain_waits: bool,
    /// The Owner, which asked to be emptied, has nothing left, and nothing is on its way to it.
    #[cfg_attr(feature = "serde", serde(default))]
    pub drained: bool,
    /// Of the copies in the report that is acknowledged, those that no grant can follow any more.
    #[cfg_attr(feature = "serde", serde(default))]
    pub void: Vec<ImportedCopy>,
    /// Of the releases in the report that is acknowledged, those to be repeated though they are applied: the next leader may
    /// have to hear of them.
    #[cfg_attr(feature = "serde", serde(default))]
    pub repeat: Vec<MovedLease>,
    /// An operator evicted the Owner: it gives everything back and does not come again.
    #[cfg_attr(feature = "serde", serde(default))]
    pub evicted: bool,
}

/// One lease of the complete set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LeaseOrder {
    /// The keys.
    pub range: KeyRange,
    /// The lease's number.
    pub generation: Generation,
    /// When the state of these keys last began empty.
    pub state_since: Generation,
    /// A first grant or a renewal.
    pub kind: OrderKind,
    /// With a renewal: the number under which the Owner holds it from now on, together with its neighbours. It may have
    /// taken that number already. Never a grant: only what is held goes on under it.
    #[cfg_attr(feature = "serde", serde(default))]
    pub merge: Option<Generation>,
    /// The Manager wants it back.
    pub recall: Option<RecallOrder>,
    /// What its Owner shows to a leader that has no store.
    #[cfg_attr(feature = "serde", serde(default))]
    pub warrant: Option<Box<Warrant>>,
}

impl LeaseOrder {
    /// The number under which the Owner holds the lease once it has applied this.
    #[must_use]
    pub fn holds_under(&self) -> Generation {
        self.merge.unwrap_or(self.generation)
    }

    /// Whether it renews a lease that is held under this number.
    #[must_use]
    pub fn is_of(&self, generation: Generation) -> bool {
        self.generation == generation || self.merge == Some(generation)
    }
}

/// Whether a lease is new to its Owner. A restarted Owner accepts grants alone (Centrifuge §2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum OrderKind {
    /// A new lease.
    Grant {
        /// The lease under which the state that comes with it was last held, if the state comes with it.
        source: Option<Generation>,
    },
    /// A lease the Owner holds already.
    Renewal,
}

/// How a lease is to be given back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RecallOrder {
    /// Who gets it next and should have a copy of the state first; `None`: give it back at once.
    pub to: Option<Destination>,
}

/// The next owner of a migrating range.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Destination {
    /// The very process: a copy at another life of the same Owner does not count.
    pub session: SessionId,
    /// Its name.
    pub name: OwnerName,
    /// Where it is reached.
    pub url: Url,
}

/// What a Lookup sends to a Manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LookupRequest {
    /// The pool.
    pub namespace: Namespace,
    /// The Lookup, by the nonce it drew at its start.
    pub lookup: Nonce,
    /// The number of this request.
    pub seq: Seq,
    /// What the Lookup has, if it has a table.
    pub position: Option<Position>,
    /// The highest term the Lookup has seen.
    pub term: Term,
    /// The kind of namespace that the Lookup is built for.
    #[cfg_attr(feature = "serde", serde(default))]
    pub expects: ExpectedKind,
}

/// A place in one life of a change log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Position {
    /// Which log.
    pub log: Nonce,
    /// How far.
    pub lsn: Lsn,
}

/// What a Manager sends to a Lookup.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ManagerToLookup {
    /// Table news, or a heartbeat.
    Update(Update),
    /// This Manager does not lead.
    NotLeader {
        /// Who leads, as far as it knows.
        leader: Option<ManagerId>,
    },
    /// There is no such namespace.
    UnknownNamespace {
        /// The Manager's term.
        term: Term,
        /// The Lookup.
        lookup: Nonce,
        /// The request that is answered.
        echo: Seq,
    },
    /// The namespace is not of the kind that the Lookup is built for.
    WrongKind {
        /// The Manager's term.
        term: Term,
        /// The Lookup.
        lookup: Nonce,
        /// The request that is answered.
        echo: Seq,
        /// In what it is not.
        why: KindMismatch,
        /// Which namespace; `None` if it is not said.
        #[cfg_attr(feature = "serde", serde(default))]
        namespace: Option<Namespace>,
    },
}

/// Table news for one Lookup; the body is shared by all who get the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Update {
    /// The pool.
    pub namespace: Namespace,
    /// The Lookup.
    pub lookup: Nonce,
    /// The Manager's term.
    pub term: Term,
    /// The Lookup's latest request that the Manager heard: contact counts from its send.
    pub echo: Seq,
    /// Which log the positions are of.
    pub log: Nonce,
    /// What the namespace is.
    #[cfg_attr(feature = "serde", serde(default))]
    pub kind: NamespaceKind,
    /// The news.
    pub body: UpdateBody,
}

/// The news of an update.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum UpdateBody {
    /// A leader that has no store learns the table from the Owners and knows of no change: whatever the Lookup has, it
    /// keeps.
    Unchanged {
        /// How long learning can take: knowledge may be that much older than usual.
        hold: Duration,
    },
    /// Nothing is new since `lsn`.
    Heartbeat {
        /// The log's end.
        lsn: Lsn,
    },
    /// The changes after `from` up to `to`.
    Changes {
        /// The position the changes start from.
        from: Lsn,
        /// The position they lead to.
        to: Lsn,
        /// The new entries, oldest change first; later ones overwrite.
        entries: Arc<[PublishedEntry]>,
    },
    /// The whole table.
    Snapshot {
        /// The position the table has.
        lsn: Lsn,
        /// The entries, in key order, covering every key.
        entries: Arc<[PublishedEntry]>,
    },
}
