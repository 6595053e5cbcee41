//! Centrifuge §2.2, claim by claim: the Lookup's copy of the table, how it follows the Manager's, what it raises.

use crate::support::*;
use centrifuge_core::id::{Generation, Lsn};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::lookup::LossReason;
use centrifuge_core::message::{Position, UpdateBody};
use centrifuge_core::owner::OwnerEvent;
use centrifuge_core::range_set::RangeSet;
use centrifuge_core::time::Instant;

// ---- §2.2: a whole copy, and what it tells

/// Centrifuge §2.2, Centrifuge §2.3.
#[test]
fn centrifuge_2_2_the_table_has_a_range_for_each_virtual_node() {
    let mut cluster = Cluster::new();
    let owners: Vec<Node> = (0..10).map(|number| cluster.owner(&format!("owner-{number}"))).collect();
    cluster.run_for(secs(20));
    assert!((10 * 50..=10 * 64 + 1).contains(&cluster.table().len()), "{}", cluster.table().len());
    // So a complete set stays small, too. A range is missing where two virtual nodes of one Owner are neighbours.
    for owner in &owners {
        let orders = cluster.latest(M1, *owner, |e| e.as_assign().map(|assign| assign.orders.len()));
        assert!((50..=65).contains(&orders), "{orders}");
    }
    // What an Owner takes over stays a lease of its own beside the one it had: the ranges of those who left remain.
    let lookup = cluster.lookup();
    cluster.tell(owners[0], OwnerEvent::Drain);
    cluster.run_for(secs(5));
    assert!(cluster.keys_of(owners[0]).is_empty());
    assert!(cluster.table().len() <= 10 * 64 + 1, "{}", cluster.table().len());
    assert_eq!(cluster.lookup_machine(lookup).table().map(|table| table.len()), Some(cluster.table().len()));
}

/// Centrifuge §2.2, PRS §4.2.
#[test]
fn centrifuge_2_2_a_lookup_answers_from_its_own_copy() {
    let mut cluster = Cluster::new();
    let [a, _, _] = cluster.owners(["a", "b", "c"]);
    let lookup = cluster.lookup();
    let before = cluster.published();
    assert_eq!(cluster.lookup_machine(lookup).table(), Some(&before));
    cluster.isolate(lookup);
    cluster.tell(a, OwnerEvent::Drain);
    cluster.run_for(secs(5));
    assert!(cluster.keys_of(a).is_empty(), "the table is another by now");
    // Cut off, it answers as before for every key, and sends nothing for it.
    let sent = cluster.sent.len();
    let machine = cluster.lookup_machine(lookup);
    for key in some_keys() {
        let (route, (range, row)) = (machine.lookup(key).expect("a table"), before.get(key).expect("a row"));
        assert_eq!((route.owner, route.generation, route.range), (row.owner.as_ref(), row.generation, range));
        assert!(route.owner.is_some() && route.generation > Generation::ZERO);
    }
    assert_eq!(cluster.sent.len(), sent);
    assert!(some_keys().any(|key| cluster.route(lookup, key) == Some(a)), "it is behind");
}

/// Centrifuge §2.2, PRS §4.2.
#[test]
fn centrifuge_2_2_a_new_lease_without_its_state_is_a_loss() {
    let mut cluster = Cluster::sliced();
    let (a, lookup) = (cluster.owner("a"), cluster.lookup());
    let b = cluster.owner("b");
    let (_, high) = halves();
    let mark = cluster.mark();
    // A new generation alone is no loss: the state came along.
    assert_eq!(cluster.lookup_machine(lookup).lookup(Key::MAX).expect("a table").generation, Generation(2));
    assert!(cluster.lost_keys(lookup, Instant::ZERO).is_empty());
    let known = cluster.entry(Key::MAX).generation;
    cluster.crash(b);
    cluster.run_for(secs(70));
    assert!(cluster.holds(a, high));
    assert!(cluster.entry(Key::MAX).state_since > known, "which is how it is told");
    let [(at, keys, why)] = cluster.losses(lookup, mark)[..] else { panic!("one loss") };
    assert_eq!((keys, why), (&RangeSet::from_ranges([high]), LossReason::StateBeganAnew));
    assert_eq!(cluster.route(lookup, Key::MAX), Some(a), "when there is somebody to publish to");
    assert!(at.since(mark) <= secs(65));
}

