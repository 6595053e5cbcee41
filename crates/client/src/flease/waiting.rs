//! Who in this process waits for the peer: for a cell, or for what its registers have.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use centrifuge_core::flease::{Cell, ClaimEnd, ClaimId, FleaseMachine, Lease};
use centrifuge_core::time::Instant;
use tokio::sync::oneshot;

use super::want::Want;

/// The leases that registers have.
pub(super) type Found = Vec<(Cell, Lease)>;

/// What is asked about.
pub(super) enum About {
    Nothing,
    Cell(Cell),
    All,
}

/// The wants and questions that are not over, by the numbers under which the machine knows them.
#[derive(Default)]
pub(super) struct Waiting(Mutex<Numbered>);

#[derive(Default)]
struct Numbered {
    last: u64,
    wants: BTreeMap<ClaimId, Arc<Want>>,
    questions: BTreeMap<u64, (About, oneshot::Sender<Found>)>,
}

impl Waiting {
    /// A want that the machine is told of next.
    pub(super) fn add(&self, cell: Cell) -> Arc<Want> {
        let mut waiting = self.lock();
        waiting.last += 1;
        let want = Want::new(ClaimId(waiting.last), cell);
        waiting.wants.insert(want.claim(), Arc::clone(&want));
        want
    }

    pub(super) fn want(&self, claim: ClaimId) -> Option<Arc<Want>> {
        self.lock().wants.get(&claim).cloned()
    }

    pub(super) fn end(&self, claim: ClaimId, end: ClaimEnd) {
        let want = self.lock().wants.remove(&claim);
        if let Some(want) = want {
            want.end(end);
        }
    }

    pub(super) fn end_all(&self, end: ClaimEnd) {
        let wants = std::mem::take(&mut self.lock().wants);
        wants.values().for_each(|want| want.end(end));
    }

    /// A question, by the mark at which it is answered.
    pub(super) fn ask(&self, about: About) -> (u64, oneshot::Receiver<Found>) {
        let (answer, answered) = oneshot::channel();
        let mut waiting = self.lock();
        waiting.questions.retain(|_, (_, answer)| !answer.is_closed());
        waiting.last += 1;
        let mark = waiting.last;
        waiting.questions.insert(mark, (about, answer));
        (mark, answered)
    }

    pub(super) fn answer(&self, mark: u64, peer: &FleaseMachine, now: Instant) {
        let Some((about, answer)) = self.lock().questions.remove(&mark) else { return };
        let named = |(cell, lease): (&Cell, Lease)| (cell.clone(), lease);
        let found = match about {
            About::Nothing => Vec::new(),
            About::Cell(cell) => peer.known(&cell, now).map(|lease| (cell, lease)).into_iter().collect(),
            About::All => peer.known_cells(now).map(named).collect(),
        };
        // Who asked may not wait any more.
        let _ = answer.send(found);
    }

    fn lock(&self) -> MutexGuard<'_, Numbered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
