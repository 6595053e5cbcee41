//! The deterministic simulator and model checker of Centrifuge.
fn main() {}
