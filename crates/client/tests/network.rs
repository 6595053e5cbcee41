//! Owners and Lookups with a real Manager, over real connections on this machine.

mod support;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use centrifuge::lookup::ConnectError;
use centrifuge::owner::{BoxError, Change, JoinError, LeftReason, NotDrained, OwnerBuilder, OwnerGone};
use centrifuge::router::{Refusal, Router, RouterError};
use centrifuge::{Key, KeyRange, LeasedMap, Lookup, Managers, NotOwner, Owner};
use centrifuge_harness::wait::{TIMEOUT, within};
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use centrifuge_server::RunningManager;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use support::POOL;

type Rooms = LeasedMap<String, u32>;
/// The servers of the pool, by url: what a network between them would be.
type Pool = Arc<Mutex<HashMap<String, (Rooms, Owner)>>>;

/// Looks again and again until it is so.
async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(TIMEOUT, waiting).await.is_ok(), "in time: {what}");
}

async fn start(folder: &Path) -> RunningManager {
    support::start(folder, None).await
}

fn managers(manager: &RunningManager) -> Managers {
    Managers::list([manager.grpc_addr().to_string()]).expect("an address")
}

fn builder(manager: &RunningManager, name: &str) -> OwnerBuilder {
    Owner::builder(managers(manager), POOL).name(name).url(&format!("http://{name}"))
}

/// Carries bytes to another server of the pool.
async fn carry(pool: Pool, url: String, bytes: Vec<u8>) -> Result<Vec<u8>, BoxError> {
    let server = pool.lock().expect("no panic").get(&url).cloned();
    let (rooms, owner) = server.ok_or("no such server")?;
    Ok(rooms.handle(&owner, &bytes).await)
}

/// A server of the pool: its state, and the Owner that holds leases for it.
async fn server(manager: &RunningManager, pool: &Pool, name: &str) -> (Rooms, Owner) {
    let rooms = Rooms::new();
    let carried = Arc::clone(pool);
    let joining = builder(manager, name)
        .state(&rooms, move |url, bytes| carry(Arc::clone(&carried), url, bytes))
        .join();
    let owner = within(joining).await.expect("joined");
    pool.lock().expect("no panic").insert(format!("http://{name}"), (rooms.clone(), owner.clone()));
    (rooms, owner)
}

