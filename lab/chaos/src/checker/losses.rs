//! S4: every loss is told to every caller that lives, in time; and what is told is true, or a rule allows it.

use super::Verdict;
use super::evidence::{CallerLife, Evidence};
use super::provocation::Provocations;
use super::state_lifetimes::{StateLifetime, StateLifetimes};
use crate::lines::{CallerLine, HarnessLine, Nanos, Why};

/// A notice is written this long after its table was there, at the latest, by a process that runs.
const LATE: Nanos = 3_000_000_000;

/// Something that a caller was told about one key.
#[derive(Clone, Copy, Debug)]
struct Notice {
    why: Why,
    at: Nanos,
    /// The lease that the table had for the key then; zero: no owner.
    table: u64,
}

/// What one caller knew of one key.
#[derive(Debug, Default)]
struct Story {
    /// The leases that its table had, and when.
    tables: Vec<(Nanos, u64)>,
    notices: Vec<Notice>,
}

pub(super) fn check(evidence: &Evidence, lifetimes: &StateLifetimes, verdict: &mut Verdict) {
    unprovoked(evidence, lifetimes, verdict);
    for life in &evidence.callers {
        let Some(connected_at) = connected_at(life) else { continue };
        count(life, verdict);
        let stories = stories(life, evidence.plan.keys);
        for (key, story) in (0_u32..).zip(&stories) {
            let states = lifetimes.get(&key).map_or(&[][..], Vec::as_slice);
            for (before, after) in states.iter().zip(states.iter().skip(1)) {
                verdict.missed_losses.extend(missed(evidence, life, connected_at, key, story, before, after));
            }
            for notice in &story.notices {
                verdict.false_losses.extend(without_cause(evidence, life, key, story, states, *notice));
            }
        }
    }
}

/// States that were lost though no fault came near them: planned operations move state, and are no excuse.
fn unprovoked(evidence: &Evidence, lifetimes: &StateLifetimes, verdict: &mut Verdict) {
    let provocations = Provocations::of(evidence);
    for (key, states) in lifetimes {
        for (before, after) in states.iter().zip(states.iter().skip(1)) {
            if evidence.plan.is_planned_only || !provocations.explain(*key, before, after) {
                verdict.false_losses.push(format!(
                    "the state {} of key {key} (lease {}) was lost between {} and {}, when {} began (lease {}), and no fault explains it",
                    before.name, before.highest, before.last.0, after.first.1, after.name, after.lowest
                ));
            }
        }
    }
}

fn connected_at(life: &CallerLife) -> Option<Nanos> {
    life.lines.iter().find_map(|line| match line {
        CallerLine::Connected { at, .. } => Some(*at),
        _ => None,
    })
}

fn count(life: &CallerLife, verdict: &mut Verdict) {
    for line in &life.lines {
        if let CallerLine::Lost { why, .. } = line {
            let name = match why {
                Why::BeganAnew => "began_anew",
                Why::Unowned => "unowned",
                Why::OutOfContact => "out_of_contact",
                Why::NamespaceReplaced => "namespace_replaced",
                Why::Missed => "missed",
            };
            *verdict.notices.entry(name).or_default() += 1;
        }
    }
}

/// What a caller knew, key by key.
fn stories(life: &CallerLife, keys: u32) -> Vec<Story> {
    let mut stories: Vec<Story> = (0..keys).map(|_| Story::default()).collect();
    for line in &life.lines {
        match line {
            CallerLine::Connected { at, leases } => {
                for (story, lease) in stories.iter_mut().zip(leases) {
                    story.tables.push((*at, *lease));
                }
            }
            CallerLine::Reply { key, table, at, .. } => {
                if let Some(story) = stories.get_mut(*key as usize) {
                    story.tables.push((at.0, *table));
                }
            }
            CallerLine::Lost { why, keys, at } => {
                for (key, table) in keys {
                    if let Some(story) = stories.get_mut(*key as usize) {
                        story.notices.push(Notice { why: *why, at: *at, table: *table });
                        story.tables.push((*at, *table));
                    }
                }
            }
            CallerLine::Ended { .. } => {}
        }
    }
    stories
}

