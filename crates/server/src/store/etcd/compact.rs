//! Keeps etcd small: a snapshot instead of the log, a bounded history, and no revisions that nobody needs.

use std::rc::Rc;
use std::sync::Arc;

use centrifuge_core::id::Index;
use centrifuge_core::manager_state::ManagerState;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_blocking;

use super::client::EtcdError;
use super::keys;
use super::log::PART;
use super::proto::encode;
use super::proto::items::{Parts, SnapshotPointer};
use super::proto::rpc;
use super::read::{Unreadable, look};
use super::{Leadership, Shared, random};
use crate::store::tables::sealed_snapshot;

/// A snapshot that a leader wants written.
pub(super) struct Compaction {
    pub(super) leadership: Leadership,
    pub(super) index: Index,
    pub(super) group: Arc<ManagerState>,
}

/// Writes one snapshot after the other, beside the log and the election.
pub(super) async fn run(shared: Rc<Shared>, mut jobs: UnboundedReceiver<Compaction>) {
    let mut forgets = Forgets { revision: 0 };
    while let Some(job) = jobs.recv().await {
        if let Err(error) = compact(&shared, job, &mut forgets).await {
            shared.complain("compact the log", &error);
        }
    }
}

/// The revision that etcd may forget up to with the next compaction: readers have that long to end.
struct Forgets {
    revision: i64,
}

async fn compact(shared: &Shared, job: Compaction, forgets: &mut Forgets) -> Result<(), Unreadable> {
    let Compaction { leadership, index: Index(index), group } = job;
    let look = look(&shared.client, &shared.keys, u64::MAX, false).await?;
    let (latest, written_at) = look.snapshot.map_or((0, 0), |(pointer, at)| (pointer.index, at));
    if index <= latest || index > look.head {
        return Ok(());
    }
    let folder = keys::snapshot_folder(index, leadership.term.0, random());
    let sealed = spawn_blocking(move || sealed_snapshot(index, &group)).await;
    let sealed = sealed.map_err(|_| Unreadable::Damaged("the snapshot cannot be encoded".to_owned()))?;
    let mut count = 0;
    for (number, part) in sealed.chunks(PART).enumerate() {
        if !shared.put_part(leadership, &folder, number, part).await? {
            return Ok(());
        }
        count += 1;
    }
    let pointer = SnapshotPointer { index, parts: Some(Parts { folder, count }) };
    let forgotten = shared.sizes.borrow().forgotten(look.head).min(index);
    let answer = shared.publish(leadership, &pointer, written_at, forgotten).await?;
    if answer.succeeded && shared.options.compact_revisions {
        let behind = std::mem::replace(&mut forgets.revision, keys::revision(answer.header.as_ref()));
        shared.client.compact(behind.max(leadership.revision)).await?;
    }
    Ok(())
}

impl Shared {
    /// Writes one part, if we still lead; says whether we do.
    pub(super) async fn put_part(
        &self,
        leadership: Leadership,
        folder: &str,
        number: usize,
        part: &[u8],
    ) -> Result<bool, EtcdError> {
        let request = rpc::TxnRequest {
            compare: vec![keys::written_at(self.keys.leader(), leadership.revision)],
            success: vec![keys::put(self.keys.part(folder, number), part.to_vec())],
            failure: Vec::new(),
        };
        Ok(self.client.txn(request).await?.succeeded)
    }

    /// Makes a snapshot the latest, and deletes what it replaces: batches that are not even history any more, their
    /// parts, and the parts of every other snapshot, finished or not.
    async fn publish(
        &self,
        leadership: Leadership,
        pointer: &SnapshotPointer,
        written_at: i64,
        forgotten: u64,
    ) -> Result<rpc::TxnResponse, EtcdError> {
        let names = &self.keys;
        let folder = pointer.parts.as_ref().map_or("", |parts| parts.folder.as_str());
        let first_kept = forgotten.saturating_add(1);
        let request = rpc::TxnRequest {
            compare: vec![
                keys::written_at(names.leader(), leadership.revision),
                keys::written_at(names.snapshot(), written_at),
            ],
            success: vec![
                keys::put(names.snapshot(), encode(pointer)),
                keys::delete(names.log(0), names.log(first_kept)),
                keys::delete(names.parts(), names.parts_before(first_kept)),
                keys::delete(names.snapshots(), names.folder(folder)),
                keys::delete(names.folder_end(folder), names.snapshots_end()),
            ],
            failure: Vec::new(),
        };
        self.client.txn(request).await
    }
}
