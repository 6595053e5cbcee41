//! Performs what the Manager's machine decides, and shows readers what came of it. Never waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant as WallInstant, SystemTime};

use centrifuge_core::id::{Index, ManagerId};
use centrifuge_core::machine::Machine;
use centrifuge_core::manager::{
    AdminError, ElectionCommand, ManagerAction, ManagerMachine, RoleName, Skip, StoreCommand, StreamId,
};
use centrifuge_core::message::{ManagerToLookup, ManagerToOwner};
use centrifuge_core::record::Batch;
use centrifuge_core::time::Instant;
use centrifuge_net::convert::NewsEncoder;
use centrifuge_net::driver::Host;
use tonic::Status;
use tracing::{debug, info, warn};

use crate::journal::{self, Names};
use crate::peers::Sent;
use crate::shared::Shared;
use crate::store::StoreHandle;
use crate::trim_log::TrimLog;
use crate::view::{Overview, RoleView};

/// How old what readers see of sessions and Lookups may become while something happens.
const OVERVIEW_EVERY: Duration = Duration::from_secs(1);

/// The Manager's host.
pub(crate) struct ManagerHost {
    me: ManagerId,
    shared: Arc<Shared>,
    store: StoreHandle,
    encoder: NewsEncoder,
    /// Where the store was given a batch that is not known to be committed, and since when.
    under_way: Option<(Index, WallInstant)>,
    /// Answers to operators, given once readers see what they speak of.
    replies: Vec<(u64, Result<(), AdminError>)>,
    committed: bool,
    skipped: BTreeMap<centrifuge_core::manager::MessageSkip, u64>,
    shown: RoleView,
    resigned: bool,
    overview_at: Option<Instant>,
    trim_log: TrimLog,
}

impl ManagerHost {
    /// A host that has performed nothing.
    #[must_use]
    pub(crate) fn new(me: ManagerId, shared: Arc<Shared>, store: StoreHandle) -> ManagerHost {
        ManagerHost {
            shown: shared.view.role(),
            me,
            shared,
            store,
            encoder: NewsEncoder::new(),
            under_way: None,
            replies: Vec::new(),
            committed: false,
            skipped: BTreeMap::new(),
            resigned: false,
            overview_at: None,
            trim_log: TrimLog::default(),
        }
    }

    /// The store, once the driver has ended.
    #[must_use]
    pub(crate) fn into_store(self) -> StoreHandle {
        self.store
    }

    fn send_owner(&self, to: StreamId, message: ManagerToOwner) {
        if self.shared.owners.send(to, message) == Sent::Full {
            // As a network would: the machine's timers send again.
            self.shared.metrics.owner_messages_dropped.inc();
            if let Some(suppressed) = self.shared.quiet.admit("slow-owner") {
                debug!(suppressed, "a message was dropped because an Owner reads too slowly");
            }
        }
    }

    fn send_lookup(&mut self, to: StreamId, message: &ManagerToLookup) {
        let lookups = &self.shared.lookups;
        match lookups.send(to, self.encoder.frame(message)) {
            Sent::Full => {
                self.shared.metrics.slow_lookups.inc();
                lookups
                    .end(to, Some(Status::resource_exhausted("read too slowly: resume from your position")));
                if let Some(suppressed) = self.shared.quiet.admit("slow-lookup") {
                    info!(suppressed, "a Lookup's stream ended because it reads too slowly; it can resume");
                }
            }
            Sent::Queued if ends_watch(message) => lookups.end(to, None),
            Sent::Queued | Sent::Gone => {}
        }
    }

    /// The batch is in force. Nothing else can be under way: readers see each as the machine does.
    fn show_commit(&mut self, index: Index, batch: &Batch) {
        self.shared.metrics.commits.inc();
        if let Some((_, sent_at)) = self.under_way.take_if(|(under_way, _)| *under_way == index) {
            self.shared.metrics.commit_seconds.observe(sent_at.elapsed().as_secs_f64());
        }
        self.show_batch(index, batch);
        self.committed = true;
    }

    fn ask_store(&mut self, command: StoreCommand) {
        match &command {
            // A repeated one counts from its first try.
            StoreCommand::Append { index, .. } if self.under_way.is_none_or(|(first, _)| first != *index) => {
                self.under_way = Some((*index, WallInstant::now()));
            }
            StoreCommand::Compact { .. } => {
                self.shared.metrics.compactions.inc();
            }
            _ => {}
        }
        self.store.send(command);
    }

    fn show_batch(&self, index: Index, batch: &Batch) {
        let before = self.shared.view.group();
        let mut names = Names::new();
        journal::learn_names(&mut names, batch, before.as_deref());
        journal::note(batch, before.as_deref(), &names, &self.shared.metrics);
        self.shared.history.push(SystemTime::now(), index, batch, &names);
        // Given back first: what nobody reads is changed in place.
        drop(before);
        self.shared.view.commit(batch);
    }

