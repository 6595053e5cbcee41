//! What tests of services share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use centrifuge::lookup::Loss;
use centrifuge_examples::Failure;
use centrifuge_examples::shared::call::Pool;
use centrifuge_story::launch::Cluster;

/// Leases that a machine that does much else does not lose by accident, and that run out while one waits.
pub(crate) const LEASE: Duration = Duration::from_secs(5);

/// A Manager with these pools, and nothing else yet.
pub(crate) async fn cluster(pools: &[&str]) -> Result<Cluster, Failure> {
    Cluster::beside(env!("CARGO_BIN_EXE_documents"), pools, LEASE).await
}

/// Records the losses of a pool.
pub(crate) struct LossRecorder {
    heard: Arc<Mutex<Vec<Loss>>>,
}

impl LossRecorder {
    pub(crate) fn new(pool: &Pool) -> LossRecorder {
        let heard: Arc<Mutex<Vec<Loss>>> = Arc::default();
        let (mut losses, noted) = (pool.lookup().losses(), Arc::clone(&heard));
        tokio::spawn(async move {
            while let Some(loss) = losses.next().await {
                noted.lock().expect("nobody panics with it").push(loss);
            }
        });
        LossRecorder { heard }
    }

    /// What was lost since this was last asked.
    pub(crate) fn take(&self) -> Vec<Loss> {
        std::mem::take(&mut *self.heard.lock().expect("nobody panics with it"))
    }
}
