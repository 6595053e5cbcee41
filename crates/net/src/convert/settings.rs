//! The settings of a namespace.

use std::time::Duration;

use centrifuge_core::load::LoadPolicyKind;
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::settings::Settings;

use super::error::{ConvertError, Converted, Problem, refuse};
use super::field::*;
use crate::limits;
use crate::proto::v1;

impl From<&Settings> for v1::Settings {
    fn from(settings: &Settings) -> v1::Settings {
        let millis = |length| Some(write_millis(length));
        let count = |count| Some(write_count(count));
        v1::Settings {
            lease_ms: millis(settings.lease),
            hold_ms: millis(settings.hold),
            renewal_ms: millis(settings.renewal),
            answer_allowance_ms: millis(settings.answer_allowance),
            migration_timeout_ms: millis(settings.migration_timeout),
            recall_timeout_ms: millis(settings.recall_timeout),
            min_owners: count(settings.min_owners),
            settle_ms: millis(settings.settle),
            max_moves: count(settings.max_moves),
            max_owners: count(settings.max_owners),
            virtual_nodes: Some(settings.virtual_nodes),
            partitioner: Some(v1::Partitioner::from(settings.partitioner).into()),
            load_policy: Some(v1::LoadPolicy::from(settings.load_policy).into()),
            load_interval_ms: millis(settings.load_interval),
            max_load_changes: count(settings.max_load_changes),
            log_span_ms: millis(settings.log_span),
            heartbeat_ms: millis(settings.heartbeat),
            churn_budget: Some(settings.churn_budget),
            max_ranges_per_owner: Some(settings.max_ranges_per_owner),
            imbalance: Some(settings.imbalance),
            death_window_ms: millis(settings.death_window),
            quarantine_ms: millis(settings.quarantine),
        }
    }
}

/// The settings that `base` becomes by what is set on the wire. Whether they go together is for the Manager to say.
pub fn read_settings(wire: &v1::Settings, base: &Settings) -> Result<Settings, ConvertError> {
    let count = |wire: Option<u32>, base: usize| wire.map_or(base, |count| count as usize);
    let millis = |field, wire, base| read_millis(field, Duration::ZERO, wire, base);
    Ok(Settings {
        lease: read_millis("lease_ms", limits::SHORTEST_LEASE, wire.lease_ms, base.lease)?,
        hold: read_millis("hold_ms", limits::SHORTEST_LEASE, wire.hold_ms, base.hold)?,
        renewal: read_millis("renewal_ms", limits::SHORTEST_RENEWAL, wire.renewal_ms, base.renewal)?,
        answer_allowance: millis("answer_allowance_ms", wire.answer_allowance_ms, base.answer_allowance)?,
        migration_timeout: millis("migration_timeout_ms", wire.migration_timeout_ms, base.migration_timeout)?,
        recall_timeout: millis("recall_timeout_ms", wire.recall_timeout_ms, base.recall_timeout)?,
        min_owners: count(wire.min_owners, base.min_owners),
        settle: millis("settle_ms", wire.settle_ms, base.settle)?,
        max_moves: count(wire.max_moves, base.max_moves),
        max_owners: count(wire.max_owners, base.max_owners),
        virtual_nodes: read_virtual_nodes(wire.virtual_nodes, base.virtual_nodes)?,
        partitioner: wire.partitioner.map_or(Ok(base.partitioner), read_partitioner)?,
        load_policy: wire.load_policy.map_or(Ok(base.load_policy), read_load_policy)?,
        load_interval: millis("load_interval_ms", wire.load_interval_ms, base.load_interval)?,
        max_load_changes: count(wire.max_load_changes, base.max_load_changes),
        log_span: millis("log_span_ms", wire.log_span_ms, base.log_span)?,
        heartbeat: millis("heartbeat_ms", wire.heartbeat_ms, base.heartbeat)?,
        churn_budget: wire.churn_budget.unwrap_or(base.churn_budget),
        max_ranges_per_owner: wire.max_ranges_per_owner.unwrap_or(base.max_ranges_per_owner),
        imbalance: wire.imbalance.unwrap_or(base.imbalance),
        death_window: millis("death_window_ms", wire.death_window_ms, base.death_window)?,
        quarantine: millis("quarantine_ms", wire.quarantine_ms, base.quarantine)?,
    })
}

/// A time within bounds. The machine itself takes any, as simulations do.
fn read_millis(field: &str, shortest: Duration, wire: Option<u64>, base: Duration) -> Converted<Duration> {
    let (at_least, at_most) = (write_millis(shortest), write_millis(limits::LONGEST_SETTING));
    match wire {
        None => Ok(base),
        Some(value) if value < at_least => refuse(field, Problem::TooLow { value, at_least }),
        Some(value) if value > at_most => refuse(field, Problem::TooHigh { value, at_most }),
        Some(value) => Ok(Duration::from_millis(value)),
    }
}

fn read_virtual_nodes(wire: Option<u32>, base: u32) -> Converted<u32> {
    match wire.unwrap_or(base) {
        value if value > limits::VIRTUAL_NODES => {
            let at_most = limits::VIRTUAL_NODES.into();
            refuse("virtual_nodes", Problem::TooHigh { value: value.into(), at_most })
        }
        value => Ok(value),
    }
}

enumeration!(PartitionerKind, Partitioner, "partitioner", read_partitioner { ConsistentHash, Fixed, Trim });
enumeration!(LoadPolicyKind, LoadPolicy, "load_policy", read_load_policy { TenPercent, Off });
