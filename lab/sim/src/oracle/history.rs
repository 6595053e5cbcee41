//! What is remembered of a run, so that the history of a key can be told.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use centrifuge_core::id::{Generation, Index, Namespace, SessionId, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::lookup::{LookupAction, LossReason};
use centrifuge_core::manager::{ManagerAction, RoleName};
use centrifuge_core::range_set::RangeSet;
use centrifuge_core::record::{Batch, Change, Record};

use crate::invariants::holdings::HoldChange;
use crate::invariants::{At, Facts, Service};
use crate::oracle::Limits;
use crate::seen::{Seen, TrueTime, Value};

/// How many events are remembered.
const REMEMBERED: usize = 1 << 15;

/// The latest events that belong into the history of some key.
#[derive(Debug, Default)]
pub(super) struct History {
    log: VecDeque<(TrueTime, Event)>,
}

impl History {
    /// What happened to some keys, as far back as is remembered: one line each, oldest first.
    pub(super) fn tell(&self, namespace: &Namespace, keys: &[Key], facts: &Facts) -> String {
        let Some(space) = facts.spaces.find(namespace) else {
            return format!("nothing is known of {namespace}\n");
        };
        let of_keys = |event: &Event| event.space() == Some(space) && event.concerns(keys);
        let events = || self.log.iter().filter(|(_, event)| of_keys(event));
        let sessions: BTreeSet<SessionId> = events().filter_map(|(_, event)| event.session()).collect();
        let mut text = preface(namespace, keys, &facts.limits);
        let told = self.log.iter().filter(|(_, event)| of_keys(event) || event.is_about(&sessions));
        for (at, event) in fold_services(told) {
            text.push_str(&format!("{:>12}  {event}\n", at.to_string()));
        }
        text
    }

    /// Takes in what happened; the facts have taken it in already.
    pub(super) fn remember(&mut self, seen: &Seen<'_>, facts: At) {
        match seen {
            Seen::OwnerStarted { node, session, .. } => {
                self.note(facts.now, Event::Started { node: *node, session: *session });
            }
            Seen::OwnerEnded { session, .. } => {
                self.note(facts.now, Event::Ended { session: *session });
                self.remember_holds(facts);
            }
            Seen::OwnerSuspended { suspended, .. } => {
                if let Some(change) = facts.holdings.change() {
                    let event = Event::Suspended { session: change.session, suspended: *suspended };
                    self.note(facts.now, event);
                }
                self.remember_holds(facts);
            }
            Seen::OwnerStepped { .. } => self.remember_holds(facts),
            Seen::ManagerStepped { node, actions, .. } => self.remember_roles(facts.now, *node, actions),
            Seen::LookupStepped { node, actions, .. } => self.remember_losses(*node, actions, facts),
            Seen::Committed { index, batch, .. } => self.remember_batch(*index, batch, facts),
            Seen::Served { .. } => {
                if let Some(service) = Service::of(seen, &facts) {
                    self.note(facts.now, Event::Served(service));
                }
            }
            Seen::FaultsEnded => self.note(facts.now, Event::FaultsEnded),
            _ => {}
        }
    }

    fn remember_holds(&mut self, facts: At) {
        let Some(HoldChange { space, session, end, expired, lost, gained, renumbered, .. }) =
            facts.holdings.change()
        else {
            return;
        };
        let held = |range, generation, how| {
            (facts.now, Event::Held { space: *space, session: *session, range, generation, how })
        };
        let lost = lost.iter().map(|lot| held(lot.range, lot.generation, Hold::Lost { expired: *expired }));
        let renumbered = renumbered.iter();
        let renumbered =
            renumbered.map(|lease| held(lease.range, lease.to, Hold::Renumbered { from: lease.from }));
        let gained = gained.iter().map(|lot| held(lot.range, lot.generation, Hold::Gained { end: *end }));
        self.log.extend(lost.chain(renumbered).chain(gained));
        self.forget_oldest();
    }

