//! Commits without end do not fill etcd: the log is compacted, history is bounded, and old revisions are forgotten.
//!
//! A short run by default; `cargo xtask etcd-churn --commits 100000` is the long form.

mod etcd_support;
mod store_support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use centrifuge_core::id::{Generation, Index, Namespace, Nonce, SessionId, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::manager::StoreCommand;
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::record::{Batch, Change, Reason, Record};
use centrifuge_core::settings::Settings;
use centrifuge_server::store::HISTORY;
use centrifuge_server::store::etcd::{self, EtcdOptions, NodeFacts};
use etcd_support::{Etcd, backend, candidate};
use store_support::Client;

const COMMITS: &str = "CENTRIFUGE_CHURN_COMMITS";
/// As often as a Manager compacts.
const COMPACT_EVERY: u64 = 1_000;
/// How many ranges change hands for ever.
const RANGES: u64 = 64;
/// Records of a batch: as when an Owner gives a few ranges to another.
const RECORDS: u64 = 8;

#[test]
fn churn_does_not_fill_etcd() {
    let commits: u64 = std::env::var(COMMITS).map_or(3_000, |commits| commits.parse().expect("a number"));
    let etcd = Etcd::start(3);
    let options = etcd.options();
    let candidate = candidate("manager:1");
    let mut store = Client::open(|answers| backend(&options).open(&candidate, answers));
    let term = store.campaign();
    let before = largest(&options);
    let mut group = ManagerState::default();
    let mut samples = Vec::new();
    let mut latencies = Vec::new();
    let start = Instant::now();
    for index in 1..=commits {
        let batch = batch(term, index);
        let sent = Instant::now();
        store.appended(term, index, &batch);
        latencies.push(sent.elapsed());
        group.apply(&batch);
        if index % COMPACT_EVERY == 0 {
            assert!(store.renew(term));
            store.send(StoreCommand::Compact { index: Index(index), group: Arc::new(group.clone()) });
        }
        if index % (commits / 20).max(1) == 0 {
            samples.push(largest(&options).bytes_in_use);
        }
    }
    let took = start.elapsed();
    // A load waits for nothing of a compaction; the end of the store does.
    assert_eq!(store.load(), (Index(commits), Arc::new(group)));
    store.close();
    let after = largest(&options);
    println!("{}", report(commits, &before, &after, &samples, &mut latencies, took));
    let recent = Client::open(|answers| backend(&options).open(&candidate, answers)).recent(usize::MAX);
    assert!(recent.len() as u64 <= HISTORY + COMPACT_EVERY, "history is bounded: {}", recent.len());
    // Half of the way through, history and what etcd keeps behind us are as long as they get.
    let half = samples[samples.len() / 2..].iter().max().copied().unwrap_or(0);
    let bound = if commits >= 4 * HISTORY { half * 2 } else { 64 << 20 };
    assert!(after.bytes_in_use <= bound, "{} bytes in use, {samples:?} on the way", after.bytes_in_use);
}

/// A few ranges get new leases.
fn batch(term: Term, index: u64) -> Arc<Batch> {
    let namespace = Namespace::new("churn").expect("a label");
    let record = |change, reason| Record::Namespace { namespace: namespace.clone(), change, reason };
    let mut records = Vec::new();
    if index == 1 {
        let settings = Arc::new(Settings::default());
        records.push(record(
            Change::Created { kind: Default::default(), settings, log: Nonce(1), floor: Generation::ZERO },
            Reason::Operator("".into()),
        ));
    }
    let width = u64::MAX / RANGES;
    records.extend((0..RECORDS).map(|number| {
        let turn = index * RECORDS + number;
        let first = turn % RANGES * width;
        let range = KeyRange::new(Key(first), Key(first + width - 1)).expect("a range");
        let session = SessionId(Nonce(u128::from(turn % 10) + 1));
        let (generation, source, state_since) = (Generation(turn), None, None);
        let change = Change::Granted { range, generation, session, source, state_since };
        record(change, Reason::Repartitioned)
    }));
    Arc::new(Batch { term, records })
}

/// The node with the most in use.
fn largest(options: &EtcdOptions) -> NodeFacts {
    let nodes = etcd::nodes(options).expect("etcd answers");
    let all = nodes.into_iter().filter_map(|node| node.answer.ok());
    all.max_by_key(|status| status.bytes_in_use).expect("a node answers")
}

fn report(
    commits: u64,
    before: &NodeFacts,
    after: &NodeFacts,
    samples: &[u64],
    latencies: &mut [Duration],
    took: Duration,
) -> String {
    latencies.sort_unstable();
    let percentile = |percent: usize| {
        let at = (latencies.len() * percent / 100).min(latencies.len() - 1);
        u64::try_from(latencies[at].as_micros()).unwrap_or(u64::MAX)
    };
    serde_json::json!({
        "etcd": after.version,
        "nodes": 3,
        "commits": commits,
        "seconds": took.as_secs_f64(),
        "commits_per_second": commits as f64 / took.as_secs_f64(),
        "append_us": { "p50": percentile(50), "p99": percentile(99), "max": percentile(100) },
        "bytes_in_use": { "before": before.bytes_in_use, "after": after.bytes_in_use, "on_the_way": samples },
        "file_bytes": { "before": before.file_bytes, "after": after.file_bytes },
    })
    .to_string()
}
