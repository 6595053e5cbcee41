//! Ordered keys on a whole cluster in virtual time: their order, scans, and state that moves with them.

use std::time::Duration;

use centrifuge::keys::{Interval, KeyError, KeyPrefix};
use centrifuge::leased_map::LeasedMap;
use centrifuge::router::{Refusal, VisitError};
use centrifuge::test_cluster::{TestCluster, TestLookup, TestOwner};
use centrifuge::{NoKey, NotOwner, Ordered};

type Users = LeasedMap<Vec<u8>, u32, Ordered>;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Names that differ in their first byte after the prefix, so that an even division of all numbers divides them too.
fn names() -> Vec<Vec<u8>> {
    (0_u8..=255).map(|first| [b"user/", &[first][..]].concat()).collect()
}

fn between(from: &str, to: &str) -> impl Fn(&Vec<u8>) -> bool {
    let (from, to) = (from.as_bytes().to_vec(), to.as_bytes().to_vec());
    move |name| from <= *name && *name < to
}

fn text(entries: &[(Vec<u8>, u32)]) -> Vec<String> {
    entries.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect()
}

struct Pool {
    cluster: TestCluster<Ordered>,
    owners: Vec<(TestOwner<Ordered>, Users)>,
    lookup: TestLookup<Ordered>,
}

impl Pool {
    fn of(count: usize) -> Pool {
        let mut cluster = TestCluster::ordered("user/");
        let lookup = cluster.lookup();
        let mut owners = Vec::new();
        for number in 0..count {
            let users = Users::ordered();
            owners.push((cluster.owner_with(&format!("owner-{number}"), &users), users));
        }
        cluster.advance(secs(120));
        Pool { cluster, owners, lookup }
    }

    /// The map of the owner of a name.
    fn map_of(&self, name: &[u8]) -> &Users {
        let key = self.lookup.key_of(name).expect("it has the prefix");
        let route = self.lookup.lookup(key).expect("an owner");
        let (owner, users) =
            self.owners.iter().find(|(owner, _)| owner.session() == route.session()).expect("one of them");
        assert_eq!(owner.check_lease_now(key), Ok(route.generation()));
        users
    }

    fn fill(&self) {
        for (name, number) in names().into_iter().zip(0..) {
            self.map_of(&name).insert(name.clone(), number).expect("its owner");
        }
    }
}

#[test]
fn a_name_has_one_owner_which_both_sides_find_by_the_prefix() {
    let pool = Pool::of(3);
    for name in names() {
        let holders = pool.owners.iter().filter(|(owner, _)| {
            let key = owner.key_of(&name).expect("it has the prefix");
            owner.check_lease_now(key).is_ok()
        });
        assert_eq!(holders.count(), 1, "{name:?}");
    }
    let wrong = Err(NoKey::Outside(KeyError { prefix: KeyPrefix::new(b"user/").expect("short") }));
    assert_eq!(pool.lookup.key_of("account/1"), wrong);
    assert_eq!(pool.owners[0].0.key_of(""), wrong);
    assert_eq!(pool.owners[0].1.get(&b"account/1".to_vec()), Err(NotOwner::OutsidePrefix));
}

#[test]
fn before_the_first_word_of_a_manager_no_name_has_a_key() {
    let mut cluster = TestCluster::ordered("user/");
    let (owner, lookup) = (cluster.owner("a"), cluster.lookup());
    assert_eq!(owner.key_of("user/1"), Err(NoKey::Unknown));
    assert_eq!(lookup.key_of("user/1"), Err(NoKey::Unknown));
    assert_eq!(lookup.scan::<&str>(..), Err(NoKey::Unknown));
    cluster.advance(secs(30));
    assert_eq!(owner.key_of("user/1"), lookup.key_of("user/1"));
    assert!(owner.key_of("user/1").is_ok());
}