    fn remember_roles(&mut self, now: TrueTime, node: usize, actions: &[ManagerAction]) {
        for action in actions {
            match action {
                ManagerAction::RoleChanged(RoleName::Leader { term }) => {
                    self.note(now, Event::Leads { node, term: Some(*term) });
                }
                ManagerAction::RoleChanged(RoleName::Standby) => {
                    self.note(now, Event::Leads { node, term: None });
                }
                _ => {}
            }
        }
    }

    fn remember_losses(&mut self, node: usize, actions: &[LookupAction], facts: At) {
        for action in actions {
            let LookupAction::Loss { keys, why } = action else { continue };
            if let Some(space) = facts.lookup(node).map(|lookup| lookup.space) {
                self.note(facts.now, Event::Raised { space, node, keys: Box::new(keys.clone()), why: *why });
            }
        }
    }

    fn remember_batch(&mut self, index: Index, batch: &Batch, facts: At) {
        for record in &batch.records {
            let Record::Namespace { namespace, change, .. } = record else { continue };
            let space = facts.spaces.find(namespace).unwrap_or_default();
            if let Some(range) = range_of(change) {
                self.note(facts.now, Event::Committed { space, index, range, change: change.clone() });
            }
        }
    }

    fn note(&mut self, now: TrueTime, event: Event) {
        self.log.push_back((now, event));
        self.forget_oldest();
    }

    fn forget_oldest(&mut self) {
        while self.log.len() > REMEMBERED {
            self.log.pop_front();
        }
    }
}

fn preface(namespace: &Namespace, keys: &[Key], limits: &Limits) -> String {
    let Limits { hold, contact_timeout, unowned_delay, .. } = limits;
    let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
    let keys = keys.join(", ");
    format!(
        "history of {keys} in {namespace} (hold {hold:?}, contact timeout {contact_timeout:?}, unowned delay \
         {unowned_delay:?})\n"
    )
}

/// The keys of a record that belongs into their history.
fn range_of(change: &Change) -> Option<KeyRange> {
    match change {
        Change::Granted { range, .. }
        | Change::Claimed { range, .. }
        | Change::Released { range, .. }
        | Change::Recalled { range, .. }
        | Change::MergeBegun { range, .. }
        | Change::Merged { range, .. } => Some(*range),
        _ => None,
    }
}

/// Something that belongs into the history of some keys.
#[derive(Clone, Debug)]
enum Event {
    /// A process of an Owner begins.
    Started { node: usize, session: SessionId },
    /// It is gone.
    Ended { session: SessionId },
    /// It is suspended, or goes on.
    Suspended { session: SessionId, suspended: bool },
    /// A record about keys is durable.
    Committed { space: usize, index: Index, range: KeyRange, change: Change },
    /// What a session holds changes.
    Held { space: usize, session: SessionId, range: KeyRange, generation: Generation, how: Hold },
    /// An operation is served.
    Served(Service),
    /// Operations are served that follow each other on one key, in one session, under one lease.
    ServedOn { session: SessionId, key: Key, times: usize, last: Value },
    /// A Lookup raises a loss.
    Raised { space: usize, node: usize, keys: Box<RangeSet>, why: LossReason },
    /// A Manager begins to lead a term, or leads no more.
    Leads { node: usize, term: Option<Term> },
    /// No fault happens any more.
    FaultsEnded,
}

/// How what a session holds changes.
#[derive(Clone, Copy, Debug)]
enum Hold {
    /// It holds a range, until then unless it is renewed.
    Gained { end: TrueTime },
    /// It does not hold a range any more.
    Lost { expired: bool },
    /// It holds a range as before, under another number.
    Renumbered { from: Generation },
}

impl Event {
    /// The namespace of an event that concerns keys.
    fn space(&self) -> Option<usize> {
        match self {
            Event::Committed { space, .. }
            | Event::Held { space, .. }
            | Event::Served(Service { space, .. })
            | Event::Raised { space, .. } => Some(*space),
            _ => None,
        }
    }

