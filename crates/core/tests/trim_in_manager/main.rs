//! Trim in a Manager with real Owners: what readers see of it, switches from and to it, and input that makes no sense.

#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod load;
mod overview;
mod switching;
