//! The Lookup's rules, one test each: whom it asks, what it believes, what it applies, what it raises.

mod applying;
mod asking;
mod believing;
mod contact;
#[cfg(feature = "injected-bugs")]
mod injected_bugs;
mod losses;
mod snapshots;
mod world;
