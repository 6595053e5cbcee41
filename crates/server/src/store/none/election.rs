//! Drives the election of Managers without a store: its machine, its clock and its socket.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use centrifuge_core::election::{ElectionAction, ElectionRequest, FleaseElection};
use centrifuge_core::flease::PeerId;
use centrifuge_core::id::Term;
use centrifuge_core::manager::{ElectionCommand, ElectionEvent};
use centrifuge_core::random::Random;
use centrifuge_core::time::Instant;
use centrifuge_net::driver::{Driver, Host};
use centrifuge_net::flease::{Offset, PeerSocket, SocketError, SyncedClock};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::{info, warn};

use super::super::StoreFacts;
use super::super::error::StoreError;
use super::PeerOptions;
use crate::term_watch::minutes;

/// How many requests and packets wait for the driver.
const QUEUE: usize = 1024;
/// A clock that was set back by less is where it was before a restarted peer would have recovered.
const SET_BACK: Duration = Duration::from_secs(1);

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
    /// Opens the socket and starts. The Manager takes part once it has recovered (protocol §9.4).
    pub(super) async fn start(
        options: &PeerOptions,
        facts: Arc<Mutex<StoreFacts>>,
    ) -> Result<Election, StoreError> {
        let config = options.election();
        let unusable = |what: String| StoreError::Peers { what };
        config.check().map_err(|error| unusable(error.to_string()))?;
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| unusable(format!("no randomness: {error}")))?;
        let (requests, queue) = mpsc::channel(QUEUE);
        let bind = options.listen.map_or_else(|| options.own_address().to_owned(), |at| at.to_string());
        let event = |from, packet| ElectionRequest::Receive { from, packet };
        let others = others(options);
        let keys = options.key.ring().clone();
        let socket = PeerSocket::start(&bind, keys, config.flease.me, others, requests.clone(), event);
        let socket = socket.await.map_err(|error| cannot_listen(&error))?;
        info!(datagrams = %socket.address(), peers = %options.peers, "no store: the Managers choose a leader by Flease");
        let (answer, answers) = mpsc::unbounded_channel();
        let (release, releasing) = watch::channel(false);
        let ahead = i64::try_from(options.clock_ahead.as_nanos());
        let ahead = ahead.map_err(|_| unusable("flease_clock_ahead: too long".to_owned()))?;
        if ahead > 0 {
            info!(ahead = ?options.clock_ahead, "the Managers' clock runs ahead of the machine's, as set by flease_clock_ahead");
        }
        let clock = SyncedClock::new(config.flease.epsilon, ahead);
        let machine = FleaseElection::new(config, Random::from_seed(seed));
        let watch = ClockProblems::new(clock.offset(), options.clock_ahead);
        let driver =
            Driver::with_clock(machine, ElectionHost { socket, answer, release, facts, watch }, clock);
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

    /// Releases the cell by which this Manager leads, and waits briefly until the others have heard of it.
    pub(super) async fn give_up(mut self) {
        if let Some(term) = self.term {
            self.ask(ElectionRequest::Command(ElectionCommand::Resign { term })).await;
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
    watch: ClockProblems,
}

impl ElectionHost {
    fn show_problem(&self) {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner).problem = self.watch.problem();
    }
}

/// Why this Manager's clock keeps it from taking part.
struct ClockProblems {
    offset: Offset,
    /// How far the Managers' clock is ahead of the machine's.
    ahead: Duration,
    /// From whose it is apart.
    apart: Option<String>,
    /// By how much it was set back, until it shows again what it did.
    set_back: Option<Duration>,
}

impl ClockProblems {
    fn new(offset: Offset, ahead: Duration) -> ClockProblems {
        ClockProblems { offset, ahead, apart: None, set_back: None }
    }

    /// Compares the time that the machine was told, which never goes back, with what the clock shows. Says whether anything changed.
    fn look(&mut self, now: Instant) -> bool {
        let set_back = Some(now.since(self.offset.now())).filter(|by| *by > SET_BACK);
        let had = std::mem::replace(&mut self.set_back, set_back);
        had.is_some() != set_back.is_some()
    }

    fn problem(&self) -> Option<String> {
        if let Some(by) = self.set_back {
            return Some(format!(
                "its clock was set back by {}, and this Manager takes no part until that time has passed. Restart it; if the clocks of \
                 all Managers were ahead, restart all with --flease-clock-ahead {}",
                minutes(by),
                minutes(self.ahead + by)
            ));
        }
        self.apart.as_ref().map(|from| format!("its clock is apart from those of {from}: set it right"))
    }
}

impl Host<FleaseElection> for ElectionHost {
    fn perform(&mut self, action: ElectionAction) {
        match action {
            ElectionAction::Send { to, packet } => self.socket.send(to, packet),
            // The asking side may be gone.
            ElectionAction::Answer(event) => drop(self.answer.send(event)),
            ElectionAction::ClockApart { from } => {
                let from: Vec<String> = from.iter().map(ToString::to_string).collect();
                let from = from.join(", ");
                warn!(
                    from,
                    "this machine's clock is apart from the others': this Manager cannot lead until it is set right"
                );
                self.watch.apart = Some(from);
                self.show_problem();
            }
            ElectionAction::ClockAgrees => {
                info!("this machine's clock agrees with the others' again");
                self.watch.apart = None;
                self.show_problem();
            }
        }
    }

    fn stepped(&mut self, now: Instant, machine: &FleaseElection) {
        let releasing = machine.is_releasing();
        self.release.send_if_modified(|was| std::mem::replace(was, releasing) != releasing);
        if self.watch.look(now) {
            match self.watch.problem() {
                Some(problem) => warn!("{problem}"),
                None => info!("the time by which this machine's clock was set back has passed"),
            }
            self.show_problem();
        }
        if let Some(term) = machine.known_term(now) {
            let mut facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
            facts.term = facts.term.max(term);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_back_is_told_until_its_time_has_come_again() {
        let hour = Duration::from_secs(3_600);
        let offset = SyncedClock::new(Duration::from_millis(250), 0).offset();
        let mut clocks = ClockProblems::new(offset.clone(), hour);
        assert!(!clocks.look(offset.now()) && clocks.problem().is_none());
        // The machine was told a time that is two hours ahead of what the clock shows since.
        clocks.apart = Some("peer 2".to_owned());
        assert!(clocks.look(offset.now() + hour * 2));
        let problem = clocks.problem().expect("a problem");
        assert!(problem.contains("by 120m") && problem.contains("--flease-clock-ahead 180m"), "{problem}");
        assert!(!clocks.look(offset.now() + hour), "it is told once");
        assert!(clocks.look(offset.now()));
        assert!(clocks.problem().expect("it is still apart").contains("peer 2"));
    }
}
