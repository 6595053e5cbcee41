//! What tests, measurements and fault runs share: processes, etcd nodes, ports, waits and seeds.

pub mod etcd;
pub mod ports;
pub mod process;
pub mod rng;
pub mod signals;
pub mod wait;

pub use etcd::{EtcdNodes, NodeOptions};
pub use process::Process;
pub use rng::Rng;
