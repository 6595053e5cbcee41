//! Centrifuge §3, claim by claim: what callers of a Lookup get, and what an Owner's application can rely on.

use std::collections::BTreeMap;

use crate::support::*;
use centrifuge_core::fence::Fence;
use centrifuge_core::id::{Generation, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::RangeLoad;
use centrifuge_core::lookup::LossReason;
use centrifuge_core::manager::MessageSkip;
use centrifuge_core::message::{HeldLease, Refusal, RefusedReason, Release};
use centrifuge_core::owner::{NotOwner, OwnerAction, OwnerEvent, RevokedReason};
use centrifuge_core::range_set::RangeSet;
use centrifuge_core::time::Instant;

// ---- §3.1: what callers get

/// Centrifuge §3.1, PRS §2.1.
#[test]
fn centrifuge_3_1_a_lookup_gives_the_address_that_the_owner_said() {
    let mut cluster = Cluster::sliced();
    let said = "Tcp://[::1]:7//ä b?c=%20&&#\u{1f980} ";
    cluster.owner_with("a", Clock::TRUE, |config| config.url = said.into());
    let lookup = cluster.lookup();
    let route = cluster.lookup_machine(lookup).lookup(Key(1)).expect("a table");
    assert_eq!(route.owner.expect("an owner").url.as_str(), said);
}

/// Centrifuge §3.1, PRS §2.1.
#[test]
fn centrifuge_3_1_a_stale_route_is_rejected_at_the_owner() {
    let mut cluster = Cluster::sliced();
    let (a, lookup) = (cluster.owner("a"), cluster.lookup());
    cluster.run_for(secs(20));
    cluster.isolate(lookup);
    let b = cluster.owner("b");
    assert_eq!(cluster.route(lookup, Key::MAX), Some(a), "a hint, and a stale one");
    assert_eq!(cluster.check_now(a, Key::MAX), Err(NotOwner::NoLease), "the request is rejected");
    cluster.reconnect(lookup);
    cluster.run_for(secs(30));
    assert_eq!(cluster.route(lookup, Key::MAX), Some(b));
    assert!(cluster.check_now(b, Key::MAX).is_ok(), "and a later try is not");
}

/// Centrifuge §3.1.
#[test]
fn centrifuge_3_1_at_rest_every_lookup_is_right() {
    let mut cluster = Cluster::with(Options { managers: 2, ..Options::default() });
    let early = cluster.lookup();
    let [a, b, c] = cluster.owners(["a", "b", "c"]);
    let between = cluster.lookup();
    cluster.crash(b);
    cluster.crash(M1);
    cluster.run_for(secs(10));
    let cut_off = cluster.lookup();
    cluster.isolate(cut_off);
    cluster.run_for(secs(150));
    cluster.reconnect(cut_off);
    cluster.tell(a, OwnerEvent::Drain);
    let d = cluster.owner("d");
    let late = cluster.lookup();
    // Nobody joins or leaves any more.
    cluster.run_for(secs(120));
    for lookup in [early, between, cut_off, late] {
        for key in some_keys() {
            let route = cluster.route(lookup, key).expect("an owner");
            assert_eq!(cluster.owners_of(key), [route]);
            assert!([c, d].contains(&route));
        }
    }
}

/// Centrifuge §3.1, PRS §4.1.
#[test]
fn centrifuge_3_1_a_crashed_owner_gets_its_ranges_back_under_new_generations() {
    for vouches in [true, false] {
        let mut cluster = Cluster::sliced();
        let (a, lookup) = (cluster.owner("a"), cluster.lookup());
        let old = cluster.check_now(a, Key(1)).expect("a lease");
        cluster.crash(a);
        let mark = cluster.mark();
        let again = cluster.owner_with("a", Clock::TRUE, |config| config.takes_over_previous = vouches);
        if !vouches {
            // Nothing proves that the first process is dead: the second one waits for the hold to run out.
            let refused = OwnerAction::JoinRefused(RefusedReason::NameInUse);
            assert!(cluster.upcalls(again, mark).contains(&&refused));
            assert!(cluster.held_keys(again).is_empty());
            cluster.run_for(secs(75));
        }
        assert!(cluster.holds(again, KeyRange::ALL));
        let new = cluster.check_now(again, Key(1)).expect("a lease");
        assert!(new > old);
        assert!(!cluster.check_continuous(again, Key(1), old), "it does not go on with its earlier life's");
        assert_eq!(cluster.entry(Key(1)).state_since, new);
        assert_eq!(cluster.lost_keys(lookup, mark), RangeSet::all());
    }
}

/// Centrifuge §3.1, Centrifuge §2.3, PRS §2.1.
#[test]
fn centrifuge_3_1_every_lookup_raises_the_loss_on_the_right_ranges() {
    let mut cluster = Cluster::new();
    let [a, b, c] = cluster.owners(["a", "b", "c"]);
    let lookups = [cluster.lookup(), cluster.lookup(), cluster.lookup()];
    cluster.run_for(secs(10));
    let lost = cluster.keys_of(b);
    let (mark, had) = (cluster.mark(), cluster.stored().lsn);
    cluster.crash(b);
    // One of them misses what is pushed when it happens, and has to ask.
    cluster.isolate(lookups[2]);
    cluster.run_for(secs(70));
    cluster.reconnect(lookups[2]);
    cluster.run_for(secs(10));
    assert_eq!(cluster.keys_of(a).union(&cluster.keys_of(c)), RangeSet::all());
    assert!(cluster.stored().lsn > had, "the crash is in the change log");
    for lookup in lookups {
        assert_eq!(cluster.lost_keys(lookup, mark), lost, "{lookup:?}");
        assert!(cluster.losses(lookup, mark).iter().all(|(_, _, why)| *why == LossReason::StateBeganAnew));
    }
}

// ---- §3.2: what Owners' applications can rely on

/// Centrifuge §3.2, PRS §2.
#[test]
fn centrifuge_3_2_an_owner_cannot_choose_a_key() {
    let mut cluster = Cluster::sliced();
    let (a, b) = (cluster.owner("a"), cluster.owner("b"));
    let (table, of_b) = (cluster.table().clone(), cluster.check_now(b, Key::MAX).expect("a lease"));
    let (_, high) = halves();
    // Of the events that name keys, none asks for them.
    cluster.tell(
        a,
        OwnerEvent::Load(
            vec![RangeLoad { range: high, load: 1, heavy: Vec::new(), quantiles: Vec::new() }].into(),
        ),
    );
    cluster.tell(a, OwnerEvent::ImportReady { range: high, source: of_b, term: Term(1) });
    cluster.run_for(secs(16));
    // Neither does a message, whatever it claims, gives back or refuses.
    let of_a = cluster.check_now(a, Key::MIN).expect("a lease");
    let skipped = |cluster: &Cluster, why| cluster.manager_machine(M1).counters().skipped.get(&why).copied();
    cluster.hold(a, M1);
    for (claims, generation) in [(1, of_b), (2, of_a), (3, Generation(99))] {
        cluster.run_until(secs(20), |cluster| cluster.waiting(a, M1) > 0);
        let mut message = cluster.take(a, M1);
        let report = message.report();
        report.held.push(HeldLease { range: high, generation, state_since: generation, warrant: None });
        cluster.deliver(message);
        assert_eq!(skipped(&cluster, MessageSkip::NotGranted), Some(claims));
        let ordered = cluster.latest(M1, a, |e| e.as_assign().map(|assign| assign.orders.clone()));
        assert!(ordered.iter().all(|order| !order.range.overlaps(high)));
    }
    cluster.run_until(secs(20), |cluster| cluster.waiting(a, M1) > 0);
    let mut message = cluster.take(a, M1);
    message.report().released = vec![Release {
        range: high,
        generation: of_b,
        clean_to: Some(cluster.session(a)),
        state_since: of_b,
        warrant: None,
    }];
    message.report().refused = vec![Refusal { range: high, generation: of_b }];
    cluster.deliver(message);
    assert_eq!(skipped(&cluster, MessageSkip::NotItsLease), Some(1));
    cluster.release(a, M1);
    cluster.run_for(secs(60));
    assert_eq!(cluster.table(), &table);
    assert!(cluster.check_continuous(b, Key::MAX, of_b) && cluster.check_now(a, Key::MAX).is_err());
}

/// Centrifuge §3.2.
#[test]
fn centrifuge_3_2_check_lease_now_fails_for_a_key_not_held() {
    let mut cluster = Cluster::sliced();
    let (a, b) = (cluster.owner("a"), cluster.owner("b"));
    let no_lease = Err(NotOwner::NoLease);
    assert!(cluster.check_now(a, Key::MIN).is_ok() && cluster.check_now(b, Key::MAX).is_ok());
    assert_eq!((cluster.check_now(a, Key::MAX), cluster.check_now(b, Key::MIN)), (no_lease, no_lease));
    cluster.isolate(a);
    cluster.run_for(secs(60));
    assert_eq!(cluster.check_now(a, Key::MIN), no_lease, "the lease is over");
    cluster.isolate(M1);
    let c = cluster.owner("c");
    assert_eq!(cluster.check_now(c, Key::MIN), no_lease, "it never had one");
}

/// Centrifuge §3.2.
#[test]
fn centrifuge_3_2_the_lease_number_stays_while_the_lease_is_held() {
    let mut cluster = Cluster::sliced_with_managers(2);
    let a = cluster.owner("a");
    let lease = cluster.check_now(a, Key::MIN).expect("a lease");
    let mark = cluster.mark();
    for second in 0..600 {
        if second == 100 {
            cluster.owner("b");
        }
        if second == 300 {
            cluster.crash(M1);
        }
        cluster.run_for(secs(1));
        assert_eq!(cluster.check_now(a, Key::MIN), Ok(lease));
        assert!(cluster.check_continuous(a, Key::MIN, lease));
    }
    let renewals = |manager| cluster.messages(manager, a, mark).filter(|e| e.as_assign().is_some()).count();
    assert!(renewals(M1) >= 18 && renewals(M2) >= 12, "renewed by two leaders");
}

/// Centrifuge §3.2, PRS §2.2.
#[test]
fn centrifuge_3_2_check_lease_continuous_fails_after_a_gap() {
    // The Owner comes back while the Manager still keeps the range for it, or after that.
    for silence in [61, 64, 70, 300] {
        let mut cluster = Cluster::sliced();
        let a = cluster.owner("a");
        let before = cluster.check_now(a, Key::MIN).expect("a lease");
        cluster.isolate(a);
        cluster.run_for(secs(59));
        assert!(cluster.check_continuous(a, Key::MIN, before), "no gap yet");
        cluster.run_for(secs(silence - 59));
        assert!(!cluster.check_continuous(a, Key::MIN, before) && cluster.check_now(a, Key::MIN).is_err());
        cluster.reconnect(a);
        cluster.run_for(secs(30));
        let after = cluster.check_now(a, Key::MIN).expect("a lease again");
        assert!(after > before, "after {silence} seconds: {before} and {after}");
        assert!(
            !cluster.check_continuous(a, Key::MIN, before) && cluster.check_continuous(a, Key::MIN, after)
        );
    }
}

/// An application as Centrifuge's figure 10 has it: lists by key, each with the lease under which it was made.
#[derive(Default)]
struct Lists {
    by_key: BTreeMap<Key, (Generation, Vec<u32>)>,
}

impl Lists {
    /// Adds to a list and returns it. `meanwhile` is what happens while the operation runs.
    fn add(
        &mut self,
        cluster: &mut Cluster,
        owner: Node,
        item: u32,
        meanwhile: impl FnOnce(&mut Cluster),
    ) -> Option<Vec<u32>> {
        let key = Key::MIN;
        let lease = cluster.check_now(owner, key).ok()?;
        let list = self.by_key.entry(key).or_default();
        if list.0 != lease {
            *list = (lease, Vec::new());
        }
        list.1.push(item);
        let result = list.1.clone();
        meanwhile(cluster);
        cluster.check_continuous(owner, key, lease).then_some(result)
    }
}

/// Centrifuge §3.2, PRS §2.2.
#[test]
fn centrifuge_3_2_four_steps_never_return_stale_state() {
    let mut cluster = Cluster::sliced();
    let a = cluster.owner("a");
    let mut at_a = Lists::default();
    assert_eq!(at_a.add(&mut cluster, a, 1, |_| {}), Some(vec![1]));
    assert_eq!(at_a.add(&mut cluster, a, 2, |cluster| cluster.run_for(secs(40))), Some(vec![1, 2]));
    // The lease ends while an operation runs: it returns nothing, and leaves its traces where they are.
    let cut_off = |cluster: &mut Cluster| {
        cluster.isolate(a);
        cluster.run_for(secs(70));
    };
    assert_eq!(at_a.add(&mut cluster, a, 3, cut_off), None);
    assert_eq!(at_a.by_key[&Key::MIN].1, [1, 2, 3], "nothing was cleaned up");
    // Another Owner serves the key for a while; here, nothing is served.
    let b = cluster.owner("b");
    let mut at_b = Lists::default();
    assert_eq!(at_b.add(&mut cluster, b, 4, |_| {}), Some(vec![4]));
    assert_eq!(at_a.add(&mut cluster, a, 5, |_| {}), None);
    // The key comes back: what is left of the old list is not shown.
    cluster.crash(b);
    cluster.reconnect(a);
    cluster.run_for(secs(100));
    assert_eq!(at_a.add(&mut cluster, a, 6, |_| {}), Some(vec![6]));
}

/// Centrifuge §3.2, PRS §2.3.
#[test]
fn centrifuge_3_2_a_receiver_refuses_a_lower_lease_number() {
    let mut cluster = Cluster::sliced();
    let a = cluster.owner("a");
    let mut fence = Fence::new();
    let of_a = cluster.check_now(a, Key::MIN).expect("a lease");
    assert!(fence.accept(Key::MIN, of_a));
    assert!(fence.accept(Key::MIN, of_a), "as often as it likes");
    // A message is on its way while its sender loses the key, and arrives after the new holder's first.
    cluster.isolate(a);
    cluster.run_for(secs(66));
    let b = cluster.owner("b");
    let of_b = cluster.check_now(b, Key::MIN).expect("a lease");
    assert!(fence.accept(Key::MIN, of_b));
    assert!(!fence.accept(Key::MIN, of_a));
    assert!(fence.accept(Key::MIN, of_b), "the holder is not refused for it");
    assert!(fence.accept(Key::MAX, of_a), "of another key nothing higher was seen");
}

/// Centrifuge §3.2, PRS §2.2.
#[test]
fn centrifuge_3_2_ownership_changes_name_what_was_granted_and_taken() {
    let mut cluster = Cluster::new();
    let a = cluster.owner("a");
    assert_eq!(told_to_hold(&cluster, a), RangeSet::all());
    let b = cluster.owner("b");
    let c = cluster.owner_with("c", Clock::TRUE, |config| config.migrates = false);
    cluster.run_for(secs(5));
    let all_agree = |cluster: &Cluster| {
        for owner in [a, b, c] {
            assert_eq!(told_to_hold(cluster, owner), cluster.held_keys(owner), "{owner:?}");
        }
    };
    all_agree(&cluster);
    cluster.isolate(b);
    cluster.run_for(secs(70));
    all_agree(&cluster);
    cluster.reconnect(b);
    cluster.run_for(secs(5));
    cluster.tell(c, OwnerEvent::Drain);
    cluster.run_for(secs(5));
    all_agree(&cluster);
    let mut reasons = Vec::new();
    for (_, _, action) in &cluster.told {
        if let OwnerAction::Revoked(revoked) = action {
            reasons.extend(revoked.iter().map(|revocation| revocation.why));
        }
    }
    let seen = [RevokedReason::Moved, RevokedReason::Expired, RevokedReason::GivenBack];
    assert!(seen.iter().all(|why| reasons.contains(why)), "keys were taken in all these ways");
}

/// What an application that hears nothing but changes of ownership takes to be its own.
fn told_to_hold(cluster: &Cluster, owner: Node) -> RangeSet {
    let mut keys = RangeSet::new();
    for action in cluster.upcalls(owner, Instant::ZERO) {
        match action {
            OwnerAction::Granted(grants) => grants.iter().for_each(|grant| keys.insert(grant.range)),
            OwnerAction::Revoked(revoked) => revoked.iter().for_each(|gone| keys.remove(gone.range)),
            _ => {}
        }
    }
    keys
}

/// Centrifuge §3.2, PRS §2.2.
#[test]
fn centrifuge_3_2_checks_do_not_wait_for_the_upcall() {
    let mut cluster = Cluster::sliced();
    let (a, b) = (cluster.owner("a"), cluster.owner("b"));
    let lease = cluster.check_now(a, Key::MIN).expect("a lease");
    // Its timers do not run, its messages are not read: nothing tells the application that the lease is over.
    cluster.pause(a);
    let mark = cluster.mark();
    cluster.run_for(secs(70));
    assert!(cluster.check_now(b, Key::MIN).is_ok(), "somebody else has the key by now");
    assert_eq!(cluster.upcalls(a, mark), [] as [&OwnerAction; 0]);
    assert_eq!(told_to_hold(&cluster, a), RangeSet::from_ranges([halves().0]));
    assert_eq!(cluster.check_now(a, Key::MIN), Err(NotOwner::NoLease));
    assert!(!cluster.check_continuous(a, Key::MIN, lease));
    // The report comes when it comes.
    cluster.resume(a);
    let OwnerAction::Revoked(revoked) = cluster.upcalls(a, mark)[0] else { panic!("first of all, the loss") };
    assert_eq!((revoked[0].range, revoked[0].why), (halves().0, RevokedReason::Expired));
}
