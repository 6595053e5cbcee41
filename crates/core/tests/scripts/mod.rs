//! The machines on stage: short commands in, readable lines out.

#[allow(dead_code, reason = "not every test has a peer of Flease on stage")]
pub(crate) mod flease;
pub(crate) mod lookup;
pub(crate) mod manager;
mod manager_trace;
mod operator;
pub(crate) mod owner;
mod owner_trace;
pub(crate) mod trace;
mod words;
