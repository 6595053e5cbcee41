//! The network between the leader and etcd is cut in one direction. The leader stops by itself before anybody else
//! leads, and what it had sent arrives too late to do harm.

use std::net::SocketAddr;
use std::time::Duration;

use centrifuge_core::id::ManagerId;
use centrifuge_net::proto::v1;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::clients::{CONTACT, Clients, POOL, Witness, listed};
use crate::etcd_support::Etcd;
use crate::load::{assert_whole, contents, creations};
use crate::managers::{config, create, leases, long_leases, shut_down, stands_by, start_two, stops};
use crate::relay::{Relays, Way};
use crate::support::{self, TestOwner, eventually, within};

/// A pool of one Owner that notes who answers it.
const NOTED: &str = "noted";
/// What is created at the leader while it is cut off.
const LATE: &str = "late";
/// How much later than by its own clock a busy machine may see a leader stop.
const BUSY: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_etcd_does_not_hear_stops() {
    // What it sends arrives when somebody else leads, and is fenced.
    assert_eq!(cut_off(|relays| &relays.there).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_does_not_hear_etcd_stops() {
    // What it sends arrives, and the next leader finds it: nobody was told that it failed.
    assert_eq!(cut_off(|relays| &relays.back).await, 1);
}

/// How often the log has what was asked of the leader while it was cut off.
async fn cut_off(direction: impl Fn(&Relays) -> &watch::Sender<Way>) -> usize {
    let etcd = Etcd::shared();
    let options = etcd.options();
    let relays = Relays::to(&etcd).await;
    let [first, second] = start_two(&relays.through(&options), &options).await;
    create(&first, POOL, long_leases()).await;
    create(&first, NOTED, long_leases()).await;
    let addresses = [first.grpc_addr(), second.grpc_addr()];
    let mut noted = TestOwner::start_among(&addresses, NOTED, "noted");
    noted.until(|seen| seen.holds_everything()).await;
    let clients = Clients::join(&listed([&first, &second]), &first, CONTACT).await;
    let (mut peace, witness) = (clients.peace(), Witness::of(&clients.owners));
    let before = leases(&first, POOL);

    let (stopped, cut) = (stops(&first), Instant::now());
    direction(&relays).send_replace(Way::Cut);
    let late = tokio::spawn(ask(addresses[0]));
    within(second.leads()).await;
    let led = Instant::now();
    let stopped = stopped.await.expect("no panic");
    println!("stopped {:?} after the cut; another leads {:?} after it", stopped - cut, led - cut);
    assert!(stopped < led, "two Managers led at once");
    assert!(stopped - cut < config().leader_lease + BUSY, "it led on without etcd");
    assert!(!within(late).await.expect("no panic"), "it was answered and not committed");
    assert_eq!(leases(&second, POOL), before, "no lease has another number");

    peace.until_joined().await;
    eventually(async || last_answer(&noted, &second.id())).await;
    let last = last_answer(&noted, &first.id()).expect("it led");
    assert!(last < led, "a leader answered {:?} after another led", last - led);
    peace.assert_unbroken().await;

    direction(&relays).send_replace(Way::Open);
    stands_by(&first, &second).await;
    second.shutdown().await;
    within(first.leads()).await;
    assert_eq!(leases(&first, POOL), before, "no lease has another number");
    peace.until_joined().await;
    peace.assert_unbroken().await;
    witness.assert_one_owner();
    let contents = contents(&options).await;
    assert_whole(&contents);
    shut_down([first]).await;
    creations(&contents).filter(|name| name == LATE).count()
}

/// Asks one Manager for something that it must commit. True if it says that this is done.
async fn ask(at: SocketAddr) -> bool {
    let request = v1::CreateNamespaceRequest { namespace: LATE.to_owned(), settings: None, kind: None };
    support::admin(at).await.create_namespace(request).await.is_ok()
}

/// When a Manager last answered for leases.
fn last_answer(owner: &TestOwner, manager: &ManagerId) -> Option<Instant> {
    owner.answered.lock().expect("no panic").get(manager).copied().map(Instant::from_std)
}