/// Centrifuge §2.2.
#[test]
fn centrifuge_2_2_a_clean_migration_is_no_loss() {
    let mut cluster = Cluster::new();
    let ([a, b], lookup) = (cluster.owners(["a", "b"]), cluster.lookup());
    let before = cluster.table().clone();
    cluster.tell(a, OwnerEvent::Drain);
    cluster.run_for(secs(120));
    assert_eq!(cluster.keys_of(b), RangeSet::all());
    let of_a = before.of_session(cluster.session(a));
    for (range, old) in of_a {
        let is_moved = |new: &centrifuge_core::table::Entry| {
            new.generation > old.generation && new.state_since == old.state_since
        };
        assert!(cluster.table().overlapping(range).all(|(_, new)| is_moved(new)));
    }
    assert!(cluster.is_current(lookup));
    assert_eq!(cluster.losses(lookup, Instant::ZERO), []);
    // Nor is it one where the destination's stream breaks before it has heard of its lease.
    let mut cluster = Cluster::sliced();
    let ([_, b], lookup) = (cluster.owners(["a", "b"]), cluster.lookup());
    cluster.run_for(secs(20));
    let (before, mark) = (cluster.entry(Key::MIN), cluster.mark());
    cluster.move_unheard("b", b);
    cluster.tell(b, OwnerEvent::Disconnected(manager_id(0)));
    cluster.run_until(secs(40), |cluster| cluster.holds(b, KeyRange::one(Key::MIN)));
    cluster.run_for(secs(100));
    assert_eq!(cluster.entry(Key::MIN).state_since, before.state_since);
    assert_eq!((cluster.owners_of(Key::MIN), cluster.losses(lookup, mark)), (vec![b], vec![]));
}

// ---- §2.2.1: changes and snapshots

/// Centrifuge §2.2.1.
#[test]
fn centrifuge_2_2_1_a_lookup_asks_every_30_seconds() {
    let mut cluster = Cluster::sliced();
    let (_, lookup) = (cluster.owner("a"), cluster.lookup());
    let mark = cluster.mark();
    cluster.run_for(secs(300));
    let asked: Vec<Instant> = cluster.sent_by(lookup, mark).map(|envelope| envelope.sent_at).collect();
    assert!(asked.len() == 10 && intervals(&asked).iter().all(|pause| *pause == secs(30)), "{asked:?}");
    // But a change does not wait for it.
    cluster.run_for(secs(7));
    let mark = cluster.mark();
    cluster.owner("b");
    assert!(cluster.is_current(lookup));
    assert_eq!(cluster.sent_by(lookup, mark).count(), 0);
}

/// Centrifuge §2.2.1, Centrifuge §2.1.2, PRS §4.2.
#[test]
fn centrifuge_2_2_1_changes_bring_a_lookup_to_the_managers_table() {
    let mut cluster = Cluster::new();
    let (lookup, other) = (cluster.lookup(), cluster.lookup());
    cluster.owners(["a", "b", "c"]);
    cluster.run_for(secs(40));
    let had = cluster.lookup_machine(lookup).position().expect("a table");
    assert_eq!(had, Position { log: cluster.stored().log, lsn: cluster.stored().lsn });
    // Nothing is pushed to one of them while the table changes.
    cluster.cut(M1, lookup);
    let mark = cluster.mark();
    for (number, owner) in ["a", "b", "c"].into_iter().enumerate() {
        cluster.pin(KeyRange::one(Key(number as u64)), owner);
    }
    cluster.mend(M1, lookup);
    let changes = cluster.stored().lsn.0 - had.lsn.0;
    assert!(changes >= 2 && !cluster.is_current(lookup));
    // Every change is at the next position.
    let pushed: Vec<(Lsn, Lsn)> = cluster.messages(M1, other, mark).filter_map(as_changes).collect();
    let in_order = (0..changes).map(|n| (Lsn(had.lsn.0 + n), Lsn(had.lsn.0 + n + 1)));
    assert_eq!(pushed, in_order.collect::<Vec<_>>());
    // It asks, names what it has, and is sent what it lacks.
    cluster.run_for(secs(30));
    let request = cluster.messages(lookup, M1, mark).find_map(Envelope::as_request).expect("a request");
    assert_eq!(request.position, Some(had));
    let answers: Vec<(Lsn, Lsn)> = cluster.messages(M1, lookup, mark).filter_map(as_changes).collect();
    assert_eq!(answers.last(), Some(&(had.lsn, cluster.stored().lsn)));
    assert!(cluster.is_current(lookup) && cluster.is_current(other));
}

