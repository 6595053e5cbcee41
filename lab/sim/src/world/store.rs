//! The store that all Managers share: a log of batches, the leader lease, and the ways in which they fail.

use std::sync::Arc;

use centrifuge_core::id::{Index, ManagerId, Term};
use centrifuge_core::injected_bug::{Bug, inject, injected};
use centrifuge_core::manager::{ElectionCommand, ElectionEvent, StoreEvent};
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::record::Batch;
use centrifuge_core::time::Instant;

use crate::clock::Clock;

use super::{Rng, StorePlan, TrueTime};

/// What a Manager's driver asks of the store.
#[derive(Clone, Debug)]
pub(crate) enum StoreRequest {
    /// Something about the leader lease.
    Election(ElectionCommand),
    /// What everything committed adds up to.
    Load { number: u64, request: u64 },
    /// That a batch becomes durable.
    Append { number: u64, append: Append },
    /// An append whose outcome was unknown arrives after all; nobody waits for the answer.
    LateAppend(Append),
}

/// A batch for an index.
#[derive(Clone, Debug)]
pub(crate) struct Append {
    pub(crate) term: Term,
    pub(crate) index: Index,
    pub(crate) batch: Arc<Batch>,
}

/// What the store answers.
#[derive(Clone, Debug)]
pub(crate) enum StoreAnswer {
    /// What became of the leader lease.
    Election(ElectionEvent),
    /// The answer to the request of this number.
    Store { number: u64, event: StoreEvent },
    /// The answer of a store that there is not, and the batch that it confirms.
    Confirmed { event: StoreEvent, batch: Option<(Index, Arc<Batch>)> },
}

/// What became of a request.
#[derive(Debug, Default)]
pub(crate) struct Handled {
    pub(crate) answer: Option<StoreAnswer>,
    /// The batch that is durable from now on, and where.
    pub(crate) committed: Option<(Index, Arc<Batch>)>,
    /// An append that arrives later, and how much later.
    pub(crate) later: Option<(u64, Append)>,
}

impl Handled {
    fn nothing() -> Handled {
        Handled::default()
    }

    fn election(event: ElectionEvent) -> Handled {
        Handled { answer: Some(StoreAnswer::Election(event)), ..Handled::default() }
    }

    fn store(number: u64, event: StoreEvent) -> Handled {
        Handled { answer: Some(StoreAnswer::Store { number, event }), ..Handled::default() }
    }
}

#[derive(Clone, Copy, Debug)]
struct LeaderLease {
    manager: usize,
    term: Term,
    /// When the request that renewed it arrived, by the store's clock.
    since: Instant,
}

/// What is wrong with the store at the moment, each until an instant of real time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ailments {
    pub(crate) down_until: u64,
    pub(crate) slow_until: u64,
    pub(crate) unknown_until: u64,
}

/// The simulated store.
#[derive(Debug)]
pub(crate) struct Store {
    clock: Clock,
    rng: Rng,
    plan: StorePlan,
    managers: Arc<[ManagerId]>,
    log: Vec<Arc<Batch>>,
    group: Arc<ManagerState>,
    lease: Option<LeaderLease>,
    term: Term,
    pub(crate) ailments: Ailments,
}

impl Store {
    pub(crate) fn new(plan: StorePlan, managers: Arc<[ManagerId]>, rng: Rng) -> Store {
        assert_eq!(plan.leader_holds.len(), managers.len());
        Store {
            clock: plan.clock,
            rng,
            plan,
            managers,
            log: Vec::new(),
            group: Arc::default(),
            lease: None,
            term: Term::ZERO,
            ailments: Ailments::default(),
        }
    }

    /// What everything committed adds up to.
    pub(crate) fn group(&self) -> &ManagerState {
        &self.group
    }

    /// The latest term that was won.
    pub(crate) fn term(&self) -> Term {
        self.term
    }

    /// How long a request, or an answer, takes to get through.
    pub(crate) fn delay(&mut self, now: TrueTime) -> u64 {
        let (shortest, longest) = self.plan.delay;
        let delay = self.rng.between(shortest, longest);
        if now.0 < self.ailments.slow_until {
            return delay + self.rng.spread(self.plan.slow / 64, self.plan.slow);
        }
        delay
    }

