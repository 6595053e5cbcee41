//! What crosses the network, and the loop that drives the machines.

pub mod clock;
pub mod driver;
