//! The all-seeing oracle: takes in everything the world shows, has every invariant judge it, and remembers enough to
//! tell the history of a key.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use centrifuge_core::id::{Generation, Index, Namespace, SessionId, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::lookup::{LookupAction, LossWhy};
use centrifuge_core::manager::{ManagerAction, RoleName};
use centrifuge_core::range_set::RangeSet;
use centrifuge_core::record::{Batch, Change, Record};

use crate::invariants::Facts;
use crate::invariants::answers_are_committed::AnswersAreCommitted;
use crate::invariants::at_most_one_owner::AtMostOneOwner;
use crate::invariants::changes_equal_snapshots::ChangesEqualSnapshots;
use crate::invariants::continuous_means_continuous::ContinuousMeansContinuous;
use crate::invariants::every_key_gets_an_owner::EveryKeyGetsAnOwner;
use crate::invariants::generations_rise::GenerationsRise;
use crate::invariants::losses_are_raised::LossesAreRaised;
use crate::invariants::namespaces_share_nothing::NamespacesShareNothing;
use crate::invariants::one_manager_writes::OneManagerWrites;
use crate::invariants::races_end::RacesEnd;
use crate::seen::{Seen, TrueTime, Value, Violation};

/// How many events are remembered for histories.
const REMEMBERED: usize = 1 << 15;

/// What a run is judged by. All times are real: they include what the slowest clock adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest hold of any namespace.
    pub hold: Duration,
    /// How old a Lookup's knowledge may become before it takes everything for lost.
    pub contact_timeout: Duration,
    /// How long a Lookup waits for a lost range's next owner.
    pub unowned_delay: Duration,
    /// What messages, retries and rounding may add.
    pub slack: Duration,
    /// How long after the last fault everything must have come to rest.
    pub converge: Duration,
    /// Nothing disturbs but races: messages are neither lost nor late, and nobody stops.
    pub races_only: bool,
    /// How many reports of a session may cross the Manager's messages in a row, where only races disturb.
    pub races_in_a_row: u32,
    /// Whether S1 is judged.
    pub check_s1: bool,
}

/// Judges a run event by event. After the first violation nothing it says is of use but the history.
#[derive(Debug)]
pub struct Oracle {
    facts: Facts,
    at_most_one_owner: AtMostOneOwner,
    generations_rise: GenerationsRise,
    continuous_means_continuous: ContinuousMeansContinuous,
    losses_are_raised: LossesAreRaised,
    one_manager_writes: OneManagerWrites,
    answers_are_committed: AnswersAreCommitted,
    changes_equal_snapshots: ChangesEqualSnapshots,
    namespaces_share_nothing: NamespacesShareNothing,
    every_key_gets_an_owner: EveryKeyGetsAnOwner,
    races_end: RacesEnd,
    log: VecDeque<(TrueTime, Event)>,
}

impl Oracle {
    /// An oracle for a world with these namespaces and their probe keys.
    pub fn new(probes: BTreeMap<Namespace, Vec<Key>>, limits: Limits) -> Oracle {
        Oracle {
            facts: Facts::new(probes, limits),
            at_most_one_owner: AtMostOneOwner::default(),
            generations_rise: GenerationsRise::default(),
            continuous_means_continuous: ContinuousMeansContinuous::default(),
            losses_are_raised: LossesAreRaised::default(),
            one_manager_writes: OneManagerWrites::default(),
            answers_are_committed: AnswersAreCommitted::default(),
            changes_equal_snapshots: ChangesEqualSnapshots::default(),
            namespaces_share_nothing: NamespacesShareNothing::default(),
            every_key_gets_an_owner: EveryKeyGetsAnOwner::default(),
            races_end: RacesEnd::default(),
            log: VecDeque::new(),
        }
    }

    /// Takes in what happened and judges it. To be called for everything, in the order in which it happens.
    pub fn see(&mut self, now: TrueTime, seen: &Seen<'_>) -> Result<(), Violation> {
        self.facts.see(now, seen);
        self.remember(now, seen);
        let facts = &self.facts;
        self.at_most_one_owner.see(now, seen, facts)?;
        self.generations_rise.see(now, seen, facts)?;
        self.continuous_means_continuous.see(now, seen, facts)?;
        self.losses_are_raised.see(now, seen, facts)?;
        self.one_manager_writes.see(now, seen, facts)?;
        self.answers_are_committed.see(now, seen, facts)?;
        self.changes_equal_snapshots.see(now, seen, facts)?;
        self.namespaces_share_nothing.see(now, seen, facts)?;
        self.every_key_gets_an_owner.see(now, seen, facts)?;
        self.races_end.see(now, seen, facts)
    }

