//! What operators see: Managers, namespaces, Owners, leases, decisions.

use std::time::Duration;

use centrifuge_core::id::{Generation, Index, LoadDimension, Namespace, OwnerName, SessionId};
use centrifuge_core::key::KeyRange;
use centrifuge_core::manager::{NamespaceOverview, RebuildOverview, RoleName};
use centrifuge_core::manager_state::{NamespaceState, Quarantine};
use centrifuge_core::record::{Batch, Change, DeathEvidence, Reason, Record, SessionInfo};
use centrifuge_core::table::Entry;
use centrifuge_core::time::Instant;

use super::field::*;
use super::trim::write_trim_status;
use crate::proto::v1;

impl From<RoleName> for v1::Role {
    fn from(role: RoleName) -> v1::Role {
        match role {
            RoleName::Standby => v1::Role::Standby,
            RoleName::Loading => v1::Role::Loading,
            RoleName::Leader { .. } => v1::Role::Leader,
        }
    }
}

/// A namespace as operators see it, with what its leader knows besides what is stored, as of an instant.
#[must_use]
pub fn write_namespace_status(
    name: &Namespace,
    stored: &NamespaceState,
    overview: Option<&NamespaceOverview>,
    now: Instant,
) -> v1::NamespaceStatus {
    let ranges = |counts: fn(&Entry) -> bool| {
        write_count(stored.table.iter().filter(|(_, entry)| counts(entry)).count())
    };
    let pin = |(range, owner): (KeyRange, &OwnerName)| v1::Pin {
        range: Some(range.into()),
        owner: owner.to_string(),
    };
    v1::NamespaceStatus {
        name: name.to_string(),
        settings: Some(v1::Settings::from(&*stored.settings)),
        frozen: stored.frozen,
        owners: write_count(stored.sessions.len()),
        ranges: write_count(stored.table.len()),
        unowned_ranges: ranges(Entry::is_free),
        moving_ranges: ranges(|entry| entry.recall.is_some()),
        last_generation: stored.last_generation.0,
        lsn: stored.lsn.0,
        pins: stored.pins.iter().map(pin).collect(),
        kind: Some(v1::NamespaceKind::from(&stored.kind)),
        rebuilding: overview
            .and_then(|overview| overview.rebuilding.as_ref())
            .map(|rebuild| write_rebuilding(rebuild, now)),
        trim: overview
            .and_then(|overview| overview.trim.as_deref())
            .map(|trim| write_trim_status(trim, stored, now)),
        quarantined_ranges: write_count(stored.quarantines.len()),
    }
}

/// A quarantine as operators see it: what is stored of it, since when the leader knows of it, and how long it lasts.
#[must_use]
pub fn write_quarantine(
    quarantine: &Quarantine,
    known_for: Option<Duration>,
    lasts: Duration,
) -> v1::Quarantine {
    let range = quarantine.range;
    v1::Quarantine {
        range: Some(range.into()),
        key_share: range.key_count() as f64 / KeyRange::ALL.key_count() as f64,
        known_for_ms: known_for.map(write_millis),
        ends_in_ms: known_for.map(|known| write_millis(lasts.saturating_sub(known))),
        deaths: write_deaths(&quarantine.evidence),
    }
}

fn write_deaths(evidence: &[DeathEvidence]) -> Vec<v1::Death> {
    let death = |death: &DeathEvidence| v1::Death {
        owner: death.name.to_string(),
        session: write_session(death.session),
        generation: death.generation.0,
        held_ms: write_millis(death.held),
        ago_ms: write_millis(death.ago),
    };
    evidence.iter().map(death).collect()
}

fn write_rebuilding(rebuild: &RebuildOverview, now: Instant) -> v1::Rebuilding {
    v1::Rebuilding {
        unclaimed_share: rebuild.unclaimed_keys as f64 / KeyRange::ALL.key_count() as f64,
        ends_in_ms: write_millis(rebuild.ends_at.since(now)),
    }
}

