//! From what is stored to what the machine knows. Whatever could not have been stored is refused with the field's name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use centrifuge_core::id::{Generation, Lsn, Namespace, Nonce, OwnerName, SessionId, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::LoadPolicyKind;
use centrifuge_core::manager_state::{ManagerState, NamespaceState, Quarantine};
use centrifuge_core::namespace_kind::{KeyPrefix, Keys, Mode, NamespaceKind};
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::range_map::RangeMap;
use centrifuge_core::record::{Batch, Change, DeathEvidence, Reason, Record, SessionInfo};
use centrifuge_core::settings::Settings;
use centrifuge_core::table::{Entry, Recall, Table};
use centrifuge_net::proto::store::v1 as stored;
use stored::change::Kind as ChangeKind;
use stored::record::Kind as RecordKind;

use super::error::DecodeError;

type Decoded<T> = Result<T, DecodeError>;

/// The batch that was stored.
pub fn decode_batch(batch: stored::Batch) -> Decoded<Batch> {
    let records = batch.records.into_iter().map(record).collect::<Decoded<_>>()?;
    Ok(Batch { term: Term(batch.term), records })
}

/// The group that was stored.
pub fn decode_group(group: stored::Group) -> Decoded<ManagerState> {
    let mut namespaces = BTreeMap::new();
    for stored in group.namespaces {
        let name = namespace_name(&stored.name)?;
        if namespaces.insert(name, namespace(stored)?).is_some() {
            return Err(DecodeError::Twice("namespaces"));
        }
    }
    let mut removed = BTreeMap::new();
    for stored in group.removed {
        if removed.insert(namespace_name(&stored.name)?, Generation(stored.last_generation)).is_some() {
            return Err(DecodeError::Twice("removed"));
        }
    }
    Ok(ManagerState {
        term: Term(group.term),
        latest_leader_hold: duration(group.latest_leader_hold, "latest_leader_hold")?,
        earlier_leaders_hold: duration(group.earlier_leaders_hold, "earlier_leaders_hold")?,
        namespaces,
        removed,
    })
}

/// The reading of the wall clock that was stored.
pub(super) fn decode_time(micros: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}

fn record(record: stored::Record) -> Decoded<Record> {
    Ok(match required(record.kind, "record")? {
        RecordKind::LeaderStarted(started) => {
            Record::LeaderStarted { leader_hold: duration(started.leader_hold, "leader_hold")? }
        }
        RecordKind::LeaderSettled(_) => Record::LeaderSettled,
        RecordKind::LeaderResigned(_) => Record::LeaderResigned,
        RecordKind::Namespace(record) => Record::Namespace {
            namespace: namespace_name(&record.namespace)?,
            change: change(required(record.change.and_then(|change| change.kind), "change")?)?,
            reason: reason(required(record.reason, "reason")?)?,
        },
    })
}

