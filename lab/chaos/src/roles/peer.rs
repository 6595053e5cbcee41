//! A Flease peer's process: wants every cell of which it is a member, holds it for a while, and writes down when it
//! did.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use centrifuge::flease::{AcquireError, Cell, Change, Flease, Lease, Peers, TryAcquireError};
use centrifuge_harness::{Rng, lock};

use super::probe::probe;
use super::stretch::Stretch;
use super::{Part, PeerRole, told_to_stop};
use crate::lines::{Journal, PeerLine, Span, true_now};
use crate::plan::{EPSILON, ROUND, key_name};

/// The secret of all peers of a run.
const KEY: &[u8] = b"the secret of a run of chaos";
/// What cannot be had now is tried again after this long.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// A lease that has ended is asked for so much longer whether it is valid: it must not come back.
const AFTERWARDS: Duration = Duration::from_millis(300);
/// The longest time for which a cell is held on purpose.
const MAX_HOLD: Duration = Duration::from_secs(8);

/// The leases that this process has, by cell. Only the prober looks at them, and only while they are in here.
type Leases = Arc<Mutex<BTreeMap<u32, Arc<Lease>>>>;

/// Takes part until it is told to stop; then it gives everything back.
pub(super) async fn run(part: &Part, role: &PeerRole) -> Result<(), Box<dyn Error>> {
    let journal = Arc::new(Journal::open(&part.journal)?);
    let flease = start(part, role).await?;
    let leases = Leases::default();
    let (cells, probed) = (role.cells.iter().map(|(cell, _)| *cell).collect(), Arc::clone(&leases));
    probe(cells, Arc::clone(&journal), line, move |cell, _| {
        let leases = lock(&probed);
        leases.get(&cell).filter(|lease| lease.is_valid()).map(|lease| lease.epoch().to_u128())
    });
    tokio::spawn(listen(flease.clone(), Arc::clone(&journal)));
    let mut rng = Rng::new(role.seed);
    let (failed, mut failures) = tokio::sync::mpsc::channel(1);
    for (number, members) in &role.cells {
        let name = key_name(*number);
        let cell =
            if members.is_empty() { flease.cell(&name)? } else { flease.cell_among(&name, members)? };
        let (leases, journal) = (Arc::clone(&leases), Arc::clone(&journal));
        let (temper, rng) = (Temper::of(*number, &mut rng), rng.fork());
        let seeker = Seeker { cell, number: *number, temper, leases, journal, rng };
        let failed = failed.clone();
        tokio::spawn(async move {
            if let Err(error) = seeker.run().await {
                // Others may have failed before.
                let _ = failed.try_send(error.to_string());
            }
        });
    }
    tokio::select! {
        error = failures.recv() => Err(error.unwrap_or_default().into()),
        () = told_to_stop() => {
            flease.stop().await;
            Ok(())
        }
    }
}

async fn start(part: &Part, role: &PeerRole) -> Result<Flease, Box<dyn Error>> {
    let peers = Peers::list(role.peers.iter().map(|(peer, address)| (*peer, address.as_str())))?;
    if let Some(bug) = part.bug {
        bug.inject();
    }
    let builder = Flease::builder(peers, role.id).key(KEY);
    Ok(builder.lease(part.times.lease).epsilon(EPSILON).round(ROUND).start().await?)
}

/// Writes down what the peer says of its clock.
async fn listen(flease: Flease, journal: Arc<Journal>) {
    let mut changes = flease.changes();
    drop(flease);
    while let Some(change) = changes.next().await {
        let line = match change {
            Change::ClockApart { from } => PeerLine::Apart { from, at: true_now() },
            Change::ClockAgrees => PeerLine::Agrees { at: true_now() },
            _ => continue,
        };
        if let Err(error) = journal.write(&[line]) {
            tracing::error!(%error, "what the peer says cannot be written down");
        }
    }
}

/// How somebody comes by a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Temper {
    /// Waits for it.
    Waits,
    /// Waits, and now and then gives up.
    LosesPatience,
    /// Asks for it, and comes again when the lease that it is told of ends by its own clock.
    Asks,
}

impl Temper {
    /// For every fourth cell everybody waits: nobody's question sets in motion what has come to a halt.
    fn of(cell: u32, rng: &mut Rng) -> Temper {
        match cell {
            cell if cell.is_multiple_of(4) => Temper::Waits,
            _ if rng.percent(50) => Temper::LosesPatience,
            _ => Temper::Asks,
        }
    }
}

/// Who wants one cell.
struct Seeker {
    cell: Cell,
    number: u32,
    temper: Temper,
    leases: Leases,
    journal: Arc<Journal>,
    rng: Rng,
}

impl Seeker {
    /// Ends only if the peer does, or nothing can be written.
    async fn run(mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        loop {
            let before = true_now();
            match self.acquire().await {
                Ok(Some(lease)) => {
                    let (cell, epoch) = (self.number, lease.epoch().to_string());
                    let at = Span(before, true_now());
                    self.journal.write(&[PeerLine::Acquired { cell, epoch, at }])?;
                    self.hold(lease).await?;
                }
                Ok(None) | Err(AcquireError::ClockApart { .. }) => {
                    tokio::time::sleep(self.rng.between(Duration::ZERO, RETRY_INTERVAL)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn acquire(&mut self) -> Result<Option<Lease>, AcquireError> {
        let gives_up = self.rng.percent(20);
        match self.temper {
            Temper::Asks => self.try_acquire().await,
            Temper::LosesPatience if gives_up => {
                let patience = self.rng.between(Duration::ZERO, Duration::from_secs(3));
                let acquired = tokio::time::timeout(patience, self.cell.acquire()).await;
                acquired.map_or(Ok(None), |lease| lease.map(Some))
            }
            Temper::Waits | Temper::LosesPatience => self.cell.acquire().await.map(Some),
        }
    }

    async fn try_acquire(&mut self) -> Result<Option<Lease>, AcquireError> {
        match self.cell.try_acquire().await {
            Ok(lease) => Ok(Some(lease)),
            Err(TryAcquireError::Acquire(error)) => Err(error),
            Err(TryAcquireError::HeldByOther { rest, .. } | TryAcquireError::Recovering { rest }) => {
                tokio::time::sleep(rest).await;
                Ok(None)
            }
            Err(_) => Ok(None),
        }
    }

    async fn hold(&mut self, lease: Lease) -> io::Result<()> {
        let lease = Arc::new(lease);
        lock(&self.leases).insert(self.number, Arc::clone(&lease));
        let keeps = self.rng.percent(20);
        let length = self.rng.between(Duration::from_millis(50), MAX_HOLD);
        let why = tokio::select! {
            why = lease.ended() => Some(why),
            () = tokio::time::sleep(length), if !keeps => None,
        };
        if let Some(why) = why {
            let line = PeerLine::Ended { cell: self.number, why: format!("{why:?}"), at: true_now() };
            self.journal.write(&[line])?;
            tokio::time::sleep(AFTERWARDS).await;
        }
        lock(&self.leases).remove(&self.number);
        // The prober has none of its own.
        if let Some(lease) = Arc::into_inner(lease)
            && self.rng.percent(50)
        {
            lease.release().await;
        }
        Ok(())
    }
}

fn line(stretch: Stretch<u128>) -> PeerLine {
    let Stretch { key, lease, first, last, checks } = stretch;
    // As an epoch writes itself.
    PeerLine::Held { cell: key, epoch: format!("{lease:020x}"), first, last, checks }
}
