//! The Owner: holds leases, answers for keys locally, and gives ranges back with their state.

mod conversation;
mod event;
mod leases;
mod transfer;

use std::sync::Arc;
use std::time::Duration;

pub use event::{Grant, OwnerAction, OwnerEvent, Renumbered, Revocation, RevokedReason, TransferId};
pub use leases::OwnerLease;

use crate::id::{
    Credential, Generation, LoadDimension, ManagerId, Namespace, Nonce, OwnerName, Secret, Seq, SessionId,
    Term, Url,
};
use crate::injected_bug::{Bug, injected};
use crate::key::{Key, KeyRange};
use crate::load::LoadMeasurement;
use crate::machine::{Machine, Output};
use crate::message::{
    Assign, HeldLease, ManagerToOwner, MovedLease, Refusal, Refused, RefusedReason, Release,
};
use crate::namespace_kind::{ExpectedKind, Mode, NamespaceKind};
use crate::random::Random;
use crate::range_map::RangeMap;
use crate::round_trip::RoundTrip;
use crate::settings::Settings;
use crate::time::Instant;
use crate::timers::Timers;

use conversation::{Conversation, Pending, Search};
use leases::Leases;
use transfer::Transfers;

/// What an Owner is told at its start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OwnerConfig {
    /// Its pool.
    pub namespace: Namespace,
    /// Its name, which its restarts share.
    pub name: OwnerName,
    /// Where callers reach it.
    pub url: Url,
    /// The Managers it may ask.
    pub managers: Arc<[ManagerId]>,
    /// The application knows that the previous process of this name is gone.
    pub takes_over_previous: bool,
    /// Its capacity, in percent of the usual.
    pub weight: u32,
    /// What its load is counted in.
    #[cfg_attr(feature = "serde", serde(default))]
    pub load_dimension: LoadDimension,
    /// Whether the application can move state; if not, every recall is a plain one.
    pub migrates: bool,
    /// Which session it is, with the proof; `None`: it draws one that only machines in tests believe.
    #[cfg_attr(feature = "serde", serde(default))]
    pub credential: Option<Credential>,
    /// The kind of namespace that the application is built for.
    #[cfg_attr(feature = "serde", serde(default))]
    pub expects: ExpectedKind,
}

/// The Owner as a pure machine.
///
/// It promises: a key it answers for is leased to it, by its own clock compared at the moment of the answer; a lease
/// counts from the send of the report that the Manager's message acknowledges; a generation is accepted at most once;
/// a release says "clean" only if the destination itself confirmed the copy after the range was frozen.
/// It never acts on a message that crossed its own report, is not of its conversation, or is of a lower term. It never holds leases of
/// two kinds of keys: if another namespace has the name now, it drops everything before it says a word to its Manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerMachine {
    config: OwnerConfig,
    /// What the namespace is, by the latest welcome: all that is held is held under it.
    kind: Option<NamespaceKind>,
    session: SessionId,
    /// What proves to Managers that it is that session.
    secret: Secret,
    /// The session that it was before its clock jumped, and that may still have its name.
    formerly: Option<SessionId>,
    /// A Manager has committed something that this session said.
    is_member: bool,
    random: Random,
    leases: Leases,
    transfers: Transfers,
    talk: Option<Conversation>,
    /// The last conversation that was given up, and how far it was numbered.
    given_up: Option<(Nonce, Seq)>,
    started_at: Instant,
    /// The number of the latest hello.
    hello: u64,
    seeking: Option<Search>,
    term: Term,
    lease: Duration,
    renewal: Duration,
    round_trip: RoundTrip,
    released: Pending<Release>,
    refused: Pending<Refusal>,
    load: LoadMeasurement,
    draining: Pending<()>,
    drained: bool,
    /// No Manager takes this process any more: an operator evicted it, or it is built for another kind of namespace.
    locked_out: bool,
    leaving: Pending<()>,
    /// There is something the Manager should hear before the next renewal.
    news: bool,
    timers: Timers<Timer>,
    counters: OwnerCounters,
}

/// What an Owner waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Timer {
    /// Report again: the last report was not answered, or crossed a message.
    Report,
    /// Ask all Managers again.
    Hello,
    /// Tell the application that its leases are over. Nothing relies on it.
    Expiry,
    /// Try the failed transfers again.
    Transfers,
}

