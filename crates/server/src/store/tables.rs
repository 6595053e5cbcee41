//! What the embedded database holds, and how it is read: nothing is believed before its checksum and its place are.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use centrifuge_core::id::{Index, Term};
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::record::Batch;
use centrifuge_net::proto::store::v1 as stored;
use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition};

use super::decode::{decode_batch, decode_group, decode_time};
use super::encode::{encode_batch, encode_group, encode_time};
use super::error::{DecodeError, StoreError};
use super::seal::{Kind, seal, unseal};
use super::{Contents, HISTORY, StoredBatch};

/// Index -> batch: the log since the snapshot, and history before it. Without gaps.
const BATCHES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("batches");
/// What there is once: the standing and the snapshot.
const SINGLES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("singles");
const STANDING: &str = "standing";
const SNAPSHOT: &str = "snapshot";

/// What a writer keeps in mind about the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) term: Term,
    pub(super) commits: u64,
    pub(super) not_before: Option<SystemTime>,
    /// The index that the snapshot reaches to.
    pub(super) snapshot: u64,
    /// The index of the last batch.
    pub(super) last: u64,
}

/// One thing to write.
pub(super) enum Write {
    Batch { index: u64, written_at: SystemTime, batch: Arc<Batch> },
    Snapshot { index: u64, group: Arc<ManagerState> },
}

/// Why nothing, or nobody knows what, was written.
pub(super) enum Failure {
    /// Surely nothing was written.
    Nothing(redb::Error),
    /// All of it or nothing.
    Unknown(redb::Error),
}

/// Writes everything in one transaction and returns when it is on the disk. `facts` are those after it.
pub(super) fn write(database: &Database, facts: &Facts, writes: &[Write]) -> Result<(), Failure> {
    let transaction = fill(database, facts, writes).map_err(Failure::Nothing)?;
    transaction.commit().map_err(|error| Failure::Unknown(error.into()))
}

fn fill(database: &Database, facts: &Facts, writes: &[Write]) -> Result<redb::WriteTransaction, redb::Error> {
    let mut transaction = database.begin_write()?;
    // The file is whole after every transaction: an unclean end needs no repair, and what needs one is damaged.
    transaction.set_quick_repair(true);
    {
        let mut batches = transaction.open_table(BATCHES)?;
        let mut singles = transaction.open_table(SINGLES)?;
        for write in writes {
            match write {
                Write::Batch { index, written_at, batch } => {
                    batches.insert(index, sealed_batch(*index, *written_at, batch).as_slice())?;
                }
                Write::Snapshot { index, group } => {
                    singles.insert(SNAPSHOT, sealed_snapshot(*index, group).as_slice())?;
                    let forgotten = facts.last.saturating_sub(HISTORY).min(*index);
                    batches.retain_in(..=forgotten, |_, _| false)?;
                }
            }
        }
        singles.insert(STANDING, seal(Kind::Standing, &standing(facts)).as_slice())?;
    }
    Ok(transaction)
}

/// Fills a new database.
pub(super) fn fill_new(database: &Database, contents: &Contents, file: &Path) -> Result<u64, StoreError> {
    let facts = Facts {
        term: contents.term,
        commits: 1,
        not_before: contents.not_before,
        snapshot: contents.index.0,
        last: contents.index.0,
    };
    let history = contents.history.iter().map(|stored| Write::Batch {
        index: stored.index.0,
        written_at: stored.written_at,
        batch: Arc::new(stored.batch.clone()),
    });
    let snapshot = Write::Snapshot { index: contents.index.0, group: Arc::new(contents.group.clone()) };
    let writes: Vec<Write> = history.chain([snapshot]).collect();
    match write(database, &facts, &writes) {
        Ok(()) => Ok(facts.commits),
        Err(Failure::Nothing(error) | Failure::Unknown(error)) => Err(StoreError::redb(file, error)),
    }
}

/// What a reading of the log gives.
pub(super) struct Scanned {
    pub(super) facts: Facts,
    pub(super) group: ManagerState,
}

