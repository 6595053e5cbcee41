//! The Lookup: a whole copy of the lease table in every caller, and the truth about what was lost.

mod asking;
mod contact;
mod event;
mod losses;
mod news;

use std::sync::Arc;
use std::time::Duration;

pub use event::*;

use self::asking::Asking;
use self::contact::Contact;
use self::losses::Losses;
use self::news::Dropped;
use crate::id::{Generation, Lsn, ManagerId, Namespace, Nonce, Seq, Term};
use crate::injected_bug::{Bug, injected};
use crate::key::{Key, KeyRange};
use crate::machine::{Machine, Output};
use crate::message::{LookupRequest, ManagerToLookup, Position, Update, UpdateBody};
use crate::namespace_kind::{ExpectedKind, KindMismatch, NamespaceKind};
use crate::random::Random;
use crate::range_map::RangeMap;
use crate::range_set::RangeSet;
use crate::settings::SettingsError;
use crate::table::{PublishedEntry, PublishedOwner};
use crate::time::Instant;

/// What a Lookup is told at its start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LookupConfig {
    /// The pool whose table it keeps.
    pub namespace: Namespace,
    /// Every Manager, leader or not.
    pub managers: Arc<[ManagerId]>,
    /// How often it asks when all is well.
    pub poll: Duration,
    /// How old its knowledge may become before it must take everything for lost.
    pub contact_timeout: Duration,
    /// How long it waits for a lost range's next owner before it raises the loss without one.
    pub unowned_delay: Duration,
    /// How long a request may go unanswered before all Managers are asked.
    pub silence: Duration,
    /// The kind of namespace that the application is built for.
    #[cfg_attr(feature = "serde", serde(default))]
    pub expects: ExpectedKind,
}

impl LookupConfig {
    /// The default times: polls as in Centrifuge §2.2.1, the rest from the design.
    #[must_use]
    pub fn new(namespace: Namespace, managers: Arc<[ManagerId]>) -> LookupConfig {
        LookupConfig {
            namespace,
            managers,
            poll: Duration::from_secs(30),
            contact_timeout: Duration::from_secs(90),
            unowned_delay: Duration::from_secs(30),
            silence: Duration::from_secs(5),
            expects: ExpectedKind::default(),
        }
    }

    /// Refuses times under which an ordinary failover would look like a loss of everything.
    ///
    /// `leader_hold` is the leader lease times the drift bound, `election` what choosing a new leader takes after it.
    pub fn check(&self, leader_hold: Duration, election: Duration) -> Result<(), SettingsError> {
        if self.poll.is_zero() || self.silence.is_zero() {
            return Err(SettingsError::ZeroInterval);
        }
        let quiet = leader_hold.saturating_add(election).saturating_add(self.poll.saturating_mul(2));
        if self.contact_timeout <= quiet {
            return Err(SettingsError::ContactTooShort);
        }
        Ok(())
    }
}

/// What the table says of a range, as Lookups see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// Who holds it, if anyone does.
    pub owner: Option<PublishedOwner>,
    /// The last lease granted on it.
    pub generation: Generation,
    /// The lease at which its state last began empty.
    pub state_since: Generation,
    /// Nobody owns it, and nobody will before an operator or time ends that: Owners that got it died.
    pub quarantined: bool,
}

impl From<&PublishedEntry> for Row {
    fn from(entry: &PublishedEntry) -> Row {
        let PublishedEntry { owner, generation, state_since, quarantined, .. } = entry;
        let (generation, state_since, quarantined) = (*generation, *state_since, *quarantined);
        Row { owner: owner.clone(), generation, state_since, quarantined }
    }
}

/// Where a key's requests should go, as far as this Lookup knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route<'a> {
    /// Who holds the key, if anyone does.
    pub owner: Option<&'a PublishedOwner>,
    /// The last lease granted on it.
    pub generation: Generation,
    /// The keys around it of which the same is true.
    pub range: KeyRange,
    /// Nobody owns it, and nobody will soon: Owners that got it died.
    pub quarantined: bool,
}

