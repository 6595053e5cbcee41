//! Whole stores: a new one, one of a backup, and everything that one contains.

use std::sync::Arc;

use centrifuge_core::id::{Index, Term};

use super::client::{Client, EtcdError};
use super::keys::{self, Keys, number};
use super::log::{PART, read_from};
use super::options::EtcdOptions;
use super::proto::encode;
use super::proto::items::{Item, Parts, SnapshotPointer, item};
use super::proto::rpc;
use super::random;
use super::read::{Led, Mirror, Reader, Standing, Unreadable, look};
use crate::store::decode::decode_time;
use crate::store::encode::encode_time;
use crate::store::error::StoreError;
use crate::store::tables::{sealed_batch, sealed_snapshot};
use crate::store::{Contents, StoredBatch};

/// How many keys are written at a time: etcd takes 128 operations in one transaction.
const AT_ONCE: usize = 100;

/// Makes an empty store where there is none.
pub(super) async fn ensure(client: &Client, names: &Keys, prefix: &str) -> Result<(), StoreError> {
    let trouble = |error: EtcdError| Unreadable::from(error).at(prefix);
    if is_there(client, names).await.map_err(|error| error.at(prefix))? {
        return Ok(());
    }
    if has_keys(client, names).await.map_err(trouble)? {
        // Another process may have created it between the two reads.
        return match is_there(client, names).await.map_err(|error| error.at(prefix))? {
            true => Ok(()),
            false => Err(StoreError::EtcdUnfinished { prefix: prefix.to_owned() }),
        };
    }
    let request = rpc::TxnRequest {
        compare: vec![keys::written_at(names.standing(), 0), keys::written_at(names.creating(), 0)],
        success: vec![
            keys::put(names.standing(), Standing::sealed(Term::ZERO, None)),
            keys::put(names.head(), number(0).into_bytes()),
        ],
        failure: Vec::new(),
    };
    // If another process was faster, the store exists as well.
    client.txn(request).await.map(drop).map_err(trouble)
}

/// Whether there is a store: what makes one is written in one transaction with its standing, or before it.
async fn is_there(client: &Client, names: &Keys) -> Result<bool, Unreadable> {
    let found = client.range(keys::one(names.standing())).await?;
    Ok(Standing::of(&found)?.is_some())
}

