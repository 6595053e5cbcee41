//! How the entries of a range move to another server's map.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use centrifuge_core::id::{Generation, SessionId};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::owner::TransferId;
use centrifuge_core::range_set::RangeSet;
use centrifuge_core::time::Instant;

use super::frame::{Answer, Part};
use super::{CodecError, Inner, LeasedMap, Place, lock};
use crate::hot::Lease;
use crate::keys::KeyOrder;
use crate::owner::{BoxError, ImportOffer, MigrationOut, Owner};

/// A part is sent when its entries have this many bytes.
const PART_BYTES: usize = 1 << 20;
/// The most copies that arrive at once.
const MOST_ARRIVING: usize = 1024;

/// An entry on its way: its value, and when it ends.
type Arrived<V> = (Option<V>, Option<Instant>);

/// Copies of what other servers hold.
pub(super) struct Arrivals<N, V> {
    arriving: BTreeMap<(SessionId, TransferId), Arriving<N, V>>,
    complete: Vec<Complete<N, V>>,
}

impl<N, V> Default for Arrivals<N, V> {
    fn default() -> Arrivals<N, V> {
        Arrivals { arriving: BTreeMap::new(), complete: Vec::new() }
    }
}

/// A copy of which parts are here.
struct Arriving<N, V> {
    offer: ImportOffer,
    parts: u32,
    entries: HashMap<N, Arrived<V>>,
}

/// A copy that is all here.
struct Complete<N, V> {
    offer: ImportOffer,
    /// The keys of it that are still of use.
    keys: RangeSet,
    entries: HashMap<N, Arrived<V>>,
}

/// Why a part is not taken in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PartError {
    #[error("not a part of a copy: check that both servers run versions that understand each other")]
    Unreadable,
    #[error("the copy arrives out of order or anew: send it again from its first part")]
    OutOfOrder,
    #[error("the map belongs to no Owner yet: send it again when this server has joined")]
    NotAttached,
    #[error("too many copies arrive at once: send it again later")]
    TooMany,
    #[error("the copy was discarded while it arrived: send it again")]
    Discarded,
    #[error(transparent)]
    Codec(#[from] CodecError),
}

/// Entries as they are sent.
type Written = Vec<(Option<Duration>, Vec<u8>)>;

/// While it lives, removed entries are remembered.
struct Exporting<'a>(&'a AtomicUsize);

impl<'a> Exporting<'a> {
    fn new(exports: &'a AtomicUsize) -> Exporting<'a> {
        exports.fetch_add(1, Ordering::SeqCst);
        Exporting(exports)
    }
}

impl Drop for Exporting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The sending side.
impl<N: Place<K> + Eq + Hash + Clone, V, K: KeyOrder> LeasedMap<N, V, K> {
    /// Moves a range: copies it while it is served, freezes it, and sends what changed meanwhile. Answers with the
    /// session that has all of it.
    pub async fn move_out<R>(
        &self,
        mut out: MigrationOut,
        carry: impl Fn(String, Vec<u8>) -> R,
    ) -> Result<SessionId, BoxError>
    where
        R: Future<Output = Result<Vec<u8>, BoxError>>,
    {
        let _exporting = Exporting::new(&self.inner.exports);
        let (offer, url) = (out.offer(), out.url().as_str().to_owned());
        let copied_at = self.inner.changes.load(Ordering::SeqCst);
        let mut number = 0;
        for entries in in_parts(self.export(&offer, None)?) {
            let part = Part { offer, number, is_last: false, entries };
            deliver(&carry, &url, &part, out.destination()).await?;
            number += 1;
        }
        out.freeze().await?;
        let mut rest = in_parts(self.export(&offer, Some(copied_at))?);
        let last = rest.pop().unwrap_or_default();
        for entries in rest {
            let part = Part { offer, number, is_last: false, entries };
            deliver(&carry, &url, &part, out.destination()).await?;
            number += 1;
        }
        let part = Part { offer, number, is_last: true, entries: last };
        deliver(&carry, &url, &part, out.destination()).await
    }

