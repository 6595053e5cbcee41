//! Tests of a queue, without any server.

use std::cell::RefCell;

use serde_json::json;

use super::*;
use crate::shared::stamp::Stamps;

const LIMITS: Limits = Limits { ttl_ms: 1000, most: 3, most_bytes: 1000 };

/// A table that tests write.
#[derive(Default)]
struct Table {
    since: RefCell<BTreeMap<(String, String), u64>>,
    alarm: RefCell<Option<u64>>,
}

impl Table {
    fn set(&self, pool: &str, name: &str, since: u64) {
        self.since.borrow_mut().insert((pool.to_owned(), name.to_owned()), since);
    }
}

impl Sight for Table {
    fn state_since(&self, pool: &str, name: &str) -> Option<Generation> {
        self.since.borrow().get(&(pool.to_owned(), name.to_owned())).copied().map(Generation)
    }

    fn alarm(&self, _: &str) -> Option<u64> {
        *self.alarm.borrow()
    }
}

/// A queue and the server it is at.
#[derive(Default)]
struct Place {
    slot: Option<Queue>,
    stamps: Stamps,
    table: Table,
    lease: u64,
}

impl Place {
    fn at(lease: u64, since: u64) -> Place {
        let place = Place { lease, ..Place::default() };
        place.table.set("pubsub", "home-pc", since);
        place.table.set("pubsub", "other-pc", since);
        place
    }

    fn open(&mut self, known: Option<Stamp>, names: &[&str]) -> Opened {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let interests = Interests::from([("pubsub".to_owned(), names)]);
        let fresh = self.stamps.next(Generation(self.lease));
        open(&mut self.slot, known, fresh, interests, (&self.table, 0))
    }

    fn put(&mut self, lease: u64, message: u32, now_ms: u64) -> Result<u64, NotTaken> {
        let (slot, sight) = (&mut self.slot, (&self.table, now_ms));
        enqueue(slot, "home-pc", Generation(lease), json!(message), LIMITS, sight)
    }

    fn read(&mut self, known: Stamp, after: u64, now_ms: u64) -> Vec<Value> {
        let read = read(&mut self.slot, Some(known), after, LIMITS, (&self.table, now_ms));
        let read = read.expect("all of it was there");
        assert!(!read.missed);
        read.messages.iter().map(shown).collect()
    }

    /// The queue goes to another server with all it has.
    fn move_to(&mut self, place: &mut Place) {
        let written = serde_json::to_vec(&self.slot.take()).expect("written");
        place.slot = serde_json::from_slice(&written).expect("read");
    }
}

/// As a client sees it, without time and size.
fn shown(entry: &Entry) -> Value {
    let mut shown = serde_json::to_value(entry).expect("written");
    let fields = shown.as_object_mut().expect("an object");
    fields.retain(|name, _| !["at_ms", "bytes"].contains(&name.as_str()));
    shown
}

fn lost(number: u64, names: &[&str]) -> Value {
    json!({ "number": number, "lost": { "pool": "pubsub", "names": names } })
}

#[test]
fn a_message_stays_until_its_reader_has_it() {
    let mut place = Place::at(1, 5);
    assert_eq!(place.put(7, 1, 0), Err(NotTaken::NoQueue));
    let incarnation = place.open(None, &[]).incarnation;
    for message in 1..=2 {
        place.put(7, message, 0).expect("there is a queue");
    }
    let both = [json!({ "number": 1, "message": 1 }), json!({ "number": 2, "message": 2 })];
    assert_eq!(place.read(incarnation, 0, 0), both);
    assert_eq!(place.read(incarnation, 0, 0), both, "the answer was lost, and the request came again");
    assert_eq!(place.read(incarnation, 1, 0), both[1..]);
    assert_eq!(place.read(incarnation, 0, 0), both[1..], "an old request does no harm");
    let never_there = read(&mut place.slot, Some(incarnation), 3, LIMITS, (&place.table, 0));
    assert_eq!(never_there, Err(NeverThere));
}

#[test]
fn another_incarnation_is_known_for_one() {
    let mut place = Place::at(1, 5);
    let first = place.open(None, &[]);
    assert!(first.missed, "it knew none");
    assert!(!place.open(Some(first.incarnation), &[]).missed);
    // Its time ended, and it is opened again under the same lease.
    place.slot = None;
    let gone = read(&mut place.slot, Some(first.incarnation), 0, LIMITS, (&place.table, 0));
    assert_eq!(gone, Ok(Read { incarnation: None, missed: true, messages: vec![] }));
    let second = place.open(Some(first.incarnation), &[]);
    assert!(second.missed && second.incarnation != first.incarnation);
    place.put(7, 1, 0).expect("there is a queue");
    let late = read(&mut place.slot, Some(first.incarnation), 1, LIMITS, (&place.table, 0));
    assert_eq!(late, Ok(Read { incarnation: Some(second.incarnation), missed: true, messages: vec![] }));
    assert_eq!(place.read(second.incarnation, 0, 0).len(), 1, "what another incarnation has read stays");
}

#[test]
fn what_is_dropped_leaves_one_word_until_that_is_read() {
    let mut place = Place::at(1, 5);
    let incarnation = place.open(None, &[]).incarnation;
    for message in 1..=5 {
        place.put(7, message, 0).expect("there is a queue");
    }
    let seen = place.read(incarnation, 0, 0);
    assert_eq!(seen[0], json!({ "number": 2, "dropped": 2 }));
    assert_eq!(seen[1], json!({ "number": 3, "message": 3 }));
    assert_eq!(seen.len(), 4);
    // The rest is too old after a while, and the word of it is not.
    assert_eq!(place.read(incarnation, 0, 1000), [json!({ "number": 5, "dropped": 5 })]);
    assert_eq!(place.read(incarnation, 0, 5000), [json!({ "number": 5, "dropped": 5 })]);
    assert!(place.read(incarnation, 5, 5000).is_empty());
}