    /// What happened to some keys, as far back as is remembered: one line each, oldest first.
    pub fn history(&self, namespace: &Namespace, keys: &[Key]) -> String {
        let Some(space) = self.facts.spaces.find(namespace) else {
            return format!("nothing is known of {namespace}\n");
        };
        let of_keys = |event: &Event| event.space() == Some(space) && event.concerns(keys);
        let sessions: BTreeSet<SessionId> = self
            .log
            .iter()
            .filter(|(_, event)| of_keys(event))
            .filter_map(|(_, event)| event.session())
            .collect();
        let mut text = self.preface(namespace, keys);
        let told = self.log.iter().filter(|(_, event)| of_keys(event) || event.is_about(&sessions));
        for (at, event) in fold_services(told) {
            text.push_str(&format!("{at:>12}  {event}\n"));
        }
        text
    }

    fn preface(&self, namespace: &Namespace, keys: &[Key]) -> String {
        let Limits { hold, contact_timeout, unowned_delay, .. } = self.facts.limits;
        let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
        format!(
            "history of {} in {namespace} (hold {hold:?}, contact timeout {contact_timeout:?}, unowned delay {unowned_delay:?})\n",
            keys.join(", "),
        )
    }

    fn remember(&mut self, now: TrueTime, seen: &Seen<'_>) {
        match seen {
            Seen::OwnerStarted { node, session, .. } => {
                self.note(now, Event::Started { node: *node, session: *session });
            }
            Seen::OwnerEnded { session, .. } => {
                self.note(now, Event::Ended { session: *session });
                self.remember_holds(now);
            }
            Seen::OwnerSuspended { suspended, .. } => {
                if let Some(change) = self.facts.holdings.change() {
                    let event = Event::Suspended { session: change.session, suspended: *suspended };
                    self.note(now, event);
                }
                self.remember_holds(now);
            }
            Seen::OwnerStepped { .. } => self.remember_holds(now),
            Seen::ManagerStepped { node, actions, .. } => self.remember_roles(now, *node, actions),
            Seen::LookupStepped { node, actions, .. } => self.remember_losses(now, *node, actions),
            Seen::Committed { index, batch, .. } => self.remember_batch(now, *index, batch),
            Seen::Served { session, namespace, key, generation, before, after } => {
                if let Some(space) = self.facts.spaces.find(namespace) {
                    let service = Service {
                        space,
                        key: *key,
                        session: *session,
                        generation: *generation,
                        before: *before,
                        after: *after,
                    };
                    self.note(now, Event::Served(service));
                }
            }
            Seen::FaultsEnded => self.note(now, Event::FaultsEnded),
            _ => {}
        }
    }

