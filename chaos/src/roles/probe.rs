//! Asks an Owner for every key, again and again, and writes down when it said yes.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use centrifuge::hot::HotLeases;
use centrifuge::{Generation, Key};

use crate::lines::{Journal, Nanos, OwnerLine, Span, true_now};
use crate::plan::key_name;
use crate::plant::Plant;

/// The pause between two rounds.
const PAUSE: Duration = Duration::from_millis(10);
/// What goes on is written this often.
const WRITE_EVERY: Nanos = 500_000_000;
/// A longer time between two checks is a pause, in which nobody was answered.
pub(crate) const LONGEST_PAUSE: Nanos = 200_000_000;
/// With the plant: a pause that makes the Owner careless, for as long again.
const LONG_PAUSE: Nanos = 1_000_000_000;

/// A run of checks that all said yes under one lease.
#[derive(Clone, Copy, Debug)]
struct Run {
    generation: u64,
    first: Span,
    last: Span,
    checks: u64,
    written_at: Nanos,
}

impl Run {
    fn line(&self, key: u32) -> OwnerLine {
        let Run { generation, first, last, checks, .. } = *self;
        OwnerLine::Held { key, generation, first, last, checks }
    }
}

/// The prober: a thread of its own, so that a busy runtime does not hide what the checks would say.
pub(super) struct Probe {
    leases: HotLeases,
    keys: Vec<Key>,
    journal: Arc<Journal>,
    plant: Option<Plant>,
    runs: BTreeMap<u32, Run>,
}

impl Probe {
    pub(super) fn new(leases: HotLeases, keys: u32, journal: Arc<Journal>, plant: Option<Plant>) -> Probe {
        let keys = (0..keys).map(|key| Key::of(key_name(key).as_bytes())).collect();
        Probe { leases, keys, journal, plant, runs: BTreeMap::new() }
    }

    /// Probes as long as the process lives.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut round_at = true_now();
        let mut careless_until = 0;
        loop {
            let now = true_now();
            if self.plant == Some(Plant::UncheckedOwner) && now - round_at > LONG_PAUSE {
                careless_until = now + LONG_PAUSE;
            }
            round_at = now;
            let lines = self.round(now < careless_until);
            self.journal.write(&lines)?;
            thread::sleep(PAUSE);
        }
    }

    /// Asks for every key once, and gives what is worth writing.
    fn round(&mut self, is_careless: bool) -> Vec<OwnerLine> {
        let mut lines = Vec::new();
        for (key, place) in (0_u32..).zip(&self.keys) {
            let before = self.runs.get(&key).copied();
            let (at, answer) = Span::of(|| match before {
                Some(run) if is_careless => Some(Generation(run.generation)),
                _ => self.leases.check_lease_now(*place).ok(),
            });
            match answer {
                Some(Generation(generation)) => {
                    let run = go_on(before, generation, at, key, &mut lines);
                    self.runs.insert(key, run);
                }
                None => {
                    lines.extend(before.filter(|run| run.written_at < run.last.0).map(|run| run.line(key)));
                    self.runs.remove(&key);
                }
            }
        }
        lines
    }
}

/// Adds a yes to a run, or begins another.
fn go_on(before: Option<Run>, generation: u64, at: Span, key: u32, lines: &mut Vec<OwnerLine>) -> Run {
    let continues =
        |run: &Run| run.generation == generation && at.0.saturating_sub(run.last.1) < LONGEST_PAUSE;
    match before {
        Some(mut run) if continues(&run) => {
            run.last = at;
            run.checks += 1;
            if at.1.saturating_sub(run.written_at) > WRITE_EVERY {
                lines.push(run.line(key));
                run = Run { first: at, checks: 0, written_at: at.1, ..run };
            }
            run
        }
        _ => {
            lines.extend(before.filter(|run| run.written_at < run.last.0).map(|run| run.line(key)));
            let run = Run { generation, first: at, last: at, checks: 1, written_at: at.1 };
            // At once: the first answer after a pause is the one that might be wrong.
            lines.push(run.line(key));
            Run { checks: 0, ..run }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Nanos = 100_000_000;

    /// Checks at these steps under these leases; `None`: it said no.
    fn probe(checks: &[(u64, u64)]) -> Vec<OwnerLine> {
        let mut lines = Vec::new();
        let mut run = None;
        for (step, generation) in checks {
            let at = Span(step * STEP, step * STEP + 10);
            run = Some(go_on(run, *generation, at, 0, &mut lines));
        }
        lines
    }

    fn ends(lines: &[OwnerLine]) -> Vec<(u64, u64, u64)> {
        let end = |line: &OwnerLine| match line {
            OwnerLine::Held { generation, first, last, .. } => (*generation, first.0 / STEP, last.0 / STEP),
            other => panic!("{other:?}"),
        };
        lines.iter().map(end).collect()
    }

    #[test]
    fn a_run_is_written_when_it_begins_and_now_and_then() {
        let checks: Vec<(u64, u64)> = (0..14).map(|step| (step, 7)).collect();
        assert_eq!(ends(&probe(&checks)), [(7, 0, 0), (7, 0, 6), (7, 6, 12)]);
    }

    #[test]
    fn a_pause_or_another_lease_begins_another_run() {
        assert_eq!(
            ends(&probe(&[(0, 7), (1, 7), (5, 7), (6, 8)])),
            [(7, 0, 0), (7, 0, 1), (7, 5, 5), (8, 6, 6)]
        );
    }
}
