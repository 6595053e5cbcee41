//! The rivals' published rules, reimplemented as pure functions to be measured in the same world. No product links them.

pub(super) mod dicer;
pub(super) mod executor;
pub(super) mod placement;
pub(super) mod slicer;
pub(super) mod slices;
