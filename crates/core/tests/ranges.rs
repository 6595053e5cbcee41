//! Key ranges, range sets and range maps do what a plain array of cells does, at both ends of the key space.

use std::ops::RangeInclusive;

use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::range_map::RangeMap;
use centrifuge_core::range_set::RangeSet;
use proptest::prelude::*;

/// How many single keys the model has at each end of the key space.
const EDGE: usize = 12;
/// The keys of one edge, the wide middle as a single cell, and the keys of the other edge.
const CELLS: usize = 2 * EDGE + 1;

/// What the model says of each cell. Tests only use ranges of whole cells, so the model is exact.
type Model<T> = [Option<T>; CELLS];

/// A range in both worlds: the cells, and the keys they stand for.
#[derive(Clone, Debug)]
struct Span {
    cells: RangeInclusive<usize>,
    keys: KeyRange,
}

impl Span {
    fn new(from: usize, to: usize) -> Span {
        let (low, high) = (from.min(to), from.max(to));
        let keys = KeyRange::new(cell(low).first(), cell(high).last()).expect("cells are in key order");
        Span { cells: low..=high, keys }
    }
}

/// The keys of one cell.
fn cell(index: usize) -> KeyRange {
    let edge = EDGE as u64;
    let offset = index as u64;
    if index < EDGE {
        KeyRange::one(Key(offset))
    } else if index == EDGE {
        KeyRange::new(Key(edge), Key(u64::MAX - edge)).expect("the middle has keys")
    } else {
        KeyRange::one(Key(u64::MAX - (2 * edge - offset)))
    }
}

/// The model's content as the fewest ranges: runs of equal cells within `span`.
fn runs<T: Copy + PartialEq>(model: &Model<T>, span: &Span) -> Vec<(KeyRange, T)> {
    let mut found: Vec<(Span, T)> = Vec::new();
    for index in span.cells.clone() {
        let Some(value) = model[index] else { continue };
        match found.last_mut() {
            Some((run, held)) if *run.cells.end() + 1 == index && *held == value => {
                *run = Span::new(*run.cells.start(), index);
            }
            _ => found.push((Span::new(index, index), value)),
        }
    }
    found.into_iter().map(|(run, value)| (run.keys, value)).collect()
}

/// The same, without the values.
fn run_keys(model: &Model<()>, span: &Span) -> Vec<KeyRange> {
    runs(model, span).into_iter().map(|(range, ())| range).collect()
}

/// The cells that have no value.
fn holes<T>(model: &Model<T>) -> Model<()> {
    std::array::from_fn(|index| model[index].is_none().then_some(()))
}

/// The cells that have a value.
fn filled<T>(model: &Model<T>) -> Model<()> {
    std::array::from_fn(|index| model[index].is_some().then_some(()))
}

fn everything() -> Span {
    Span::new(0, CELLS - 1)
}

fn any_span() -> impl Strategy<Value = Span> {
    (0..CELLS, 0..CELLS).prop_map(|(from, to)| Span::new(from, to))
}

/// A set with its model, by a random choice for each cell.
fn any_set() -> impl Strategy<Value = (RangeSet, Model<()>)> {
    any::<[bool; CELLS]>().prop_map(|chosen| {
        let model: Model<()> = std::array::from_fn(|index| chosen[index].then_some(()));
        let set = (0..CELLS).filter(|&index| chosen[index]).map(cell).collect();
        (set, model)
    })
}

/// A value or its absence; few values, so that neighbours are often equal.
fn any_value() -> impl Strategy<Value = Option<u8>> {
    prop::option::weighted(0.7, 0..3u8)
}

/// One change of a map.
#[derive(Clone, Debug)]
enum Change {
    Insert(Span, u8),
    Remove(Span),
    /// Replaces each value by what the table has for it.
    Update(Span, [Option<u8>; 3]),
    /// Keeps the ranges with a value from this one up.
    Retain(u8),
    Clear,
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        8 => (any_span(), 0..3u8).prop_map(|(span, value)| Change::Insert(span, value)),
        4 => any_span().prop_map(Change::Remove),
        4 => (any_span(), prop::array::uniform3(any_value()))
            .prop_map(|(span, table)| Change::Update(span, table)),
        1 => (0..3u8).prop_map(Change::Retain),
        1 => Just(Change::Clear),
    ]
}

fn change_map(map: &mut RangeMap<u8>, change: &Change) {
    match change {
        Change::Insert(span, value) => map.insert(span.keys, *value),
        Change::Remove(span) => map.remove(span.keys),
        Change::Update(span, table) => map.update(span.keys, |_, &value| table[usize::from(value)]),
        Change::Retain(least) => map.retain(|_, value| value >= least),
        Change::Clear => map.clear(),
    }
}

