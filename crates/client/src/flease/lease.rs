//! A lease on a cell.

use std::fmt;
use std::time::Duration;

use centrifuge_core::flease::ClaimEnd;

use super::cell::{Wanted, wait};
use super::change::{Epoch, LeaseEnd};
use super::want::HeldLease;

/// The right to a cell, until it ends. It is renewed by itself; dropping it gives the cell back.
///
/// A lease that has ended stays so: acquire the cell again, under a new epoch.
///
/// ```no_run
/// # async fn write(what: &str, epoch: centrifuge::flease::Epoch) {}
/// # async fn example(cell: centrifuge::flease::Cell) -> Result<(), centrifuge::flease::AcquireError> {
/// let lease = cell.acquire().await?;
/// while lease.is_valid() {
///     // What leaves the process carries the epoch, and the receiver refuses a lower one.
///     write("something", lease.epoch()).await;
/// }
/// println!("it ended: {}", lease.ended().await);
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping a lease gives its cell back"]
pub struct Lease {
    wanted: Wanted,
    epoch: Epoch,
}

impl Lease {
    pub(super) fn new(wanted: Wanted, epoch: Epoch) -> Lease {
        Lease { wanted, epoch }
    }

    /// Whether the cell is held now. Compares the clocks itself, asks nobody, takes no lock; tens of nanoseconds.
    ///
    /// The answer is true of a moment during the call. A process that stops right after it cannot know: what it sends later is for
    /// the receiver to refuse, by the epoch.
    #[must_use]
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.held().is_some_and(|held| held.deadline.holds())
    }

    /// How long it is valid if it is not renewed; zero if it is not.
    #[must_use]
    pub fn rest(&self) -> Duration {
        self.held().map_or(Duration::ZERO, |held| held.deadline.rest())
    }

    /// The number of this acquisition: higher than that of every earlier one of this cell.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The cell's name.
    #[must_use]
    pub fn cell(&self) -> &str {
        self.wanted.want.cell().name()
    }

    /// Waits until the lease has ended, and says why.
    pub async fn ended(&self) -> LeaseEnd {
        let news = wait(self.wanted.want.news(), |news| news.over.is_some()).await;
        match news.over {
            Some(ClaimEnd::Released) => LeaseEnd::Released,
            Some(ClaimEnd::Expired) => LeaseEnd::Expired,
            Some(ClaimEnd::Clock) => LeaseEnd::Clock,
            Some(ClaimEnd::Stopped | ClaimEnd::NotAMember) | None => LeaseEnd::Stopped,
        }
    }

    /// Gives the cell back, and waits until the others can know of it: a process that ends earlier leaves them waiting for
    /// the lease's end. With no majority in reach it waits for that end itself.
    pub async fn release(self) {
        self.wanted.release().await;
    }

    #[inline]
    fn held(&self) -> Option<&HeldLease> {
        self.wanted.want.held()
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({} {})", self.cell(), self.epoch())
    }
}
