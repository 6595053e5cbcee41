//! Owners and Lookups as applications link them, and what they must not notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use centrifuge::lookup::{LookupBuilder, Losses};
use centrifuge::owner::{Change, Changes};
use centrifuge::{Key, KeyRange, Lease, Lookup, Managers, Owner};
use centrifuge_core::id::Namespace;
use centrifuge_server::RunningManager;
use tokio::time::timeout;

use crate::support::{eventually, within};

pub(crate) const POOL: &str = "pool";
/// A Lookup that is without a leader for so long takes everything for lost.
pub(crate) const CONTACT: Duration = Duration::from_secs(40);
/// How many keys are looked at for a second owner.
const KEYS: u64 = 64;

/// Two Owners that hold everything between them, and two Lookups that know it.
pub(crate) struct Clients {
    pub(crate) owners: Vec<Owner>,
    pub(crate) lookups: Vec<Lookup>,
}

/// The Managers as clients know them.
pub(crate) fn listed<'a>(managers: impl IntoIterator<Item = &'a RunningManager>) -> Managers {
    let addresses = managers.into_iter().map(|manager| manager.grpc_addr().to_string());
    Managers::list(addresses).expect("addresses")
}

impl Clients {
    /// Joins the pool, which exists already, and waits until nothing moves.
    pub(crate) async fn join(managers: &Managers, leader: &RunningManager, contact: Duration) -> Clients {
        let mut clients = Clients { owners: Vec::new(), lookups: Vec::new() };
        for name in ["one", "two"] {
            let owner = Owner::builder(managers.clone(), POOL).name(name).url(&format!("http://{name}"));
            clients.owners.push(within(owner.join()).await.expect("joined"));
        }
        for _ in 0..2 {
            let lookup = prompt(Lookup::builder(managers.clone(), POOL)).contact_timeout(contact);
            clients.lookups.push(within(lookup.connect()).await.expect("a table"));
        }
        clients.at_rest(leader).await;
        clients
    }

    /// Waits until every key has an owner that knows it, both Lookups know which, and nothing moves.
    pub(crate) async fn at_rest(&self, leader: &RunningManager) {
        eventually(async || {
            let group = leader.view().group()?;
            let stored = group.namespaces.get(&Namespace::new(POOL).expect("a label"))?;
            let moving = stored.table.iter().any(|(_, entry)| entry.recall.is_some());
            let keys: u128 = self.leases().map(|(_, lease)| lease.range.key_count()).sum();
            let all = keys == KeyRange::ALL.key_count() && stored.sessions.len() == self.owners.len();
            (all && !moving && self.are_known()).then_some(())
        })
        .await;
    }

    fn leases(&self) -> impl Iterator<Item = (&Owner, Lease)> {
        self.owners.iter().flat_map(|owner| owner.leases().into_iter().map(move |lease| (owner, lease)))
    }

    fn are_known(&self) -> bool {
        self.leases().all(|(owner, lease)| {
            self.lookups.iter().all(|lookup| {
                let route = lookup.lookup(lease.range.first());
                route.is_ok_and(|to| (to.session(), to.generation()) == (owner.session(), lease.generation))
            })
        })
    }

    /// From here on nothing may be lost.
    pub(crate) fn peace(&self) -> Peace {
        Peace {
            held: self.leases().map(|(owner, lease)| (owner.clone(), lease)).collect(),
            changes: self.owners.iter().map(Owner::changes).collect(),
            losses: self.lookups.iter().map(Lookup::losses).collect(),
        }
    }
}

/// A Lookup that asks often enough for the times of these tests.
fn prompt(lookup: LookupBuilder) -> LookupBuilder {
    let second = Duration::from_secs(1);
    lookup.poll(second).silence(second).unowned_delay(second)
}

/// What was held when nothing moved, and what clients have been told since.
pub(crate) struct Peace {
    held: Vec<(Owner, Lease)>,
    changes: Vec<Changes>,
    losses: Vec<Losses>,
}

impl Peace {
    /// Waits until every Owner has a conversation with another leader, and has lost nothing on the way.
    pub(crate) async fn until_joined(&mut self) {
        for changes in &mut self.changes {
            while !joined(&within(changes.next()).await.expect("it runs")) {}
        }
    }

    /// Every lease was held without a gap, and nobody was told of any end or loss.
    pub(crate) async fn assert_unbroken(&mut self) {
        for (owner, lease) in &self.held {
            for key in [lease.range.first(), lease.range.last()] {
                assert!(owner.check_lease_continuous(key, lease.generation), "{owner:?} lost {lease:?}");
            }
        }
        for changes in &mut self.changes {
            while let Ok(change) = timeout(Duration::ZERO, changes.next()).await {
                joined(&change.expect("it runs"));
            }
        }
        for losses in &mut self.losses {
            if let Ok(loss) = timeout(Duration::ZERO, losses.next()).await {
                panic!("a false loss: {loss:?}");
            }
        }
    }
}

/// Whether an Owner has found a leader; no lease may come or go.
fn joined(change: &Change) -> bool {
    match change {
        Change::Joined => true,
        Change::Refused(_) => false,
        other => panic!("an Owner was disturbed: {other:?}"),
    }
}

/// Looks for a key that two Owners answer for at once, for as long as it lives.
pub(crate) struct Witness {
    stop: Arc<AtomicBool>,
    looking: thread::JoinHandle<u64>,
}

impl Witness {
    pub(crate) fn of(owners: &[Owner]) -> Witness {
        let (stop, owners) = (Arc::new(AtomicBool::new(false)), owners.to_vec());
        let stopped = Arc::clone(&stop);
        let looking = thread::spawn(move || {
            let mut looks = 0;
            while !stopped.load(Ordering::Relaxed) {
                (0..KEYS).for_each(|number| look(&owners, Key(number * (u64::MAX / KEYS))));
                looks += 1;
                // Not to wait for anything: others need the processor.
                thread::sleep(Duration::from_millis(1));
            }
            looks
        });
        Witness { stop, looking }
    }

    /// Nobody saw two owners of a key.
    pub(crate) fn assert_one_owner(self) {
        self.stop.store(true, Ordering::Relaxed);
        match self.looking.join() {
            Ok(looks) => assert!(looks > 100, "it hardly looked: {looks} times"),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// An Owner that answers before and after another does, and without a gap, held the key while the other did.
fn look(owners: &[Owner], key: Key) {
    for first in owners {
        let Ok(lease) = first.check_lease_now(key) else { continue };
        for second in owners.iter().filter(|second| second.session() != first.session()) {
            let both = second.check_lease_now(key).is_ok() && first.check_lease_continuous(key, lease);
            assert!(!both, "{first:?} and {second:?} both hold {key:?}");
        }
    }
}
