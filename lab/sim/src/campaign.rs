//! Many seeds on many threads: what they add up to, and the first one that fails.

pub mod bugs;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use centrifuge_core::injected_bug::Bug;

use crate::flease_world::FleaseWorld;
use crate::seen::{TrueTime, Violation};
use crate::trace::Trace;
use crate::world::{Failure, Options, Outcome, Size, World};

/// Which seeds run, and how.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// The first seed.
    pub first: u64,
    /// How many.
    pub seeds: u64,
    /// On how many threads.
    pub jobs: usize,
    /// With which injected bug.
    pub bug: Option<Bug>,
    /// In which worlds.
    pub world: WorldKind,
    /// Whether every seed runs twice, and must do the same.
    pub twice: bool,
    /// Whether to stop at the first seed that fails.
    pub until_failure: bool,
    /// Whether to say how far it is.
    pub progress: bool,
}

/// The worlds of which there is one for every seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorldKind {
    /// Managers, Owners and Lookups.
    Managers(Size),
    /// The peers of Flease.
    Flease,
}

/// The injected bugs of Managers that have no store.
const OF_DISKLESS: [Bug; 16] = [
    Bug::ClaimFromBeforeTerm,
    Bug::UnclaimedReleaseHonoured,
    Bug::UnclaimedGrantedEarly,
    Bug::ClaimForgetsStateSince,
    Bug::GenerationFromOwnClock,
    Bug::EarlierLogAccepted,
    Bug::UnchangedExcusesForEver,
    Bug::TermAnnouncedTwice,
    Bug::TermAnnouncedEarly,
    Bug::RenewalByOldRound,
    Bug::MoveForgotten,
    Bug::MoveSettledUnlisted,
    Bug::DrainedWithItsWord,
    Bug::MoveRepeatedAfterLapse,
    Bug::CopyTakenForMove,
    Bug::GrantedBeforeTakenBack,
];

impl WorldKind {
    /// The world in which an injected bug shows.
    pub fn of(bug: Bug) -> WorldKind {
        match bug.invariant() {
            "F1" | "F2" | "L3" => WorldKind::Flease,
            "B1" | "L4" => WorldKind::Managers(Size::Trim),
            "L5" => WorldKind::Managers(Size::Death),
            _ if bug == Bug::QuarantineUntold => WorldKind::Managers(Size::Death),
            _ if OF_DISKLESS.contains(&bug) => WorldKind::Managers(Size::Diskless),
            _ => WorldKind::Managers(Size::Usual),
        }
    }
}

/// What many seeds add up to.
#[derive(Debug, Default)]
pub struct Summary {
    /// How many seeds ran.
    pub seeds: u64,
    /// How much time passed in their worlds.
    pub simulated: Duration,
    /// How many events happened.
    pub events: u64,
    /// How often each fault happened.
    pub faults: BTreeMap<&'static str, u64>,
    /// How long each gap lasted in which a probe key had no owner, by cause.
    pub gaps: BTreeMap<&'static str, Vec<Duration>>,
    /// The seeds that failed, each with the invariant it violated.
    pub failed: BTreeMap<u64, &'static str>,
    /// The lowest seed that failed, and how.
    pub first_failure: Option<(u64, Failure)>,
    /// How long it took.
    pub elapsed: Duration,
}

impl Campaign {
    /// Runs the seeds. The result does not depend on the number of threads, except for the time it took.
    pub fn run(&self) -> Summary {
        let start = Instant::now();
        let shared = Shared {
            next: AtomicU64::new(self.first),
            end: AtomicU64::new(self.first.saturating_add(self.seeds)),
            summary: Mutex::new(Summary::default()),
        };
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| self.work(&shared));
            }
        });
        let mut summary = shared.summary.into_inner().expect("no worker panics while it adds");
        summary.elapsed = start.elapsed();
        if self.progress {
            clear_progress();
        }
        summary
    }

    fn work(&self, shared: &Shared) {
        loop {
            let seed = shared.next.fetch_add(1, Ordering::Relaxed);
            if seed >= shared.end.load(Ordering::Relaxed) {
                return;
            }
            let outcome = self.run_seed(seed);
            if outcome.failure.is_some() && self.until_failure {
                shared.end.fetch_min(seed, Ordering::Relaxed);
            }
            let mut summary = shared.summary.lock().expect("no worker panics while it adds");
            summary.add(outcome);
            if self.progress && summary.seeds.is_multiple_of(64) {
                show_progress(summary.seeds, self.seeds, summary.violations());
            }
        }
    }

    fn run_seed(&self, seed: u64) -> Outcome {
        let outcome = run_one(seed, self.bug, self.world, Trace::Off);
        if !self.twice || outcome.failure.is_some() {
            return outcome;
        }
        let again = run_one(seed, self.bug, self.world, Trace::Off);
        if (again.digest, again.events) == (outcome.digest, outcome.events) {
            return outcome;
        }
        let what = "two runs of one seed differ".to_owned();
        Outcome { failure: Some(failure("determinism", what)), ..outcome }
    }
}

struct Shared {
    next: AtomicU64,
    end: AtomicU64,
    summary: Mutex<Summary>,
}

