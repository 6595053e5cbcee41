//! Backups: a store's contents in one file that does not depend on the backend, and the ways out of and into it.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::time::SystemTime;

use centrifuge_core::id::{Generation, Index, ManagerId, Nonce, Term};
use centrifuge_core::manager::ManagerConfig;
use centrifuge_core::settings::Settings;
use centrifuge_net::proto::store::v1 as stored;

use super::backend::Backend;
use super::contents::Contents;
use super::decode::{decode_group, decode_time};
use super::disk::Temporary;
use super::encode::encode_time;
use super::error::{DecodeError, StoreError};
use super::seal::{Kind, seal, unseal};
use super::tables::{open_batch, sealed_batch, sealed_snapshot, undecodable};

const MAGIC: &[u8] = b"centrifuge-backup\n";

/// How far a restore that is told nothing else raises generations and terms, beside one for each microsecond since the
/// backup was taken. Nobody grants that fast, so a second restore of the same backup is above the first one, too; the
/// margin is for clocks that are wrong.
pub const MARGIN: u64 = 1 << 32;

/// What a backup contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupSummary {
    /// When it was taken.
    pub taken_at: SystemTime,
    /// The index of its last batch.
    pub index: Index,
    /// How many namespaces it has.
    pub namespaces: usize,
    /// How many batches of history it has.
    pub batches: usize,
}

/// How a backup is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RestoreOptions {
    /// Every generation granted from now on is above this one. `None`: above the backup's last by [`MARGIN`] and more.
    pub generation_floor: Option<Generation>,
    /// The operator asserts that every lease has ended, because no Manager has run for longer than the longest hold.
    /// Otherwise no Manager leads the restored store until that much time has passed.
    pub leases_have_ended: bool,
}

/// What a restore made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The backup that was restored.
    pub backup: BackupSummary,
    /// The lowest of the namespaces' last generations, as they are now; `None` without namespaces.
    pub generation_floor: Option<Generation>,
    /// The highest term as it is now.
    pub term: Term,
    /// Nobody leads before this time.
    pub not_before: Option<SystemTime>,
}

/// Copies a store into a backup file: one on etcd at any time, one in a file while no Manager is using it (one that runs takes
/// backups of its file itself). An existing file is not overwritten, and the store is not changed.
pub fn backup(from: &Backend, out: &Path) -> Result<BackupSummary, StoreError> {
    let contents = from.copy()?;
    let taken_at = SystemTime::now();
    write_backup(&contents, taken_at, out)?;
    Ok(summary(&contents, taken_at))
}

/// Makes a new store of a backup. One that exists is not overwritten.
///
/// No lease number of the time after the backup is ever granted again: all generations and terms are raised. Every
/// namespace gets a new change log, so that Lookups fetch the whole table again.
pub fn restore(backup: &Path, to: &Backend, options: RestoreOptions) -> Result<Restored, StoreError> {
    let (mut contents, taken_at) = read_backup(backup)?;
    raise(&mut contents, options, taken_at, SystemTime::now());
    to.create(&contents)?;
    Ok(Restored {
        backup: summary(&contents, taken_at),
        generation_floor: contents.group.namespaces.values().map(|stored| stored.last_generation).min(),
        term: contents.term,
        not_before: contents.not_before,
    })
}

/// Copies a store that no Manager is using into a new one, as it is: with its generations, logs and sessions.
///
/// From then on only the new one may be used. A Manager that was started on the old one again would grant the same
/// generations a second time.
pub fn migrate(from: &Backend, to: &Backend) -> Result<Contents, StoreError> {
    let contents = from.read()?;
    to.create(&contents)?;
    Ok(contents)
}

/// Reads a backup, and when it was taken. Every part is compared with its checksum.
pub fn read_backup(file: &Path) -> Result<(Contents, SystemTime), StoreError> {
    let bytes = fs::read(file).map_err(StoreError::io(file, "open"))?;
    decode_backup(&bytes, file)
}

fn decode_backup(bytes: &[u8], file: &Path) -> Result<(Contents, SystemTime), StoreError> {
    let Some(mut rest) = bytes.strip_prefix(MAGIC) else {
        let found = if bytes.is_empty() { "it is empty" } else { "it does not begin like one" };
        return Err(StoreError::Foreign { file: file.to_owned(), expected: "backup", found });
    };
    read_parts(&mut rest).map_err(|why| undecodable(file, "the backup", &why)).and_then(|read| {
        if rest.is_empty() { Ok(read) } else { Err(StoreError::damaged(file, "it goes on after its end")) }
    })
}

