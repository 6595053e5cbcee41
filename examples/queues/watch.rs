//! Lookups that are never asked where anything is: they are here for the losses of other pools.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use centrifuge::lookup::LossReason;
use centrifuge::{Generation, Key, Lookup};

use super::wakers::Wakers;
use crate::Result;
use crate::shared::call::CallerArgs;
use crate::shared::stamp::wall_ms;

/// What a queue asks about other pools.
pub(super) trait Sight {
    /// When the state of a name last began empty. A higher number than last time is a loss.
    fn state_since(&self, pool: &str, name: &str) -> Option<Generation>;

    /// Whether nothing is known of a pool, since it was not heard of for too long. Another number is another alarm.
    fn alarm(&self, pool: &str) -> Option<u64>;
}

/// The tables of the pools that clients can be interested in.
pub(super) struct Watches {
    pools: BTreeMap<String, Watch>,
}

struct Watch {
    lookup: Lookup,
    alarm: Arc<AtomicU64>,
}

impl Watches {
    /// Learns the tables, and wakes all readers when one has changed.
    pub(super) async fn connect(
        args: &CallerArgs,
        pools: &[String],
        wakers: &Arc<Wakers>,
    ) -> Result<Watches> {
        let mut watches = Watches { pools: BTreeMap::new() };
        for pool in pools {
            let lookup = args.lookup(pool).await?;
            let alarm = Arc::new(AtomicU64::new(wall_ms()));
            tokio::spawn(follow(lookup.clone(), Arc::clone(&alarm), Arc::clone(wakers)));
            watches.pools.insert(pool.clone(), Watch { lookup, alarm });
        }
        Ok(watches)
    }

    /// The pools.
    pub(super) fn pools(&self) -> impl Iterator<Item = &String> {
        self.pools.keys()
    }
}

impl Sight for Watches {
    fn state_since(&self, pool: &str, name: &str) -> Option<Generation> {
        self.pools.get(pool)?.lookup.state_since(Key::of(name.as_bytes()))
    }

    fn alarm(&self, pool: &str) -> Option<u64> {
        let watch = self.pools.get(pool)?;
        (!watch.lookup.in_contact()).then(|| watch.alarm.load(Ordering::Relaxed))
    }
}

/// A loss that the table knows of is in the table before anyone is told, so that queues find it there: once the
/// name has its next owner, because until then nothing is accepted about it, and nobody could publish it again.
/// Only that nothing is known for too long is nowhere else.
async fn follow(lookup: Lookup, alarm: Arc<AtomicU64>, wakers: Arc<Wakers>) {
    let (mut losses, mut tables) = (lookup.losses(), lookup.table_changes());
    loop {
        tokio::select! {
            loss = losses.next() => match loss {
                Some(loss) if loss.why == LossReason::OutOfContact => alarm.store(wall_ms(), Ordering::Relaxed),
                Some(_) => {}
                None => return,
            },
            changed = tables.next() => if changed.is_none() { return },
        }
        wakers.wake_all();
    }
}
