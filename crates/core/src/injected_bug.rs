//! Injected bugs: deliberate breaks of the protocol, each of which the simulator must find.
//!
//! A rule asks `injected(Bug::…)` in the one line that the bug breaks. Without the feature `injected-bugs` the answer is
//! constantly no, and nothing of this is in the program. Machines do not carry the bug with them: whoever drives them says in
//! which thread or process it is injected.

#[cfg(feature = "injected-bugs")]
use std::cell::Cell;
#[cfg(feature = "injected-bugs")]
use std::marker::PhantomData;
#[cfg(feature = "injected-bugs")]
use std::sync::OnceLock;

#[cfg(feature = "injected-bugs")]
thread_local! {
    static IN_THREAD: Cell<Option<Bug>> = const { Cell::new(None) };
}

#[cfg(feature = "injected-bugs")]
static IN_PROCESS: OnceLock<Bug> = OnceLock::new();

/// Whether bugs can be injected into this program at all.
pub const COMPILED_IN: bool = cfg!(feature = "injected-bugs");

/// Whether a bug is injected here; constantly false without the feature.
#[inline]
#[must_use]
pub fn injected(bug: Bug) -> bool {
    #[cfg(feature = "injected-bugs")]
    return current() == Some(bug);
    #[cfg(not(feature = "injected-bugs"))]
    {
        let _ = bug;
        false
    }
}

/// Whether any bug is injected here; constantly false without the feature.
#[inline]
#[must_use]
pub fn any_injected() -> bool {
    #[cfg(feature = "injected-bugs")]
    return current().is_some();
    #[cfg(not(feature = "injected-bugs"))]
    false
}

#[cfg(feature = "injected-bugs")]
fn current() -> Option<Bug> {
    IN_THREAD.get().or_else(|| IN_PROCESS.get().copied())
}

/// A bug, or none, in every machine that this thread drives until this is dropped.
#[cfg(feature = "injected-bugs")]
#[must_use = "the bug goes with it"]
#[derive(Debug)]
pub struct Injection {
    before: Option<Bug>,
    /// Another thread has its own.
    here: PhantomData<*const ()>,
}

/// Injects a bug, or none, into the machines that this thread drives.
#[cfg(feature = "injected-bugs")]
pub fn inject(bug: Option<Bug>) -> Injection {
    Injection { before: IN_THREAD.replace(bug), here: PhantomData }
}

#[cfg(feature = "injected-bugs")]
impl Drop for Injection {
    fn drop(&mut self) {
        IN_THREAD.set(self.before);
    }
}

/// Injects a bug into every machine of this process, for as long as it lives; false if one is injected already.
#[cfg(feature = "injected-bugs")]
#[must_use]
pub fn inject_into_process(bug: Bug) -> bool {
    IN_PROCESS.set(bug).is_ok()
}

macro_rules! bugs {
    ($($(#[doc = $text:literal])+ $name:ident = $label:literal breaks $invariant:literal,)+) => {
        /// One deliberate break of the protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Bug {
            $($(#[doc = $text])+ $name,)+
        }

        impl Bug {
            /// Every bug there is.
            pub const ALL: &'static [Bug] = &[$(Bug::$name,)+];

            /// The name by which commands know it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Bug::$name => $label,)+ }
            }

            /// The invariant it breaks.
            #[must_use]
            pub fn invariant(self) -> &'static str {
                match self { $(Bug::$name => $invariant,)+ }
            }

            /// What it does.
            #[must_use]
            pub fn describe(self) -> &'static str {
                match self { $(Bug::$name => concat!($($text,)+).trim_ascii(),)+ }
            }
        }
    };
}