#[test]
fn a_stale_publisher_is_refused_also_after_the_queue_moved() {
    let (mut here, mut there) = (Place::at(1, 5), Place::at(2, 5));
    let incarnation = here.open(None, &[]).incarnation;
    here.put(8, 1, 0).expect("the topic's owner");
    here.move_to(&mut there);
    assert!(matches!(there.put(7, 2, 0), Err(NotTaken::Stale(_))));
    there.put(8, 3, 0).expect("the topic's owner");
    let seen = [json!({ "number": 1, "message": 1 }), json!({ "number": 2, "message": 3 })];
    assert_eq!(there.read(incarnation, 0, 0), seen);
}

#[test]
fn a_loss_is_told_to_whom_it_concerns_and_once() {
    let mut place = Place::at(1, 5);
    let incarnation = place.open(None, &["home-pc"]).incarnation;
    assert!(place.read(incarnation, 0, 0).is_empty());
    place.table.set("pubsub", "other-pc", 9);
    assert!(place.read(incarnation, 0, 0).is_empty());
    place.table.set("pubsub", "home-pc", 9);
    assert_eq!(place.read(incarnation, 0, 0), [lost(1, &["home-pc"])]);
    assert!(place.read(incarnation, 1, 0).is_empty());
    // Of what the client has from now on nothing was lost yet.
    place.open(Some(incarnation), &["home-pc", "other-pc"]);
    assert!(place.read(incarnation, 1, 0).is_empty());
    place.table.set("pubsub", "other-pc", 12);
    assert_eq!(place.read(incarnation, 1, 0), [lost(2, &["other-pc"])]);
}

#[test]
fn a_queue_holds_so_many_bytes_and_says_what_it_dropped() {
    let mut place = Place::at(1, 5);
    let incarnation = place.open(None, &[]).incarnation;
    for _ in 0..3 {
        let long = json!("x".repeat(400));
        let (slot, sight) = (&mut place.slot, (&place.table, 0));
        enqueue(slot, "home-pc", Generation(1), long, LIMITS, sight).expect("there is a queue");
    }
    let entries = place.read(incarnation, 0, 0);
    assert_eq!(entries.len(), 3, "a word of the first, and two that fit: {entries:?}");
    assert_eq!(entries[0], json!({ "number": 1, "dropped": 1 }));
}

#[test]
fn a_queue_that_moves_misses_no_loss_whoever_heard_of_it_and_when() {
    let names = ["home-pc"];
    // Told where it was: not told again.
    let (mut here, mut there) = (Place::at(1, 5), Place::at(2, 9));
    let incarnation = here.open(None, &names).incarnation;
    here.table.set("pubsub", "home-pc", 9);
    assert_eq!(here.read(incarnation, 0, 0), [lost(1, &names)]);
    here.move_to(&mut there);
    assert_eq!(there.read(incarnation, 0, 0), [lost(1, &names)]);
    // Heard of here long ago, but nobody looked at the queue; the other server was started since and heard of nothing.
    let (mut here, mut there) = (Place::at(3, 9), Place::at(4, 14));
    let incarnation = here.open(None, &names).incarnation;
    here.table.set("pubsub", "home-pc", 14);
    here.move_to(&mut there);
    assert_eq!(there.read(incarnation, 0, 0), [lost(1, &names)]);
    // Heard of here, and there only after the queue came.
    let (mut here, mut there) = (Place::at(5, 14), Place::at(6, 14));
    let incarnation = here.open(None, &names).incarnation;
    here.table.set("pubsub", "home-pc", 20);
    here.move_to(&mut there);
    assert!(there.read(incarnation, 0, 0).is_empty());
    there.table.set("pubsub", "home-pc", 20);
    assert_eq!(there.read(incarnation, 0, 0), [lost(1, &names)]);
    // Told here, and the table there is behind: nothing new was lost.
    let (mut here, mut there) = (Place::at(7, 20), Place::at(8, 20));
    let incarnation = here.open(None, &names).incarnation;
    here.table.set("pubsub", "home-pc", 30);
    assert_eq!(here.read(incarnation, 0, 0), [lost(1, &names)]);
    here.move_to(&mut there);
    assert!(there.read(incarnation, 1, 0).is_empty());
    there.table.set("pubsub", "home-pc", 30);
    assert!(there.read(incarnation, 1, 0).is_empty());
    there.table.set("pubsub", "home-pc", 31);
    assert_eq!(there.read(incarnation, 1, 0), [lost(2, &names)]);
}

#[test]
fn a_server_that_cannot_know_says_that_all_may_be_lost_at_every_alarm() {
    let mut place = Place::at(1, 5);
    let incarnation = place.open(None, &["home-pc", "other-pc"]).incarnation;
    *place.table.alarm.borrow_mut() = Some(100);
    assert_eq!(place.read(incarnation, 0, 0), [lost(1, &["home-pc", "other-pc"])]);
    assert!(place.read(incarnation, 1, 0).is_empty());
    *place.table.alarm.borrow_mut() = Some(200);
    assert_eq!(place.read(incarnation, 1, 0), [lost(2, &["home-pc", "other-pc"])]);
    // Contact is back: from now on the table knows.
    *place.table.alarm.borrow_mut() = None;
    assert!(place.read(incarnation, 2, 0).is_empty());
}