fn change_model(model: &mut Model<u8>, change: &Change) {
    match change {
        Change::Insert(span, value) => model[span.cells.clone()].fill(Some(*value)),
        Change::Remove(span) => model[span.cells.clone()].fill(None),
        Change::Update(span, table) => {
            for held in &mut model[span.cells.clone()] {
                *held = held.and_then(|value| table[usize::from(value)]);
            }
        }
        Change::Retain(least) => {
            for held in model {
                *held = held.filter(|value| value >= least);
            }
        }
        Change::Clear => model.fill(None),
    }
}

/// Asks the whole map everything, and one span of it everything about that span.
fn check_map(map: &RangeMap<u8>, model: &Model<u8>, span: &Span) {
    let expected = runs(model, &everything());
    let listed: Vec<_> = map.iter().map(|(range, &value)| (range, value)).collect();
    assert_eq!(listed, expected, "the ranges are canonical and say what the model says");
    assert_eq!(map.len(), expected.len());
    assert_eq!(map.is_empty(), expected.is_empty());
    assert!(map.values().eq(expected.iter().map(|(_, value)| value)));
    assert!(map.iter().rev().eq(map.iter().collect::<Vec<_>>().into_iter().rev()));
    assert!(map.keys().iter().eq(run_keys(&filled(model), &everything())));
    for (index, held) in model.iter().enumerate() {
        check_get(map, cell(index), *held, &expected);
    }
    check_span(map, model, span);
}

fn check_get(map: &RangeMap<u8>, keys: KeyRange, held: Option<u8>, expected: &[(KeyRange, u8)]) {
    for key in [keys.first(), keys.last()] {
        let found = map.get(key).map(|(range, &value)| (range, value));
        assert_eq!(found.map(|(_, value)| value), held);
        assert_eq!(found, expected.iter().copied().find(|(range, _)| range.contains(key)));
    }
}

fn check_span(map: &RangeMap<u8>, model: &Model<u8>, span: &Span) {
    let pieces: Vec<_> = map.overlapping(span.keys).map(|(range, &value)| (range, value)).collect();
    assert_eq!(pieces, runs(model, span));
    assert!(
        map.overlapping(span.keys).rev().map(|(range, _)| range).eq(pieces.iter().rev().map(|piece| piece.0))
    );
    let gaps: Vec<_> = map.gaps(span.keys).collect();
    assert_eq!(gaps, run_keys(&holes(model), span));
    assert_eq!(map.covers(span.keys), gaps.is_empty());
}

/// Compares a set with its model, in whole and cell by cell.
fn check_set(set: &RangeSet, model: &Model<()>) {
    let expected = run_keys(model, &everything());
    assert_eq!(
        set.iter().collect::<Vec<_>>(),
        expected,
        "the ranges are canonical and say what the model says"
    );
    assert_eq!(set.len(), expected.len());
    assert_eq!(set.is_empty(), expected.is_empty());
    let cells = (0..CELLS).filter(|&index| model[index].is_some()).map(cell);
    assert_eq!(set.key_count(), cells.map(KeyRange::key_count).sum::<u128>());
    for (index, held) in model.iter().enumerate() {
        assert_eq!(set.contains(cell(index).first()), held.is_some());
        assert_eq!(set.contains(cell(index).last()), held.is_some());
    }
}

fn combine(left: &Model<()>, right: &Model<()>, both: impl Fn(bool, bool) -> bool) -> Model<()> {
    std::array::from_fn(|index| both(left[index].is_some(), right[index].is_some()).then_some(()))
}

