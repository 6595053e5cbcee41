//! The state of the Manager as JSON and as gauges, both computed for each request.

mod trim;

use centrifuge_core::id::Namespace;
use centrifuge_core::key::KeyRange;
use centrifuge_core::manager::NamespaceOverview;
use centrifuge_core::manager_state::NamespaceState;
use centrifuge_core::namespace_kind::Mode;
use centrifuge_net::clock;
use serde::Serialize;

use crate::shared::Shared;

use trim::TrimStatus;

/// The Manager's status.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Status {
    /// The address that clients dial.
    pub manager: String,
    /// The version of the software.
    pub version: &'static str,
    /// `leader`, `loading` or `standby`.
    pub role: &'static str,
    /// The term it leads or, if it does not lead, the highest it knows.
    pub term: u64,
    /// Who leads, as far as it knows.
    pub leader: Option<String>,
    /// How long it has been running.
    pub uptime_seconds: u64,
    /// Whether the store answers well.
    pub store: StoreStatus,
    /// The namespaces, if it leads.
    pub namespaces: Vec<NamespaceStatus>,
}

/// Which store there is, and whether it answers well.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct StoreStatus {
    /// `embedded`, `etcd` or `none`.
    pub kind: &'static str,
    /// How the leader is chosen: `embedded`, `etcd` or `flease`.
    pub election: &'static str,
    /// It does.
    pub healthy: bool,
    /// What is wrong otherwise.
    pub problem: Option<String>,
    /// The Managers that run on it, if it is for several.
    pub managers: Vec<String>,
}

/// One namespace in numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct NamespaceStatus {
    /// Its name.
    pub name: String,
    /// How application keys become keys: `hashed` or `ordered`.
    pub keys: &'static str,
    /// What all of them begin with, if they are ordered; with escapes.
    pub key_prefix: Option<String>,
    /// What leases promise: `exclusive` or `affinity`.
    pub mode: &'static str,
    /// Live Owners.
    pub owners: usize,
    /// Lookups that asked lately.
    pub lookups: usize,
    /// Entries of the lease table.
    pub ranges: usize,
    /// Those without an owner that can be granted.
    pub unowned_ranges: usize,
    /// Ranges in quarantine: granted to nobody, because Owners that got them died.
    pub quarantined_ranges: usize,
    /// Their share of the key space, 0 to 1.
    pub quarantined_share: f64,
    /// Those that are being recalled.
    pub moving_ranges: usize,
    /// The highest lease number so far.
    pub last_generation: u64,
    /// Whether an operator froze it.
    pub frozen: bool,
    /// Changes that the change log reaches back.
    pub change_log_entries: usize,
    /// How old the oldest of them is.
    pub change_log_span_seconds: u64,
    /// The load that Owners reported last, in its dimension per 1,000 seconds.
    pub load: u64,
    /// What it is counted in.
    pub load_dimension: String,
    /// What a leader that has no store has yet to learn; nothing once it knows the table.
    pub rebuilding: Option<Rebuilding>,
    /// What Trim made of the loads, where it divides the keys.
    pub trim: Option<TrimStatus>,
}

/// A table that a leader learns from its Owners.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Rebuilding {
    /// The share of the key space that nobody has claimed, 0 to 1.
    pub unclaimed_share: f64,
    /// How long it lasts at most.
    pub ends_in_seconds: u64,
}

impl Status {
    /// How it is now.
    #[must_use]
    pub(crate) fn of(shared: &Shared) -> Status {
        let role = shared.view.role();
        let store = shared.view.store();
        Status {
            manager: shared.manager.clone(),
            version: env!("CARGO_PKG_VERSION"),
            role: role.role.as_str(),
            term: role.term.max(store.term).0,
            leader: role.leader.map(|leader| leader.to_string()),
            uptime_seconds: shared.started_at.elapsed().as_secs(),
            store: StoreStatus {
                kind: store.kind,
                election: store.election,
                healthy: store.problem.is_none(),
                problem: store.problem,
                managers: store.managers,
            },
            namespaces: namespaces(shared),
        }
    }
}

fn namespaces(shared: &Shared) -> Vec<NamespaceStatus> {
    let Some(group) = shared.view.group() else { return Vec::new() };
    let overview = shared.view.overview();
    let nothing = NamespaceOverview::default();
    let of = |(name, stored): (&Namespace, &NamespaceState)| {
        namespace(name, stored, overview.namespaces.get(name).unwrap_or(&nothing))
    };
    group.namespaces.iter().map(of).collect()
}

fn namespace(name: &Namespace, stored: &NamespaceState, overview: &NamespaceOverview) -> NamespaceStatus {
    NamespaceStatus {
        name: name.to_string(),
        keys: stored.kind.keys.kind().as_str(),
        key_prefix: stored.kind.keys.prefix().map(ToString::to_string),
        mode: stored.kind.mode.as_str(),
        owners: stored.sessions.len(),
        lookups: overview.lookups,
        ranges: stored.table.len(),
        unowned_ranges: stored.table.unowned().count(),
        quarantined_ranges: stored.quarantines.len(),
        quarantined_share: stored.quarantined_keys() as f64 / KeyRange::ALL.key_count() as f64,
        moving_ranges: stored.table.iter().filter(|(_, entry)| entry.recall.is_some()).count(),
        last_generation: stored.last_generation.0,
        frozen: stored.frozen,
        change_log_entries: overview.changes,
        change_log_span_seconds: overview.log_span.as_secs(),
        load: overview.load(),
        load_dimension: overview.load_dimension.to_string(),
        rebuilding: overview.rebuilding.map(|rebuild| Rebuilding {
            unclaimed_share: rebuild.unclaimed_keys as f64 / KeyRange::ALL.key_count() as f64,
            ends_in_seconds: rebuild.ends_at.since(clock::now()).as_secs(),
        }),
        trim: overview.trim.as_deref().map(|trim| TrimStatus::of(trim, stored, clock::now())),
    }
}

/// Sets the gauges that say how things are, and gives the text of a scrape.
#[must_use]
pub(crate) fn scrape(shared: &Shared) -> String {
    let metrics = &shared.metrics;
    let namespaces = namespaces(shared);
    metrics.namespaces.set(number(namespaces.len()));
    metrics.store_healthy.set(i64::from(shared.view.store().problem.is_none()));
    let by_namespace = [
        &metrics.owners,
        &metrics.lookups,
        &metrics.table_ranges,
        &metrics.unowned_ranges,
        &metrics.quarantined_ranges,
        &metrics.moving_ranges,
        &metrics.frozen,
        &metrics.affinity,
        &metrics.rebuilding,
        &metrics.generation,
        &metrics.change_log_entries,
        &metrics.change_log_span_seconds,
    ];
    by_namespace.iter().for_each(|gauge| gauge.clear());
    metrics.load.clear();
    trim::clear(metrics);
    for status in &namespaces {
        let values = [
            number(status.owners),
            number(status.lookups),
            number(status.ranges),
            number(status.unowned_ranges),
            number(status.quarantined_ranges),
            number(status.moving_ranges),
            i64::from(status.frozen),
            i64::from(status.mode == Mode::Affinity.as_str()),
            i64::from(status.rebuilding.is_some()),
            wide(status.last_generation),
            number(status.change_log_entries),
            wide(status.change_log_span_seconds),
        ];
        for (gauge, value) in by_namespace.iter().zip(values) {
            gauge.with([&status.name]).set(value);
        }
        metrics.load.with([&*status.name, &status.load_dimension]).set(wide(status.load));
        if let Some(trim) = &status.trim {
            trim.show(&status.name, metrics);
        }
    }
    metrics.text()
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn wide(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
