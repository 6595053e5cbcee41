//! Which messages a Lookup believes, and how their news become its table.

use super::losses::{Judge, Losses, Source};
use super::{Actions, LookupAction, LookupMachine, LossReason, Row};
use crate::id::{Lsn, Nonce, Seq, Term};
use crate::injected_bug::{Bug, injected};
use crate::key::Key;
use crate::message::{Position, Update, UpdateBody};
use crate::namespace_kind::NamespaceKind;
use crate::range_set::RangeSet;
use crate::table::PublishedEntry;
use crate::time::Instant;

/// Why a message is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dropped {
    OtherNamespace,
    OtherLookup,
    NeverSent,
    LowerTerm,
    LeftLog,
    BadSnapshot,
    BadChanges,
}

impl LookupMachine {
    /// Whether a message is for this life of this Lookup and from a leader whose term is not known to be over.
    pub(super) fn check_envelope(&self, lookup: Nonce, echo: Seq, term: Term) -> Result<(), Dropped> {
        if lookup != self.asking.nonce() {
            return Err(Dropped::OtherLookup);
        }
        if !self.asking.was_sent(echo) {
            return Err(Dropped::NeverSent);
        }
        if term < self.term && !injected(Bug::TermNotChecked) {
            return Err(Dropped::LowerTerm);
        }
        Ok(())
    }

    /// Whether an update can be believed.
    pub(super) fn check_update(&self, update: &Update) -> Result<(), Dropped> {
        if update.namespace != self.config.namespace {
            return Err(Dropped::OtherNamespace);
        }
        self.check_envelope(update.lookup, update.echo, update.term)?;
        let switches = self.position.is_some_and(|position| position.log != update.log);
        if (switches || self.is_replaced_by(&update.kind)) && update.echo <= self.joined_log {
            return Err(Dropped::LeftLog);
        }
        match &update.body {
            UpdateBody::Heartbeat { .. } | UpdateBody::Unchanged { .. } => Ok(()),
            UpdateBody::Changes { from, to, entries } if from < to && are_changes(entries) => Ok(()),
            UpdateBody::Changes { .. } => Err(Dropped::BadChanges),
            UpdateBody::Snapshot { entries, .. } if is_whole(entries) => Ok(()),
            UpdateBody::Snapshot { .. } => Err(Dropped::BadSnapshot),
        }
    }

    /// Whether a namespace of this kind is another than the one that is known.
    fn is_replaced_by(&self, kind: &NamespaceKind) -> bool {
        self.kind.as_ref().is_some_and(|known| known != kind)
    }

    /// The kind of a namespace never changes: if it is another, so is the namespace, and nothing that is known of the earlier one holds.
    ///
    /// If no table comes along, the loss is told to an application that cannot publish anything yet. So it is told again with owners.
    pub(super) fn learn_kind(&mut self, update: &Update, actions: &mut Actions) {
        if self.kind.as_ref() == Some(&update.kind) {
            return;
        }
        let has_forgotten = self.forget_table(actions);
        if has_forgotten && !matches!(update.body, UpdateBody::Snapshot { .. }) {
            self.losses = Losses::of_replaced();
        }
        self.kind = Some(update.kind.clone());
        self.joined_log = self.asking.latest();
    }

    /// Forgets the table, and says whether there was one. What the application knows of its keys is lost with it.
    pub(super) fn forget_table(&mut self, actions: &mut Actions) -> bool {
        let has_table = self.position.take().is_some();
        if has_table {
            self.rows.clear();
            self.losses = Losses::default();
            self.heard_of = Position { log: Nonce::default(), lsn: Lsn::ZERO };
            actions.push(LookupAction::TableGone);
            actions.push(LookupAction::Loss { keys: RangeSet::all(), why: LossReason::NamespaceReplaced });
        }
        has_table
    }

    /// Applies a believable update if it is news, and notes how far the log goes.
    pub(super) fn take_news(&mut self, now: Instant, update: &Update, actions: &mut Actions) {
        let end = end_of(update);
        if self.heard_of.log != end.log || self.heard_of.lsn < end.lsn {
            self.heard_of = end;
        }
        match &update.body {
            UpdateBody::Heartbeat { .. } | UpdateBody::Unchanged { .. } => {}
            _ if self.has_all_up_to(end) => self.counters.duplicates += 1,
            UpdateBody::Changes { from, entries, .. } if self.begins_here(end.log, *from) => {
                self.counters.changes += 1;
                let one = from.next() == Some(end.lsn);
                let source = if one { Source::OneChange } else { Source::SeveralChanges };
                self.apply(now, end, source, entries, actions);
            }
            UpdateBody::Changes { .. } => {}
            UpdateBody::Snapshot { entries, .. } => {
                self.counters.snapshots += 1;
                self.rows.clear();
                self.apply(now, end, Source::Snapshot, entries, actions);
            }
        }
    }

    /// Whether the table has everything up to a position.
    pub(super) fn has_all_up_to(&self, end: Position) -> bool {
        self.position.is_some_and(|position| position.log == end.log && end.lsn <= position.lsn)
    }

    /// Changes apply to exactly the table they begin from: they are many changes in a row, and the older ones among
    /// them would undo newer ones that the table has.
    fn begins_here(&self, log: Nonce, from: Lsn) -> bool {
        self.position.is_some_and(|position| {
            position.log == log && (position.lsn == from || injected(Bug::ChangesWithGap))
        })
    }

    /// Overwrites rows and raises what was lost by it.
    fn apply(
        &mut self,
        now: Instant,
        end: Position,
        source: Source,
        entries: &[PublishedEntry],
        actions: &mut Actions,
    ) {
        // A vacancy began after the moment that contact counts from, so that its loss is told, at the latest, when
        // the loss of everything would have been.
        let due = (now + self.config.unowned_delay).min(self.contact.deadline());
        let judge = Judge { source, due };
        let mut keys = RangeSet::new();
        for entry in entries {
            let row = Row::from(entry);
            self.losses.see(entry.range, &row, judge, &mut keys);
            self.rows.insert(entry.range, row);
        }
        if self.position.is_none_or(|position| position.log != end.log) {
            self.joined_log = self.asking.latest();
        }
        self.position = Some(end);
        actions.push(LookupAction::TableChanged(end));
        if !keys.is_empty() {
            actions.push(LookupAction::Loss { keys, why: LossReason::StateBeganAnew });
        }
    }
}

/// The end of the log as an update says it.
pub(super) fn end_of(update: &Update) -> Position {
    let lsn = match update.body {
        UpdateBody::Heartbeat { lsn } | UpdateBody::Snapshot { lsn, .. } => lsn,
        UpdateBody::Changes { to, .. } => to,
        UpdateBody::Unchanged { .. } => Lsn::ZERO,
    };
    Position { log: update.log, lsn }
}

/// Whether there are entries, all possible.
fn are_changes(entries: &[PublishedEntry]) -> bool {
    !entries.is_empty() && entries.iter().all(is_possible)
}

/// Whether the entries cover every key once, in key order, and are all possible.
fn is_whole(entries: &[PublishedEntry]) -> bool {
    let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return false };
    first.range.first() == Key::MIN
        && last.range.last() == Key::MAX
        && entries.windows(2).all(|pair| pair[0].range.touches(pair[1].range))
        && entries.iter().all(is_possible)
}

/// State begins with a lease, and who owns has one.
fn is_possible(entry: &PublishedEntry) -> bool {
    entry.state_since <= entry.generation && (entry.owner.is_none() || entry.generation.0 > 0)
}
