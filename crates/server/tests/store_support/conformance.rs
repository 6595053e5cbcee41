//! What every backend must do, whatever it is made of. A backend's test runs each of these with a place of its own.

use std::sync::Arc;

use centrifuge_core::id::{Index, Term};
use centrifuge_core::manager::{ElectionCommand, StoreCommand, StoreEvent};
use centrifuge_core::record::Batch;
use centrifuge_server::store::{Answer, Answers, StoreError, StoreHandle};

use super::{Client, batch_of, drawn, sum};

/// Where one store is. Opening it again, after it was closed, finds what was written.
pub trait Place {
    /// Opens the store.
    fn open(&self, answers: Answers) -> Result<StoreHandle, StoreError>;
}

/// A module with a test for each of these, on a backend.
macro_rules! conformance_suite {
    ($backend:ident: $place:expr) => {
        conformance_suite! {
            $backend: $place;
            a_new_store_is_empty,
            terms_rise,
            only_the_current_term_is_renewed,
            a_load_equals_all_batches,
            a_repeated_batch_is_harmless,
            a_wrong_index_is_fenced,
            another_term_is_fenced,
            queued_appends_are_answered_in_order,
            a_compaction_keeps_what_is_loaded,
            a_senseless_compaction_is_ignored,
            history_is_in_order,
            a_store_is_like_a_list,
        }
    };
    ($backend:ident: $place:expr; $($case:ident,)+) => {
        mod $backend {
            use super::*;
            $(
                #[test]
                fn $case() {
                    conformance::$case(&$place);
                }
            )+
        }
    };
}

pub(crate) use conformance_suite;

fn open(place: &dyn Place) -> Client {
    Client::open(|answers| place.open(answers))
}

fn batches(term: Term, count: u64) -> Vec<Arc<Batch>> {
    (1..=count).map(|seed| batch_of(term, seed)).collect()
}

fn append_all(store: &Client, term: Term, from: u64, batches: &[Arc<Batch>]) {
    for (index, batch) in (from..).zip(batches) {
        store.appended(term, index, batch);
    }
}

/// A new store has no batch and no namespace.
pub fn a_new_store_is_empty(place: &dyn Place) {
    let mut store = open(place);
    let (index, group) = store.load();
    assert_eq!((index, &*group), (Index::ZERO, &sum([])));
    assert!(store.recent(10).is_empty());
    store.close();
}

/// Every campaign that is won has a higher term, also after the store was closed.
pub fn terms_rise(place: &dyn Place) {
    let mut last = Term::ZERO;
    for _ in 0..4 {
        let mut store = open(place);
        for _ in 0..3 {
            let term = store.campaign();
            assert!(term > last, "{term} after {last}");
            last = term;
        }
        store.close();
    }
}

/// The leader renews its own term; nobody renews another, and nobody one that was given up.
pub fn only_the_current_term_is_renewed(place: &dyn Place) {
    let mut store = open(place);
    assert!(!store.renew(Term(1)));
    let first = store.campaign();
    assert!(store.renew(first));
    assert!(store.renew(first));
    store.send(ElectionCommand::Resign { term: first });
    assert!(!store.renew(first));
    let second = store.campaign();
    store.send(ElectionCommand::Resign { term: first });
    assert!(store.renew(second), "resigning an earlier term changes nothing");
    assert!(!store.renew(first));
    store.close();
    assert!(!open(place).renew(second), "a leader that is gone does not lead");
}

/// What was appended is loaded, by the same process and by the next.
pub fn a_load_equals_all_batches(place: &dyn Place) {
    let mut store = open(place);
    let term = store.campaign();
    let first = batches(term, 20);
    append_all(&store, term, 1, &first);
    assert_eq!(store.load(), (Index(20), Arc::new(sum(&first))));
    store.close();
    let mut store = open(place);
    assert_eq!(store.load(), (Index(20), Arc::new(sum(&first))));
    let term = store.campaign();
    let second = batches(term, 20);
    append_all(&store, term, 21, &second);
    store.close();
    assert_eq!(open(place).load(), (Index(40), Arc::new(sum(first.iter().chain(&second)))));
}

