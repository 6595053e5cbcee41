//! The log: appends that a deposed leader cannot make, loads that miss nothing, and what a standby follows.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::SystemTime;

use centrifuge_core::id::{Index, Term};
use centrifuge_core::manager::StoreEvent;
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::record::Batch;
use tokio::sync::mpsc::UnboundedReceiver;

use super::client::EtcdError;
use super::keys;
use super::proto::encode;
use super::proto::items::{Item, Parts, item};
use super::proto::rpc;
use super::read::{Mirror, Reader, Unreadable, look};
use super::{Leadership, Shared, random};
use crate::injected_bug::{self, DriverBug};
use crate::store::tables::sealed_batch;
use crate::store::{Answer, HISTORY, StoreError, StoredBatch};

/// What is larger than this is stored in parts of this size. etcd takes 1.5 MiB in one request; smaller ones end within
/// a try's time on a slow disk, too.
pub(super) const PART: usize = 256 << 10;
/// History is kept up to this many bytes.
const HISTORY_BYTES: usize = 64 << 20;

/// What the log is asked to do, one after the other.
pub(super) enum LogJob {
    Load { request: u64 },
    Append { term: Term, index: Index, batch: Arc<Batch> },
    Recent { limit: usize, reply: mpsc::Sender<Result<Vec<StoredBatch>, StoreError>> },
    Adopt { index: Index, group: Arc<ManagerState> },
}

/// The sizes of the latest batches, to know how much of the past there is room for.
#[derive(Default)]
pub(super) struct Sizes(VecDeque<(u64, usize)>);

impl Sizes {
    pub(super) fn note(&mut self, index: u64, size: usize) {
        while self.0.back().is_some_and(|(last, _)| *last >= index) {
            self.0.pop_back();
        }
        self.0.push_back((index, size));
        if self.0.len() as u64 > HISTORY {
            self.0.pop_front();
        }
    }

    /// The last index that need not be kept behind `head`.
    pub(super) fn forgotten(&self, head: u64) -> u64 {
        let mut bytes = 0;
        let beyond = self.0.iter().rev().find(|(_, size)| {
            bytes += size;
            bytes > HISTORY_BYTES
        });
        head.saturating_sub(HISTORY).max(beyond.map_or(0, |(index, _)| *index))
    }
}

/// A batch that was sent: a repeated try sends the very same bytes.
struct Tried {
    term: Term,
    index: Index,
    batch: Arc<Batch>,
    sealed: Vec<u8>,
    /// Where its parts go, if it is large, and how many are surely there.
    folder: String,
    written: usize,
}

struct Log {
    shared: Rc<Shared>,
    mirror: Mirror,
    tried: Option<Tried>,
    /// The last index that this process has seen committed by itself.
    appended: u64,
}

/// Performs jobs, and follows the log while there are none and another Manager leads.
pub(super) async fn run(shared: Rc<Shared>, mut jobs: UnboundedReceiver<LogJob>) {
    let mut log = Log { shared, mirror: Mirror::empty(), tried: None, appended: 0 };
    loop {
        let job = tokio::select! {
            biased;
            job = jobs.recv() => job,
            // What it was reading it reads again: a mirror is whole whenever it waits.
            () = log.follow() => None,
        };
        match job {
            Some(job) => log.perform(job).await,
            None => return,
        }
    }
}

impl Log {
    async fn perform(&mut self, job: LogJob) {
        match job {
            LogJob::Load { request } => self.load(request).await,
            LogJob::Append { term, index, batch } => {
                let event = self.append(term, index, batch).await;
                self.shared.answer(Answer::Store(event));
            }
            LogJob::Recent { limit, reply } => {
                let recent = self.recent(limit).await;
                // The asking side may be gone.
                let _ = reply.send(recent.map_err(|error| error.at(&self.shared.options.prefix)));
            }
            LogJob::Adopt { index, group } if index.0 <= self.appended => self.mirror.adopt(index.0, group),
            LogJob::Adopt { .. } => {}
        }
    }

    /// Never ends.
    async fn follow(&mut self) {
        loop {
            self.shared.grown.notified().await;
            if self.shared.leadership.get().is_none()
                && self.shared.following.get()
                && let Err(error) = self.catch_up(true).await
            {
                self.shared.complain("follow the log", &error);
            }
        }
    }

    async fn catch_up(&mut self, may_lag: bool) -> Result<(), Unreadable> {
        let shared = Rc::clone(&self.shared);
        let see = |stored: StoredBatch, size| {
            shared.sizes.borrow_mut().note(stored.index.0, size);
            shared.answer(Answer::Followed(Box::new(stored)));
        };
        let caught_up = self.mirror.catch_up(&shared.client, &shared.keys, may_lag, see).await;
        shared.readable.set(!caught_up.as_ref().is_err_and(Unreadable::lasts));
        caught_up
    }

    /// Reads what is not known yet, at a revision after everything that any earlier term could write.
    async fn load(&mut self, request: u64) {
        if request < self.shared.latest_load.get() {
            return;
        }
        let event = match self.catch_up(false).await {
            Ok(()) => {
                let (index, group) = (Index(self.mirror.index), Arc::clone(&self.mirror.group));
                StoreEvent::Loaded { request, index, group }
            }
            Err(error) => {
                self.shared.complain("read the store", &error);
                if error.lasts() {
                    // Another version may be able to, and must not wait for this one.
                    Rc::clone(&self.shared).step_aside().await;
                }
                StoreEvent::LoadFailed { request }
            }
        };
        self.shared.answer(Answer::Store(event));
    }

