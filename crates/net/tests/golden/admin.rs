//! What operators and Managers say to each other.

use std::time::Duration;

use centrifuge_core::load::LoadPolicyKind;
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::settings::Settings;
use centrifuge_net::convert;
use centrifuge_net::proto::v1;

use super::files::Golden;
use super::{check_wire, session};

const POOL: &str = "presence";

pub(super) fn check(golden: &mut Golden) {
    requests(golden);
    replies(golden);
    empty_ones(golden);
}

fn kind() -> v1::NamespaceKind {
    v1::NamespaceKind::from(&super::owner::kind())
}

fn requests(golden: &mut Golden) {
    let namespace = || POOL.to_owned();
    let why = || "maintenance".to_owned();
    let owner = || "server-1".to_owned();
    check_wire(golden, "admin-list-namespaces", &v1::ListNamespacesRequest { namespace: Some(namespace()) });
    let create =
        v1::CreateNamespaceRequest { namespace: namespace(), settings: Some(settings()), kind: None };
    check_wire(golden, "admin-create-namespace", &create);
    let trim = v1::Settings { partitioner: Some(v1::Partitioner::Trim.into()), ..settings_of_trim() };
    let create = v1::CreateNamespaceRequest { namespace: namespace(), settings: Some(trim), kind: None };
    check_wire(golden, "admin-create-namespace-trim", &create);
    let create = v1::CreateNamespaceRequest { namespace: namespace(), settings: None, kind: Some(kind()) };
    check_wire(golden, "admin-create-namespace-ordered", &create);
    let few = v1::Settings { lease_ms: Some(0), partitioner: Some(2), ..Default::default() };
    let configure = v1::ConfigureNamespaceRequest {
        namespace: namespace(),
        settings: Some(few),
        expected: Some(settings()),
        kind: None,
    };
    check_wire(golden, "admin-configure-namespace", &configure);
    check_wire(golden, "admin-delete-namespace", &v1::DeleteNamespaceRequest { namespace: namespace() });
    check_wire(golden, "admin-list-owners", &v1::ListOwnersRequest { namespace: namespace() });
    let leases = v1::ListLeasesRequest { namespace: namespace(), range: Some(range()), owner: Some(owner()) };
    check_wire(golden, "admin-list-leases", &leases);
    let history = v1::HistoryRequest { namespace: Some(namespace()), key: Some(u64::MAX), limit: 50 };
    check_wire(golden, "admin-history", &history);
    check_wire(golden, "admin-freeze", &v1::FreezeRequest { namespace: namespace(), why: why() });
    check_wire(golden, "admin-unfreeze", &v1::UnfreezeRequest { namespace: namespace(), why: why() });
    let moved =
        v1::MoveRequest { namespace: namespace(), range: Some(range()), to: Some(owner()), why: why() };
    check_wire(golden, "admin-move", &moved);
    check_wire(
        golden,
        "admin-drain",
        &v1::DrainRequest { namespace: namespace(), owner: owner(), why: why() },
    );
    check_wire(
        golden,
        "admin-undrain",
        &v1::UndrainRequest { namespace: namespace(), owner: owner(), why: why() },
    );
    check_wire(
        golden,
        "admin-evict",
        &v1::EvictRequest { namespace: namespace(), owner: owner(), why: why() },
    );
    check_wire(golden, "admin-list-quarantines", &v1::ListQuarantinesRequest { namespace: namespace() });
    let release = v1::ReleaseQuarantineRequest { namespace: namespace(), range: Some(range()), why: why() };
    check_wire(golden, "admin-release-quarantine", &release);
    let death = v1::Settings { death_window_ms: Some(15_001), quarantine_ms: Some(15_002), ..settings() };
    let create = v1::CreateNamespaceRequest { namespace: namespace(), settings: Some(death), kind: None };
    check_wire(golden, "admin-create-namespace-death", &create);
}

fn trim_status() -> v1::TrimStatus {
    let (owner, reason) = ("server-1".to_owned(), "no-room".to_owned());
    v1::TrimStatus {
        decided_ms_ago: 4_000,
        loads_known: true,
        peak: 1.5,
        floor: 1.25,
        goal: 1.125,
        predicted: 1.0625,
        level: 1_000_000,
        calm: Some(v1::TrimTokens { load: 0.125, keys: 0.0625 }),
        relief: Some(v1::TrimTokens { load: 0.5, keys: 0.25 }),
        credit: Some(v1::TrimTokens { load: 0.0, keys: 1.0 }),
        mean_ranges: 20.5,
        most_ranges: 31,
        hot_key_count: 17,
        hot_keys: vec![v1::HotKey { key: u64::MAX, owner: owner.clone(), load: 1_250_000, share: 1.25 }],
        latest_move: Some(v1::TrimMove {
            ms_ago: 9_000,
            range: Some(range()),
            from: Some(owner.clone()),
            to: "server-2".to_owned(),
            reason: "shed-part".to_owned(),
            words: "shed-part: 1.500 to 1.010 of its share".to_owned(),
        }),
        latest_skip: Some(v1::TrimSkip { ms_ago: 4_000, reason, owner: Some(owner), ratio: Some(1.125) }),
    }
}

