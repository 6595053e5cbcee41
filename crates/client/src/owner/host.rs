//! Performs what an Owner's machine decides.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use centrifuge_core::id::{Generation, Term};
use centrifuge_core::key::KeyRange;
use centrifuge_core::message::{Destination, OwnerToManager, RefusedReason};
use centrifuge_core::owner::{
    Grant, OwnerAction, OwnerEvent, OwnerMachine, Renumbered, Revocation, TransferId,
};
use centrifuge_core::settings::Drift;
use centrifuge_core::time::Instant;
use centrifuge_net::clock;
use centrifuge_net::driver::Host;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

use super::book::LeaseBook;
use super::builder::MigrateOut;
use super::change::{Change, LeftReason};
use super::migration::{MigrationOut, MigrationVoid};
use super::{Shared, Status};
use crate::hot::{Lease, LeaseTable, Validity};
use crate::keys::{KeySpace, is_same_space};

/// Clocks that move against each other by more than this are a jump, however long leases are.
pub(super) const LONGEST_SLACK: Duration = Duration::from_secs(1);

/// Sends to Managers without waiting; a message that cannot be sent is lost, and the machine's timers deal with it.
pub(super) trait Links: Send {
    /// Sends one message.
    fn send(&mut self, to: &centrifuge_core::id::ManagerId, message: OwnerToManager);
}

/// The Owner's host. What it does to the outside comes after what readers see has changed: were a release sent first,
/// another process could be granted a range that readers here still take for their own.
pub(super) struct OwnerHost<L> {
    shared: Arc<Shared>,
    links: L,
    events: mpsc::Sender<OwnerEvent>,
    migrate_out: Option<MigrateOut>,
    actions: Vec<OwnerAction>,
    transfers: BTreeMap<TransferId, Running>,
    book: LeaseBook,
    table: Arc<LeaseTable>,
    validity: Validity,
    /// No Manager will ever take this process again, and why.
    locked_out: Option<LeftReason>,
    /// When the latest report was sent, by both clocks.
    reported: (Instant, i64),
}

/// A transfer under way.
struct Running {
    task: AbortHandle,
    frozen: Option<oneshot::Sender<()>>,
}

impl<L: Links> OwnerHost<L> {
    pub(super) fn new(
        shared: Arc<Shared>,
        links: L,
        events: mpsc::Sender<OwnerEvent>,
        migrate_out: Option<MigrateOut>,
    ) -> OwnerHost<L> {
        let table = Arc::clone(&shared.hot.snapshot().table);
        OwnerHost {
            shared,
            links,
            events,
            migrate_out,
            actions: Vec::new(),
            transfers: BTreeMap::new(),
            book: LeaseBook::default(),
            table,
            validity: Validity::NONE,
            locked_out: None,
            reported: (Instant::ZERO, 0),
        }
    }

    /// Lets readers see what the machine holds now.
    fn publish(&mut self, machine: &OwnerMachine) {
        let validity = self.validity_of(machine.expiry());
        let is_new = self.book.update(machine) | !is_same_space(self.table.space(), machine.kind());
        if !is_new && validity == self.validity {
            return;
        }
        if is_new {
            let table = LeaseTable::new(&self.book.leases()).with_space(KeySpace::of(machine.kind()));
            self.table = Arc::new(table.with_load_per_check(self.shared.load_per_check));
            self.shared.count_in(Arc::clone(&self.table));
        }
        self.validity = validity;
        self.shared.hot.publish(Arc::clone(&self.table), validity);
    }

    /// A changed expiry counts from the latest report: the machine acts on nothing that does not acknowledge it.
    fn validity_of(&self, expiry: Instant) -> Validity {
        if expiry == self.validity.expiry {
            return self.validity;
        }
        let (sent_at, offset) = self.reported;
        let slack = Drift::default().pause_for(expiry.since(sent_at)).min(LONGEST_SLACK);
        Validity { expiry, offset, slack: nanos(slack) }
    }

    fn act(&mut self, now: Instant, action: OwnerAction) {
        match action {
            OwnerAction::ToManager { to, message } => {
                if matches!(message, OwnerToManager::Report(_)) {
                    self.reported = (now, clock::wall_offset(now));
                    self.shared.reported_at.store(now.0, Ordering::Relaxed);
                }
                self.links.send(&to, message);
            }
            OwnerAction::Granted(grants) => grants.iter().for_each(|grant| self.granted(grant)),
            OwnerAction::Renumbered(renumbered) => {
                for Renumbered { range, from, to } in renumbered {
                    self.shared.tell(Change::Renumbered { range, from, to });
                }
            }
            OwnerAction::Revoked(revoked) => revoked.iter().for_each(|lease| self.revoked(lease)),
            OwnerAction::StartTransfer { transfer, range, generation, to, term } => {
                self.start_transfer(transfer, (range, generation), to, term);
            }
            OwnerAction::Freeze { transfer, to: Some(_), .. } => {
                let frozen = self.transfers.get_mut(&transfer).and_then(|running| running.frozen.take());
                if let Some(frozen) = frozen {
                    // A task that ended meanwhile has said how.
                    let _ = frozen.send(());
                }
            }
            OwnerAction::Freeze { transfer, range, to: None, .. } => self.give_back(transfer, range),
            OwnerAction::StopTransfer(transfer) => self.stop(transfer),
            OwnerAction::DiscardImport { range } => self.discard(range),
            OwnerAction::ImportNoted { range, source } => self.shared.imports.noted(range, source),
            OwnerAction::ImportRefused { range, source } => {
                self.shared.discard_hooks.iter().for_each(|hook| hook(range, Some(source)));
                self.shared.imports.refused(range, source);
            }
            OwnerAction::SessionChanged(session) => self.shared.set_session(session),
            OwnerAction::Drained => {
                self.shared.tell(Change::Drained);
                self.shared.status.send_modify(|status| status.is_drained = true);
            }
            OwnerAction::Undrained => self.shared.status.send_modify(|status| {
                status.is_drained = false;
                status.undrains += 1;
            }),
            OwnerAction::Left => self.shared.left(),
            OwnerAction::JoinRefused(why) => {
                if why == RefusedReason::StaleTerm {
                    tracing::warn!(
                        "refused by a Manager whose term is lower than one seen before: it has been replaced and will notice, or \
                         Managers without disk had their clocks set back: their status says what to do"
                    );
                }
                self.shared.tell(Change::Refused(why));
                self.shared.status.send_modify(|status| status.refused = Some(why));
                if why.is_final() && self.locked_out.is_none() {
                    let is_evicted = why == RefusedReason::Evicted;
                    self.locked_out =
                        Some(if is_evicted { LeftReason::Evicted } else { LeftReason::WrongKind });
                    // If there is no room, the leases run out by themselves: nobody renews them.
                    let _ = self.events.try_send(OwnerEvent::Leave);
                }
            }
            OwnerAction::Joined => {
                self.shared.tell(Change::Joined);
                let joined = |status: &mut Status| {
                    status.is_joined = true;
                    status.refused = None;
                };
                self.shared.status.send_modify(joined);
            }
        }
    }

