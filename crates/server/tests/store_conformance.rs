//! The suite that every backend runs.

mod store_support;

use std::path::PathBuf;
use std::sync::Arc;

use centrifuge_server::store::{self, Answers, StoreError, StoreHandle};
use store_support::conformance::{self, Place, conformance_suite};

/// The embedded store, in a folder of its own.
struct Embedded {
    _folder: tempfile::TempDir,
    file: PathBuf,
}

impl Embedded {
    fn new() -> Embedded {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("manager.store");
        Embedded { _folder: folder, file }
    }
}

impl Place for Embedded {
    fn open(&self, answers: Answers) -> Result<StoreHandle, StoreError> {
        store::open(&self.file, answers)
    }
}

conformance_suite!(embedded: Embedded::new());

/// Not every backend keeps as much: only the embedded store promises this number.
#[test]
fn history_is_bounded_and_the_log_stays_short() {
    use centrifuge_core::id::Index;
    use centrifuge_core::manager::{StoreCommand, StoreEvent};
    use centrifuge_server::store::{Answer, HISTORY};
    use store_support::{Client, batch_of, sum};

    let place = Embedded::new();
    let mut store = Client::open(|answers| place.open(answers));
    let term = store.campaign();
    let all: Vec<_> = (1..=HISTORY + 500).map(|index| batch_of(term, index)).collect();
    for (index, batch) in (1..).zip(&all) {
        store.send(StoreCommand::Append { term, index: Index(index), batch: Arc::clone(batch) });
    }
    for index in 1..=HISTORY + 500 {
        assert_eq!(store.answer(), Answer::Store(StoreEvent::Appended { index: Index(index) }));
    }
    // Nobody asked for a compaction: a log this long is compacted when it is read.
    let group = Arc::new(sum(&all));
    assert_eq!(store.load(), (Index(HISTORY + 500), Arc::clone(&group)));
    let recent = store.recent(usize::MAX);
    assert_eq!(recent.len() as u64, HISTORY);
    assert_eq!(recent.first().map(|(index, _)| *index), Some(501));
    let next = HISTORY + 501;
    store.appended(term, next, &batch_of(term, next));
    store.close();
    let mut store = Client::open(|answers| place.open(answers));
    assert_eq!(store.load().0, Index(next));
    assert_eq!(store.recent(usize::MAX).len() as u64, HISTORY + 1, "trimmed with the next compaction");
    store.close();
}
