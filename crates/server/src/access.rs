//! Who may do what. One place decides, before anything else looks at a request, and ends the streams of those who may no longer.

mod audit;
mod authority;
#[cfg(test)]
mod fuzz;
mod identity;
mod pattern;
mod policy;
mod rules;
mod token;
pub(crate) mod watch;

pub(crate) use audit::{AUDIT, AuditLimit};
pub(crate) use authority::{Authority, Denial};
pub(crate) use identity::{Identity, Proof};
pub use policy::{Access, FileError, Permission, Policy};
pub(crate) use rules::{Gate, Guarded, gate};
pub(crate) use token::Tokens;
pub use token::{TokenAlgorithm, TokenSettings};
