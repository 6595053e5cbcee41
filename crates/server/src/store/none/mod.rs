//! No store: every batch is confirmed at once and forgotten with the term, and Flease chooses the leader (ADR 15).
//!
//! Only what Owners can prove to the next leader survives a leader. The conformance suite's cases about durability therefore do not
//! apply here: a leader begins with an empty state, no matter what was committed before.

mod election;
mod options;

use std::sync::mpsc as sync_mpsc;
use std::sync::{Arc, Mutex};
use std::thread;

use centrifuge_core::election::ElectionRequest;
use centrifuge_core::id::Index;
use centrifuge_core::manager::{StoreCommand, StoreEvent};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use election::Election;

use super::error::StoreError;
use super::{Answer, Answers, Command, Job, Jobs, StoreFacts, StoreHandle};

pub use options::{PeerKey, PeerOptions};

/// Runs the election on a thread of its own, beside what confirms batches.
pub(super) fn open(options: &PeerOptions, answers: Answers) -> Result<StoreHandle, StoreError> {
    let (jobs, received) = mpsc::unbounded_channel();
    let (opened, open) = sync_mpsc::channel();
    let managers = options.peers.iter().map(|(_, address)| address.to_owned()).collect();
    let facts = Arc::new(Mutex::new(StoreFacts { managers, ..StoreFacts::default() }));
    let (options, shown) = (options.clone(), Arc::clone(&facts));
    let thread = thread::Builder::new()
        .name("election".to_owned())
        .spawn(move || {
            let started = runtime().and_then(|runtime| {
                let election = runtime.block_on(Election::start(&options, shown))?;
                Ok((runtime, election))
            });
            match started {
                Ok((runtime, election)) => {
                    let _ = opened.send(Ok(()));
                    runtime.block_on(run(election, received, answers));
                }
                Err(error) => drop(opened.send(Err(error))),
            }
        })
        .map_err(|why| StoreError::Thread { why })?;
    open.recv().map_err(|_| StoreError::Stopped)??;
    Ok(StoreHandle { jobs: Arc::new(Jobs::Tasks(jobs)), thread, facts })
}

fn runtime() -> Result<Runtime, StoreError> {
    Builder::new_current_thread().enable_all().build().map_err(|why| StoreError::Thread { why })
}

/// Serves the Manager until its handle is gone; then releases the election's cell, so that the others need not wait.
async fn run(mut election: Election, mut jobs: UnboundedReceiver<Job>, answers: Answers) {
    // Indices count on from term to term, so that one stands for one batch in all this process decides.
    let mut last = Index::ZERO;
    loop {
        let job = tokio::select! {
            event = election.answered() => {
                answers(Answer::Election(event));
                continue;
            }
            job = jobs.recv() => job,
        };
        match job {
            Some(Job::Command(Command::Election(command))) => {
                election.ask(ElectionRequest::Command(command)).await;
            }
            Some(Job::Command(Command::Store(StoreCommand::Load { request }))) => {
                let loaded = StoreEvent::Loaded { request, index: last, group: Arc::default() };
                answers(Answer::Store(loaded));
            }
            Some(Job::Command(Command::Store(StoreCommand::Append { index, .. }))) => {
                last = last.max(index);
                answers(Answer::Store(StoreEvent::Appended { index }));
            }
            Some(Job::Command(Command::Store(StoreCommand::Compact { .. }))) => {}
            Some(Job::Recent { reply, .. }) => drop(reply.send(Ok(Vec::new()))),
            // There is nothing to copy.
            Some(Job::Copy { reply }) => drop(reply.send(Err(StoreError::NoStore))),
            Some(Job::Crash) => return,
            None => return election.give_up().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};
    use std::sync::mpsc::Receiver;
    use std::time::Duration;

    use centrifuge_core::id::Term;
    use centrifuge_core::manager_state::ManagerState;
    use centrifuge_core::record::{Batch, Record};

    use super::*;

    const BOUND: Duration = Duration::from_secs(60);

    fn options(listen: SocketAddr) -> PeerOptions {
        let key = PeerKey::new(b"a secret of these tests").expect("long enough");
        let peers = "1=127.0.0.1:1,2=127.0.0.1:2,3=127.0.0.1:3".parse().expect("a list");
        PeerOptions { listen: Some(listen), ..PeerOptions::new(peers, 1, key) }
    }

    fn start() -> (StoreHandle, Receiver<Answer>) {
        let (answer, answers) = sync_mpsc::channel();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let answers_to = Box::new(move |event| drop(answer.send(event)));
        (open(&options(any), answers_to).expect("it opens"), answers)
    }

    fn loaded(request: u64, index: u64) -> Answer {
        Answer::Store(StoreEvent::Loaded {
            request,
            index: Index(index),
            group: Arc::new(ManagerState::default()),
        })
    }

    #[test]
    fn it_confirms_everything_and_forgets_it_but_for_the_place() {
        let (store, answers) = start();
        let batch = Arc::new(Batch { term: Term(7), records: vec![Record::LeaderSettled] });
        store.send(StoreCommand::Load { request: 1 });
        for index in [1, 2] {
            store.send(StoreCommand::Append {
                term: Term(7),
                index: Index(index),
                batch: Arc::clone(&batch),
            });
        }
        store.send(StoreCommand::Compact { index: Index(2), group: Arc::default() });
        store.send(StoreCommand::Load { request: 2 });
        let appended = |index| Answer::Store(StoreEvent::Appended { index: Index(index) });
        for expected in [loaded(1, 0), appended(1), appended(2), loaded(2, 2)] {
            assert_eq!(answers.recv_timeout(BOUND).expect("an answer"), expected);
        }
        assert_eq!(store.recent(10).expect("it runs"), []);
        let managers = store.facts().lock().expect("no panic").managers.clone();
        assert_eq!(managers, ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]);
        store.join();
    }

    #[test]
    fn an_address_that_is_taken_is_named() {
        let taken = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = taken.local_addr().expect("bound");
        let Err(error) = open(&options(address), Box::new(|_| {})) else { panic!("it opened") };
        let error = error.to_string();
        assert!(error.contains("flease_listen") && error.contains(&address.to_string()), "{error}");
    }
}