fn change(kind: ChangeKind) -> Decoded<Change> {
    Ok(match kind {
        ChangeKind::Created(created) => Change::Created {
            kind: created.kind.map(namespace_kind).transpose()?.unwrap_or_default(),
            settings: Arc::new(settings(required(created.settings, "created.settings")?)?),
            log: nonce(created.log, "created.log")?,
            floor: Generation(created.floor),
        },
        ChangeKind::Removed(_) => Change::Removed,
        ChangeKind::Configured(with) => Change::Configured { settings: Arc::new(settings(with)?) },
        ChangeKind::HoldSettled(_) => Change::HoldSettled,
        ChangeKind::SessionStarted(record) => {
            let (session, info) = session_record(record)?;
            Change::SessionStarted { session, info }
        }
        ChangeKind::SessionChanged(record) => {
            let (session, info) = session_record(record)?;
            Change::SessionChanged { session, info }
        }
        ChangeKind::SessionEnded(ended) => Change::SessionEnded { session: session(Some(ended), "session")? },
        ChangeKind::Granted(granted) => Change::Granted {
            range: range(granted.range, "granted.range")?,
            generation: Generation(granted.generation),
            session: session(granted.session, "granted.session")?,
            source: granted.source.map(Generation),
            state_since: granted.state_since.map(Generation),
        },
        ChangeKind::Claimed(claimed) => Change::Claimed {
            range: range(claimed.range, "claimed.range")?,
            generation: Generation(claimed.generation),
            state_since: Generation(claimed.state_since),
            session: session(claimed.session, "claimed.session")?,
        },
        ChangeKind::Released(lease) => Change::Released {
            range: range(lease.range, "released.range")?,
            generation: Generation(lease.generation),
        },
        ChangeKind::Recalled(recalled) => Change::Recalled {
            range: range(recalled.range, "recalled.range")?,
            generation: Generation(recalled.generation),
            to: recalled.to.map(|to| session(Some(to), "recalled.to")).transpose()?,
        },
        ChangeKind::RecallCancelled(lease) => Change::RecallCancelled {
            range: range(lease.range, "recall_cancelled.range")?,
            generation: Generation(lease.generation),
        },
        ChangeKind::MergeBegun(lease) => Change::MergeBegun {
            range: range(lease.range, "merge_begun.range")?,
            generation: Generation(lease.generation),
        },
        ChangeKind::Merged(lease) => Change::Merged {
            range: range(lease.range, "merged.range")?,
            generation: Generation(lease.generation),
        },
        ChangeKind::Frozen(_) => Change::Frozen,
        ChangeKind::Unfrozen(_) => Change::Unfrozen,
        ChangeKind::Pinned(pin) => Change::Pinned {
            range: range(pin.range, "pinned.range")?,
            to: pin.to.as_deref().map(owner_name).transpose()?,
        },
        ChangeKind::Quarantined(stored) => {
            let Quarantine { range, evidence } = quarantine(stored)?;
            Change::Quarantined { range, evidence }
        }
        ChangeKind::Unquarantined(keys) => {
            Change::Unquarantined { range: range(Some(keys), "unquarantined")? }
        }
    })
}

fn quarantine(stored: stored::Quarantine) -> Decoded<Quarantine> {
    let death = |death: stored::Death| -> Decoded<DeathEvidence> {
        Ok(DeathEvidence {
            name: owner_name(&death.name)?,
            session: session(death.session, "death.session")?,
            generation: Generation(death.generation),
            held: duration(death.held, "death.held")?,
            ago: duration(death.ago, "death.ago")?,
        })
    };
    Ok(Quarantine {
        range: range(stored.range, "quarantine.range")?,
        evidence: stored.deaths.into_iter().map(death).collect::<Decoded<_>>()?,
    })
}

fn reason(reason: stored::Reason) -> Decoded<Reason> {
    use stored::ReasonKind as Kind;
    let unknown = DecodeError::UnknownChoice { field: "reason", value: reason.kind };
    Ok(match Kind::try_from(reason.kind) {
        Err(_) | Ok(Kind::Unspecified) => return Err(unknown),
        Ok(Kind::Operator) => Reason::Operator(reason.words.into()),
        Ok(Kind::Balanced) => Reason::Balanced(reason.words.into()),
        Ok(Kind::Joined) => Reason::Joined,
        Ok(Kind::Left) => Reason::Left,
        Ok(Kind::HoldExpired) => Reason::HoldExpired,
        Ok(Kind::TakenOver) => Reason::TakenOver,
        Ok(Kind::Dropped) => Reason::Dropped,
        Ok(Kind::RefusedByOwner) => Reason::RefusedByOwner,
        Ok(Kind::GivenBack) => Reason::GivenBack,
        Ok(Kind::Migrated) => Reason::Migrated,
        Ok(Kind::DestinationGone) => Reason::DestinationGone,
        Ok(Kind::Unowned) => Reason::Unowned,
        Ok(Kind::Repartitioned) => Reason::Repartitioned,
        Ok(Kind::Draining) => Reason::Draining,
        Ok(Kind::MigrationTimedOut) => Reason::MigrationTimedOut,
        Ok(Kind::NoLongerWanted) => Reason::NoLongerWanted,
        Ok(Kind::Reported) => Reason::Reported,
        Ok(Kind::LoadBalanced) => Reason::LoadBalanced,
        Ok(Kind::TimePassed) => Reason::TimePassed,
        Ok(Kind::Claimed) => Reason::Claimed,
        Ok(Kind::Neighbours) => Reason::Neighbours,
        Ok(Kind::KilledOwners) => Reason::KilledOwners,
        Ok(Kind::Suspected) => Reason::Suspected,
    })
}

