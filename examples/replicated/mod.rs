//! A replicated store in memory: k copies of each value under k derived keys, so that a crash of one server
//! seldom loses one.
//!
//! The servers know nothing of replication: each keeps single copies, under leases like any other state. The
//! [`client`] is all there is to it, about a page, and [`gateway`] offers it over HTTP.
//!
//! What it promises: gets find a value that a put returned for, unless every copy that has it is lost before it
//! is repaired, or those that are left cannot be reached within the deadline. So the crash of a server costs no
//! value of which another server has a copy, and a drain costs none at all: it moves copies. A put that failed
//! may have happened all the same.
//!
//! What it does not promise: that nothing is ever lost. A copy whose server crashed begins empty, and says so
//! like one that never was written, so that a quorum of answers proves less than in a store with disks: if a
//! put reached two copies of three, and one of these two crashes, two empty copies are a quorum. Hence a read
//! waits for all k up to its deadline, and a loss makes the client repair the names it knows at once. Two
//! servers that crash within the time of a repair can lose a value, or bring back the one before. And the keys
//! of copies are spread by chance: of n servers one has all k copies of about one name in n^(k-1). Replication
//! makes losses fewer; who publishes state must still be able to publish it again.

pub mod client;
pub mod gateway;
mod server;

use centrifuge::leased_map::LeasedKey;
use centrifuge::{Key, LeasedMap};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Result;
use crate::shared::member::{Member, MemberArgs};

/// What a server of this pool is told.
#[derive(Args, Clone, Debug)]
pub struct ReplicatedArgs {
    #[command(flatten)]
    member: MemberArgs,
}

/// Serves until it is told to stop.
pub async fn run(args: ReplicatedArgs) -> Result<()> {
    let copies = LeasedMap::new();
    let member = Member::join(&args.member, "replicated", &copies).await?;
    member.serve(server::routes(&args.member.pool("replicated"), copies)).await
}

/// The name of one of the copies of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CopyName {
    /// The value's name.
    pub name: String,
    /// Which of its copies.
    pub number: u32,
}

impl LeasedKey for CopyName {
    /// Each copy has a place of its own in the key space, and so, most likely, a server of its own.
    fn key(&self) -> Key {
        Key::of(format!("{}#{}", self.name, self.number).as_bytes())
    }
}

/// Orders the values of a name; no two puts have the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    /// Higher than any that its writer had read.
    pub counter: u64,
    /// Names one put of one client, so that two that read the same do not write the same.
    pub writer: String,
}

/// A value and its version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versioned {
    /// The version.
    pub version: Version,
    /// The value.
    pub value: Value,
}
