//! One wish for one cell: from the moment somebody asks for it until nobody waits for anything about it.

use std::sync::{Arc, OnceLock};

use centrifuge_core::flease::{Ballot, Cell, ClaimEnd, ClaimId, Lease};
use centrifuge_core::time::Instant;
use centrifuge_net::flease::{Deadline, Offset};
use tokio::sync::watch;

/// A wish for a cell, and what came of it: at most one lease.
#[derive(Debug)]
pub(super) struct Want {
    claim: ClaimId,
    cell: Cell,
    held: OnceLock<HeldLease>,
    news: watch::Sender<News>,
}

/// The lease that came of it.
#[derive(Debug)]
pub(super) struct HeldLease {
    pub(super) epoch: Ballot,
    pub(super) deadline: Deadline,
}

/// What its owner waits for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct News {
    pub(super) is_held: bool,
    /// Who holds the cell instead, as far as is known.
    pub(super) other: Option<Lease>,
    pub(super) over: Option<ClaimEnd>,
}

impl Want {
    pub(super) fn new(claim: ClaimId, cell: Cell) -> Arc<Want> {
        Arc::new(Want { claim, cell, held: OnceLock::new(), news: watch::channel(News::default()).0 })
    }

    pub(super) fn claim(&self) -> ClaimId {
        self.claim
    }

    pub(super) fn cell(&self) -> &Cell {
        &self.cell
    }

    pub(super) fn held(&self) -> Option<&HeldLease> {
        self.held.get()
    }

    /// Whether no lease has come of it yet.
    pub(super) fn is_new(&self, epoch: Ballot) -> bool {
        self.held().is_none_or(|held| held.epoch != epoch)
    }

    pub(super) fn news(&self) -> watch::Receiver<News> {
        self.news.subscribe()
    }

    /// It is held, or held longer. A lease of another epoch is not the one that its owner knows: that one is over.
    pub(super) fn hold(&self, epoch: Ballot, until: Instant, offset: &Offset) {
        let held = self.held.get_or_init(|| HeldLease { epoch, deadline: Deadline::new(until, offset) });
        if held.epoch == epoch {
            held.deadline.extend(until);
            self.news.send_if_modified(|news| !std::mem::replace(&mut news.is_held, true));
        } else {
            self.end(ClaimEnd::Expired);
        }
    }

    pub(super) fn is_held_by(&self, lease: Lease) {
        self.news.send_modify(|news| news.other = Some(lease));
    }

    /// What readers see changes before anyone is told. The first reason stays.
    pub(super) fn end(&self, why: ClaimEnd) {
        self.revoke();
        self.news.send_modify(|news| {
            news.over.get_or_insert(why);
        });
    }

    /// Nobody here relies on the lease any more.
    pub(super) fn revoke(&self) {
        if let Some(held) = self.held() {
            held.deadline.end();
        }
    }
}
