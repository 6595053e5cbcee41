//! Moving state: what the application is given to send a range away, and to take one in.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use centrifuge_core::id::{Generation, SessionId, Term, Url};
use centrifuge_core::key::KeyRange;
use centrifuge_core::message::Destination;
use centrifuge_core::owner::{OwnerEvent, TransferId};
use centrifuge_core::range_map::RangeMap;
use tokio::sync::{mpsc, oneshot};

use super::in_flight::InFlight;

/// Whatever an application's own code failed with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A range that should move to its next owner with its state.
///
/// Copy the state while the range is still served, call [`MigrationOut::freeze`], send what changed since, and return
/// the session that the destination acknowledged with. The future is dropped if the Manager changes its mind.
///
/// An application that keeps its state in a [`LeasedMap`](crate::LeasedMap) needs none of this. Others do it so:
///
/// ```no_run
/// use centrifuge::owner::{BoxError, ImportOffer, MigrationOut};
/// use centrifuge::{KeyRange, Owner, SessionId};
///
/// # async fn send(url: &str, what: &ImportOffer, rooms: Vec<u8>) -> Result<SessionId, BoxError> { unimplemented!() }
/// # fn rooms_of(range: KeyRange) -> Vec<u8> { Vec::new() }
/// # fn rooms_changed_since(range: KeyRange) -> Vec<u8> { Vec::new() }
/// // Where the range is now; given to `on_migrate_out`.
/// async fn move_out(mut out: MigrationOut) -> Result<SessionId, BoxError> {
///     send(out.url().as_str(), &out.offer(), rooms_of(out.range())).await?;
///     out.freeze().await?;
///     send(out.url().as_str(), &out.offer(), rooms_changed_since(out.range())).await
/// }
///
/// // Where it goes to, once all of it has arrived; the answer goes back to the source.
/// async fn arrived(owner: &Owner, offer: ImportOffer) -> Result<SessionId, BoxError> {
///     Ok(owner.begin_import(offer)?.complete().await?)
/// }
/// ```
#[derive(Debug)]
pub struct MigrationOut {
    pub(super) range: KeyRange,
    pub(super) generation: Generation,
    pub(super) to: Destination,
    pub(super) term: Term,
    pub(super) transfer: TransferId,
    pub(super) session: SessionId,
    pub(super) events: mpsc::Sender<OwnerEvent>,
    pub(super) frozen: Option<oneshot::Receiver<()>>,
    pub(super) in_flight: Arc<InFlight>,
}

impl MigrationOut {
    /// The keys that move.
    #[must_use]
    pub fn range(&self) -> KeyRange {
        self.range
    }

    /// The lease under which this process holds them.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Where the next owner is reached, as its application said.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.to.url
    }

    /// The very process that should get the state. Another life of the same server answers with another session.
    #[must_use]
    pub fn destination(&self) -> SessionId {
        self.to.session
    }

    /// What the destination must know to take the state in.
    #[must_use]
    pub fn offer(&self) -> ImportOffer {
        ImportOffer {
            range: self.range,
            source: self.generation,
            from: self.session,
            transfer: self.transfer,
            term: self.term,
        }
    }

    /// Refuses new operations on the range from now on, and waits until those that hold a guard have ended.
    pub async fn freeze(&mut self) -> Result<(), MigrationVoid> {
        let Some(frozen) = self.frozen.take() else { return Ok(()) };
        self.events.send(OwnerEvent::TransferReady(self.transfer)).await.map_err(|_| MigrationVoid)?;
        frozen.await.map_err(|_| MigrationVoid)?;
        self.in_flight.quiet(self.range).await;
        Ok(())
    }
}

/// The migration is over before it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the migration is void, because the Manager or the lease ended it: stop, the library tries again if need be"
)]
pub struct MigrationVoid;

/// What a source tells a destination about the state it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImportOffer {
    /// The keys.
    pub range: KeyRange,
    /// The lease under which the source holds them.
    pub source: Generation,
    /// The source's process.
    pub from: SessionId,
    /// The number of the transfer at that process; a higher one is newer.
    pub transfer: TransferId,
    /// The term of the leader that wants them moved: what an earlier leader says of the copy does not count.
    pub term: Term,
}

/// Why a copy is not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ImportError {
    /// A later transfer of some of these keys has begun to arrive from the same process.
    #[error("a newer transfer of this range is arriving: drop this copy")]
    Superseded,
    /// This Owner has left or its task has ended.
    #[error(
        "this Owner takes nothing in any more: tell the source to ask its Manager for another destination"
    )]
    Gone,
}

/// How many sources' newest transfers are remembered at most.
const REMEMBERED: usize = 4096;

/// Copies on their way in.
#[derive(Debug, Default)]
pub(super) struct Imports {
    state: Mutex<ImportState>,
}

/// A copy that the machine has yet to hear of, and who waits for that.
type Waiting = (ImportOffer, oneshot::Sender<()>);

#[derive(Debug, Default)]
struct ImportState {
    newest: BTreeMap<SessionId, RangeMap<TransferId>>,
    waiting: VecDeque<Waiting>,
    noted: RangeMap<(SessionId, TransferId)>,
}

impl Imports {
    /// A copy begins to arrive.
    pub(super) fn begin(&self, offer: &ImportOffer) -> Result<(), ImportError> {
        let mut state = self.lock();
        state.check(offer)?;
        if state.newest.len() >= REMEMBERED && !state.newest.contains_key(&offer.from) {
            state.newest.pop_first();
        }
        state.newest.entry(offer.from).or_default().insert(offer.range, offer.transfer);
        Ok(())
    }

