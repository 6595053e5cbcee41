//! The suite that every backend runs, on a real etcd of three nodes.
//!
//! Apart from the embedded store's: a process that is being started holds every lock of its parent for a moment.

mod etcd_support;
mod store_support;

use std::sync::Arc;

use centrifuge_server::store::{Answers, EtcdOptions, StoreError, StoreHandle};
use etcd_support::Etcd;
use store_support::conformance::{self, Place};

/// A store on a real etcd of three nodes, under a prefix of its own.
struct OnEtcd {
    _etcd: Arc<Etcd>,
    options: EtcdOptions,
}

impl OnEtcd {
    fn new() -> OnEtcd {
        let etcd = Etcd::shared();
        let options = etcd.options();
        OnEtcd { _etcd: etcd, options }
    }
}

impl Place for OnEtcd {
    fn open(&self, answers: Answers) -> Result<StoreHandle, StoreError> {
        etcd_support::backend(&self.options).open(&etcd_support::candidate("manager:1"), answers)
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
    etcd: OnEtcd::new();
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
