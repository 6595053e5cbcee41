//! The applications as real processes, under faults and under load: the Live Mesh story and the evaluation of presence.
//!
//! [`role`] names the parts that the programs of this crate play themselves.

pub mod presence_eval;
pub mod role;
pub mod story;