/// The cells of a span, as a model of its own.
fn only(span: &Span) -> Model<()> {
    std::array::from_fn(|index| span.cells.contains(&index).then_some(()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_ranges_relate_as_their_cells_do(left in any_span(), right in any_span()) {
        let (mine, others) = (only(&left), only(&right));
        let common = run_keys(&combine(&mine, &others, |a, b| a && b), &everything());
        let rest = run_keys(&combine(&mine, &others, |a, b| a && !b), &everything());
        let (before, after) = left.keys.difference(right.keys);

        prop_assert_eq!(left.keys.overlaps(right.keys), !common.is_empty());
        prop_assert_eq!(left.keys.intersection(right.keys), common.first().copied());
        prop_assert_eq!(left.keys.contains_range(right.keys), common == [right.keys]);
        prop_assert_eq!(before.into_iter().chain(after).collect::<Vec<_>>(), rest);
        prop_assert_eq!(left.keys.touches(right.keys), left.cells.end() + 1 == *right.cells.start());
    }

    #[test]
    fn a_range_splits_only_at_a_key_inside_it(span in any_span(), index in 0..CELLS) {
        let key = cell(index).first();
        prop_assert_eq!(span.keys.contains(key), span.cells.contains(&index));
        match span.keys.split_at(key) {
            Some((below, rest)) => {
                prop_assert_eq!((below.first(), rest.first(), rest.last()), (span.keys.first(), key, span.keys.last()));
                prop_assert!(below.touches(rest));
                prop_assert_eq!(below.key_count() + rest.key_count(), span.keys.key_count());
            }
            None => prop_assert!(index <= *span.cells.start() || index > *span.cells.end()),
        }
    }

    #[test]
    fn a_set_follows_its_model(changes in prop::collection::vec((any::<bool>(), any_span()), 1..40)) {
        let (mut set, mut model) = (RangeSet::new(), [None; CELLS]);
        for (add, span) in changes {
            if add {
                set.insert(span.keys);
            } else {
                set.remove(span.keys);
            }
            model[span.cells].fill(add.then_some(()));
            check_set(&set, &model);
        }
    }

    #[test]
    fn sets_combine_cell_by_cell((left, mine) in any_set(), (right, others) in any_set()) {
        check_set(&left, &mine);
        check_set(&left.union(&right), &combine(&mine, &others, |a, b| a || b));
        check_set(&left.difference(&right), &combine(&mine, &others, |a, b| a && !b));
        check_set(&left.intersection(&right), &combine(&mine, &others, |a, b| a && b));
        prop_assert_eq!(left == right, mine == others);
    }

    #[test]
    fn a_set_answers_about_a_range((set, model) in any_set(), span in any_span()) {
        let held = run_keys(&model, &span);
        prop_assert_eq!(set.overlaps(span.keys), !held.is_empty());
        prop_assert_eq!(set.contains_range(span.keys), held == [span.keys]);
        check_set(&set.intersect_range(span.keys), &combine(&model, &only(&span), |a, b| a && b));
    }

    #[test]
    fn a_map_follows_its_model(steps in prop::collection::vec((any_change(), any_span()), 1..40)) {
        let (mut map, mut model) = (RangeMap::new(), [None; CELLS]);
        for (change, span) in steps {
            change_map(&mut map, &change);
            change_model(&mut model, &change);
            check_map(&map, &model, &span);
        }
    }

    #[test]
    fn an_update_sees_each_piece_once(values in prop::array::uniform25(any_value()), span in any_span()) {
        let mut map = map_of(&values);
        let mut seen = Vec::new();
        map.update(span.keys, |range, &value| {
            seen.push((range, value));
            Some(value)
        });
        prop_assert_eq!(seen, runs(&values, &span));
        // Giving every piece its own value back must heal the cuts at the ends of the span.
        prop_assert_eq!(map, map_of(&values));
    }

    #[test]
    fn equal_content_is_equal_however_it_came_about(values in prop::array::uniform25(any_value())) {
        let by_cell = map_of(&values);
        let by_run: RangeMap<u8> = runs(&values, &everything()).into_iter().rev().collect();
        prop_assert_eq!(by_cell, by_run);
    }
}

/// A map filled cell by cell.
fn map_of(model: &Model<u8>) -> RangeMap<u8> {
    let cells = model.iter().enumerate();
    cells.filter_map(|(index, held)| held.map(|value| (cell(index), value))).collect()
}

#[test]
fn the_cells_are_the_whole_key_space_in_order() {
    assert_eq!(everything().keys, KeyRange::ALL);
    assert!((1..CELLS).all(|index| cell(index - 1).touches(cell(index))));
}

#[test]
fn the_full_set_has_every_key_and_its_seam_is_two_ranges() {
    let all = RangeSet::all();
    assert_eq!(all.key_count(), 1 << 64);
    assert!(all.contains(Key::MIN) && all.contains(Key::MAX));

    let ends = RangeSet::from_ranges([KeyRange::one(Key::MAX), KeyRange::one(Key::MIN)]);
    assert_eq!(ends.len(), 2, "the highest key does not touch the lowest");
    assert_eq!(all.difference(&all), RangeSet::new());
}

#[test]
fn keys_of_bytes_are_the_published_hashes() {
    let table = include_str!("../testdata/key_vectors.txt");
    let vectors: Vec<_> = table.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(vectors.contains(&" 2d06800538d394c2"), "the table has the empty input");
    for vector in vectors {
        let (input, key) = vector.split_once(' ').expect("a line is an input, a space and a key");
        assert_eq!(Key::of(&bytes_of(input)).to_string(), key, "input {input:?}");
    }
}

fn bytes_of(digits: &str) -> Vec<u8> {
    assert!(digits.len().is_multiple_of(2), "a byte is two digits");
    let pairs = (0..digits.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("a hexadecimal byte")).collect()
}
