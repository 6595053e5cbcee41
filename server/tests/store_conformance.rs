//! The suite that every backend runs.

mod store_support;

use std::path::PathBuf;

use centrifuge_server::store::{self, Answers, StoreError, StoreHandle};
use store_support::conformance::{self, Place};

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

macro_rules! suite {
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

suite! {
    embedded: Embedded::new();
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