fn as_changes(envelope: &Envelope) -> Option<(Lsn, Lsn)> {
    match envelope.as_update()?.body {
        UpdateBody::Changes { from, to, .. } => Some((from, to)),
        _ => None,
    }
}

/// Centrifuge §2.2.1.
#[test]
fn centrifuge_2_2_1_a_split_keeps_the_generation_of_what_its_owner_keeps() {
    let mut cluster = Cluster::sliced();
    let (a, lookup) = (cluster.owner("a"), cluster.lookup());
    let lease = cluster.check_now(a, Key::MIN).expect("a lease");
    let b = cluster.owner("b");
    let (low, high) = halves();
    assert!(cluster.holds(a, low) && cluster.holds(b, high));
    assert!(cluster.check_now(b, Key::MAX).expect("a lease") > lease, "what moves is numbered anew");
    assert!(cluster.check_continuous(a, Key::MIN, lease), "what stays is not");
    let machine = cluster.lookup_machine(lookup);
    assert_eq!(machine.lookup(Key::MIN).map(|route| (route.range, route.generation)), Some((low, lease)));
    assert_eq!(cluster.losses(lookup, Instant::ZERO), []);
}

/// Centrifuge §2.2.1, PRS §4.2.
#[test]
fn centrifuge_2_2_1_a_forgotten_position_gets_a_snapshot() {
    let mut cluster = Cluster::new();
    cluster.owners(["a", "b", "c"]);
    let lookup = cluster.lookup();
    cluster.run_for(secs(40));
    let had = cluster.lookup_machine(lookup).position();
    cluster.isolate(lookup);
    cluster.pin(KeyRange::one(Key(1)), "a");
    cluster.pin(KeyRange::one(Key(1)), "b");
    cluster.run_for(secs(301));
    cluster.reconnect(lookup);
    let (mark, snapshots) = (cluster.mark(), cluster.lookup_machine(lookup).counters().snapshots);
    cluster.run_for(secs(30));
    let request = cluster.messages(lookup, M1, mark).find_map(Envelope::as_request).expect("a request");
    assert_eq!(request.position, had, "it asks from where it stood five minutes ago");
    assert!(cluster.messages(M1, lookup, mark).filter_map(as_changes).next().is_none());
    assert_eq!(cluster.lookup_machine(lookup).counters().snapshots, snapshots + 1);
    assert!(cluster.is_current(lookup));
}

/// Centrifuge §2.2.1, PRS §4.2.
#[test]
fn centrifuge_2_2_1_the_smaller_of_changes_and_snapshot_is_sent() {
    let mut cluster = Cluster::sliced();
    cluster.owners(["a", "b", "c"]);
    let mut sizes = Vec::new();
    for moves in [1, 2, 5, 20] {
        let lookup = cluster.lookup();
        cluster.cut(M1, lookup);
        for number in 0..moves {
            cluster.pin(KeyRange::ALL, ["a", "b"][number % 2]);
        }
        cluster.mend(M1, lookup);
        let (mark, table) = (cluster.mark(), cluster.table().len());
        cluster.run_for(secs(40));
        assert!(cluster.is_current(lookup));
        let mut sent =
            cluster.messages(M1, lookup, mark).filter_map(|envelope| match &envelope.as_update()?.body {
                UpdateBody::Changes { entries, .. } => Some(("changes", entries.len())),
                UpdateBody::Snapshot { entries, .. } => Some(("snapshot", entries.len())),
                UpdateBody::Heartbeat { .. } | UpdateBody::Unchanged { .. } => None,
            });
        // Whatever it is told later is news: its neighbours may have become one lease meanwhile.
        let (kind, size) = sent.next().expect("an answer");
        assert!(size <= table, "never more than the table");
        sizes.push(kind);
    }
    assert_eq!((sizes[0], sizes[3]), ("changes", "snapshot"));
}