    fn remember_holds(&mut self, now: TrueTime) {
        let Some(change) = self.facts.holdings.change() else { return };
        let (space, session, end) = (change.space, change.session, change.end);
        let expired = change.expired;
        let lost = change.lost.iter();
        let lost = lost.map(|lot| Event::Lost {
            space,
            session,
            range: lot.range,
            generation: lot.generation,
            expired,
        });
        let gained = change.gained.iter();
        let gained = gained.map(|lot| Event::Gained {
            space,
            session,
            range: lot.range,
            generation: lot.generation,
            end,
        });
        self.log.extend(lost.chain(gained).map(|event| (now, event)));
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

    fn remember_losses(&mut self, now: TrueTime, node: usize, actions: &[LookupAction]) {
        for action in actions {
            let LookupAction::Loss { keys, why } = action else { continue };
            if let Some(space) = self.facts.lookup(node).map(|lookup| lookup.space) {
                self.note(now, Event::Raised { space, node, keys: Box::new(keys.clone()), why: *why });
            }
        }
    }

    fn remember_batch(&mut self, now: TrueTime, index: Index, batch: &Batch) {
        for record in &batch.records {
            let Record::Namespace { namespace, change, .. } = record else { continue };
            let space = self.facts.spaces.find(namespace).unwrap_or_default();
            let event = match *change {
                Change::Granted { range, generation, session, source } => {
                    Event::Granted { space, index, range, generation, session, source }
                }
                Change::Released { range, generation } => Event::Released { space, index, range, generation },
                Change::Recalled { range, generation, to } => {
                    Event::Recalled { space, index, range, generation, to }
                }
                _ => continue,
            };
            self.note(now, event);
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

/// Something that belongs into the history of some keys.
#[derive(Clone, Debug)]
enum Event {
    Started {
        node: usize,
        session: SessionId,
    },
    Ended {
        session: SessionId,
    },
    Suspended {
        session: SessionId,
        suspended: bool,
    },
    Granted {
        space: usize,
        index: Index,
        range: KeyRange,
        generation: Generation,
        session: SessionId,
        source: Option<Generation>,
    },
    Released {
        space: usize,
        index: Index,
        range: KeyRange,
        generation: Generation,
    },
    Recalled {
        space: usize,
        index: Index,
        range: KeyRange,
        generation: Generation,
        to: Option<SessionId>,
    },
    Gained {
        space: usize,
        session: SessionId,
        range: KeyRange,
        generation: Generation,
        end: TrueTime,
    },
    Lost {
        space: usize,
        session: SessionId,
        range: KeyRange,
        generation: Generation,
        expired: bool,
    },
    Served(Service),
    ServedOn {
        session: SessionId,
        times: usize,
        last: Value,
    },
    Raised {
        space: usize,
        node: usize,
        keys: Box<RangeSet>,
        why: LossWhy,
    },
    Leads {
        node: usize,
        term: Option<Term>,
    },
    FaultsEnded,
}

/// An operation on a probe key.
#[derive(Clone, Copy, Debug)]
struct Service {
    space: usize,
    key: Key,
    session: SessionId,
    generation: Generation,
    before: Option<Value>,
    after: Value,
}

impl Event {
    /// The namespace of an event that concerns keys.
    fn space(&self) -> Option<usize> {
        match self {
            Event::Granted { space, .. }
            | Event::Released { space, .. }
            | Event::Recalled { space, .. }
            | Event::Gained { space, .. }
            | Event::Lost { space, .. }
            | Event::Served(Service { space, .. })
            | Event::Raised { space, .. } => Some(*space),
            _ => None,
        }
    }

    fn concerns(&self, keys: &[Key]) -> bool {
        match self {
            Event::Granted { range, .. }
            | Event::Released { range, .. }
            | Event::Recalled { range, .. }
            | Event::Gained { range, .. }
            | Event::Lost { range, .. } => keys.iter().any(|key| range.contains(*key)),
            Event::Served(service) => keys.contains(&service.key),
            Event::Raised { keys: raised, .. } => keys.iter().any(|key| raised.contains(*key)),
            _ => false,
        }
    }

    fn session(&self) -> Option<SessionId> {
        match self {
            Event::Granted { session, .. } | Event::Gained { session, .. } | Event::Lost { session, .. } => {
                Some(*session)
            }
            Event::Served(service) => Some(service.session),
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
    Event::ServedOn { session: service.session, times, last: service.after }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Started { node, session } => write!(f, "{session} begins on Owner {node}"),
            Event::Ended { session } => write!(f, "{session} is gone"),
            Event::Suspended { session, suspended: true } => write!(f, "{session} is suspended"),
            Event::Suspended { session, .. } => write!(f, "{session} goes on"),
            Event::Granted { index, range, generation, session, source, .. } => {
                write!(f, "committed at {index}: {range} is granted to {session} as lease {generation}")?;
                match source {
                    Some(source) => write!(f, ", with the state of lease {source}"),
                    None => write!(f, ", empty"),
                }
            }
            Event::Released { index, range, generation, .. } => {
                write!(f, "committed at {index}: {range} is released from lease {generation}")
            }
            Event::Recalled { index, range, generation, to, .. } => {
                write!(f, "committed at {index}: {range} is recalled from lease {generation}")?;
                to.map_or(Ok(()), |to| write!(f, " for {to}"))
            }
            Event::Gained { session, range, generation, end, .. } => {
                write!(f, "{session} holds {range} under lease {generation}, at first until {end}")
            }
            Event::Lost { session, range, generation, expired, .. } => {
                let how = if *expired { "has let run out" } else { "holds no more" };
                write!(f, "{session} {how} {range} under lease {generation}")
            }
            Event::Served(service) => service.fmt(f),
            Event::ServedOn { session, times, last } => {
                write!(
                    f,
                    "{session} has served {times} times in a row by now, up to {last}",
                    last = Shown(*last)
                )
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

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Service { key, session, generation, before, after, .. } = self;
        write!(f, "{session} serves {key} under lease {generation}: ")?;
        match before {
            Some(before) => write!(f, "finds {}, leaves {}", Shown(*before), Shown(*after)),
            None => write!(f, "finds nothing, leaves {}", Shown(*after)),
        }
    }
}

/// A value as histories show it.
struct Shown(Value);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}/{}", self.0.lineage, self.0.version)
    }
}