fn replies(golden: &mut Golden) {
    let status = v1::StatusReply {
        manager: "manager-1.example:7001".to_owned(),
        role: v1::Role::Standby.into(),
        term: 7,
        leader: Some("manager-2.example:7001".to_owned()),
        uptime_ms: 123_456,
        store: Some(v1::StoreStatus { kind: "etcd".to_owned(), healthy: true, problem: "none".to_owned() }),
        namespaces: Some(3),
        version: "0.1.0".to_owned(),
        managers: vec!["manager-1.example:7001".to_owned(), "manager-2.example:7001".to_owned()],
        election: String::new(),
        affinity_namespaces: None,
    };
    let affinity = v1::StatusReply { affinity_namespaces: Some(2), ..status.clone() };
    check_wire(golden, "admin-status-reply-affinity", &affinity);
    check_wire(golden, "admin-status-reply", &status);
    let store = v1::StoreStatus { kind: "none".to_owned(), healthy: true, problem: String::new() };
    let diskless = v1::StatusReply { store: Some(store), election: "flease".to_owned(), ..status };
    check_wire(golden, "admin-status-reply-without-store", &diskless);
    let namespace = v1::NamespaceStatus {
        name: POOL.to_owned(),
        settings: Some(settings()),
        frozen: true,
        owners: 3,
        ranges: 192,
        unowned_ranges: 4,
        moving_ranges: 5,
        last_generation: 600,
        lsn: 700,
        pins: vec![v1::Pin { range: Some(range()), owner: "server-1".to_owned() }],
        rebuilding: None,
        kind: None,
        trim: None,
        quarantined_ranges: 0,
    };
    let ordered = v1::NamespaceStatus { kind: Some(kind()), ..namespace.clone() };
    let ordered = v1::ListNamespacesReply { namespaces: vec![ordered] };
    check_wire(golden, "admin-list-namespaces-reply-ordered", &ordered);
    let quarantined = v1::NamespaceStatus { quarantined_ranges: 2, ..namespace.clone() };
    let quarantined = v1::ListNamespacesReply { namespaces: vec![quarantined] };
    check_wire(golden, "admin-list-namespaces-reply-quarantined", &quarantined);
    let rebuilding = Some(v1::Rebuilding { unclaimed_share: 0.25, ends_in_ms: 65_000 });
    let learned = v1::NamespaceStatus { rebuilding, ..namespace.clone() };
    let learned = v1::ListNamespacesReply { namespaces: vec![learned] };
    check_wire(golden, "admin-list-namespaces-reply-rebuilding", &learned);
    let trimmed = v1::NamespaceStatus { trim: Some(trim_status()), ..namespace.clone() };
    let trimmed = v1::ListNamespacesReply { namespaces: vec![trimmed] };
    check_wire(golden, "admin-list-namespaces-reply-trim", &trimmed);
    let namespaces = v1::ListNamespacesReply { namespaces: vec![namespace] };
    check_wire(golden, "admin-list-namespaces-reply", &namespaces);
    let owner = v1::OwnerStatus {
        session: convert::write_session(session(1)),
        name: "server-1".to_owned(),
        url: "http://10.0.0.1:8080".to_owned(),
        weight: 150,
        virtual_nodes: 64,
        draining: true,
        evicted: true,
        heard_seconds_ago: Some(1.5),
        ranges: 64,
        key_share: 0.25,
        load: 1_000,
        drain_ordered: false,
        load_dimension: String::new(),
    };
    let own_load = v1::OwnerStatus { load_dimension: "cpu-ms".to_owned(), ..owner.clone() };
    check_wire(
        golden,
        "admin-list-owners-reply-own-load",
        &v1::ListOwnersReply { owners: vec![own_load], mode: None },
    );
    let ordered = v1::OwnerStatus { drain_ordered: true, ..owner.clone() };
    check_wire(
        golden,
        "admin-list-owners-reply-drain-ordered",
        &v1::ListOwnersReply { owners: vec![ordered], mode: None },
    );
    let mode = Some(v1::Mode::Affinity.into());
    let affinity = v1::ListOwnersReply { owners: vec![owner.clone()], mode };
    check_wire(golden, "admin-list-owners-reply-affinity", &affinity);
    check_wire(golden, "admin-list-owners-reply", &v1::ListOwnersReply { owners: vec![owner], mode: None });
    let end = |number: u128| v1::LeaseOwner {
        session: convert::write_session(session(number)),
        name: format!("server-{number}"),
        url: "http://10.0.0.1:8080".to_owned(),
    };
    let lease = v1::Lease {
        range: Some(range()),
        owner: Some(end(1)),
        generation: 10,
        state_since: 9,
        recall: Some(v1::LeaseRecall { to: Some(end(2)) }),
        quarantined: false,
    };
    let quarantined = v1::Lease { owner: None, recall: None, quarantined: true, ..lease.clone() };
    check_wire(
        golden,
        "admin-list-leases-reply-quarantined",
        &v1::ListLeasesReply { leases: vec![quarantined], mode: None },
    );
    let affinity = v1::ListLeasesReply { leases: vec![lease.clone()], mode };
    check_wire(golden, "admin-list-leases-reply-affinity", &affinity);
    check_wire(golden, "admin-list-leases-reply", &v1::ListLeasesReply { leases: vec![lease], mode: None });
    let decision = v1::Decision {
        wall_time_ms: 1_700_000_000_123,
        index: 77,
        term: 7,
        namespace: Some(POOL.to_owned()),
        kind: "granted".to_owned(),
        reason: "operator".to_owned(),
        operator_words: Some("maintenance".to_owned()),
        range: Some(range()),
        generation: Some(10),
        session: Some(convert::write_session(session(1))),
        owner: Some("server-1".to_owned()),
        source: Some(9),
        mode: None,
        deaths: Vec::new(),
    };
    let affinity = v1::Decision { mode, ..decision.clone() };
    check_wire(golden, "admin-history-reply-affinity", &v1::HistoryReply { decisions: vec![affinity] });
    let quarantined = v1::Decision { kind: "quarantined".to_owned(), deaths: deaths(), ..decision.clone() };
    check_wire(golden, "admin-history-reply-quarantined", &v1::HistoryReply { decisions: vec![quarantined] });
    check_wire(golden, "admin-history-reply", &v1::HistoryReply { decisions: vec![decision] });
    let quarantine = v1::Quarantine {
        range: Some(range()),
        key_share: 0.002,
        known_for_ms: Some(60_000),
        ends_in_ms: Some(3_540_000),
        deaths: deaths(),
    };
    let quarantines = v1::ListQuarantinesReply { quarantines: vec![quarantine] };
    check_wire(golden, "admin-list-quarantines-reply", &quarantines);
}