/// Which batches a reading looks at: those before the snapshot tell nothing about the state.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    Log,
    LogAndHistory,
}

/// Reads the snapshot and applies the batches after it. `see` gets every batch, the oldest first.
pub(super) fn scan(
    database: &Database,
    file: &Path,
    reach: Reach,
    see: impl FnMut(StoredBatch),
) -> Result<Scanned, StoreError> {
    let transaction = database.begin_read().map_err(|error| StoreError::redb(file, error))?;
    scan_in(&transaction, file, reach, see)
}

/// The same as of one moment.
fn scan_in(
    transaction: &ReadTransaction,
    file: &Path,
    reach: Reach,
    mut see: impl FnMut(StoredBatch),
) -> Result<Scanned, StoreError> {
    let redb = |error: redb::Error| StoreError::redb(file, error);
    let (standing, snapshot) = read_singles(transaction, file)?;
    let group = required(file, snapshot.group, "the snapshot is empty")?;
    let mut group = decode_group(group).map_err(|why| undecodable(file, "the snapshot", &why))?;
    let batches = transaction.open_table(BATCHES).map_err(|error| redb(error.into()))?;
    let from = match reach {
        Reach::Log => Bound::Excluded(snapshot.index),
        Reach::LogAndHistory => Bound::Unbounded,
    };
    let mut next = None;
    let range = batches.range::<u64>((from, Bound::Unbounded)).map_err(|error| redb(error.into()))?;
    for entry in range {
        let (index, bytes) = entry.map_err(|error| redb(error.into()))?;
        let (index, bytes) = (index.value(), bytes.value());
        if next.is_some_and(|next| next != index)
            || (next.is_none() && index > snapshot.index.saturating_add(1))
        {
            return Err(StoreError::damaged(file, format!("batches before index {index} are missing")));
        }
        let batch = open_batch(bytes, index)
            .map_err(|why| undecodable(file, &format!("the batch at index {index}"), &why))?;
        if index > snapshot.index {
            group.apply(&batch.batch);
        }
        next = index.checked_add(1);
        see(batch);
    }
    let last = next.map_or(snapshot.index, |next| next - 1);
    if last < snapshot.index {
        return Err(StoreError::damaged(file, "batches before its snapshot are missing"));
    }
    let facts = Facts {
        term: Term(standing.term),
        commits: standing.commits,
        not_before: standing.not_before_micros.map(decode_time),
        snapshot: snapshot.index,
        last,
    };
    Ok(Scanned { facts, group })
}

/// Reads everything.
pub(super) fn read_all(database: &Database, file: &Path) -> Result<(u64, Contents), StoreError> {
    let transaction = database.begin_read().map_err(|error| StoreError::redb(file, error))?;
    read_all_in(&transaction, file)
}

/// Reads everything as of one moment.
pub(super) fn read_all_in(transaction: &ReadTransaction, file: &Path) -> Result<(u64, Contents), StoreError> {
    let mut history = Vec::new();
    let scanned = scan_in(transaction, file, Reach::LogAndHistory, |batch| history.push(batch))?;
    let Facts { term, commits, not_before, last, .. } = scanned.facts;
    Ok((commits, Contents { term, not_before, index: Index(last), group: scanned.group, history }))
}

/// Reads the latest batches, the oldest first.
pub(super) fn read_recent(
    database: &Database,
    file: &Path,
    limit: usize,
) -> Result<Vec<StoredBatch>, StoreError> {
    let redb = |error: redb::Error| StoreError::redb(file, error);
    let transaction = database.begin_read().map_err(|error| redb(error.into()))?;
    let batches = transaction.open_table(BATCHES).map_err(|error| redb(error.into()))?;
    let mut recent = Vec::new();
    for entry in batches.iter().map_err(|error| redb(error.into()))?.rev().take(limit) {
        let (index, bytes) = entry.map_err(|error| redb(error.into()))?;
        let index = index.value();
        let batch = open_batch(bytes.value(), index)
            .map_err(|why| undecodable(file, &format!("the batch at index {index}"), &why))?;
        recent.push(batch);
    }
    recent.reverse();
    Ok(recent)
}