    /// Takes one request.
    pub(crate) fn handle(&mut self, now: TrueTime, from: usize, request: StoreRequest) -> Handled {
        let down = now.0 < self.ailments.down_until;
        match request {
            StoreRequest::Election(_) if down => Handled::nothing(),
            StoreRequest::Load { number, request } if down => {
                Handled::store(number, StoreEvent::LoadFailed { request })
            }
            StoreRequest::Append { number, append } if down => {
                Handled::store(number, StoreEvent::NotAppended { index: append.index })
            }
            StoreRequest::Election(ElectionCommand::Campaign { request }) => {
                self.campaign(now, from, request)
            }
            StoreRequest::Election(ElectionCommand::Renew { request, term }) => {
                self.renew(now, request, term)
            }
            StoreRequest::Election(ElectionCommand::Resign { term }) => self.resign(term),
            StoreRequest::Load { number, request } => {
                let group = Arc::clone(&self.group);
                Handled::store(number, StoreEvent::Loaded { request, index: self.last_index(), group })
            }
            StoreRequest::Append { number, append } if now.0 < self.ailments.unknown_until => {
                self.append_with_unknown_outcome(number, append)
            }
            StoreRequest::Append { number, append } => {
                let (event, committed) = self.append(append);
                Handled { committed, ..Handled::store(number, event) }
            }
            StoreRequest::LateAppend(append) => {
                let (_, committed) = self.append(append);
                Handled { committed, ..Handled::nothing() }
            }
        }
    }

    fn campaign(&mut self, now: TrueTime, from: usize, request: u64) -> Handled {
        let local = self.clock.read(now);
        if let Some(lease) = self.lease
            && local < lease.since + self.plan.leader_holds[lease.manager]
        {
            let leader = Some(self.managers[lease.manager].clone());
            return Handled::election(ElectionEvent::LedBy { request, leader });
        }
        self.term = self.term.next().expect("fewer terms than 64 bits count");
        self.lease = Some(LeaderLease { manager: from, term: self.term, since: local });
        Handled::election(ElectionEvent::Won { request, term: self.term })
    }

    fn renew(&mut self, now: TrueTime, request: u64, term: Term) -> Handled {
        let local = self.clock.read(now);
        match &mut self.lease {
            Some(lease) if lease.term == term => {
                lease.since = local;
                Handled::election(ElectionEvent::Renewed { request })
            }
            _ => Handled::election(ElectionEvent::Lost { term }),
        }
    }

    fn resign(&mut self, term: Term) -> Handled {
        self.lease = self.lease.filter(|lease| lease.term != term);
        Handled::nothing()
    }

    /// Ends the leader's lease before its time; false if nobody has it.
    pub(crate) fn revoke(&mut self) -> bool {
        self.lease.take().is_some()
    }

    fn last_index(&self) -> Index {
        Index(self.log.len() as u64)
    }

    /// Puts a batch at its index if its term leads and the index is the next.
    fn append(&mut self, append: Append) -> (StoreEvent, Option<(Index, Arc<Batch>)>) {
        let Append { term, index, batch } = append;
        if index <= self.last_index() {
            let there = index.0.checked_sub(1).and_then(|at| self.log.get(usize::try_from(at).ok()?));
            let same = there.is_some_and(|there| **there == *batch);
            return (if same { StoreEvent::Appended { index } } else { StoreEvent::Fenced { index } }, None);
        }
        let leads = Some(term) == self.lease.map(|lease| lease.term) || injected(Bug::UnfencedCommit);
        if !leads || Some(index) != self.last_index().next() {
            return (StoreEvent::Fenced { index }, None);
        }
        let _right = inject(None);
        Arc::make_mut(&mut self.group).apply(&batch);
        self.log.push(Arc::clone(&batch));
        (StoreEvent::Appended { index }, Some((index, batch)))
    }

    /// The Manager is told that nothing is known; the batch is in at once, or later, or never.
    fn append_with_unknown_outcome(&mut self, number: u64, append: Append) -> Handled {
        let unknown = Handled::store(number, StoreEvent::Unknown { index: append.index });
        match self.rng.below(3) {
            0 => Handled { committed: self.append(append).1, ..unknown },
            1 => {
                let delay = self.rng.spread(self.plan.late / 256, self.plan.late);
                Handled { later: Some((delay, append)), ..unknown }
            }
            _ => unknown,
        }
    }

