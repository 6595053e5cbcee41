//! Centrifuge §2.3, claim by claim: what Owners and the Manager say to each other, by which clock, and in what order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use centrifuge_core::id::{Generation, Seq, SessionId};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::manager::MessageSkip;
use centrifuge_core::message::{HeldLease, LeaseOrder, OrderKind, Refusal, Release};
use centrifuge_core::owner::{NotOwner, OwnerAction, OwnerEvent, Revocation, RevokedReason};
use centrifuge_core::range_set::RangeSet;
use centrifuge_core::record::{Change, Reason, Record};
use centrifuge_core::time::Instant;

// ---- §2.3: requests and answers

/// Centrifuge §2.3.
#[test]
fn centrifuge_2_3_an_owner_is_told_of_its_own_leases_alone() {
    let mut cluster = Cluster::new();
    let [a, b, c] = cluster.owners(["a", "b", "c"]);
    cluster.crash(b);
    cluster.run_for(secs(70));
    cluster.tell(c, OwnerEvent::Drain);
    cluster.run_for(secs(60));
    assert_eq!(cluster.keys_of(a), RangeSet::all());
    let granted_to = |change: &Change| match change {
        Change::Granted { generation, session, .. } => Some((*generation, *session)),
        _ => None,
    };
    let granted: BTreeMap<Generation, SessionId> =
        cluster.store.changes_after(0).filter_map(granted_to).collect();
    for owner in [a, b, c] {
        let assigns = cluster.messages(M1, owner, Instant::ZERO).filter_map(Envelope::as_assign);
        let orders: Vec<_> = assigns.flat_map(|assign| assign.orders.iter()).collect();
        assert!(orders.len() > 100);
        assert!(orders.iter().all(|order| granted[&order.generation] == cluster.session(owner)));
    }
}

/// Centrifuge §2.3, PRS §4.3.
#[test]
fn centrifuge_2_3_an_owner_reports_every_15_seconds() {
    let mut cluster = Cluster::new();
    let a = cluster.owner("a");
    let mark = cluster.mark();
    cluster.run_for(secs(600));
    let reports: Vec<Instant> = cluster.sent_by(a, mark).map(|envelope| envelope.sent_at).collect();
    assert!(reports.len() == 40 && intervals(&reports).iter().all(|pause| *pause == secs(15)), "{reports:?}");
    assert!(cluster.sent_by(a, mark).all(|envelope| envelope.as_report().is_some()));
}

/// Centrifuge §2.3.
#[test]
fn centrifuge_2_3_two_requests_lost_in_a_row_cost_no_lease() {
    let mut cluster = Cluster::sliced();
    let (a, _) = (cluster.owner("a"), cluster.owner("b"));
    let lease = cluster.check_now(a, Key::MIN).expect("a lease");
    let answered = cluster.now;
    cluster.hold(a, M1);
    cluster.run_until(secs(60), |cluster| cluster.waiting(a, M1) == 2);
    cluster.take(a, M1);
    cluster.take(a, M1);
    cluster.release(a, M1);
    for _ in 0..120 {
        cluster.run_for(secs(1));
        assert!(cluster.check_continuous(a, Key::MIN, lease));
    }
    assert!(cluster.now.since(answered) > secs(60));
    // It is not the number that costs the lease: an unanswered request is sent again soon, up to the lease's end.
    let before = cluster.latest(a, M1, |envelope| Some(envelope.sent_at));
    cluster.cut(a, M1);
    cluster.run_until(secs(61), |cluster| !cluster.check_continuous(a, Key::MIN, lease));
    assert_eq!(cluster.now, before + secs(60));
    let lost = cluster.messages(a, M1, before + millis(1)).filter(|e| e.as_report().is_some()).count();
    assert!(lost > 3, "{lost}");
}

