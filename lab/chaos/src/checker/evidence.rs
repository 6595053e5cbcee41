//! The journals of a run, by process.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::lines::{self, CallerLine, HarnessLine, Nanos, OwnerLine, PeerLine, Plan};

/// Everything that was written.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    pub(super) plan: Plan,
    pub(super) owners: Vec<OwnerLife>,
    pub(super) callers: Vec<CallerLife>,
    pub(super) peers: Vec<PeerLife>,
    /// What Lookups that nobody asks were told.
    pub(super) lookup_fleets: Vec<CallerLine>,
    pub(super) harness: Vec<HarnessLine>,
}

/// One process of an Owner.
#[derive(Debug, Default)]
pub(super) struct OwnerLife {
    pub(super) name: String,
    pub(super) session: String,
    /// Where others reach it.
    pub(super) url: String,
    /// Whether it moves state.
    pub(super) migrates: bool,
    pub(super) lines: Vec<OwnerLine>,
}

impl OwnerLife {
    pub(super) fn new(name: String, lines: Vec<OwnerLine>) -> OwnerLife {
        let joined = lines.iter().find_map(|line| match line {
            OwnerLine::Joined { session, url, migrates, .. } => {
                Some((session.clone(), url.clone(), *migrates))
            }
            _ => None,
        });
        let (session, url, migrates) = joined.unwrap_or_default();
        OwnerLife { name, session, url, migrates, lines }
    }
}

/// One process of a Flease peer.
#[derive(Debug, Default)]
pub(super) struct PeerLife {
    pub(super) name: String,
    /// Which of the processes of that name.
    pub(super) life: u32,
    /// When it ceased to be.
    pub(super) end: Nanos,
    pub(super) lines: Vec<PeerLine>,
}

/// One process of a caller.
#[derive(Debug, Default)]
pub(super) struct CallerLife {
    pub(super) name: String,
    /// When it ceased to be: what it was not told by then it need not be told.
    pub(super) end: Nanos,
    /// When it was stopped.
    pub(super) stops: Vec<(Nanos, Nanos)>,
    pub(super) lines: Vec<CallerLine>,
}

impl CallerLife {
    /// How long it was stopped between two instants.
    pub(super) fn stopped_within(&self, from: Nanos, to: Nanos) -> Nanos {
        let overlap = |(begin, end): &(Nanos, Nanos)| (*end).min(to).saturating_sub((*begin).max(from));
        self.stops.iter().map(overlap).sum()
    }
}

impl Evidence {
    pub(super) fn read(directory: &Path) -> io::Result<Evidence> {
        let mut evidence =
            Evidence { harness: lines::read(&directory.join("harness.jsonl"))?, ..Evidence::default() };
        let mut names: Vec<_> = std::fs::read_dir(directory)?.collect::<io::Result<_>>()?;
        names.sort_by_key(std::fs::DirEntry::path);
        for entry in names {
            let file = entry.file_name().to_string_lossy().into_owned();
            let Some((name, life)) = life_of(&file) else { continue };
            if name.starts_with("owner-") {
                evidence.owners.push(OwnerLife::new(name, lines::read(&entry.path())?));
            } else if name.starts_with("caller-") {
                let (start, end) = (evidence.start_of(&name, life), evidence.end_of(&name, life));
                let mut stops = evidence.stops_of(&name);
                stops.retain(|(from, to)| *from < end && *to > start);
                evidence.callers.push(CallerLife { end, stops, lines: lines::read(&entry.path())?, name });
            } else if name.starts_with("peer-") {
                let end = evidence.end_of(&name, life);
                evidence.peers.push(PeerLife { name, life, end, lines: lines::read(&entry.path())? });
            } else if name.starts_with("lookups-") {
                evidence.lookup_fleets.extend(lines::read::<CallerLine>(&entry.path())?);
            }
        }
        let plan =
            |line: &HarnessLine| if let HarnessLine::Plan(plan) = line { Some(plan.clone()) } else { None };
        evidence.plan = evidence.harness.iter().find_map(plan).unwrap_or_default();
        Ok(evidence)
    }

