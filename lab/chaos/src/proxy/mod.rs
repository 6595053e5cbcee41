//! What stands between processes: links that carry the messages of Owners and Lookups to Managers, one by one, ways
//! that do the same with datagrams, and links and relays that carry bytes.

mod bytes;
mod link_faults;
mod relay;
mod services;

pub(crate) use bytes::ByteLink;
pub(crate) use link_faults::{Counts, LinkFaults, Way, carry_datagrams};
pub(crate) use relay::{Relay, Sender};
pub(crate) use services::{Link, Renewals};