/// The state `before` was lost, for `after` began anew. Whoever knew of a lease that `before` was used under is told.
fn missed(
    evidence: &Evidence,
    life: &CallerLife,
    connected_at: Nanos,
    key: u32,
    story: &Story,
    before: &StateLifetime,
    after: &StateLifetime,
) -> Option<String> {
    let first_lease = story.tables.first().map_or(0, |(_, lease)| *lease);
    let knew = connected_at < before.last.0 || (first_lease > 0 && first_lease <= before.highest);
    let due = after.first.1.max(connected_at) + evidence.plan.notice_bound;
    let due = due + life.stopped_within(before.last.0, due);
    if !knew || life.end <= due {
        return None;
    }
    let tells = |notice: &&Notice| {
        let is_newer = notice.table == 0 || notice.table > before.highest;
        let is_of_this = notice.why != Why::BeganAnew || is_newer;
        is_of_this && notice.at >= before.last.0 && notice.at <= due
    };
    if story.notices.iter().any(|notice| tells(&notice)) {
        return None;
    }
    let late = story.notices.iter().find(|notice| notice.at > due).map(|notice| notice.at - after.first.1);
    let late = late.map_or("not at all".to_owned(), |late| format!("after {:.1} s", late as f64 / 1e9));
    Some(format!(
        "S4: the state {} of key {key} was lost before {} (lease {}), and {} was told {late}",
        before.name, after.first.0, after.lowest, life.name
    ))
}

/// A notice about a state that was used before and after, under leases that the caller knew; or any, where nothing
/// but planned operations happened.
fn without_cause(
    evidence: &Evidence,
    life: &CallerLife,
    key: u32,
    story: &Story,
    states: &[StateLifetime],
    notice: Notice,
) -> Option<String> {
    if evidence.plan.is_planned_only {
        // The first owner that a key ever has is news of a state that begins, and of none that is lost. A request may
        // use the table with that owner shortly before the notice is written.
        let is_before =
            |seen: Nanos, lease: u64| seen < notice.at && (lease != notice.table || notice.at - seen > LATE);
        let had_owner = story.tables.iter().any(|(seen, lease)| *lease > 0 && is_before(*seen, *lease));
        let words = || {
            format!(
                "{} was told at {} that key {key} is lost ({:?}, lease {} in its table), and there were planned operations alone",
                life.name, notice.at, notice.why, notice.table
            )
        };
        return had_owner.then(words);
    }
    if matches!(notice.why, Why::OutOfContact | Why::Missed) {
        let disturbed = was_disturbed(evidence, life, notice.at);
        let words = || {
            format!(
                "{} was told at {} that key {key} may be lost ({:?}), and nothing had disturbed it",
                life.name, notice.at, notice.why
            )
        };
        return (!disturbed).then(words);
    }
    // What the caller's table surely had before the notice was raised.
    let is_earlier =
        |seen: Nanos| seen < notice.at && notice.at - seen - life.stopped_within(seen, notice.at) > LATE;
    let known = story.tables.iter().filter(|(seen, _)| is_earlier(*seen)).map(|(_, lease)| *lease).max()?;
    let lives_on = |state: &&StateLifetime| {
        let was_known = known > 0 && state.lowest <= known;
        let goes_on = match notice.why {
            Why::BeganAnew if notice.table > 0 => state.highest >= notice.table,
            _ => state.last.0 > notice.at,
        };
        was_known && goes_on
    };
    let state = states.iter().find(lives_on)?;
    Some(format!(
        "{} was told at {} that key {key} is lost ({:?}, lease {} in its table), but the state {} was used under leases {} to {} and the caller knew lease {known}",
        life.name, notice.at, notice.why, notice.table, state.name, state.lowest, state.highest
    ))
}

