//! What Owners would have to carry under another assignment, as far as their reports tell.

use crate::key::KeyRange;
use crate::load::RangeLoad;

/// The load that each of `count` Owners would have under `assignment`; `ranges` are in key order.
///
/// The hottest key of a range goes where its point of the key space goes; the rest of the range's load is taken to be
/// spread evenly, for nothing more is known of it.
pub(super) fn predicted_loads(
    assignment: &[(KeyRange, usize)],
    ranges: &[&RangeLoad],
    count: usize,
) -> Vec<u64> {
    let mut loads = vec![0_u64; count];
    let mut rest = assignment;
    for reported in ranges {
        while let [(range, _), after @ ..] = rest
            && range.last() < reported.range.first()
        {
            rest = after;
        }
        for &(range, owner) in rest {
            let Some(part) = range.intersection(reported.range) else { break };
            loads[owner] = loads[owner].saturating_add(load_of_part(reported, part));
        }
    }
    loads
}

/// How much of the reported load falls on `part` of its range.
fn load_of_part(reported: &RangeLoad, part: KeyRange) -> u64 {
    if part == reported.range {
        return reported.load;
    }
    let hottest = reported.hottest.filter(|(key, _)| reported.range.contains(*key));
    let hottest_load = hottest.map_or(0, |(_, load)| load.min(reported.load));
    let point = if hottest.is_some_and(|(key, _)| part.contains(key)) { hottest_load } else { 0 };
    point + spread_over(reported.load - hottest_load, part, reported.range)
}

/// What falls on `part` of a load that is spread evenly over `whole`. The parts of a whole add up to its load.
fn spread_over(load: u64, part: KeyRange, whole: KeyRange) -> u64 {
    let up_to = |keys: u128| u128::from(load) * keys / whole.key_count();
    let before = u128::from(part.first().0 - whole.first().0);
    (up_to(before + part.key_count()) - up_to(before)) as u64
}
