//! What happens to a Manager and what it wants done.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::{Generation, Index, ManagerId, Namespace, Nonce, OwnerName, SessionId, Term};
use crate::key::KeyRange;
use crate::load::LoadSkip;
use crate::manager_state::ManagerState;
use crate::message::{LookupRequest, ManagerToLookup, ManagerToOwner, OwnerToManager};
use crate::namespace_kind::NamespaceKind;
use crate::record::Batch;
use crate::settings::{Settings, SettingsError};
use crate::trim::{TrimReason, TrimSkip, TrimSummary};

/// The driver's name for a way back to an Owner or a Lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StreamId(pub u64);

/// What can happen to a Manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ManagerEvent {
    /// The Manager may begin to campaign.
    Start,
    /// An Owner's message arrived.
    FromOwner {
        /// The way back.
        from: StreamId,
        /// The message.
        message: OwnerToManager,
    },
    /// A Lookup's request arrived.
    FromLookup {
        /// The way back.
        from: StreamId,
        /// The request.
        request: LookupRequest,
    },
    /// The way back to a Lookup is gone. Whoever asked again by another way since is not meant.
    LookupGone {
        /// The way that is gone.
        from: StreamId,
        /// The pool it asked for.
        namespace: Namespace,
        /// The Lookup that had asked by it.
        lookup: Nonce,
    },
    /// The election answered.
    Election(ElectionEvent),
    /// The store answered.
    Store(StoreEvent),
    /// An operator wants something.
    Admin {
        /// Names the request in its answer.
        request: u64,
        /// What is wanted.
        command: AdminCommand,
    },
    /// The Manager should stop leading, as before a planned stop.
    Resign,
    /// The clock stood still or jumped.
    ClockJumped,
}

/// Answers of the election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ElectionEvent {
    /// The campaign was won.
    Won {
        /// The campaign.
        request: u64,
        /// The new term, higher than any before.
        term: Term,
    },
    /// Somebody else leads.
    LedBy {
        /// The campaign.
        request: u64,
        /// Who.
        leader: Option<ManagerId>,
    },
    /// The leader lease is renewed, from the send of the request.
    Renewed {
        /// The renewal.
        request: u64,
    },
    /// The leader lease is gone.
    Lost {
        /// The term it was of.
        term: Term,
    },
}

/// Answers of the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum StoreEvent {
    /// Everything committed up to `index`.
    Loaded {
        /// The load.
        request: u64,
        /// The index of the last batch.
        index: Index,
        /// What all batches add up to.
        group: Arc<ManagerState>,
    },
    /// The load failed; nothing is known.
    LoadFailed {
        /// The load.
        request: u64,
    },
    /// The batch is at that index, durably: by this append or, if it was repeated, by an earlier try.
    Appended {
        /// Where.
        index: Index,
    },
    /// The batch is not in the log and never will be: another leader's is at that index, or the term is over.
    Fenced {
        /// Where it should have been.
        index: Index,
    },
    /// The batch is not in the log and this try will never put it there.
    NotAppended {
        /// Where it should have been.
        index: Index,
    },
    /// The batch may be in the log, or get there later, or never.
    Unknown {
        /// Where it may be.
        index: Index,
    },
}

/// What a Manager wants of the election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ElectionCommand {
    /// Try to become leader; answered by [`ElectionEvent::Won`] or [`ElectionEvent::LedBy`].
    Campaign {
        /// Names the campaign in its answer.
        request: u64,
    },
    /// Renew the leader lease; answered by [`ElectionEvent::Renewed`] or [`ElectionEvent::Lost`].
    Renew {
        /// Names the renewal in its answer.
        request: u64,
        /// The term to renew.
        term: Term,
    },
    /// Give the leader lease up; not answered.
    Resign {
        /// The term to give up.
        term: Term,
    },
}

/// What a Manager wants of the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StoreCommand {
    /// Read everything that is committed, in a way that no later commit of an earlier term can escape; answered by
    /// [`StoreEvent::Loaded`] or [`StoreEvent::LoadFailed`].
    Load {
        /// Names the load in its answer.
        request: u64,
    },
    /// Put a batch at an index, if the term still leads and the index is the next; answered by one of the other
    /// [`StoreEvent`]s. Repeating the same batch at the same index is harmless.
    Append {
        /// The term that must still lead.
        term: Term,
        /// Where.
        index: Index,
        /// What.
        batch: Arc<Batch>,
    },
    /// The log up to an index adds up to this and may be forgotten; not answered.
    Compact {
        /// How far.
        index: Index,
        /// What it adds up to.
        group: Arc<ManagerState>,
    },
}

