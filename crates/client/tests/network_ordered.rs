//! Namespaces with ordered keys at a real Manager, over real connections on this machine: who fits, and what happens to who does not.

mod support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use centrifuge::keys::{Interval, KeyPrefix};
use centrifuge::lookup::{ConnectError, LossReason};
use centrifuge::owner::{BoxError, Change, JoinError, LeftReason};
use centrifuge::router::{Refusal, Router, RouterError};
use centrifuge::{LeasedMap, Lookup, Managers, NoKey, NoOwner, NotOwner, Ordered, Owner};
use centrifuge_harness::wait::{TIMEOUT, within};
use centrifuge_net::dial::{Channel, Dialer};
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::admin_client::AdminClient;
use centrifuge_server::RunningManager;

use support::POOL;

const USERS: &str = "users";

type Users = LeasedMap<String, u32, Ordered>;
/// The servers of the pool, by url: what a network between them would be.
type Pool = Arc<Mutex<HashMap<String, (Users, Owner<Ordered>)>>>;

async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(TIMEOUT, waiting).await.is_ok(), "in time: {what}");
}

fn managers(manager: &RunningManager) -> Managers {
    Managers::list([manager.grpc_addr().to_string()]).expect("an address")
}

fn admin(manager: &RunningManager) -> AdminClient<Channel> {
    Dialer::new().admin(&manager.id()).expect("an address")
}

fn ordered(prefix: &str) -> Option<v1::NamespaceKind> {
    let keys = Some(v1::KeyKind::Ordered.into());
    Some(v1::NamespaceKind { keys, key_prefix: Some(prefix.as_bytes().to_vec().into()), mode: None })
}

async fn create(manager: &RunningManager, kind: Option<v1::NamespaceKind>) {
    let settings = v1::Settings {
        lease_ms: Some(3_000),
        hold_ms: Some(3_300),
        renewal_ms: Some(500),
        answer_allowance_ms: Some(500),
        settle_ms: Some(50),
        partitioner: Some(v1::Partitioner::Fixed.into()),
        ..v1::Settings::default()
    };
    let request = v1::CreateNamespaceRequest { namespace: USERS.to_owned(), settings: Some(settings), kind };
    admin(manager).create_namespace(request).await.expect("created");
}

async fn delete(manager: &RunningManager) {
    let request = v1::DeleteNamespaceRequest { namespace: USERS.to_owned() };
    admin(manager).delete_namespace(request).await.expect("deleted");
}

/// A server of the pool: its state, and the Owner that holds leases for it.
async fn server(manager: &RunningManager, pool: &Pool, name: &str) -> (Users, Owner<Ordered>) {
    let users = Users::ordered();
    let carried = Arc::clone(pool);
    let carry = move |url: String, bytes: Vec<u8>| {
        let pool = Arc::clone(&carried);
        async move {
            let server = pool.lock().expect("no panic").get(&url).cloned();
            let (users, owner) = server.ok_or("no such server")?;
            Ok::<_, BoxError>(users.handle(&owner, &bytes).await)
        }
    };
    let joining = Owner::ordered(managers(manager), USERS)
        .name(name)
        .url(&format!("http://{name}"))
        .state(&users, carry)
        .join();
    let owner = within(joining).await.expect("joined");
    pool.lock().expect("no panic").insert(format!("http://{name}"), (users.clone(), owner.clone()));
    (users, owner)
}

