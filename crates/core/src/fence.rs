//! The receiver's side of lease numbers: what a former holder of a key still has on its way is refused.

use std::collections::BTreeMap;

use crate::id::Generation;
use crate::key::Key;

/// Guards a service against messages of Owners that have lost a key since they sent them (Centrifuge §3.2, PRS §2.3).
///
/// It promises that after a message under some lease was accepted for a key, none under a lower number is accepted for
/// that key. It never refuses what the latest holder sends under its latest number: numbers only rise. It cannot know of a lease before the first message
/// under it arrives, and keeps one number for every key it has accepted a message for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Fence {
    highest: BTreeMap<Key, Generation>,
}

impl Fence {
    /// A fence that has seen nothing, and so refuses nothing yet.
    #[must_use]
    pub fn new() -> Fence {
        Fence::default()
    }

    /// Whether a message about `key`, sent under the lease `generation`, may be processed.
    pub fn accept(&mut self, key: Key, generation: Generation) -> bool {
        let highest = self.highest.entry(key).or_default();
        *highest = generation.max(*highest);
        *highest == generation
    }
}