    fn start_of(&self, name: &str, life: u32) -> Nanos {
        let start = |line: &HarnessLine| match line {
            HarnessLine::Started { name: of, life: number, at, .. } if of == name && *number == life => {
                Some(*at)
            }
            _ => None,
        };
        self.harness.iter().find_map(start).unwrap_or(0)
    }

    /// When a process was killed or died; at the latest when the run was over.
    fn end_of(&self, name: &str, life: u32) -> Nanos {
        let end = |line: &HarnessLine| match line {
            HarnessLine::Killed { name: of, life: number, at }
            | HarnessLine::Gone { name: of, life: number, at }
            | HarnessLine::Died { name: of, life: number, at, .. } => {
                (of == name && *number == life).then_some(*at)
            }
            HarnessLine::Over { at } => Some(*at),
            _ => None,
        };
        self.harness.iter().filter_map(end).min().unwrap_or(Nanos::MAX)
    }

    /// When the processes of a name were stopped. One that is killed while it is stopped is stopped to its end.
    fn stops_of(&self, name: &str) -> Vec<(Nanos, Nanos)> {
        let mut stops = Vec::new();
        let mut since = None;
        for line in &self.harness {
            match line {
                HarnessLine::Stopped { name: of, at } if of == name => since = Some(*at),
                HarnessLine::Continued { name: of, at } | HarnessLine::Killed { name: of, at, .. }
                    if of == name =>
                {
                    stops.extend(since.take().map(|since| (since, *at)));
                }
                _ => {}
            }
        }
        stops
    }

    /// Whether a process was started because the one before it was killed or died, and not by a planned restart.
    pub(super) fn follows_a_fault(&self, name: &str, life: u32) -> bool {
        self.harness.iter().any(|line| match line {
            HarnessLine::Killed { name: of, life: number, .. }
            | HarnessLine::Died { name: of, life: number, .. } => of == name && number + 1 == life,
            _ => false,
        })
    }

    /// From when on there were no more faults, and when the run was over.
    pub(super) fn calm(&self) -> Option<(Nanos, Nanos)> {
        let mut calm = None;
        for line in &self.harness {
            match line {
                HarnessLine::Calm { at } => calm = Some(*at),
                HarnessLine::Over { at } => return calm.map(|calm| (calm, *at)),
                _ => {}
            }
        }
        None
    }

    /// Processes that ended by themselves: nothing that a run does to them is a reason to.
    pub(super) fn deaths(&self) -> Vec<String> {
        let mut counted: BTreeMap<(&str, &str), u32> = BTreeMap::new();
        for line in &self.harness {
            if let HarnessLine::Died { name, status, .. } = line {
                *counted.entry((name, status)).or_default() += 1;
            }
        }
        let words = |((name, status), times): ((&str, &str), u32)| {
            format!("process: {name} ended by itself {times} times ({status}); its log says why")
        };
        counted.into_iter().map(words).collect()
    }
}

/// The process that wrote a file named `name.life.jsonl`.
fn life_of(file: &str) -> Option<(String, u32)> {
    let (name, life) = file.strip_suffix(".jsonl")?.rsplit_once('.')?;
    Some((name.to_owned(), life.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_its_process() {
        assert_eq!(life_of("owner-3.12.jsonl"), Some(("owner-3".to_owned(), 12)));
        assert_eq!(life_of("harness.jsonl"), None);
        assert_eq!(life_of("owner-3.log"), None);
    }

    #[test]
    fn a_process_that_is_killed_while_stopped_is_stopped_to_its_end() {
        let name = || "caller-1".to_owned();
        let harness = vec![
            HarnessLine::Stopped { name: name(), at: 10 },
            HarnessLine::Continued { name: name(), at: 20 },
            HarnessLine::Stopped { name: name(), at: 30 },
            HarnessLine::Killed { name: name(), life: 1, at: 35 },
            HarnessLine::Over { at: 90 },
        ];
        let evidence = Evidence { harness, ..Evidence::default() };
        assert_eq!(evidence.stops_of("caller-1"), [(10, 20), (30, 35)]);
        assert_eq!((evidence.end_of("caller-1", 1), evidence.end_of("caller-1", 2)), (35, 90));
        let stops = evidence.stops_of("caller-1");
        let life = CallerLife { stops, ..CallerLife::default() };
        assert_eq!(life.stopped_within(15, 32), 7);
    }
}
