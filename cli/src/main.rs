//! The one user-facing binary.

fn main() {}
