//! What tests of services share.

use std::sync::{Arc, Mutex};

use centrifuge::lookup::Loss;
use centrifuge_examples::shared::call::Pool;

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