/// What a Lookup has met so far. Each dropped message is counted under the one reason it was dropped for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct LookupCounters {
    /// Requests made; one that went to all Managers counts once.
    pub requests: u64,
    /// Requests that went to all Managers.
    pub broadcasts: u64,
    /// Snapshots that replaced the table.
    pub snapshots: u64,
    /// Runs of changes that were applied.
    pub changes: u64,
    /// Snapshots and changes that said nothing new.
    pub duplicates: u64,
    /// Messages that showed that the table is behind.
    pub gaps: u64,
    /// Times that everything was taken for lost because knowledge was too old.
    pub out_of_contact: u64,
    /// Answers of Managers that do not lead.
    pub not_leader: u64,
    /// Dropped: the sender is not on the list of Managers.
    pub unknown_manager: u64,
    /// Dropped: about another namespace.
    pub other_namespace: u64,
    /// Dropped: for another Lookup, or another life of this one.
    pub other_lookup: u64,
    /// Dropped: echoes a request that was never made.
    pub never_sent: u64,
    /// Dropped: from a leader whose term is over.
    pub lower_term: u64,
    /// Dropped: a straggler of a change log that was left for another.
    pub left_log: u64,
    /// Dropped: a snapshot with a hole, an overlap or an impossible entry.
    pub bad_snapshot: u64,
    /// Dropped: changes without entries, with an impossible entry, or that lead nowhere.
    pub bad_changes: u64,
}

impl LookupCounters {
    fn count(&mut self, dropped: Dropped) {
        *match dropped {
            Dropped::OtherNamespace => &mut self.other_namespace,
            Dropped::OtherLookup => &mut self.other_lookup,
            Dropped::NeverSent => &mut self.never_sent,
            Dropped::LowerTerm => &mut self.lower_term,
            Dropped::LeftLog => &mut self.left_log,
            Dropped::BadSnapshot => &mut self.bad_snapshot,
            Dropped::BadChanges => &mut self.bad_changes,
        } += 1;
    }
}

/// One Lookup of one namespace.
///
/// It promises that
/// - its table is at every moment one that the Manager published, whole, of the position it names;
/// - every loss of state is raised: when the lost range has its next owner, after a fixed delay without one, or,
///   when its knowledge is older than the contact timeout, as the loss of everything, again and again until it knows
///   better. Changes and snapshots raise the same losses;
/// - a clean migration that it hears of in time raises nothing;
/// - it finds the leader again after any failover, and its table converges once messages arrive.
///
/// It never trusts a timer to notice that contact is lost: every event compares the clock first. It never follows a
/// term lower than one it has seen, never takes a message for news that is not for this very life of it, and never
/// applies changes that do not begin where it stands. A message that breaks these rules changes nothing but a counter.
/// It never mixes tables of two kinds of keys: if another namespace has the name now, it forgets the table and raises the loss of everything.
/// Losses may be spurious: the first grant of a key that no one ever held is one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LookupMachine {
    config: LookupConfig,
    random: Random,
    /// The highest term seen.
    term: Term,
    asking: Asking,
    contact: Contact,
    /// What the namespace is, by the latest news: the table is of it.
    kind: Option<NamespaceKind>,
    /// Why the Lookup asks no more.
    refused: Option<KindMismatch>,
    position: Option<Position>,
    /// The latest request when the position came to be of its log, or the namespace to be what it is: what answers no later one is of an
    /// earlier log, or of an earlier namespace.
    joined_log: Seq,
    /// The furthest position of the log that was heard of.
    heard_of: Position,
    rows: RangeMap<Row>,
    losses: Losses,
    /// How long the leader that answered last may take to learn the first table.
    learning: Option<Duration>,
    counters: LookupCounters,
}

/// What one step wants done, in order.
type Actions = Vec<LookupAction>;

impl LookupMachine {
    /// A Lookup without a table, which asks for one when it is started.
    #[must_use]
    pub fn new(config: LookupConfig, mut random: Random) -> LookupMachine {
        let asking = Asking::new(random.nonce());
        LookupMachine {
            config,
            random,
            term: Term::ZERO,
            asking,
            contact: Contact::default(),
            kind: None,
            refused: None,
            position: None,
            joined_log: Seq::ZERO,
            heard_of: Position { log: Nonce::default(), lsn: Lsn::ZERO },
            rows: RangeMap::new(),
            losses: Losses::default(),
            learning: None,
            counters: LookupCounters::default(),
        }
    }

