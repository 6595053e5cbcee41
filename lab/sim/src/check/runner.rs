//! Explores small worlds, two or more at a time, each with one thread so that the shortest way is found first.

use std::hash::Hash;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use stateright::{Checker, Expectation, HasDiscoveries, Model};

use super::Expect;

/// How far an exploration goes.
#[derive(Clone, Copy)]
pub(super) enum Until {
    /// Every state is visited.
    Exhausted,
    /// Some state breaks a sentence: an injected bug is sought, which may make a world endless.
    Broken,
}

impl Until {
    /// After how many steps an exploration is given up: far beyond every model, in reach of an injected bug.
    fn limit(self) -> usize {
        match self {
            Until::Exhausted => 40_000_000,
            Until::Broken => 6_000_000,
        }
    }
}

/// What the checker must know of a world beside its states.
pub(super) trait SmallWorld:
    Model<State: Clone + Hash + PartialEq + Send + Sync, Action: Clone + PartialEq + Send + Sync>
    + Clone
    + Send
    + Sync
    + 'static
{
    /// Its name, what it covers, and what is expected of it.
    fn about(&self) -> (&'static str, &'static str, Expect);

    /// The sentence that a state breaks.
    fn broken(state: &Self::State) -> Option<&'static str>;

    /// How the state came to be in which the exploration begins.
    fn prelude(&self) -> Path<Self>;

    /// A path in plain words.
    fn story(&self, path: &Path<Self>) -> String;
}

/// A path as the checker knows it.
pub(super) type Path<W> = Vec<(<W as Model>::State, Option<<W as Model>::Action>)>;

/// What came of a model.
pub(super) struct Findings {
    /// Its name.
    pub(super) name: &'static str,
    /// What it covers.
    pub(super) covers: &'static str,
    /// What was expected of it.
    pub(super) expect: Expect,
    /// The states visited.
    pub(super) states: usize,
    /// Whether that is all of them.
    pub(super) exhausted: bool,
    /// The sentences that are broken.
    pub(super) broken: Vec<&'static str>,
    /// What should have happened somewhere and did not.
    pub(super) missing: Vec<&'static str>,
    /// The shortest way to break a sentence.
    pub(super) example: Option<Example>,
    /// How long it took.
    pub(super) took: Duration,
}

/// A way to break a sentence.
pub(super) struct Example {
    /// The sentence.
    pub(super) sentence: &'static str,
    /// How many steps it takes.
    pub(super) steps: usize,
    /// The steps in words.
    pub(super) story: String,
}

impl Findings {
    /// Whether the model is what it should be.
    pub(super) fn as_expected(&self) -> bool {
        let found = if self.broken.is_empty() { Expect::Clean } else { Expect::Violation };
        self.exhausted && self.missing.is_empty() && found == self.expect
    }
}

/// Visits the states of a world.
pub(super) fn explore<W: SmallWorld>(world: W, until: Until) -> Findings {
    let begun = Instant::now();
    let (name, covers, expect) = world.about();
    let limit = until.limit();
    let checker = world.clone().checker().target_state_count(limit);
    let checker = match until {
        Until::Exhausted => checker,
        Until::Broken => checker.finish_when(HasDiscoveries::AnyFailures),
    };
    let checker = checker.spawn_bfs().join();
    let discoveries = checker.discoveries();
    let (mut broken, mut missing) = (Vec::new(), Vec::new());
    for property in world.properties() {
        let found = discoveries.contains_key(property.name);
        match property.expectation {
            Expectation::Sometimes if !found => missing.push(property.name),
            Expectation::Always if found => broken.push(property.name),
            _ => {}
        }
    }
    let paths = discoveries.into_iter().filter(|(sentence, _)| broken.contains(sentence));
    let path = paths.map(|(_, path)| path.into_vec()).min_by_key(Vec::len);
    Findings {
        name,
        covers,
        expect,
        states: checker.unique_state_count(),
        exhausted: checker.is_done() && checker.state_count() < limit,
        broken,
        missing,
        example: path.map(|path| example(&world, shortest(&world, path))),
        took: begun.elapsed(),
    }
}

/// The shortest way to break a sentence, given one: looks again and again for one that is shorter still.
fn shortest<W: SmallWorld>(world: &W, mut path: Path<W>) -> Path<W> {
    loop {
        let checker = world.clone().checker().finish_when(HasDiscoveries::AnyFailures);
        let checker = checker.target_max_depth(path.len()).spawn_bfs().join();
        let breaks = |path: &Path<W>| path.last().is_some_and(|(state, _)| W::broken(state).is_some());
        let paths = checker.discoveries().into_values().map(stateright::Path::into_vec);
        match paths.filter(breaks).min_by_key(Vec::len) {
            Some(shorter) if shorter.len() < path.len() => path = shorter,
            _ => return path,
        }
    }
}

/// If the prelude itself breaks a sentence, its steps are the way.
fn example<W: SmallWorld>(world: &W, path: Path<W>) -> Example {
    let path = if path.len() > 1 { path } else { world.prelude() };
    let broken = path.last().and_then(|(state, _)| W::broken(state));
    Example { sentence: broken.unwrap_or_default(), steps: path.len() - 1, story: world.story(&path) }
}

/// Does the same to all scenarios, on all cores, and tells of each that is done.
pub(super) fn for_all<S: Clone + Sync>(
    scenarios: Vec<S>,
    what: impl Fn(S) -> Findings + Sync,
    done: impl Fn(&Findings) + Sync,
) -> Vec<Findings> {
    let next = AtomicUsize::new(0);
    let findings: Mutex<Vec<(usize, Findings)>> = Mutex::default();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers.min(scenarios.len()) {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(scenario) = scenarios.get(place) else { return };
                    let found = what(scenario.clone());
                    done(&found);
                    findings.lock().expect("no worker panics while it holds the list").push((place, found));
                }
            });
        }
    });
    let mut findings = findings.into_inner().expect("no worker panics while it holds the list");
    findings.sort_by_key(|(place, _)| *place);
    findings.into_iter().map(|(_, found)| found).collect()
}
