//! How long the largest decision takes: 1,000 Owners with 64 ranges each, and all the moves that one decision may make.

use std::time::Duration;

use centrifuge_core::id::{Generation, Nonce, OwnerName, SessionId};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::RangeLoad;
use centrifuge_core::trim::{
    TrimDecision, TrimInput, TrimMemory, TrimOwner, TrimRange, TrimReport, TrimRun, TrimSettings,
};

use crate::world::at;

const OWNERS: u64 = 1_000;
const RANGES: u64 = OWNERS * 63;
/// The work between two renewals that a Manager answers.
const SLICE: u64 = 20_000;

pub(crate) fn print() {
    let names: Vec<OwnerName> =
        (0..OWNERS).map(|number| OwnerName::new(&format!("owner-{number:04}")).expect("a name")).collect();
    let settings = TrimSettings::default();
    let mut memory = TrimMemory::default();
    for (now, skew) in [(15, 1), (1_000, 1), (2_000, 2), (2_015, 3), (4_000, 1), (5_000, 3)] {
        let reports: Vec<Vec<RangeLoad>> = (0..OWNERS).map(|owner| loads(owner, skew)).collect();
        let owner = |(number, name)| TrimOwner {
            session: session(number),
            name,
            weight: 100,
            is_eligible: true,
            report: Some(TrimReport { at: at(now), loads: &reports[number as usize] }),
        };
        let owners: Vec<TrimOwner<'_>> = (0..OWNERS).zip(&names).map(owner).collect();
        let ranges: Vec<TrimRange> = (0..RANGES).map(range).collect();
        let input = TrimInput {
            now: at(now),
            owners: &owners,
            ranges: &ranges,
            settings: &settings,
            may_move: true,
            is_new: false,
            moves_under_way: 0,
            membership_changed: false,
        };
        run(&mut memory, &input);
    }
}

/// The time for which this thread has had a core, if the system tells: others may be busy on the same machine.
fn core_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

fn run(memory: &mut TrimMemory, input: &TrimInput<'_>) {
    let (begun, core_begun) = (std::time::Instant::now(), core_time());
    let mut run = TrimRun::begin(memory, input);
    let (beginning, core_beginning) = (begun.elapsed(), core_time() - core_begun);
    let (mut slices, mut slowest) = (0, Duration::ZERO);
    let decision: TrimDecision = loop {
        let slice = std::time::Instant::now();
        let decision = run.advance(memory, SLICE);
        slowest = slowest.max(slice.elapsed());
        slices += 1;
        if let Some(decision) = decision {
            break decision;
        }
    };
    println!(
        "1,000 Owners x 63 ranges: {} moves, {} merges in {:.1?} ({:.1?} on a core); beginning {:.1?} ({:.1?}), \
         {slices} slices, slowest {:.1?}",
        decision.moves.len(),
        decision.merges.len(),
        begun.elapsed(),
        core_time() - core_begun,
        beginning,
        core_beginning,
        slowest,
    );
}

fn session(number: u64) -> SessionId {
    SessionId(Nonce(u128::from(number) << 64 | 1))
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

/// Some Owners have more than others, the more so the larger the skew.
fn loads(owner: u64, skew: u64) -> Vec<RangeLoad> {
    let numbers = (owner..RANGES).step_by(OWNERS as usize);
    let load = 1_000_000 + owner % 10 * 20_000 * (skew - 1);
    let reported = |number| {
        let range = keys(number);
        RangeLoad { range, load, hottest: Some((range.first(), load / 10)) }
    };
    numbers.map(reported).collect()
}
