//! What a recording of a machine consists of: a header, then every step. Whoever writes or reads one does so elsewhere.
//!
//! A recording is text, one JSON object a line. It has the machine's seed in it, from which its nonces follow: keep it as you
//! keep a key.

use std::fmt;

use serde::de::{DeserializeOwned, Error};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xxhash_rust::xxh3::Xxh3;

use crate::key::{Key, KeyRange};
use crate::lookup::{LookupConfig, LookupMachine};
use crate::machine::{Machine, Output};
use crate::manager::{ManagerConfig, ManagerMachine};
use crate::owner::{OwnerConfig, OwnerMachine};
use crate::random::Random;
use crate::range_map::RangeMap;
use crate::table::{Entry, Table};
use crate::time::Instant;

/// The format that this version writes and reads. Another number: the lines mean something else.
pub const FORMAT: u32 = 1;

/// A machine whose steps can be recorded and fed to it again.
pub trait Recordable: Machine<Event: Serialize + DeserializeOwned + fmt::Debug, Action: fmt::Debug> {
    /// Which machine it is.
    const KIND: MachineKind;
    /// What it is told at its start.
    type Config: Serialize + DeserializeOwned;

    /// The machine as it was at its start.
    fn build(config: Self::Config, seed: [u8; 32]) -> Self;
}

/// The machines there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MachineKind {
    /// A Manager.
    Manager,
    /// An Owner.
    Owner,
    /// A Lookup.
    Lookup,
}

impl fmt::Display for MachineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MachineKind::Manager => "manager",
            MachineKind::Owner => "owner",
            MachineKind::Lookup => "lookup",
        })
    }
}

impl Recordable for ManagerMachine {
    const KIND: MachineKind = MachineKind::Manager;
    type Config = ManagerConfig;

    fn build(config: ManagerConfig, seed: [u8; 32]) -> ManagerMachine {
        ManagerMachine::new(config, Random::from_seed(seed))
    }
}

impl Recordable for OwnerMachine {
    const KIND: MachineKind = MachineKind::Owner;
    type Config = OwnerConfig;

    fn build(config: OwnerConfig, seed: [u8; 32]) -> OwnerMachine {
        OwnerMachine::new(config, Random::from_seed(seed))
    }
}

impl Recordable for LookupMachine {
    const KIND: MachineKind = MachineKind::Lookup;
    type Config = LookupConfig;

    fn build(config: LookupConfig, seed: [u8; 32]) -> LookupMachine {
        LookupMachine::new(config, Random::from_seed(seed))
    }
}

/// What a recording says first; enough to know how to read the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// The format of the lines.
    pub format: u32,
    /// Which machine was recorded.
    pub machine: MachineKind,
}

/// The first line: the opening, and what the machine was built from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header<C> {
    /// The format of the lines.
    pub format: u32,
    /// Which machine was recorded.
    pub machine: MachineKind,
    /// What it was told at its start.
    pub config: C,
    /// The seed of its generator.
    pub seed: [u8; 32],
}

/// Every later line: one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step<E> {
    /// The time it was told.
    pub at: Instant,
    /// What happened; `None` for a wake.
    pub event: Option<E>,
    /// What it answered.
    pub digest: Digest,
}

/// A stable hash of a machine's answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest(pub u64);

impl Digest {
    /// The digest of an answer: of the text of its actions, in their order, and of the exact wake that it wants.
    pub fn of<A: fmt::Debug>(output: &Output<A>) -> Digest {
        let mut text = Hashed(Xxh3::new());
        let wake = output.wake.map(|wake| wake.0);
        fmt::write(&mut text, format_args!("{:?} {:?}", output.actions, wake))
            .expect("a hash takes every text");
        Digest(text.0.digest())
    }
}

/// Hashes what is written to it.
struct Hashed(Xxh3);

impl fmt::Write for Hashed {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
        let text = String::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16)
            .map(Digest)
            .map_err(|_| D::Error::custom("a digest is a hexadecimal number"))
    }
}

impl From<KeyRange> for (Key, Key) {
    fn from(range: KeyRange) -> (Key, Key) {
        (range.first(), range.last())
    }
}

impl TryFrom<(Key, Key)> for KeyRange {
    type Error = &'static str;

    fn try_from((first, last): (Key, Key)) -> Result<KeyRange, &'static str> {
        KeyRange::new(first, last).ok_or("a range ends before it starts")
    }
}

impl<T: Serialize> Serialize for RangeMap<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut ranges = serializer.serialize_seq(Some(self.len()))?;
        self.iter().try_for_each(|piece| ranges.serialize_element(&piece))?;
        ranges.end()
    }
}

impl<'de, T: Deserialize<'de> + Clone + Eq> Deserialize<'de> for RangeMap<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RangeMap<T>, D::Error> {
        Vec::<(KeyRange, T)>::deserialize(deserializer).map(RangeMap::from_iter)
    }
}

impl Serialize for Table {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Table {
    /// Built as every table is: what was read cannot make a hole or an overlap.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Table, D::Error> {
        let mut table = Table::default();
        for (range, entry) in Vec::<(KeyRange, Entry)>::deserialize(deserializer)? {
            table.set(range, entry);
        }
        Ok(table)
    }
}
