//! What readers of hot tables can rely on.

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{Generation, Nonce, SessionId};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::lookup::Row;
use centrifuge_core::namespace_kind::{Keys, Mode, NamespaceKind};
use centrifuge_core::table::PublishedOwner;
use centrifuge_net::clock;

use super::{HotLeases, HotRoutes, Lease, LeaseTable, NoOwner, NotOwner, Route, Validity};
use crate::keys::{KeyPrefix, KeySpace, NoKey};

fn row(owner: Option<&str>, generation: u64) -> Row {
    let owner = owner.map(|url| PublishedOwner { session: SessionId(Nonce(7)), url: url.into() });
    Row { owner, generation: Generation(generation), state_since: Generation(1), quarantined: false }
}

#[test]
fn a_route_says_what_the_row_says_however_long_the_address() {
    let routes = HotRoutes::new();
    assert_eq!(routes.lookup(Key(5)), Err(NoOwner::NoTable));
    let long = format!("http://{}:80", "long.".repeat(20));
    for url in ["", "http://a", &"x".repeat(64), &"x".repeat(65), &long, "http://\u{e9}\u{e9}"] {
        let (low, high) = KeyRange::ALL.split_at(Key(100)).expect("two parts");
        let rows = [(low, row(Some(url), 3)), (high, row(None, 4))];
        routes.publish(rows.iter().map(|(range, row)| (*range, row)));
        let route = routes.lookup(Key(99)).expect("an owner");
        assert_eq!((route.url(), route.generation(), route.range()), (url, Generation(3), low));
        assert_eq!(route.session(), SessionId(Nonce(7)));
        let none = NoOwner::Unowned { range: high, generation: Generation(4) };
        assert_eq!(routes.lookup(Key(100)), Err(none));
    }
}

#[test]
fn every_thread_counts_and_none_is_forgotten() {
    let leases = HotLeases::evenly(4, Duration::from_secs(3600));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for key in 0..1000 {
                    leases.check_lease_now(Key(key)).expect("held");
                }
            });
        }
    });
    leases.add_load(Key::MAX, 5);
    let counts: Vec<u64> = leases.counts().iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [3000, 0, 0, 5]);
}

#[test]
fn threads_that_ended_leave_their_counts_and_nothing_else() {
    let leases = HotLeases::evenly(4, Duration::from_secs(3600));
    for _ in 0..10 {
        let own = leases.clone();
        std::thread::spawn(move || own.check_lease_now(Key(1))).join().expect("it ends").expect("held");
    }
    assert_eq!(leases.counts()[0].1, 10);
    assert_eq!(leases.copies(), 0);
}

#[test]
fn leases_end_by_the_clock_and_not_by_a_timer() {
    let leases = HotLeases::evenly(4, Duration::ZERO);
    assert_eq!(leases.check_lease_now(Key(1)), Err(NotOwner::NoLease));
    assert!(!leases.check_lease_continuous(Key(1), Generation(1)));
    let leases = HotLeases::evenly(4, Duration::from_secs(3600));
    assert_eq!(leases.check_lease_now(Key(1)), Ok(Generation(1)));
    assert!(leases.check_lease_continuous(Key(1), Generation(1)));
    assert!(!leases.check_lease_continuous(Key(1), Generation(2)));
    assert!(!leases.check_lease_continuous(Key(1), Generation(0)));
    leases.clear();
    assert_eq!(leases.check_lease_now(Key(1)), Err(NotOwner::NoLease));
}

fn space(prefix: &[u8]) -> Option<KeySpace> {
    let prefix = KeyPrefix::new(prefix).expect("short");
    KeySpace::of(Some(&NamespaceKind { keys: Keys::Ordered(prefix), mode: Mode::Exclusive }))
}

#[test]
fn an_ordered_key_counts_only_among_the_keys_that_it_was_made_for() {
    let now = clock::now();
    let validity = Validity { expiry: now + Duration::from_secs(60), offset: 0, slack: u64::MAX };
    let lease = |generation: u64| {
        let generation = Generation(generation);
        let (continuous_from, state_since) = (generation, generation);
        Lease { range: KeyRange::ALL, generation, continuous_from, state_since, source: None }
    };
    let leases = HotLeases::default();
    let publish = |prefix: &[u8], generation| {
        let table = LeaseTable::new(&[(lease(generation), false)]).with_space(space(prefix));
        leases.publish(Arc::new(table), validity);
    };
    assert_eq!(leases.key_of(b"user/1"), Err(NoKey::Unknown));
    publish(b"user/", 3);
    let key = leases.key_of(b"user/1").expect("it has the prefix");
    assert_eq!(leases.check_ordered(key), Ok(Generation(3)));
    publish(b"account/", 4);
    assert_eq!(leases.check_ordered(key), Err(NotOwner::NoLease), "it means nothing any more");
    assert_eq!(leases.lease_ordered(key), Err(NotOwner::NoLease));
    assert_eq!(leases.key_of(b"account/1").map(|key| leases.check_ordered(key)), Ok(Ok(Generation(4))));

    let routes = HotRoutes::new();
    let rows = [(KeyRange::ALL, row(Some("http://a"), 3))];
    routes.publish_ordered(rows.iter().map(|(range, row)| (*range, row)), space(b"user/"));
    assert_eq!(routes.lookup_ordered(key).map(|route| route.generation()), Ok(Generation(3)));
    routes.publish_ordered(rows.iter().map(|(range, row)| (*range, row)), space(b"account/"));
    assert_eq!(routes.lookup_ordered(key), Err(NoOwner::Replaced));
    routes.clear();
    assert_eq!(routes.lookup_ordered(key), Err(NoOwner::NoTable));
}

#[test]
fn a_scan_says_why_a_part_has_no_owner() {
    let range = |first, last| KeyRange::new(Key(first), Key(last)).expect("in order");
    let (low, middle, high) = (range(0, 0x40 << 56), range((0x40 << 56) + 1, 0x80 << 56), (0x80 << 56) + 1);
    let high = range(high, u64::MAX);
    let quarantined = Row { quarantined: true, ..row(None, 5) };
    let rows = [(low, row(Some("http://a"), 3)), (middle, row(None, 4)), (high, quarantined)];
    let routes = HotRoutes::new();
    routes.publish_ordered(rows.iter().map(|(range, row)| (*range, row)), space(b"user/"));
    let slices = routes.scan::<&str>(&..).expect("the prefix is known");
    let owners: Vec<_> =
        slices.iter().map(|slice| slice.owner.as_ref().map(Route::url).map_err(|why| *why)).collect();
    let unowned = NoOwner::Unowned { range: middle, generation: Generation(4) };
    let quarantined = NoOwner::Quarantined { range: high, generation: Generation(5) };
    assert_eq!(owners, [Ok("http://a"), Err(unowned), Err(quarantined)]);
    assert_eq!(slices.iter().map(|slice| slice.range).collect::<Vec<_>>(), [low, middle, high]);
}