/// Centrifuge §2.3, PRS §4.3.
#[test]
fn centrifuge_2_3_the_answer_tells_grants_from_renewals() {
    let mut cluster = Cluster::sliced();
    let (a, _) = (cluster.owner("a"), cluster.owner("b"));
    let kept = cluster.check_now(a, Key::MIN).expect("a lease");
    let mark = cluster.mark();
    cluster.pin(KeyRange::one(Key::MAX), "a");
    let got = cluster.check_now(a, Key::MAX).expect("a new lease");
    let mut kinds = cluster.messages(M1, a, mark).filter_map(Envelope::as_assign).map(|assign| {
        assign.orders.iter().map(|order| (order.generation, is_grant(order))).collect::<Vec<_>>()
    });
    assert_eq!(kinds.next(), Some(vec![(kept, false), (got, true)]));
    // The request that follows names both leases, and both are renewed from then on.
    let named = cluster.latest(a, M1, |e| e.as_report().map(|report| report.held.clone()));
    assert_eq!(named.iter().map(|held| held.generation).collect::<Vec<_>>(), [kept, got]);
    assert_eq!(kinds.last(), Some(vec![(kept, false), (got, false)]));
}

/// A restarted Owner whose Manager's messages wait for the test, and the message that grants it everything.
fn restarted() -> (Cluster, Node, Generation, Envelope) {
    let mut cluster = Cluster::sliced();
    let a = cluster.owner("a");
    let old = cluster.check_now(a, Key::MIN).expect("a lease");
    cluster.crash(a);
    cluster.hold(M1, Node::Owner(1));
    let again = cluster.owner_with("a", Clock::TRUE, |config| config.takes_over_previous = true);
    assert_eq!(again, Node::Owner(1));
    let welcome = cluster.take(M1, again);
    cluster.deliver(welcome);
    let nothing_yet = cluster.take(M1, again);
    cluster.deliver(nothing_yet);
    let mut grant = cluster.take(M1, again);
    assert!(is_grant(&grant.assign().orders[0]));
    (cluster, again, old, grant)
}

/// Centrifuge §2.3.
#[test]
fn centrifuge_2_3_a_restarted_owner_refuses_a_renewal() {
    let (mut cluster, again, old, mut message) = restarted();
    // What its earlier life would have been sent.
    let order = &mut Arc::make_mut(&mut message.assign().orders)[0];
    (order.generation, order.state_since, order.kind) = (old, old, OrderKind::Renewal);
    cluster.deliver(message);
    assert!(cluster.held_keys(again).is_empty());
    assert_eq!(cluster.check_now(again, Key::MIN), Err(NotOwner::NoLease));
    let refused = cluster.latest(again, M1, |e| e.as_report().map(|report| report.refused.clone()));
    assert_eq!(refused, [Refusal { range: KeyRange::ALL, generation: old }]);
}

/// Centrifuge §2.3, PRS §4.3.
#[test]
fn centrifuge_2_3_a_refused_renewal_leads_to_a_new_generation() {
    let (mut cluster, again, _, mut message) = restarted();
    let order = &mut Arc::make_mut(&mut message.assign().orders)[0];
    let (refused, committed) = (order.generation, cluster.store.log.len());
    order.kind = OrderKind::Renewal;
    cluster.release(M1, again);
    cluster.deliver(message);
    let freed = cluster.store.log[committed..].iter().flat_map(|batch| &batch.records);
    let freed: Vec<&Record> = freed.collect();
    assert!(
        freed.iter().any(|record| matches!(record, Record::Namespace {
            change: Change::Released { generation, .. }, reason: Reason::RefusedByOwner, ..
        } if *generation == refused)),
        "{freed:?}"
    );
    let new = cluster.check_now(again, Key::MIN).expect("a lease");
    assert!(new > refused);
    assert_eq!(cluster.entry(Key::MIN).state_since, new, "so that every Lookup will hear of it");
}

