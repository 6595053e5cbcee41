//! What is measured of a partitioner: how even the load is, how soon again after a disturbance, and what that costs.

use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::partition::overlay;
use centrifuge_core::range_map::RangeMap;

use super::environment::{Environment, Incident, Standing};
use super::floor::{Carried, level, peak_over_floor};
use super::{SECOND, WARM_UP};

/// Below this peak over the floor the load counts as even.
const EVEN: f64 = 1.1;
/// A disturbance that has not made the load uneven by then was none.
const SHOWS_WITHIN: u64 = 30 * SECOND;
/// The longest time to recover that is told apart.
const LONGEST_RECOVERY: u64 = 300 * SECOND;
/// What moves again within this time was moved too soon.
const AGAIN_WITHIN: u64 = 600 * SECOND;

/// Who has what, in key order and without gaps.
pub(super) type Table = Vec<(KeyRange, Option<usize>)>;

/// The figures of one or several runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tally {
    /// The peak over the floor of each sample.
    pub(super) peaks: Vec<f64>,
    /// How many seconds the load was uneven after each disturbance that made it so.
    pub(super) recoveries: Vec<f64>,
    /// How many seconds were measured.
    pub(super) seconds: f64,
    /// Parts of the load that moved, all added up.
    pub(super) load_moved: f64,
    /// Parts of the key space that moved, all added up.
    pub(super) space_moved: f64,
    /// How many leases moved.
    pub(super) leases_moved: u64,
    /// The part of the load moved that had moved shortly before.
    pub(super) load_moved_again: f64,
    /// Ranges per Owner of each sample.
    pub(super) ranges: Vec<f64>,
    /// The most ranges that one Owner had.
    pub(super) most_ranges: usize,
}

impl Tally {
    /// Adds the figures of another run.
    pub(super) fn add(&mut self, other: Tally) {
        self.peaks.extend(other.peaks);
        self.recoveries.extend(other.recoveries);
        self.seconds += other.seconds;
        self.load_moved += other.load_moved;
        self.space_moved += other.space_moved;
        self.leases_moved += other.leases_moved;
        self.load_moved_again += other.load_moved_again;
        self.ranges.extend(other.ranges);
        self.most_ranges = self.most_ranges.max(other.most_ranges);
    }
}

/// Watches one run.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    tally: Tally,
    /// Who has each range, or had it last.
    holders: Vec<(KeyRange, usize)>,
    last_moved: RangeMap<u64>,
    /// Crashed Owners whose ranges nobody else has yet.
    held_back: Vec<usize>,
    disturbances: Vec<Disturbance>,
    observed_at: u64,
    /// Say why load is uneven.
    explains: bool,
}

#[derive(Clone, Copy, Debug)]
struct Disturbance {
    at: u64,
    made_uneven: bool,
}

impl Recorder {
    pub(super) fn new(explains: bool) -> Recorder {
        Recorder { explains, ..Recorder::default() }
    }

    /// Something happened from which the partitioner has to recover.
    pub(super) fn disturbed(&mut self, now: u64, incident: Incident) {
        if self.explains {
            eprintln!("{} s: {incident:?}", now / SECOND);
        }
        match incident {
            Incident::Crashed(owner) => self.held_back.push(owner),
            Incident::LoadChanged | Incident::Joined(_) | Incident::Draining(_) => self.open(now),
        }
    }

    fn open(&mut self, at: u64) {
        self.disturbances.push(Disturbance { at, made_uneven: false });
    }

    /// Takes a sample.
    pub(super) fn observe(&mut self, now: u64, environment: &Environment, table: &Table) {
        let holders = with_last_holders(&self.holders, table);
        if now > WARM_UP {
            self.tally.seconds += now.saturating_sub(self.observed_at.max(WARM_UP)) as f64 / SECOND as f64;
            self.count_moves(now, environment, &holders);
            self.count_ranges(environment, table);
            self.end_holds(now, &holders);
            let (level, owners) = carried(environment, table);
            let peak = peak_over_floor(level, owners.iter().copied());
            if self.explains && peak >= EVEN {
                explain(now, level, &owners, table, environment);
            }
            self.tally.peaks.push(peak);
            self.follow_recoveries(now, peak);
        }
        self.holders = holders;
        self.observed_at = now;
    }

    /// The figures.
    pub(super) fn finish(self) -> Tally {
        self.tally
    }

    fn count_moves(&mut self, now: u64, environment: &Environment, holders: &[(KeyRange, usize)]) {
        let total = environment.history.now().total();
        let moved: Vec<KeyRange> = overlay(&self.holders, holders)
            .filter(|(_, from, to)| from != to)
            .map(|(range, _, _)| range)
            .collect();
        for range in moved {
            let part = |range| environment.history.rate(range) / total;
            self.tally.load_moved += part(range);
            self.tally.space_moved += range.key_count() as f64 / 2f64.powi(64);
            self.tally.leases_moved += 1;
            let is_recent = |(_, at): &(KeyRange, &u64)| **at + AGAIN_WITHIN > now;
            let again = self.last_moved.overlapping(range).filter(is_recent);
            self.tally.load_moved_again += again.map(|(piece, _)| part(piece)).sum::<f64>();
            self.last_moved.insert(range, now);
        }
    }

