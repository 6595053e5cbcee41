//! Every service as real processes: a Manager, servers of a pool, and callers.

mod cache;
#[path = "../cluster/mod.rs"]
mod cluster;
mod documents;
mod end_to_end;
mod feeds;
mod frontend;
mod mesh;
mod presence;
mod pubsub;
mod queues;
mod replicated;
mod support;
mod tasks;
