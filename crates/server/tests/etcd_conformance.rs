//! The suite that every backend runs, on a real etcd of three nodes.
//!
//! Apart from the embedded store's: a process that is being started holds every lock of its parent for a moment.

mod etcd_support;
mod store_support;

use std::sync::Arc;

use centrifuge_server::store::{Answers, EtcdOptions, StoreError, StoreHandle};
use etcd_support::Etcd;
use store_support::conformance::{self, Place, conformance_suite};

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

conformance_suite!(etcd: OnEtcd::new());