    fn count_ranges(&mut self, environment: &Environment, table: &Table) {
        let serving = environment.members.iter().filter(|member| member.may_have_keys()).count();
        self.tally.ranges.push(table.len() as f64 / serving.max(1) as f64);
        let mut counts = vec![0; environment.members.len()];
        table.iter().filter_map(|(_, holder)| *holder).for_each(|holder| counts[holder] += 1);
        let most = counts.into_iter().max().unwrap_or_default();
        self.tally.most_ranges = self.tally.most_ranges.max(most);
    }

    /// What a crash costs is counted from when the ranges of the Owner are somebody's again: until then nobody could act.
    fn end_holds(&mut self, now: u64, holders: &[(KeyRange, usize)]) {
        let waits = |owner: &usize| holders.iter().any(|(_, holder)| holder == owner);
        let (waiting, over): (Vec<usize>, Vec<usize>) = self.held_back.drain(..).partition(waits);
        self.held_back = waiting;
        over.iter().for_each(|_| self.open(now));
    }

    fn follow_recoveries(&mut self, now: u64, peak: f64) {
        let (recoveries, explains) = (&mut self.tally.recoveries, self.explains);
        self.disturbances.retain_mut(|disturbance| {
            let since = now - disturbance.at;
            disturbance.made_uneven |= peak >= EVEN;
            if !disturbance.made_uneven {
                return since < SHOWS_WITHIN;
            }
            let is_over = peak < EVEN || since >= LONGEST_RECOVERY;
            if is_over {
                recoveries.push(since.min(LONGEST_RECOVERY) as f64 / SECOND as f64);
                if explains {
                    eprintln!("{} s: even again, after {} s", now / SECOND, since / SECOND);
                }
            }
            !is_over
        });
    }
}

/// Says who has most, and in which ranges.
fn explain(now: u64, level: f64, owners: &[Carried], table: &Table, environment: &Environment) {
    let ratio = |owner: usize| peak_over_floor(level, [owners[owner]]);
    let fullest = (0..owners.len()).max_by(|one, two| ratio(*one).total_cmp(&ratio(*two)));
    let Some(fullest) = fullest else { return };
    let Carried { weight, load, largest_key } = owners[fullest];
    let (name, ratio) = (&environment.members[fullest].name, ratio(fullest));
    eprintln!(
        "{} s: {ratio:.2} {name} has {load:.0} requests/s; its share is {:.0}, its largest key {largest_key:.0}",
        now / SECOND,
        level * weight
    );
    let held = table.iter().filter(|(_, holder)| *holder == Some(fullest));
    let mut loads: Vec<(f64, KeyRange)> =
        held.map(|(range, _)| (environment.history.rate(*range), *range)).collect();
    loads.sort_by(|one, two| two.0.total_cmp(&one.0));
    let words: Vec<String> = loads.iter().take(4).map(|(load, range)| format!("{range} {load:.0}")).collect();
    eprintln!("    of {} ranges: {}", loads.len(), words.join(", "));
}

/// The peak over the floor.
#[cfg(test)]
pub(super) fn peak(environment: &Environment, table: &Table) -> f64 {
    let (level, owners) = carried(environment, table);
    peak_over_floor(level, owners)
}

/// The level, and what each Owner carries. Ranges whose Owner crashed wait for its hold, whatever the partitioner does: they
/// are left out.
fn carried(environment: &Environment, table: &Table) -> (f64, Vec<Carried>) {
    let (history, members) = (&environment.history, &environment.members);
    let load = history.now();
    let carried = |weight| Carried { weight, ..Carried::default() };
    let mut owners: Vec<Carried> = members.iter().map(|member| carried(member.weight())).collect();
    let (mut total, mut waiting) = (0.0, Vec::new());
    for (range, holder) in table {
        let Some(holder) = holder.filter(|holder| members[*holder].is_alive()) else {
            waiting.push(*range);
            continue;
        };
        let rate = history.rate(*range);
        let largest = load.hot_in(*range).iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        total += rate;
        owners[holder].load += rate;
        owners[holder].largest_key = owners[holder].largest_key.max(largest);
    }
    let weights: Vec<f64> = members
        .iter()
        .filter(|member| member.standing == Standing::Serving)
        .map(|member| member.weight())
        .collect();
    let is_served = |(key, _): &&(Key, f64)| !waiting.iter().any(|range| range.contains(*key));
    let keys: Vec<(Key, f64)> =
        load.hottest().iter().filter(is_served).take(weights.len()).copied().collect();
    (level(total, &keys, &weights), owners)
}

/// The table with the last holder where there is none.
fn with_last_holders(before: &[(KeyRange, usize)], table: &Table) -> Vec<(KeyRange, usize)> {
    let mut holders = Vec::with_capacity(table.len());
    for (range, holder) in table {
        match holder {
            Some(holder) => holders.push((*range, *holder)),
            None => {
                let start = before.partition_point(|(known, _)| known.last() < range.first());
                let known = before[start..].iter().take_while(|(known, _)| known.first() <= range.last());
                holders
                    .extend(known.filter_map(|(known, holder)| Some((known.intersection(*range)?, *holder))));
            }
        }
    }
    holders
}

/// The value below which this part of all values is; zero if there are none.
pub(super) fn percentile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(place.saturating_sub(1)).copied().unwrap_or_default()
}

/// The average; zero if there are no values.
pub(super) fn average(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
