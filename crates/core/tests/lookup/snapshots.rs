//! Changes and snapshots give the same table and the same losses (S7), whatever comes.

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::change_log::ChangeLog;
use centrifuge_core::id::{Lsn, ManagerId, Nonce, Seq, Term};
use centrifuge_core::key::KeyRange;
use centrifuge_core::lookup::{LookupConfig, LookupEvent, LossReason, Row};
use centrifuge_core::message::{ManagerToLookup, Update, UpdateBody};
use centrifuge_core::range_map::RangeMap;
use centrifuge_core::range_set::RangeSet;
use centrifuge_core::table::PublishedEntry;
use centrifuge_core::time::Instant;
use proptest::prelude::*;

use crate::world::*;

/// What happens to the blocks `first..=last`.
#[derive(Clone, Copy, Debug)]
struct Step {
    first: u64,
    last: u64,
    what: What,
    /// The Lookups that do not hear every change hear of the table after this one.
    is_heard_by_all: bool,
    /// How long it is until the next step.
    wait: Duration,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// One new lease whose state begins empty.
    Grant(char),
    /// New leases, each with the state that its blocks had; blocks without an owner stay as they are.
    Migrate(char),
    /// No owner any more.
    Release,
}

fn step() -> impl Strategy<Value = Step> {
    let name = || prop::sample::select(vec!['a', 'b', 'c']);
    let what = prop_oneof![name().prop_map(What::Grant), name().prop_map(What::Migrate), Just(What::Release)];
    (0..8u64, 0..8u64, what, prop::bool::weighted(0.3), 0..25u64).prop_map(
        |(one, other, what, is_heard_by_all, wait)| {
            let (first, last) = (one.min(other), one.max(other));
            Step { first, last, what, is_heard_by_all, wait: secs(wait) }
        },
    )
}

/// The Manager's table: owner, generation and `state_since` of each block.
#[derive(Clone, Debug)]
struct Model {
    blocks: [(Option<char>, u64, u64); 8],
    generation: u64,
    /// When each block last lost its state.
    lost_at: [Option<Instant>; 8],
}

impl Model {
    /// Some blocks have an owner, some lost theirs, some never had one.
    fn new() -> Model {
        let mut blocks = [(None, 0, 0); 8];
        blocks[..4].fill((Some('a'), 2, 1));
        blocks[4..6].fill((None, 2, 2));
        Model { blocks, generation: 2, lost_at: [None; 8] }
    }

    /// Takes a step and says its entries; none if it changes nothing.
    fn take(&mut self, step: Step, now: Instant) -> Vec<PublishedEntry> {
        let lease = self.generation + 1;
        let mut changed = Vec::new();
        for index in step.first..=step.last {
            let (owner, generation, since) = self.blocks[index as usize];
            let next = match step.what {
                What::Grant(name) => (Some(name), lease, lease),
                _ if owner.is_none() => continue,
                What::Migrate(name) => (Some(name), self.generation + 1, since),
                What::Release => (None, generation, since),
            };
            if owner.is_some() && !matches!(step.what, What::Migrate(_)) {
                self.lost_at[index as usize] = Some(now);
            }
            self.blocks[index as usize] = next;
            self.generation = self.generation.max(next.1);
            changed.push(self.entry(index));
        }
        changed
    }

    fn entry(&self, index: u64) -> PublishedEntry {
        let (name, generation, since) = self.blocks[index as usize];
        let entry = unowned(index, index, generation, since);
        PublishedEntry { owner: name.map(owner), ..entry }
    }

    fn all(&self) -> Vec<PublishedEntry> {
        (0..8).map(|index| self.entry(index)).collect()
    }

    fn rows(&self) -> RangeMap<Row> {
        self.all().iter().map(|entry| (entry.range, Row::from(entry))).collect()
    }
}

/// A Lookup of the model, with all that it raised.
struct Follower {
    world: World,
    raised: Vec<(Instant, RangeSet, LossReason)>,
}

impl Follower {
    fn new(model: &Model, unowned_delay: Duration) -> Follower {
        let config = LookupConfig { unowned_delay, contact_timeout: secs(1_000_000), ..World::config() };
        let mut world = World::of(config);
        world.start();
        world.snapshot(&model.all());
        Follower { world, raised: Vec::new() }
    }

    fn hear(&mut self, body: UpdateBody) {
        let message = ManagerToLookup::Update(self.world.update(body));
        let actions = self.world.hear(message);
        self.raised.extend(losses(&actions).into_iter().map(|(keys, why)| (self.world.now, keys, why)));
    }

    fn run_until(&mut self, end: Instant) {
        let trace = self.world.run_until(end);
        self.raised.extend(losses_in(&trace));
    }

    /// The keys that were raised since the last call, or are certain to be.
    fn take_lost(&mut self) -> RangeSet {
        let pending = self.world.machine.pending_losses();
        self.raised.drain(..).fold(pending, |lost, (_, keys, _)| lost.union(&keys))
    }
}

/// One Lookup that hears every change, one that hears snapshots, and one that hears what the change log thinks best.
struct Trio {
    model: Model,
    log: ChangeLog,
    followers: [Follower; 3],
}

impl Trio {
    fn new(unowned_delay: Duration) -> Trio {
        let model = Model::new();
        let followers = [(); 3].map(|()| Follower::new(&model, unowned_delay));
        Trio { model, log: ChangeLog::new(LOG, Lsn(1)), followers }
    }

