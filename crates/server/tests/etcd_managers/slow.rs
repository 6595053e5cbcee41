//! An etcd that is slow. A leader goes on or steps down; nothing that was committed is lost or there twice.
//!
//! No disk is slowed down here. Nodes are stopped and continued all the time: one whose disk takes long stands still in
//! the same way, heartbeats to its peers included. Answers that are late come from relays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::clients::{CONTACT, Clients, POOL, Witness, listed};
use crate::etcd_support::Etcd;
use crate::load::Load;
use crate::managers::{config, create, leader, leases, long_leases, shut_down, start, start_two, stops};
use crate::relay::{Relays, Way};
use crate::support::within;

/// How long a node that is slow does something between two times in which it does nothing.
const AWAKE: Duration = Duration::from_millis(60);
/// More commits than this mean that it goes on.
const ENOUGH: usize = 15;

/// Makes nodes stand still for so long, again and again, while `during` lasts.
async fn slowed(
    etcd: &Arc<Etcd>,
    nodes: &'static [usize],
    still: Duration,
    during: impl Future<Output = ()>,
) {
    let (stop, etcd) = (Arc::new(AtomicBool::new(false)), Arc::clone(etcd));
    let stopped = Arc::clone(&stop);
    let slowing = thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            nodes.iter().for_each(|node| etcd.pause(*node));
            thread::sleep(still);
            nodes.iter().for_each(|node| etcd.resume(*node));
            thread::sleep(AWAKE);
        }
    });
    during.await;
    stop.store(true, Ordering::Relaxed);
    slowing.join().expect("no panic");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_stand_still_now_and_then_cost_time_and_nothing_else() {
    let etcd = Arc::new(Etcd::start(3));
    let options = etcd.options();
    let managers = start_two(&options, &options).await;
    create(&managers[0], POOL, long_leases()).await;
    let clients = Clients::join(&listed(&managers), &managers[0], CONTACT).await;
    let (mut peace, witness) = (clients.peace(), Witness::of(&clients.owners));
    let before = leases(&managers[0], POOL);
    let load = Load::start(&managers);
    load.goes_on(ENOUGH).await;
    slowed(&etcd, &[0], Duration::from_millis(400), load.goes_on(ENOUGH)).await;
    // A majority: every commit waits for one of them.
    slowed(&etcd, &[0, 1], Duration::from_millis(250), load.goes_on(ENOUGH)).await;
    // Longer than a try of the Managers, and than etcd waits before it elects.
    let awhile = tokio::time::sleep(Duration::from_secs(8));
    slowed(&etcd, &[0, 1], Duration::from_millis(1_500), awhile).await;
    load.goes_on(ENOUGH).await;
    let leader = leader(&managers).await;
    println!("term {}", leader.view().role().term);
    assert_eq!(leases(leader, POOL), before, "no lease has another number");
    peace.assert_unbroken().await;
    witness.assert_one_owner();
    load.end(&options).await;
    shut_down(managers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_late_cost_time_and_in_the_end_the_leadership() {
    let etcd = Etcd::shared();
    let options = etcd.options();
    let relays = Relays::to(&etcd).await;
    let managers = start_two(&relays.through(&options), &options).await;
    let [first, second] = &managers;
    create(first, POOL, long_leases()).await;
    let clients = Clients::join(&listed(&managers), first, CONTACT).await;
    let (mut peace, witness) = (clients.peace(), Witness::of(&clients.owners));
    let before = leases(first, POOL);
    let term = first.view().role().term;
    let load = Load::start(&managers);
    relays.back.send_replace(Way::Slow(Duration::from_millis(300)));
    load.goes_on(ENOUGH).await;
    let role = first.view().role();
    assert!(role.is_leading() && role.term == term, "a slow answer is an answer");
    // Longer than a try: everything is done, and nothing is known to be.
    let stopped = stops(first);
    relays.back.send_replace(Way::Slow(Duration::from_millis(1_500)));
    within(second.leads()).await;
    let led = tokio::time::Instant::now();
    assert!(stopped.await.expect("no panic") < led, "two Managers led at once");
    load.goes_on(ENOUGH).await;
    relays.back.send_replace(Way::Open);
    peace.until_joined().await;
    load.goes_on(ENOUGH).await;
    assert_eq!(leases(second, POOL), before, "no lease has another number");
    peace.assert_unbroken().await;
    witness.assert_one_owner();
    load.end(&options).await;
    shut_down(managers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_is_found_and_stays_although_every_answer_takes_more_than_half_a_second() {
    let etcd = Etcd::shared();
    let options = etcd.options();
    let relays = Relays::to(&etcd).await;
    relays.back.send_replace(Way::Slow(Duration::from_millis(600)));
    let began = tokio::time::Instant::now();
    let manager = start(&relays.through(&options)).await;
    within(manager.leads()).await;
    println!("led after {:?}", began.elapsed());
    let term = manager.view().role().term;
    create(&manager, POOL, long_leases()).await;
    // Several leader leases later it is the same leader of the same term.
    let stopped = stops(&manager);
    tokio::time::sleep(config().leader_lease * 4).await;
    assert!(!stopped.is_finished(), "it went on leading");
    stopped.abort();
    assert_eq!(manager.view().role().term, term);
    assert!(term.0 <= 3, "a few tries at most: {term}");
    relays.back.send_replace(Way::Open);
    shut_down([manager]).await;
}
