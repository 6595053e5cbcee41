//! The deterministic simulator of Centrifuge: the real machines in a seeded world, under an oracle that sees everything.

pub mod bench;
pub mod campaign;
pub mod check;
pub mod clock;
pub mod flease_world;
pub mod invariants;
pub mod load_world;
pub mod oracle;
pub mod replay;
pub mod seen;
pub mod trace;
pub mod world;
