//! Several Managers on one etcd, with Owners and Lookups as applications run them, and an etcd in trouble: nothing is lost
//! that need not be.

mod backups;
mod clients;
mod cut;
#[path = "../etcd_support/mod.rs"]
mod etcd_support;
mod failover;
mod load;
mod managers;
mod outage;
mod relay;
mod restarts;
mod slow;
#[path = "../support/mod.rs"]
mod support;