fn namespace(from: stored::Namespace) -> Decoded<NamespaceState> {
    let mut sessions = BTreeMap::new();
    for record in from.sessions {
        let (session, info) = session_record(record)?;
        if sessions.insert(session, info).is_some() {
            return Err(DecodeError::Twice("sessions"));
        }
    }
    let mut pins = RangeMap::new();
    for pin in from.pins {
        let to = required(pin.to, "pins.to")?;
        pins.insert(range(pin.range, "pins.range")?, owner_name(&to)?);
    }
    let quarantines: Vec<Quarantine> =
        from.quarantines.into_iter().map(quarantine).collect::<Decoded<_>>()?;
    if !quarantines.is_sorted_by_key(|known| known.range) {
        return Err(DecodeError::OutOfBounds("quarantines"));
    }
    Ok(NamespaceState {
        kind: from.kind.map(namespace_kind).transpose()?.unwrap_or_default(),
        log: nonce(from.log, "log")?,
        lsn: Lsn(from.lsn),
        settings: Arc::new(settings(required(from.settings, "settings")?)?),
        longest_hold: duration(from.longest_hold, "longest_hold")?,
        last_generation: Generation(from.last_generation),
        sessions,
        table: table(from.table, &from.name, &quarantines)?,
        frozen: from.frozen,
        pins,
        evicted: from
            .evicted
            .into_iter()
            .map(|gone| session(Some(gone), "evicted"))
            .collect::<Decoded<_>>()?,
        quarantines,
    })
}

fn namespace_kind(from: stored::NamespaceKind) -> Decoded<NamespaceKind> {
    let prefix = KeyPrefix::new(&from.key_prefix).map_err(|_| DecodeError::OutOfBounds("key_prefix"))?;
    let keys = match stored::KeyKind::try_from(from.keys) {
        Ok(stored::KeyKind::Hashed) => Keys::Hashed,
        Ok(stored::KeyKind::Ordered) => Keys::Ordered(prefix),
        _ => return Err(DecodeError::UnknownChoice { field: "keys", value: from.keys }),
    };
    let mode = match stored::Mode::try_from(from.mode) {
        Ok(stored::Mode::Exclusive) => Mode::Exclusive,
        Ok(stored::Mode::Affinity) => Mode::Affinity,
        _ => return Err(DecodeError::UnknownChoice { field: "mode", value: from.mode }),
    };
    Ok(NamespaceKind { keys, mode })
}

/// Entries that follow one another from the lowest key to the highest: a hole cannot be said. What is in quarantine is marked.
fn table(entries: Vec<stored::TableEntry>, name: &str, quarantines: &[Quarantine]) -> Decoded<Table> {
    let mut table = Table::default();
    let mut next = Some(Key::MIN);
    for stored in entries {
        let range = next.and_then(|first| KeyRange::new(first, Key(stored.last)));
        let range = range.ok_or_else(|| DecodeError::TableNotWhole(name.to_owned()))?;
        next = range.last().next();
        table.set(range, table_entry(stored)?);
    }
    for Quarantine { range, .. } in quarantines {
        let parts = table.overlapping(*range).filter(|(_, entry)| entry.owner.is_none());
        let parts: Vec<_> = parts.map(|(part, entry)| (part, *entry)).collect();
        parts.into_iter().for_each(|(part, entry)| table.set(part, Entry { quarantined: true, ..entry }));
    }
    match next {
        None => Ok(table),
        Some(_) => Err(DecodeError::TableNotWhole(name.to_owned())),
    }
}

fn table_entry(entry: stored::TableEntry) -> Decoded<Entry> {
    let recall = |recall: stored::Recall| -> Decoded<Recall> {
        Ok(Recall { to: recall.to.map(|to| session(Some(to), "recall.to")).transpose()? })
    };
    Ok(Entry {
        owner: entry.owner.map(|owner| session(Some(owner), "owner")).transpose()?,
        generation: Generation(entry.generation),
        state_since: Generation(entry.state_since),
        source: entry.source.map(Generation),
        recall: entry.recall.map(recall).transpose()?,
        merge: entry.merge.map(Generation),
        quarantined: false,
    })
}

