//! What the tests of stores share: strategies for everything that is stored, and a patient client of a store.
#![allow(dead_code, unreachable_pub, unused_imports, unused_macros)]

pub mod conformance;
pub mod machines;
pub mod strategies;

use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use centrifuge_core::id::{Index, Term};
use centrifuge_core::manager::{ElectionCommand, ElectionEvent, StoreCommand, StoreEvent};
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::record::{Batch, Record};
use centrifuge_server::store::{Answer, Answers, Command, StoreError, StoreHandle, StoredBatch};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Longer than any store takes that works.
const PATIENCE: Duration = Duration::from_secs(60);

/// One value of a strategy; the same for the same seed.
pub fn drawn<S: Strategy>(strategy: &S, seed: u64) -> S::Value {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    strategy.new_tree(&mut runner).expect("the strategy has a value").current()
}

/// A batch of a term, unlike any other: the same for the same term and seed, and never for another.
pub fn batch_of(term: Term, seed: u64) -> Arc<Batch> {
    static POOL: OnceLock<Vec<Vec<Record>>> = OnceLock::new();
    let pool = POOL.get_or_init(|| (0..31).map(|seed| drawn(&strategies::records(), seed)).collect());
    let mut records = vec![Record::LeaderStarted { leader_hold: Duration::from_nanos(seed) }];
    records.extend_from_slice(&pool[(seed.wrapping_add(term.0) % 31) as usize]);
    Arc::new(Batch { term, records })
}

/// What batches add up to.
pub fn sum<'a>(batches: impl IntoIterator<Item = &'a Arc<Batch>>) -> ManagerState {
    let mut group = ManagerState::default();
    for batch in batches {
        group.apply(batch);
    }
    group
}

/// A store and its answers, one at a time.
pub struct Client {
    handle: StoreHandle,
    answers: Receiver<Answer>,
    request: u64,
}

impl Client {
    /// Opens a store that can be opened.
    pub fn open(open: impl FnOnce(Answers) -> Result<StoreHandle, StoreError>) -> Client {
        Client::try_open(open).unwrap_or_else(|error| panic!("the store does not open: {error}"))
    }

    /// Opens a store, if it can be opened.
    pub fn try_open(
        open: impl FnOnce(Answers) -> Result<StoreHandle, StoreError>,
    ) -> Result<Client, StoreError> {
        let (sender, answers) = mpsc::channel();
        let handle = open(Box::new(move |answer| {
            // Whoever asked may have gone.
            let _ = sender.send(answer);
        }))?;
        Ok(Client { handle, answers, request: 0 })
    }

    pub fn send(&self, command: impl Into<Command>) {
        self.handle.send(command);
    }

    /// The next answer to something that was asked.
    pub fn answer(&self) -> Answer {
        loop {
            match self.answers.recv_timeout(PATIENCE).expect("the store answers") {
                Answer::Followed(_) => {}
                answer => return answer,
            }
        }
    }

    /// The next answer to something that was asked, if there is one by then.
    pub fn answer_within(&self, time: Duration) -> Option<Answer> {
        let until = Instant::now() + time;
        loop {
            match self.answers.recv_timeout(until.saturating_duration_since(Instant::now())).ok()? {
                Answer::Followed(_) => {}
                answer => return Some(answer),
            }
        }
    }

    /// The next batch of somebody else; a standby may be told again who leads.
    pub fn followed(&self) -> StoredBatch {
        loop {
            match self.answers.recv_timeout(PATIENCE).expect("the store follows") {
                Answer::Followed(stored) => return *stored,
                Answer::Election(ElectionEvent::LedBy { .. }) => {}
                other => panic!("not followed: {other:?}"),
            }
        }
    }

    pub fn campaign(&mut self) -> Term {
        self.request += 1;
        self.send(ElectionCommand::Campaign { request: self.request });
        match self.answer() {
            Answer::Election(ElectionEvent::Won { request, term }) if request == self.request => term,
            other => panic!("the campaign was not won: {other:?}"),
        }
    }

    pub fn renew(&mut self, term: Term) -> bool {
        self.request += 1;
        self.send(ElectionCommand::Renew { request: self.request, term });
        match self.answer() {
            Answer::Election(ElectionEvent::Renewed { request }) if request == self.request => true,
            Answer::Election(ElectionEvent::Lost { term: lost }) if lost == term => false,
            other => panic!("no answer to a renewal: {other:?}"),
        }
    }

    pub fn load(&mut self) -> (Index, Arc<ManagerState>) {
        self.request += 1;
        self.send(StoreCommand::Load { request: self.request });
        match self.answer() {
            Answer::Store(StoreEvent::Loaded { request, index, group }) if request == self.request => {
                (index, group)
            }
            other => panic!("the store was not loaded: {other:?}"),
        }
    }

    pub fn append(&self, term: Term, index: u64, batch: &Arc<Batch>) -> StoreEvent {
        self.send(StoreCommand::Append { term, index: Index(index), batch: Arc::clone(batch) });
        match self.answer() {
            Answer::Store(event) => event,
            other => panic!("no answer to an append: {other:?}"),
        }
    }

    /// Appends a batch that the store must take.
    pub fn appended(&self, term: Term, index: u64, batch: &Arc<Batch>) {
        assert_eq!(self.append(term, index, batch), StoreEvent::Appended { index: Index(index) });
    }

    pub fn compact(&self, index: u64, group: ManagerState) {
        self.send(StoreCommand::Compact { index: Index(index), group: Arc::new(group) });
    }

    pub fn recent(&self, limit: usize) -> Vec<(u64, Arc<Batch>)> {
        let recent = self.handle.recent(limit).expect("history is readable");
        recent.into_iter().map(|stored| (stored.index.0, Arc::new(stored.batch))).collect()
    }

    pub fn handle(&self) -> &StoreHandle {
        &self.handle
    }

    /// Ends the store as if its process were killed.
    pub fn crash(self) {
        self.handle.crash();
    }

    /// Ends the store and waits for its end.
    pub fn close(self) {
        self.handle.join();
    }
}