fn holds_everything(owner: &Owner) -> bool {
    let keys: u128 = owner.leases().iter().map(|lease| lease.range.key_count()).sum();
    keys == KeyRange::ALL.key_count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_moves_between_servers_and_is_told_lost_only_where_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path()).await;
    let pool = Pool::default();
    let (rooms, a) = server(&manager, &pool, "a").await;
    eventually("a holds everything", || holds_everything(&a)).await;
    let lookup = within(Lookup::builder(managers(&manager), POOL).connect()).await.expect("a table");
    eventually("the Lookup knows a", || lookup.lookup(Key(1)).is_ok()).await;
    let mut losses = lookup.losses();
    let since = |name: &str| lookup.state_since(Key::of(name.as_bytes())).expect("a table");
    let began = since("room-0");
    let names: Vec<String> = (0..100).map(|number| format!("room-{number}")).collect();
    for (name, number) in names.iter().zip(0..) {
        rooms.insert(name.clone(), number).expect("a holds everything");
    }
    let (others, b) = server(&manager, &pool, "b").await;
    within(a.drain()).await.expect("drained");
    eventually("b holds everything", || holds_everything(&b)).await;
    for (name, number) in names.iter().zip(0..) {
        assert_eq!(others.get(name).expect("b holds everything").value, Some(number), "{name}");
        assert_eq!(rooms.get(name), Err(NotOwner::NoLease));
    }
    within(a.leave(TIMEOUT)).await.expect("confirmed");
    assert_eq!(a.left(), Some(LeftReason::Asked));

    let session = b.session();
    let routed_to = |key: Key| lookup.lookup(key).map(|route| route.session());
    eventually("the Lookup knows b", || routed_to(Key::of(b"room-0")) == Ok(session)).await;
    assert_eq!(since("room-0"), began, "its state moved, and did not begin anew");
    pool.lock().expect("no panic").clear();
    drop((others, b));
    let (_, c) = server(&manager, &pool, "c").await;
    eventually("c holds everything", || holds_everything(&c)).await;
    // Moving cost nothing, so the first loss told is of the server that was dropped, once another has its keys.
    let loss = within(losses.next()).await.expect("a loss");
    let key = loss.keys.iter().next().expect("keys").first();
    let route = lookup.lookup(key).expect("an owner");
    assert_eq!(lookup.state_since(key), Some(route.generation()), "who looks finds the loss that is told");
    assert_ne!(lookup.state_since(key), Some(began));
    assert!(route.session() == c.session() && route.session() != session);
    let router = Router::new(lookup);
    let asked = router.send(key, |route| {
        let answer = c.check_lease_now(key).map(|_| route.url().to_owned());
        async move { answer.map_err(|_| Refusal::<String>::NotOwner) }
    });
    assert_eq!(within(asked).await, Ok("http://c".to_owned()));
    manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recall_waits_for_operations_in_flight() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path()).await;
    let a = within(builder(&manager, "a").join()).await.expect("joined");
    eventually("a holds everything", || holds_everything(&a)).await;
    let key = Key::of(b"room-7");
    let guard = a.begin(key).expect("a holds everything");
    let b = within(builder(&manager, "b").join()).await.expect("joined");
    let draining = tokio::spawn({
        let a = a.clone();
        async move { a.drain().await }
    });
    eventually("new operations are refused", || a.check_lease_now(key) == Err(NotOwner::Moving)).await;
    assert!(a.begin(key).is_err() && guard.recheck() && b.check_lease_now(key).is_err());
    drop(guard);
    within(draining).await.expect("no panic").expect("drained");
    eventually("b holds the key", || b.check_lease_now(key).is_ok()).await;
    manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_ends_its_drain_keeps_its_ranges_and_can_drain_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path()).await;
    let a = within(builder(&manager, "a").join()).await.expect("joined");
    eventually("a holds everything", || holds_everything(&a)).await;
    let draining = tokio::spawn({
        let a = a.clone();
        async move { a.drain().await }
    });
    eventually("the drain waits: nobody else can take the ranges", || a.drain_waits()).await;
    within(a.undrain()).await.expect("it lives");
    assert_eq!(within(draining).await.expect("no panic"), Err(NotDrained::Undrained));
    eventually("the Manager knows", || !a.drain_waits()).await;
    assert!(holds_everything(&a), "nothing was lost");

    let b = within(builder(&manager, "b").join()).await.expect("joined");
    within(a.drain()).await.expect("drained");
    assert!(a.leases().is_empty());
    within(a.undrain()).await.expect("it lives");
    eventually("a has a share again", || !a.leases().is_empty()).await;
    within(a.drain()).await.expect("drained a second time");
    assert!(a.leases().is_empty());
    eventually("b holds everything", || holds_everything(&b)).await;
    manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_application_gives_its_leases_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path()).await;
    let joining = builder(&manager, "a").heartbeat(Duration::from_secs(2)).join();
    let a = within(joining).await.expect("joined");
    eventually("a holds everything, alive as it is", || {
        a.alive();
        holds_everything(&a)
    })
    .await;
    eventually("a has left", || a.left().is_some()).await;
    assert_eq!(a.left(), Some(LeftReason::Heartbeat));
    assert_eq!(a.leases(), []);
    manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_say_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path()).await;
    let nowhere = Owner::builder(managers(&manager), "nowhere").url("http://a").join();
    assert!(matches!(within(nowhere).await, Err(JoinError::UnknownNamespace(_))));
    let a = within(builder(&manager, "a").join()).await.expect("joined");
    eventually("a holds everything", || holds_everything(&a)).await;
    let second = within(builder(&manager, "a").join()).await;
    assert!(matches!(second, Err(JoinError::NameInUse(_))), "{second:?}");
    let no_url = Owner::builder(managers(&manager), POOL).join();
    assert!(matches!(within(no_url).await, Err(JoinError::NoUrl)));
    let alone = Managers::list(["127.0.0.1:1"]).expect("an address");
    let twice = builder(&manager, "b").on_migrate_out(|_| async { Err("no".into()) }).migrations().0.join();
    assert!(matches!(within(twice).await, Err(JoinError::MovesTwice)));
    let probed = builder(&manager, "b").probe(|| async { true }).join();
    assert!(matches!(within(probed).await, Err(JoinError::ProbeWithoutHeartbeat)));
    let dead = builder(&manager, "b").heartbeat(Duration::ZERO).join();
    assert!(matches!(within(dead).await, Err(JoinError::ZeroHeartbeat)));
    let restless = Lookup::builder(managers(&manager), POOL).poll(Duration::ZERO).connect();
    assert!(matches!(within(restless).await, Err(ConnectError::ZeroInterval)));
    let short = Lookup::builder(managers(&manager), POOL).contact_timeout(Duration::from_secs(50)).connect();
    assert!(matches!(within(short).await, Err(ConnectError::ContactTooShort)));
    let impatient =
        Owner::builder(alone, POOL).url("http://a").join_timeout(Duration::from_millis(300)).join();
    assert!(matches!(within(impatient).await, Err(JoinError::NoLeader { .. })));
    manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_that_began_before_a_move_ends_with_it_and_what_it_wrote_moves() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path()).await;
    let pool = Pool::default();
    let (rooms, a) = server(&manager, &pool, "a").await;
    eventually("a holds everything", || holds_everything(&a)).await;
    let room = "room-7".to_owned();
    let key = Key::of(room.as_bytes());
    let operation = a.begin(key).expect("a holds everything");
    let (others, b) = server(&manager, &pool, "b").await;
    let draining = tokio::spawn({
        let a = a.clone();
        async move { a.drain().await }
    });
    eventually("the range is frozen", || a.check_lease_now(key) == Err(NotOwner::Moving)).await;
    assert_eq!(rooms.insert(room.clone(), 6).map(|_| ()), Err(NotOwner::Moving), "nothing begins any more");
    rooms.with_guard(&operation, &room, |slot, _| *slot = Some(7)).expect("the move waits for the operation");
    assert!(operation.recheck());
    drop(operation);
    within(draining).await.expect("no panic").expect("drained");
    eventually("b holds everything", || holds_everything(&b)).await;
    assert_eq!(others.get(&room).expect("b holds everything").value, Some(7));
    manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_move_by_the_stream_of_migrations() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path()).await;
    let (describing, mut migrations) = builder(&manager, "a").migrations();
    let a = within(describing.join()).await.expect("joined");
    eventually("a holds everything", || holds_everything(&a)).await;
    let lookup = within(Lookup::builder(managers(&manager), POOL).connect()).await.expect("a table");
    eventually("the Lookup knows a", || lookup.lookup(Key(1)).is_ok()).await;
    let mut losses = lookup.losses();
    let b = within(builder(&manager, "b").join()).await.expect("joined");
    let mut changes = b.changes();
    // Whoever reads the stream sends the state of each range; here there is none, so that only the words are said.
    let (moving, taking) = (
        tokio::spawn({
            let a = a.clone();
            async move { a.drain().await }
        }),
        b.clone(),
    );
    let serving = tokio::spawn(async move {
        while let Some(mut migration) = migrations.next().await {
            let arriving = taking.begin_import(migration.out.offer()).expect("the newest");
            let session = arriving.complete().await.expect("b lives");
            assert!(!migration.is_void());
            migration.out.freeze().await.expect("nobody changed their mind");
            migration.done(session);
        }
    });
    within(moving).await.expect("no panic").expect("drained");
    eventually("b holds everything", || holds_everything(&b)).await;
    let granted = within(async {
        loop {
            if let Some(Change::Granted(lease)) = changes.next().await {
                break lease;
            }
        }
    });
    assert!(granted.await.source.is_some(), "the state came with it");
    assert!(b.leases().iter().all(|lease| lease.state_since < lease.generation), "nothing began anew");
    within(a.leave(TIMEOUT)).await.expect("confirmed");
    drop(a);
    within(serving).await.expect("the stream ends with the Owner");
    drop(lookup);
    assert_eq!(within(losses.next()).await, None, "moving loses nothing");
    manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicted_process_knows_it_and_holds_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path()).await;
    let a = within(builder(&manager, "a").join()).await.expect("joined");
    eventually("a holds everything", || holds_everything(&a)).await;
    let request = v1::EvictRequest { namespace: POOL.into(), owner: "a".into(), why: "a test".into() };
    let mut admin = Dialer::new().admin(&manager.id()).expect("an address");
    admin.evict(request).await.expect("evicted");
    eventually("a knows", || a.left().is_some()).await;
    assert_eq!(a.left(), Some(LeftReason::Evicted));
    assert_eq!(a.leases(), []);
    assert!(a.drain().await == Err(NotDrained::Gone(OwnerGone { why: LeftReason::Evicted })));
    let again = within(builder(&manager, "a").wait_for_name().join()).await.expect("a new process may join");
    eventually("the new process holds everything", || holds_everything(&again)).await;
    manager.shutdown().await;
}

