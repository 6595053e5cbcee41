//! What applications link: Owner and Lookup.

pub mod fence;
pub mod hot;
pub mod leased_map;
pub mod lookup;
mod managers;
pub mod owner;
pub mod router;
mod seed;
pub mod test_cluster;

pub use centrifuge_core::id::{Generation, SessionId};
pub use centrifuge_core::key::{Key, KeyRange};
pub use fence::Fence;
pub use hot::{Lease, NoOwner, NotOwner, Route};
pub use leased_map::LeasedMap;
pub use lookup::Lookup;
pub use managers::{Managers, ManagersError};
pub use owner::Owner;
pub use router::Router;
pub use test_cluster::TestCluster;

/// The number of a lease, as an application keeps it: what leaves the server carries it.
pub type LeaseNumber = Generation;
