//! The store on a real etcd of three nodes: fences, large batches, standbys that follow, and what etcd's troubles do.

mod etcd_support;
mod store_support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use centrifuge_core::id::{Generation, Index, ManagerId, Namespace, Nonce, OwnerName, SessionId, Term};
use centrifuge_core::manager::{ElectionCommand, ElectionEvent, StoreCommand, StoreEvent};
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::record::{Batch, Change, Reason, Record, SessionInfo};
use centrifuge_core::settings::Settings;
use centrifuge_server::store::etcd::{EtcdCredentials, EtcdTls, Secret};
use centrifuge_server::store::{Answer, EtcdOptions, StoreError};
use etcd_support::{Certificates, Etcd, backend, candidate, short_lived};
use store_support::{Client, batch_of, sum};

/// However slow the machine, what is waited for has happened by then.
const PATIENCE: Duration = Duration::from_secs(60);

fn open(options: &EtcdOptions, name: &str) -> Client {
    Client::open(|answers| backend(options).open(&candidate(name), answers))
}

/// A Manager whose etcd lease ends soon, because nobody renews it here.
fn open_short_lived(options: &EtcdOptions, name: &str) -> Client {
    Client::open(|answers| backend(options).open(&short_lived(name), answers))
}

/// Campaigns and is told who leads.
fn stand_by(store: &Client, request: u64, leader: &str) {
    store.send(ElectionCommand::Campaign { request });
    let led = ElectionEvent::LedBy { request, leader: Some(ManagerId::from(leader)) };
    assert_eq!(store.answer(), Answer::Election(led));
}

/// Waits until an open campaign is won. Meanwhile it may be told again who leads.
fn won(store: &Client, request: u64) -> Term {
    loop {
        match store.answer() {
            Answer::Election(ElectionEvent::Won { request: answered, term }) if answered == request => {
                return term;
            }
            Answer::Election(ElectionEvent::LedBy { .. }) => {}
            other => panic!("not won: {other:?}"),
        }
    }
}

/// Deletes the leader's key, as nobody should.
fn delete_leader(etcd: &Etcd, options: &EtcdOptions) {
    assert_eq!(etcd.control(&["del", &format!("{}leader", options.prefix)]).trim(), "1");
}

/// Many records, and megabytes of them.
fn large_batch(term: Term, count: u64) -> Arc<Batch> {
    let namespace = Namespace::new("large").expect("a label");
    let record = |change| Record::Namespace { namespace: namespace.clone(), change, reason: Reason::Joined };
    let mut records = vec![record(Change::Created {
        kind: Default::default(),
        settings: Arc::new(Settings::default()),
        log: Nonce(1),
        floor: Generation::ZERO,
    })];
    records.extend((0..count).map(|number| {
        let info = SessionInfo {
            name: OwnerName::new(&format!("owner-{number}")).expect("a name"),
            url: format!("http://owner-{number}.{}", "x".repeat(150)).as_str().into(),
            weight: 100,
            virtual_nodes: 64,
            drain_requested: false,
            drain_ordered: false,
            evicted: false,
        };
        record(Change::SessionStarted { session: SessionId(Nonce(u128::from(number) + 1)), info })
    }));
    Arc::new(Batch { term, records })
}

fn keys_under(etcd: &Etcd, prefix: &str) -> usize {
    let listed = etcd.control(&["get", "--prefix", "--keys-only", prefix]);
    listed.lines().filter(|line| !line.is_empty()).count()
}

