//! The whole of replication: puts and gets all copies of a value, and returns once a quorum has answered.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use centrifuge::leased_map::LeasedKey;
use serde_json::Value;
use tokio::task::JoinSet;

use super::{CopyName, Version, Versioned};
use crate::shared::call::{Call, Pool, segment};

/// How long a repair waits for a copy: longer than a lease and its hold, after which there is an owner.
const REPAIR_TIMEOUT: Duration = Duration::from_secs(90);

/// Too few copies could be reached.
#[derive(Debug, thiserror::Error)]
#[error("{answered} of {copies} copies answered, and {quorum} are needed: try again")]
pub struct NoQuorum {
    /// How many answered in time.
    pub answered: usize,
    /// How many there are.
    pub copies: u32,
    /// How many are needed.
    pub quorum: usize,
}

/// A store with several copies of each value. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    pool: Pool,
    copies: u32,
    deadline: Duration,
    writer: String,
    puts: Arc<AtomicU64>,
    /// What this client repairs: every name that it has ever dealt with.
    known: Arc<Mutex<BTreeSet<String>>>,
}

impl Store {
    /// A store over a pool of servers. Slow copies are waited for until the deadline; `writer` names this client.
    pub fn new(pool: Pool, copies: u32, deadline: Duration, writer: &str) -> Store {
        let started = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        let writer = format!("{writer}@{started}");
        Store { pool, copies, deadline, writer, puts: Arc::default(), known: Arc::default() }
    }

    /// Puts a value: reads which version is the newest, and writes a newer one.
    pub async fn put(&self, name: &str, value: Value) -> Result<Versioned, NoQuorum> {
        let there = self.read(name, self.deadline).await;
        self.is_quorum(there.len())?;
        let newest = there.into_iter().filter_map(|(_, copy)| copy).map(|copy| copy.version.counter).max();
        let writer = format!("{}.{}", self.writer, self.puts.fetch_add(1, Ordering::Relaxed));
        let version = Version { counter: newest.unwrap_or_default() + 1, writer };
        let new = Versioned { version, value };
        let written = self.write(name, 0..self.copies, &new, self.deadline).await;
        self.is_quorum(written.len())?;
        Ok(new)
    }

    /// Gets the newest value that any copy has, and brings those up to date that are behind.
    pub async fn get(&self, name: &str) -> Result<Option<Versioned>, NoQuorum> {
        self.read_and_repair(name, self.deadline).await
    }

    /// Repairs the names this client knows whenever a copy is lost, for as long as the pool's table is followed.
    pub async fn repair_what_is_lost(self) {
        let mut losses = self.pool.lookup().losses();
        while let Some(loss) = losses.next().await {
            let is_lost = |copy: CopyName| loss.keys.contains(copy.key());
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
            for name in known.into_iter().filter(|name| self.copies_of(name).any(is_lost)) {
                let store = self.clone();
                tokio::spawn(async move { store.read_and_repair(&name, REPAIR_TIMEOUT).await });
            }
        }
    }

    async fn read_and_repair(&self, name: &str, patience: Duration) -> Result<Option<Versioned>, NoQuorum> {
        let there = self.read(name, patience).await;
        self.is_quorum(there.len())?;
        let newest = there.iter().filter_map(|(_, copy)| copy.as_ref()).max_by_key(|copy| &copy.version);
        let Some(newest) = newest else { return Ok(None) };
        let (level, behind): (Vec<_>, Vec<_>) =
            there.iter().partition(|(_, copy)| copy.as_ref().is_some_and(|it| it.version == newest.version));
        let behind = behind.into_iter().map(|(number, _)| *number);
        let repaired = self.write(name, behind, newest, patience).await;
        // Only what a quorum has may be told: the next reader must find it too.
        self.is_quorum(level.len() + repaired.len())?;
        Ok(Some(newest.clone()))
    }

    async fn read(&self, name: &str, patience: Duration) -> Vec<(u32, Option<Versioned>)> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
        self.ask(name, 0..self.copies, patience, Call::get).await
    }

    async fn write(
        &self,
        name: &str,
        copies: impl Iterator<Item = u32>,
        new: &Versioned,
        patience: Duration,
    ) -> Vec<(u32, Option<Versioned>)> {
        self.ask(name, copies, patience, |path| Call::put(path, new)).await
    }

    /// Asks copies at once, and waits for all of them; those that have not answered in time are left out.
    async fn ask(
        &self,
        name: &str,
        copies: impl Iterator<Item = u32>,
        patience: Duration,
        call: impl Fn(String) -> Call,
    ) -> Vec<(u32, Option<Versioned>)> {
        let mut asked = JoinSet::new();
        for number in copies {
            let (pool, copy) = (self.pool.patience(patience), CopyName { name: name.to_owned(), number });
            let call = call(path(self.pool.lookup().namespace().as_str(), &copy));
            asked.spawn(async move {
                let answer = tokio::time::timeout(patience, pool.ask_for(copy.key(), &call)).await;
                Some((number, answer.ok()?.ok()?.read().ok()?))
            });
        }
        asked.join_all().await.into_iter().flatten().collect()
    }

    fn copies_of(&self, name: &str) -> impl Iterator<Item = CopyName> {
        (0..self.copies).map(move |number| CopyName { name: name.to_owned(), number })
    }

    fn is_quorum(&self, answered: usize) -> Result<(), NoQuorum> {
        let quorum = self.copies as usize / 2 + 1;
        if answered >= quorum { Ok(()) } else { Err(NoQuorum { answered, copies: self.copies, quorum }) }
    }
}

/// Where a copy is at its server.
fn path(pool: &str, copy: &CopyName) -> String {
    format!("/{pool}/{}/copies/{}", segment(&copy.name), copy.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_part_of_the_path() {
        let copy = CopyName { name: "a/b c#d".to_owned(), number: 2 };
        assert_eq!(path("replicated", &copy), "/replicated/a%2Fb%20c%23d/copies/2");
    }
}