    async fn append(&mut self, term: Term, index: Index, batch: Arc<Batch>) -> StoreEvent {
        let leadership = self.shared.leadership.get().filter(|leading| leading.term == term);
        let (Some(leadership), Some(before)) = (leadership, index.0.checked_sub(1)) else {
            return self.settle(index, &batch).await;
        };
        self.prepare(term, index, &batch);
        let item = match self.item(leadership).await {
            Ok(Some(item)) => item,
            Ok(None) => return self.settle(index, &batch).await,
            Err(error) => {
                // The transaction that would commit it was not sent.
                self.shared.complain("write the parts of a batch", &error.into());
                return StoreEvent::NotAppended { index };
            }
        };
        let size = item.len();
        match self.commit(leadership, before, index, item).await {
            Ok(answer) if answer.succeeded => {
                self.shared.sizes.borrow_mut().note(index.0, size);
                self.appended = index.0;
                StoreEvent::Appended { index }
            }
            Ok(answer) => {
                let there =
                    keys::found(answer.responses).next().and_then(|found| found.kvs.into_iter().next());
                self.decide(index, &batch, there).await
            }
            Err(error) => {
                self.shared.complain("append", &error.clone().into());
                if error.is_certain() {
                    StoreEvent::NotAppended { index }
                } else {
                    StoreEvent::Unknown { index }
                }
            }
        }
    }

    /// One transaction: the leader's key is as it was when we won, the log ends before the index, and nothing is there.
    async fn commit(
        &self,
        leadership: Leadership,
        before: u64,
        index: Index,
        item: Vec<u8>,
    ) -> Result<rpc::TxnResponse, EtcdError> {
        let keys = &self.shared.keys;
        let mut compare = vec![
            keys::written_at(keys.leader(), leadership.revision),
            keys::has_value(keys.head(), keys::number(before).into_bytes()),
            keys::written_at(keys.log(index.0), 0),
        ];
        if injected_bug::has(DriverBug::UncomparedCommit) {
            compare.clear();
        }
        let request = rpc::TxnRequest {
            compare,
            success: vec![
                keys::put(keys.log(index.0), item),
                keys::put(keys.head(), keys::number(index.0).into_bytes()),
            ],
            failure: vec![keys::get(keys::one(keys.log(index.0)))],
        };
        self.shared.client.txn(request).await
    }

    /// The same bytes for the same batch, however often it is tried.
    fn prepare(&mut self, term: Term, index: Index, batch: &Arc<Batch>) {
        let same = |tried: &Tried| tried.term == term && tried.index == index && tried.batch == *batch;
        if self.tried.as_ref().is_some_and(same) {
            return;
        }
        let sealed = sealed_batch(index.0, SystemTime::now(), batch);
        let folder = keys::parts_folder(index.0, term.0, random());
        self.tried = Some(Tried { term, index, batch: Arc::clone(batch), sealed, folder, written: 0 });
    }

    /// What goes under the key of the log, after the parts of a large batch are there; `None` if we do not lead.
    async fn item(&mut self, leadership: Leadership) -> Result<Option<Vec<u8>>, EtcdError> {
        let Some(tried) = &mut self.tried else { return Ok(None) };
        let place = if tried.sealed.len() <= PART {
            item::Place::Whole(tried.sealed.clone())
        } else {
            let parts = tried.sealed.chunks(PART);
            let count = parts.len();
            for (number, part) in parts.enumerate().skip(tried.written) {
                if !self.shared.put_part(leadership, &tried.folder, number, part).await? {
                    return Ok(None);
                }
                tried.written = number + 1;
            }
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            item::Place::Parts(Parts { folder: tried.folder.clone(), count })
        };
        Ok(Some(encode(&Item { place: Some(place) })))
    }

    /// This try writes nothing. Whatever an earlier one did can be seen, and none can do anything any more: its term is
    /// over, or its index is taken.
    async fn settle(&self, index: Index, batch: &Batch) -> StoreEvent {
        match self.shared.client.range(keys::one(self.shared.keys.log(index.0))).await {
            Ok(found) => self.decide(index, batch, found.kvs.into_iter().next()).await,
            Err(error) => {
                self.shared.complain("see whether a batch is there", &error.into());
                StoreEvent::Unknown { index }
            }
        }
    }

    async fn decide(&self, index: Index, batch: &Batch, there: Option<rpc::KeyValue>) -> StoreEvent {
        let Some(there) = there else { return StoreEvent::Fenced { index } };
        let reader = Reader { client: &self.shared.client, keys: &self.shared.keys, revision: 0 };
        match reader.batch(&there).await {
            Ok(there) if there.batch == *batch => StoreEvent::Appended { index },
            Ok(_) => StoreEvent::Fenced { index },
            Err(error) => {
                self.shared.complain("tell whether a batch is there", &error);
                StoreEvent::Unknown { index }
            }
        }
    }

    async fn recent(&self, limit: usize) -> Result<Vec<StoredBatch>, Unreadable> {
        let (client, names) = (&self.shared.client, &self.shared.keys);
        loop {
            let look = look(client, names, u64::MAX, false).await?;
            let from = look.head.saturating_sub(limit as u64).saturating_add(1);
            match read_from(Reader { client, keys: names, revision: look.revision }, from).await {
                // etcd was compacted meanwhile, which is rare: try again.
                Err(Unreadable::Etcd(EtcdError::Compacted)) => {}
                done => return done,
            }
        }
    }
}

/// All batches from an index on that are still there.
pub(super) async fn read_from(reader: Reader<'_>, from: u64) -> Result<Vec<StoredBatch>, Unreadable> {
    let mut batches: Vec<StoredBatch> = Vec::new();
    loop {
        let next = batches.last().map_or(from, |last| last.index.0.saturating_add(1));
        let page = reader.page(next).await?;
        if page.is_empty() {
            return Ok(batches);
        }
        for kv in page {
            batches.push(reader.batch(&kv).await?);
        }
    }
}