    fn concerns(&self, keys: &[Key]) -> bool {
        match self {
            Event::Committed { range, .. } | Event::Held { range, .. } => {
                keys.iter().any(|key| range.contains(*key))
            }
            Event::Served(service) => keys.contains(&service.key),
            Event::Raised { keys: raised, .. } => keys.iter().any(|key| raised.contains(*key)),
            _ => false,
        }
    }

    fn session(&self) -> Option<SessionId> {
        match self {
            Event::Committed {
                change: Change::Granted { session, .. } | Change::Claimed { session, .. },
                ..
            }
            | Event::Held { session, .. }
            | Event::Served(Service { session, .. }) => Some(*session),
            _ => None,
        }
    }

    /// Whether this is about processes rather than keys, and about one of these or about all.
    fn is_about(&self, sessions: &BTreeSet<SessionId>) -> bool {
        match self {
            Event::Started { session, .. } | Event::Ended { session } | Event::Suspended { session, .. } => {
                sessions.contains(session)
            }
            Event::Leads { .. } | Event::FaultsEnded => true,
            _ => false,
        }
    }
}

/// Makes one line of operations that follow each other on one key, in one session, under one lease.
fn fold_services<'a>(events: impl Iterator<Item = &'a (TrueTime, Event)>) -> Vec<(TrueTime, Event)> {
    let mut folded: Vec<(TrueTime, Event)> = Vec::new();
    let mut latest: BTreeMap<Key, (usize, Service)> = BTreeMap::new();
    for (at, event) in events {
        let Event::Served(service) = event else {
            latest.clear();
            folded.push((*at, event.clone()));
            continue;
        };
        let before = latest.insert(service.key, (folded.len(), *service));
        match before {
            Some((line, first)) if goes_on(&first, service) => {
                latest.insert(service.key, (line, *service));
                folded[line] = (*at, longer(&folded[line].1, service));
            }
            _ => folded.push((*at, event.clone())),
        }
    }
    folded
}

fn goes_on(first: &Service, next: &Service) -> bool {
    first.session == next.session && first.generation == next.generation && next.before == Some(first.after)
}

fn longer(line: &Event, service: &Service) -> Event {
    let times = match line {
        Event::ServedOn { times, .. } => times + 1,
        _ => 2,
    };
    Event::ServedOn { session: service.session, key: service.key, times, last: service.after }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Started { node, session } => write!(f, "{session} begins on Owner {node}"),
            Event::Ended { session } => write!(f, "{session} is gone"),
            Event::Suspended { session, suspended: true } => write!(f, "{session} is suspended"),
            Event::Suspended { session, .. } => write!(f, "{session} goes on"),
            Event::Committed { index, change, .. } => {
                write!(f, "committed at {index}: ")?;
                describe_change(f, change)
            }
            Event::Held { session, range, generation, how, .. } => match how {
                Hold::Gained { end } => {
                    write!(f, "{session} holds {range} under lease {generation}, at first until {end}")
                }
                Hold::Lost { expired } => {
                    let how = if *expired { "has let run out" } else { "holds no more" };
                    write!(f, "{session} {how} {range} under lease {generation}")
                }
                Hold::Renumbered { from } => {
                    write!(f, "{session} holds {range} under lease {generation} instead of {from}")
                }
            },
            Event::Served(service) => service.fmt(f),
            Event::ServedOn { session, key, times, last } => {
                write!(f, "{session} has served {key} {times} times in a row by now, up to {last}")
            }
            Event::Raised { node, keys, why, .. } => {
                write!(f, "Lookup {node} raises a loss of {} ranges: {why:?}", keys.len())
            }
            Event::Leads { node, term: Some(term) } => write!(f, "Manager {node} leads term {term}"),
            Event::Leads { node, .. } => write!(f, "Manager {node} does not lead any more"),
            Event::FaultsEnded => write!(f, "the faults are over"),
        }
    }
}

