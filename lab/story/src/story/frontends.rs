//! Where the frontends are, as devices find them: a list that everybody can read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use centrifuge_harness::Rng;

/// The frontends by name. Cheap to clone; clones share the list.
#[derive(Clone, Debug, Default)]
pub(super) struct Frontends {
    list: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Frontends {
    /// A frontend is here from now on.
    pub(super) fn list(&self, name: &str, url: &str) {
        self.lock().insert(name.to_owned(), url.to_owned());
    }

    /// One of them, but not this one: its name and where it is.
    pub(super) fn choose(&self, but: Option<&str>, rng: &mut Rng) -> (String, String) {
        let list = self.lock();
        let others: Vec<_> = list.iter().filter(|(name, _)| Some(name.as_str()) != but).collect();
        rng.pick(others).map(|(name, url)| ((*name).clone(), (*url).clone())).unwrap_or_default()
    }

    /// Where a frontend is.
    pub(super) fn url(&self, name: &str) -> String {
        self.lock().get(name).cloned().unwrap_or_default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
