//! Reads a store's keys at one revision: nothing is believed before its checksum and its place are.

use std::sync::Arc;

use centrifuge_core::id::Term;
use centrifuge_core::manager_state::ManagerState;
use centrifuge_net::proto::store::v1 as stored;
use prost::Message;
use tokio::task::spawn_blocking;

use super::client::{Client, EtcdError};
use super::keys::{self, Keys};
use super::proto::items::{Item, Leader, Parts, SnapshotPointer, item};
use super::proto::rpc;
use crate::store::StoredBatch;
use crate::store::decode::decode_group;
use crate::store::error::{DecodeError, StoreError};
use crate::store::seal::{Kind, seal, unseal};
use crate::store::tables::open_batch;

/// How many batches are read at a time: however large they are, a page comes within a try's time.
const PAGE: i64 = 64;

/// Why a store cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    /// etcd did not give it.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// There is no store.
    #[error("its keys are gone")]
    Missing,
    /// A later version wrote it.
    #[error("it has format {0}, which this version does not know")]
    Newer(u32),
    /// It is not as it was written.
    #[error("{0}")]
    Damaged(String),
}

impl Unreadable {
    fn damaged(what: impl ToString) -> Unreadable {
        Unreadable::Damaged(what.to_string())
    }

    fn decoding(what: &str, why: &DecodeError) -> Unreadable {
        match why {
            DecodeError::Format(found) => Unreadable::Newer(*found),
            why => Unreadable::Damaged(format!("{what} is unreadable: {why}")),
        }
    }

    /// Whether trying again will not help: what is there says nothing to this version.
    pub(super) fn lasts(&self) -> bool {
        !matches!(self, Unreadable::Etcd(_))
    }

    pub(super) fn at(self, prefix: &str) -> StoreError {
        let prefix = prefix.to_owned();
        match self {
            Unreadable::Etcd(why @ EtcdError::Refused(_)) => {
                StoreError::EtcdRefused { prefix, why: why.to_string() }
            }
            Unreadable::Etcd(why) => StoreError::Etcd { prefix, why: why.to_string() },
            Unreadable::Missing => StoreError::EtcdMissing { prefix },
            Unreadable::Newer(found) => StoreError::EtcdNewer { prefix, found },
            Unreadable::Damaged(what) => StoreError::EtcdDamaged { prefix, what },
        }
    }
}

/// What a store knows besides its log.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Standing {
    pub(super) content: stored::Standing,
    /// The revision at which the store was created: a different revision is a different store.
    pub(super) made_at: i64,
    /// When it was last written.
    pub(super) written_at: i64,
}

impl Standing {
    pub(super) fn of(found: &rpc::RangeResponse) -> Result<Option<Standing>, Unreadable> {
        let Some(kv) = found.kvs.first() else { return Ok(None) };
        let content =
            unseal(Kind::Standing, &kv.value).map_err(|why| Unreadable::decoding("its standing", &why))?;
        Ok(Some(Standing { content, made_at: kv.create_revision, written_at: kv.mod_revision }))
    }

    pub(super) fn sealed(term: Term, not_before_micros: Option<u64>) -> Vec<u8> {
        seal(Kind::Standing, &stored::Standing { term: term.0, commits: 0, not_before_micros })
    }
}

/// Who has the leader's key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Led {
    pub(super) leader: Leader,
    /// When the key was written: what fences its leader's writes.
    pub(super) written_at: i64,
    pub(super) lease: i64,
}

impl Led {
    pub(super) fn of(found: &rpc::RangeResponse) -> Option<Led> {
        found.kvs.first().map(Led::by)
    }

    /// A value that cannot be read belongs to another Manager.
    pub(super) fn by(kv: &rpc::KeyValue) -> Led {
        let leader = Leader::decode(kv.value.as_slice()).unwrap_or_default();
        Led { leader, written_at: kv.mod_revision, lease: kv.lease }
    }
}

/// A store at one revision, with the first page of its log from an index on.
pub(super) struct Look {
    pub(super) revision: i64,
    pub(super) standing: Standing,
    pub(super) head: u64,
    pub(super) snapshot: Option<(SnapshotPointer, i64)>,
    pub(super) page: Vec<rpc::KeyValue>,
}