fn describe_change(f: &mut fmt::Formatter<'_>, change: &Change) -> fmt::Result {
    match change {
        Change::Granted { range, generation, session, source, .. } => {
            write!(f, "{range} is granted to {session} as lease {generation}, ")?;
            match source {
                Some(source) => write!(f, "with the state of lease {source}"),
                None => write!(f, "empty"),
            }
        }
        Change::Claimed { range, generation, session, .. } => {
            write!(f, "{session} goes on with {range} under lease {generation}")
        }
        Change::Released { range, generation } => write!(f, "{range} is released from lease {generation}"),
        Change::Recalled { range, generation, to } => {
            write!(f, "{range} is recalled from lease {generation}")?;
            to.map_or(Ok(()), |to| write!(f, " for {to}"))
        }
        Change::MergeBegun { range, generation } => {
            write!(f, "{range} is to be one lease under {generation}")
        }
        Change::Merged { range, generation } => write!(f, "{range} is one lease under {generation}"),
        _ => Ok(()),
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Service { key, session, generation, before, after, .. } = self;
        write!(f, "{session} serves {key} under lease {generation}: ")?;
        match before {
            Some(before) => write!(f, "finds {before}, leaves {after}"),
            None => write!(f, "finds nothing, leaves {after}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::testing::{
        Scene, at, create, generation, grant, other_space_name, range, session, space_name,
    };

    fn serve(history: &mut History, now: u64, key: u64, version: u64, scene: &Scene) {
        let namespace = space_name();
        let value = |version| Value { lineage: 0xab, version };
        let seen = Seen::Served {
            session: session(1),
            namespace: &namespace,
            key: Key(key),
            generation: generation(1),
            before: (version > 1).then(|| value(version - 1)),
            after: value(version),
        };
        history.remember(&seen, scene.facts.at(at(now)));
    }

    /// A grant of keys 0-9, three operations on key 5, one on key 7, and the loss of the lease.
    fn told(namespace: &Namespace, keys: &[Key]) -> String {
        let (mut scene, mut history) = (Scene::new(), History::default());
        scene.start_owner(0, 1);
        let namespace_of_scene = space_name();
        let (node, session) = (0, session(1));
        history.remember(
            &Seen::OwnerStarted { node, session, namespace: &namespace_of_scene, migrates: true, keys: &[] },
            scene.facts.at(at(0)),
        );
        let batch = scene.commit(at(1), vec![create(1), grant(0, 9, 1, 1)]);
        history.remember(&Seen::Committed { index: Index(4), batch: &batch, by: 0 }, scene.facts.at(at(1)));
        scene.hold(at(2), 0, &[(range(0, 9), 1)], at(60));
        history.remember_holds(scene.facts.at(at(2)));
        (1..=3).for_each(|version| serve(&mut history, 2 + version, 5, version, &scene));
        serve(&mut history, 6, 7, 1, &scene);
        scene.hold(at(60), 0, &[], at(60));
        history.remember_holds(scene.facts.at(at(60)));
        history.tell(namespace, keys, &scene.facts)
    }

    #[test]
    fn the_history_of_a_key_is_told_in_order() {
        let text = told(&space_name(), &[Key(5)]);
        let lines: Vec<&str> = text.lines().skip(1).map(|line| line.trim()).collect();
        let keys = range(0, 9);
        let who = session(1);
        assert_eq!(
            lines,
            [
                format!("0.000s  {who} begins on Owner 0"),
                format!("1.000s  committed at 4: {keys} is granted to {who} as lease 1, empty"),
                format!("2.000s  {who} holds {keys} under lease 1, at first until 60.000s"),
                format!("5.000s  {who} has served {} 3 times in a row by now, up to ab/3", Key(5)),
                format!("60.000s  {who} has let run out {keys} under lease 1"),
            ]
        );
    }

    #[test]
    fn other_keys_and_namespaces_are_left_out() {
        let text = told(&space_name(), &[Key(99)]);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert_eq!(told(&other_space_name(), &[Key(5)]), "nothing is known of queues\n");
    }

    #[test]
    fn only_so_much_is_remembered() {
        let (scene, mut history) = (Scene::new(), History::default());
        for version in 0..REMEMBERED as u64 + 10 {
            serve(&mut history, 1, 5, version, &scene);
        }
        assert_eq!(history.log.len(), REMEMBERED);
    }
}
