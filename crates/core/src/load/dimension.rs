//! In which dimension the load of a namespace is.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::id::LoadDimension;

/// The dimension that most Owners report in; if two are equally frequent, the lower name. `None`: nobody reports.
///
/// It follows from the reports alone, so that every leader finds the same, and one Owner with another configuration, be it
/// the first to speak, changes nothing. A pool that changes its dimension server by server changes it halfway through.
#[must_use]
pub fn common_dimension<'a>(
    reported: impl IntoIterator<Item = &'a LoadDimension>,
) -> Option<&'a LoadDimension> {
    let mut counts: BTreeMap<&LoadDimension, usize> = BTreeMap::new();
    for dimension in reported {
        *counts.entry(dimension).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(dimension, count)| (*count, Reverse(*dimension))).map(|(most, _)| most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_owners_decide_and_then_the_lower_name() {
        let named = |name| LoadDimension::new(name).expect("a name");
        let (cpu, bytes) = (named("cpu-ms"), named("bytes"));
        assert_eq!(common_dimension([]), None);
        assert_eq!(common_dimension([&cpu]), Some(&cpu));
        assert_eq!(common_dimension([&bytes, &cpu, &cpu]), Some(&cpu));
        assert_eq!(common_dimension([&cpu, &bytes]), Some(&bytes));
    }
}