/// Sends a batch again and again, as the machine does, until it is there.
fn append_until_done(store: &Client, term: Term, index: u64, batch: &Arc<Batch>) {
    let until = Instant::now() + PATIENCE;
    loop {
        match store.append(term, index, batch) {
            StoreEvent::Appended { .. } => return,
            StoreEvent::Unknown { .. } | StoreEvent::NotAppended { .. } => {}
            other => panic!("{other:?}"),
        }
        assert!(Instant::now() < until, "the batch at {index} is never there");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn managers_that_start_together_make_one_store() {
    let etcd = Etcd::shared();
    for _ in 0..10 {
        let options = etcd.options();
        std::thread::scope(|scope| {
            for number in 0..4 {
                let options = &options;
                scope.spawn(move || drop(open(options, &format!("m{number}"))));
            }
        });
    }
}

#[test]
fn a_deposed_leader_cannot_write() {
    let etcd = Etcd::shared();
    let options = etcd.options();
    let mut first = open(&options, "first:1");
    let second = open(&options, "second:1");
    let old = first.campaign();
    first.appended(old, 1, &batch_of(old, 1));
    stand_by(&second, 1, "first:1");
    delete_leader(&etcd, &options);
    let new = won(&second, 1);
    assert!(new > old);
    assert_eq!(first.answer(), Answer::Election(ElectionEvent::Lost { term: old }), "it hears so by itself");
    assert_eq!(first.append(old, 2, &batch_of(old, 2)), StoreEvent::Fenced { index: Index(2) });
    assert!(!first.renew(old));
    second.appended(new, 2, &batch_of(new, 2));
    first.compact(1, ManagerState::default());
    assert_eq!(first.append(old, 2, &batch_of(old, 2)), StoreEvent::Fenced { index: Index(2) });
    let both = [batch_of(old, 1), batch_of(new, 2)];
    assert_eq!(first.load(), (Index(2), Arc::new(sum(&both))));
    first.close();
    second.close();
}

#[test]
fn a_lease_that_etcd_ends_early_ends_the_leadership() {
    let etcd = Etcd::start(1);
    let options = etcd.options();
    let mut store = open(&options, "manager:1");
    let term = store.campaign();
    assert!(store.renew(term));
    let leases = etcd.control(&["lease", "list"]);
    for lease in leases.lines().filter(|line| line.len() == 16 && line.chars().all(|c| c.is_ascii_hexdigit()))
    {
        etcd.control(&["lease", "revoke", lease]);
    }
    assert_eq!(store.answer(), Answer::Election(ElectionEvent::Lost { term }));
    assert_eq!(store.append(term, 1, &batch_of(term, 1)), StoreEvent::Fenced { index: Index(1) });
    assert!(store.campaign() > term);
    store.close();
}

#[test]
fn a_leader_that_crashed_is_followed_when_its_lease_ends() {
    let etcd = Etcd::shared();
    let options = etcd.options();
    let mut first = open_short_lived(&options, "first:1");
    let second = open_short_lived(&options, "second:1");
    let old = first.campaign();
    stand_by(&second, 1, "first:1");
    first.crash();
    assert!(won(&second, 1) > old);
    second.close();
}

#[test]
fn a_standby_takes_over_as_soon_as_the_leader_resigns() {
    let etcd = Etcd::shared();
    let options = etcd.options();
    let mut first = open(&options, "first:1");
    let second = open(&options, "second:1");
    let old = first.campaign();
    stand_by(&second, 7, "first:1");
    let resigned = Instant::now();
    first.send(ElectionCommand::Resign { term: old });
    // The etcd lease has ten minutes left: this is not its end.
    assert!(won(&second, 7) > old);
    println!("takeover after a resignation: {:?}", resigned.elapsed());
    stand_by(&first, 1, "second:1");
    first.close();
    second.close();
}

#[test]
fn a_standby_follows_the_log() {
    let etcd = Etcd::shared();
    let options = etcd.options();
    let mut leader = open(&options, "leader:1");
    let mut standby = open(&options, "standby:1");
    let term = leader.campaign();
    stand_by(&standby, 1, "leader:1");
    let all: Vec<_> = (1..=50).map(|index| batch_of(term, index)).collect();
    for (index, batch) in (1..).zip(&all[..30]) {
        leader.appended(term, index, batch);
    }
    leader.compact(30, sum(&all[..30]));
    for (index, batch) in (31..).zip(&all[30..]) {
        leader.appended(term, index, batch);
    }
    for (index, batch) in (1..).zip(&all) {
        let followed = standby.followed();
        assert_eq!((followed.index, &followed.batch), (Index(index), &**batch));
    }
    leader.send(ElectionCommand::Resign { term });
    won(&standby, 1);
    assert_eq!(standby.load(), (Index(50), Arc::new(sum(&all))));
    leader.close();
    standby.close();
}

#[test]
fn a_standby_that_lags_behind_the_history_starts_from_the_snapshot() {
    let etcd = Etcd::shared();
    let options = etcd.options();
    let mut leader = open(&options, "leader:1");
    let term = leader.campaign();
    let all: Vec<_> = (1..=20).map(|index| batch_of(term, index)).collect();
    for (index, batch) in (1..).zip(&all) {
        leader.appended(term, index, batch);
    }
    leader.compact(15, sum(&all[..15]));
    // The compaction has no answer: its snapshot is there when its key is.
    let snapshot = format!("{}snapshot", options.prefix);
    let until = Instant::now() + PATIENCE;
    while etcd.control(&["get", "--keys-only", &snapshot]).trim().is_empty() {
        assert!(Instant::now() < until, "no snapshot");
    }
    etcd.control(&["del", &format!("{}log/", options.prefix), &format!("{}log/{:020}", options.prefix, 16)]);
    let mut standby = open(&options, "standby:1");
    assert_eq!(standby.load(), (Index(20), Arc::new(sum(&all))));
    leader.close();
    standby.close();
}

#[test]
fn a_batch_and_a_snapshot_of_any_size_are_stored() {
    let etcd = Etcd::shared();
    let options = etcd.options();
    let mut store = open(&options, "manager:1");
    let term = store.campaign();
    let all = [large_batch(term, 20_000), batch_of(term, 2), batch_of(term, 3)];
    for (index, batch) in (1..).zip(&all) {
        store.appended(term, index, batch);
        store.appended(term, index, batch);
    }
    assert!(keys_under(&etcd, &format!("{}parts/", options.prefix)) >= 3, "it is larger than three parts");
    assert_eq!(store.load(), (Index(3), Arc::new(sum(&all))));
    assert_eq!(store.recent(3)[0].1, all[0]);
    store.compact(2, sum(&all[..2]));
    store.compact(3, sum(&all));
    store.close();
    let snapshots = keys_under(&etcd, &format!("{}snapshot/", options.prefix));
    assert!(snapshots >= 3, "the snapshot is larger than three parts");
    let mut store = open(&options, "manager:1");
    assert_eq!(store.load(), (Index(3), Arc::new(sum(&all))));
    // The parts of the first snapshot are gone: another of the same size has as many.
    let term = store.campaign();
    store.appended(term, 4, &batch_of(term, 4));
    let four: Vec<_> = all.into_iter().chain([batch_of(term, 4)]).collect();
    store.compact(4, sum(&four));
    store.close();
    let now = keys_under(&etcd, &format!("{}snapshot/", options.prefix));
    assert!(now.abs_diff(snapshots) <= 1, "{now} parts after {snapshots}");
}

#[test]
fn a_renewal_waits_for_no_append_and_no_compaction() {
    let etcd = Etcd::shared();
    let options = etcd.options();
    let mut store = open(&options, "manager:1");
    let term = store.campaign();
    let large = large_batch(term, 5_000);
    store.appended(term, 1, &large);
    store.compact(1, sum([&large]));
    let last = 400;
    for index in 2..=last {
        store.send(StoreCommand::Append { term, index: Index(index), batch: batch_of(term, index) });
    }
    store.send(ElectionCommand::Renew { request: 77, term });
    let mut renewed = false;
    loop {
        match store.answer() {
            Answer::Election(ElectionEvent::Renewed { request: 77 }) => renewed = true,
            Answer::Store(StoreEvent::Appended { index: Index(index) }) if index == last => break,
            Answer::Store(StoreEvent::Appended { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(renewed, "it was answered before what had been sent earlier");
    store.close();
}

#[test]
fn an_unknown_outcome_is_settled_by_repeating() {
    let etcd = Etcd::start(3);
    let options = etcd.options();
    let mut store = open(&options, "manager:1");
    let term = store.campaign();
    let mut all = Vec::new();
    let mut unknown = 0;
    for round in 0..6_u64 {
        let batch = batch_of(term, round);
        let index = Index(round + 1);
        store.send(StoreCommand::Append { term, index, batch: Arc::clone(&batch) });
        // At another place of the way each time.
        std::thread::sleep(Duration::from_micros(round * 400));
        etcd.pause_all();
        let answer = store.answer();
        etcd.resume_all();
        match answer {
            Answer::Store(StoreEvent::Appended { .. }) => {}
            Answer::Store(StoreEvent::Unknown { .. }) => unknown += 1,
            other => panic!("{other:?}"),
        }
        append_until_done(&store, term, index.0, &batch);
        all.push(batch);
    }
    assert!(unknown > 0, "no outcome was unknown");
    assert_eq!(store.load(), (Index(6), Arc::new(sum(&all))));
    store.close();
}

#[test]
fn one_dead_node_of_three_costs_nothing() {
    let etcd = Etcd::start(3);
    let options = etcd.options();
    let mut store = open(&options, "manager:1");
    let term = store.campaign();
    let mut index = 0;
    for node in 0..3 {
        etcd.kill(node);
        for _ in 0..5 {
            index += 1;
            append_until_done(&store, term, index, &batch_of(term, index));
        }
        assert_renews(&mut store, term);
        etcd.restart(node);
        etcd.wait_for(node);
    }
    assert_eq!(store.load().0, Index(15));
    store.close();
}

#[test]
fn a_node_that_stands_still_is_left() {
    let etcd = Etcd::start(3);
    let options = etcd.options();
    let mut store = open(&options, "manager:1");
    let term = store.campaign();
    for node in 0..3 {
        etcd.pause(node);
        let index = node as u64 + 1;
        append_until_done(&store, term, index, &batch_of(term, index));
        assert_renews(&mut store, term);
        etcd.resume(node);
    }
    store.close();
}

#[test]
fn without_a_majority_nothing_is_written_and_afterwards_everything_goes_on() {
    let etcd = Etcd::start(3);
    let options = etcd.options();
    let mut store = open(&options, "manager:1");
    let term = store.campaign();
    store.appended(term, 1, &batch_of(term, 1));
    etcd.kill(0);
    etcd.kill(1);
    let batch = batch_of(term, 2);
    let event = store.append(term, 2, &batch);
    assert!(matches!(event, StoreEvent::Unknown { .. } | StoreEvent::NotAppended { .. }), "{event:?}");
    store.send(ElectionCommand::Renew { request: 900, term });
    assert_eq!(store.answer_within(Duration::from_secs(3)), None, "nobody renews without a majority");
    etcd.restart(0);
    etcd.restart(1);
    append_until_done(&store, term, 2, &batch);
    assert_renews(&mut store, term);
    assert_eq!(store.load(), (Index(2), Arc::new(sum(&[batch_of(term, 1), batch]))));
    store.close();
}

/// Renews, however many tries etcd needs; leadership is never lost.
fn assert_renews(store: &mut Client, term: Term) {
    let until = Instant::now() + PATIENCE;
    for request in 1_000.. {
        store.send(ElectionCommand::Renew { request, term });
        match store.answer_within(Duration::from_secs(5)) {
            Some(Answer::Election(ElectionEvent::Renewed { .. })) => return,
            Some(other) => panic!("{other:?}"),
            None => assert!(Instant::now() < until, "it is never renewed"),
        }
    }
}

#[test]
fn a_full_etcd_refuses_until_it_has_room_again() {
    let etcd = Etcd::start_with(1, &["--quota-backend-bytes", "4000000"]);
    let options = etcd.options();
    let mut store = open(&options, "manager:1");
    let term = store.campaign();
    store.appended(term, 1, &batch_of(term, 1));
    let junk = "x".repeat(100_000);
    let full =
        (0..100).any(|number| !etcd.etcdctl(&["put", &format!("/junk/{number}"), &junk]).status.success());
    assert!(full, "the quota is used up");
    let batch = batch_of(term, 2);
    assert_eq!(store.append(term, 2, &batch), StoreEvent::NotAppended { index: Index(2) });
    assert!(store.renew(term), "a leader goes on without room");
    etcd.control(&["del", "--prefix", "/junk/"]);
    let status = etcd.control(&["endpoint", "status", "-w", "fields"]);
    let revision = status.lines().find_map(|line| line.strip_prefix("\"Revision\" : ")).expect("a revision");
    etcd.control(&["compact", revision]);
    etcd.control(&["defrag"]);
    etcd.control(&["alarm", "disarm"]);
    append_until_done(&store, term, 2, &batch);
    store.close();
}

#[test]
fn a_user_and_a_password_let_us_in() {
    let etcd = Etcd::start(1);
    etcd.control(&["user", "add", "root:hush"]);
    etcd.control(&["user", "grant-role", "root", "root"]);
    etcd.control(&["auth", "enable"]);
    let options = etcd.options();
    let refused = |options: &EtcdOptions| {
        let opened = Client::try_open(|answers| backend(options).open(&candidate("manager:1"), answers));
        match opened {
            Err(error @ StoreError::EtcdRefused { .. }) => error.to_string(),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("it opens"),
        }
    };
    assert!(refused(&options).contains("user name is empty"));
    let with = |password: &str| EtcdOptions {
        credentials: Some(EtcdCredentials { user: "root".to_owned(), password: Secret(password.to_owned()) }),
        ..options.clone()
    };
    assert!(refused(&with("wrong")).contains("invalid user ID or password"));
    let mut store = open(&with("hush"), "manager:1");
    let term = store.campaign();
    store.appended(term, 1, &batch_of(term, 1));
    assert!(store.renew(term));
    store.close();
}

#[test]
fn certificates_let_us_in() {
    let certificates = Certificates::new();
    let etcd = Etcd::start_secure(&certificates);
    let with = |identity| {
        let tls = Some(EtcdTls { ca: certificates.path("ca.pem"), identity });
        EtcdOptions { tls, ..etcd.options() }
    };
    let identity = (certificates.path("client.pem"), certificates.path("client.key"));
    let mut store = open(&with(Some(identity)), "manager:1");
    let term = store.campaign();
    store.appended(term, 1, &batch_of(term, 1));
    assert!(store.renew(term));
    store.close();
    let opened = Client::try_open(|answers| backend(&with(None)).open(&candidate("manager:1"), answers));
    assert!(matches!(opened, Err(StoreError::Etcd { .. })), "a node that asks for a certificate wants one");
    let missing = Some((certificates.path("none.pem"), certificates.path("client.key")));
    let opened = Client::try_open(|answers| backend(&with(missing)).open(&candidate("manager:1"), answers));
    let Err(error) = opened else { panic!("it opens") };
    assert!(error.to_string().contains("etcd_cert"), "{error}");
}