    /// Whether a Manager's idea of the log up to `index` is right, as far as the store still knows.
    pub(crate) fn agrees(&self, index: Index, group: &ManagerState) -> bool {
        index != self.last_index() || *group == *self.group
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use centrifuge_core::record::Record;

    const HOLD: u64 = 10_000;

    fn store() -> Store {
        let clock = Clock { offset: 0, numerator: 1, denominator: 1, lost: 0 };
        let leader_holds = vec![Duration::from_nanos(HOLD); 2];
        let plan = StorePlan { clock, delay: (1, 5), slow: 64, late: 256, leader_holds };
        Store::new(plan, ["m0".into(), "m1".into()].into(), Rng::new(1))
    }

    fn elected(store: &mut Store, at: u64, from: usize) -> Option<Term> {
        match store
            .handle(TrueTime(at), from, StoreRequest::Election(ElectionCommand::Campaign { request: 1 }))
            .answer
        {
            Some(StoreAnswer::Election(ElectionEvent::Won { term, .. })) => Some(term),
            _ => None,
        }
    }

    fn batch(term: u64) -> Arc<Batch> {
        Arc::new(Batch { term: Term(term), records: vec![Record::LeaderSettled] })
    }

    fn append(store: &mut Store, term: u64, index: u64, batch: &Arc<Batch>) -> StoreEvent {
        let append = Append { term: Term(term), index: Index(index), batch: Arc::clone(batch) };
        store.append(append).0
    }

    #[test]
    fn one_manager_leads_until_its_hold_runs_out() {
        let mut store = store();
        assert_eq!(elected(&mut store, 0, 0), Some(Term(1)));
        assert_eq!(elected(&mut store, HOLD - 1, 1), None);
        store.handle(
            TrueTime(HOLD - 1),
            0,
            StoreRequest::Election(ElectionCommand::Renew { request: 2, term: Term(1) }),
        );
        assert_eq!(elected(&mut store, HOLD, 1), None);
        assert_eq!(elected(&mut store, 2 * HOLD - 1, 1), Some(Term(2)));
        let late = store.handle(
            TrueTime(2 * HOLD),
            0,
            StoreRequest::Election(ElectionCommand::Renew { request: 3, term: Term(1) }),
        );
        assert!(matches!(late.answer, Some(StoreAnswer::Election(ElectionEvent::Lost { term: Term(1) }))));
    }

    #[test]
    fn a_revoked_or_resigned_lease_is_free_at_once() {
        let mut store = store();
        elected(&mut store, 0, 0);
        assert!(store.revoke() && !store.revoke());
        assert_eq!(elected(&mut store, 1, 1), Some(Term(2)));
        store.handle(TrueTime(2), 1, StoreRequest::Election(ElectionCommand::Resign { term: Term(1) }));
        assert_eq!(elected(&mut store, 3, 0), None);
        store.handle(TrueTime(4), 1, StoreRequest::Election(ElectionCommand::Resign { term: Term(2) }));
        assert_eq!(elected(&mut store, 5, 0), Some(Term(3)));
    }

    #[test]
    fn appends_are_fenced_by_term_and_index_and_may_be_repeated() {
        let mut store = store();
        elected(&mut store, 0, 0);
        let first = batch(1);
        assert_eq!(append(&mut store, 1, 2, &first), StoreEvent::Fenced { index: Index(2) });
        assert_eq!(append(&mut store, 1, 1, &first), StoreEvent::Appended { index: Index(1) });
        assert_eq!(append(&mut store, 1, 1, &first), StoreEvent::Appended { index: Index(1) });
        elected(&mut store, HOLD, 1);
        assert_eq!(append(&mut store, 1, 2, &batch(1)), StoreEvent::Fenced { index: Index(2) });
        assert_eq!(append(&mut store, 2, 1, &batch(2)), StoreEvent::Fenced { index: Index(1) });
        let _bug = inject(Some(Bug::UnfencedCommit));
        assert_eq!(append(&mut store, 1, 2, &batch(1)), StoreEvent::Appended { index: Index(2) });
        assert_eq!((store.log.len(), store.group().term), (2, Term(1)));
    }

    #[test]
    fn a_store_that_is_down_commits_nothing() {
        let mut store = store();
        elected(&mut store, 0, 0);
        store.ailments.down_until = 100;
        let append = Append { term: Term(1), index: Index(1), batch: batch(1) };
        let request = StoreRequest::Append { number: 7, append };
        let handled = store.handle(TrueTime(50), 0, request.clone());
        let refused = StoreEvent::NotAppended { index: Index(1) };
        assert!(matches!(handled.answer, Some(StoreAnswer::Store { number: 7, event }) if event == refused));
        assert!(store.log.is_empty());
        assert!(store.handle(TrueTime(100), 0, request).committed.is_some());
    }

    #[test]
    fn an_unknown_append_is_in_at_once_or_later_or_never() {
        let (mut at_once, mut later, mut never) = (0, 0, 0);
        for seed in 0..60 {
            let mut store = store();
            store.rng = Rng::new(seed);
            elected(&mut store, 0, 0);
            store.ailments.unknown_until = 100;
            let append = Append { term: Term(1), index: Index(1), batch: batch(1) };
            let handled = store.handle(TrueTime(50), 0, StoreRequest::Append { number: 1, append });
            match (handled.committed, handled.later) {
                (Some(_), None) => at_once += 1,
                (None, Some((_, append))) => {
                    later += 1;
                    assert!(
                        store.handle(TrueTime(60), 0, StoreRequest::LateAppend(append)).committed.is_some()
                    );
                }
                _ => never += 1,
            }
        }
        assert!(at_once > 0 && later > 0 && never > 0);
    }
}
