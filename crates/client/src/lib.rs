//! What applications link to keep state in memory with one owner for every key.
//!
//! An in-memory server is an [`Owner`]: it holds leases on ranges of keys and knows, without asking anyone, which keys are
//! its own. A caller has a [`Lookup`]: a copy of the whole table, which says where a key's owner is and which keys lost
//! their state.
//!
//! ```no_run
//! use centrifuge::{Key, Lookup, Managers, Owner};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let managers = Managers::list(["manager-1:7600", "manager-2:7600"])?;
//!
//! // In the server:
//! let owner = Owner::builder(managers.clone(), "presence")
//!     .url("http://10.0.0.7:8080")
//!     .on_ownership_change(|change| async move { println!("{change:?}") })
//!     .join()
//!     .await?;
//! let key = Key::of(b"room-7");
//! let lease = owner.check_lease_now(key)?;
//! // ... operate on the state of room-7 ...
//! assert!(owner.check_lease_continuous(key, lease), "only then may an answer leave, and it carries the lease");
//!
//! // In the caller:
//! let lookup = Lookup::builder(managers, "presence")
//!     .on_loss(|loss| async move { println!("publish again: {:?}", loss.keys) })
//!     .connect()
//!     .await?;
//! let route = lookup.lookup(key)?;
//! println!("ask {} under lease {}", route.url(), route.generation());
//!
//! // Before the server stops: moves what it can, then goes.
//! owner.shutdown(std::time::Duration::from_secs(60)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! On top of these: [`LeasedMap`] keeps state by the papers' rules and moves it, [`Router`] sends a request to wherever the
//! owner is, [`Fence`] is the receiver's side of leases, and [`TestCluster`] is all of it in one process on virtual time.
//!
//! Where availability matters more than that a key has one owner, an [`AffinityOwner`] and an [`AffinityLookup`] take the place of the
//! two: see [`affinity`].
//!
//! Apart from these: [`flease`] gives leases on names among a few peers, with no Manager at all.

pub mod affinity;
pub mod fence;
pub mod flease;
pub mod hot;
pub mod keys;
pub mod leased_map;
pub mod lookup;
mod managers;
pub mod owner;
pub mod router;
mod seed;
mod stall_detector;
pub mod test_cluster;

pub use affinity::{AffinityLookup, AffinityOwner};
pub use centrifuge_core::id::{Generation, SessionId};
pub use centrifuge_core::key::{Key, KeyRange};
pub use centrifuge_net::record::RecordError;
pub use fence::Fence;
pub use flease::Flease;
pub use hot::{Lease, NoOwner, NotOwner, Route};
pub use keys::{Hashed, NoKey, Ordered, OrderedKey};
pub use leased_map::LeasedMap;
pub use lookup::Lookup;
pub use managers::{Managers, ManagersError, Security, Tls};
pub use owner::Owner;
pub use router::Router;
pub use test_cluster::TestCluster;
