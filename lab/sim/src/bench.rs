//! Measurements that are ratios within one run: what an assignment costs beside a sort of as many numbers.

pub mod isolation;
pub mod joins;
mod leader;
pub mod report;
pub mod trim;

use std::hint::black_box;
use std::time::Instant;

use centrifuge_core::id::OwnerName;
use centrifuge_core::key::Key;
use centrifuge_core::partition::{ConsistentHash, PartitionOwner, Partitioner, overlay};
use serde_json::{Value, json};

const OWNERS: usize = 1_000;
const VIRTUAL_NODES: u32 = 64;
const REPETITIONS: usize = 41;

/// Prints what it costs to partition 1,000 Owners with 64 virtual nodes each, and to let one more join.
///
/// Everything is timed in turns, and the quickest turn of each counts: what else the machine does can only add to it.
pub fn partition(json: bool) {
    let owners = pool(OWNERS);
    let joined = pool(OWNERS + 1);
    let numbers: Vec<u64> = (0..OWNERS as u64 * u64::from(VIRTUAL_NODES)).map(random_number).collect();
    let assignment = ConsistentHash.assign(&owners);

    let (mut assign, mut join, mut sort) = (Vec::new(), Vec::new(), Vec::new());
    let mut moved = 0;
    for _ in 0..REPETITIONS {
        assign.push(nanoseconds(|| ConsistentHash.assign(black_box(&owners)).len()));
        join.push(nanoseconds(|| {
            let after = ConsistentHash.assign(black_box(&joined));
            moved = overlay(&assignment, &after).filter(|(_, from, to)| from != to).count();
            moved
        }));
        let mut unsorted = numbers.clone();
        sort.push(nanoseconds(|| {
            unsorted.sort_unstable();
            unsorted.len()
        }));
    }
    report(json, assignment.len(), moved, [assign, join, sort].map(quickest));
}

fn report(json: bool, ranges: usize, moved: usize, [assign_ns, join_ns, sort_ns]: [u64; 3]) {
    let assign_per_sort_percent = assign_ns * 100 / sort_ns.max(1);
    let line = json!({
        "owners": OWNERS,
        "virtual_nodes": VIRTUAL_NODES,
        "assign_ns": assign_ns,
        "join_ns": join_ns,
        "sort_ns": sort_ns,
        "assign_per_sort_percent": assign_per_sort_percent,
        "ranges": ranges,
        "ranges_moved_by_join": moved,
    });
    tell(json, &line, || {
        println!("{OWNERS} Owners with {VIRTUAL_NODES} virtual nodes each: {ranges} ranges");
        println!("  an assignment takes          {} us", assign_ns / 1_000);
        println!("  a join and its moves take    {} us, and {moved} ranges move", join_ns / 1_000);
        println!("  a sort of as many u64 takes  {} us", sort_ns / 1_000);
        println!("  an assignment costs          {assign_per_sort_percent} % of the sort");
    });
}

/// Prints a line of JSON, or the same in words.
fn tell(json: bool, line: &Value, in_words: impl FnOnce()) {
    if json {
        println!("{line}");
    } else {
        in_words();
    }
}

/// The first `count` Owners; one more keeps the places of all before it.
fn pool(count: usize) -> Vec<PartitionOwner> {
    let owner = |number: usize| PartitionOwner {
        name: OwnerName::new(&format!("owner-{number:04}")).expect("a plain name"),
        virtual_nodes: VIRTUAL_NODES,
        weight: 100,
    };
    (0..count).map(owner).collect()
}

/// Spreads like the positions of virtual nodes do, which is what the sort is compared with.
fn random_number(number: u64) -> u64 {
    Key::of(&number.to_le_bytes()).0
}

fn nanoseconds(work: impl FnOnce() -> usize) -> u64 {
    let start = Instant::now();
    black_box(work());
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn quickest(times: Vec<u64>) -> u64 {
    times.into_iter().min().unwrap_or_default()
}
