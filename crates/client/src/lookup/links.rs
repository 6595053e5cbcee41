//! The Lookup's watches at Managers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use centrifuge_core::id::{ManagerId, Seq};
use centrifuge_core::lookup::LookupEvent;
use centrifuge_core::message::{LookupRequest, ManagerToLookup};
use centrifuge_net::dial::Dialer;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::host::Links;
use crate::stall_detector::StallDetector;

/// The most watches that wait for an answer: older ones are given up.
const MOST: usize = 16;

/// A watch for every request, until a later one has begun to answer.
pub(super) struct WatchLinks {
    dialer: Dialer,
    silences: BTreeMap<ManagerId, Arc<StallDetector>>,
    watches: Arc<Watches>,
    events: mpsc::Sender<LookupEvent>,
}

#[derive(Default)]
struct Watches {
    open: Mutex<Vec<(Seq, AbortHandle)>>,
}

impl Watches {
    /// Adds a watch, and gives up the oldest if they become too many.
    fn add(&self, request: Seq, task: AbortHandle) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, task)| !task.is_finished());
        open.push((request, task));
        let surplus = open.len().saturating_sub(MOST);
        open.drain(..surplus).for_each(|(_, task)| task.abort());
    }

    /// A leader has begun to answer this request: what answers earlier ones is not needed any more.
    fn answered(&self, request: Seq) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.extract_if(.., |(earlier, _)| *earlier < request).for_each(|(_, task)| task.abort());
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        let open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner);
        open.iter().for_each(|(_, task)| task.abort());
    }
}

impl WatchLinks {
    pub(super) fn new(dialer: Dialer, events: mpsc::Sender<LookupEvent>) -> WatchLinks {
        WatchLinks { dialer, silences: BTreeMap::new(), watches: Arc::default(), events }
    }

    /// How long the Manager has been silent. One that has been for too long is asked by another connection.
    fn silence(&mut self, manager: &ManagerId) -> Arc<StallDetector> {
        let silence = self.silences.entry(manager.clone()).or_default();
        if silence.ask() {
            self.dialer.give_up(manager);
        }
        Arc::clone(silence)
    }
}

impl Links for WatchLinks {
    fn ask(&mut self, manager: &ManagerId, request: LookupRequest) {
        let seq = request.seq;
        let silence = self.silence(manager);
        let (dialer, manager, events) = (self.dialer.clone(), manager.clone(), self.events.clone());
        let watches = Arc::downgrade(&self.watches);
        let task = tokio::spawn(async move {
            let answered = || {
                if let Some(watches) = watches.upgrade() {
                    watches.answered(seq);
                }
            };
            if let Err(status) = watch(&dialer, &manager, &request, &events, &silence, answered).await {
                tracing::debug!(%manager, %status, "a watch ended");
                dialer.failed(&manager, &status);
            }
            let _ = events.send(LookupEvent::Disconnected(manager)).await;
        });
        self.watches.add(seq, task.abort_handle());
    }
}

/// Takes in what comes until the stream ends.
async fn watch(
    dialer: &Dialer,
    manager: &ManagerId,
    request: &LookupRequest,
    events: &mpsc::Sender<LookupEvent>,
    silence: &StallDetector,
    answered: impl Fn(),
) -> Result<(), tonic::Status> {
    let mut client =
        dialer.lookup(manager).map_err(|error| tonic::Status::invalid_argument(error.to_string()))?;
    let mut replies =
        client.watch(centrifuge_net::proto::v1::WatchRequest::from(request)).await?.into_inner();
    let mut is_first = true;
    while let Some(reply) = replies.message().await? {
        silence.heard();
        let message = ManagerToLookup::try_from(reply)?;
        if is_first && matches!(message, ManagerToLookup::Update(_)) {
            is_first = false;
            answered();
        }
        if events.send(LookupEvent::FromManager { from: manager.clone(), message }).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}
