//! What an operator can set, and the checks that refuse settings under which the guarantees would not hold.

use std::fmt;
use std::time::Duration;

use crate::load::LoadPolicyKind;
use crate::partition::PartitionerKind;

/// The settings of one namespace; part of its stored table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Settings {
    /// How long an Owner may rely on a lease, by its own clock, from the send of the report that was answered. Choose
    /// at least sixteen times the longest usual round trip: on a slower network messages that cross may cost leases.
    pub lease: Duration,
    /// How long the Manager keeps a lease from others, by its own clock, from the arrival of that report.
    pub hold: Duration,
    /// How often Owners report.
    pub renewal: Duration,
    /// How long an answer may take before a renewal counts as failed.
    pub answer_allowance: Duration,
    /// How long a migration may take before it becomes a plain recall.
    pub migration_timeout: Duration,
    /// How long a plain recall may take before the lease is no longer renewed.
    pub recall_timeout: Duration,
    /// With fewer Owners than this, unowned ranges wait for the settle time.
    pub min_owners: usize,
    /// How long unowned ranges wait while there are fewer Owners than `min_owners`.
    pub settle: Duration,
    /// How many ranges may be moving at once.
    pub max_moves: usize,
    /// How many Owners the namespace may have.
    pub max_owners: usize,
    /// The virtual nodes of an Owner that joins.
    pub virtual_nodes: u32,
    /// How keys are divided.
    pub partitioner: PartitionerKind,
    /// How load moves virtual nodes.
    pub load_policy: LoadPolicyKind,
    /// How often the load policy is asked.
    pub load_interval: Duration,
    /// How many virtual nodes may move in one round.
    pub max_load_changes: usize,
    /// How much Trim may move to balance load, in percent of what is usual. 0 balances no load at all.
    pub churn_budget: u32,
    /// How many ranges an Owner has on average at most, where Trim divides the keys.
    pub max_ranges_per_owner: u32,
    /// How much more than its share an Owner may have before Trim acts at once, in thousandths of its share.
    pub imbalance: u32,
    /// How long the change log reaches back.
    pub log_span: Duration,
    /// How often subscribed Lookups hear from the Manager when nothing changes and they have not asked. As often as they ask by themselves:
    /// more often would only tell them sooner that a push was lost, which a stream does not do in silence.
    pub heartbeat: Duration,
    /// An Owner that dies within this time of getting a range counts against the range. Zero counts nothing.
    #[cfg_attr(feature = "serde", serde(default))]
    pub death_window: Duration,
    /// How long a range is granted to nobody after Owners that got it died, one after the other.
    #[cfg_attr(feature = "serde", serde(default = "usual_quarantine"))]
    pub quarantine: Duration,
}

#[cfg(feature = "serde")]
fn usual_quarantine() -> Duration {
    Settings::default().quarantine
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            lease: Duration::from_secs(60),
            hold: Duration::from_secs(65),
            renewal: Duration::from_secs(15),
            answer_allowance: Duration::from_secs(10),
            migration_timeout: Duration::from_secs(60),
            recall_timeout: Duration::from_secs(10),
            min_owners: 1,
            settle: Duration::from_secs(10),
            max_moves: 256,
            max_owners: 4096,
            virtual_nodes: 64,
            partitioner: PartitionerKind::Trim,
            load_policy: LoadPolicyKind::TenPercent,
            load_interval: Duration::from_secs(60),
            max_load_changes: 4,
            churn_budget: 100,
            max_ranges_per_owner: 64,
            imbalance: 1_050,
            log_span: Duration::from_secs(300),
            heartbeat: Duration::from_secs(30),
            death_window: Duration::from_secs(30),
            quarantine: Duration::from_secs(3_600),
        }
    }
}

impl Settings {
    /// The most virtual nodes of an Owner that joins.
    pub const MOST_VIRTUAL_NODES: u32 = 4_096;
    /// The most ranges that may be moving at once.
    pub const MOST_MOVES: usize = 16_384;
    /// The most that Trim's budget can be raised to, in percent.
    pub const MOST_CHURN: u32 = 10_000;
    /// The most ranges that an Owner may have on average.
    pub const MOST_RANGES_PER_OWNER: u32 = 1_024;
    /// The imbalances at which Trim can be told to act, in thousandths of a share.
    pub const IMBALANCES: std::ops::RangeInclusive<u32> = 1_010..=4_000;
    /// The most Owners of a namespace.
    pub const MOST_OWNERS: usize = 16_384;
    /// The most virtual nodes of all Owners: each is an entry of the table, which every Manager and every Lookup keeps.
    pub const MOST_NODES: u64 = 1 << 20;

