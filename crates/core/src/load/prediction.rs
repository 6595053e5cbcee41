//! What Owners would have to carry under another assignment, as far as their reports tell.

use crate::key::{Key, KeyRange};
use crate::load::RangeLoad;

/// The load that each of `count` Owners would have under `assignment`; `ranges` are in key order.
///
/// The heavy keys of a range go where their points of the key space go; the rest of the range's load is taken to be
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
    let sum = |sum: u64, (_, load): &(Key, u64)| sum.saturating_add(*load).min(reported.load);
    let inside =
        |keys: KeyRange| reported.heavy.iter().filter(move |(key, _)| keys.contains(*key)).fold(0, sum);
    let (in_part, in_range) = (inside(part), inside(reported.range));
    in_part + spread_over(reported.load - in_range, part, reported.range)
}

/// What falls on `part` of a load that is spread evenly over `whole`. The parts of a whole add up to its load.
fn spread_over(load: u64, part: KeyRange, whole: KeyRange) -> u64 {
    let up_to = |keys: u128| u128::from(load) * keys / whole.key_count();
    let before = u128::from(part.first().0 - whole.first().0);
    (up_to(before + part.key_count()) - up_to(before)) as u64
}