/// A batch that is sent again is answered as before and is there once.
pub fn a_repeated_batch_is_harmless(place: &dyn Place) {
    let mut store = open(place);
    let term = store.campaign();
    let all = batches(term, 3);
    append_all(&store, term, 1, &all);
    append_all(&store, term, 1, &all);
    assert_eq!(store.load(), (Index(3), Arc::new(sum(&all))));
    store.close();
    let mut store = open(place);
    append_all(&store, term, 1, &all);
    assert_eq!(store.load().0, Index(3));
    store.close();
}

/// A batch goes to the next index and to no other, and never replaces one.
pub fn a_wrong_index_is_fenced(place: &dyn Place) {
    let mut store = open(place);
    let term = store.campaign();
    let all = batches(term, 5);
    append_all(&store, term, 1, &all[..2]);
    for (index, batch) in [(4, &all[3]), (u64::MAX, &all[3]), (2, &all[3]), (1, &all[1]), (0, &all[0])] {
        let event = store.append(term, index, batch);
        assert_eq!(event, StoreEvent::Fenced { index: Index(index) });
    }
    assert_eq!(store.load(), (Index(2), Arc::new(sum(&all[..2]))));
    store.appended(term, 3, &all[2]);
    store.close();
}

/// A term that does not lead writes nothing.
pub fn another_term_is_fenced(place: &dyn Place) {
    let mut store = open(place);
    let fenced = |store: &Client, term: Term| {
        let event = store.append(term, 1, &batch_of(term, 1));
        assert_eq!(event, StoreEvent::Fenced { index: Index(1) });
    };
    fenced(&store, Term(1));
    let first = store.campaign();
    let second = store.campaign();
    fenced(&store, first);
    fenced(&store, second.next().expect("not the last"));
    store.send(ElectionCommand::Resign { term: second });
    fenced(&store, second);
    store.close();
    let mut store = open(place);
    fenced(&store, second);
    assert_eq!(store.load().0, Index::ZERO);
    let third = store.campaign();
    store.appended(third, 1, &batch_of(third, 1));
    store.close();
}

/// Commands that are sent without waiting are answered in their order.
pub fn queued_appends_are_answered_in_order(place: &dyn Place) {
    let mut store = open(place);
    let term = store.campaign();
    let all = batches(term, 300);
    for (index, batch) in (1..).zip(&all) {
        store.send(StoreCommand::Append { term, index: Index(index), batch: Arc::clone(batch) });
    }
    for index in 1..=300 {
        assert_eq!(store.answer(), Answer::Store(StoreEvent::Appended { index: Index(index) }));
    }
    assert_eq!(store.load(), (Index(300), Arc::new(sum(&all))));
    store.close();
}

/// A compaction changes nothing that is loaded and nothing about what may be appended.
pub fn a_compaction_keeps_what_is_loaded(place: &dyn Place) {
    let mut store = open(place);
    let term = store.campaign();
    let all = batches(term, 30);
    append_all(&store, term, 1, &all[..10]);
    store.compact(7, sum(&all[..7]));
    assert_eq!(store.load(), (Index(10), Arc::new(sum(&all[..10]))));
    append_all(&store, term, 11, &all[10..20]);
    store.compact(20, sum(&all[..20]));
    append_all(&store, term, 20, &all[19..25]);
    store.close();
    let mut store = open(place);
    assert_eq!(store.load(), (Index(25), Arc::new(sum(&all[..25]))));
    append_all(&store, term, 5, &all[4..6]);
    let event = store.append(term, 5, &all[0]);
    assert_eq!(event, StoreEvent::Fenced { index: Index(5) });
    store.close();
}