/// What an operator can want.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum AdminCommand {
    /// A new namespace.
    Create {
        /// Its name.
        namespace: Namespace,
        /// What it is, for as long as it exists.
        #[cfg_attr(feature = "serde", serde(default))]
        kind: NamespaceKind,
        /// Its settings.
        settings: Arc<Settings>,
    },
    /// Other settings.
    Configure {
        /// Its name.
        namespace: Namespace,
        /// Its new settings.
        settings: Arc<Settings>,
        /// What they were made from: refused if something else is in force by now. `None` replaces whatever is.
        #[cfg_attr(feature = "serde", serde(default))]
        expected: Option<Arc<Settings>>,
        /// What the operator takes the namespace for: refused if it is something else. `None`: nothing was said of it.
        #[cfg_attr(feature = "serde", serde(default))]
        kind: Option<NamespaceKind>,
    },
    /// A namespace without owned ranges goes.
    Remove {
        /// Its name.
        namespace: Namespace,
    },
    /// No range moves until unfrozen.
    Freeze {
        /// Its name.
        namespace: Namespace,
        /// The operator's words.
        why: Arc<str>,
    },
    /// Ranges move again.
    Unfreeze {
        /// Its name.
        namespace: Namespace,
        /// The operator's words.
        why: Arc<str>,
    },
    /// A range belongs at an Owner (`None`: where the partitioner says).
    Move {
        /// Its name.
        namespace: Namespace,
        /// The keys.
        range: KeyRange,
        /// The Owner.
        to: Option<OwnerName>,
        /// The operator's words.
        why: Arc<str>,
    },
    /// An Owner is to be emptied, keeping its state.
    Drain {
        /// Its name.
        namespace: Namespace,
        /// The Owner.
        owner: OwnerName,
        /// The operator's words.
        why: Arc<str>,
    },
    /// An operator's drain of an Owner ends. What the Owner itself asks for stands.
    Undrain {
        /// Its name.
        namespace: Namespace,
        /// The Owner.
        owner: OwnerName,
        /// The operator's words.
        why: Arc<str>,
    },
    /// Every quarantine that has one of these keys ends.
    Unquarantine {
        /// Its name.
        namespace: Namespace,
        /// The keys.
        range: KeyRange,
        /// The operator's words.
        why: Arc<str>,
    },
    /// An Owner is to give everything back at once and go.
    Evict {
        /// Its name.
        namespace: Namespace,
        /// The Owner.
        owner: OwnerName,
        /// The operator's words.
        why: Arc<str>,
    },
}

/// Why an operator's wish is refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AdminError {
    /// This Manager does not lead; ask there.
    NotLeader(Option<ManagerId>),
    /// The leader stopped leading before the outcome was known: look, and ask again if need be.
    Unknown,
    /// There is a namespace of that name.
    NamespaceExists,
    /// There is a namespace of that name, of another kind than the one that was to be created.
    ExistsAsAnotherKind {
        /// What it is.
        kind: NamespaceKind,
    },
    /// What a namespace is cannot be changed.
    KindIsFixed {
        /// What it is.
        kind: NamespaceKind,
    },
    /// There are as many namespaces as there may be.
    TooManyNamespaces {
        /// The most that there may be.
        at_most: usize,
    },
    /// There is no namespace of that name.
    NoSuchNamespace,
    /// Owners hold ranges of it: drain or evict them first.
    NamespaceInUse,
    /// There is no Owner of that name.
    NoSuchOwner,
    /// No operator drains the Owner: it asked for that itself, and only it can change its mind.
    DrainsItself,
    /// None of these keys is in quarantine.
    NotQuarantined,
    /// The settings are refused.
    Settings(SettingsError),
    /// The settings are not those that the change was made from: read them again, and decide anew.
    SettingsChanged,
    /// The Managers have no store: namespaces and their settings come from every Manager's configuration.
    Diskless,
}