/// Whether there is anything but Managers that run.
async fn has_keys(client: &Client, names: &Keys) -> Result<bool, EtcdError> {
    for (first, end) in [(names.first(), names.managers()), (names.managers_end(), names.end())] {
        if !client.range(keys::from(first, end, 1)).await?.kvs.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Everything in a store, at one revision. `in_use` allows for a leader.
pub(super) async fn read(
    client: &Client,
    options: &EtcdOptions,
    in_use: bool,
) -> Result<Contents, StoreError> {
    let names = Keys::new(&options.prefix);
    let mut tries = 5;
    loop {
        tries -= 1;
        match try_read(client, &names, in_use).await {
            Err(Refusal::Unreadable(Unreadable::Etcd(EtcdError::Compacted))) if tries > 0 => {}
            Err(Refusal::Unreadable(error)) => return Err(error.at(&options.prefix)),
            Err(Refusal::Led(leader)) => {
                return Err(StoreError::EtcdLed { prefix: options.prefix.clone(), leader });
            }
            Ok(contents) => return Ok(contents),
        }
    }
}

enum Refusal {
    Unreadable(Unreadable),
    Led(String),
}

impl<E: Into<Unreadable>> From<E> for Refusal {
    fn from(error: E) -> Refusal {
        Refusal::Unreadable(error.into())
    }
}

async fn try_read(client: &Client, names: &Keys, in_use: bool) -> Result<Contents, Refusal> {
    let leader = client.range(keys::one(names.leader())).await?;
    if let Some(led) = Led::of(&leader).filter(|_| !in_use) {
        return Err(Refusal::Led(led.leader.manager));
    }
    let mut mirror = Mirror::empty();
    mirror.catch_up(client, names, false, |_, _| {}).await?;
    let look = look(client, names, u64::MAX, false).await?;
    let reader = Reader { client, keys: names, revision: look.revision };
    let mut history = read_from(reader, 1).await?;
    // A leader may have gone on meanwhile: what is not in the state is not in the history either.
    history.retain(|stored| stored.index.0 <= mirror.index);
    Ok(Contents {
        term: Term(look.standing.content.term),
        not_before: look.standing.content.not_before_micros.map(decode_time),
        index: Index(mirror.index),
        group: Arc::unwrap_or_clone(mirror.group),
        history,
    })
}

/// Makes a store with these contents. Its standing is written last: before that there is no store.
pub(super) async fn create(
    client: &Client,
    options: &EtcdOptions,
    contents: &Contents,
) -> Result<(), StoreError> {
    let prefix = &options.prefix;
    let names = Keys::new(prefix);
    let trouble = |error: EtcdError| Unreadable::from(error).at(prefix);
    if has_keys(client, &names).await.map_err(trouble)? {
        return Err(StoreError::EtcdExists { prefix: prefix.clone() });
    }
    let mark = random().to_be_bytes().to_vec();
    let claim = rpc::TxnRequest {
        compare: vec![keys::written_at(names.standing(), 0), keys::written_at(names.creating(), 0)],
        success: vec![keys::put(names.creating(), mark.clone())],
        failure: vec![keys::get(keys::one(names.creating()))],
    };
    let claimed = client.txn(claim).await.map_err(trouble)?;
    // A try whose answer was lost has claimed it as well.
    if !claimed.succeeded && value(claimed.responses).as_ref() != Some(&mark) {
        return Err(StoreError::EtcdExists { prefix: prefix.clone() });
    }
    let filling = Filling { client, keys: &names, mark };
    filling.fill(contents).await.map_err(|error| error.at(prefix))
}

/// A store that is being made.
struct Filling<'a> {
    client: &'a Client,
    keys: &'a Keys,
    /// What says that it is being made by us.
    mark: Vec<u8>,
}

impl Filling<'_> {
    async fn fill(&self, contents: &Contents) -> Result<(), Unreadable> {
        let mut waiting: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for stored in &contents.history {
            let item = self.item(stored).await?;
            waiting.push((self.keys.log(stored.index.0), item));
            let bytes: usize = waiting.iter().map(|(_, value)| value.len()).sum();
            if waiting.len() >= AT_ONCE || bytes > PART {
                self.put(std::mem::take(&mut waiting)).await?;
            }
        }
        let index = contents.index.0;
        let folder = keys::snapshot_folder(index, contents.term.0, random());
        let count = self.put_parts(&folder, &sealed_snapshot(index, &contents.group)).await?;
        let pointer = SnapshotPointer { index, parts: Some(Parts { folder, count }) };
        waiting.push((self.keys.snapshot(), encode(&pointer)));
        waiting.push((self.keys.head(), number(index).into_bytes()));
        self.put(waiting).await?;
        let not_before = contents.not_before.map(encode_time);
        self.finish(Standing::sealed(contents.term, not_before)).await
    }

    /// From now on there is a store.
    async fn finish(&self, standing: Vec<u8>) -> Result<(), Unreadable> {
        let request = rpc::TxnRequest {
            compare: vec![keys::has_value(self.keys.creating(), self.mark.clone())],
            success: vec![
                keys::put(self.keys.standing(), standing.clone()),
                keys::delete(self.keys.creating(), Vec::new()),
            ],
            failure: vec![keys::get(keys::one(self.keys.standing()))],
        };
        let answer = self.client.txn(request).await?;
        // A try whose answer was lost has done it as well.
        if answer.succeeded || value(answer.responses) == Some(standing) { Ok(()) } else { Err(disturbed()) }
    }

    async fn item(&self, stored: &StoredBatch) -> Result<Vec<u8>, Unreadable> {
        let sealed = sealed_batch(stored.index.0, stored.written_at, &stored.batch);
        let place = if sealed.len() <= PART {
            item::Place::Whole(sealed)
        } else {
            let folder = keys::parts_folder(stored.index.0, stored.batch.term.0, random());
            let count = self.put_parts(&folder, &sealed).await?;
            item::Place::Parts(Parts { folder, count })
        };
        Ok(encode(&Item { place: Some(place) }))
    }

    async fn put_parts(&self, folder: &str, bytes: &[u8]) -> Result<u32, Unreadable> {
        let mut count = 0;
        for (number, part) in bytes.chunks(PART).enumerate() {
            self.put(vec![(self.keys.part(folder, number), part.to_vec())]).await?;
            count += 1;
        }
        Ok(count)
    }

    async fn put(&self, all: Vec<(Vec<u8>, Vec<u8>)>) -> Result<(), Unreadable> {
        self.write(all.into_iter().map(|(key, value)| keys::put(key, value)).collect()).await
    }

    async fn write(&self, success: Vec<rpc::RequestOp>) -> Result<(), Unreadable> {
        if success.is_empty() {
            return Ok(());
        }
        let compare = vec![keys::has_value(self.keys.creating(), self.mark.clone())];
        let answer = self.client.txn(rpc::TxnRequest { compare, success, failure: Vec::new() }).await?;
        if answer.succeeded { Ok(()) } else { Err(disturbed()) }
    }
}

fn disturbed() -> Unreadable {
    Unreadable::Damaged("somebody else changed it while it was being made".to_owned())
}

/// The value that the one range of a transaction found.
fn value(responses: Vec<rpc::ResponseOp>) -> Option<Vec<u8>> {
    keys::found(responses).next()?.kvs.into_iter().next().map(|kv| kv.value)
}
