//! The applications as real processes, under faults and under load: the Live Mesh story and the evaluation of presence.
//!
//! [`launch`] starts Managers and the parts of applications as processes; [`role`] names the parts that the
//! programs of this crate play themselves.

pub mod launch;
pub mod presence_eval;
pub mod role;
pub mod story;
