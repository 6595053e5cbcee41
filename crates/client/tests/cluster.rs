//! Applications' maps on a whole cluster in virtual time.

use std::time::Duration;

use centrifuge::leased_map::{Json, LeasedMap};
use centrifuge::lookup::LossReason;
use centrifuge::test_cluster::{TestCluster, TestLookup, TestOwner};
use centrifuge::{Key, NotOwner};

type Rooms = LeasedMap<String, u32>;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn names() -> impl Iterator<Item = String> {
    (0..200).map(|number| format!("room-{number}"))
}

/// A cluster of one Owner with every room in its map, and a Lookup that has heard of everything.
fn one_owner() -> (TestCluster, TestOwner, Rooms, TestLookup) {
    let mut cluster = TestCluster::new();
    let rooms = Rooms::new();
    let owner = cluster.owner_with("a", &rooms);
    let lookup = cluster.lookup();
    cluster.advance(secs(60));
    for (name, number) in names().zip(0..) {
        rooms.insert(name, number).expect("the only Owner owns everything");
    }
    let _ = lookup.take_losses();
    (cluster, owner, rooms, lookup)
}

/// Where each room is, which must be exactly one of two maps.
fn count(one: &Rooms, other: &Rooms) -> (usize, usize) {
    let (mut in_one, mut in_other) = (0, 0);
    for (name, number) in names().zip(0..) {
        match (one.get(&name), other.get(&name)) {
            (Ok(found), Err(NotOwner::NoLease)) if found.value == Some(number) => in_one += 1,
            (Err(NotOwner::NoLease), Ok(found)) if found.value == Some(number) => in_other += 1,
            found => panic!("{name}: {found:?}"),
        }
    }
    (in_one, in_other)
}

#[test]
fn entries_move_with_their_ranges_and_nobody_is_told_of_a_loss() {
    let (mut cluster, _a, rooms, lookup) = one_owner();
    let others = Rooms::new();
    let _b = cluster.owner_with("b", &others);
    cluster.advance(secs(300));
    let (stayed, moved) = count(&rooms, &others);
    assert!(stayed > 20 && moved > 20, "{stayed} stayed and {moved} moved");
    assert_eq!(lookup.take_losses(), []);
}

#[test]
fn a_drained_owner_loses_nothing() {
    let (mut cluster, a, rooms, lookup) = one_owner();
    let others = Rooms::new();
    let b = cluster.owner_with("b", &others);
    cluster.advance(secs(120));
    cluster.drain(&a);
    cluster.advance(secs(300));
    assert_eq!(a.leases(), []);
    assert_eq!(count(&rooms, &others), (0, 200));
    assert_eq!(lookup.take_losses(), []);
    let route = lookup.lookup(Key::of(b"room-7")).expect("an owner");
    assert_eq!((route.session(), route.url()), (b.session(), "http://b"));
    rooms.sweep();
    assert!(rooms.is_empty());
}

#[test]
fn a_map_that_moved_away_and_back_has_what_was_written_last() {
    let (mut cluster, a, _rooms, lookup) = one_owner();
    let others = Rooms::new();
    let b = cluster.owner_with("b", &others);
    cluster.advance(secs(120));
    cluster.drain(&a);
    cluster.advance(secs(300));
    let room = "room-7".to_owned();
    others.insert(room.clone(), 70).expect("b owns everything");
    others.remove(&"room-8".to_owned()).expect("b owns everything");
    cluster.leave(&a);
    cluster.advance(secs(10));
    let third = Rooms::new();
    let _c = cluster.owner_with("c", &third);
    cluster.advance(secs(120));
    cluster.drain(&b);
    cluster.advance(secs(300));
    assert_eq!(third.get(&room).expect("c owns everything").value, Some(70));
    assert_eq!(third.get(&"room-8".to_owned()).expect("c owns everything").value, None);
    assert_eq!(third.get(&"room-9".to_owned()).expect("c owns everything").value, Some(9));
    assert_eq!(lookup.take_losses(), []);
}

#[test]
fn a_crash_is_told_and_its_keys_begin_empty_elsewhere() {
    let (mut cluster, a, rooms, lookup) = one_owner();
    let others = Rooms::new();
    let _b = cluster.owner_with("b", &others);
    cluster.advance(secs(120));
    let (stayed, moved) = count(&rooms, &others);
    cluster.crash(&a);
    assert!(rooms.get(&"room-7".to_owned()).is_err());
    cluster.advance(secs(200));
    let lost = lookup.take_losses();
    let was_told = |name: &str| lost.iter().any(|loss| loss.keys.contains(Key::of(name.as_bytes())));
    let (mut kept, mut began_anew) = (0, 0);
    for name in names() {
        match others.get(&name).expect("the last Owner owns everything").value {
            Some(_) => {
                kept += 1;
                assert!(!was_told(&name), "{name} is no loss");
            }
            None => {
                began_anew += 1;
                assert!(was_told(&name), "the loss of {name} is told");
            }
        }
    }
    assert_eq!((began_anew, kept), (stayed, moved));
    assert!(lost.iter().all(|loss| loss.why == LossReason::StateBeganAnew), "{lost:?}");
}

