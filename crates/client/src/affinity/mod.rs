//! Namespaces in affinity mode: a key has a preferred owner, and for a short time perhaps two.
//!
//! Such a namespace gives up exclusiveness for availability. When an Owner is silent its ranges go to others at once, and nobody waits for
//! the end of the leases that it may still believe in. So there are types of their own here, and none of them leads to a
//! [`Generation`](crate::Generation): a number that two servers can be served under at once fences nothing.
//!
//! ```no_run
//! use centrifuge::affinity::{AffinityLookup, AffinityOwner, Probably};
//! use centrifuge::{Key, Managers};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let managers = Managers::list(["manager-1:7600"])?;
//!
//! // In the server:
//! let owner = AffinityOwner::builder(managers.clone(), "feeds").url("http://10.0.0.7:8080").join().await?;
//! match owner.check_lease_now(Key::of(b"feed-7")) {
//!     Probably::Mine(_) => println!("serve it from what is cached here"),
//!     Probably::NotMine(why) => println!("serve it all the same, or send the caller elsewhere: {why}"),
//! }
//!
//! // In the caller:
//! let lookup = AffinityLookup::builder(managers, "feeds").connect().await?;
//! println!("ask {}", lookup.lookup(Key::of(b"feed-7"))?.url());
//! # Ok(())
//! # }
//! ```
//!
//! What a check answers is no lease that a fence would take:
//!
//! ```compile_fail,E0308
//! # use centrifuge::affinity::{AffinityOwner, Belief, Probably};
//! # use centrifuge::{Fence, Key};
//! fn fenced(owner: &AffinityOwner, fence: &Fence, key: Key) {
//!     if let Probably::Mine(belief) = owner.check_lease_now(key) {
//!         fence.accept(key, belief).expect("the newest"); // expected `Generation`, found `Belief`
//!     }
//! }
//! ```
//!
//! Nor is there a way to make one of it:
//!
//! ```compile_fail,E0277
//! # use centrifuge::affinity::Belief;
//! # use centrifuge::Generation;
//! fn number(belief: Belief) -> Generation {
//!     belief.into() // the trait `From<Belief>` is not implemented for `Generation`
//! }
//! ```
//!
//! A route has no number either, and an [`Owner`](crate::Owner) cannot be had from an [`AffinityOwner`]:
//!
//! ```compile_fail,E0599
//! # use centrifuge::affinity::AffinityRoute;
//! fn number(route: AffinityRoute) -> centrifuge::Generation {
//!     route.generation() // no method named `generation`
//! }
//! ```
//!
//! ```compile_fail,E0277
//! # use centrifuge::affinity::AffinityOwner;
//! fn exclusive(owner: AffinityOwner) -> centrifuge::Owner {
//!     owner.into()
//! }
//! ```

mod builder;
mod change;
mod lookup;
mod migration;
mod owner;

use std::fmt;

use centrifuge_core::id::Generation;

pub use self::builder::AffinityOwnerBuilder;
pub use self::change::{AffinityChange, AffinityChanges};
pub use self::lookup::{
    AffinityLookup, AffinityLookupBuilder, AffinityRoute, AffinityRouter, AffinitySlice, NoRoute,
};
pub use self::migration::{AffinityImport, AffinityMigration, AffinityOffer};
pub use self::owner::{AffinityGuard, AffinityOwner};
use crate::hot::NotOwner;

/// Whether a key is probably this process's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it says whether the key is probably this process's own, and nothing more"]
pub enum Probably {
    /// This process is the preferred owner of the key as far as it knows. Another process may be it by now, and serve the key too.
    Mine(Belief),
    /// This process is not the preferred owner of the key, or is about to hand it over.
    NotMine(NotOwner),
}

impl Probably {
    /// Whether the key is probably this process's own.
    #[must_use]
    pub fn is_mine(&self) -> bool {
        matches!(self, Probably::Mine(_))
    }
}

/// What a process believed of a key, to ask later whether it has done so without a gap. No number can be had from it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Belief(Generation);

impl fmt::Debug for Belief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Belief")
    }
}