/// A compaction that is out of date, or about what is not there, is ignored.
pub fn a_senseless_compaction_is_ignored(place: &dyn Place) {
    let mut store = open(place);
    let term = store.campaign();
    let all = batches(term, 10);
    append_all(&store, term, 1, &all);
    store.compact(8, sum(&all[..8]));
    store.compact(5, sum(&all[..5]));
    store.compact(11, sum(&[]));
    store.compact(0, sum(&[]));
    assert_eq!(store.load(), (Index(10), Arc::new(sum(&all))));
    store.close();
    assert_eq!(open(place).load(), (Index(10), Arc::new(sum(&all))));
}

/// History has the latest batches, the oldest first, with the times at which they were written, also behind a
/// compaction.
pub fn history_is_in_order(place: &dyn Place) {
    let before = std::time::SystemTime::now() - std::time::Duration::from_millis(1);
    let mut store = open(place);
    let term = store.campaign();
    let all = batches(term, 20);
    append_all(&store, term, 1, &all);
    store.compact(15, sum(&all[..15]));
    let expected: Vec<_> = (1..).zip(all.iter().cloned()).collect();
    assert_eq!(store.recent(100), expected);
    assert_eq!(store.recent(7), expected[13..]);
    assert_eq!(store.recent(0), []);
    store.close();
    let store = open(place);
    assert_eq!(store.recent(100), expected);
    let recent = store.handle().recent(20).expect("history");
    let after = std::time::SystemTime::now();
    assert!(recent.iter().all(|stored| before <= stored.written_at && stored.written_at <= after));
    assert!(recent.is_sorted_by_key(|stored| stored.written_at));
    store.close();
}

/// Any mixture of all this is as if the log were a list.
pub fn a_store_is_like_a_list(place: &dyn Place) {
    let mut list: Vec<Arc<Batch>> = Vec::new();
    let mut store = open(place);
    let mut leading: Option<Term> = None;
    let mut highest = Term::ZERO;
    for step in 0..400 {
        let (what, number) = drawn(&(0..20u8, 0..1000u64), step);
        let next = list.len() as u64 + 1;
        match what {
            0 => {
                store.close();
                store = open(place);
                leading = None;
            }
            1 | 2 => {
                let term = store.campaign();
                assert!(term > highest);
                (highest, leading) = (term, Some(term));
            }
            3 => {
                store.send(ElectionCommand::Resign { term: highest });
                leading = None;
            }
            4 => {
                let index = number % next;
                store.compact(index, sum(&list[..usize::try_from(index).expect("small")]));
            }
            5 | 6 => assert_eq!(store.load(), (Index(next - 1), Arc::new(sum(&list)))),
            7 | 8 => {
                let index = number % (next + 2);
                let term = leading.unwrap_or(Term(number));
                let batch = batch_of(term, step);
                if index != next {
                    let event = store.append(term, index, &batch);
                    assert_eq!(event, StoreEvent::Fenced { index: Index(index) });
                }
            }
            9 if next > 1 => {
                let at = number % (next - 1);
                store.appended(highest, at + 1, &list[usize::try_from(at).expect("small")]);
            }
            10 => {
                let from = list.len().saturating_sub(5);
                let expected: Vec<_> = (from as u64 + 1..).zip(list[from..].iter().cloned()).collect();
                assert_eq!(store.recent(5), expected);
            }
            _ => {
                let term = leading.unwrap_or(highest);
                let batch = batch_of(term, step);
                let event = store.append(term, next, &batch);
                let index = Index(next);
                if leading.is_some() {
                    assert_eq!(event, StoreEvent::Appended { index });
                    list.push(batch);
                } else {
                    assert_eq!(event, StoreEvent::Fenced { index });
                }
            }
        }
    }
    assert!(list.len() > 50, "the mixture appends something: {}", list.len());
    assert_eq!(store.load(), (Index(list.len() as u64), Arc::new(sum(&list))));
    store.close();
}
