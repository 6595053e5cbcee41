//! Owner and Lookup: what applications link.