    /// The entries of a range; with `since`, those that changed after it, removed ones among them.
    fn export(&self, offer: &ImportOffer, since: Option<u64>) -> Result<Written, BoxError> {
        let leases = self.inner.leases()?;
        self.install_imports(Some(offer.range));
        let now = leases.now();
        let mut written = Vec::new();
        for shard in &self.inner.shards {
            for (name, entry) in lock(shard).iter() {
                // Whatever number it was written under: the range has been held without a gap since.
                let is_of_lease = |lease: Lease| {
                    lease.is_continuous_since(offer.source) && lease.is_continuous_since(entry.generation)
                };
                let Some(key) = self.inner.place_of(name) else { continue };
                let is_meant = offer.range.contains(key) && leases.held(key).is_some_and(is_of_lease);
                let is_news = since.map_or(entry.is_live(now), |since| entry.changed > since);
                if is_meant && is_news {
                    let value = entry.value.as_ref().filter(|_| entry.is_live(now));
                    let left = entry.ends.map(|ends| ends.since(now));
                    written.push((left, self.inner.codec.encode(name, value)?));
                }
            }
        }
        Ok(written)
    }

    /// All entries of a range as one last part, for a range that is frozen.
    pub(crate) fn export_all(&self, offer: ImportOffer) -> Result<Vec<u8>, BoxError> {
        let entries = self.export(&offer, None)?;
        Ok(Part { offer, number: 0, is_last: true, entries }.write())
    }
}

/// Cuts entries into parts of bearable size.
fn in_parts(entries: Written) -> Vec<Written> {
    let mut parts: Vec<Written> = Vec::new();
    let mut size = PART_BYTES;
    for entry in entries {
        if size >= PART_BYTES {
            parts.push(Vec::new());
            size = 0;
        }
        size += entry.1.len();
        parts.last_mut().expect("one was just added if there was none").push(entry);
    }
    parts
}

async fn deliver<R>(
    carry: &impl Fn(String, Vec<u8>) -> R,
    url: &str,
    part: &Part,
    destination: SessionId,
) -> Result<SessionId, BoxError>
where
    R: Future<Output = Result<Vec<u8>, BoxError>>,
{
    let answer = carry(url.to_owned(), part.write()).await?;
    match Answer::read(&answer) {
        Some(Answer::Taken(session)) if session == destination => Ok(session),
        Some(Answer::Taken(_)) => {
            Err("another process answers there: it is told of by the Manager soon".into())
        }
        Some(Answer::Refused(why)) => Err(why.into()),
        None => Err("the answer is none of a LeasedMap: check what is mounted at the destination".into()),
    }
}

/// The receiving side.
impl<N: Place<K> + Eq + Hash + Clone, V, K: KeyOrder> LeasedMap<N, V, K> {
    /// Takes in what another server's map sends, and gives the answer to carry back. Mount it where the `carry` of
    /// [`OwnerBuilder::state`](crate::owner::OwnerBuilder::state) delivers; only servers of the pool may reach it.
    pub async fn handle(&self, owner: &Owner<K>, bytes: &[u8]) -> Vec<u8> {
        let answer = match self.take(owner, bytes).await {
            Ok(session) => Answer::Taken(session),
            Err(error) => Answer::Refused(error.to_string()),
        };
        answer.write()
    }

    async fn take(&self, owner: &Owner<K>, bytes: &[u8]) -> Result<SessionId, BoxError> {
        let part = Part::read(bytes).ok_or(PartError::Unreadable)?;
        let (offer, is_last) = (part.offer, part.is_last);
        let import = owner.begin_import(offer)?;
        self.accept(part)?;
        if !is_last {
            return Ok(owner.session());
        }
        let session = import.complete().await?;
        // The library may have had it discarded before it knew of it.
        if self.has_import(&offer) { Ok(session) } else { Err(PartError::Discarded.into()) }
    }

    /// Takes a whole copy in at once, and says what it is of.
    pub(crate) fn import_all(&self, bytes: &[u8]) -> Result<ImportOffer, PartError> {
        let part = Part::read(bytes).ok_or(PartError::Unreadable)?;
        let offer = part.offer;
        self.accept(part)?;
        Ok(offer)
    }

    fn accept(&self, part: Part) -> Result<(), PartError> {
        let leases = self.inner.leases().map_err(|_| PartError::NotAttached)?;
        let now = leases.now();
        let mut entries = HashMap::with_capacity(part.entries.len());
        for (left, bytes) in &part.entries {
            let (name, value) = self.inner.codec.decode(bytes)?;
            entries.insert(name, (value, left.map(|left| now + left)));
        }
        let is_in = |range: KeyRange, name: &N| self.inner.is_in(range, name);
        self.inner.arrivals().add(&part, entries, is_in)
    }

    /// Whether a copy is all here.
    fn has_import(&self, offer: &ImportOffer) -> bool {
        let arrivals = self.inner.arrivals();
        arrivals.complete.iter().any(|copy| copy.offer == *offer && copy.keys.contains_range(offer.range))
    }