impl Summary {
    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.simulated += outcome.simulated;
        self.events += outcome.events;
        for (fault, count) in outcome.faults {
            *self.faults.entry(fault).or_default() += count;
        }
        for (why, gaps) in outcome.gaps {
            self.gaps.entry(why).or_default().extend(gaps);
        }
        if let Some(failure) = outcome.failure {
            self.failed.insert(outcome.seed, failure.violation.invariant);
            if self.first_failure.as_ref().is_none_or(|(seed, _)| outcome.seed < *seed) {
                self.first_failure = Some((outcome.seed, failure));
            }
        }
    }

    /// How many seeds failed.
    pub fn violations(&self) -> u64 {
        self.failed.len() as u64
    }

    /// How many gaps there were in which a probe key had no owner, by cause, and how long they were.
    pub fn gap_lengths(&self) -> BTreeMap<&'static str, GapLengths> {
        self.gaps.iter().map(|(why, gaps)| (*why, GapLengths::of(gaps.clone()))).collect()
    }

    /// Whole seeds a second.
    pub fn seeds_per_second(&self) -> u64 {
        let millis = u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
        self.seeds * 1_000 / millis
    }
}

/// How long keys had no owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapLengths {
    /// How often.
    pub count: usize,
    /// Half of the gaps were not longer.
    pub p50: Duration,
    /// Of a hundred gaps 99 were not longer.
    pub p99: Duration,
    /// None was longer.
    pub max: Duration,
}

impl GapLengths {
    /// The median, the 99th percentile and the longest.
    pub fn seconds(&self) -> [f64; 3] {
        [self.p50, self.p99, self.max].map(|length| length.as_secs_f64())
    }

    fn of(mut gaps: Vec<Duration>) -> GapLengths {
        gaps.sort_unstable();
        let rank = |percent: usize| gaps.get((gaps.len() * percent).div_ceil(100).max(1) - 1).copied();
        GapLengths {
            count: gaps.len(),
            p50: rank(50).unwrap_or_default(),
            p99: rank(99).unwrap_or_default(),
            max: rank(100).unwrap_or_default(),
        }
    }
}

/// Runs one seed; a machine that panics fails it.
pub fn run_one(seed: u64, bug: Option<Bug>, world: WorldKind, trace: Trace) -> Outcome {
    let run = || match world {
        WorldKind::Managers(size) => World::new(seed, Options { bug, trace, size }).run(),
        WorldKind::Flease => FleaseWorld::new(seed, Options { bug, trace, ..Options::default() }).run(),
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Outcome {
        seed,
        failure: Some(failure("panic", LAST_PANIC.take())),
        ..Outcome::default()
    })
}

fn failure(invariant: &'static str, what: String) -> Failure {
    let violation = Violation { invariant, at: TrueTime(0), what, keys: Vec::new(), namespace: None };
    Failure { violation, history: String::new() }
}

thread_local! {
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the words of a panic for the report of its seed instead of printing them.
pub fn catch_panics_quietly() {
    std::panic::set_hook(Box::new(|info| LAST_PANIC.set(info.to_string())));
}

/// Whether there is somebody to show progress to.
pub fn somebody_watches() -> bool {
    std::io::stderr().is_terminal()
}

fn show_progress(done: u64, of: u64, violations: u64) {
    let mut terminal = std::io::stderr().lock();
    // A terminal that has gone away is no reason to stop.
    let _ = write!(terminal, "\r{done} of {of} seeds, {violations} violations\x1b[K");
    let _ = terminal.flush();
}

fn clear_progress() {
    let _ = write!(std::io::stderr(), "\r\x1b[K");
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORLDS: [WorldKind; 5] = [
        WorldKind::Managers(Size::Usual),
        WorldKind::Managers(Size::Diskless),
        WorldKind::Managers(Size::Trim),
        WorldKind::Managers(Size::Death),
        WorldKind::Flease,
    ];

    #[test]
    fn a_seed_gives_the_same_trace_byte_for_byte() {
        for (seed, world) in [1, 7, 23].into_iter().flat_map(|seed| WORLDS.map(|world| (seed, world))) {
            let one = run_one(seed, None, world, Trace::Keep(String::new()));
            let two = run_one(seed, None, world, Trace::Keep(String::new()));
            let untraced = run_one(seed, None, world, Trace::Off);
            assert_eq!((one.digest, one.events), (untraced.digest, untraced.events), "seed {seed}");
            let (Trace::Keep(one), Trace::Keep(two)) = (one.trace, two.trace) else {
                panic!("the traces were kept");
            };
            assert!(!one.is_empty() && one == two, "seed {seed}");
        }
    }

    #[test]
    fn gaps_are_summed_up_by_rank() {
        let lengths = GapLengths::of((1..=200).rev().map(Duration::from_secs).collect());
        let seconds = [lengths.p50, lengths.p99, lengths.max].map(|length| length.as_secs());
        assert_eq!((lengths.count, seconds), (200, [100, 198, 200]));
        assert_eq!(GapLengths::of(Vec::new()).max, Duration::ZERO);
    }

    #[test]
    fn a_campaign_is_the_same_on_any_number_of_threads() {
        let campaign = Campaign {
            first: 100,
            seeds: 6,
            jobs: 1,
            bug: None,
            world: WorldKind::Managers(Size::Usual),
            twice: true,
            until_failure: false,
            progress: false,
        };
        let (one, three) = (campaign.run(), Campaign { jobs: 3, ..campaign }.run());
        assert_eq!(one.violations(), 0, "{:?}", one.first_failure);
        assert_eq!((one.events, one.faults, one.simulated), (three.events, three.faults, three.simulated));
        assert!(one.simulated >= Duration::from_secs(600) * 6);
    }
}
