//! The faults there are, and how often each happened.

use std::collections::BTreeMap;

macro_rules! faults {
    ($($(#[doc = $text:literal])+ $name:ident = $label:literal,)+) => {
        /// A fault of the world, or a disturbance by its operators.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Fault {
            $($(#[doc = $text])+ $name,)+
        }

        const LABELS: &[&str] = &[$($label,)+];
    };
}

faults! {
    /// An Owner's process dies.
    CrashOwner = "crash_owner",
    /// A Manager's process dies.
    CrashManager = "crash_manager",
    /// A Lookup's process dies.
    CrashLookup = "crash_lookup",
    /// A dead node starts a process.
    Restart = "restart",
    /// An Owner's process stands still while its clock runs.
    PauseOwner = "pause_owner",
    /// A Manager's process stands still while its clock runs.
    PauseManager = "pause_manager",
    /// A Lookup's process stands still while its clock runs.
    PauseLookup = "pause_lookup",
    /// An Owner's machine stands still, and its clock with it.
    SuspendOwner = "suspend_owner",
    /// A Lookup's machine stands still, and its clock with it.
    SuspendLookup = "suspend_lookup",
    /// A Manager's machine stands still, and its clock with it.
    SuspendManager = "suspend_manager",
    /// Nothing gets from one node to another, but the other way.
    CutOneWay = "cut_one_way",
    /// Nothing gets between two nodes.
    CutBothWays = "cut_both_ways",
    /// Nothing gets to or from a group of nodes.
    Isolate = "isolate",
    /// Nothing gets between an Owner and any Manager.
    OwnerCutOff = "owner_cut_off",
    /// Nothing gets to the store from a Manager, or back, or both.
    CutStore = "cut_store",
    /// The leader loses its lease early, and is cut off with some of its clients from everybody else.
    Split = "split_brain",
    /// The store refuses everything for a while.
    StoreDown = "store_down",
    /// The store takes seconds.
    StoreSlow = "store_slow",
    /// The outcome of commits is unknown for a while.
    StoreUnknown = "store_unknown",
    /// The store ends the leader's lease before its time.
    LeaseRevoked = "lease_revoked",
    /// The Owners of a namespace are restarted one after the other.
    RollingOwners = "rolling_restart_owners",
    /// The Managers are restarted one after the other.
    RollingManagers = "rolling_restart_managers",
    /// The Owners of a namespace are drained and replaced one after the other.
    PlannedOwners = "planned_restart_owners",
    /// The Managers are restarted one after the other, the leader once it has resigned.
    PlannedManagers = "planned_restart_managers",
    /// A share of a namespace's Owners dies at once and comes back minutes later.
    Rack = "rack",
    /// One of its Owners died.
    RackedOwner = "rack_owner_lost",
    /// Several Owners join at once.
    JoinStorm = "join_storm",
    /// Several Owners leave at once.
    LeaveStorm = "leave_storm",
    /// A second process of an Owner's name starts while the first lives.
    SecondProcess = "second_process",
    /// An Owner is emptied and leaves.
    DrainAndLeave = "drain_and_leave",
    /// A node is struck at a delicate moment.
    Ambush = "ambush",
    /// The leader resigns.
    Resign = "resign",
    /// Packets are lost or slow for a while.
    Storm = "network_storm",
    /// A process takes its stream to a Manager for broken, rightly or not.
    Disconnect = "disconnect",
    /// A process is told of another list of Managers.
    ManagersChanged = "managers_changed",
    /// An operator changes settings.
    Configure = "operator_configure",
    /// An operator stops a namespace's Owners, removes it and creates it anew.
    Remove = "operator_remove",
    /// An operator freezes a namespace.
    Freeze = "operator_freeze",
    /// An operator moves a range.
    Move = "operator_move",
    /// An operator moves a range to and fro.
    Dither = "operator_dithers",
    /// An operator evicts an Owner.
    Evict = "operator_evict",
    /// An operator drains an Owner.
    Drain = "operator_drain",
    /// An Owner's weight changes.
    Weight = "weight_changed",
    /// A packet was lost.
    Lost = "message_lost",
    /// A packet met a cut.
    CutOff = "message_cut_off",
    /// A packet was duplicated.
    Duplicated = "message_duplicated",
    /// A packet that had arrived long before arrived again.
    Replay = "message_replayed",
    /// A packet overtook another.
    Reordered = "message_reordered",
    /// A packet arrived with the name of another namespace.
    Misaddressed = "message_misaddressed",
    /// A Manager took a Lookup's way back for gone, rightly or not.
    WatchEnded = "watch_ended",
    /// A timer fired late.
    LateWake = "wake_late",
    /// A machine was woken though it did not ask for it yet.
    EarlyWake = "wake_early",
    /// An application never answered its library.
    Hang = "application_hangs",
    /// The leader dies, and in the same moment an Owner dies or is cut off.
    LeaderAndOwner = "leader_and_owner",
    /// The leader dies, and the next one while it learns the table.
    LeaderTwice = "leader_twice",
    /// A move's destination is cut off until it counts as gone, and the leader dies about then.
    MoveStranded = "move_stranded",
    /// An Owner dies and a Lookup is cut off; the leader dies about when the loss is published.
    LossUnseen = "loss_unseen",
    /// The leader dies where nothing else fails, which must cost no lease.
    LeaderDies = "leader_dies_alone",
    /// An operator ends quarantines.
    Release = "operator_release",
    /// An Owner died of a key.
    KeyOfDeath = "killed_by_key",
    /// A range was put into quarantine.
    Quarantined = "quarantined",
    /// Nothing gets between two Managers, one way or both.
    CutPeers = "cut_managers",
    /// A synchronised clock turned.
    ClockTurned = "clock_turns",
    /// A leader without a store began its term.
    Term = "terms",
    /// A lease went on under a new leader.
    Claim = "claims",
    /// A claim was refused.
    ClaimRefused = "claims_refused",
    /// State that was between two Owners went on under a new leader.
    MoveLearned = "moves_learned",
    /// A table was learned because every key was claimed.
    RebuiltByClaims = "rebuilds_ended_by_claims",
    /// A table was learned because a full hold had passed.
    RebuiltByHold = "rebuilds_ended_by_hold",
    /// A Lookup was told to keep its table.
    Unchanged = "unchanged_answers",
}

/// How often each fault happened.
#[derive(Clone, Debug)]
pub(crate) struct Tally([u64; LABELS.len()]);

impl Default for Tally {
    fn default() -> Tally {
        Tally([0; LABELS.len()])
    }
}

impl Tally {
    pub(crate) fn count(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    /// The faults that happened, by name.
    pub(crate) fn by_name(&self) -> BTreeMap<&'static str, u64> {
        LABELS.iter().copied().zip(self.0).filter(|(_, count)| *count > 0).collect()
    }
}
