//! One Lookup, a clock driven by hand, and short words for what its Manager says.

use std::time::Duration;

use centrifuge_core::id::{Generation, Lsn, ManagerId, Namespace, Nonce, Seq, SessionId, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::lookup::{LookupAction, LookupConfig, LookupEvent, LookupMachine, LossReason};
use centrifuge_core::machine::{Machine, Output};
use centrifuge_core::message::{LookupRequest, ManagerToLookup, Position, Update, UpdateBody};
use centrifuge_core::random::Random;
use centrifuge_core::range_set::RangeSet;
use centrifuge_core::table::{PublishedEntry, PublishedOwner};
use centrifuge_core::time::Instant;

/// The change log that worlds begin with.
pub(crate) const LOG: Nonce = Nonce(7);
/// The key space in eight equal blocks.
pub(crate) const BLOCK: u64 = 1 << 61;

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) fn at(seconds: u64) -> Instant {
    Instant::ZERO + secs(seconds)
}

pub(crate) fn block(index: u64) -> KeyRange {
    blocks(index, index)
}

pub(crate) fn blocks(first: u64, last: u64) -> KeyRange {
    KeyRange::new(Key(first * BLOCK), Key(last * BLOCK + (BLOCK - 1))).expect("blocks in order")
}

pub(crate) fn keys(first: u64, last: u64) -> RangeSet {
    RangeSet::from_ranges([blocks(first, last)])
}

pub(crate) fn owner(name: char) -> PublishedOwner {
    PublishedOwner { session: SessionId(Nonce(name.into())), url: name.to_string().as_str().into() }
}

pub(crate) fn owned(first: u64, last: u64, name: char, generation: u64, state_since: u64) -> PublishedEntry {
    PublishedEntry { owner: Some(owner(name)), ..unowned(first, last, generation, state_since) }
}

pub(crate) fn unowned(first: u64, last: u64, generation: u64, state_since: u64) -> PublishedEntry {
    let (generation, state_since) = (Generation(generation), Generation(state_since));
    PublishedEntry { range: blocks(first, last), owner: None, generation, state_since, quarantined: false }
}

pub(crate) fn position(lsn: u64) -> Position {
    Position { log: LOG, lsn: Lsn(lsn) }
}

pub(crate) fn is_request(action: &LookupAction) -> bool {
    sent(action).is_some()
}

pub(crate) fn requests(actions: &[LookupAction]) -> Vec<&LookupRequest> {
    actions.iter().filter_map(sent).map(|(_, request)| request).collect()
}

pub(crate) fn recipients(actions: &[LookupAction]) -> Vec<&str> {
    actions.iter().filter_map(sent).map(|(to, _)| to).collect()
}

pub(crate) fn sent(action: &LookupAction) -> Option<(&str, &LookupRequest)> {
    match action {
        LookupAction::ToManager { to, request } => Some((to.as_str(), request)),
        _ => None,
    }
}

pub(crate) fn losses(actions: &[LookupAction]) -> Vec<(RangeSet, LossReason)> {
    let loss = |action: &LookupAction| match action {
        LookupAction::Loss { keys, why } => Some((keys.clone(), *why)),
        _ => None,
    };
    actions.iter().filter_map(loss).collect()
}

pub(crate) fn losses_in(trace: &[(Instant, LookupAction)]) -> Vec<(Instant, RangeSet, LossReason)> {
    let loss = |(at, action): &(Instant, LookupAction)| match action {
        LookupAction::Loss { keys, why } => Some((*at, keys.clone(), *why)),
        _ => None,
    };
    trace.iter().filter_map(loss).collect()
}

/// A Lookup and the leader that speaks to it.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) machine: LookupMachine,
    pub(crate) now: Instant,
    pub(crate) wake_at: Option<Instant>,
    /// The latest request, which the leader echoes.
    pub(crate) asked: Seq,
    pub(crate) leader: ManagerId,
    pub(crate) term: Term,
    pub(crate) log: Nonce,
    pub(crate) lsn: u64,
}

impl World {
    pub(crate) fn new() -> World {
        World::of(World::config())
    }

    pub(crate) fn config() -> LookupConfig {
        let managers = ["m1", "m2", "m3"].map(ManagerId::from).into();
        LookupConfig::new(Namespace::new("pool").expect("a label"), managers)
    }

    pub(crate) fn of(config: LookupConfig) -> World {
        World {
            machine: LookupMachine::new(config, Random::from_number(1)),
            now: Instant::ZERO,
            wake_at: None,
            asked: Seq::ZERO,
            leader: "m1".into(),
            term: Term(1),
            log: LOG,
            lsn: 0,
        }
    }

    /// At second 0 the Lookup has asked and has its first table: `a` holds every key under lease 1.
    pub(crate) fn with_table() -> World {
        let mut world = World::new();
        world.start();
        world.snapshot(&[owned(0, 7, 'a', 1, 1)]);
        world
    }

