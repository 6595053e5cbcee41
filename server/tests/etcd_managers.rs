//! Several Managers on one etcd: whoever leads, leases and generations stay.

mod etcd_support;
mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use centrifuge_core::group::Group;
use centrifuge_core::id::Namespace;
use centrifuge_core::key::KeyRange;
use centrifuge_core::manager::RoleName;
use centrifuge_server::store::EtcdOptions;
use centrifuge_server::{Config, Manager, RunningManager};
use etcd_support::{Etcd, backend};
use support::{TestOwner, eventually, within};

const POOL: &str = "pool";

/// Two seconds are the shortest lease that etcd gives: the leader lease just fits.
fn config() -> Config {
    Config {
        leader_lease: Duration::from_millis(1_800),
        campaign_interval: Duration::from_millis(400),
        ..support::config()
    }
}

async fn start(options: &EtcdOptions, config: Config) -> RunningManager {
    Manager::start(config, backend(options)).await.expect("it starts")
}

/// Waits until one of them knows who leads and does not lead itself.
async fn stands_by(manager: &RunningManager, leader: &RunningManager) {
    let id = leader.id();
    let mut roles = manager.view().roles();
    within(roles.wait_for(|role| role.role == RoleName::Standby && role.leader.as_ref() == Some(&id)))
        .await
        .expect("it runs");
}

fn group(manager: &RunningManager) -> Arc<Group> {
    manager.view().group().expect("it leads")
}

/// Every lease of the pool: range, owner, number, and since when its state is.
fn leases(group: &Group) -> Vec<String> {
    let stored = &group.namespaces[&Namespace::new(POOL).expect("a label")];
    stored.table.iter().map(|entry| format!("{entry:?}")).collect()
}

/// A pool with two Owners that hold everything between them.
async fn pool(leader: &RunningManager, managers: &[SocketAddr]) -> [TestOwner; 2] {
    support::create(leader.grpc_addr(), POOL).await;
    let mut owners = ["one", "two"].map(|name| TestOwner::start_among(managers, POOL, name));
    for owner in &mut owners {
        owner.until(|seen| !seen.held.is_empty()).await;
    }
    // Until nothing moves any more, and both know what they have.
    eventually(async || {
        let group = group(leader);
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

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_takes_over_from_a_killed_leader_with_the_same_leases() {
    let etcd = Etcd::shared();
    let options = etcd.options();
    let first = start(&options, config()).await;
    within(first.leads()).await;
    let second = start(&options, config()).await;
    stands_by(&second, &first).await;
    let managers = [first.grpc_addr(), second.grpc_addr()];
    let mut owners = pool(&first, &managers).await;
    let before = leases(&group(&first));
    let held: Vec<_> = owners.iter().map(|owner| owner.seen.borrow().clone()).collect();
    let killed = Instant::now();
    first.crash().await;
    within(second.leads()).await;
    println!("leads {:?} after the kill; leader lease {:?}", killed.elapsed(), config().leader_lease);
    assert_eq!(leases(&group(&second)), before, "no lease has another number");
    for (owner, held) in owners.iter_mut().zip(held) {
        // It joined the new leader and goes on with what it had.
        let now = owner.until(|seen| seen.joined > held.joined).await;
        assert_eq!((now.held, now.granted, now.revoked), (held.held, held.granted, held.revoked));
    }
    assert_eq!(leases(&group(&second)), before);
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_resigns_is_followed_at_once() {
    let etcd = Etcd::shared();
    let options = etcd.options();
    // An etcd lease of a minute: whoever waits for its end is too late.
    let slow = || Config { leader_lease: Duration::from_secs(60), ..config() };
    let first = start(&options, slow()).await;
    within(first.leads()).await;
    let second = start(&options, slow()).await;
    let third = start(&options, slow()).await;
    stands_by(&second, &first).await;
    stands_by(&third, &first).await;
    let managers = [first.grpc_addr(), second.grpc_addr(), third.grpc_addr()];
    let _owners = pool(&first, &managers).await;
    let before = leases(&group(&first));
    let resigned = Instant::now();
    first.shutdown().await;
    let (new, other) = tokio::select! {
        () = within(second.leads()) => (second, third),
        () = within(third.leads()) => (third, second),
    };
    let took = resigned.elapsed();
    println!("takeover after a resignation: {took:?}");
    assert!(took < Duration::from_secs(30), "the lease of a minute was waited for");
    assert_eq!(leases(&group(&new)), before);
    stands_by(&other, &new).await;
    new.shutdown().await;
    other.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_key_is_deleted_stops_and_another_goes_on() {
    let etcd = Etcd::shared();
    let options = etcd.options();
    let first = start(&options, config()).await;
    within(first.leads()).await;
    let second = start(&options, config()).await;
    stands_by(&second, &first).await;
    let managers = [first.grpc_addr(), second.grpc_addr()];
    let _owners = pool(&first, &managers).await;
    let before = leases(&group(&first));
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
    assert_eq!(leases(&group(leader)), before);
    let other = if std::ptr::eq(leader, &first) { &second } else { &first };
    stands_by(other, leader).await;
    first.shutdown().await;
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_etcd_stops_and_leads_again_when_it_is_back() {
    let etcd = Etcd::start(3);
    let options = etcd.options();
    let manager = start(&options, config()).await;
    within(manager.leads()).await;
    let managers = [manager.grpc_addr()];
    let _owners = pool(&manager, &managers).await;
    let before = leases(&group(&manager));
    let term = manager.view().role().term;
    etcd.pause_all();
    let mut roles = manager.view().roles();
    within(roles.wait_for(|role| !role.is_leading())).await.expect("it runs");
    etcd.resume_all();
    within(manager.leads()).await;
    assert!(manager.view().role().term > term);
    assert_eq!(leases(&group(&manager)), before, "nothing was lost while etcd was gone");
    manager.shutdown().await;
}
