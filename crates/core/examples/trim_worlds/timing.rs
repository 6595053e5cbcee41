//! The largest decision over and over: 1,000 Owners with 63 ranges each, and all the moves that one decision may make.
//!
//! This crate reads no clock. Time the program for two numbers of decisions, and divide the difference.

use centrifuge_core::id::{Generation, Nonce, OwnerName, SessionId};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::RangeLoad;
use centrifuge_core::time::Instant;
use centrifuge_core::trim::{
    TrimDecision, TrimInput, TrimMemory, TrimOwner, TrimRange, TrimReport, TrimRun, TrimSettings,
};

use crate::world::at;

const OWNERS: u64 = 1_000;
const RANGES: u64 = OWNERS * 63;
/// The work between two renewals that a Manager answers.
const SLICE: u64 = 20_000;
/// Seconds between two decisions: budgets are full again.
const INTERVAL: u64 = 1_000;

/// Makes so many decisions.
pub(crate) fn run(decisions: u64) {
    let name = |number| OwnerName::new(&format!("owner-{number:04}")).expect("a name");
    let names: Vec<OwnerName> = (0..OWNERS).map(name).collect();
    let reports: Vec<Vec<RangeLoad>> = (0..OWNERS).map(loads).collect();
    let ranges: Vec<TrimRange> = (0..RANGES).map(range).collect();
    let settings = TrimSettings::default();
    let mut memory = TrimMemory::default();
    for number in 1..=decisions {
        let now = at(number * INTERVAL);
        let owners: Vec<TrimOwner<'_>> = (0..OWNERS)
            .zip(&names)
            .zip(&reports)
            .map(|((place, name), loads)| owner(place, name, now, loads))
            .collect();
        let (decision, slices) = decide(
            &mut memory,
            &TrimInput {
                now,
                owners: &owners,
                ranges: &ranges,
                settings: &settings,
                may_move: true,
                is_new: false,
                moves_under_way: 0,
                membership_changed: false,
            },
        );
        if number == decisions {
            println!("the last of {number} decisions: {} moves in {slices} slices", decision.moves.len());
        }
    }
}

fn decide(memory: &mut TrimMemory, input: &TrimInput<'_>) -> (TrimDecision, u64) {
    let mut run = TrimRun::begin(memory, input);
    let mut slices = 1;
    loop {
        if let Some(decision) = run.advance(memory, SLICE) {
            return (decision, slices);
        }
        slices += 1;
    }
}

fn owner<'a>(place: u64, name: &'a OwnerName, now: Instant, loads: &'a [RangeLoad]) -> TrimOwner<'a> {
    let report = Some(TrimReport { at: now, loads });
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
        RangeLoad { range, load, heavy: vec![(range.first(), load / 4)] }
    };
    (owner..RANGES).step_by(OWNERS as usize).map(reported).collect()
}
