//! What tests, measurements and fault runs share: processes, clusters, etcd nodes, links, certificates, ports, waits and seeds.

pub mod cluster;
pub mod etcd;
pub mod http;
pub mod link;
pub mod lock;
pub mod managers;
pub mod pki;
pub mod ports;
pub mod process;
pub mod rng;
pub mod samples;
pub mod service;
pub mod signals;
pub mod wait;

pub use cluster::Cluster;
pub use etcd::{EtcdNodes, NodeOptions};
pub use link::{Link, LinkMode};
pub use lock::lock;
pub use managers::{ManagerProcesses, StoreKind};
pub use process::Process;
pub use rng::Rng;
pub use samples::Samples;
pub use service::{Program, Service};