/// Looks at a store. A look that may lag is served by one node alone, from its own memory.
pub(super) async fn look(
    client: &Client,
    names: &Keys,
    from: u64,
    may_lag: bool,
) -> Result<Look, Unreadable> {
    let ranges = [
        keys::one(names.standing()),
        keys::one(names.head()),
        keys::one(names.snapshot()),
        keys::from(names.log(from), names.log_end(), PAGE),
    ];
    let read = |range| keys::get(rpc::RangeRequest { serializable: may_lag, ..range });
    let success = ranges.into_iter().map(read).collect();
    let answer = client.txn(rpc::TxnRequest { success, ..Default::default() }).await?;
    let revision = keys::revision(answer.header.as_ref());
    let mut found = keys::found(answer.responses);
    let mut next = || found.next().ok_or_else(|| Unreadable::damaged("etcd left an answer out"));
    let standing = Standing::of(&next()?)?.ok_or(Unreadable::Missing)?;
    let head = read_head(&next()?)?;
    let snapshot = read_pointer(&next()?)?;
    Ok(Look { revision, standing, head, snapshot, page: next()?.kvs })
}

pub(super) fn read_head(found: &rpc::RangeResponse) -> Result<u64, Unreadable> {
    let value = found.kvs.first().map(|kv| kv.value.as_slice());
    value
        .and_then(keys::read_number)
        .ok_or_else(|| Unreadable::damaged("the index of its last batch is unreadable"))
}

/// Where the latest snapshot is, and when that was written.
pub(super) fn read_pointer(found: &rpc::RangeResponse) -> Result<Option<(SnapshotPointer, i64)>, Unreadable> {
    let Some(kv) = found.kvs.first() else { return Ok(None) };
    let pointer = SnapshotPointer::decode(kv.value.as_slice())
        .map_err(|why| Unreadable::decoding("the place of its snapshot", &why.into()))?;
    Ok(Some((pointer, kv.mod_revision)))
}

/// Reads at one revision.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) client: &'a Client,
    pub(super) keys: &'a Keys,
    /// 0 for the latest.
    pub(super) revision: i64,
}

impl Reader<'_> {
    /// The next batches from an index on.
    pub(super) async fn page(&self, from: u64) -> Result<Vec<rpc::KeyValue>, Unreadable> {
        let range = keys::from(self.keys.log(from), self.keys.log_end(), PAGE);
        let found = self.client.range(rpc::RangeRequest { revision: self.revision, ..range }).await?;
        Ok(found.kvs)
    }

    /// The batch that a key of the log has.
    pub(super) async fn batch(&self, kv: &rpc::KeyValue) -> Result<StoredBatch, Unreadable> {
        let index = self
            .keys
            .log_index(&kv.key)
            .ok_or_else(|| Unreadable::damaged("a key of its log has no index"))?;
        let what = format!("the batch at index {index}");
        let bytes = self.content(&kv.value, &what).await?;
        open_batch(&bytes, index).map_err(|why| Unreadable::decoding(&what, &why))
    }

    /// A snapshot, decoded where it holds nobody up.
    pub(super) async fn snapshot(&self, pointer: &SnapshotPointer) -> Result<ManagerState, Unreadable> {
        let parts = pointer.parts.as_ref().ok_or_else(|| Unreadable::damaged("its snapshot has no place"))?;
        let bytes = self.parts(parts, "its snapshot").await?;
        let index = pointer.index;
        let decoded = spawn_blocking(move || {
            let snapshot: stored::Snapshot = unseal(Kind::Snapshot, &bytes)?;
            if snapshot.index != index {
                return Err(DecodeError::Misplaced { says: snapshot.index, stands: index });
            }
            decode_group(snapshot.group.ok_or(DecodeError::Missing("group"))?)
        });
        match decoded.await {
            Ok(decoded) => decoded.map_err(|why| Unreadable::decoding("its snapshot", &why)),
            Err(_) => Err(Unreadable::damaged("its snapshot cannot be made sense of")),
        }
    }

    async fn content(&self, value: &[u8], what: &str) -> Result<Vec<u8>, Unreadable> {
        let item = Item::decode(value).map_err(|why| Unreadable::decoding(what, &why.into()))?;
        match item.place {
            Some(item::Place::Whole(bytes)) => Ok(bytes),
            Some(item::Place::Parts(parts)) => self.parts(&parts, what).await,
            None => Err(Unreadable::Damaged(format!("{what} is empty"))),
        }
    }

    async fn parts(&self, parts: &Parts, what: &str) -> Result<Vec<u8>, Unreadable> {
        let mut bytes = Vec::new();
        for part in 0..parts.count as usize {
            let range = keys::one(self.keys.part(&parts.folder, part));
            let found = self.client.range(rpc::RangeRequest { revision: self.revision, ..range }).await?;
            let kv = found.kvs.first();
            let kv = kv.ok_or_else(|| Unreadable::Damaged(format!("a part of {what} is missing")))?;
            bytes.extend_from_slice(&kv.value);
        }
        Ok(bytes)
    }
}