/// Centrifuge §2.3, PRS §4.3.
#[test]
fn centrifuge_2_3_messages_carry_the_complete_set_both_ways() {
    let mut cluster = Cluster::new();
    let [a, _] = cluster.owners(["a", "b"]);
    cluster.hold(M1, a);
    cluster.run_until(secs(16), |cluster| cluster.waiting(M1, a) > 0);
    let in_table: Vec<(KeyRange, Generation)> = cluster
        .table()
        .of_session(cluster.session(a))
        .map(|(range, entry)| (range, entry.generation))
        .collect();
    assert!(in_table.len() > 20);
    let mut answer = cluster.take(M1, a);
    let ordered = answer.assign().orders.iter().map(|order| (order.range, order.generation));
    assert_eq!(ordered.collect::<Vec<_>>(), in_table);
    let requested = cluster.latest(a, M1, |e| e.as_report().map(|report| report.held.clone()));
    assert_eq!(keys(&requested), cluster.keys_of(a));
    // A lease that is not in the set is not extended: the Owner gives it up, and no other.
    let mut orders = answer.assign().orders.to_vec();
    let suppressed = orders.remove(7);
    answer.assign().orders = orders.into();
    let mark = cluster.mark();
    cluster.deliver(answer);
    let why = RevokedReason::Withdrawn;
    let revoked = Revocation { range: suppressed.range, generation: suppressed.generation, why };
    assert_eq!(cluster.upcalls(a, mark), [&OwnerAction::Revoked(vec![revoked])]);
    let rest = cluster.keys_of(a).difference(&RangeSet::from_ranges([suppressed.range]));
    assert_eq!(cluster.held_keys(a), rest);
}

fn keys(leases: &[HeldLease]) -> RangeSet {
    leases.iter().map(|lease| lease.range).collect()
}

// ---- §2.3.1: clocks

/// Centrifuge §2.3.1.
#[test]
fn centrifuge_2_3_1_clock_offsets_do_not_matter() {
    let run = |manager: Clock, owner: Clock| {
        let mut cluster =
            Cluster::with(Options { manager_clock: manager, settings: sliced(), ..Options::default() });
        let a = cluster.owner_with("a", owner, |_| {});
        let b = cluster.owner("b");
        cluster.run_for(secs(20));
        cluster.isolate(a);
        cluster.run_for(secs(70));
        assert!(cluster.held_keys(a).is_empty() && cluster.holds(b, KeyRange::ALL));
        cluster.reconnect(a);
        cluster.run_for(secs(60));
        assert!(!cluster.held_keys(a).is_empty());
        cluster.sent
    };
    let day = Clock::ahead_by(secs(86_400));
    let together = run(Clock::TRUE, Clock::TRUE);
    assert_eq!(run(Clock::TRUE, day), together);
    assert_eq!(run(day, Clock::TRUE), together, "every message at the same instant of true time");
}

/// Centrifuge §2.3.1.
#[test]
fn centrifuge_2_3_1_at_the_drift_bound_no_key_has_two_owners() {
    // The Manager's clock is as fast, or the Owner's as slow, as the bound allows; then one step beyond it.
    let bound = [(Clock::counting(65, 60), Clock::TRUE), (Clock::TRUE, Clock::counting(60, 65))];
    let beyond = [(Clock::counting(66, 60), Clock::TRUE), (Clock::TRUE, Clock::counting(59, 65))];
    for (manager_clock, owner_clock, is_safe) in bound
        .map(|(manager, owner)| (manager, owner, true))
        .into_iter()
        .chain(beyond.map(|(manager, owner)| (manager, owner, false)))
    {
        let mut cluster = Cluster::with(Options { manager_clock, settings: sliced(), ..Options::default() });
        let a = cluster.owner_with("a", owner_clock, |_| {});
        let b = cluster.owner("b");
        cluster.run_for(secs(10));
        // Alive, and cut off: it relies on its lease as long as its clock lets it.
        cluster.isolate(a);
        cluster.watched = is_safe;
        let (low, _) = halves();
        cluster.run_until(secs(80), |cluster| cluster.holds(b, low));
        assert_eq!(cluster.held_keys(a).is_empty(), is_safe, "{manager_clock:?} {owner_clock:?}");
        assert_eq!(cluster.held_twice().is_none(), is_safe);
    }
}