    /// The copies of a range are void, or that from under `source` alone.
    pub(crate) fn discard_import(&self, range: KeyRange, source: Option<Generation>) {
        let mut arrivals = self.inner.arrivals();
        let is_void = |copy: &&mut Complete<N, V>| source.is_none_or(|source| copy.offer.source == source);
        for copy in arrivals.complete.iter_mut().filter(is_void) {
            copy.keys.remove(range);
            copy.entries.retain(|name, _| !self.inner.is_in(range, name));
        }
        arrivals.complete.retain(|copy| !copy.keys.is_empty());
    }

    /// Puts what came along with leases that are held now among the entries, for a range or for all.
    pub(super) fn install_imports(&self, range: Option<KeyRange>) {
        let Ok(leases) = self.inner.leases() else { return };
        let concerns = |name: &N| range.is_none_or(|range| self.inner.is_in(range, name));
        let names: Vec<N> = {
            let arrivals = self.inner.arrivals();
            let names = arrivals.complete.iter().flat_map(|copy| copy.entries.keys());
            names.filter(|name| concerns(name)).cloned().collect()
        };
        let now = leases.now();
        for name in names {
            let Some(key) = self.inner.place_of(&name) else { continue };
            let mut shard = self.inner.shard(key);
            if let Some(lease) = leases.held(key) {
                self.inner.settle(&mut shard, &name, key, &lease, now);
            }
        }
        self.inner.arrivals().complete.retain(|copy| {
            let is_used = leases.held(copy.offer.range.first());
            !(copy.entries.is_empty() && is_used.is_some_and(|lease| lease.source == Some(copy.offer.source)))
        });
    }
}

impl<N: Place<K> + Eq + Hash + Clone, V, K: KeyOrder> Inner<N, V, K> {
    /// Whether the key of a name is one of a range.
    fn is_in(&self, range: KeyRange, name: &N) -> bool {
        self.place_of(name).is_some_and(|key| range.contains(key))
    }

    /// Takes the entry of a name out of the copy that was held under `source`.
    pub(super) fn arrived(&self, name: &N, key: Key, source: Generation) -> Option<Arrived<V>> {
        let mut arrivals = self.arrivals();
        let fits = |copy: &&mut Complete<N, V>| copy.offer.source == source && copy.keys.contains(key);
        arrivals.complete.iter_mut().find(fits)?.entries.remove(name)
    }
}

impl<N: Eq + Hash, V> Arrivals<N, V> {
    fn add(
        &mut self,
        part: &Part,
        entries: HashMap<N, Arrived<V>>,
        is_in: impl Fn(KeyRange, &N) -> bool,
    ) -> Result<(), PartError> {
        let id = (part.offer.from, part.offer.transfer);
        if part.number == 0 {
            self.begin(part.offer)?;
        }
        let arriving = self.arriving.get_mut(&id).ok_or(PartError::OutOfOrder)?;
        if part.number != arriving.parts || arriving.offer != part.offer {
            self.arriving.remove(&id);
            return Err(PartError::OutOfOrder);
        }
        arriving.parts += 1;
        arriving.entries.extend(entries);
        if part.is_last
            && let Some(Arriving { offer, entries, .. }) = self.arriving.remove(&id)
        {
            self.complete(offer, entries, is_in);
        }
        Ok(())
    }

    /// A new copy: earlier ones of the same keys from the same process are void.
    fn begin(&mut self, offer: ImportOffer) -> Result<(), PartError> {
        let is_earlier = |old: &ImportOffer| {
            old.from == offer.from && old.transfer <= offer.transfer && old.range.overlaps(offer.range)
        };
        self.arriving.retain(|_, arriving| !is_earlier(&arriving.offer));
        if self.arriving.len() >= MOST_ARRIVING {
            return Err(PartError::TooMany);
        }
        let arriving = Arriving { offer, parts: 0, entries: HashMap::new() };
        self.arriving.insert((offer.from, offer.transfer), arriving);
        Ok(())
    }

    /// A copy is all here: it takes the place of every earlier one of its keys.
    fn complete(
        &mut self,
        offer: ImportOffer,
        entries: HashMap<N, Arrived<V>>,
        is_in: impl Fn(KeyRange, &N) -> bool,
    ) {
        for copy in &mut self.complete {
            copy.keys.remove(offer.range);
            copy.entries.retain(|name, _| !is_in(offer.range, name));
        }
        self.complete.retain(|copy| !copy.keys.is_empty());
        self.complete.push(Complete { offer, keys: RangeSet::from_ranges([offer.range]), entries });
    }
}
