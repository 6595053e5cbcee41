//! Managers without a store: three choose their leader among themselves, and a new one learns the table from the Owners.

mod backups;
mod claims;
#[path = "../etcd_managers/clients.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod clients;
mod clocks;
mod failover;
mod managers;
mod rotation;
#[path = "../support/mod.rs"]
mod support;