/// Centrifuge §2.3.1, Centrifuge §2.1.2.
#[test]
fn centrifuge_2_3_1_a_lease_counts_from_the_send_of_the_request() {
    let mut cluster = Cluster::sliced();
    cluster.hold(M1, Node::Owner(0));
    let a = cluster.owner("a");
    let welcome = cluster.take(M1, a);
    cluster.deliver(welcome);
    let requested = cluster.latest(a, M1, |e| e.as_report().map(|_| e.sent_at));
    let nothing_yet = cluster.take(M1, a);
    cluster.deliver(nothing_yet);
    let grant = cluster.take(M1, a);
    assert!(grant.as_assign().expect("an assignment").orders.iter().all(is_grant));
    cluster.run_for(millis(300));
    assert!(cluster.held_keys(a).is_empty(), "granted, but not arrived");
    cluster.deliver(grant);
    assert!(cluster.holds(a, KeyRange::ALL));
    // The answer took 300 ms, and so much less than 60 seconds are left of the lease.
    cluster.isolate(a);
    let arrived = cluster.now;
    cluster.run_for(secs(60) - millis(300) - Duration::from_nanos(1));
    assert!(cluster.holds(a, KeyRange::ALL));
    cluster.run_for(Duration::from_nanos(1));
    assert!(cluster.held_keys(a).is_empty());
    assert_eq!(
        (cluster.now.since(requested), cluster.now.since(arrived)),
        (secs(60), secs(60) - millis(300))
    );
}

/// Centrifuge §2.3.1, Centrifuge §2.3.
#[test]
fn centrifuge_2_3_1_the_hold_counts_from_the_arrival_of_the_request() {
    let mut cluster = Cluster::sliced();
    let (a, b) = (cluster.owner("a"), cluster.owner("b"));
    let (low, high) = halves();
    let of_b = cluster.check_now(b, Key::MAX).expect("a lease");
    cluster.hold(a, M1);
    cluster.run_until(secs(16), |cluster| cluster.waiting(a, M1) > 0);
    cluster.run_for(millis(200));
    let request = cluster.take(a, M1);
    cluster.deliver(request);
    cluster.crash(a);
    let took =
        cluster.run_until(secs(66), |cluster| cluster.entry(Key::MIN).owner == Some(cluster.session(b)));
    assert_eq!(took, secs(65), "from the arrival of the last request to the grant to another");
    cluster.settle();
    assert!(cluster.holds(b, low));
    // An Owner that keeps sending keeps what it has.
    cluster.run_for(secs(600));
    assert!(cluster.holds(b, high) && cluster.check_continuous(b, Key::MAX, of_b));
}

/// Centrifuge §2.3.1.
#[test]
fn centrifuge_2_3_1_a_push_extends_no_hold() {
    let mut cluster = Cluster::sliced();
    let a = cluster.owner("a");
    cluster.run_for(secs(30));
    let heard = cluster.now;
    assert_eq!(cluster.latest(a, M1, |envelope| Some(envelope.sent_at)), heard);
    cluster.run_for(secs(10));
    // From here on the Manager hears nothing of it, but goes on sending: another Owner joined.
    cluster.cut(a, M1);
    let mark = cluster.mark();
    let b = cluster.owner("b");
    assert!(cluster.latest(M1, a, |e| e.as_assign().map(|assign| assign.wants_answer)));
    assert_eq!(cluster.owner_machine(a).expiry(), heard + secs(60), "the push arrived and extended nothing");
    for (number, owner) in ["a", "b", "a", "b"].into_iter().enumerate() {
        cluster.run_for(secs(4));
        cluster.pin(KeyRange::one(Key(number as u64)), owner);
    }
    cluster.run_until(secs(70), |cluster| cluster.holds(b, KeyRange::one(Key::MAX)));
    assert_eq!(cluster.now, heard + secs(65), "nor did all the others at the Manager");
    assert!(cluster.messages(M1, a, mark).count() >= 4);
}

// ---- §2.3.2: recalls and races

/// Centrifuge §2.3.2.
#[test]
fn centrifuge_2_3_2_a_recall_frees_a_range_in_one_round_trip() {
    let there_and_back = millis(100);
    let wanted_back = |order: &LeaseOrder| order.recall.is_some();
    for migrates in [false, true] {
        let mut cluster = Cluster::sliced();
        cluster.latency = there_and_back / 2;
        let a = cluster.owner_with("a", Clock::TRUE, |config| config.migrates = migrates);
        cluster.run_for(secs(20));
        if migrates {
            cluster.by_hand(a);
        }
        let mark = cluster.mark();
        let b = cluster.owner("b");
        cluster.run_for(secs(5));
        let recalled = first_order(&cluster, a, mark, wanted_back).expect("a recall");
        if migrates {
            // The copy takes its time, and the range is free soon after it is complete.
            assert_eq!(first_order(&cluster, b, mark, is_grant), None);
            let complete = cluster.now;
            cluster.let_move(a);
            cluster.run_for(secs(1));
            let granted = first_order(&cluster, b, mark, is_grant).expect("a grant");
            assert!(granted.since(complete) <= there_and_back);
        } else {
            let granted = first_order(&cluster, b, mark, is_grant).expect("a grant");
            assert_eq!(granted.since(recalled), there_and_back);
        }
    }
}

