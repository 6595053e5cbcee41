//! What applications link: Owner and Lookup.

pub mod hot;
pub mod lookup;
mod managers;
pub mod owner;
mod seed;

pub use centrifuge_core::id::{Generation, SessionId};
pub use centrifuge_core::key::{Key, KeyRange};
pub use hot::{Lease, NoOwner, NotOwner, Route};
pub use lookup::Lookup;
pub use managers::{Managers, ManagersError};
pub use owner::Owner;

/// The number of a lease, as an application keeps it: what leaves the server carries it.
pub type LeaseNumber = Generation;
