//! The processes of a run and the network between them.

mod addresses;
mod departures;
mod faults;
mod kinds;
mod launch;
mod metrics;
pub(crate) mod namespaces;
mod network;
mod node;
mod operations;
mod operator;
mod parts;
mod peers;
mod rolling;
mod targeted_faults;
mod targeted_peer_faults;

pub(crate) use addresses::Node;
pub(crate) use faults::Faults;
pub(crate) use launch::{Pool, PoolPlan};
pub(crate) use metrics::{RaceDrops, Watched};
pub(crate) use operations::Operations;