/// When the Manager first sent an Owner such an order.
fn first_order(
    cluster: &Cluster,
    owner: Node,
    since: Instant,
    wanted: fn(&LeaseOrder) -> bool,
) -> Option<Instant> {
    let is_wanted = |e: &&Envelope| e.as_assign().is_some_and(|assign| assign.orders.iter().any(wanted));
    cluster.messages(M1, owner, since).find(is_wanted).map(|envelope| envelope.sent_at)
}

/// Centrifuge §2.3.2.
#[test]
fn centrifuge_2_3_2_a_lease_is_dropped_before_its_recall_is_acknowledged() {
    let mut cluster = Cluster::sliced();
    let a = cluster.owner_with("a", Clock::TRUE, |config| config.migrates = false);
    cluster.by_hand(a);
    let lease = cluster.check_now(a, Key::MAX).expect("a lease");
    let mark = cluster.mark();
    cluster.owner("b");
    let (low, high) = halves();
    let [OwnerAction::Freeze { transfer, range, to: None, .. }] = cluster.upcalls(a, mark)[..] else {
        panic!("a plain recall")
    };
    let (transfer, range) = (*transfer, *range);
    // No operation begins, those in flight end, and meanwhile nothing is acknowledged.
    assert_eq!((range, cluster.check_now(a, Key::MAX)), (high, Err(NotOwner::Moving)));
    assert!(cluster.check_continuous(a, Key::MAX, lease));
    cluster.run_for(secs(4));
    let acknowledged = |cluster: &Cluster| {
        let mut reports = cluster.messages(a, M1, mark).filter_map(Envelope::as_report);
        reports.find(|report| !report.released.is_empty()).cloned()
    };
    assert_eq!(acknowledged(&cluster), None);
    cluster.tell(a, OwnerEvent::Quiesced(transfer));
    assert!(!cluster.check_continuous(a, Key::MAX, lease));
    let report = acknowledged(&cluster).expect("an acknowledgment");
    let given_back = report.released.iter().map(|gone| (gone.range, gone.generation, gone.clean_to));
    assert_eq!(given_back.collect::<Vec<_>>(), [(high, lease, None)]);
    assert_eq!(keys(&report.held), RangeSet::from_ranges([low]));
}

fn races(cluster: &Cluster, owner: Node) -> (u64, u64) {
    let by_manager = cluster.manager_machine(M1).counters().skipped.get(&MessageSkip::Race);
    (by_manager.copied().unwrap_or_default(), cluster.owner_machine(owner).counters().races)
}