#[test]
fn the_lease_at_which_state_began_rises_with_a_loss_and_only_then() {
    let mut cluster = TestCluster::new();
    let (rooms, others) = (Rooms::new(), Rooms::new());
    let lookup = cluster.lookup();
    let key = Key::of(b"room-7");
    assert_eq!(lookup.state_since(key), None, "there is no table yet");
    let a = cluster.owner_with("a", &rooms);
    cluster.advance(secs(60));
    let began = lookup.state_since(key).expect("a table");
    let b = cluster.owner_with("b", &others);
    cluster.advance(secs(60));
    cluster.drain(&a);
    cluster.advance(secs(120));
    assert_eq!(lookup.state_since(key), Some(began), "it moved");
    cluster.crash(&b);
    let _c = cluster.owner("c");
    cluster.advance(secs(30));
    assert_eq!(lookup.state_since(key), Some(began), "nobody knows yet");
    cluster.advance(secs(90));
    assert!(lookup.state_since(key) > Some(began), "it began anew");
}

#[test]
fn an_owner_that_is_cut_off_answers_for_nothing_once_its_lease_has_run_out() {
    let (mut cluster, a, rooms, _lookup) = one_owner();
    let room = "room-7".to_owned();
    let outcome = rooms.get(&room).expect("a owns everything");
    cluster.partition(&a);
    cluster.advance(secs(30));
    assert!(rooms.recheck(&outcome).is_ok());
    cluster.advance(secs(31));
    assert_eq!(rooms.recheck(&outcome), Err(NotOwner::NoLease));
    assert!(rooms.get(&room).is_err());
    cluster.heal(&a);
    cluster.advance(secs(120));
    // The state of the earlier lease is discarded, though it is still in memory.
    assert_eq!(rooms.get(&room).expect("a owns everything again").value, None);
    assert_eq!(rooms.recheck(&outcome), Err(NotOwner::NoLease));
}

#[test]
fn a_manager_that_is_restarted_costs_no_lease_and_no_state() {
    let (mut cluster, a, rooms, lookup) = one_owner();
    let leases = a.leases();
    cluster.crash_manager();
    cluster.advance(secs(20));
    cluster.restart_manager();
    cluster.advance(secs(300));
    assert_eq!(a.leases(), leases);
    assert_eq!(rooms.get(&"room-7".to_owned()).expect("still owned").value, Some(7));
    assert_eq!(lookup.take_losses(), []);
}

#[test]
fn entries_end_by_themselves_also_after_they_moved() {
    let mut cluster = TestCluster::new();
    let (rooms, others) = (Rooms::with_ttl(Json, secs(200)), Rooms::with_ttl(Json, secs(200)));
    let a = cluster.owner_with("a", &rooms);
    cluster.advance(secs(60));
    let room = "room-7".to_owned();
    rooms.insert(room.clone(), 7).expect("owned");
    let _b = cluster.owner_with("b", &others);
    cluster.drain(&a);
    cluster.advance(secs(150));
    assert_eq!(others.get(&room).expect("b owns everything").value, Some(7));
    cluster.advance(secs(51));
    assert_eq!(others.get(&room).expect("b owns everything").value, None);
    others.sweep();
    assert!(others.is_empty());
}

#[test]
fn without_state_to_move_a_drain_is_a_loss_that_is_told() {
    let mut cluster = TestCluster::new();
    let a = cluster.owner("a");
    let lookup = cluster.lookup();
    cluster.advance(secs(60));
    let _b = cluster.owner("b");
    cluster.advance(secs(60));
    let key = a.leases()[0].range.first();
    let _ = lookup.take_losses();
    cluster.drain(&a);
    cluster.advance(secs(120));
    assert!(lookup.take_losses().iter().any(|loss| loss.keys.contains(key)));
}

#[test]
fn two_runs_are_the_same() {
    let run = || {
        let (mut cluster, a, rooms, lookup) = one_owner();
        let others = Rooms::new();
        let b = cluster.owner_with("b", &others);
        cluster.advance(secs(100));
        cluster.crash(&a);
        cluster.advance(secs(100));
        (b.leases(), format!("{:?}", lookup.take_losses()), rooms.len(), others.len())
    };
    assert_eq!(run(), run());
}