    fn granted(&self, grant: &Grant) {
        let Grant { range, generation, state_since, source } = *grant;
        self.shared.imports.granted(range);
        let continuous_from = generation;
        self.shared.tell(Change::Granted(Lease { range, generation, continuous_from, state_since, source }));
    }

    fn revoked(&self, revoked: &Revocation) {
        let Revocation { range, generation, why } = *revoked;
        self.shared.tell(Change::Revoked { range, generation, why });
    }

    /// The hooks run here and now: a copy that arrives later must not be taken for the one discarded.
    fn discard(&self, range: KeyRange) {
        self.shared.discard_hooks.iter().for_each(|hook| hook(range, None));
        for (range, from, transfer) in self.shared.imports.discard(range) {
            self.shared.tell(Change::ImportDiscarded { range, from, transfer });
        }
    }

    fn start_transfer(
        &mut self,
        transfer: TransferId,
        (range, generation): (KeyRange, Generation),
        to: Destination,
        term: Term,
    ) {
        let Some(migrate) = self.migrate_out.clone() else { return };
        let (freeze, frozen) = oneshot::channel();
        let out = MigrationOut {
            range,
            generation,
            to,
            term,
            transfer,
            session: self.shared.session(),
            events: self.events.clone(),
            frozen: Some(frozen),
            in_flight: Arc::clone(&self.shared.in_flight),
        };
        let events = self.events.clone();
        let task = tokio::spawn(async move {
            let event = moved(migrate, out).await;
            // Waits for room: without this word the range would stay frozen until the Manager's patience ends. A driver that
            // is gone has given the lease up.
            let _ = events.send(event).await;
        });
        self.transfers.insert(transfer, Running { task: task.abort_handle(), frozen: Some(freeze) });
        self.transfers.retain(|_, running| !running.task.is_finished());
    }

    fn give_back(&mut self, transfer: TransferId, range: KeyRange) {
        let (in_flight, events) = (Arc::clone(&self.shared.in_flight), self.events.clone());
        let task = tokio::spawn(async move {
            in_flight.quiet(range).await;
            // A driver that is gone has given the lease up.
            let _ = events.send(OwnerEvent::Quiesced(transfer)).await;
        });
        self.transfers.insert(transfer, Running { task: task.abort_handle(), frozen: None });
    }

    fn stop(&mut self, transfer: TransferId) {
        if let Some(running) = self.transfers.remove(&transfer) {
            running.task.abort();
        }
    }
}

impl<L: Links> Host<OwnerMachine> for OwnerHost<L> {
    fn perform(&mut self, action: OwnerAction) {
        self.actions.push(action);
    }

    fn stepped(&mut self, now: Instant, machine: &OwnerMachine) {
        self.book.note(&self.actions);
        self.publish(machine);
        self.shared.renewal.store(nanos(machine.renewal()), Ordering::Relaxed);
        for action in std::mem::take(&mut self.actions) {
            self.act(now, action);
        }
        if let Some(why) = self.locked_out
            && machine.leases().is_empty()
        {
            self.shared.gone(why);
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl<L> Drop for OwnerHost<L> {
    /// Whatever ended the driver, nothing renews the leases any more: they are not relied on to their last moment.
    fn drop(&mut self) {
        self.shared.hot.clear();
        self.transfers.values().for_each(|running| running.task.abort());
        self.shared.gone(LeftReason::Stopped);
    }
}

/// Runs the application's code in a task of its own, so that its panic is only a failed transfer. It ends with this future.
async fn moved(migrate: MigrateOut, out: MigrationOut) -> OwnerEvent {
    let (transfer, range) = (out.transfer, out.range);
    let mut application = JoinSet::new();
    application.spawn(async move { migrate(out).await });
    let error = match application.join_next().await {
        Some(Ok(Ok(to))) => return OwnerEvent::TransferDone { transfer, to },
        Some(Ok(Err(error))) => error,
        Some(Err(panicked)) => panicked.into(),
        None => MigrationVoid.into(),
    };
    tracing::warn!(%range, %error, "a range could not be moved; it is tried again");
    OwnerEvent::TransferFailed(transfer)
}