    fn take(&mut self, step: Step) {
        let now = self.followers[0].world.now;
        let entries: Arc<[_]> = self.model.take(step, now).into();
        if !entries.is_empty() {
            let from = self.log.end();
            let to = from.next().expect("a short log");
            self.log.push(now, to, Arc::clone(&entries), secs(1_000_000));
            self.followers[0].hear(UpdateBody::Changes { from, to, entries });
        }
        if step.is_heard_by_all {
            self.tell_all();
        }
    }

    fn tell_all(&mut self) {
        let entries: Arc<[_]> = self.model.all().into();
        self.followers[1].hear(UpdateBody::Snapshot { lsn: self.log.end(), entries: Arc::clone(&entries) });
        let position = self.followers[2].world.machine.position();
        self.followers[2].hear(self.log.answer(position, 8, || entries));
    }

    fn run_for(&mut self, wait: Duration) {
        let end = self.followers[0].world.now + wait;
        self.followers.iter_mut().for_each(|follower| follower.run_until(end));
    }
}

proptest! {
    /// Between two moments at which both have the same table, who hears every change and who hears snapshots are told
    /// of the same losses. A loss that waits for an owner counts: the one who heard more may have had one to raise it
    /// with in between.
    #[test]
    fn snapshots_give_the_losses_that_the_changes_between_them_give(steps in prop::collection::vec(step(), 1..60)) {
        let mut trio = Trio::new(secs(1_000_000));
        for step in steps {
            trio.take(step);
            if step.is_heard_by_all {
                let [every, snapshots, log] = trio.followers.each_mut().map(Follower::take_lost);
                prop_assert_eq!(&every, &snapshots);
                prop_assert_eq!(&every, &log);
                for follower in &trio.followers {
                    prop_assert_eq!(follower.world.machine.table(), Some(&trio.model.rows()));
                }
            }
        }
    }

    /// With delays that end, everyone is told of every loss after it happened, and of nothing else.
    #[test]
    fn every_loss_is_raised_after_it_happened_and_no_other(steps in prop::collection::vec(step(), 1..60)) {
        let mut trio = Trio::new(secs(30));
        let mut touched = RangeSet::new();
        for step in steps {
            trio.take(step);
            if !matches!(step.what, What::Migrate(_)) {
                touched.insert(blocks(step.first, step.last));
            }
            trio.run_for(step.wait);
        }
        trio.tell_all();
        trio.run_for(secs(31));
        for follower in &trio.followers {
            prop_assert!(follower.world.machine.pending_losses().is_empty());
            for (_, keys, _) in &follower.raised {
                prop_assert!(keys.difference(&touched).is_empty());
            }
            for index in 0..8 {
                let key = block(index).first();
                let told = follower.raised.iter().rev().find(|(_, keys, _)| keys.contains(key)).map(|told| told.0);
                prop_assert!(trio.model.lost_at[index as usize] <= told, "block {}: {:?}", index, follower.raised);
            }
        }
    }
}

/// A message that may be of any Manager, term, log and request, and say anything.
fn any_message() -> impl Strategy<Value = (&'static str, ManagerToLookup)> {
    let from = prop::sample::select(vec!["m1", "m2", "m3", "stranger"]);
    let hint = prop::option::of(prop::sample::select(vec!["m1", "m2", "stranger"]));
    let entry =
        (0..8u64, 0..8u64, prop::bool::ANY, 0..5u64, 0..5u64).prop_map(|(one, other, has_owner, g, s)| {
            let entry = unowned(one.min(other), one.max(other), g, s);
            PublishedEntry { owner: has_owner.then(|| owner('x')), ..entry }
        });
    let whole =
        (1..5u64, 1..5u64).prop_map(|(g, s)| vec![owned(0, 3, 'a', g.max(s), s), unowned(4, 7, g.max(s), s)]);
    let entries = prop_oneof![whole, prop::collection::vec(entry, 0..3)];
    let body = (0..3, 0..6u64, 0..6u64, entries).prop_map(|(kind, from, to, entries)| match kind {
        0 => UpdateBody::Heartbeat { lsn: Lsn(to) },
        1 => UpdateBody::Changes { from: Lsn(from), to: Lsn(to), entries: entries.into() },
        _ => UpdateBody::Snapshot { lsn: Lsn(to), entries: entries.into() },
    });
    let update = (body, 0..4u64, 0..30u64, 7..9u128).prop_map(|(body, term, echo, log)| {
        let (term, echo, log) = (Term(term), Seq(echo), Nonce(log));
        ManagerToLookup::Update(Update { term, echo, log, ..World::new().update(body) })
    });
    let not_leader = hint.prop_map(|hint| ManagerToLookup::NotLeader { leader: hint.map(ManagerId::from) });
    (from, prop_oneof![5 => update, 1 => not_leader])
}

proptest! {
    /// Whatever arrives, the machine stands, never wants to be woken at once, and neither term nor position goes back.
    #[test]
    fn no_message_makes_it_spin_or_go_back(script in prop::collection::vec((any_message(), 0..9000u64), 1..80)) {
        let mut world = World::new();
        world.start();
        for ((from, message), wait) in script {
            let (term, position) = (world.machine.term(), world.machine.position());
            world.run_until(world.now + Duration::from_millis(wait));
            world.event(LookupEvent::FromManager { from: from.into(), message });
            prop_assert!(world.wake_at > Some(world.now));
            prop_assert!(term <= world.machine.term());
            let after = world.machine.position();
            let is_same_log = position.map(|before| before.log) == after.map(|after| after.log);
            prop_assert!(!is_same_log || position.map(|before| before.lsn) <= after.map(|after| after.lsn));
            prop_assert!(world.machine.table().is_none_or(|table| table.covers(KeyRange::ALL)));
        }
    }
}