/// An Owner as operators see it, when the leader last heard from it, and the load it reported in which dimension.
#[must_use]
pub fn write_owner_status(
    session: SessionId,
    info: &SessionInfo,
    stored: &NamespaceState,
    heard_ago: Option<Duration>,
    (load, load_dimension): (u64, &LoadDimension),
) -> v1::OwnerStatus {
    let ranges = || stored.table.of_session(session).map(|(range, _)| range);
    let keys: u128 = ranges().map(KeyRange::key_count).sum();
    v1::OwnerStatus {
        session: write_session(session),
        name: info.name.to_string(),
        url: info.url.to_string(),
        weight: info.weight,
        virtual_nodes: info.virtual_nodes,
        draining: info.is_draining(),
        evicted: info.evicted,
        heard_seconds_ago: heard_ago.map(|ago| ago.as_secs_f64()),
        ranges: write_count(ranges().count()),
        key_share: keys as f64 / KeyRange::ALL.key_count() as f64,
        load,
        drain_ordered: info.drain_ordered,
        load_dimension: write_load_dimension(load_dimension),
    }
}

/// A range of the table as operators see it.
#[must_use]
pub fn write_lease(range: KeyRange, entry: &Entry, stored: &NamespaceState) -> v1::Lease {
    let owner = |session: SessionId| {
        let info = stored.sessions.get(&session);
        v1::LeaseOwner {
            session: write_session(session),
            name: info.map_or_else(String::new, |info| info.name.to_string()),
            url: info.map_or_else(String::new, |info| info.url.to_string()),
        }
    };
    v1::Lease {
        range: Some(range.into()),
        owner: entry.owner.map(owner),
        generation: entry.generation.0,
        state_since: entry.state_since.0,
        recall: entry.recall.map(|recall| v1::LeaseRecall { to: recall.to.map(owner) }),
        quarantined: entry.quarantined,
    }
}

/// What a committed batch decided, as operators see it. The names of sessions that the batch itself does not introduce are for
/// the caller to fill in.
#[must_use]
pub fn write_decisions(wall_time_ms: u64, index: Index, batch: &Batch) -> Vec<v1::Decision> {
    let decision = |record: &Record| {
        let kind = record.as_str().to_owned();
        let common =
            v1::Decision { wall_time_ms, index: index.0, term: batch.term.0, kind, ..Default::default() };
        write_decision(record, common)
    };
    batch.records.iter().map(decision).collect()
}

fn write_decision(record: &Record, common: v1::Decision) -> v1::Decision {
    let Record::Namespace { namespace, change, reason } = record else { return common };
    let operator_words = match reason {
        Reason::Operator(words) | Reason::Balanced(words) => Some(words.to_string()),
        _ => None,
    };
    let (namespace, reason) = (Some(namespace.to_string()), reason.as_str().to_owned());
    write_change(change, v1::Decision { namespace, reason, operator_words, ..common })
}

fn write_change(change: &Change, common: v1::Decision) -> v1::Decision {
    let about = |session: &SessionId, info: Option<&SessionInfo>, common| v1::Decision {
        session: Some(write_session(*session)),
        owner: info.map(|info| info.name.to_string()),
        ..common
    };
    let lease = |range: &KeyRange, generation: &Generation, common| v1::Decision {
        range: Some((*range).into()),
        generation: Some(generation.0),
        ..common
    };
    match change {
        Change::Created { .. }
        | Change::Removed
        | Change::Configured { .. }
        | Change::HoldSettled
        | Change::Frozen
        | Change::Unfrozen => common,
        Change::SessionStarted { session, info } | Change::SessionChanged { session, info } => {
            about(session, Some(info), common)
        }
        Change::SessionEnded { session } => about(session, None, common),
        Change::Granted { range, generation, session, source, .. } => {
            let granted = about(session, None, lease(range, generation, common));
            v1::Decision { source: source.map(|source| source.0), ..granted }
        }
        Change::Claimed { range, generation, session, .. } => {
            about(session, None, lease(range, generation, common))
        }
        Change::Recalled { range, generation, to } => {
            v1::Decision { session: to.map(write_session), ..lease(range, generation, common) }
        }
        Change::Released { range, generation }
        | Change::RecallCancelled { range, generation }
        | Change::MergeBegun { range, generation }
        | Change::Merged { range, generation } => lease(range, generation, common),
        Change::Pinned { range, to } => {
            let owner = to.as_ref().map(ToString::to_string);
            v1::Decision { range: Some((*range).into()), owner, ..common }
        }
        Change::Quarantined { range, evidence } => {
            v1::Decision { range: Some((*range).into()), deaths: write_deaths(evidence), ..common }
        }
        Change::Unquarantined { range } => v1::Decision { range: Some((*range).into()), ..common },
    }
}