    /// The whole copy is here; the receiver resolves once the machine has noted it.
    pub(super) fn complete(
        &self,
        offer: &ImportOffer,
        to_machine: mpsc::Permit<'_, OwnerEvent>,
    ) -> Result<oneshot::Receiver<()>, ImportError> {
        let mut state = self.lock();
        state.check(offer)?;
        let (told, knows) = oneshot::channel();
        state.waiting.push_back((*offer, told));
        to_machine.send(OwnerEvent::ImportReady {
            range: offer.range,
            source: offer.source,
            term: offer.term,
        });
        Ok(knows)
    }

    /// The machine has noted a copy.
    pub(super) fn noted(&self, range: KeyRange, source: Generation) {
        let mut state = self.lock();
        if let Some((offer, told)) = state.take_waiting(range, source) {
            state.noted.insert(offer.range, (offer.from, offer.transfer));
            // If nobody waits any more, the source asks again.
            let _ = told.send(());
        }
    }

    /// The machine does not want a copy, and its sender must not be told that it is here.
    pub(super) fn refused(&self, range: KeyRange, source: Generation) {
        self.lock().take_waiting(range, source);
    }

    /// The copies of a range that are of no use any more.
    pub(super) fn discard(&self, range: KeyRange) -> Vec<(KeyRange, SessionId, TransferId)> {
        let mut state = self.lock();
        let pieces =
            state.noted.overlapping(range).map(|(piece, (from, transfer))| (piece, *from, *transfer));
        let pieces = pieces.collect();
        state.noted.remove(range);
        pieces
    }

    /// A lease is here: copies of its range are used or void.
    pub(super) fn granted(&self, range: KeyRange) {
        self.lock().noted.remove(range);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ImportState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ImportState {
    /// The copy of which the machine speaks; the first, if several are the same to it.
    fn take_waiting(&mut self, range: KeyRange, source: Generation) -> Option<Waiting> {
        let is_it = |(offer, _): &Waiting| offer.range == range && offer.source == source;
        let place = self.waiting.iter().position(is_it)?;
        self.waiting.remove(place)
    }

    fn check(&self, offer: &ImportOffer) -> Result<(), ImportError> {
        let newest = self.newest.get(&offer.from);
        let newer = newest.is_some_and(|newest| {
            newest.overlapping(offer.range).any(|(_, transfer)| *transfer > offer.transfer)
        });
        if newer { Err(ImportError::Superseded) } else { Ok(()) }
    }
}

/// A copy that is arriving. Say [`Import::complete`] when all of it is here.
#[derive(Debug)]
pub struct Import {
    pub(super) offer: ImportOffer,
    pub(super) owner: super::Owner,
}

impl Import {
    /// What arrives.
    #[must_use]
    pub fn offer(&self) -> ImportOffer {
        self.offer
    }

    /// The whole copy is here. Answers with the session to tell the source: only then may the source release.
    pub async fn complete(self) -> Result<SessionId, ImportError> {
        self.owner.note_import(&self.offer).await
    }
}

#[cfg(test)]
mod tests {
    use centrifuge_core::id::Nonce;
    use centrifuge_core::key::Key;

    use super::*;

    fn offer(transfer: u64, first: u64, last: u64) -> ImportOffer {
        let range = KeyRange::new(Key(first), Key(last)).expect("in order");
        let from = SessionId(Nonce(1));
        ImportOffer { range, source: Generation(5), from, transfer: TransferId(transfer), term: Term(1) }
    }

    #[tokio::test]
    async fn a_straggler_does_not_take_the_place_of_a_newer_copy() {
        let imports = Imports::default();
        let (events, mut queue) = mpsc::channel(4);
        let (old, new) = (offer(1, 0, 9), offer(2, 5, 20));
        imports.begin(&old).expect("the first");
        imports.begin(&new).expect("a newer one");
        assert_eq!(imports.begin(&old), Err(ImportError::Superseded));
        let permit = events.reserve().await.expect("room");
        assert_eq!(imports.complete(&old, permit).map(|_| ()), Err(ImportError::Superseded));
        assert!(queue.try_recv().is_err(), "the machine does not hear of the old copy");
        imports.begin(&offer(1, 30, 40)).expect("other keys");
        let permit = events.reserve().await.expect("room");
        let knows = imports.complete(&new, permit).expect("the newest");
        let heard = OwnerEvent::ImportReady { range: new.range, source: new.source, term: new.term };
        assert_eq!(queue.try_recv(), Ok(heard));
        imports.noted(new.range, new.source);
        knows.await.expect("told");
    }

    #[test]
    fn a_discard_names_the_copy_that_the_machine_knew() {
        let imports = Imports::default();
        let (events, _queue) = mpsc::channel(4);
        let (known, arriving) = (offer(1, 0, 9), offer(2, 0, 9));
        let complete = |offer: &ImportOffer| {
            imports.begin(offer).expect("newest");
            imports.complete(offer, events.try_reserve().expect("room")).expect("newest")
        };
        let _knows = complete(&known);
        imports.noted(known.range, known.source);
        let _waits = complete(&arriving);
        assert_eq!(imports.discard(KeyRange::ALL), [(known.range, known.from, known.transfer)]);
        imports.noted(arriving.range, arriving.source);
        imports.granted(KeyRange::ALL);
        assert_eq!(imports.discard(KeyRange::ALL), []);
    }
}
