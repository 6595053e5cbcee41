//! The processes of a run and the network between them.

mod addresses;
mod certificates;
mod departures;
mod faults;
mod kinds;
mod launch;
pub(crate) mod namespaces;
mod network;
mod operations;
mod operator;
mod parts;
mod peers;
mod rotations;
mod targeted_faults;

pub(crate) use addresses::{Node, Part};
pub(crate) use certificates::OBSERVER;
pub(crate) use departures::Return;
pub(crate) use faults::Faults;
pub(crate) use launch::{Pool, PoolPlan};
pub(crate) use operations::Operations;
pub(crate) use rotations::Rotations;
