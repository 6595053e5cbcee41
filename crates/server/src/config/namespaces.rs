//! The namespaces of Managers without a store, which every term begins with.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use centrifuge_core::id::Namespace;
use centrifuge_core::label::UnknownLabel;
use centrifuge_core::load::LoadPolicyKind;
use centrifuge_core::manager::DeclaredNamespace;
use centrifuge_core::namespace_kind::{KeyKind, KeyPrefix, Keys, Mode, NamespaceKind};
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::settings::{Drift, Settings};
use centrifuge_net::convert::read_settings;
use centrifuge_net::proto::v1;
use serde::Deserialize;

use super::{ConfigError, read_duration};

/// The namespaces by name.
pub type Namespaces = BTreeMap<Namespace, DeclaredNamespace>;

/// Settings of a namespace in a file, under `[namespaces.NAME]`: the names and defaults of `centrifuge namespace create`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NamespaceArgs {
    /// How application keys become keys, for as long as the namespace exists: hashed or ordered.
    pub keys: Option<String>,
    /// What all application keys begin with, if they are ordered; with escapes, as `\xff`.
    pub key_prefix: Option<String>,
    /// What leases promise, for as long as the namespace exists: exclusive or affinity.
    pub mode: Option<String>,
    /// How long an Owner may rely on a lease after its last answered report.
    pub lease: Option<String>,
    /// How long the Manager keeps a silent Owner's leases from others.
    pub hold: Option<String>,
    /// How often Owners report.
    pub renewal: Option<String>,
    /// How long an answer may take.
    pub answer_allowance: Option<String>,
    /// How long a migration may take before it becomes a plain recall.
    pub migration_timeout: Option<String>,
    /// How long a plain recall may take before the lease is left to run out.
    pub recall_timeout: Option<String>,
    /// With fewer Owners than this, free ranges wait for the settle time.
    pub min_owners: Option<u32>,
    /// How long they wait.
    pub settle: Option<String>,
    /// How many ranges may move at once.
    pub max_moves: Option<u32>,
    /// How many Owners may join.
    pub max_owners: Option<u32>,
    /// The virtual nodes of an Owner that joins.
    pub virtual_nodes: Option<u32>,
    /// How keys are divided: consistent-hash, trim or fixed.
    pub partitioner: Option<String>,
    /// How load moves virtual nodes: ten-percent or off.
    pub load_policy: Option<String>,
    /// How often the load policy is asked.
    pub load_interval: Option<String>,
    /// How many virtual nodes may move in one round of the load policy.
    pub max_load_changes: Option<u32>,
    /// How much Trim may move to balance load, in percent of what is usual.
    pub churn_budget: Option<u32>,
    /// How many ranges an Owner has on average at most, where Trim divides the keys.
    pub max_ranges_per_owner: Option<u32>,
    /// The imbalance at which Trim acts at once, in thousandths of a share.
    pub imbalance: Option<u32>,
    /// How long the change log reaches back.
    pub log_span: Option<String>,
    /// How often Lookups hear from the Manager when nothing changes.
    pub heartbeat: Option<String>,
    /// An Owner that dies within this time of getting a range counts against the range; 0s counts nothing.
    pub death_window: Option<String>,
    /// How long a range is granted to nobody after Owners that got it died, one after the other.
    pub quarantine: Option<String>,
}

/// Checks the namespaces of a file, and adds those that flags name, with default settings.
pub(super) fn check(
    file: BTreeMap<String, NamespaceArgs>,
    flags: &[String],
) -> Result<Namespaces, ConfigError> {
    let mut all = file;
    for name in flags {
        all.entry(name.clone()).or_default();
    }
    let checked = |(name, args): (String, NamespaceArgs)| {
        let refused = |why: String| ConfigError::Namespace { namespace: name.clone(), why };
        let namespace = Namespace::new(&name).map_err(|why| refused(why.to_string()))?;
        Ok((namespace, args.declared().map_err(refused)?))
    };
    all.into_iter().map(checked).collect()
}

