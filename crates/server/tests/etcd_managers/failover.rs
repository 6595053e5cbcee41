//! Whoever leads, leases and generations stay.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use centrifuge_core::id::{Namespace, Secret, Term};
use centrifuge_core::key::KeyRange;
use centrifuge_net::convert::write_session;
use centrifuge_net::credential;
use centrifuge_net::proto::v1;
use centrifuge_server::{Config, RunningManager};
use tokio_stream::StreamExt;

use crate::clients::POOL;
use crate::etcd_support::Etcd;
use crate::managers::{config, leases, stands_by, start, start_two, start_with};
use crate::support::{self, TestOwner, eventually, within};

/// A pool with two Owners that hold everything between them.
async fn pool(leader: &RunningManager, managers: &[SocketAddr]) -> [TestOwner; 2] {
    // Long enough that a slow machine costs no lease while Owners look for the new leader.
    let settings = v1::Settings { lease_ms: Some(30_000), hold_ms: Some(33_000), ..support::short_leases() };
    let request =
        v1::CreateNamespaceRequest { namespace: POOL.to_owned(), settings: Some(settings), kind: None };
    support::admin(leader.grpc_addr()).await.create_namespace(request).await.expect("created");
    let mut owners = ["one", "two"].map(|name| TestOwner::start_among(managers, POOL, name));
    for owner in &mut owners {
        owner.until(|seen| !seen.held.is_empty()).await;
    }
    // Until nothing moves any more, and both know what they have.
    eventually(async || {
        let group = leader.view().group().expect("it leads");
        let stored = &group.namespaces[&Namespace::new(POOL).expect("a label")];
        let moving = stored.table.iter().any(|(_, entry)| entry.recall.is_some());
        let held = |owner: &TestOwner| {
            let seen = owner.seen.borrow();
            seen.held.iter().map(|(range, _)| range.key_count()).sum::<u128>()
        };
        let all = owners.iter().map(held).sum::<u128>() == KeyRange::ALL.key_count();
        (all && !moving && stored.sessions.len() == 2).then_some(())
    })
    .await;
    owners
}