#[test]
fn a_scan_gives_the_owners_in_order_with_the_keys_that_they_own() {
    let pool = Pool::of(4);
    let slices = pool.lookup.scan("user/A".."user/\u{7ff}").expect("the bounds have the prefix");
    assert_eq!(slices.first().map(|slice| slice.interval.from.as_slice()), Some(&b"user/A"[..]));
    assert_eq!(slices.last().and_then(|slice| slice.interval.to.as_deref()), Some("user/\u{7ff}".as_bytes()));
    for pair in slices.windows(2) {
        assert_eq!(pair[0].interval.to.as_ref(), Some(&pair[1].interval.from), "without a gap");
    }
    for name in names() {
        let is_meant = between("user/A", "user/\u{7ff}")(&name);
        let mut found = slices.iter().filter(|slice| slice.interval.contains(&name));
        let slice = found.next();
        assert_eq!(slice.is_some(), is_meant, "{name:?}");
        assert!(found.next().is_none(), "{name:?} is in one slice alone");
        if let Some(slice) = slice {
            let route = pool.lookup.lookup(pool.lookup.key_of(&name).expect("a key")).expect("an owner");
            assert_eq!(slice.owner.as_ref().map(centrifuge::Route::session), Ok(route.session()));
        }
    }
    let all = pool.lookup.scan::<&str>(..).expect("no bounds are no wrong bounds");
    assert!(all.len() > 1 && all.iter().all(|slice| slice.owner.is_ok()));
    assert_eq!(pool.lookup.scan("user/b".."user/a"), Ok(Vec::new()));
    assert!(matches!(pool.lookup.scan("a".."z"), Err(NoKey::Outside(_))), "the prefix was forgotten");
}

#[test]
fn a_map_keeps_the_order_and_scans_what_its_server_owns() {
    let pool = Pool::of(1);
    pool.fill();
    let users = &pool.owners[0].1;
    let scan = users.scan("user/a".."user/f", usize::MAX).expect("the only Owner owns everything");
    let found = text(&scan.entries);
    assert_eq!(found, ["user/a", "user/b", "user/c", "user/d", "user/e"]);
    users.recheck_scan(&scan).expect("nothing has changed");

    users.remove(&b"user/b".to_vec()).expect("its owner");
    let first = users.scan("user/a".., 2).expect("its owner");
    let found = text(&first.entries);
    assert_eq!(
        (found.as_slice(), first.next.as_deref()),
        (&["user/a", "user/c"].map(str::to_owned)[..], Some(&b"user/d"[..]))
    );
    assert_eq!(users.scan("account/".., 1), Err(NotOwner::OutsidePrefix));
    assert_eq!(users.scan("user/c".."user/c", 1).map(|scan| scan.entries), Ok(Vec::new()));
}

#[test]
fn a_map_does_not_scan_what_others_own_and_loses_nothing_when_it_moves() {
    let mut pool = Pool::of(1);
    pool.fill();
    let all = pool.owners[0].1.scan::<&str>(.., usize::MAX).expect("it owns everything");
    assert_eq!(all.entries.len(), names().len());
    let more = Users::ordered();
    let joined = pool.cluster.owner_with("owner-1", &more);
    pool.owners.push((joined, more));
    pool.cluster.advance(secs(600));
    let counts: Vec<usize> = pool
        .owners
        .iter()
        .map(|(_, users)| names().iter().filter(|name| users.get(name).is_ok()).count())
        .collect();
    assert!(counts.iter().all(|count| *count > 20), "both own some: {counts:?}");
    assert_eq!(counts.iter().sum::<usize>(), names().len(), "each name has one owner");
    for (name, number) in names().into_iter().zip(0..) {
        assert_eq!(pool.map_of(&name).get(&name).map(|found| found.value), Ok(Some(number)), "{name:?}");
    }
    for (_, users) in &pool.owners {
        assert_eq!(users.scan::<&str>(.., 1), Err(NotOwner::NoLease), "no one owns everything");
    }
    assert!(pool.owners[0].1.recheck_scan(&all).is_err(), "what it said of all of them is not true any more");
}

#[tokio::test]
async fn a_router_visits_every_owner_of_an_interval_once_and_in_order() {
    let pool = Pool::of(4);
    pool.fill();
    let router = pool.lookup.router();
    let ask = |route: centrifuge::Route, part: Interval| {
        let (_, users) =
            pool.owners.iter().find(|(owner, _)| owner.session() == route.session()).expect("one of them");
        let bounds = (
            std::ops::Bound::Included(part.from.clone()),
            part.to.clone().map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded),
        );
        let answer = users.scan(bounds, usize::MAX).map_err(|_| Refusal::NotOwner::<&str>);
        async move { answer.map(|scan| scan.entries) }
    };
    let answers = router.visit("user/0".."user/\u{7ff}", ask).await.expect("all answer");
    assert!(answers.len() > 1, "more than one owner was asked");
    let found: Vec<Vec<u8>> = answers.into_iter().flatten().map(|(name, _)| name).collect();
    let wanted: Vec<Vec<u8>> = names().into_iter().filter(between("user/0", "user/\u{7ff}")).collect();
    assert_eq!(found, wanted);
    let wrong = router.visit("0".."9", ask).await;
    assert!(matches!(wrong, Err(VisitError::Key(NoKey::Outside(_)))), "{wrong:?}");
}