/// What an Owner counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct OwnerCounters {
    /// Messages dropped because they crossed a report.
    pub races: u64,
    /// Messages that were not new.
    pub duplicates: u64,
    /// Messages of another conversation.
    pub foreign: u64,
    /// Messages of a lower term.
    pub stale_terms: u64,
    /// Messages that acknowledge what was never sent, or whose ranges overlap.
    pub malformed: u64,
    /// Leases refused.
    pub refused: u64,
    /// Leases that ran out.
    pub expired: u64,
}

/// Why an Owner does not answer for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotOwner {
    /// It has no lease on the key, or the lease ran out.
    NoLease,
    /// The key is about to move; its next owner is known soon.
    Moving,
}

impl OwnerMachine {
    /// An Owner that begins with [`OwnerEvent::Start`].
    #[must_use]
    pub fn new(config: OwnerConfig, mut random: Random) -> OwnerMachine {
        let drawn = Credential::unproven(random.nonce());
        let Credential { session, secret } = config.credential.unwrap_or(drawn);
        OwnerMachine {
            config,
            kind: None,
            session,
            secret,
            formerly: None,
            is_member: false,
            random,
            leases: Leases::default(),
            transfers: Transfers::default(),
            talk: None,
            given_up: None,
            started_at: Instant::NEVER,
            hello: 0,
            seeking: None,
            term: Term::ZERO,
            lease: conversation::FIRST_LEASE,
            renewal: conversation::FIRST_LEASE / 4,
            round_trip: RoundTrip::assumed(),
            released: Pending::default(),
            refused: Pending::default(),
            load: LoadMeasurement::default(),
            draining: Pending::default(),
            drained: false,
            locked_out: false,
            leaving: Pending::default(),
            news: false,
            timers: Timers::default(),
            counters: OwnerCounters::default(),
        }
    }

    /// How often it reports.
    #[must_use]
    pub fn renewal(&self) -> Duration {
        self.renewal
    }

