//! Watches the leader's key and the end of the log, and keeps this Manager's own key alive.

use std::rc::Rc;
use std::time::Duration;

use prost::Message;
use tokio::time::sleep;

use super::client::{EtcdError, Watching};
use super::keys;
use super::proto::encode;
use super::proto::items::Registered;
use super::proto::rpc;
use super::proto::rpc::event::EventType;
use super::read::Led;
use super::{Shared, StoreFacts};

/// How long to rest after a watch that failed.
const RETRY: Duration = Duration::from_millis(200);
/// How long a Manager's own key outlives it, in seconds.
const REGISTERED: i64 = 10;
/// How often it is kept alive, and how often a Manager looks at the others.
const REGISTER_EVERY: Duration = Duration::from_secs(3);

/// Watches for ever. Without a watch a standby still campaigns and looks at the log now and then.
pub(super) async fn run(shared: Rc<Shared>) {
    loop {
        let node = shared.client.node();
        if let Err(error) = watch(&shared).await {
            shared.complain("watch", &error.into());
            shared.client.leave(node);
            sleep(RETRY).await;
        }
    }
}

/// Watches at one node, until it fails or another is in use.
async fn watch(shared: &Rc<Shared>) -> Result<(), EtcdError> {
    let mut moves = shared.client.moves();
    moves.borrow_and_update();
    let keys = [shared.keys.leader(), shared.keys.head()];
    let mut watching = shared.client.watch(&keys).await?;
    let mut waiting = keys.len();
    loop {
        let answer = tokio::select! {
            answer = next(&mut watching) => answer?,
            _ = moves.changed() => return Ok(()),
        };
        if answer.canceled {
            return Err(EtcdError::Unclear(format!("the watch was ended: {}", answer.cancel_reason)));
        }
        if answer.created {
            waiting -= 1;
            if waiting == 0 {
                look_once(shared).await?;
            }
        }
        for event in answer.events {
            take(shared, &event);
        }
    }
}

async fn next(watching: &mut Watching) -> Result<rpc::WatchResponse, EtcdError> {
    match watching.answers.message().await {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(EtcdError::Unclear("the watch ended".to_owned())),
        Err(status) => Err(EtcdError::Unclear(status.message().to_owned())),
    }
}

/// What happened before the watch began.
async fn look_once(shared: &Rc<Shared>) -> Result<(), EtcdError> {
    let found = shared.client.range(keys::one(shared.keys.leader())).await?;
    shared.leader_seen(Led::of(&found).as_ref(), keys::revision(found.header.as_ref()));
    shared.grown.notify_one();
    Ok(())
}

fn take(shared: &Rc<Shared>, event: &rpc::Event) {
    let Some(kv) = &event.kv else { return };
    if kv.key == shared.keys.head() {
        shared.grown.notify_one();
    } else if kv.key == shared.keys.leader() {
        let led = (event.r#type() == EventType::Put).then(|| Led::by(kv));
        shared.leader_seen(led.as_ref(), kv.mod_revision);
    }
}

/// Keeps a key of this Manager, so that others can see it, and sees the others.
pub(super) async fn register(shared: Rc<Shared>) {
    loop {
        match keep_and_list(&shared).await {
            Ok(managers) => {
                let mut facts = shared.facts();
                *facts = StoreFacts { managers, term: facts.term, problem: None };
            }
            Err(error) => shared.complain("register this Manager", &error.into()),
        }
        sleep(REGISTER_EVERY).await;
    }
}

async fn keep_and_list(shared: &Shared) -> Result<Vec<String>, EtcdError> {
    let lease = keep(shared).await?;
    shared.registered.set(Some(lease));
    list(shared).await
}

async fn keep(shared: &Shared) -> Result<i64, EtcdError> {
    if let Some(lease) = shared.registered.take() {
        shared.client.keep_alive(lease).await?;
        return Ok(lease);
    }
    let lease = shared.client.grant(REGISTERED).await?.id;
    let manager = shared.candidate.manager.to_string();
    let key = shared.keys.manager(&manager);
    let value = Registered { manager, version: env!("CARGO_PKG_VERSION").to_owned() };
    let success = vec![keys::put_with(key, encode(&value), lease)];
    shared.client.txn(rpc::TxnRequest { success, ..Default::default() }).await?;
    Ok(lease)
}

async fn list(shared: &Shared) -> Result<Vec<String>, EtcdError> {
    let all = keys::from(shared.keys.managers(), shared.keys.managers_end(), 0);
    let found = shared.client.range(rpc::RangeRequest { serializable: true, ..all }).await?;
    let manager =
        |kv: &rpc::KeyValue| Registered::decode(kv.value.as_slice()).ok().map(|found| found.manager);
    Ok(found.kvs.iter().filter_map(manager).collect())
}
