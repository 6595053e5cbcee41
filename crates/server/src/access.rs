//! Who may do what. One place decides, before anything else looks at a request, and ends the streams of those who may no longer.

mod authority;
mod identity;
mod pattern;
mod policy;
mod rules;
pub(crate) mod watch;

pub(crate) use authority::{Authority, Denial};
pub(crate) use identity::Identity;
pub use policy::{Access, Permission, Policy, PolicyError};
pub(crate) use rules::{Gate, Guarded, gate};