/// Centrifuge §2.3.2, PRS §4.3.
#[test]
fn centrifuge_2_3_2_an_old_acknowledgment_frees_no_new_grant() {
    let mut cluster = Cluster::sliced();
    let (a, b) = (cluster.owner("a"), cluster.owner("b"));
    let (low, _) = halves();
    let lease = cluster.check_now(a, Key::MIN).expect("a lease");
    // The Manager recalls the range; the acknowledgment is on its way ...
    cluster.pin(low, "b");
    let granted_to_b = cluster.check_now(b, Key::MIN).expect("it moves when nothing races");
    cluster.pin(low, "a");
    let lease_again = cluster.check_now(a, Key::MIN).expect("and back");
    assert!(lease < granted_to_b && granted_to_b < lease_again);
    cluster.hold(a, M1);
    cluster.pin(low, "b");
    let heard_of_it = cluster.take(a, M1);
    cluster.deliver(heard_of_it);
    let acknowledgment = cluster.take(a, M1);
    let released = &acknowledgment.as_report().expect("a report").released;
    assert_eq!(released.iter().map(|release| release.generation).collect::<Vec<_>>(), [lease_again]);
    // ... when it changes its mind and says so. The two messages cross.
    cluster.hold(M1, a);
    cluster.pin(low, "a");
    let change_of_mind = cluster.take(M1, a);
    assert!(
        change_of_mind.as_assign().expect("an assignment").orders.iter().all(|order| order.recall.is_none())
    );
    cluster.deliver(acknowledgment.clone());
    assert_eq!(cluster.entry(Key::MIN).owner, Some(cluster.session(a)), "it frees nothing");
    assert!(
        cluster.owners_of(Key::MIN).is_empty(),
        "and nobody else gets it while that message is on its way"
    );
    cluster.deliver(change_of_mind);
    assert_eq!(races(&cluster, a), (1, 1));
    assert!(!cluster.check_continuous(a, Key::MIN, lease_again), "what was given back is not held again");
    // The race ends, and the range ends up where it is wanted, under a number of its own.
    cluster.release(M1, a);
    cluster.release(a, M1);
    cluster.run_for(secs(20));
    let last = cluster.check_now(a, Key::MIN).expect("a lease");
    assert!(last > lease_again);
    // The old acknowledgment arrives once more, and then once more with a number that would count.
    let skipped = |cluster: &Cluster, why| {
        cluster.manager_machine(M1).counters().skipped.get(&why).copied().unwrap_or_default()
    };
    cluster.deliver(acknowledgment);
    assert_eq!(skipped(&cluster, MessageSkip::Duplicate), 1);
    cluster.hold(a, M1);
    cluster.run_for(secs(15));
    let mut report = cluster.take(a, M1);
    let (range, generation, state_since) = (low, lease_again, lease_again);
    let given_back = Release { range, generation, clean_to: None, state_since, warrant: None };
    report.report().released = vec![given_back];
    let before = skipped(&cluster, MessageSkip::NotItsLease);
    cluster.deliver(report);
    assert_eq!(skipped(&cluster, MessageSkip::NotItsLease), before + 1);
    cluster.release(a, M1);
    cluster.run_for(secs(20));
    assert!(cluster.check_continuous(a, Key::MIN, last));
}

/// A conversation at rest whose two next messages are on their way and will cross: the Owner's says that its weight
/// changed, the Manager's that a range is wanted back.
fn crossing() -> (Cluster, Node, Node) {
    let mut cluster = Cluster::sliced();
    let (a, b) = (cluster.owner("a"), cluster.owner("b"));
    cluster.run_for(secs(20));
    cluster.hold_both(a, M1);
    cluster.tell(a, OwnerEvent::Weight(50));
    cluster.pin(halves().0, "b");
    assert_eq!((cluster.waiting(a, M1), cluster.waiting(M1, a)), (1, 1));
    (cluster, a, b)
}

/// Lets the two messages that wait arrive, each after the other was sent.
fn cross(cluster: &mut Cluster, owner: Node) {
    let (report, assign) = (cluster.take(owner, M1), cluster.take(M1, owner));
    cluster.deliver(report);
    cluster.deliver(assign);
}

/// Centrifuge §2.3.2, PRS §4.3.
#[test]
fn centrifuge_2_3_2_racing_messages_are_dropped() {
    let (mut cluster, a, _) = crossing();
    // Every message has its own number, the highest heard, and the last applied.
    let before = cluster.messages(a, M1, Instant::ZERO).filter_map(Envelope::as_report);
    let numbers: Vec<Seq> = before.map(|report| report.seq).collect();
    assert!(
        numbers.len() > 2 && numbers.windows(2).all(|pair| pair[0].next() == Some(pair[1])),
        "{numbers:?}"
    );
    let (report, assign) = (cluster.take(a, M1), cluster.take(M1, a));
    let (said, told) = (report.as_report().expect("a report"), assign.as_assign().expect("an assignment"));
    assert!(said.heard < told.seq && told.heard < said.seq, "neither had the other when it was sent");
    assert_eq!((said.applied, told.applied), (said.heard, told.heard));
    let (table, mark) = (cluster.table().clone(), cluster.mark());
    let (seq_said, seq_told) = (said.seq, told.seq);
    cluster.deliver(report);
    cluster.deliver(assign);
    // Heard, and not acted on: the weight is not taken, and the recall is not begun.
    assert_eq!(races(&cluster, a), (1, 1));
    assert_eq!(cluster.table(), &table);
    assert!(cluster.stored().sessions.values().all(|info| info.weight == 100));
    assert_eq!(cluster.upcalls(a, mark), [] as [&OwnerAction; 0]);
    cluster.run_until(secs(8), |cluster| cluster.waiting(a, M1) > 0 && cluster.waiting(M1, a) > 0);
    let (report, assign) = (cluster.take(a, M1), cluster.take(M1, a));
    let (said, told) = (report.as_report().expect("a report"), assign.as_assign().expect("an assignment"));
    assert_eq!((said.heard, told.heard), (seq_told, seq_said), "what was dropped was heard");
    assert!(said.applied < seq_told && told.applied < seq_said, "but not applied");
}

