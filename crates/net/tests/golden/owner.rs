//! What Owners and Managers say to each other.

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{Generation, LoadDimension, ManagerId, Secret, Seq, Term};
use centrifuge_core::key::Key;
use centrifuge_core::load::RangeLoad;
use centrifuge_core::message::{
    Assign, Destination, HeldLease, Hello, LeaseOrder, ManagerToOwner, MovedLease, OrderKind, OwnerToManager,
    RecallOrder, Refusal, Refused, RefusedReason, Release, Report, Warrant, Welcome,
};
use centrifuge_core::namespace_kind::{ExpectedKind, KeyPrefix, Keys, Mode, NamespaceKind};
use centrifuge_net::credential;
use centrifuge_net::proto::v1;

use super::files::Golden;
use super::{name, namespace, nonce, range, session};

pub(super) fn check(golden: &mut Golden) {
    up(golden, "owner-hello", OwnerToManager::Hello(hello()));
    up(golden, "owner-report", OwnerToManager::Report(report()));
    down(golden, "owner-welcome", ManagerToOwner::Welcome(welcome()));
    let reasons = [
        ("name-in-use", RefusedReason::NameInUse),
        ("unknown-namespace", RefusedReason::UnknownNamespace),
        ("evicted", RefusedReason::Evicted),
        ("too-many-owners", RefusedReason::TooManyOwners),
        ("stale-term", RefusedReason::StaleTerm),
        ("wrong-keys", RefusedReason::WrongKeys),
        ("wrong-mode", RefusedReason::WrongMode),
    ];
    for (word, why) in reasons {
        let refused = Refused { session: session(1), number: 3, term: Term(7), why, namespace: None };
        down(golden, &format!("owner-refused-{word}"), ManagerToOwner::Refused(refused));
    }
    let (why, namespace) = (RefusedReason::WrongKeys, Some(namespace()));
    let refused = Refused { session: session(1), number: 3, term: Term(7), why, namespace };
    down(golden, "owner-refused-by-a-namespace", ManagerToOwner::Refused(refused));
    let unknown = ManagerToOwner::Unknown { session: session(1), conversation: nonce(9) };
    down(golden, "owner-unknown-conversation", unknown);
    let leader = Some(ManagerId::from("manager-2.example:7001"));
    down(golden, "owner-not-leader", ManagerToOwner::NotLeader { leader });
    down(golden, "owner-no-leader", ManagerToOwner::NotLeader { leader: None });
    down(golden, "owner-assign", ManagerToOwner::Assign(assign()));
    up(golden, "owner-report-with-warrants", OwnerToManager::Report(report_with_warrants()));
    down(golden, "owner-assign-with-warrants", ManagerToOwner::Assign(assign_with_warrants()));
    up(golden, "owner-report-of-a-move", OwnerToManager::Report(report_of_a_move()));
    up(golden, "owner-report-of-heavy-keys", OwnerToManager::Report(report_of_heavy_keys()));
    up(golden, "owner-report-of-quantiles", OwnerToManager::Report(report_of_quantiles()));
    up(golden, "owner-report-at-once", OwnerToManager::Report(report_at_once()));
    let ordered = Hello { expects: kind().expected(), ..hello() };
    up(golden, "owner-hello-ordered", OwnerToManager::Hello(ordered));
    down(golden, "owner-welcome-ordered", ManagerToOwner::Welcome(Welcome { kind: kind(), ..welcome() }));
    down(golden, "owner-assign-that-repeats", ManagerToOwner::Assign(assign_that_repeats()));
}

fn up(golden: &mut Golden, name: &str, message: OwnerToManager) {
    super::check::<OwnerToManager, v1::OwnerMessage>(golden, name, &message);
}

fn down(golden: &mut Golden, name: &str, message: ManagerToOwner) {
    super::check::<ManagerToOwner, v1::ManagerMessage>(golden, name, &message);
}

fn hello() -> Hello {
    Hello {
        namespace: namespace(),
        session: credential::session_of(&Secret([1; 32])),
        secret: Secret([1; 32]),
        number: 3,
        name: name("server-1"),
        url: "http://10.0.0.1:8080".into(),
        takes_over_previous: true,
        formerly: None,
        age: Duration::new(5, 6),
        term: Term(7),
        expects: ExpectedKind::default(),
    }
}

/// What no namespace was at first.
pub(super) fn kind() -> NamespaceKind {
    NamespaceKind { keys: Keys::Ordered(KeyPrefix::new(b"user/\xff").expect("short")), mode: Mode::Affinity }
}