    fn show_role(&mut self, machine: &ManagerMachine) {
        let role = machine.role();
        let leader =
            if matches!(role, RoleName::Leader { .. }) { Some(&self.me) } else { machine.known_leader() };
        if self.shown.role == role && self.shown.leader.as_ref() == leader {
            return;
        }
        let leader = leader.cloned();
        let was_leading = self.shown.is_leading();
        if let RoleName::Leader { term } = role {
            self.shown.term = term;
            // Shown before the role: a reader that sees a leader finds its state.
            self.shared.view.show_group(machine.group().cloned().map(Arc::new));
        } else if was_leading {
            self.shared.view.show_group(None);
        }
        self.shown = RoleView { role, term: self.shown.term, leader };
        self.shared.view.show_role(self.shown.clone());
        self.log_role(was_leading);
        if role == RoleName::Standby {
            self.under_way = None;
        }
    }

    fn log_role(&self, was_leading: bool) {
        let RoleView { role, term, leader } = &self.shown;
        let metrics = &self.shared.metrics;
        metrics.leading.set(i64::from(self.shown.is_leading()));
        metrics.term.set(term.0.cast_signed());
        if self.shown.is_leading() {
            metrics.terms.inc();
            info!(term = term.0, "this Manager leads");
        } else if was_leading {
            let why = if self.resigned { "resigned" } else { "its leader lease is over" };
            metrics.leaderships_lost.inc_by(u64::from(!self.resigned));
            info!(term = term.0, why, "this Manager does not lead any more");
        } else {
            let leader = leader.as_ref().map(tracing::field::display);
            info!(role = role.as_str(), leader, "the role changed");
        }
    }

    fn show_skips(&mut self, machine: &ManagerMachine) {
        for (why, count) in &machine.counters().skipped {
            let seen = self.skipped.entry(*why).or_default();
            if *seen < *count {
                let label = why.as_str();
                self.shared.metrics.messages_skipped.with([label]).inc_by(*count - *seen);
                *seen = *count;
            }
        }
    }

    fn show_overview(&mut self, now: Instant, machine: &ManagerMachine) {
        if self.overview_at.is_none_or(|at| now.since(at) >= OVERVIEW_EVERY) {
            self.overview_at = Some(now);
            self.shared.view.show_overview(Overview { at: now, namespaces: machine.overview(now) });
        }
    }
}

impl Host<ManagerMachine> for ManagerHost {
    fn perform(&mut self, action: <ManagerMachine as Machine>::Action) {
        match action {
            ManagerAction::ToOwner { to, message } => self.send_owner(to, message),
            ManagerAction::ToLookup { to, message } => self.send_lookup(to, &message),
            ManagerAction::Election(command) => {
                self.resigned |= matches!(command, ElectionCommand::Resign { .. });
                self.store.send(command);
            }
            ManagerAction::Store(command) => self.ask_store(command),
            ManagerAction::Committed { index, batch } => self.show_commit(index, &batch),
            ManagerAction::AdminReply { request, result } => self.replies.push((request, result)),
            ManagerAction::RoleChanged(role) => {
                // Another term: nothing of this one was resigned yet.
                self.resigned &= role == RoleName::Standby;
            }
            ManagerAction::Skip(Skip::Claim { namespace, session, range, generation, why }) => {
                let why = why.as_str();
                self.shared.metrics.claims_refused.with([namespace.as_str(), why]).inc();
                if let Some(suppressed) = self.shared.quiet.admit("claim-refused") {
                    warn!(%namespace, %session, %range, generation = generation.0, why, suppressed, "a claim was refused");
                }
            }
            ManagerAction::Skip(Skip::Trim { namespace, why }) => {
                self.shared.metrics.trim_skips.with([namespace.as_str(), why.as_str()]).inc();
            }
            ManagerAction::Trimmed(news) => self.trim_log.note(&news, &self.shared.metrics),
            ManagerAction::Skip(skip) => {
                if let Some(by) = skip.put_off() {
                    self.shared.metrics.decisions_waiting.with(by.into()).inc();
                }
            }
        }
    }

    fn stepped(&mut self, now: Instant, machine: &ManagerMachine) {
        self.show_role(machine);
        debug_assert!(
            !std::mem::take(&mut self.committed)
                || !self.shown.is_leading()
                || self.shared.view.group().as_deref() == machine.group(),
            "readers see what is committed"
        );
        self.show_skips(machine);
        self.show_overview(now, machine);
        for (request, result) in self.replies.drain(..) {
            self.shared.replies.answer(request, result);
        }
    }
}

/// Whether nothing follows a message on its watch: the Lookup can only ask again, or not at all.
fn ends_watch(message: &ManagerToLookup) -> bool {
    matches!(message, ManagerToLookup::UnknownNamespace { .. } | ManagerToLookup::WrongKind { .. })
}