/// Centrifuge §2.3.2.
#[test]
fn centrifuge_2_3_2_a_dropped_message_is_answered_after_a_random_wait() {
    let (mut cluster, a, _) = crossing();
    let (mut by_owner, mut by_manager) = (Vec::new(), Vec::new());
    let is_talk = |envelope: &Envelope| envelope.as_report().is_some() || envelope.as_assign().is_some();
    for race in 1..=7 {
        // Only what was sent last can cross; what came before it is lost.
        let last = |cluster: &mut Cluster, from, to| {
            let waiting: Vec<Envelope> =
                (0..cluster.waiting(from, to)).map(|_| cluster.take(from, to)).filter(is_talk).collect();
            waiting.into_iter().last().expect("a message")
        };
        let (report, assign) = (last(&mut cluster, a, M1), last(&mut cluster, M1, a));
        cluster.deliver(report);
        cluster.deliver(assign);
        assert_eq!(races(&cluster, a), (race, race));
        let crossed = cluster.mark();
        let next = |cluster: &Cluster, from, to| {
            cluster
                .messages(from, to, crossed)
                .find(|envelope| is_talk(envelope))
                .map(|e| e.sent_at.since(crossed))
        };
        cluster
            .run_until(secs(16), |cluster| next(cluster, a, M1).is_some() && next(cluster, M1, a).is_some());
        by_owner.extend(next(&cluster, a, M1));
        by_manager.extend(next(&cluster, M1, a));
    }
    for (waits, longest) in [(&by_owner, secs(60) / 8), (&by_manager, secs(60) / 4)] {
        assert!(waits[0] < millis(1_600), "at first a few round trips: {waits:?}");
        assert!(waits.iter().all(|wait| *wait < longest), "{waits:?}");
        assert!(waits[5..].iter().all(|wait| *wait >= secs(60) / 32), "it doubles for a while: {waits:?}");
        assert!(intervals_differ(waits), "by chance: {waits:?}");
    }
    let first = by_owner.iter().zip(&by_manager).all(|(owner, manager)| owner < manager);
    assert!(first, "the Owner's word comes first: {by_owner:?} {by_manager:?}");
}

fn intervals_differ(waits: &[Duration]) -> bool {
    waits.iter().collect::<BTreeSet<_>>().len() == waits.len()
}

/// Centrifuge §2.3.2.
#[test]
fn centrifuge_2_3_2_the_first_message_to_get_through_ends_the_race() {
    let (mut cluster, a, b) = crossing();
    let lease = cluster.check_now(a, Key::MIN).expect("a lease");
    cross(&mut cluster, a);
    assert_eq!(races(&cluster, a), (1, 1));
    // Whichever is sent again first arrives before the other is.
    cluster.run_until(secs(8), |cluster| cluster.waiting(a, M1) + cluster.waiting(M1, a) == 1);
    assert!(cluster.check_continuous(a, Key::MIN, lease));
    cluster.release(a, M1);
    cluster.release(M1, a);
    assert_eq!(cluster.stored().sessions[&cluster.session(a)].weight, 50, "both have had their say");
    assert!(cluster.holds(b, halves().0));
    cluster.run_for(secs(60));
    assert_eq!(races(&cluster, a), (1, 1), "and it is over");
}

