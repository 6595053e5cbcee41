//! What stands between processes: links that carry the messages of Owners and Lookups to Managers, one by one, and relays that
//! carry bytes.

mod relay;
mod services;
mod weather;

pub(crate) use relay::{Relay, Sender};
pub(crate) use services::{Link, LinkPlan, Renewals};
pub(crate) use weather::{Counts, Weather};