    /// How long an Owner may say nothing before it counts as silent, where nobody waits for its leases to end: two reports and the
    /// answer to the second are missing. Shorter than a lease, by the check of `renewal`.
    #[must_use]
    pub fn silence(&self) -> Duration {
        // What is stored was checked once, and is read whatever it says.
        self.renewal.saturating_mul(2).saturating_add(self.answer_allowance)
    }

    /// Refuses settings that would lose leases through a few lost messages, or let them overlap.
    pub fn check(&self, drift: Drift) -> Result<(), SettingsError> {
        self.check_but_for_hold()?;
        if !drift.covers(self.lease, self.hold) {
            return Err(SettingsError::HoldTooShort);
        }
        Ok(())
    }

    /// Refuses settings that would lose leases through a few lost messages, whether leases may overlap or not.
    pub(crate) fn check_but_for_hold(&self) -> Result<(), SettingsError> {
        if self.renewal * 3 + self.answer_allowance >= self.lease {
            return Err(SettingsError::RenewalTooRare);
        }
        if let Some(setting) = self.zero() {
            return Err(SettingsError::Zero(setting));
        }
        self.check_sizes()
    }

    /// Refuses sizes with which one decision would take long, or the table outgrow what a Manager can keep.
    fn check_sizes(&self) -> Result<(), SettingsError> {
        let sizes = [
            ("virtual_nodes", u64::from(self.virtual_nodes), u64::from(Self::MOST_VIRTUAL_NODES)),
            ("max_moves", self.max_moves as u64, Self::MOST_MOVES as u64),
            ("max_owners", self.max_owners as u64, Self::MOST_OWNERS as u64),
            ("churn_budget", self.churn_budget.into(), Self::MOST_CHURN.into()),
            ("max_ranges_per_owner", self.max_ranges_per_owner.into(), Self::MOST_RANGES_PER_OWNER.into()),
            ("imbalance", self.imbalance.into(), u64::from(*Self::IMBALANCES.end())),
        ];
        if let Some((setting, _, at_most)) = sizes.into_iter().find(|(_, value, at_most)| value > at_most) {
            return Err(SettingsError::TooLarge { setting, at_most });
        }
        if self.imbalance < *Self::IMBALANCES.start() {
            return Err(SettingsError::TooSmall {
                setting: "imbalance",
                at_least: *Self::IMBALANCES.start(),
            });
        }
        if u64::from(self.virtual_nodes) * self.max_owners as u64 > Self::MOST_NODES {
            return Err(SettingsError::TableTooLarge);
        }
        Ok(())
    }

    /// A setting that is zero and must not be.
    fn zero(&self) -> Option<&'static str> {
        let zeros = [
            ("renewal", self.renewal.is_zero()),
            ("heartbeat", self.heartbeat.is_zero()),
            ("quarantine", self.quarantine.is_zero()),
            ("load_interval", self.load_interval.is_zero()),
            ("max_moves", self.max_moves == 0),
            ("max_owners", self.max_owners == 0),
            ("virtual_nodes", self.virtual_nodes == 0),
            ("max_ranges_per_owner", self.max_ranges_per_owner == 0),
        ];
        zeros.into_iter().find_map(|(setting, is_zero)| is_zero.then_some(setting))
    }
}

/// The assumed bound on how much faster one clock may run than another: at most `hold` while the other runs `lease`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Drift {
    /// What the faster clock counts ...
    pub hold: u32,
    /// ... while the slower counts this.
    pub lease: u32,
}

impl Default for Drift {
    /// 65 to 60 (Centrifuge §2.3.1).
    fn default() -> Drift {
        Drift { hold: 65, lease: 60 }
    }
}

