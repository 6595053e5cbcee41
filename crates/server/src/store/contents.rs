//! Everything that a store contains, in a form that does not depend on the backend.

use std::time::SystemTime;

use centrifuge_core::id::{Index, Term};
use centrifuge_core::manager_state::ManagerState;

use super::StoredBatch;

/// Everything that a store contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The highest term that was ever won.
    pub term: Term,
    /// Nobody may lead before this time; `None`: anybody may.
    pub not_before: Option<SystemTime>,
    /// The index of the last batch.
    pub index: Index,
    /// What all batches add up to.
    pub group: ManagerState,
    /// The latest batches, the oldest first; the last of them is at `index`, unless there are none.
    pub history: Vec<StoredBatch>,
}
