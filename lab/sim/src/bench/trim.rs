//! The largest decision of Trim, in the slices in which a Manager makes it: 1,000 Owners with 63 ranges each, and all the moves that one
//! decision may make.

use std::time::{Duration, Instant as Clock};

use centrifuge_core::id::{Generation, Nonce, OwnerName, SessionId};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::RangeLoad;
use centrifuge_core::time::Instant;
use centrifuge_core::trim::{
    TrimInput, TrimMemory, TrimOwner, TrimRange, TrimReport, TrimRun, TrimSettings, WORK_AT_ONCE,
};
use serde_json::json;

use super::{quickest, tell};

const OWNERS: u64 = 1_000;
const RANGES: u64 = OWNERS * 63;
const DECISIONS: u64 = 21;
/// Budgets are full again at the next decision.
const INTERVAL: Duration = Duration::from_secs(1_000);

/// What one decision took.
struct Taken {
    moves: usize,
    slices: Vec<u64>,
}

/// Prints how long a decision takes, and the longest that a renewal waits for it. The quickest of several counts: what else the machine
/// does can only add to it.
pub fn run(json: bool) {
    let name = |number| OwnerName::new(&format!("owner-{number:04}")).expect("a plain name");
    let names: Vec<OwnerName> = (0..OWNERS).map(name).collect();
    let reports: Vec<Vec<RangeLoad>> = (0..OWNERS).map(loads).collect();
    let ranges: Vec<TrimRange> = (0..RANGES).map(range).collect();
    let mut memory = TrimMemory::default();
    let decide = |number: u64| {
        let now = Instant::ZERO + INTERVAL * u32::try_from(number).unwrap_or(u32::MAX);
        let owners = (0..OWNERS).zip(&names).zip(&reports);
        let owners: Vec<_> = owners.map(|((place, name), loads)| owner(place, name, now, loads)).collect();
        measure(&mut memory, now, &owners, &ranges)
    };
    let taken: Vec<Taken> = (1..=DECISIONS).map(decide).collect();
    // The first has no budget yet.
    let last = &taken[taken.len() - 1];
    let whole_us = quickest(taken[1..].iter().map(|taken| taken.slices.iter().sum()).collect()) / 1_000;
    let longest = |taken: &Taken| taken.slices.iter().copied().max().unwrap_or_default();
    let slice_us = quickest(taken[1..].iter().map(longest).collect()) / 1_000;
    let line = json!({
        "owners": OWNERS,
        "ranges": RANGES,
        "moves": last.moves,
        "slices": last.slices.len(),
        "decision_us": whole_us,
        "longest_slice_us": slice_us,
    });
    tell(json, &line, || {
        println!("{OWNERS} Owners, {RANGES} ranges, {} moves in {} slices", last.moves, last.slices.len());
        println!("  a decision takes           {whole_us} us");
        println!("  its longest slice takes    {slice_us} us");
    });
}

fn measure(memory: &mut TrimMemory, now: Instant, owners: &[TrimOwner<'_>], ranges: &[TrimRange]) -> Taken {
    let settings = TrimSettings::default();
    let input = TrimInput {
        now,
        owners,
        ranges,
        settings: &settings,
        may_move: true,
        is_new: false,
        moves_under_way: 0,
        membership_changed: false,
    };
    let nanoseconds = |start: Clock| u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let start = Clock::now();
    let mut run = TrimRun::begin(memory, &input);
    let mut slices = vec![nanoseconds(start)];
    loop {
        let start = Clock::now();
        let decision = run.advance(memory, WORK_AT_ONCE);
        slices.push(nanoseconds(start));
        if let Some(decision) = decision {
            return Taken { moves: decision.moves.len(), slices };
        }
    }
}

fn owner<'a>(place: u64, name: &'a OwnerName, now: Instant, loads: &'a [RangeLoad]) -> TrimOwner<'a> {
    let report = Some(TrimReport { at: now, loads, span: Duration::ZERO });
    TrimOwner { session: session(place), name, weight: 100, is_eligible: true, report }
}

fn session(number: u64) -> SessionId {
    SessionId(Nonce((u128::from(number) << 64) | 1))
}

fn keys(number: u64) -> KeyRange {
    let first = |number: u64| (u128::from(number) << 64) / u128::from(RANGES);
    let last = (first(number + 1) - 1) as u64;
    KeyRange::new(Key(first(number) as u64), Key(last)).expect("not empty")
}

fn range(number: u64) -> TrimRange {
    let owner = Some(session(number % OWNERS));
    let state_since = Generation(number / 3);
    TrimRange { range: keys(number), owner, holder: owner, is_fixed: false, state_since }
}

/// Some Owners have more than others, and each of their ranges has a hot key.
fn loads(owner: u64) -> Vec<RangeLoad> {
    let load = 1_000_000 + owner % 10 * 40_000;
    let reported = |number| {
        let range = keys(number);
        RangeLoad { range, load, heavy: vec![(range.first(), load / 4)], quantiles: Vec::new() }
    };
    (owner..RANGES).step_by(OWNERS as usize).map(reported).collect()
}