    pub(crate) fn start(&mut self) -> Vec<LookupAction> {
        self.event(LookupEvent::Start)
    }

    pub(crate) fn advance(&mut self, by: Duration) {
        self.now = self.now + by;
    }

    pub(crate) fn event(&mut self, event: LookupEvent) -> Vec<LookupAction> {
        let output = self.machine.on_event(self.now, event);
        self.note(output)
    }

    /// Lets time pass to the machine's next wish.
    pub(crate) fn wake(&mut self) -> Vec<LookupAction> {
        self.now = self.now.max(self.wake_at.expect("the machine wants to be woken"));
        let output = self.machine.on_wake(self.now);
        self.note(output)
    }

    /// Lets time pass, with no word from any Manager.
    pub(crate) fn run_until(&mut self, end: Instant) -> Vec<(Instant, LookupAction)> {
        self.run(end, |_| Vec::new())
    }

    /// Lets time pass, and answers every request with a heartbeat.
    pub(crate) fn run_in_contact(&mut self, end: Instant) -> Vec<(Instant, LookupAction)> {
        let mut trace: Vec<_> =
            self.heartbeat(self.lsn).into_iter().map(|action| (self.now, action)).collect();
        trace.extend(self.run(end, |world| world.heartbeat(world.lsn)));
        trace
    }

    pub(crate) fn run(
        &mut self,
        end: Instant,
        answer: impl Fn(&mut World) -> Vec<LookupAction>,
    ) -> Vec<(Instant, LookupAction)> {
        let mut trace = Vec::new();
        while self.wake_at.is_some_and(|wake| wake <= end) {
            let mut actions = self.wake();
            if actions.iter().any(is_request) {
                actions.extend(answer(self));
            }
            trace.extend(actions.into_iter().map(|action| (self.now, action)));
        }
        self.now = end;
        trace
    }

    pub(crate) fn hear(&mut self, message: ManagerToLookup) -> Vec<LookupAction> {
        self.event(LookupEvent::FromManager { from: self.leader.clone(), message })
    }

    pub(crate) fn hear_not_leader(&mut self, from: &str, hint: Option<&str>) -> Vec<LookupAction> {
        let message = ManagerToLookup::NotLeader { leader: hint.map(ManagerId::from) };
        self.event(LookupEvent::FromManager { from: from.into(), message })
    }

    pub(crate) fn heartbeat(&mut self, lsn: u64) -> Vec<LookupAction> {
        self.hear(ManagerToLookup::Update(self.update(UpdateBody::Heartbeat { lsn: Lsn(lsn) })))
    }

    /// The leader's next change.
    pub(crate) fn change(&mut self, entries: &[PublishedEntry]) -> Vec<LookupAction> {
        let from = Lsn(self.lsn);
        self.lsn += 1;
        let body = UpdateBody::Changes { from, to: Lsn(self.lsn), entries: entries.into() };
        self.hear(ManagerToLookup::Update(self.update(body)))
    }

    /// The leader's whole table, one position on.
    pub(crate) fn snapshot(&mut self, entries: &[PublishedEntry]) -> Vec<LookupAction> {
        self.lsn += 1;
        let body = UpdateBody::Snapshot { lsn: Lsn(self.lsn), entries: entries.into() };
        self.hear(ManagerToLookup::Update(self.update(body)))
    }

    /// An update that echoes the latest request.
    pub(crate) fn update(&self, body: UpdateBody) -> Update {
        Update {
            namespace: Namespace::new("pool").expect("a label"),
            lookup: self.machine.nonce(),
            term: self.term,
            echo: self.asked,
            log: self.log,
            kind: Default::default(),
            body,
        }
    }

    pub(crate) fn echoing(&self, update: Update, echo: u64) -> ManagerToLookup {
        ManagerToLookup::Update(Update { echo: Seq(echo), ..update })
    }

    pub(crate) fn note(&mut self, output: Output<LookupAction>) -> Vec<LookupAction> {
        self.wake_at = output.wake;
        if let Some(request) = requests(&output.actions).last() {
            self.asked = request.seq;
        }
        output.actions
    }
}

/// The message is dropped: counted, and nothing else.
pub(crate) fn assert_dropped(world: &mut World, message: ManagerToLookup, counted: impl Fn(&World) -> u64) {
    let before =
        (world.machine.position(), world.machine.table().cloned(), world.machine.term(), world.wake_at);
    let contact = world.machine.in_contact(world.now);
    let count = counted(world);
    assert_eq!(world.hear(message), []);
    let after =
        (world.machine.position(), world.machine.table().cloned(), world.machine.term(), world.wake_at);
    assert_eq!(after, before);
    assert_eq!(world.machine.in_contact(world.now), contact);
    assert_eq!(counted(world), count + 1);
}
