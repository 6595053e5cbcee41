//! Giving ranges back: copy while held, freeze, send the rest, release.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::id::{Generation, SessionId};
use crate::injected_bug::{Bug, injected};
use crate::key::KeyRange;
use crate::message::{Destination, LeaseOrder, Release};
use crate::time::Instant;

use super::event::{OwnerAction, Revocation, RevokedReason, TransferId};
use super::leases::{Leases, Recalled, same_process};
use super::{OwnerMachine, Timer};

/// How long a failed transfer rests.
const RETRY: Duration = Duration::from_secs(1);

/// The attempts under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Transfers {
    last: u64,
    running: BTreeMap<TransferId, Transfer>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Transfer {
    range: KeyRange,
    generation: Generation,
    to: Option<Destination>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// The state is being copied while the range is served.
    Copying,
    /// Operations end, and the rest is sent.
    Frozen,
    /// It did not work and is tried again soon.
    Resting,
}

impl Transfers {
    fn start(&mut self, range: KeyRange, generation: Generation, to: Option<Destination>) -> TransferId {
        self.last += 1;
        let stage = if to.is_some() { Stage::Copying } else { Stage::Frozen };
        let id = TransferId(self.last);
        self.running.insert(id, Transfer { range, generation, to, stage });
        id
    }

    /// Whether a range is about to be given back as soon as its operations have ended.
    pub(super) fn are_quiescing(&self) -> bool {
        self.running.values().any(|transfer| transfer.stage == Stage::Frozen && transfer.to.is_none())
    }

    /// Forgets the transfers whose range is no longer held as they know it, and names them.
    pub(super) fn void(&mut self, leases: &Leases) -> Vec<TransferId> {
        let alive = |id: &TransferId, transfer: &Transfer| {
            let range = leases.held().get(transfer.range.first());
            range.is_some_and(|(range, lease)| range == transfer.range && lease.transfer == Some(*id))
        };
        let void: Vec<_> = self.running.iter().filter(|(id, t)| !alive(id, t)).map(|(id, _)| *id).collect();
        for id in &void {
            self.running.remove(id);
        }
        void
    }
}

impl OwnerMachine {
    /// Brings the transfers into line with what the Manager now wants back.
    pub(super) fn follow_recalls(&mut self, now: Instant, orders: &[LeaseOrder], out: &mut Vec<OwnerAction>) {
        for order in orders {
            for piece in self.leases.recalled(order) {
                if order.recall.is_some() && injected(Bug::RecallRenews) {
                    self.leases.restart(now, self.lease);
                }
                if !self.is_followed(&piece) {
                    self.follow(piece, out);
                }
            }
        }
        for stopped in self.transfers.void(&self.leases) {
            out.push(OwnerAction::StopTransfer(stopped));
        }
    }

    fn is_followed(&self, piece: &Recalled) -> bool {
        let transfer = piece.lease.transfer.and_then(|id| self.transfers.running.get(&id));
        match (&piece.wanted, transfer) {
            (None, None) => piece.lease.transfer.is_none(),
            (Some(wanted), Some(transfer)) => {
                let to = if self.config.migrates { wanted.as_ref() } else { None };
                transfer.range == piece.range && transfer.to.as_ref() == to
            }
            _ => false,
        }
    }

    fn follow(&mut self, piece: Recalled, out: &mut Vec<OwnerAction>) {
        let Some(wanted) = piece.wanted else {
            return self.leases.mark(piece.range, None, false);
        };
        let to = if self.config.migrates { wanted } else { None };
        self.begin(piece.range, piece.lease.generation, to, out);
    }

    fn begin(
        &mut self,
        range: KeyRange,
        generation: Generation,
        to: Option<Destination>,
        out: &mut Vec<OwnerAction>,
    ) {
        let transfer = self.transfers.start(range, generation, to.clone());
        self.leases.mark(range, Some(transfer), to.is_none());
        out.push(match to {
            Some(to) => OwnerAction::StartTransfer { transfer, range, generation, to, term: self.term },
            None => OwnerAction::Freeze { transfer, range, generation, to: None },
        });
    }

    pub(super) fn on_transfer_ready(&mut self, id: TransferId, out: &mut Vec<OwnerAction>) {
        let Some(transfer) = self.transfers.running.get_mut(&id) else { return };
        if transfer.stage != Stage::Copying {
            return;
        }
        transfer.stage = Stage::Frozen;
        let Transfer { range, generation, to, .. } = transfer.clone();
        self.leases.mark(range, Some(id), true);
        out.push(OwnerAction::Freeze { transfer: id, range, generation, to });
    }

    /// The release is clean only if the process that confirmed the copy is the one the Manager named; a copy at
    /// another life of that Owner is made again.
    pub(super) fn on_transfer_done(
        &mut self,
        now: Instant,
        id: TransferId,
        to: SessionId,
        out: &mut Vec<OwnerAction>,
    ) {
        let Some(transfer) = self.transfers.running.get(&id) else { return };
        if transfer.stage != Stage::Frozen || transfer.to.is_none() {
            return;
        }
        if same_process(transfer.to.as_ref(), to) {
            self.release(now, id, Some(to), out);
        } else {
            self.on_transfer_failed(now, id, out);
        }
    }

    pub(super) fn on_transfer_failed(&mut self, now: Instant, id: TransferId, out: &mut Vec<OwnerAction>) {
        let Some(transfer) = self.transfers.running.get_mut(&id) else { return };
        let Some(to) = &transfer.to else { return };
        if injected(Bug::FailedTransferIsClean) {
            let to = to.session;
            return self.release(now, id, Some(to), out);
        }
        transfer.stage = Stage::Resting;
        let range = transfer.range;
        self.leases.mark(range, Some(id), false);
        self.timers.set_if_absent(Timer::Transfers, now + RETRY);
    }

    pub(super) fn on_transfers_due(&mut self, out: &mut Vec<OwnerAction>) {
        let resting =
            |(id, transfer): (&TransferId, &Transfer)| (transfer.stage == Stage::Resting).then_some(*id);
        let resting: Vec<_> = self.transfers.running.iter().filter_map(resting).collect();
        for id in resting {
            if let Some(Transfer { range, generation, to, .. }) = self.transfers.running.remove(&id) {
                self.begin(range, generation, to, out);
            }
        }
    }

    pub(super) fn on_quiesced(&mut self, now: Instant, id: TransferId, out: &mut Vec<OwnerAction>) {
        let plain = |transfer: &Transfer| transfer.stage == Stage::Frozen && transfer.to.is_none();
        if self.transfers.running.get(&id).is_some_and(plain) {
            self.release(now, id, None, out);
        }
    }

    fn release(
        &mut self,
        now: Instant,
        id: TransferId,
        clean_to: Option<SessionId>,
        out: &mut Vec<OwnerAction>,
    ) {
        let Some(Transfer { range, generation, .. }) = self.transfers.running.remove(&id) else { return };
        let lease = self.leases.held().get(range.first()).map(|(_, lease)| *lease);
        let state_since = lease.map_or(generation, |lease| lease.state_since);
        let warrant = lease.filter(|_| clean_to.is_some()).and_then(|lease| lease.warrant);
        self.leases.drop_piece(range);
        self.released.add(Release { range, generation, clean_to, state_since, warrant });
        let why = if clean_to.is_some() { RevokedReason::Moved } else { RevokedReason::GivenBack };
        out.push(OwnerAction::Revoked(vec![Revocation { range, generation, why }]));
        self.tell(now, out);
    }
}