/// What a Manager wants done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ManagerAction {
    /// Send to an Owner.
    ToOwner {
        /// The way there.
        to: StreamId,
        /// The message.
        message: ManagerToOwner,
    },
    /// Send to a Lookup.
    ToLookup {
        /// The way there.
        to: StreamId,
        /// The message.
        message: ManagerToLookup,
    },
    /// Ask the election.
    Election(ElectionCommand),
    /// Ask the store.
    Store(StoreCommand),
    /// A batch that the store was given is durable and in force.
    Committed {
        /// Where it is.
        index: Index,
        /// What it says.
        batch: Arc<Batch>,
    },
    /// Answer an operator.
    AdminReply {
        /// The request.
        request: u64,
        /// Done, or why not.
        result: Result<(), AdminError>,
    },
    /// The Manager leads or does not lead any more.
    RoleChanged(RoleName),
    /// Something was not done, and why.
    Skip(Skip),
    /// Trim decided to move something, or leaves load where it is for other reasons than before.
    Trimmed(Box<TrimNews>),
}

/// A decision of Trim, for the log and for counts. Its moves begin as far as brakes allow, and are then in the history one by one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TrimNews {
    /// Where.
    pub namespace: Namespace,
    /// What is to move, by why.
    pub moves: BTreeMap<TrimReason, TrimTally>,
    /// How many pairs of neighbours may be joined.
    pub merges: usize,
    /// Why other load stays where it is, each reason once.
    pub skipped: Vec<&'static str>,
    /// The state before and after.
    pub summary: TrimSummary,
}

/// The moves of one reason together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TrimTally {
    /// How many ranges.
    pub ranges: u64,
    /// Their predicted load, in requests per 1,000 s.
    pub load: u64,
    /// Their part of the key space, in parts per billion.
    pub key_share_ppb: u64,
}

/// What a Manager is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RoleName {
    /// It waits for the leader lease.
    Standby,
    /// It has the leader lease and reads what is stored.
    Loading,
    /// It leads.
    Leader {
        /// The term.
        term: Term,
    },
}

/// Something that was not done, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Skip {
    /// A message changed nothing.
    Message {
        /// The session it was of.
        session: SessionId,
        /// Why.
        why: MessageSkip,
    },
    /// Unowned ranges wait for more Owners or for the settle time.
    Settling {
        /// Where.
        namespace: Namespace,
    },
    /// An Owner is not emptied: nobody else can take its ranges.
    DrainWaits {
        /// Where.
        namespace: Namespace,
        /// The Owner.
        owner: OwnerName,
    },
    /// Moves wait: an operator froze the namespace.
    Frozen {
        /// Where.
        namespace: Namespace,
    },
    /// Moves wait: as many ranges move as may.
    MovesFull {
        /// Where.
        namespace: Namespace,
    },
    /// The load policy left an Owner as it is.
    Load {
        /// Where.
        namespace: Namespace,
        /// The Owner.
        owner: OwnerName,
        /// Why.
        why: LoadSkip,
    },
    /// Trim left load where it is.
    Trim {
        /// Where.
        namespace: Namespace,
        /// Why.
        why: TrimSkip,
    },
    /// A session claims a lease that it cannot have.
    Claim {
        /// Where.
        namespace: Namespace,
        /// The session.
        session: SessionId,
        /// The keys.
        range: KeyRange,
        /// The lease.
        generation: Generation,
        /// Why.
        why: ClaimSkip,
    },
    /// A range is suspected of killing its Owners, and so many others die that no range is to blame.
    ManyDeaths {
        /// Where.
        namespace: Namespace,
    },
    /// A range kills its Owners, and as many keys are in quarantine as may be.
    QuarantineFull {
        /// Where.
        namespace: Namespace,
    },
    /// No generation is left: nothing can be granted.
    GenerationsUsedUp {
        /// Where.
        namespace: Namespace,
    },
}

/// Why a claim is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClaimSkip {
    /// It shows no warrant, or not for these keys, or one that no Manager made.
    NoWarrant,
    /// No earlier leader can have granted a lease of that number.
    Impossible,
    /// Another session claimed the keys under a higher number.
    Outbid,
    /// This leader has granted the keys, or set them free, since.
    Decided,
}

/// Why a message changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MessageSkip {
    /// It crossed a message of ours on the way.
    Race,
    /// Its number is not new.
    Duplicate,
    /// It belongs to another conversation.
    ForeignNonce,
    /// Its ranges overlap or are out of order.
    OverlappingRanges,
    /// It claims a lease that its session was not granted; the rest of it counts.
    NotGranted,
    /// It releases a lease that its session does not have; the rest of it counts.
    NotItsLease,
    /// It acknowledges what was never sent.
    FromTheFuture,
    /// There is no such namespace.
    UnknownNamespace,
    /// Its sender is built for another kind of namespace.
    WrongKind,
    /// A counter is at its end: the conversation starts anew.
    CounterAtEnd,
    /// Its term is not ours.
    StaleTerm,
}