fn read_parts(rest: &mut &[u8]) -> Result<(Contents, SystemTime), DecodeError> {
    let head: stored::BackupHead = unseal(Kind::BackupHead, &next_part(rest)?)?;
    let standing = head.standing.ok_or(DecodeError::Missing("standing"))?;
    let snapshot: stored::Snapshot = unseal(Kind::Snapshot, &next_part(rest)?)?;
    let group = decode_group(snapshot.group.ok_or(DecodeError::Missing("group"))?)?;
    let first = snapshot.index.checked_sub(head.batches).and_then(|before| before.checked_add(1));
    let first = first.ok_or(DecodeError::OutOfBounds("batches"))?;
    let history = (first..=snapshot.index)
        .map(|index| open_batch(&next_part(rest)?, index))
        .collect::<Result<_, DecodeError>>()?;
    let contents = Contents {
        term: Term(standing.term),
        not_before: standing.not_before_micros.map(decode_time),
        index: Index(snapshot.index),
        group,
        history,
    };
    Ok((contents, decode_time(head.taken_at_micros)))
}

/// The next part, which its length precedes.
fn next_part(rest: &mut &[u8]) -> Result<Vec<u8>, DecodeError> {
    let length = prost::decode_length_delimiter(&mut *rest)?;
    let part = rest.split_off(..length).ok_or(DecodeError::Missing("end of the backup"))?;
    Ok(part.to_vec())
}

/// Writes a backup. An existing file is not overwritten.
pub fn write_backup(contents: &Contents, taken_at: SystemTime, out: &Path) -> Result<(), StoreError> {
    write_file(&encode_backup(contents, taken_at), out)
}

/// Writes a backup that a running Manager sent, after every part of it was compared with its checksum.
pub fn write_received(bytes: &[u8], out: &Path) -> Result<BackupSummary, StoreError> {
    let (contents, taken_at) = decode_backup(bytes, out)?;
    write_file(bytes, out)?;
    Ok(summary(&contents, taken_at))
}

/// The bytes of a backup.
#[must_use]
pub fn encode_backup(contents: &Contents, taken_at: SystemTime) -> Vec<u8> {
    let head = stored::BackupHead {
        taken_at_micros: encode_time(taken_at),
        standing: Some(stored::Standing {
            term: contents.term.0,
            commits: 0,
            not_before_micros: contents.not_before.map(encode_time),
        }),
        batches: contents.history.len() as u64,
    };
    let mut bytes = MAGIC.to_vec();
    let parts = [seal(Kind::BackupHead, &head), sealed_snapshot(contents.index.0, &contents.group)];
    let history = contents.history.iter().map(|b| sealed_batch(b.index.0, b.written_at, &b.batch));
    for part in parts.into_iter().chain(history) {
        prost::encode_length_delimiter(part.len(), &mut bytes).expect("a vector grows as needed");
        bytes.extend_from_slice(&part);
    }
    bytes
}

fn write_file(bytes: &[u8], out: &Path) -> Result<(), StoreError> {
    let temporary = Temporary::beside(out);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&temporary.0)
        .map_err(StoreError::io(out, "create"))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(StoreError::io(out, "write"))?;
    temporary.publish(out)
}

/// Lifts everything that must never be used twice above what may have been used since the backup.
fn raise(contents: &mut Contents, options: RestoreOptions, taken_at: SystemTime, now: SystemTime) {
    let margin = MARGIN.saturating_add(encode_time(now).saturating_sub(encode_time(taken_at)));
    let above = |last: Generation| match options.generation_floor {
        Some(floor) => last.max(floor),
        None => Generation(last.0.saturating_add(margin)),
    };
    let group = &mut contents.group;
    let mut longest_hold = Settings::default().hold;
    for stored in group.namespaces.values_mut() {
        stored.last_generation = above(stored.last_generation);
        stored.log = fresh_nonce();
        longest_hold = longest_hold.max(stored.longest_hold);
    }
    for last in group.removed.values_mut() {
        *last = above(*last);
    }
    contents.term = Term(contents.term.max(group.term).0.saturating_add(margin));
    let leader_hold = group.leader_hold().max(ManagerConfig::new(ManagerId::from("any")).leader_hold);
    let ended = now.checked_add(longest_hold.saturating_add(leader_hold)).map_or(u64::MAX, encode_time);
    contents.not_before = (!options.leases_have_ended).then(|| decode_time(ended));
}

fn fresh_nonce() -> Nonce {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system has random bytes");
    Nonce(u128::from_le_bytes(bytes))
}

fn summary(contents: &Contents, taken_at: SystemTime) -> BackupSummary {
    BackupSummary {
        taken_at,
        index: contents.index,
        namespaces: contents.group.namespaces.len(),
        batches: contents.history.len(),
    }
}
