//! Compiles the schemas, without a compiler on the machine.

fn main() {}