fn deaths() -> Vec<v1::Death> {
    let death = |number: u128| v1::Death {
        owner: format!("server-{number}"),
        session: convert::write_session(session(number)),
        generation: number as u64 + 10,
        held_ms: 1_500,
        ago_ms: 66_000,
    };
    vec![death(1), death(2)]
}

/// They may get fields, and those must not surprise anybody either.
fn empty_ones(golden: &mut Golden) {
    check_wire(golden, "admin-status", &v1::StatusRequest::default());
    check_wire(golden, "admin-create-namespace-reply", &v1::CreateNamespaceReply::default());
    check_wire(golden, "admin-configure-namespace-reply", &v1::ConfigureNamespaceReply::default());
    check_wire(golden, "admin-delete-namespace-reply", &v1::DeleteNamespaceReply::default());
    check_wire(golden, "admin-freeze-reply", &v1::FreezeReply::default());
    check_wire(golden, "admin-unfreeze-reply", &v1::UnfreezeReply::default());
    check_wire(golden, "admin-move-reply", &v1::MoveReply::default());
    check_wire(golden, "admin-drain-reply", &v1::DrainReply::default());
    check_wire(golden, "admin-undrain-reply", &v1::UndrainReply::default());
    check_wire(golden, "admin-evict-reply", &v1::EvictReply::default());
    check_wire(golden, "admin-release-quarantine-reply", &v1::ReleaseQuarantineReply::default());
    check_wire(golden, "admin-backup", &v1::BackupRequest::default());
    check_wire(golden, "admin-backup-reply", &v1::BackupReply { part: vec![1, 2, 3].into() });
}

fn range() -> v1::KeyRange {
    v1::KeyRange { first: 0x10, last: u64::MAX }
}

/// Every field set that the first version has, none to its default.
fn settings() -> v1::Settings {
    v1::Settings { churn_budget: None, max_ranges_per_owner: None, imbalance: None, ..settings_of_trim() }
}

/// Every field set that came with Trim or before, none to its default.
fn settings_of_trim() -> v1::Settings {
    let settings = v1::Settings::from(&Settings {
        lease: Duration::from_millis(30_001),
        hold: Duration::from_millis(33_002),
        renewal: Duration::from_millis(7_003),
        answer_allowance: Duration::from_millis(2_004),
        migration_timeout: Duration::from_millis(5_005),
        recall_timeout: Duration::from_millis(6_006),
        min_owners: 7,
        settle: Duration::from_millis(8_007),
        max_moves: 8,
        max_owners: 9,
        virtual_nodes: 10,
        partitioner: PartitionerKind::Fixed,
        load_policy: LoadPolicyKind::Off,
        load_interval: Duration::from_millis(9_008),
        max_load_changes: 11,
        log_span: Duration::from_millis(10_009),
        heartbeat: Duration::from_millis(11_010),
        churn_budget: 12,
        max_ranges_per_owner: 13,
        imbalance: 1_014,
        ..Settings::default()
    });
    v1::Settings { death_window_ms: None, quarantine_ms: None, ..settings }
}