/// Waits until a Manager shows all that run, which term it is, and that its store is well.
async fn sees(manager: &RunningManager, all: &[SocketAddr], term: Term) {
    let mut expected: Vec<String> = all.iter().map(ToString::to_string).collect();
    expected.sort();
    eventually(async || {
        let status =
            support::admin(manager.grpc_addr()).await.status(v1::StatusRequest {}).await.ok()?.into_inner();
        let store = status.store.expect("a store");
        assert_eq!(store.kind, "etcd");
        let mut managers = status.managers;
        managers.sort();
        (managers == expected && status.term == term.0 && store.healthy).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_takes_over_from_a_killed_leader_with_the_same_leases() {
    let etcd = Etcd::shared();
    let options = etcd.options();
    let [first, second] = start_two(&options, &options).await;
    let managers = [first.grpc_addr(), second.grpc_addr()];
    let mut owners = pool(&first, &managers).await;
    let before = leases(&first, POOL);
    let held: Vec<_> = owners.iter().map(|owner| owner.seen.borrow().clone()).collect();
    let killed = Instant::now();
    first.crash().await;
    within(second.leads()).await;
    println!("leads {:?} after the kill; leader lease {:?}", killed.elapsed(), config().leader_lease);
    assert_eq!(leases(&second, POOL), before, "no lease has another number");
    for (owner, held) in owners.iter_mut().zip(held) {
        // It joined the new leader and goes on with what it had.
        let now = owner.until(|seen| seen.joined > held.joined).await;
        println!("an Owner goes on {:?} after the kill", killed.elapsed());
        assert_eq!((now.held, now.granted, now.revoked), (held.held, held.granted, held.revoked));
    }
    assert_eq!(leases(&second, POOL), before);
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_resigns_is_followed_at_once() {
    let etcd = Etcd::shared();
    let options = etcd.options();
    // An etcd lease of a minute: whoever waits for its end is too late.
    let slow = || Config { leader_lease: Duration::from_secs(60), ..config() };
    let first = start_with(&options, slow()).await;
    within(first.leads()).await;
    let second = start_with(&options, slow()).await;
    let third = start_with(&options, slow()).await;
    stands_by(&second, &first).await;
    stands_by(&third, &first).await;
    let managers = [first.grpc_addr(), second.grpc_addr(), third.grpc_addr()];
    let _owners = pool(&first, &managers).await;
    for manager in [&first, &second, &third] {
        sees(manager, &managers, first.view().role().term).await;
    }
    let before = leases(&first, POOL);
    let resigned = Instant::now();
    first.shutdown().await;
    let (new, other) = tokio::select! {
        () = within(second.leads()) => (second, third),
        () = within(third.leads()) => (third, second),
    };
    let took = resigned.elapsed();
    println!("takeover after a resignation: {took:?}");
    assert!(took < Duration::from_secs(30), "the lease of a minute was waited for");
    assert_eq!(leases(&new, POOL), before);
    assert_remembers(&new).await;
    stands_by(&other, &new).await;
    new.shutdown().await;
    other.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hello_to_a_standby_is_answered_when_it_leads() {
    let etcd = Etcd::shared();
    let options = etcd.options();
    let [first, second] = start_two(&options, &options).await;
    support::create(first.grpc_addr(), POOL).await;
    let hello = v1::Hello {
        namespace: POOL.to_owned(),
        session: write_session(credential::session_of(&Secret([7; 32]))),
        secret: vec![7; 32].into(),
        version: 2,
        number: 1,
        name: "one".to_owned(),
        url: "http://127.0.0.1:1".to_owned(),
        ..v1::Hello::default()
    };
    let message = v1::OwnerMessage { kind: Some(v1::owner_message::Kind::Hello(hello)) };
    // Nothing else is said on the stream, and it stays open.
    let messages = tokio_stream::iter([message]).chain(tokio_stream::pending());
    let session = support::owner(second.grpc_addr()).await.session(messages).await.expect("a stream");
    let mut answers = session.into_inner();
    let mut next = async || within(answers.message()).await.expect("well").expect("a message").kind;
    assert!(matches!(next().await, Some(v1::manager_message::Kind::NotLeader(_))));
    first.shutdown().await;
    let answer = next().await;
    assert!(matches!(answer, Some(v1::manager_message::Kind::Welcome(_))), "{answer:?}");
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_at_a_standby_is_answered_when_it_leads() {
    let etcd = Etcd::shared();
    let options = etcd.options();
    let [first, second] = start_two(&options, &options).await;
    support::create(first.grpc_addr(), POOL).await;
    let mut lookup = support::lookup(second.grpc_addr()).await;
    let mut watches = Vec::new();
    // The same Lookup asks twice: only its latest request is worth an answer.
    for seq in [1, 2] {
        let request = v1::WatchRequest { seq, ..support::watch_request(POOL, 1) };
        let mut watch = lookup.watch(request).await.expect("a stream").into_inner();
        let first = within(watch.message()).await.expect("well").expect("a message").kind;
        assert!(matches!(first, Some(v1::watch_reply::Kind::NotLeader(_))), "{first:?}");
        watches.push(watch);
    }
    first.shutdown().await;
    let answer = within(watches[1].message()).await.expect("well").expect("a message").kind;
    let Some(v1::watch_reply::Kind::Update(update)) = answer else { panic!("{answer:?}") };
    assert_eq!(update.echo, 2);
    second.shutdown().await;
}

/// What the leaders before it decided is history, and each decision is there once.
async fn assert_remembers(manager: &RunningManager) {
    let request = v1::HistoryRequest { namespace: Some(POOL.to_owned()), key: None, limit: 10_000 };
    let history =
        support::admin(manager.grpc_addr()).await.history(request).await.expect("answered").into_inner();
    let joins = history.decisions.iter().filter(|decision| decision.reason.contains("joined"));
    let joins: Vec<_> = joins.map(|decision| (decision.index, decision.owner.clone())).collect();
    assert!(joins.iter().any(|(_, owner)| owner.as_deref() == Some("one")), "{:?}", history.decisions);
    assert!(history.decisions.is_sorted_by_key(|decision| decision.index));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_key_is_deleted_stops_and_another_goes_on() {
    let etcd = Etcd::shared();
    let options = etcd.options();
    let [first, second] = start_two(&options, &options).await;
    let managers = [first.grpc_addr(), second.grpc_addr()];
    let _owners = pool(&first, &managers).await;
    let before = leases(&first, POOL);
    let term = first.view().role().term;
    etcd.control(&["del", &format!("{}leader", options.prefix)]);
    let leader = eventually(async || {
        let led = |manager: &RunningManager| {
            let role = manager.view().role();
            role.is_leading() && role.term > term
        };
        [&first, &second].into_iter().find(|manager| led(manager))
    })
    .await;
    assert_eq!(leases(leader, POOL), before);
    let other = if std::ptr::eq(leader, &first) { &second } else { &first };
    stands_by(other, leader).await;
    first.shutdown().await;
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_etcd_stops_and_leads_again_when_it_is_back() {
    let etcd = Etcd::start(3);
    let options = etcd.options();
    let manager = start(&options).await;
    within(manager.leads()).await;
    let managers = [manager.grpc_addr()];
    let _owners = pool(&manager, &managers).await;
    let before = leases(&manager, POOL);
    let term = manager.view().role().term;
    etcd.pause_all();
    let mut roles = manager.view().roles();
    within(roles.wait_for(|role| !role.is_leading())).await.expect("it runs");
    etcd.resume_all();
    within(manager.leads()).await;
    assert!(manager.view().role().term > term);
    assert_eq!(leases(&manager, POOL), before, "nothing was lost while etcd was gone");
    manager.shutdown().await;
}
