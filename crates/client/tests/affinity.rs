//! Owners and Lookups in affinity mode with a real Manager, over real connections on this machine.

mod support;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use centrifuge::affinity::{AffinityChange, AffinityOffer, AffinityOwnerBuilder, AffinityRouter, Probably};
use centrifuge::lookup::ConnectError;
use centrifuge::owner::{BoxError, JoinError};
use centrifuge::router::Refusal;
use centrifuge::{AffinityLookup, AffinityOwner, Key, KeyRange, Lookup, Managers, NoKey, Owner};
use centrifuge_harness::wait::{TIMEOUT, within};
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use centrifuge_server::RunningManager;

use support::POOL;

const FEEDS: &str = "feeds";
/// Far longer than the test: whoever waits for the end of a lease fails it.
const LEASE: Duration = Duration::from_secs(600);

/// A Manager with an exclusive pool, and one in affinity mode whose Owners are silent after 1.5 s.
async fn start(folder: &std::path::Path) -> RunningManager {
    let manager = support::start(folder, None).await;
    let settings = v1::Settings {
        lease_ms: Some(u64::try_from(LEASE.as_millis()).expect("minutes")),
        renewal_ms: Some(500),
        answer_allowance_ms: Some(500),
        settle_ms: Some(50),
        ..v1::Settings::default()
    };
    let kind = v1::NamespaceKind { mode: Some(v1::Mode::Affinity.into()), ..Default::default() };
    let request =
        v1::CreateNamespaceRequest { namespace: FEEDS.into(), settings: Some(settings), kind: Some(kind) };
    let mut admin = Dialer::new().admin(&manager.id()).expect("an address");
    admin.create_namespace(request).await.expect("created");
    manager
}

fn managers(manager: &RunningManager) -> Managers {
    Managers::list([manager.grpc_addr().to_string()]).expect("an address")
}

fn builder(manager: &RunningManager, name: &str) -> AffinityOwnerBuilder {
    AffinityOwner::builder(managers(manager), FEEDS).name(name).url(&format!("http://{name}"))
}

