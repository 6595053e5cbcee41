//! What stands between processes: links that carry the messages of Owners and Lookups to Managers, one by one, ways
//! that do the same with datagrams, and relays that carry bytes.

mod datagrams;
mod link_faults;
mod relay;
mod services;

pub(crate) use datagrams::DatagramWay;
pub(crate) use link_faults::{Counts, LinkFaults};
pub(crate) use relay::{Relay, Sender};
pub(crate) use services::{Link, LinkPlan, Renewals};