/// Centrifuge §2.3.2.
#[test]
fn centrifuge_2_3_2_a_new_message_says_what_is_right_by_then() {
    // A recall was dropped in a race, and is not wanted any more when the Manager sends again.
    let (mut cluster, a, _) = crossing();
    let lease = cluster.check_now(a, Key::MIN).expect("a lease");
    cross(&mut cluster, a);
    let mark = cluster.mark();
    cluster.pin(halves().0, "a");
    cluster.release(a, M1);
    cluster.release(M1, a);
    cluster.run_for(secs(20));
    let assigns: Vec<_> = cluster.messages(M1, a, mark).filter_map(Envelope::as_assign).collect();
    assert!(!assigns.is_empty());
    assert!(assigns.iter().all(|assign| assign.orders.iter().all(|order| order.recall.is_none())));
    assert!(cluster.check_continuous(a, Key::MIN, lease));
    assert_eq!(cluster.upcalls(a, mark), [] as [&OwnerAction; 0]);
    // A grant was dropped, and is not wanted any more. Its state is at the Owner alone: it is offered again, and wanted
    // back once the Owner has it.
    let mut cluster = Cluster::sliced();
    let (a, b) = (cluster.owner("a"), cluster.owner("b"));
    cluster.run_for(secs(20));
    cluster.hold_both(b, M1);
    cluster.tell(b, OwnerEvent::Weight(50));
    cluster.pin(KeyRange::one(Key::MIN), "b");
    cross(&mut cluster, b);
    assert!(!cluster.holds(b, KeyRange::one(Key::MIN)));
    let mark = cluster.mark();
    cluster.pin(KeyRange::one(Key::MIN), "a");
    cluster.release(b, M1);
    cluster.release(M1, b);
    cluster.run_for(secs(20));
    let to_b = cluster.messages(M1, b, mark).filter_map(Envelope::as_assign);
    let orders: Vec<_> = to_b.flat_map(|assign| assign.orders.iter()).collect();
    let (grants, renewals): (Vec<_>, Vec<_>) = orders.into_iter().partition(|order| is_grant(order));
    assert!(!grants.is_empty() && grants.iter().all(|order| order.recall.is_none()), "{grants:?}");
    assert!(renewals.iter().any(|order| order.recall.is_some()), "{renewals:?}");
    assert!(cluster.holds(a, KeyRange::one(Key::MIN)) && !cluster.holds(b, KeyRange::one(Key::MIN)));
}

/// Centrifuge §2.3.2, PRS §4.3.
#[test]
fn centrifuge_2_3_2_a_message_of_an_earlier_life_is_dropped() {
    let mut cluster = Cluster::sliced();
    let a = cluster.owner("a");
    cluster.run_for(secs(100));
    cluster.hold_both(a, M1);
    cluster.run_for(secs(16));
    let old_report = cluster.take(a, M1);
    cluster.deliver(old_report.clone());
    let old_assign = cluster.take(M1, a);
    cluster.crash(a);
    let again = cluster.owner_with("a", Clock::TRUE, |config| config.takes_over_previous = true);
    let lease = cluster.check_now(again, Key::MIN).expect("a lease");
    let latest = cluster.latest(again, M1, |e| e.as_report().map(|report| report.seq));
    assert!(old_report.as_report().expect("a report").seq > latest, "by its number it would be news");
    let (table, foreign) = (cluster.table().clone(), MessageSkip::ForeignNonce);
    let skipped = |cluster: &Cluster| cluster.manager_machine(M1).counters().skipped.get(&foreign).copied();
    assert_eq!(skipped(&cluster), None);
    // To the Manager: as it was sent, and then in the name of the new process.
    cluster.deliver(old_report.clone());
    let mut renamed = old_report;
    renamed.from = again;
    renamed.report().session = cluster.session(again);
    cluster.deliver(renamed);
    assert_eq!((skipped(&cluster), cluster.table()), (Some(2), &table));
    // To the Owner, likewise.
    let mut renamed = Envelope { to: again, ..old_assign };
    cluster.deliver(renamed.clone());
    renamed.assign().session = cluster.session(again);
    renamed.assign().orders = [].into();
    cluster.deliver(renamed);
    assert_eq!(cluster.owner_machine(again).counters().foreign, 2);
    cluster.run_for(secs(120));
    assert!(cluster.check_continuous(again, Key::MIN, lease), "nothing came of any of it");
}