async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(TIMEOUT, waiting).await.is_ok(), "in time: {what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_built_for_the_other_mode_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path()).await;
    let exclusive = Owner::builder(managers(&manager), FEEDS).url("http://x");
    let error = within(exclusive.join()).await.expect_err("the other mode");
    assert!(matches!(error, JoinError::WrongMode { .. }), "{error}");
    assert!(error.to_string().ends_with("or use AffinityOwner"), "{error}");
    let affinity = AffinityOwner::builder(managers(&manager), POOL).url("http://x");
    let error = within(affinity.join()).await.expect_err("the other mode");
    assert!(matches!(error, JoinError::WrongMode { .. }), "{error}");
    assert!(error.to_string().ends_with("or use Owner"), "{error}");

    let error = within(Lookup::builder(managers(&manager), FEEDS).connect()).await.expect_err("refused");
    assert!(matches!(error, ConnectError::WrongMode { .. }), "{error}");
    let error = within(AffinityLookup::builder(managers(&manager), POOL).connect()).await;
    assert!(matches!(error, Err(ConnectError::WrongMode { .. })), "{error:?}");
    manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ranges_of_a_silent_owner_go_to_another_long_before_its_leases_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path()).await;
    let a = within(builder(&manager, "a").join()).await.expect("joined");
    let key = Key::of(b"feed-7");
    eventually("a has the key", || a.check_lease_now(key).is_mine()).await;
    let Probably::Mine(belief) = a.check_lease_now(key) else { panic!("it has it") };
    let guard = a.begin(key).expect("it has it");
    assert!(a.check_lease_continuous(key, belief) && guard.recheck() && guard.key() == key);
    assert_eq!(a.ranges(), [KeyRange::ALL]);
    assert_eq!(format!("{belief:?}"), "Belief", "no number can be read from it");
    drop(guard);

    let lookup = AffinityLookup::builder(managers(&manager), FEEDS).connect();
    let lookup = within(lookup).await.expect("a table");
    eventually("the Lookup knows a", || lookup.lookup(key).is_ok_and(|route| route.url() == "http://a"))
        .await;
    let mut losses = lookup.losses();
    let silent_from = Instant::now();
    // It says nothing any more. Its leases run on for ten minutes, had it a clock to read.
    drop(a);
    let b = within(builder(&manager, "b").join()).await.expect("joined");
    eventually("b has everything", || b.ranges() == [KeyRange::ALL]).await;
    assert!(silent_from.elapsed() < LEASE / 2, "nobody waited for the leases");

    let loss = within(losses.next()).await.expect("a loss");
    assert!(loss.keys.contains(key), "its state counts as lost");
    let router = AffinityRouter::new(lookup);
    let asked = within(router.send(key, |route| async move {
        match route.url() {
            "http://b" => Ok(route.url().to_owned()),
            _ => Err(Refusal::Unreachable("it is silent")),
        }
    }));
    assert_eq!(asked.await, Ok("http://b".to_owned()));
    within(b.leave(TIMEOUT)).await.expect("confirmed");
    assert!(!b.check_lease_now(key).is_mine());
    manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_moves_between_owners_and_no_loss_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path()).await;
    let destination: Arc<Mutex<Option<AffinityOwner>>> = Arc::default();
    let there = Arc::clone(&destination);
    let a = builder(&manager, "a").on_migrate_out(move |mut out| {
        let there = there.lock().expect("no panic").clone();
        async move {
            out.freeze().await?;
            // The offer travels as bytes, with whatever state there is.
            let bytes = out.offer().to_bytes();
            let offer = AffinityOffer::from_bytes(&bytes).ok_or("no offer")?;
            assert_eq!(offer.range(), out.range());
            let destination = there.ok_or("nobody is there yet")?;
            Ok::<_, BoxError>(destination.begin_import(offer)?.complete().await?)
        }
    });
    let a = within(a.join()).await.expect("joined");
    eventually("a has everything", || a.ranges() == [KeyRange::ALL]).await;
    let lookup = AffinityLookup::builder(managers(&manager), FEEDS).connect();
    let lookup = within(lookup).await.expect("a table");
    let mut losses = lookup.losses();
    let changes: Arc<Mutex<Vec<AffinityChange>>> = Arc::default();
    let heard = Arc::clone(&changes);
    let b = builder(&manager, "b").on_ownership_change(move |change| {
        heard.lock().expect("no panic").push(change);
        async {}
    });
    let b = within(b.join()).await.expect("joined");
    *destination.lock().expect("no panic") = Some(b.clone());
    within(a.drain()).await.expect("drained");
    eventually("b has everything", || {
        b.ranges().iter().map(|range| range.key_count()).sum::<u128>() == 1 << 64
    })
    .await;
    let came = |change: &AffinityChange| matches!(change, AffinityChange::Granted { with_state: true, .. });
    eventually("b was told that state came along", || changes.lock().expect("no panic").iter().any(came))
        .await;
    let loss = tokio::time::timeout(Duration::from_millis(300), losses.next()).await;
    assert!(loss.is_err(), "nothing is lost: {loss:?}");
    manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_in_affinity_mode_may_be_ordered_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path()).await;
    let kind = v1::NamespaceKind {
        keys: Some(v1::KeyKind::Ordered.into()),
        key_prefix: Some(b"feed/".to_vec().into()),
        mode: Some(v1::Mode::Affinity.into()),
    };
    let settings = v1::Settings { settle_ms: Some(50), ..v1::Settings::default() };
    let request = v1::CreateNamespaceRequest {
        namespace: "ordered".into(),
        settings: Some(settings),
        kind: Some(kind),
    };
    let mut admin = Dialer::new().admin(&manager.id()).expect("an address");
    admin.create_namespace(request).await.expect("created");
    let hashed = AffinityOwner::builder(managers(&manager), "ordered").url("http://x");
    let error = within(hashed.join()).await.expect_err("the other keys");
    assert!(matches!(error, JoinError::WrongKeys { .. }), "{error}");
    let exclusive = Owner::ordered(managers(&manager), "ordered").url("http://x");
    let error = within(exclusive.join()).await.expect_err("the other mode");
    assert!(matches!(error, JoinError::WrongMode { .. }), "{error}");
    let error = within(AffinityLookup::ordered(managers(&manager), FEEDS).connect()).await;
    assert!(matches!(error, Err(ConnectError::WrongKeys { .. })), "{error:?}");

    let a = within(AffinityOwner::ordered(managers(&manager), "ordered").url("http://a").join()).await;
    let a = a.expect("joined");
    let lookup = within(AffinityLookup::ordered(managers(&manager), "ordered").connect()).await;
    let lookup = lookup.expect("a table");
    let key = lookup.key_of("feed/7").expect("it has the prefix");
    assert!(matches!(lookup.key_of("room/7"), Err(NoKey::Outside(_))));
    eventually("a has the key", || a.check_lease_now(key).is_mine()).await;
    assert_eq!(a.key_of("feed/7"), Ok(key));
    eventually("the Lookup knows a", || lookup.lookup(key).is_ok()).await;
    let slices = lookup.scan("feed/1".."feed/9").expect("the bounds have the prefix");
    let urls: Vec<_> = slices.iter().map(|slice| slice.owner.as_ref().map(|route| route.url())).collect();
    assert_eq!(urls, [Ok("http://a")]);
    let router = AffinityRouter::new(lookup);
    let asked = router.visit("feed/1".."feed/9", |route, part| async move {
        Ok::<_, Refusal<&str>>((route.url().to_owned(), part.from))
    });
    assert_eq!(within(asked).await, Ok(vec![("http://a".to_owned(), b"feed/1".to_vec())]));
    manager.shutdown().await;
}