    /// The process this is.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The pool it belongs to.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.config.namespace
    }

    /// What the namespace is, which gives keys their meaning; `None` before the first welcome.
    #[must_use]
    pub fn kind(&self) -> Option<&NamespaceKind> {
        self.kind.as_ref()
    }

    /// The highest term seen.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term
    }

    /// What it counts.
    #[must_use]
    pub fn counters(&self) -> &OwnerCounters {
        &self.counters
    }

    /// What it holds until [`OwnerMachine::expiry`].
    #[must_use]
    pub fn leases(&self) -> &RangeMap<OwnerLease> {
        self.leases.held()
    }

    /// The number under which each key that it holds was accepted: the key has been held without a gap since.
    #[must_use]
    pub fn accepted(&self) -> &RangeMap<Generation> {
        self.leases.accepted()
    }

    /// The instant, by its own clock, from which it answers for no key.
    #[must_use]
    pub fn expiry(&self) -> Instant {
        if injected(Bug::ExpiryByTimer) { Instant::NEVER } else { self.leases.expiry() }
    }

    /// Whether an operation on `key` may begin now, and under which lease.
    pub fn check_lease_now(&self, now: Instant, key: Key) -> Result<Generation, NotOwner> {
        match self.leases.get(now, key) {
            None => Err(NotOwner::NoLease),
            Some(lease) if lease.frozen && !injected(Bug::TransferWithoutFreeze) => Err(NotOwner::Moving),
            Some(lease) => Ok(lease.generation),
        }
    }

    /// What its leases are taken for.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.config.expects.mode
    }

    /// The number that may leave the process with an answer about `key`, for receivers to refuse lower ones. There is none in affinity
    /// mode: somebody with a higher number may be served beside this process, and a receiver that compared them would refuse one.
    #[must_use]
    pub fn fencing_token(&self, now: Instant, key: Key) -> Option<Generation> {
        let is_exclusive = self.mode() == Mode::Exclusive || injected(Bug::AffinityPassesFence);
        self.check_lease_now(now, key).ok().filter(|_| is_exclusive)
    }

    /// Whether `key` has been held without a gap since it was held under `lease`. Because no generation is accepted twice,
    /// holding it now, under that number or under one that it was given since, is enough.
    #[must_use]
    pub fn check_lease_continuous(&self, now: Instant, key: Key, lease: Generation) -> bool {
        self.leases.is_continuous(now, key, lease)
    }

    fn on_start(&mut self, now: Instant, out: &mut Vec<OwnerAction>) {
        self.started_at = self.started_at.min(now);
        self.seek(now, out);
    }

    fn on_manager_message(
        &mut self,
        now: Instant,
        from: ManagerId,
        message: ManagerToOwner,
        out: &mut Vec<OwnerAction>,
    ) {
        match message {
            ManagerToOwner::Welcome(welcome) => self.on_welcome(now, from, &welcome, out),
            ManagerToOwner::Refused(refused) => {
                if self.awaits(refused.session, refused.number) {
                    self.on_refused(&refused, out);
                }
            }
            ManagerToOwner::Unknown { session, conversation } => {
                let ours = self.talk.as_ref().is_some_and(|talk| talk.side.id == conversation);
                if session == self.session && ours {
                    self.seek(now, out);
                }
            }
            ManagerToOwner::NotLeader { .. } => {
                if self.talk.as_ref().is_some_and(|talk| talk.manager == from) {
                    self.seek(now, out);
                }
            }
            ManagerToOwner::Assign(assign) => self.on_assign(now, &assign, out),
        }
    }

    fn on_refused(&mut self, refused: &Refused, out: &mut Vec<OwnerAction>) {
        if refused.namespace.as_ref().is_some_and(|namespace| *namespace != self.config.namespace) {
            self.counters.foreign += 1;
            return;
        }
        match refused.why {
            // Managers without a store may differ in what they are told of a namespace: the latest leader counts.
            RefusedReason::WrongKeys | RefusedReason::WrongMode if refused.term < self.term => {
                self.counters.stale_terms += 1;
            }
            why if why.is_final() => self.on_locked_out(why, out),
            why => out.push(OwnerAction::JoinRefused(why)),
        }
    }

    fn on_assign(&mut self, now: Instant, assign: &Assign, out: &mut Vec<OwnerAction>) {
        if self.takes(now, assign) {
            self.apply(now, assign, out);
        }
    }

    /// Acts on a message that belongs to the conversation and acknowledges the latest report.
    fn apply(&mut self, now: Instant, assign: &Assign, out: &mut Vec<OwnerAction>) {
        let Some(talk) = &mut self.talk else { return };
        if assign.applied > Seq::ZERO && !std::mem::replace(&mut talk.is_joined, true) {
            out.push(OwnerAction::Joined);
        }
        let from_receipt = injected(Bug::ExpiryFromReceipt);
        let base = if from_receipt { now } else { talk.side.sent_at };
        self.lease = assign.lease;
        self.renewal = assign.renewal;
        if now >= base + assign.lease && !injected(Bug::LateMessageRefuses) {
            // It could give nothing but leases that are over. What it offers is offered again, with time left.
            self.settle_pending(assign, out);
            return self.answer(now, true, out);
        }
        talk.side.applied = assign.seq;
        let void = self.leases.forget_void(&assign.void, talk.side.sent_at, assign.term);
        out.extend(void.into_iter().map(|range| OwnerAction::DiscardImport { range }));
        let applied = self.leases.apply(now, base, assign.lease, &assign.orders);
        self.counters.refused += applied.refused.len() as u64;
        self.revoked(applied.revoked, out);
        out.extend(applied.discarded.into_iter().map(|range| OwnerAction::DiscardImport { range }));
        if !applied.renumbered.is_empty() {
            out.push(OwnerAction::Renumbered(applied.renumbered));
        }
        if !applied.granted.is_empty() {
            out.push(OwnerAction::Granted(applied.granted));
        }
        for refusal in applied.refused {
            self.news |= self.refused.add(refusal);
        }
        self.follow_recalls(now, &assign.orders, out);
        self.timers.set(Timer::Expiry, self.leases.expiry());
        self.settle_pending(assign, out);
        self.answer(now, assign.wants_answer, out);
    }

    /// Forgets what the Manager has applied.
    fn settle_pending(&mut self, assign: &Assign, out: &mut Vec<OwnerAction>) {
        let speaks_of_moves = self.speaks_of_moves();
        if injected(Bug::ReleaseForgottenOnceHeard) {
            self.released.settle(assign.heard);
        } else if !injected(Bug::ReleaseWithoutGeneration) {
            self.released.settle_but(assign.applied, |release| is_repeated(release, &assign.repeat));
        }
        self.refused.settle(assign.applied);
        if assign.applied > Seq::ZERO {
            // The session is real. Whoever has the name after it is not a process that the application spoke of.
            self.config.takes_over_previous = false;
            self.is_member = true;
        }
        let nothing_left = assign.orders.is_empty() && self.leases.held().is_empty();
        let is_told = assign.drained && self.leases.imports().is_empty();
        let is_drained = nothing_left && (is_told || injected(Bug::DrainedTooEarly));
        if self.draining.is_settled(assign.applied) && is_drained && !self.drained {
            self.drained = true;
            out.push(OwnerAction::Drained);
        }
        if assign.evicted {
            self.on_unwanted(RefusedReason::Evicted, out);
        }
        if speaks_of_moves {
            // Its last report has to show that it speaks of them no more.
            self.news |= self.is_going() && !self.speaks_of_moves();
        } else if self.leaving.is_settled(assign.applied) {
            self.leaving.clear();
            self.talk = None;
            self.timers = Timers::default();
            out.push(OwnerAction::Left);
        }
    }

    /// Whether its reports say of some lease that its state was moved, so that a leader without a store can act on it.
    fn speaks_of_moves(&self) -> bool {
        self.released.iter().any(|release| release.warrant.is_some())
    }

    fn revoked(&mut self, revoked: Vec<Revocation>, out: &mut Vec<OwnerAction>) {
        if revoked.is_empty() {
            return;
        }
        self.counters.expired += revoked.iter().filter(|r| r.why == RevokedReason::Expired).count() as u64;
        for stopped in self.transfers.void(&self.leases) {
            out.push(OwnerAction::StopTransfer(stopped));
        }
        out.push(OwnerAction::Revoked(revoked));
        self.news = true;
    }

    /// Gives up everything and says so with the next report. What a report has no room for it says by not listing it.
    fn give_up_all(&mut self, out: &mut Vec<OwnerAction>) {
        let room = Settings::MOST_MOVES.saturating_sub(self.released.iter().count());
        for held in self.leases.report().into_iter().take(room) {
            let HeldLease { range, generation, state_since, .. } = held;
            self.released.add(Release { range, generation, clean_to: None, state_since, warrant: None });
        }
        let revoked = self.leases.close();
        self.revoked(revoked, out);
        self.leaving.add(());
        self.news = true;
    }

    /// This process is not wanted any more: it gives everything back and never asks again, whoever leads.
    fn on_unwanted(&mut self, why: RefusedReason, out: &mut Vec<OwnerAction>) {
        if !std::mem::replace(&mut self.locked_out, true) {
            out.push(OwnerAction::JoinRefused(why));
            self.give_up_all(out);
        }
    }

    /// No Manager talks to this process any more, for good.
    fn on_locked_out(&mut self, why: RefusedReason, out: &mut Vec<OwnerAction>) {
        self.on_unwanted(why, out);
        self.talk = None;
        self.seeking = None;
        self.timers = Timers::default();
    }

    fn on_drain(&mut self, now: Instant, out: &mut Vec<OwnerAction>) {
        self.draining.add(());
        self.tell(now, out);
    }

    fn on_undrain(&mut self, now: Instant, out: &mut Vec<OwnerAction>) {
        self.draining.clear();
        self.drained = false;
        out.push(OwnerAction::Undrained);
        self.tell(now, out);
    }

    fn on_leave(&mut self, now: Instant, out: &mut Vec<OwnerAction>) {
        self.give_up_all(out);
        if self.talk.is_none() && self.seeking.is_none() {
            out.push(OwnerAction::Left);
        }
        self.tell(now, out);
    }

    fn expire(&mut self, now: Instant, out: &mut Vec<OwnerAction>) {
        if now >= self.leases.expiry() && !injected(Bug::MoveRepeatedAfterLapse) {
            // A leader that does not know of the moves may have granted the keys to somebody else.
            self.released.update(|release| release.warrant = None);
        }
        if !injected(Bug::ExpiryByTimer) && !injected(Bug::RenewalRevives) {
            let expired = self.leases.expire(now);
            self.revoked(expired, out);
        }
    }

    /// Notes a copy, unless this Owner goes: whatever came to it would only have to move on. Nor is a straggler noted that a
    /// later lease, or a later copy, has overtaken.
    fn on_import_ready(
        &mut self,
        now: Instant,
        (range, source, term): (KeyRange, Generation, Term),
        out: &mut Vec<OwnerAction>,
    ) {
        let is_new = !self.leases.has_import(range, source);
        let goes = self.is_going() && !injected(Bug::DrainedTooEarly);
        let is_stale = self.leases.is_overtaken(range, source) && !injected(Bug::StaleCopyNoted);
        if (goes && is_new) || is_stale {
            return out.push(OwnerAction::ImportRefused { range, source });
        }
        self.leases.import(now, range, source, term);
        out.push(OwnerAction::ImportNoted { range, source });
    }

    fn finish(&self, actions: Vec<OwnerAction>) -> Output<OwnerAction> {
        Output { actions, wake: self.timers.next() }
    }
}

