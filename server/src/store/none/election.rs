//! Drives the election of Managers without a store: its machine, its clock and its socket.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use centrifuge_core::election::{ElectionAction, ElectionRequest, FleaseElection};
use centrifuge_core::flease::PeerId;
use centrifuge_core::id::Term;
use centrifuge_core::manager::ElectionEvent;
use centrifuge_core::random::Random;
use centrifuge_core::time::Instant;
use centrifuge_net::driver::{Driver, Host};
use centrifuge_net::flease::{PeerSocket, SocketError, SyncedClock};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::{info, warn};

use super::super::StoreFacts;
use super::super::error::StoreError;
use super::PeerOptions;
use crate::plant;

/// How many requests and packets wait for the driver.
const QUEUE: usize = 1024;

/// The election of one Manager, until it is dropped.
pub(super) struct Election {
    requests: mpsc::Sender<ElectionRequest>,
    answers: mpsc::UnboundedReceiver<ElectionEvent>,
    releasing: watch::Receiver<bool>,
    driver: JoinHandle<()>,
    /// The term that was won last.
    term: Option<Term>,
    /// How long a release may take: two rounds.
    patience: Duration,
}

impl Election {
    /// Opens the socket and starts. The Manager takes part once it has recovered (DESIGN §11).
    pub(super) async fn start(
        options: &PeerOptions,
        facts: Arc<Mutex<StoreFacts>>,
    ) -> Result<Election, StoreError> {
        let config = options.election();
        let unusable = |what: String| StoreError::Peers { what };
        config.check().map_err(|error| unusable(error.to_string()))?;
        let secret = options.key.datagrams().map_err(|error| unusable(error.to_string()))?;
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| unusable(format!("no randomness: {error}")))?;
        let (requests, queue) = mpsc::channel(QUEUE);
        let bind = options.listen.map_or_else(|| options.own_address().to_owned(), |at| at.to_string());
        let event = |from, packet| ElectionRequest::Receive { from, packet };
        let others = others(options);
        let socket = PeerSocket::start(&bind, secret, config.flease.me, others, requests.clone(), event);
        let socket = socket.await.map_err(|error| cannot_listen(&error))?;
        info!(datagrams = %socket.address(), peers = %options.peers, "no store: the Managers choose a leader by Flease");
        let (answer, answers) = mpsc::unbounded_channel();
        let (release, releasing) = watch::channel(false);
        let clock = SyncedClock::new(config.flease.epsilon, 0);
        let machine = FleaseElection::new(config, Random::from_seed(seed), plant::machine());
        let driver = Driver::with_clock(machine, ElectionHost { socket, answer, release, facts }, clock);
        let driver = tokio::spawn(async move { drop(driver.run(queue).await) });
        let election =
            Election { requests, answers, releasing, driver, term: None, patience: options.round * 2 };
        election.ask(ElectionRequest::Start).await;
        Ok(election)
    }

    /// Hands a request to the machine.
    pub(super) async fn ask(&self, request: ElectionRequest) {
        // A driver that is gone answers nothing, as one behind a broken network.
        let _ = self.requests.send(request).await;
    }

    /// The next answer.
    pub(super) async fn answered(&mut self) -> ElectionEvent {
        let Some(event) = self.answers.recv().await else { return std::future::pending().await };
        if let ElectionEvent::Won { term, .. } = event {
            self.term = Some(term);
        }
        event
    }

    /// Gives up what this Manager leads by, and waits until the others have heard of it, but not long.
    pub(super) async fn give_up(mut self) {
        if let Some(term) = self.term {
            self.ask(ElectionRequest::Resign { term }).await;
            // The machine has seen the request once the queue is empty.
            let seen = async {
                while self.requests.capacity() < QUEUE {
                    tokio::task::yield_now().await;
                }
                let _ = self.releasing.wait_for(|releasing| !releasing).await;
            };
            if timeout(self.patience, seen).await.is_err() {
                warn!(
                    "the other Managers did not confirm that this one gave up: the next leader waits a little longer"
                );
            }
        }
    }
}

impl Drop for Election {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

fn others(options: &PeerOptions) -> BTreeMap<PeerId, String> {
    let others = options.peers.iter().filter(|(peer, _)| *peer != options.me);
    others.map(|(peer, address)| (PeerId(peer), address.to_owned())).collect()
}

fn cannot_listen(error: &SocketError) -> StoreError {
    let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
    StoreError::Datagrams { address: error.address.clone(), why }
}

/// Performs what the election decides.
struct ElectionHost {
    socket: PeerSocket,
    answer: mpsc::UnboundedSender<ElectionEvent>,
    release: watch::Sender<bool>,
    facts: Arc<Mutex<StoreFacts>>,
}

impl ElectionHost {
    fn show_problem(&self, problem: Option<String>) {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner).problem = problem;
    }
}

impl Host<FleaseElection> for ElectionHost {
    fn perform(&mut self, action: ElectionAction) {
        match action {
            ElectionAction::Send { to, packet } => self.socket.send(to, packet),
            // Whoever asked may be gone.
            ElectionAction::Answer(event) => drop(self.answer.send(event)),
            ElectionAction::ClockApart { from } => {
                let from: Vec<String> = from.iter().map(ToString::to_string).collect();
                let from = from.join(", ");
                warn!(
                    from,
                    "this machine's clock is apart from the others': this Manager cannot lead until it is set right"
                );
                self.show_problem(Some(format!("its clock is apart from those of {from}: set it right")));
            }
            ElectionAction::ClockAgrees => {
                info!("this machine's clock agrees with the others' again");
                self.show_problem(None);
            }
        }
    }

    fn stepped(&mut self, now: Instant, machine: &FleaseElection) {
        let releasing = machine.is_releasing();
        self.release.send_if_modified(|was| std::mem::replace(was, releasing) != releasing);
        if let Some(term) = machine.known_term(now) {
            let mut facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
            facts.term = facts.term.max(term);
        }
    }
}
