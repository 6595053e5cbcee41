//! The papers' applications, each a small HTTP service that is the best documentation of one way to use the libraries.
//!
//! Every application is a directory: `mod.rs` says what it promises and starts a server of it, and `main.rs` is
//! its program, whose parts are in [`programs`]. What the applications share is in [`shared`]. `visits.rs`, the
//! first service of the guide, needs none of that.

pub mod cache;
pub mod documents;
pub mod feeds;
pub mod presence;
pub mod programs;
pub mod pubsub;
pub mod queues;
pub mod replicated;
pub mod shared;
pub mod tasks;

/// Why a program ends early: something to be read by a person.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What comes of something that a program does.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// The code of the guide and of the README, compiled and, where it needs no Manager, run.
#[cfg(doctest)]
mod guide {
    macro_rules! pages {
        ($($name:ident = $file:literal)*) => { $(#[doc = include_str!($file)] struct $name;)* };
    }
    pages! {
        Readme = "../README.md"
        Install = "../docs/guide/install.md"
        FourSteps = "../docs/guide/four-steps.md"
        Fencing = "../docs/guide/fencing.md"
        Migration = "../docs/guide/migration.md"
        Loss = "../docs/guide/loss.md"
        Load = "../docs/guide/load.md"
        OrderedKeys = "../docs/guide/ordered-keys.md"
        Affinity = "../docs/guide/affinity.md"
        LeaseTimes = "../docs/guide/lease-times.md"
        Testing = "../docs/guide/testing.md"
        Tls = "../docs/guide/tls.md"
        Flease = "../docs/guide/flease.md"
    }
}
