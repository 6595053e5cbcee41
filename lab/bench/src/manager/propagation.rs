//! How long a change takes from its commit to the last Lookup: an operator moves single ranges there and back.

use std::time::{SystemTime, UNIX_EPOCH};

use centrifuge::{Key, KeyRange};
use centrifuge_net::clock;
use centrifuge_net::proto::v1;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::Failure;
use crate::testbed::{Answer, NAMESPACE, Order, Testbed, owner_name, owner_url};

/// Microseconds from the commit of a move, and from the operator's request for it, to the last Lookup.
pub(super) struct Propagation {
    from_commit: Histogram<u64>,
    from_request: Histogram<u64>,
    each_lookup: Histogram<u64>,
}

impl Propagation {
    fn new() -> Result<Propagation, Failure> {
        let histogram = || Histogram::new(3).map_err(Failure::from);
        Ok(Propagation { from_commit: histogram()?, from_request: histogram()?, each_lookup: histogram()? })
    }

    /// To the last Lookup, from the commit that gave the range to its new owner.
    pub(super) fn since_commit(&self) -> Value {
        show(&self.from_commit)
    }

    /// To the last Lookup, from before the operator's request went out: the recall from the old owner included.
    pub(super) fn since_request(&self) -> Value {
        show(&self.from_request)
    }

    /// To every Lookup, from the commit.
    pub(super) fn to_each(&self) -> Value {
        show(&self.each_lookup)
    }

    fn note(&mut self, requested: u64, committed: u64, seen_at: &[u64]) {
        for seen in seen_at {
            record(&mut self.each_lookup, committed, *seen);
        }
        if let Some(last) = seen_at.iter().max() {
            record(&mut self.from_commit, committed, *last);
            record(&mut self.from_request, requested, *last);
        }
    }
}

fn record(histogram: &mut Histogram<u64>, from: u64, to: u64) {
    // It grows with its values: nothing that is measured here is too large for it.
    let _ = histogram.record(to.saturating_sub(from) / 1_000);
}

fn show(histogram: &Histogram<u64>) -> Value {
    json!({
        "p50": histogram.value_at_quantile(0.5),
        "p99": histogram.value_at_quantile(0.99),
        "max": histogram.max(),
    })
}

/// Moves so many ranges to another Owner, each of them back as well.
pub(super) async fn measure(
    testbed: &mut Testbed,
    owners: usize,
    moves: usize,
) -> Result<Propagation, Failure> {
    let mut propagation = Propagation::new()?;
    for number in 0..moves {
        let key = Key::of(&number.to_le_bytes());
        let lease = lease_of(testbed, key).await?;
        let from = lease.owner.map(|owner| owner.name).unwrap_or_default();
        let next = (0..owners).map(owner_name).find(|name| *name != from);
        let (Some(to), Some(range)) = (next, lease.range) else { continue };
        move_once(testbed, &mut propagation, key, range, Some(&to), &to).await?;
        move_once(testbed, &mut propagation, key, range, None, &from).await?;
    }
    Ok(propagation)
}

/// Moves a range to the Owner `pinned`, or where the partitioner wants it, and waits until all Lookups see it at
/// `owner`.
async fn move_once(
    testbed: &mut Testbed,
    propagation: &mut Propagation,
    key: Key,
    range: v1::KeyRange,
    pinned: Option<&str>,
    owner: &str,
) -> Result<(), Failure> {
    testbed.order(&Order::Expect { key: key.0, url: owner_url(owner) }).await?;
    let request = v1::MoveRequest {
        namespace: NAMESPACE.to_owned(),
        range: Some(range),
        to: pinned.map(str::to_owned),
        why: "measuring".to_owned(),
    };
    let mut admin = testbed.admin()?;
    let requested = clock::now().0;
    admin.r#move(request).await?;
    let answers = testbed.order(&Order::Collect).await?;
    let seen_at = |answer| match answer {
        Answer::Seen { at } => at,
        _ => Vec::new(),
    };
    let seen_at: Vec<u64> = answers.into_iter().flat_map(seen_at).collect();
    let committed = commit_of(testbed, key, owner).await?.max(requested);
    propagation.note(requested, committed, &seen_at);
    Ok(())
}

async fn lease_of(testbed: &Testbed, key: Key) -> Result<v1::Lease, Failure> {
    let request = v1::ListLeasesRequest {
        namespace: NAMESPACE.to_owned(),
        range: Some(KeyRange::one(key).into()),
        owner: None,
    };
    let reply = testbed.admin()?.list_leases(request).await?.into_inner();
    reply.leases.into_iter().next().ok_or_else(|| Failure::from("a key is in no range"))
}

/// When the key was last granted to an Owner, by the boot-time clock in nanoseconds. The Manager's history has whole
/// milliseconds, rounded down.
async fn commit_of(testbed: &Testbed, key: Key, owner: &str) -> Result<u64, Failure> {
    let request = v1::HistoryRequest { namespace: Some(NAMESPACE.to_owned()), key: Some(key.0), limit: 100 };
    let reply = testbed.admin()?.history(request).await?.into_inner();
    let is_grant =
        |decision: &&v1::Decision| decision.kind == "granted" && decision.owner.as_deref() == Some(owner);
    let grant = reply.decisions.iter().rev().find(is_grant);
    let grant = grant.ok_or_else(|| Failure::from("the Manager's history has no such move"))?;
    let boot = clock::now().0;
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ago =
        u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX).saturating_sub(grant.wall_time_ms * 1_000_000);
    Ok(boot.saturating_sub(ago))
}