impl Machine for OwnerMachine {
    type Event = OwnerEvent;
    type Action = OwnerAction;

    fn on_event(&mut self, now: Instant, event: OwnerEvent) -> Output<OwnerAction> {
        let mut out = Vec::new();
        self.expire(now, &mut out);
        match event {
            OwnerEvent::Start => self.on_start(now, &mut out),
            OwnerEvent::FromManager { from, message } => {
                self.on_manager_message(now, from, message, &mut out)
            }
            OwnerEvent::Disconnected(from) => self.on_disconnected(now, &from),
            OwnerEvent::ManagersChanged(managers) => self.on_managers_changed(now, managers, &mut out),
            OwnerEvent::TransferReady(transfer) => self.on_transfer_ready(transfer, &mut out),
            OwnerEvent::TransferDone { transfer, to } => self.on_transfer_done(now, transfer, to, &mut out),
            OwnerEvent::TransferFailed(transfer) => self.on_transfer_failed(now, transfer, &mut out),
            OwnerEvent::Quiesced(transfer) => self.on_quiesced(now, transfer, &mut out),
            OwnerEvent::ImportReady { range, source, term } => {
                self.on_import_ready(now, (range, source, term), &mut out);
            }
            OwnerEvent::Load(measured) => {
                let is_urgent = measured.is_urgent;
                self.load = measured;
                if is_urgent {
                    self.tell(now, &mut out);
                }
            }
            OwnerEvent::Weight(weight) => {
                self.config.weight = weight;
                self.tell(now, &mut out);
            }
            OwnerEvent::Drain => self.on_drain(now, &mut out),
            OwnerEvent::Undrain => self.on_undrain(now, &mut out),
            OwnerEvent::Leave => self.on_leave(now, &mut out),
            OwnerEvent::ClockJumped { fresh } => self.on_clock_jumped(now, fresh, &mut out),
            OwnerEvent::Cloned { fresh } => self.on_cloned(now, fresh, &mut out),
        }
        self.finish(out)
    }

    fn on_wake(&mut self, now: Instant) -> Output<OwnerAction> {
        let mut out = Vec::new();
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Report => self.on_report_due(now, &mut out),
                Timer::Hello => self.on_hello_due(now, &mut out),
                Timer::Expiry if injected(Bug::RenewalRevives) => {}
                Timer::Expiry => {
                    let expired = self.leases.expire(now);
                    self.revoked(expired, &mut out);
                }
                Timer::Transfers => self.on_transfers_due(&mut out),
            }
        }
        self.finish(out)
    }
}

/// Whether the Manager wants to hear of a release again, though it has applied it.
fn is_repeated(release: &Release, repeat: &[MovedLease]) -> bool {
    let same =
        |moved: &MovedLease| moved.generation == release.generation && moved.range.overlaps(release.range);
    release.clean_to.is_some() && repeat.iter().any(same)
}