async fn lookup(manager: &RunningManager) -> Lookup<Ordered> {
    let connecting = Lookup::ordered(managers(manager), USERS).poll(Duration::from_millis(500)).connect();
    within(connecting).await.expect("a table")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_the_other_kind_are_refused_and_told_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = support::start(folder.path(), None).await;
    create(&manager, ordered("user/")).await;

    let hashed = within(Owner::builder(managers(&manager), USERS).url("http://a").join()).await;
    assert!(matches!(hashed, Err(JoinError::WrongKeys { .. })), "{:?}", hashed.err());
    let told = hashed.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(told.contains("users does not have hashed keys") && told.contains("Owner::ordered"), "{told}");
    let caller = within(Lookup::builder(managers(&manager), USERS).connect()).await;
    let told = caller.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(told.contains("users does not have hashed keys") && told.contains("Lookup::ordered"), "{told}");

    let ordered = within(Owner::ordered(managers(&manager), POOL).url("http://a").join()).await;
    assert!(matches!(ordered, Err(JoinError::WrongKeys { .. })), "{:?}", ordered.err());
    let caller = within(Lookup::ordered(managers(&manager), POOL).connect()).await;
    assert!(matches!(caller, Err(ConnectError::WrongKeys { .. })), "{:?}", caller.err());
    manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordered_state_moves_between_servers_and_is_visited_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = support::start(folder.path(), None).await;
    create(&manager, ordered("user/")).await;
    let pool = Pool::default();
    let (a_users, a) = server(&manager, &pool, "a").await;
    let lookup = lookup(&manager).await;
    assert_eq!(lookup.prefix(), KeyPrefix::new(b"user/").ok());
    // One of each half of the key space, so that equal slices divide them.
    let names = ["user/Ada", "user/Bob", "user/\u{e9}mile", "user/\u{f8}ystein"].map(str::to_owned);
    eventually("a owns everything", || a_users.scan::<&str>(.., 0).is_ok()).await;
    for (name, number) in names.iter().zip(0..) {
        a_users.insert(name.clone(), number).expect("the only Owner owns everything");
    }
    let (b_users, b) = server(&manager, &pool, "b").await;
    let has = |users: &Users, name: &String| users.get(name).is_ok_and(|found| found.value.is_some());
    eventually("b has its half", || has(&b_users, &names[2]) && has(&b_users, &names[3])).await;
    assert!(has(&a_users, &names[0]) && has(&a_users, &names[1]));

    let router = Router::new(lookup.clone());
    let ask = |route: centrifuge::Route, part: Interval| {
        let server = pool.lock().expect("no panic").get(route.url()).cloned();
        async move {
            let (users, _) = server.ok_or(Refusal::Unreachable("no such server"))?;
            let to = part.to.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
            let scan = users.scan((std::ops::Bound::Included(part.from), to), usize::MAX);
            scan.map(|scan| scan.entries).map_err(|_| Refusal::NotOwner)
        }
    };
    let found = within(router.visit::<&str, _, _, _, _>(.., ask)).await.expect("all answer");
    let found: Vec<String> = found.into_iter().flatten().map(|(name, _)| name).collect();
    assert_eq!(found, names);
    for owner in [a, b] {
        within(owner.leave(TIMEOUT)).await.expect("confirmed");
    }
    manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_takes_the_place_of_another_is_not_mixed_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = support::start(folder.path(), None).await;
    create(&manager, ordered("user/")).await;
    let pool = Pool::default();
    let (users, a) = server(&manager, &pool, "a").await;
    let lookup = lookup(&manager).await;
    let (mut losses, router) = (lookup.losses(), Router::new(lookup.clone()));
    let key = lookup.key_of("user/1").expect("it has the prefix");
    eventually("a owns it", || a.check_lease_now(key).is_ok() && lookup.lookup(key).is_ok()).await;
    users.insert("user/1".to_owned(), 1).expect("its owner");
    let mut changes = a.changes();
    // The Owner is cut off from the Manager in effect: its session ends, but the process and its machine live on.
    let evict = v1::EvictRequest { namespace: USERS.to_owned(), owner: "a".to_owned(), why: String::new() };
    admin(&manager).evict(evict).await.expect("evicted");
    within(async { while changes.next().await != Some(Change::Left(LeftReason::Evicted)) {} }).await;
    eventually("a holds nothing", || a.leases().is_empty()).await;
    within(async {
        let request = v1::DeleteNamespaceRequest { namespace: USERS.to_owned() };
        while admin(&manager).delete_namespace(request.clone()).await.is_err() {}
    })
    .await;
    create(&manager, ordered("account/")).await;

    let replaced = within(async {
        loop {
            match losses.next().await {
                Some(loss) if loss.why == LossReason::NamespaceReplaced => break loss,
                Some(_) => {}
                None => panic!("the Lookup lives"),
            }
        }
    });
    assert!(replaced.await.keys.contains(key.key()), "all is lost");
    let (b_users, b) = server(&manager, &pool, "b").await;
    eventually("the Lookup has the next table", || lookup.prefix() == KeyPrefix::new(b"account/").ok()).await;
    assert!(matches!(lookup.key_of("user/1"), Err(NoKey::Outside(_))));
    assert_eq!(lookup.lookup(key), Err(NoOwner::Replaced), "a key of then means nothing now");
    assert_eq!(b.check_lease_now(key), Err(NotOwner::NoLease));
    let sent = within(router.send(key, |_| async { Ok::<(), Refusal<&str>>(()) })).await;
    assert!(matches!(sent, Err(RouterError::NoOwner { why: NoOwner::Replaced, .. })), "{sent:?}");
    eventually("b owns what there is now", || b_users.insert("account/1".to_owned(), 2).is_ok()).await;
    assert_eq!(b_users.insert("user/1".to_owned(), 2).map(|_| ()), Err(NotOwner::OutsidePrefix));

    // The next one has hashed keys: the Lookup does not fit any more, and says so at once.
    within(b.leave(TIMEOUT)).await.expect("confirmed");
    delete(&manager).await;
    create(&manager, None).await;
    eventually("the Lookup is refused", || lookup.prefix().is_none()).await;
    let key = key_of_then(&b);
    let sent = within(router.send(key, |_| async { Ok::<(), Refusal<&str>>(()) })).await;
    assert!(matches!(sent, Err(RouterError::WrongKind { .. })), "{sent:?}");
    manager.shutdown().await;
}

/// A key that the Owner of the last namespace still makes.
fn key_of_then(owner: &Owner<Ordered>) -> centrifuge::OrderedKey {
    owner.key_of("account/1").expect("it was told the prefix")
}