/// Carries bytes to a Manager. Connections that were open when it was muted carry nothing more and stay open, as after a cut that
/// nobody was told of; later ones are well.
struct Relay {
    address: SocketAddr,
    mutings: watch::Sender<u32>,
}

impl Relay {
    async fn to(manager: SocketAddr) -> Relay {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (mutings, muted) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(manager).await.expect("the Manager runs");
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                tokio::spawn(carry_bytes(from_client, to_server, muted.clone()));
                tokio::spawn(carry_bytes(from_server, to_client, muted.clone()));
            }
        });
        Relay { address, mutings }
    }

    fn mute(&self) {
        self.mutings.send_modify(|mutings| *mutings += 1);
    }
}

async fn carry_bytes(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    muted: watch::Receiver<u32>,
) {
    let before = *muted.borrow();
    let mut bytes = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        if *muted.borrow() == before && to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_died_in_silence_is_replaced_before_a_lease_is_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path()).await;
    let settings = v1::Settings {
        lease_ms: Some(20_000),
        hold_ms: Some(22_000),
        renewal_ms: Some(2_000),
        settle_ms: Some(50),
        ..v1::Settings::default()
    };
    let request =
        v1::CreateNamespaceRequest { namespace: "calm".to_owned(), settings: Some(settings), kind: None };
    let address = manager.grpc_addr().to_string().as_str().into();
    Dialer::new().admin(&address).expect("an address").create_namespace(request).await.expect("created");
    let relay = Relay::to(manager.grpc_addr()).await;
    let managers = Managers::list([relay.address.to_string()]).expect("an address");
    let joining = Owner::builder(managers.clone(), "calm").name("a").url("http://a").join();
    let owner = within(joining).await.expect("joined");
    eventually("a holds everything", || holds_everything(&owner)).await;
    let lookup = Lookup::builder(managers, "calm").poll(Duration::from_secs(2)).connect();
    let lookup = within(lookup).await.expect("a table");
    eventually("the Lookup knows a", || lookup.lookup(Key(1)).is_ok()).await;
    let mut changes = owner.changes();
    relay.mute();
    // The keep-alive of the connection would notice after the lease.
    assert_eq!(within(changes.next()).await, Some(Change::Joined), "no lease was lost");
    let seen = lookup.position();
    within(owner.leave(TIMEOUT)).await.expect("confirmed");
    assert!(within(lookup.changed_since(seen)).await.is_some());
    manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_router_says_whether_managers_or_the_namespace_are_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path()).await;
    let a = within(builder(&manager, "a").join()).await.expect("joined");
    let lookup = Lookup::builder(managers(&manager), POOL).poll(Duration::from_millis(500)).connect();
    let lookup = within(lookup).await.expect("a table");
    eventually("the Lookup knows a", || lookup.lookup(Key(1)).is_ok()).await;
    let router = Router::new(lookup.clone()).patience(Duration::from_millis(300));
    let refused = || router.send(Key(1), |_| async { Err::<(), _>(Refusal::<String>::NotOwner) });
    let told = within(refused()).await;
    assert!(matches!(told, Err(RouterError::NotOwner { .. })), "{told:?}");

    within(a.leave(TIMEOUT)).await.expect("confirmed");
    let address = manager.grpc_addr().to_string().as_str().into();
    let request = v1::DeleteNamespaceRequest { namespace: POOL.to_owned() };
    Dialer::new().admin(&address).expect("an address").delete_namespace(request).await.expect("deleted");
    let told = within(async {
        loop {
            match refused().await {
                Err(RouterError::NotOwner { .. } | RouterError::NoOwner { .. }) => {}
                told => break told.expect_err("nobody answers").to_string(),
            }
        }
    });
    let told = told.await;
    assert!(told.contains("there is no namespace rooms"), "{told}");

    manager.shutdown().await;
    let told = within(async {
        loop {
            match refused().await {
                Err(RouterError::UnknownNamespace { .. }) => {}
                told => break told.expect_err("nobody answers").to_string(),
            }
        }
    });
    let told = told.await;
    assert!(told.contains("no leading Manager answers") && !told.contains("namespace"), "{told}");
}