fn report() -> Report {
    let load = |first, heavy| RangeLoad {
        range: range(first, first + 9),
        load: 1_000,
        heavy,
        quantiles: Vec::new(),
    };
    Report {
        namespace: namespace(),
        session: session(1),
        conversation: nonce(9),
        seq: Seq(300),
        heard: Seq(2),
        applied: Seq(1),
        age: Duration::new(5, 6),
        held: vec![
            HeldLease {
                range: range(0, 99),
                generation: Generation(5),
                state_since: Generation(4),
                warrant: None,
            },
            HeldLease {
                range: range(200, u64::MAX),
                generation: Generation(u64::MAX),
                state_since: Generation(1),
                warrant: None,
            },
        ],
        released: vec![
            Release {
                range: range(100, 149),
                generation: Generation(3),
                clean_to: Some(session(2)),
                state_since: Generation::ZERO,
                warrant: None,
            },
            Release {
                range: range(150, 150),
                generation: Generation(3),
                clean_to: None,
                state_since: Generation::ZERO,
                warrant: None,
            },
        ],
        refused: vec![Refusal { range: range(160, 169), generation: Generation(6) }],
        imports: Vec::new(),
        loads: vec![load(0, vec![(Key(7), 900)]), load(10, Vec::new())],
        load_dimension: LoadDimension::default(),
        load_span: Duration::ZERO,
        weight: 150,
        draining: true,
        leaving: true,
    }
}

/// What Owners say to Managers that have no store, and these to them.
fn warrant(first: u64, last: u64) -> Option<Warrant> {
    let lease = Duration::from_secs(60);
    Some(Warrant { range: range(first, last), lease, virtual_nodes: 64, code: [0xab; 32] })
}

fn report_with_warrants() -> Report {
    let mut report = report();
    report.held[0].warrant = warrant(0, 199);
    report
}

fn assign_with_warrants() -> Assign {
    let mut assign = assign();
    for order in Arc::make_mut(&mut assign.orders) {
        order.warrant = warrant(order.range.first().0, order.range.last().0).map(Box::new);
    }
    assign
}

/// What the next leader has to hear of.
fn report_of_a_move() -> Report {
    let mut report = report_with_warrants();
    report.released[0].state_since = Generation(2);
    report.released[0].warrant = warrant(100, 199);
    report
}

/// Several heavy keys of one range, in a dimension of the application's own.
fn report_of_heavy_keys() -> Report {
    let mut report = report();
    report.loads[0].heavy = vec![(Key(3), 40), (Key(7), 900), (Key(9), 60)];
    report.load_dimension = LoadDimension::new("cpu-ms").expect("a name");
    report
}

/// Where the load of a range with ordered keys lies.
fn report_of_quantiles() -> Report {
    let mut report = report();
    report.loads[0].quantiles = vec![Key(2), Key(3), Key(3), Key(8)];
    report
}

/// What an Owner says when its load has shifted.
fn report_at_once() -> Report {
    Report { load_span: Duration::from_millis(2_500), ..report_of_heavy_keys() }
}

fn assign_that_repeats() -> Assign {
    let repeat = vec![MovedLease { range: range(100, 149), generation: Generation(3) }];
    Assign { repeat, ..assign() }
}

fn welcome() -> Welcome {
    Welcome {
        namespace: namespace(),
        session: session(1),
        number: 3,
        conversation: nonce(9),
        term: Term(u64::MAX),
        kind: NamespaceKind::default(),
    }
}

fn assign() -> Assign {
    let order = |first: u64, kind, recall| LeaseOrder {
        range: range(first, first + 9),
        generation: Generation(first + 20),
        state_since: Generation(first + 1),
        kind,
        merge: None,
        recall,
        warrant: None,
    };
    let to = Destination { session: session(2), name: name("server-2"), url: "".into() };
    Assign {
        namespace: namespace(),
        session: session(1),
        conversation: nonce(9),
        term: Term(7),
        seq: Seq(300),
        heard: Seq(299),
        applied: Seq(298),
        lease: Duration::from_secs(60),
        renewal: Duration::from_secs(15),
        orders: [
            order(0, OrderKind::Renewal, None),
            order(10, OrderKind::Grant { source: Some(Generation(2)) }, None),
            order(20, OrderKind::Grant { source: None }, Some(RecallOrder { to: None })),
            order(30, OrderKind::Renewal, Some(RecallOrder { to: Some(to) })),
        ]
        .into(),
        wants_answer: true,
        drain_waits: true,
        drained: false,
        void: Vec::new(),
        repeat: Vec::new(),
        evicted: false,
    }
}