/// What is known of a store's log, up to an index: a prefix of what is committed, always.
pub(super) struct Mirror {
    /// Which store it is of.
    store: i64,
    pub(super) index: u64,
    pub(super) group: Arc<ManagerState>,
}

impl Mirror {
    pub(super) fn empty() -> Mirror {
        Mirror { store: 0, index: 0, group: Arc::default() }
    }

    /// What the store's own leader says that the log adds up to.
    pub(super) fn adopt(&mut self, index: u64, group: Arc<ManagerState>) {
        if self.store != 0 && index > self.index {
            self.index = index;
            self.group = group;
        }
    }

    /// Reads what is missing. With `may_lag` it may miss the latest, and otherwise nothing that was committed before
    /// the call. `see` hears of every batch and its size.
    pub(super) async fn catch_up(
        &mut self,
        client: &Client,
        names: &Keys,
        may_lag: bool,
        mut see: impl FnMut(StoredBatch, usize),
    ) -> Result<(), Unreadable> {
        let mut tries = 5;
        loop {
            tries -= 1;
            match self.try_catch_up(client, names, may_lag, &mut see).await {
                // etcd was compacted meanwhile, or the store was replaced: read from the start.
                Err(Unreadable::Etcd(EtcdError::Compacted)) if tries > 0 => {}
                done => return done,
            }
        }
    }

    async fn try_catch_up(
        &mut self,
        client: &Client,
        names: &Keys,
        may_lag: bool,
        see: &mut impl FnMut(StoredBatch, usize),
    ) -> Result<(), Unreadable> {
        let look = match look(client, names, self.index.saturating_add(1), may_lag).await {
            // A node that lags may not have heard of the store yet.
            Err(Unreadable::Missing) if may_lag => return Ok(()),
            look => look?,
        };
        let back_in_time = look.head < self.index;
        if self.store != look.standing.made_at || (back_in_time && !may_lag) {
            let moved_on = self.index > 0;
            *self = Mirror { store: look.standing.made_at, ..Mirror::empty() };
            if moved_on {
                return Err(EtcdError::Compacted.into());
            }
        } else if back_in_time {
            return Ok(());
        }
        let reader = Reader { client, keys: names, revision: look.revision };
        let mut page = look.page;
        let next = page.first().and_then(|kv| names.log_index(&kv.key));
        let goes_on = look.head == self.index || (self.index > 0 && next == self.index.checked_add(1));
        if let Some((pointer, _)) =
            look.snapshot.filter(|(pointer, _)| !goes_on && pointer.index > self.index)
        {
            self.group = Arc::new(reader.snapshot(&pointer).await?);
            self.index = pointer.index;
            page = reader.page(self.index.saturating_add(1)).await?;
        }
        while self.index < look.head {
            if page.is_empty() {
                page = reader.page(self.index.saturating_add(1)).await?;
            }
            self.apply(reader, std::mem::take(&mut page), see).await?;
        }
        if self.index == look.head {
            Ok(())
        } else {
            Err(Unreadable::damaged("its log goes on after its end"))
        }
    }

    async fn apply(
        &mut self,
        reader: Reader<'_>,
        page: Vec<rpc::KeyValue>,
        see: &mut impl FnMut(StoredBatch, usize),
    ) -> Result<(), Unreadable> {
        if page.is_empty() {
            return Err(Unreadable::Damaged(format!("batches after index {} are missing", self.index)));
        }
        for kv in page {
            let stored = reader.batch(&kv).await?;
            if Some(stored.index.0) != self.index.checked_add(1) {
                let found = stored.index.0;
                return Err(Unreadable::Damaged(format!("batches before index {found} are missing")));
            }
            Arc::make_mut(&mut self.group).apply(&stored.batch);
            self.index = stored.index.0;
            see(stored, kv.value.len());
        }
        // Others of this thread must not wait for a long log.
        tokio::task::yield_now().await;
        Ok(())
    }
}