impl NamespaceArgs {
    fn declared(&self) -> Result<DeclaredNamespace, String> {
        let kind = self.kind()?;
        let settings =
            read_settings(&self.wire()?, &Settings::default()).map_err(|error| error.to_string())?;
        kind.check(&settings, Drift::default()).map_err(|error| error.to_string())?;
        Ok(DeclaredNamespace { kind, settings: Arc::new(settings) })
    }

    fn kind(&self) -> Result<NamespaceKind, String> {
        let keys = label::<KeyKind>("keys", &self.keys)?.unwrap_or_default();
        let prefix = self.key_prefix.as_deref().map(str::parse::<KeyPrefix>).transpose();
        let prefix = prefix.map_err(|error| format!("key_prefix: {error}"))?;
        let keys = match (keys, prefix) {
            (KeyKind::Ordered, prefix) => Keys::Ordered(prefix.unwrap_or_default()),
            (KeyKind::Hashed, None) => Keys::Hashed,
            (KeyKind::Hashed, Some(_)) => {
                return Err("key_prefix is for ordered keys alone: set keys = \"ordered\" too".to_owned());
            }
        };
        let mode = label::<Mode>("mode", &self.mode)?.unwrap_or_default();
        Ok(NamespaceKind { keys, mode })
    }

    /// What an operator would send to set the same.
    fn wire(&self) -> Result<v1::Settings, String> {
        Ok(v1::Settings {
            lease_ms: millis("lease", &self.lease)?,
            hold_ms: millis("hold", &self.hold)?,
            renewal_ms: millis("renewal", &self.renewal)?,
            answer_allowance_ms: millis("answer_allowance", &self.answer_allowance)?,
            migration_timeout_ms: millis("migration_timeout", &self.migration_timeout)?,
            recall_timeout_ms: millis("recall_timeout", &self.recall_timeout)?,
            min_owners: self.min_owners,
            settle_ms: millis("settle", &self.settle)?,
            max_moves: self.max_moves,
            max_owners: self.max_owners,
            virtual_nodes: self.virtual_nodes,
            partitioner: kind::<PartitionerKind, v1::Partitioner>("partitioner", &self.partitioner)?,
            load_policy: kind::<LoadPolicyKind, v1::LoadPolicy>("load_policy", &self.load_policy)?,
            load_interval_ms: millis("load_interval", &self.load_interval)?,
            max_load_changes: self.max_load_changes,
            churn_budget: self.churn_budget,
            max_ranges_per_owner: self.max_ranges_per_owner,
            imbalance: self.imbalance,
            log_span_ms: millis("log_span", &self.log_span)?,
            heartbeat_ms: millis("heartbeat", &self.heartbeat)?,
            death_window_ms: millis("death_window", &self.death_window)?,
            quarantine_ms: millis("quarantine", &self.quarantine)?,
        })
    }
}

fn millis(setting: &str, text: &Option<String>) -> Result<Option<u64>, String> {
    let Some(text) = text else { return Ok(None) };
    let length = read_duration(text)
        .ok_or_else(|| format!("{setting}: {text:?} is not a number with a unit, as 500ms, 10s, 2m or 1h"))?;
    Ok(Some(u64::try_from(length.as_millis()).unwrap_or(u64::MAX)))
}

/// A label of a kind, as the wire has the kind.
fn kind<K, W>(setting: &str, label: &Option<String>) -> Result<Option<i32>, String>
where
    K: FromStr<Err = UnknownLabel>,
    W: From<K> + Into<i32>,
{
    Ok(self::label::<K>(setting, label)?.map(|kind| W::from(kind).into()))
}

fn label<K: FromStr<Err = UnknownLabel>>(setting: &str, label: &Option<String>) -> Result<Option<K>, String> {
    label.as_deref().map(str::parse).transpose().map_err(|error| format!("{setting}: {error}"))
}