    /// Where to send what concerns `key`; `None` before the first table.
    #[must_use]
    pub fn lookup(&self, key: Key) -> Option<Route<'_>> {
        let (range, row) = self.rows.get(key)?;
        let Row { owner, generation, quarantined, .. } = row;
        Some(Route { owner: owner.as_ref(), generation: *generation, range, quarantined: *quarantined })
    }

    /// Where in which log the table stands; `None` before the first table.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.position
    }

    /// The whole table; `None` before the first.
    #[must_use]
    pub fn table(&self) -> Option<&RangeMap<Row>> {
        self.position.map(|_| &self.rows)
    }

    /// What the namespace is, which gives keys their meaning; `None` before the first news.
    #[must_use]
    pub fn kind(&self) -> Option<&NamespaceKind> {
        self.kind.as_ref()
    }

    /// Whether all that the Lookup knows was the whole truth at some time within the contact timeout.
    #[must_use]
    pub fn in_contact(&self, now: Instant) -> bool {
        self.contact.is_kept(now, self.config.contact_timeout)
    }

    /// The keys whose state is gone and whose loss waits for their next owner or the end of the delay.
    #[must_use]
    pub fn pending_losses(&self) -> RangeSet {
        self.losses.pending()
    }

    /// How long the leader may take to learn the first table, if that is what the Lookup waits for.
    #[must_use]
    pub fn awaits_learning(&self) -> Option<Duration> {
        self.learning.filter(|_| self.position.is_none())
    }

    /// Whether every Manager was asked, and none that leads has answered yet.
    #[must_use]
    pub fn seeks_leader(&self) -> bool {
        self.asking.asks_all() && self.asking.unanswered_since().is_some()
    }

    /// The highest term seen.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term
    }

    /// What names this life of this Lookup.
    #[must_use]
    pub fn nonce(&self) -> Nonce {
        self.asking.nonce()
    }

    /// What it has met so far.
    #[must_use]
    pub fn counters(&self) -> &LookupCounters {
        &self.counters
    }

    fn on_start(&mut self, now: Instant) {
        if !self.contact.is_watched() {
            self.contact.watch(now + self.config.contact_timeout);
            self.asking.soon(now);
        }
    }

    fn on_managers_changed(&mut self, now: Instant, managers: Arc<[ManagerId]>) {
        self.config.managers = managers;
        self.asking.forget_unlisted(&self.config.managers);
        if self.contact.is_watched() && self.asking.asks_all() {
            self.asking.soon(now);
        }
    }

    fn on_clock_jumped(&mut self, now: Instant, actions: &mut Actions) {
        self.contact.lose(now);
        self.asking.forget_when();
        if self.contact.is_watched() {
            self.asking.soon(now);
        }
        self.let_time_pass(now, actions);
    }

    fn on_manager_message(
        &mut self,
        now: Instant,
        from: &ManagerId,
        message: ManagerToLookup,
        actions: &mut Actions,
    ) {
        if !self.config.managers.contains(from) {
            self.counters.unknown_manager += 1;
            return;
        }
        if self.refused.is_some() {
            return;
        }
        match message {
            ManagerToLookup::NotLeader { leader } => {
                self.counters.not_leader += 1;
                let hint = leader.filter(|hint| hint != from && self.config.managers.contains(hint));
                self.asking.on_not_leader(now, from, hint);
            }
            ManagerToLookup::UnknownNamespace { term, lookup, echo } => {
                match self.check_envelope(lookup, echo, term) {
                    Ok(()) => self.on_unknown_namespace(now, from, term, echo, actions),
                    Err(dropped) => self.counters.count(dropped),
                }
            }
            ManagerToLookup::WrongKind { term, lookup, echo, why, namespace } => {
                let is_other = namespace.is_some_and(|namespace| namespace != self.config.namespace);
                let checked = self.check_envelope(lookup, echo, term);
                match checked.and(if is_other { Err(Dropped::OtherNamespace) } else { Ok(()) }) {
                    Ok(()) => self.on_wrong_kind(why, actions),
                    Err(dropped) => self.counters.count(dropped),
                }
            }
            ManagerToLookup::Update(update) => match self.check_update(&update) {
                Ok(()) => match update.kind.mismatch(self.config.expects) {
                    // The Manager should have refused. It may be of a version that knows of no kinds.
                    Some(why) => self.on_wrong_kind(why, actions),
                    None => self.on_update(now, from, &update, actions),
                },
                Err(dropped) => self.counters.count(dropped),
            },
        }
    }

    /// Only another build or another namespace would help: asking again is of no use.
    fn on_wrong_kind(&mut self, why: KindMismatch, actions: &mut Actions) {
        self.refused = Some(why);
        self.forget_table(actions);
        actions.push(LookupAction::Refused(why));
    }

    /// A leader that does not know the namespace is a leader, but tells nothing about a table that was had before.
    fn on_unknown_namespace(
        &mut self,
        now: Instant,
        from: &ManagerId,
        term: Term,
        echo: Seq,
        actions: &mut Actions,
    ) {
        self.term = self.term.max(term);
        if self.asking.on_answer(from, echo, &self.config) {
            actions.push(LookupAction::UnknownNamespace);
        }
        self.keep_contact(now, echo, self.position.is_none(), actions);
    }

    fn on_update(&mut self, now: Instant, from: &ManagerId, update: &Update, actions: &mut Actions) {
        self.term = update.term;
        self.asking.on_answer(from, update.echo, &self.config);
        self.learn_kind(update, actions);
        if let UpdateBody::Unchanged { hold } = update.body {
            return self.on_unchanged(now, update.echo, hold, actions);
        }
        self.take_news(now, update, actions);
        self.keep_contact(now, update.echo, self.has_all_up_to(news::end_of(update)), actions);
        if !self.has_all_up_to(self.heard_of) {
            self.counters.gaps += 1;
            self.repair(now);
        }
    }

    /// The leader learns the table and will send it when it has it: there is nothing to ask for.
    fn on_unchanged(&mut self, now: Instant, echo: Seq, hold: Duration, actions: &mut Actions) {
        self.learning = Some(hold);
        let (Some(asked), timeout) = (self.asking.sent_at(echo), self.config.contact_timeout) else { return };
        if self.contact.excuse(now, asked, timeout, hold) {
            actions.push(LookupAction::Contact(true));
        }
    }

    /// Asks for what is missing.
    fn repair(&mut self, now: Instant) {
        if injected(Bug::GapNeverRepaired) && self.position.is_some() {
            self.asking.stop();
            return;
        }
        self.asking.soon(now);
    }

    /// Knowledge is as old as the request that was answered, however late the answer comes; and a message that shows
    /// that something is missing keeps no contact, or a Lookup that hears heartbeats alone would miss losses for ever.
    fn keep_contact(&mut self, now: Instant, echo: Seq, is_current: bool, actions: &mut Actions) {
        let asked = self.asking.sent_at(echo).filter(|_| is_current);
        let base = if injected(Bug::ContactFromArrival) { Some(now) } else { asked };
        if base.is_some_and(|base| self.contact.keep(now, base, self.config.contact_timeout)) {
            actions.push(LookupAction::Contact(true));
        }
    }

    /// Does what the clock demands before anything else is believed.
    fn let_time_pass(&mut self, now: Instant, actions: &mut Actions) {
        if let Some(news) = self.contact.expire(now, self.config.contact_timeout) {
            if news.is_first {
                actions.push(LookupAction::Contact(false));
            }
            if self.position.is_some() && !injected(Bug::SilentWhenOutOfContact) {
                self.counters.out_of_contact += 1;
                actions.push(LookupAction::Loss { keys: RangeSet::all(), why: LossReason::OutOfContact });
            }
        }
        let keys = self.losses.overdue(now);
        if !keys.is_empty() {
            actions.push(LookupAction::Loss { keys, why: LossReason::Unowned });
        }
    }

    /// Asks if it is time to, and says when to wake next.
    fn finish(&mut self, now: Instant, mut actions: Actions) -> Output<LookupAction> {
        if self.refused.is_some() {
            self.asking.stop();
        }
        if self.asking.is_due(now) {
            self.ask(now, &mut actions);
        }
        let deadlines = [self.contact.deadline(), self.losses.deadline(), self.asking.deadline()];
        let wake = deadlines.into_iter().min().filter(|wake| *wake != Instant::NEVER);
        Output { actions, wake }
    }

    fn ask(&mut self, now: Instant, actions: &mut Actions) {
        let seq = self.asking.next_request(now, &self.config, &mut self.random);
        let request = LookupRequest {
            namespace: self.config.namespace.clone(),
            lookup: self.asking.nonce(),
            seq,
            position: self.position,
            term: if injected(Bug::TermNotChecked) { Term::ZERO } else { self.term },
            expects: self.config.expects,
        };
        self.counters.requests += 1;
        self.counters.broadcasts += u64::from(self.asking.asks_all());
        let to_one = |to: &ManagerId| LookupAction::ToManager { to: to.clone(), request: request.clone() };
        actions.extend(self.asking.recipients(&self.config.managers).iter().map(to_one));
    }
}

impl Machine for LookupMachine {
    type Event = LookupEvent;
    type Action = LookupAction;

    fn on_event(&mut self, now: Instant, event: LookupEvent) -> Output<LookupAction> {
        let mut actions = Actions::new();
        self.let_time_pass(now, &mut actions);
        match event {
            LookupEvent::Start => self.on_start(now),
            LookupEvent::FromManager { from, message } => {
                self.on_manager_message(now, &from, message, &mut actions)
            }
            LookupEvent::Disconnected(from) => self.asking.on_disconnected(now, &from, &mut self.random),
            LookupEvent::ManagersChanged(managers) => self.on_managers_changed(now, managers),
            LookupEvent::ClockJumped => self.on_clock_jumped(now, &mut actions),
        }
        self.finish(now, actions)
    }

    fn on_wake(&mut self, now: Instant) -> Output<LookupAction> {
        let mut actions = Actions::new();
        self.let_time_pass(now, &mut actions);
        self.finish(now, actions)
    }
}