impl Drift {
    /// How long to wait by one's own clock so that any other clock has counted `lease`.
    #[must_use]
    pub fn hold_for(self, lease: Duration) -> Duration {
        let nanos = (lease.as_nanos() * u128::from(self.hold)).div_ceil(u128::from(self.lease));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How long a machine may be paused, unseen by its own clock, under a lease of this length (ADR 17).
    ///
    /// The bound is between two clocks, and either may use up half of it: the holder's by being slow, the waiter's by being fast. A
    /// pause makes the holder's clock slow, so it must fit into the holder's half: the lease and the pause end before a waiter
    /// whose clock is fast by the other half has counted the hold.
    #[must_use]
    pub fn pause_for(self, lease: Duration) -> Duration {
        let (hold, whole) = (u128::from(self.hold), u128::from(self.lease));
        let nanos = lease.as_nanos() * hold.saturating_sub(whole) / (hold + whole).max(1);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Whether `hold` outlasts `lease` under this bound.
    #[must_use]
    pub fn covers(self, lease: Duration, hold: Duration) -> bool {
        lease < hold && self.hold_for(lease) <= hold
    }
}

/// Why settings are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SettingsError {
    /// Three renewals and the answer allowance do not fit into a lease.
    RenewalTooRare,
    /// The hold does not outlast the lease under the drift bound.
    HoldTooShort,
    /// This setting is zero.
    Zero(&'static str),
    /// This setting is above its limit.
    TooLarge {
        /// The setting.
        setting: &'static str,
        /// Its limit.
        at_most: u64,
    },
    /// This setting is below its limit.
    TooSmall {
        /// The setting.
        setting: &'static str,
        /// Its limit.
        at_least: u32,
    },
    /// All Owners together would have too many virtual nodes.
    TableTooLarge,
    /// Ordered keys would be divided by a hash.
    OrderedByHash,
    /// A hold is set where nobody waits for one.
    HoldInAffinity,
    /// A Lookup's interval is zero.
    ZeroInterval,
    /// The contact timeout is not above leader lease, election and two polls.
    ContactTooShort,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SettingsError::Zero(setting) => return write!(f, "{setting} must not be zero"),
            SettingsError::TooLarge { setting, at_most } => {
                return write!(f, "{setting} must be at most {at_most}");
            }
            SettingsError::TooSmall { setting, at_least } => {
                return write!(f, "{setting} must be at least {at_least}");
            }
            SettingsError::TableTooLarge => {
                let at_most = Settings::MOST_NODES;
                return write!(f, "virtual_nodes x max_owners must be at most {at_most}: lower one of them");
            }
            SettingsError::RenewalTooRare => {
                "3 x renewal + answer_allowance must be less than lease: shorten renewal or lengthen lease"
            }
            SettingsError::HoldTooShort => {
                "hold must exceed lease by the drift bound (65/60 unless set): lengthen hold or shorten lease"
            }
            SettingsError::OrderedByHash => {
                "partitioner must not be consistent-hash with ordered keys: it gives each Owner a share of all numbers of 64 bits, and the \
                 keys of an application lie close together among them; use trim, which divides by load"
            }
            SettingsError::HoldInAffinity => {
                "hold must not be set in affinity mode, which has none: an Owner is silent after 2 x renewal + answer_allowance"
            }
            SettingsError::ZeroInterval => "poll and silence must not be zero",
            SettingsError::ContactTooShort => {
                "contact_timeout must exceed leader hold + election + two polls: lengthen it or poll more often"
            }
        })
    }
}

impl std::error::Error for SettingsError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a waiter's hold lasts if its clock is fast by half of the bound.
    fn shortest_hold(drift: Drift, lease: Duration) -> f64 {
        let fast = 1.0 + (f64::from(drift.hold) / f64::from(drift.lease) - 1.0) / 2.0;
        drift.hold_for(lease).as_secs_f64() / fast
    }

    #[test]
    fn sizes_that_a_manager_could_not_decide_about_in_time_are_refused_with_their_limit() {
        let refused = |settings: Settings| {
            let error = settings.check(Drift::default()).expect_err("it is too large");
            error.to_string()
        };
        let settings = Settings::default();
        assert_eq!(settings.check(Drift::default()), Ok(()));
        let many_nodes = Settings { virtual_nodes: 65_536, ..settings.clone() };
        assert_eq!(refused(many_nodes), "virtual_nodes must be at most 4096");
        let many_moves = Settings { max_moves: u32::MAX as usize, ..settings.clone() };
        assert_eq!(refused(many_moves), "max_moves must be at most 16384");
        let many_owners = Settings { max_owners: 20_000, virtual_nodes: 1, ..settings.clone() };
        assert_eq!(refused(many_owners), "max_owners must be at most 16384");
        let large_table = Settings { max_owners: 4_096, virtual_nodes: 512, ..settings };
        assert_eq!(
            refused(large_table),
            "virtual_nodes x max_owners must be at most 1048576: lower one of them"
        );
    }

    #[test]
    fn a_pause_that_is_allowed_ends_before_a_fast_waiter_has_counted_the_hold() {
        let drift = Drift::default();
        for lease in [2, 5, 10, 60, 600].map(Duration::from_secs) {
            let shortest = shortest_hold(drift, lease);
            let paused = |pause: Duration| (lease + pause).as_secs_f64();
            assert!(paused(drift.pause_for(lease)) <= shortest + 1e-6, "{lease:?}");
            assert!(paused(drift.pause_for(lease) + lease / 500) > shortest, "no more than that: {lease:?}");
            assert!(paused(drift.hold_for(lease) - lease) > shortest, "the whole is too much: {lease:?}");
        }
        assert_eq!(drift.pause_for(Duration::from_secs(60)), Duration::from_millis(2_400));
    }
}
