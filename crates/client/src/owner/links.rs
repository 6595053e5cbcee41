//! The Owner's streams to Managers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use centrifuge_core::id::ManagerId;
use centrifuge_core::message::{ManagerToOwner, OwnerToManager};
use centrifuge_core::owner::OwnerEvent;
use centrifuge_net::credential;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use super::Shared;
use super::host::Links;
use crate::stall_detector::StallDetector;

/// How many messages wait for a connection before the next is dropped, as a network would.
const QUEUE: usize = 16;

/// One stream to each Manager that was ever spoken to, opened with the first message and again after it broke.
pub(super) struct ManagerLinks {
    dialer: Dialer,
    streams: BTreeMap<ManagerId, Stream>,
    silences: BTreeMap<ManagerId, Arc<StallDetector>>,
    events: mpsc::Sender<OwnerEvent>,
    shared: Arc<Shared>,
}

struct Stream {
    queue: mpsc::Sender<v1::OwnerMessage>,
    task: AbortHandle,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ManagerLinks {
    pub(super) fn new(dialer: Dialer, events: mpsc::Sender<OwnerEvent>, shared: Arc<Shared>) -> ManagerLinks {
        ManagerLinks { dialer, streams: BTreeMap::new(), silences: BTreeMap::new(), events, shared }
    }

    fn open(&mut self, to: &ManagerId) -> Stream {
        let (queue, messages) = mpsc::channel(QUEUE);
        let (events, shared) = (self.events.clone(), Arc::clone(&self.shared));
        let (dialer, manager) = (self.dialer.clone(), to.clone());
        let silence = Arc::clone(self.silences.entry(to.clone()).or_default());
        let task = tokio::spawn(async move {
            let outcome = converse(&dialer, &manager, messages, &events, &shared, &silence).await;
            if let Err(status) = outcome {
                tracing::debug!(%manager, %status, "the stream to a Manager ended");
                dialer.failed(&manager, &status);
                if status.code() == Code::Aborted {
                    tracing::error!(%manager, "{}; everything held is given up", status.message());
                    // Without a session of its own the process must not go on; its leases end with it.
                    let fresh = credential::draw().expect("the operating system has random bits");
                    let _ = events.send(OwnerEvent::Cloned { fresh }).await;
                }
            }
            let _ = events.send(OwnerEvent::Disconnected(manager)).await;
        });
        Stream { queue, task: task.abort_handle() }
    }

    /// A hello is about to be sent; a report may have to wait for the store and says nothing about the connection.
    fn ask(&mut self, to: &ManagerId) {
        if self.silences.entry(to.clone()).or_default().ask() {
            self.streams.remove(to);
            self.dialer.give_up(to);
        }
    }
}

impl Links for ManagerLinks {
    fn send(&mut self, to: &ManagerId, message: OwnerToManager) {
        self.streams.retain(|_, stream| !stream.queue.is_closed());
        if matches!(message, OwnerToManager::Hello(_)) {
            self.ask(to);
        }
        if !self.streams.contains_key(to) {
            let stream = self.open(to);
            self.streams.insert(to.clone(), stream);
        }
        if let Some(stream) = self.streams.get(to) {
            // Full or broken: the message is lost, and the machine says it again.
            let _ = stream.queue.try_send((&message).into());
        }
    }
}

/// Sends what is queued and takes in what comes, until the stream breaks.
async fn converse(
    dialer: &Dialer,
    manager: &ManagerId,
    messages: mpsc::Receiver<v1::OwnerMessage>,
    events: &mpsc::Sender<OwnerEvent>,
    shared: &Shared,
    silence: &StallDetector,
) -> Result<(), tonic::Status> {
    let mut client =
        dialer.owner(manager).map_err(|error| tonic::Status::invalid_argument(error.to_string()))?;
    let mut replies = client.session(ReceiverStream::new(messages)).await?.into_inner();
    while let Some(reply) = replies.message().await? {
        silence.heard();
        let message = ManagerToOwner::try_from(reply)?;
        if let ManagerToOwner::Assign(assign) = &message {
            shared.drain_waits.store(assign.drain_waits, Ordering::Relaxed);
        }
        let event = OwnerEvent::FromManager { from: manager.clone(), message };
        if events.send(event).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}