fn settings(from: stored::Settings) -> Decoded<Settings> {
    let partitioner = match stored::Partitioner::try_from(from.partitioner) {
        Ok(stored::Partitioner::ConsistentHash) => PartitionerKind::ConsistentHash,
        Ok(stored::Partitioner::Fixed) => PartitionerKind::Fixed,
        Ok(stored::Partitioner::Trim) => PartitionerKind::Trim,
        _ => {
            return Err(DecodeError::UnknownChoice { field: "partitioner", value: from.partitioner });
        }
    };
    let load_policy = match stored::LoadPolicy::try_from(from.load_policy) {
        Ok(stored::LoadPolicy::TenPercent) => LoadPolicyKind::TenPercent,
        Ok(stored::LoadPolicy::Off) => LoadPolicyKind::Off,
        _ => {
            return Err(DecodeError::UnknownChoice { field: "load_policy", value: from.load_policy });
        }
    };
    // A store that an earlier version wrote has none of these.
    let Settings { churn_budget, max_ranges_per_owner, imbalance, death_window, quarantine, .. } =
        Settings::default();
    let time = |stored: Option<stored::Duration>, usual, field| match stored {
        Some(stored) => duration(Some(stored), field),
        None => Ok(usual),
    };
    Ok(Settings {
        lease: duration(from.lease, "lease")?,
        hold: duration(from.hold, "hold")?,
        renewal: duration(from.renewal, "renewal")?,
        answer_allowance: duration(from.answer_allowance, "answer_allowance")?,
        migration_timeout: duration(from.migration_timeout, "migration_timeout")?,
        recall_timeout: duration(from.recall_timeout, "recall_timeout")?,
        min_owners: size(from.min_owners, "min_owners")?,
        settle: duration(from.settle, "settle")?,
        max_moves: size(from.max_moves, "max_moves")?,
        max_owners: size(from.max_owners, "max_owners")?,
        virtual_nodes: from.virtual_nodes,
        partitioner,
        load_policy,
        load_interval: duration(from.load_interval, "load_interval")?,
        max_load_changes: size(from.max_load_changes, "max_load_changes")?,
        log_span: duration(from.log_span, "log_span")?,
        heartbeat: duration(from.heartbeat, "heartbeat")?,
        churn_budget: from.churn_budget.unwrap_or(churn_budget),
        max_ranges_per_owner: from.max_ranges_per_owner.unwrap_or(max_ranges_per_owner),
        imbalance: from.imbalance.unwrap_or(imbalance),
        death_window: time(from.death_window, death_window, "death_window")?,
        quarantine: time(from.quarantine, quarantine, "quarantine")?,
    })
}

fn session_record(record: stored::SessionRecord) -> Decoded<(SessionId, SessionInfo)> {
    let info = required(record.info, "session.info")?;
    let info = SessionInfo {
        name: owner_name(&info.name)?,
        url: info.url.as_str().into(),
        weight: info.weight,
        virtual_nodes: info.virtual_nodes,
        drain_requested: info.drain_requested,
        drain_ordered: info.drain_ordered,
        evicted: info.evicted,
    };
    Ok((session(record.session, "session.session")?, info))
}

fn namespace_name(name: &str) -> Decoded<Namespace> {
    Namespace::new(name).map_err(|why| DecodeError::Name { field: "namespace", why })
}

fn owner_name(name: &str) -> Decoded<OwnerName> {
    OwnerName::new(name).map_err(|why| DecodeError::Name { field: "owner", why })
}

fn session(id: Option<stored::Nonce>, field: &'static str) -> Decoded<SessionId> {
    nonce(id, field).map(SessionId)
}

fn nonce(nonce: Option<stored::Nonce>, field: &'static str) -> Decoded<Nonce> {
    let nonce = required(nonce, field)?;
    Ok(Nonce(u128::from(nonce.high) << 64 | u128::from(nonce.low)))
}

fn range(range: Option<stored::Range>, field: &'static str) -> Decoded<KeyRange> {
    let range = required(range, field)?;
    KeyRange::new(Key(range.first), Key(range.last)).ok_or(DecodeError::EmptyRange(field))
}

fn duration(duration: Option<stored::Duration>, field: &'static str) -> Decoded<Duration> {
    let duration = required(duration, field)?;
    if duration.nanos >= 1_000_000_000 {
        return Err(DecodeError::OutOfBounds(field));
    }
    Ok(Duration::new(duration.seconds, duration.nanos))
}

fn size(number: u64, field: &'static str) -> Decoded<usize> {
    usize::try_from(number).map_err(|_| DecodeError::OutOfBounds(field))
}

fn required<T>(value: Option<T>, field: &'static str) -> Decoded<T> {
    value.ok_or(DecodeError::Missing(field))
}