/// Reads the batch at an index, if it is still there.
pub(super) fn read_batch(
    database: &Database,
    file: &Path,
    index: u64,
) -> Result<Option<StoredBatch>, StoreError> {
    let redb = |error: redb::Error| StoreError::redb(file, error);
    let transaction = database.begin_read().map_err(|error| redb(error.into()))?;
    let batches = transaction.open_table(BATCHES).map_err(|error| redb(error.into()))?;
    let Some(bytes) = batches.get(index).map_err(|error| redb(error.into()))? else { return Ok(None) };
    open_batch(bytes.value(), index)
        .map(Some)
        .map_err(|why| undecodable(file, &format!("the batch at index {index}"), &why))
}

fn read_singles(
    transaction: &ReadTransaction,
    file: &Path,
) -> Result<(stored::Standing, stored::Snapshot), StoreError> {
    let redb = |error: redb::Error| StoreError::redb(file, error);
    let singles = transaction.open_table(SINGLES).map_err(|error| redb(error.into()))?;
    let get = |name| singles.get(name).map_err(|error| redb(error.into()));
    let standing = required(file, get(STANDING)?, "its standing is missing")?;
    let snapshot = required(file, get(SNAPSHOT)?, "its snapshot is missing")?;
    let standing = unseal(Kind::Standing, standing.value());
    let snapshot = unseal(Kind::Snapshot, snapshot.value());
    Ok((
        standing.map_err(|why| undecodable(file, "its standing", &why))?,
        snapshot.map_err(|why| undecodable(file, "its snapshot", &why))?,
    ))
}

/// A batch with its place and its time, sealed.
pub(super) fn sealed_batch(index: u64, written_at: SystemTime, batch: &Batch) -> Vec<u8> {
    let batch = Some(encode_batch(batch));
    seal(Kind::Batch, &stored::StoredBatch { index, written_at_micros: encode_time(written_at), batch })
}

/// A snapshot, sealed.
pub(super) fn sealed_snapshot(index: u64, group: &ManagerState) -> Vec<u8> {
    seal(Kind::Snapshot, &stored::Snapshot { index, group: Some(encode_group(group)) })
}

/// The batch that was sealed for this index.
pub(super) fn open_batch(bytes: &[u8], index: u64) -> Result<StoredBatch, DecodeError> {
    let stored: stored::StoredBatch = unseal(Kind::Batch, bytes)?;
    if stored.index != index {
        return Err(DecodeError::Misplaced { says: stored.index, stands: index });
    }
    let batch = decode_batch(stored.batch.ok_or(DecodeError::Missing("batch"))?)?;
    Ok(StoredBatch { index: Index(index), written_at: decode_time(stored.written_at_micros), batch })
}

fn standing(facts: &Facts) -> stored::Standing {
    stored::Standing {
        term: facts.term.0,
        commits: facts.commits,
        not_before_micros: facts.not_before.map(encode_time),
    }
}

fn required<T>(file: &Path, value: Option<T>, what: &str) -> Result<T, StoreError> {
    value.ok_or_else(|| StoreError::damaged(file, what))
}

/// Bytes that say nothing: a later version wrote them, or they are damaged.
pub(super) fn undecodable(file: &Path, what: &str, why: &DecodeError) -> StoreError {
    match why {
        DecodeError::Format(found) => StoreError::Newer { file: file.to_owned(), found: *found },
        why => StoreError::damaged(file, format!("{what} is unreadable: {why}")),
    }
}

impl StoreError {
    /// What the database says, with the file.
    pub(super) fn redb(file: &Path, error: impl Into<redb::Error>) -> StoreError {
        match error.into() {
            redb::Error::Io(source) => StoreError::Database { file: file.to_owned(), source },
            error => StoreError::damaged(file, error),
        }
    }
}
