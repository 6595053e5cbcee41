//! Two of three nodes are dead. Renewals go on while the leader lease lasts, nothing is granted, and nothing is lost if
//! a leader is back soon enough. After that everything ends, and begins again by itself.

use std::time::Duration;

use centrifuge::lookup::{Loss, LossReason};
use centrifuge::{Key, Managers, Owner};
use centrifuge_core::range_set::RangeSet;
use centrifuge_harness::wait::TIMEOUT;
use centrifuge_net::proto::v1;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::clients::{CONTACT, Clients, POOL, Witness, listed};
use crate::etcd_support::Etcd;
use crate::managers::{create, leader, leases, settings, shut_down, start, start_two, stops};
use crate::support::{TestOwner, eventually, within};

/// A pool of one Owner that notes who answers it.
const NOTED: &str = "noted";
/// A pool that nobody has joined yet.
const EMPTY: &str = "empty";

/// Joins a pool, and ends when it is granted something.
fn joins(managers: &Managers, namespace: &str) -> JoinHandle<Owner> {
    let owner = Owner::builder(managers.clone(), namespace).name("late").url("http://late");
    let joining = owner.join_timeout(TIMEOUT).join();
    tokio::spawn(async move {
        let owner = joining.await.expect("joined");
        eventually(async || (!owner.leases().is_empty()).then_some(())).await;
        owner
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_shorter_than_a_lease_costs_nothing() {
    let etcd = Etcd::start(3);
    let options = etcd.options();
    let managers = start_two(&options, &options).await;
    let first = &managers[0];
    let (lease, renewal) = (Duration::from_secs(24), Duration::from_secs(2));
    let scaled =
        v1::Settings { lease_ms: Some(24_000), hold_ms: Some(26_000), renewal_ms: Some(2_000), ..settings() };
    for namespace in [POOL, EMPTY] {
        create(first, namespace, scaled).await;
    }
    create(first, NOTED, settings()).await;
    let mut noted = TestOwner::start_among(&[first.grpc_addr()], NOTED, "noted");
    noted.until(|seen| seen.holds_everything()).await;
    let clients = Clients::join(&listed(&managers), first, CONTACT).await;
    let (mut peace, witness) = (clients.peace(), Witness::of(&clients.owners));
    let before = leases(first, POOL);

    let stopped = stops(first);
    etcd.kill(0);
    etcd.kill(1);
    let killed = Instant::now();
    let late = joins(&listed(&managers), EMPTY);
    let id = first.id();
    eventually(async || {
        let answered = noted.answered.lock().expect("no panic").get(&id).copied()?;
        (Instant::from_std(answered) > killed).then_some(())
    })
    .await;
    let stopped = within(stopped).await.expect("no panic");
    println!("renewals were answered for {:?} without a majority", stopped - killed);
    assert!(!late.is_finished(), "nothing is granted without a commit");
    etcd.restart(0);
    etcd.restart(1);
    let leader = leader(&managers).await;
    let back = stopped.elapsed();
    println!("a leader is back after {back:?}");
    assert!(back < lease - renewal, "the machine is too slow for this test");
    assert_eq!(leases(leader, POOL), before, "no lease has another number");
    peace.until_joined().await;
    peace.assert_unbroken().await;
    within(late).await.expect("no panic");
    peace.assert_unbroken().await;
    witness.assert_one_owner();
    shut_down(managers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_longer_than_a_lease_ends_everything_and_all_begins_again() {
    let etcd = Etcd::start(3);
    let options = etcd.options();
    let managers = start_two(&options, &options).await;
    create(&managers[0], POOL, settings()).await;
    let contact = Duration::from_secs(12);
    let clients = Clients::join(&listed(&managers), &managers[0], contact).await;
    let witness = Witness::of(&clients.owners);
    let mut losses: Vec<_> = clients.lookups.iter().map(centrifuge::Lookup::losses).collect();
    let keys: Vec<Key> = (0..16).map(|number| Key(number << 60)).collect();
    let held = |key: Key| clients.owners.iter().find_map(|owner| owner.check_lease_now(key).ok());
    let before: Vec<_> = keys.iter().map(|key| held(*key).expect("an owner")).collect();

    etcd.kill(0);
    etcd.kill(1);
    eventually(async || keys.iter().all(|key| held(*key).is_none()).then_some(())).await;
    for losses in &mut losses {
        let loss = within(losses.next()).await.expect("it runs");
        assert_eq!(loss, Loss { keys: RangeSet::all(), why: LossReason::OutOfContact });
    }
    assert!(clients.lookups.iter().all(|lookup| !lookup.in_contact()));
    assert!(keys.iter().all(|key| held(*key).is_none()), "nobody answers for anything");

    etcd.restart(0);
    etcd.restart(1);
    clients.at_rest(leader(&managers).await).await;
    eventually(async || clients.lookups.iter().all(centrifuge::Lookup::in_contact).then_some(())).await;
    for (key, before) in keys.iter().zip(before) {
        assert!(held(*key).is_some_and(|lease| lease > before), "{key:?} has another lease than {before}");
    }
    witness.assert_one_owner();
    shut_down(managers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_is_started_in_an_outage_waits_for_its_end() {
    let etcd = Etcd::start(1);
    let options = etcd.options();
    etcd.kill(0);
    let mut starting = tokio::spawn(async move { start(&options).await });
    // Longer than one try to open the store.
    let tries = tokio::time::timeout(Duration::from_secs(12), &mut starting);
    assert!(tries.await.is_err(), "it neither started nor gave up");
    etcd.restart(0);
    let manager = within(starting).await.expect("no panic");
    within(manager.leads()).await;
    manager.shutdown().await;
}
