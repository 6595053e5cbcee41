//! The machines on stage: short commands in, readable lines out.

pub(crate) mod lookup;
pub(crate) mod manager;
mod manager_trace;
mod operator;
pub(crate) mod owner;
mod owner_trace;
pub(crate) mod trace;
mod words;