/// Whether something happened lately that can keep a Lookup from hearing of a leader: to itself, to its way, or to
/// those who lead.
fn was_disturbed(evidence: &Evidence, life: &CallerLife, at: Nanos) -> bool {
    let since = at.saturating_sub(evidence.plan.contact_timeout * 2);
    let is_recent = |begin: Nanos, end: Nanos| begin <= at && end >= since;
    let matters = |name: &str| name == life.name || name.starts_with("manager-") || name.starts_with("etcd-");
    if life.stops.iter().any(|(begin, end)| is_recent(*begin, *end)) {
        return true;
    }
    evidence.harness.iter().any(|line| match line {
        // A planned restart is no excuse, nor is what it starts.
        HarnessLine::Started { name, life: number, at, .. } if name != &life.name => {
            matters(name) && is_recent(*at, *at) && evidence.follows_a_fault(name, *number)
        }
        HarnessLine::Killed { name, at, .. }
        | HarnessLine::Stopped { name, at }
        | HarnessLine::Continued { name, at }
        | HarnessLine::Died { name, at, .. } => name != &life.name && matters(name) && is_recent(*at, *at),
        HarnessLine::Cut { from, to, at } | HarnessLine::Healed { from, to, at } => {
            (matters(from) && matters(to)) && is_recent(*at, *at)
        }
        HarnessLine::Storm { from, at, until, .. } => *from == life.name && is_recent(*at, *until),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::*;
    use super::super::{evidence::OwnerLife, state_lifetimes};
    use super::*;
    use crate::lines::OwnerLine;
    use crate::lines::Plan;

    /// Seconds.
    const S: Nanos = 1_000_000_000;

    fn verdict(owner_lines: Vec<OwnerLine>, life: CallerLife) -> Verdict {
        judged(owner_lines, life, Vec::new())
    }

    fn judged(owner_lines: Vec<OwnerLine>, life: CallerLife, harness: Vec<HarnessLine>) -> Verdict {
        let mut owner = OwnerLife::new("a".into(), owner_lines);
        owner.session = "a".into();
        let owners = vec![owner];
        let plan = Plan { keys: 1, contact_timeout: 10 * S, notice_bound: 15 * S, ..Plan::default() };
        let evidence = Evidence { plan, owners, callers: vec![life], harness, ..Evidence::default() };
        let mut verdict = Verdict::default();
        let lifetimes = state_lifetimes::check(&evidence, &mut verdict);
        check(&evidence, &lifetimes, &mut verdict);
        verdict
    }

    /// A state that is lost at 20 s, when the next begins at 30 s.
    fn lost_at_20() -> Vec<OwnerLine> {
        vec![
            served(0, 5, "x", 1, 10 * S),
            served(0, 5, "x", 2, 20 * S),
            served(0, 7, "y", 1, 30 * S),
            served(0, 7, "y", 2, 80 * S),
        ]
    }

    fn told(why: Why, table: u64, at: Nanos) -> CallerLine {
        CallerLine::Lost { why, keys: vec![(0, table)], at }
    }

    fn connected(lease: u64, at: Nanos) -> CallerLine {
        CallerLine::Connected { at, leases: vec![lease] }
    }

    #[test]
    fn a_loss_that_is_told_in_time_is_neither_missed_nor_false() {
        let life = caller(vec![connected(5, S), told(Why::BeganAnew, 7, 29 * S)]);
        let verdict = verdict(lost_at_20(), life);
        assert!(verdict.is_clean(), "{verdict:?}");
        assert_eq!(verdict.losses, 1);
    }

    #[test]
    fn a_loss_that_nobody_told_is_missed() {
        let verdict = verdict(lost_at_20(), caller(vec![connected(5, S)]));
        assert_eq!(verdict.missed_losses.len(), 1, "{verdict:?}");
        assert!(verdict.missed_losses[0].contains("not at all"));
    }

    #[test]
    fn a_loss_that_is_told_too_late_is_missed() {
        let life = caller(vec![connected(5, S), told(Why::BeganAnew, 7, 46 * S)]);
        assert_eq!(verdict(lost_at_20(), life).missed_losses.len(), 1);
    }

    #[test]
    fn a_notice_of_an_earlier_loss_does_not_count() {
        let life = caller(vec![connected(3, S), told(Why::BeganAnew, 5, 21 * S)]);
        assert_eq!(verdict(lost_at_20(), life).missed_losses.len(), 1);
    }

    #[test]
    fn a_caller_that_was_stopped_has_more_time_and_one_that_died_need_not_know() {
        let mut life = caller(vec![connected(5, S), told(Why::BeganAnew, 7, 50 * S)]);
        life.stops = vec![(22 * S, 40 * S)];
        assert!(verdict(lost_at_20(), life).is_clean());
        let mut life = caller(vec![connected(5, S)]);
        life.end = 40 * S;
        assert!(verdict(lost_at_20(), life).is_clean());
    }

    #[test]
    fn a_caller_that_came_later_need_not_know() {
        let life = caller(vec![connected(7, 25 * S)]);
        assert!(verdict(lost_at_20(), life).is_clean());
    }

    #[test]
    fn a_loss_that_was_none_is_false() {
        let moved = vec![served(0, 5, "x", 1, 10 * S), served(0, 7, "x", 2, 40 * S)];
        let life = caller(vec![connected(5, S), told(Why::BeganAnew, 7, 30 * S)]);
        let verdict = verdict(moved, life);
        assert_eq!(verdict.false_losses.len(), 1, "{verdict:?}");
        assert!(verdict.missed_losses.is_empty());
    }

    #[test]
    fn the_same_loss_told_twice_is_false_the_second_time() {
        let life = caller(vec![
            connected(5, S),
            told(Why::BeganAnew, 7, 29 * S),
            reply(0, 7, "y", 1, 7, 30 * S),
            told(Why::BeganAnew, 7, 50 * S),
        ]);
        assert_eq!(verdict(lost_at_20(), life).false_losses.len(), 1);
    }

    #[test]
    fn a_reply_that_overtakes_the_notice_of_its_table_proves_nothing() {
        let life =
            caller(vec![connected(5, S), reply(0, 7, "y", 1, 7, 30 * S), told(Why::BeganAnew, 7, 31 * S)]);
        assert!(verdict(lost_at_20(), life).is_clean());
    }

    #[test]
    fn among_planned_operations_alone_every_notice_but_that_of_the_first_owner_is_false() {
        let judged = |first: u64, used_at: Nanos| {
            let used = reply(0, 7, "x", 1, 7, used_at);
            let life = caller(vec![connected(first, S), used, told(Why::BeganAnew, 7, 29 * S)]);
            let plan = Plan { keys: 1, is_planned_only: true, ..Plan::default() };
            let evidence = Evidence { plan, callers: vec![life], ..Evidence::default() };
            let mut verdict = Verdict::default();
            check(&evidence, &StateLifetimes::new(), &mut verdict);
            verdict.false_losses.len()
        };
        assert_eq!((judged(5, 30 * S), judged(0, 30 * S)), (1, 0));
        // The table of the notice, used a moment before it and long before it.
        assert_eq!((judged(0, 29 * S - 1), judged(0, 20 * S)), (0, 1));
    }

    #[test]
    fn a_planned_restart_of_managers_does_not_put_a_caller_out_of_contact() {
        let kept = || vec![served(0, 5, "x", 1, 10 * S), served(0, 5, "x", 2, 40 * S)];
        let life = || caller(vec![connected(5, S), told(Why::OutOfContact, 5, 30 * S)]);
        let name = || "manager-1".to_owned();
        let started = || HarnessLine::Started { name: name(), life: 2, ppm: 0, at: 21 * S };
        let retired = HarnessLine::Retired { name: name(), life: 1, at: 20 * S };
        assert_eq!(judged(kept(), life(), vec![retired, started()]).false_losses.len(), 1);
        let killed = HarnessLine::Killed { name: name(), life: 1, at: 20 * S };
        assert!(judged(kept(), life(), vec![killed, started()]).is_clean());
    }

    #[test]
    fn a_key_without_an_owner_is_lost_unless_its_state_lives_on() {
        let life = || caller(vec![connected(5, S), told(Why::Unowned, 0, 29 * S)]);
        assert!(verdict(lost_at_20(), life()).is_clean());
        let lives_on = vec![served(0, 5, "x", 1, 10 * S), served(0, 5, "x", 2, 40 * S)];
        assert_eq!(verdict(lives_on, life()).false_losses.len(), 1);
    }

    #[test]
    fn who_is_out_of_contact_must_have_been_disturbed() {
        let kept = || vec![served(0, 5, "x", 1, 10 * S), served(0, 5, "x", 2, 40 * S)];
        let life = || caller(vec![connected(5, S), told(Why::OutOfContact, 5, 30 * S)]);
        assert_eq!(verdict(kept(), life()).false_losses.len(), 1);
        let cut = |from: &str| HarnessLine::Cut { from: from.into(), to: "caller-1".into(), at: 15 * S };
        assert!(judged(kept(), life(), vec![cut("manager-2")]).is_clean());
        assert_eq!(judged(kept(), life(), vec![cut("owner-2")]).false_losses.len(), 1);
        let killed = HarnessLine::Killed { name: "manager-1".into(), life: 1, at: 29 * S };
        assert!(judged(kept(), life(), vec![killed]).is_clean());
    }
}