bugs! {
    /// The Owner counts its lease from the receipt of the answer.
    ExpiryFromReceipt = "expiry-from-receipt" breaks "S1",
    /// The Owner trusts a timer callback to end its leases, and the callback can be late.
    ExpiryByTimer = "expiry-by-timer" breaks "S1",
    /// Clients that make keys in the other way are not told apart from those that the namespace is for.
    AcceptsOtherKeys = "accepts-other-keys" breaks "S1",
    /// The Manager acts on a report that crossed its own message, and takes what the report could not yet list as gone.
    RacingReportAccepted = "racing-report-accepted" breaks "S1",
    /// The Owner acts on a message that crossed its own report on the way.
    RacingAssignAccepted = "racing-assign-accepted" breaks "S1",
    /// A release names keys but no lease, so the Owner repeats it and the Manager takes it for any lease on them.
    ReleaseWithoutGeneration = "release-without-generation" breaks "S1",
    /// The table names Owners, not processes, and a restarted one accepts renewals of its earlier life's leases.
    RestartAcceptsRenewal = "restart-accepts-renewal" breaks "S3",
    /// A new leader counts holds from its election without waiting for the old leader's lease.
    LeaderDoesNotWait = "leader-does-not-wait" breaks "S1",
    /// A new leader takes no stored lease as running.
    LeaderForgetsHolds = "leader-forgets-holds" breaks "S1",
    /// A leader goes on renewing after its leader lease ran out.
    DeposedLeaderRenews = "deposed-leader-renews" breaks "S1",
    /// The Manager answers before the commit is confirmed.
    AnswerBeforeCommit = "answer-before-commit" breaks "S6",
    /// A commit with unknown outcome is taken as failed; where its index turns out to be taken, the next is used.
    UnknownTakenAsFailed = "unknown-taken-as-failed" breaks "S6",
    /// After a commit with unknown outcome the leader goes on at the next index as if it had succeeded.
    UnknownThenNextIndex = "unknown-then-next-index" breaks "S6",
    /// A clean release keeps the state's age though its destination is gone, and whoever gets the range accepts that
    /// without having the copy.
    CleanThoughRestarted = "clean-though-restarted" breaks "S4",
    /// A lease that ended without a release keeps its state's age at the next grant.
    LossKeepsStateSince = "loss-keeps-state-since" breaks "S4",
    /// A migration that failed is released as if it were clean, and its destination accepts that without the copy.
    FailedTransferIsClean = "failed-transfer-is-clean" breaks "S4",
    /// The source serves on while the rest of its state is on its way.
    TransferWithoutFreeze = "transfer-without-freeze" breaks "S4",
    /// A Lookup that takes a snapshot raises no losses.
    SnapshotHidesLoss = "snapshot-hides-loss" breaks "S4",
    /// A Lookup compares the state's age with the table's entry, which an unowned entry has advanced, and not with
    /// what its application was told.
    UnownedAdvancesKnown = "unowned-advances-known" breaks "S4",
    /// A Lookup out of contact says nothing.
    SilentWhenOutOfContact = "silent-when-out-of-contact" breaks "S4",
    /// A Lookup counts contact from the arrival of any message.
    ContactFromArrival = "contact-from-arrival" breaks "S4",
    /// A Lookup applies changes that do not begin where it stands.
    ChangesWithGap = "changes-with-gap" breaks "S7",
    /// A Lookup that catches up on several changes at once raises no losses for them.
    CatchingUpHidesLoss = "catching-up-hides-loss" breaks "S7",
    /// A new leader numbers generations from what it has granted itself.
    GenerationReused = "generation-reused" breaks "S2",
    /// The Manager grants again under the number of a lease that was accepted before, and the Owner accepts it.
    AcceptedTwice = "accepted-twice" breaks "S3",
    /// The Manager's hold counts from its latest push.
    HoldFromPush = "hold-from-push" breaks "L1",
    /// The Manager pushes every change to everyone at once, however many pushes are unanswered.
    PushesWithoutLimit = "pushes-without-limit" breaks "L2",
    /// Races are answered at once and at the same pace by both sides.
    NoBackoff = "no-backoff" breaks "L2",
    /// A hello that takes over acts before its sender has shown that it is alive.
    HelloTakesOver = "hello-takes-over" breaks "S1",
    /// A hello clears the leases of the session that sends it.
    HelloClearsLeases = "hello-clears-leases" breaks "S1",
    /// A renewal makes an expired lease valid again.
    RenewalRevives = "renewal-revives" breaks "S3",
    /// A renewal gives back keys that the Owner had released.
    RenewalRestoresKeys = "renewal-restores-keys" breaks "S1",
    /// A recall gives the Owner a full lease, from its arrival, to finish.
    RecallRenews = "recall-renews" breaks "S1",
    /// The Owner forgets a clean release once the Manager has heard it.
    ReleaseForgottenOnceHeard = "release-forgotten-once-heard" breaks "S4",
    /// A standby takes over with its own, shorter, lease times.
    StandbyUsesOwnTimes = "standby-uses-own-times" breaks "S1",
    /// A shortened lease time shortens the holds of leases that run under the old one.
    ShortenedAtOnce = "shortened-at-once" breaks "S1",
    /// Owners and Lookups follow a leader of a lower term, and do not tell it of the higher.
    TermNotChecked = "term-not-checked" breaks "S5",
    /// The store's fence is not asked for: a commit names no term.
    UnfencedCommit = "unfenced-commit" breaks "S5",
    /// A second process of a name takes its leases at once.
    SecondProcessTakesLeases = "second-process-takes-leases" breaks "S1",
    /// A message of an earlier conversation is taken for one of this.
    NonceNotChecked = "nonce-not-checked" breaks "S1",
    /// A duplicate or straggler is processed, and what it grants is accepted again.
    SeqNotChecked = "seq-not-checked" breaks "S1",
    /// A session that joins one namespace is given a share of all.
    NamespaceIgnored = "namespace-ignored" breaks "S8",
    /// A lease is granted while its recall is still unanswered.
    GrantBeforeRelease = "grant-before-release" breaks "S1",
    /// The hold is as long as the lease.
    NoDriftAllowance = "no-drift-allowance" breaks "S1",
    /// Absence from any session's set releases a lease.
    AbsenceFromAnySession = "absence-from-any-session" breaks "S1",
    /// Unowned ranges are granted only when the set of Owners changes.
    UnownedNeverGranted = "unowned-never-granted" breaks "L1",
    /// A Lookup whose changes have a gap waits for the next push instead of asking.
    GapNeverRepaired = "gap-never-repaired" breaks "L1",
    /// Ranges that begin empty in one decision share a number that one of them may have carried before.
    SharedAgeTooLow = "shared-age-too-low" breaks "S4",
    /// Neighbours whose state is of unequal age become one lease, with the age of the first.
    MergesUnequalAges = "merges-unequal-ages" breaks "S4",
    /// Two leases that become one: a recalled one is listed under its old number alone, which its holder may have left.
    RecallOmitsMerge = "recall-omits-merge" breaks "S4",
    /// Two leases that become one: a transfer begun under the old number goes on, and its copy is of a lease that is gone.
    MergeKeepsTransfer = "merge-keeps-transfer" breaks "S4",
    /// Two leases that become one: while the switch is being committed the Manager does not list the lease at all.
    SwitchedLeaseOmitted = "switched-lease-omitted" breaks "S4",
    /// Two leases that become one: a copy that was moved under the new number is void as long as the table has the old one.
    CopyVoidUnderNewNumber = "copy-void-under-new-number" breaks "S4",
    /// Two leases that become one: a new leader does not go on with it, and lists the old numbers alone.
    LeaderForgetsMerges = "leader-forgets-merges" breaks "S4",
    /// Two leases that become one: an Owner that has taken the new number drops the lease when it hears of both again.
    RenumberedTakenForUnlisted = "renumbered-taken-for-unlisted" breaks "S4",
    /// Two leases that become one: the Owner takes the new number also for keys that it does not hold.
    MergeGrantsKeys = "merge-grants-keys" breaks "S3",
    /// Two leases that become one: an Owner denies that it held the keys before they had their new number.
    ContinuousByNumber = "continuous-by-number" breaks "S3",
    /// An Owner takes every number below that of its lease for one that it has held since.
    ContinuousSinceAnyNumber = "continuous-since-any-number" breaks "S3",
    /// Two leases that become one: a release under the new number does not count.
    ReleasedUnderOneNumber = "released-under-one-number" breaks "S4",
    /// A report whose decision is cut by a full batch counts as applied with its first piece.
    FirstBatchIsAll = "first-batch-is-all" breaks "S4",
    /// A committed grant that its session's reports do not list is taken for dropped once the conversation has changed.
    UnlistedTakenForDropped = "unlisted-taken-for-dropped" breaks "S4",
    /// An Owner refuses a message's grants because its lease time ran out on the way.
    LateMessageRefuses = "late-message-refuses" breaks "S4",
    /// A grant that its session neither lists nor refuses stays on offer for as long as the session is heard.
    OfferNeverEnds = "offer-never-ends" breaks "L1",
    /// A process whose clock jumped, or that was restored, goes on as the session that it was, with the copies it had.
    JumpKeepsSession = "jump-keeps-session" breaks "S3",
    /// An Owner takes itself for drained as soon as it is told of no lease, whatever is on its way to it.
    DrainedTooEarly = "drained-too-early" breaks "S4",
    /// A straggling copy takes the place of a later one.
    StaleCopyNoted = "stale-copy-noted" breaks "S4",
    /// A recall towards a process that is gone stands until it times out.
    StaleRecallStands = "stale-recall-stands" breaks "S4",
    /// A lease that is no longer renewed hides every other lease on its keys.
    WithdrawnForAnyLease = "withdrawn-for-any-lease" breaks "L1",
    /// A new leader lets a process back in that an operator had evicted.
    EvictionForgotten = "eviction-forgotten" breaks "S6",
    /// Without a store: a leader takes what Owners told an earlier leader for claims.
    ClaimFromBeforeTerm = "claim-from-before-term" breaks "S1",
    /// Without a store: a leader frees what a session says it released, though it did not claim it.
    UnclaimedReleaseHonoured = "unclaimed-release-honoured" breaks "S1",
    /// Without a store: a leader grants what nobody has claimed so far as soon as it leads.
    UnclaimedGrantedEarly = "unclaimed-granted-early" breaks "S1",
    /// Without a store: a leader keeps the number of a claimed lease, but not its state's age.
    ClaimForgetsStateSince = "claim-forgets-state-since" breaks "S4",
    /// Without a store: a leader numbers from its own clock at the start of its term, not from the ballot that elected it.
    GenerationFromOwnClock = "generation-from-own-clock" breaks "S2",
    /// Without a store: every leader's change log has the same identity, so that a position of an earlier one is accepted.
    EarlierLogAccepted = "earlier-log-accepted" breaks "S4",
    /// Without a store: a Lookup keeps its table for as long as one leader after the other tells it to.
    UnchangedExcusesForEver = "unchanged-excuses-for-ever" breaks "S4",
    /// Without a store: a Manager that campaigns again while it holds the cell wins under the term that it has led already.
    TermAnnouncedTwice = "term-announced-twice" breaks "S2",
    /// Without a store: a term is announced while its unit lasts, and the next leader can have the same.
    TermAnnouncedEarly = "term-announced-early" breaks "S5",
    /// Without a store: a renewal of the leader lease is answered by a round that began before it was asked.
    RenewalByOldRound = "renewal-by-old-round" breaks "S5",
    /// Without a store: a new leader learns nothing of state that is between two Owners.
    MoveForgotten = "move-forgotten" breaks "S4",
    /// Without a store: a source need not repeat that it moved state once that is applied, whoever has heard of the grant.
    MoveSettledUnlisted = "move-settled-unlisted" breaks "S4",
    /// Without a store: a source is told that it is drained, and goes, while the next leader would have to hear of it.
    DrainedWithItsWord = "drained-with-its-word" breaks "S4",
    /// Without a store: a source repeats that it moved state though its contact lapsed meanwhile.
    MoveRepeatedAfterLapse = "move-repeated-after-lapse" breaks "S1",
    /// Without a store: a new leader takes a copy of state for the source's word that it moved it.
    CopyTakenForMove = "copy-taken-for-move" breaks "S4",
    /// Without a store: keys are granted while their source would tell the next leader that it moved them elsewhere.
    GrantedBeforeTakenBack = "granted-before-taken-back" breaks "S1",
    /// Two leases that become one: their state counts as begun anew with the new number.
    MergeRaisesLoss = "merge-raises-loss" breaks "S4",
    /// A part of a range is recalled, and what its holder keeps gets a new number, as if it began anew.
    SplitRenumbers = "split-renumbers" breaks "S4",
    /// Trim: what a decision spends is not taken from its budget.
    BudgetNotCharged = "budget-not-charged" breaks "B1",
    /// Trim: load moves keys that an operator wants elsewhere.
    TrimIgnoresPins = "trim-ignores-pins" breaks "B1",
    /// Trim: load moves keys of a namespace that an operator froze.
    TrimIgnoresFreeze = "trim-ignores-freeze" breaks "B1",
    /// Trim: an Owner that gives everything away gets what others have too much.
    TrimIgnoresDrain = "trim-ignores-drain" breaks "B1",
    /// Trim: an Owner that has nothing gets nothing of what others have.
    NewcomerNeverFed = "newcomer-never-fed" breaks "L4",
    /// Trim: an Owner gives what it has too much also to those who have no room, and gets it back.
    RoomNotChecked = "room-not-checked" breaks "L4",
    /// An Owner takes part in a namespace of the other mode: it is not refused, and does not notice.
    AcceptsOtherMode = "accepts-other-mode" breaks "S1",
    /// A leader hands the ranges of a silent Owner over at once in a namespace whose leases are exclusive.
    ExclusiveWithoutHold = "exclusive-without-hold" breaks "S1",
    /// An Owner in affinity mode has numbers for its leases that a receiver takes for fencing tokens.
    AffinityPassesFence = "affinity-passes-fence" breaks "S1",
    /// A range is put into quarantine while Owners die that never had it.
    QuarantinesInMassDeath = "quarantines-in-mass-death" breaks "L5",
    /// A suspected range is put into quarantine however many keys it has.
    QuarantinesTooMuch = "quarantines-too-much" breaks "L5",
    /// A range that is in quarantine is granted as any other that nobody has.
    QuarantinedGranted = "quarantined-granted" breaks "L5",
    /// The end of an Owner that drained or was evicted counts as a death.
    PlannedEndCounts = "planned-end-counts" breaks "L5",
    /// A suspected range is granted whole, however many Owners it kills.
    SuspectUncut = "suspect-uncut" breaks "L5",
    /// Lookups are told that nobody owns a range, and not that it is in quarantine.
    QuarantineUntold = "quarantine-untold" breaks "S6",
    /// Flease: ballots whose times are within a second are taken for equal, and the peer's number decides.
    FleaseBallotRanges = "flease-ballot-ranges" breaks "F1",
    /// Flease: a lease counts from its write, not from the start of its round, and rounds may take for ever.
    FleaseExpiryAtWrite = "flease-expiry-at-write" breaks "F1",
    /// Flease: a restarted peer waits for the length of a lease, and not for clocks that slew nor for old messages.
    FleaseShortRecovery = "flease-short-recovery" breaks "F1",
    /// Flease: a recovering peer starts rounds and counts its own vote.
    FleaseOwnVoteInRecovery = "flease-own-vote-in-recovery" breaks "F1",
    /// Flease: every acknowledgment counts, also one that arrives twice.
    FleaseAcksCountedTwice = "flease-acks-counted-twice" breaks "F1",
    /// Flease: a refusal counts as a reply and ends no round.
    FleaseNackSwallowed = "flease-nack-swallowed" breaks "F1",
    /// Flease: a lease is free for others as soon as it has ended by their own clocks.
    FleaseNoSafetyPeriod = "flease-no-safety-period" breaks "F1",
    /// Flease: a release empties the register, whoever's lease is in it.
    FleaseReleaseOfAnyLease = "flease-release-of-any-lease" breaks "F1",
    /// Flease: a lease that ran out is taken up again under its old epoch.
    FleaseEpochKept = "flease-epoch-kept" breaks "F2",
    /// Flease: a round that fails is the last.
    FleaseNeverRetries = "flease-never-retries" breaks "L3",
}
