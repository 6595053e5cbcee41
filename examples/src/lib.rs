//! The papers' applications, each a small HTTP service that is the best documentation of one way to use the libraries.
//!
//! What they share comes first: [`member`] is a server of a pool, [`call`] is a caller of one, [`frontend`] passes requests
//! on to the owners of their keys, [`stamp`] numbers what must never be mistaken for something else. [`role`] names every part that can be a process, and [`launch`] starts such processes.

pub mod cache;
pub mod call;
pub mod documents;
pub mod feeds;
pub mod frontend;
pub mod http;
pub mod launch;
pub mod member;
pub mod presence;
pub mod pubsub;
pub mod queues;
pub mod replicated;
pub mod role;
pub mod stamp;
pub mod story;
pub mod tasks;

/// Why a program ends early: something to be read by a person.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The code of the guide and of the README, compiled and, where it needs no Manager, run.
#[cfg(doctest)]
mod guide {
    macro_rules! pages {
        ($($name:ident = $file:literal)*) => { $(#[doc = include_str!($file)] struct $name;)* };
    }
    pages! {
        Readme = "../../README.md"
        Install = "../../docs/guide/install.md"
        FourSteps = "../../docs/guide/four-steps.md"
        Fencing = "../../docs/guide/fencing.md"
        Migration = "../../docs/guide/migration.md"
        Loss = "../../docs/guide/loss.md"
        LeaseTimes = "../../docs/guide/lease-times.md"
        Testing = "../../docs/guide/testing.md"
        Flease = "../../docs/guide/flease.md"
    }
}
