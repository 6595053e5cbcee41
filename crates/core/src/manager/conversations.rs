//! The conversations of a namespace: who speaks, and who is to be answered or decided about.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{LoadDimension, Nonce, OwnerName, Seq, SessionId, Url};
use crate::key::KeyRange;
use crate::load::common_dimension;
use crate::message::{LeaseOrder, Report};
use crate::range_set::RangeSet;
use crate::record::Change;
use crate::table::{Entry, Table};
use crate::time::Instant;

use super::conversation::{Conversation, around};

/// Who speaks, and who is to be answered or decided about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Conversations {
    pub(super) open: BTreeMap<SessionId, Conversation>,
    /// The sessions whose reports wait for their replies.
    pub(super) replies: BTreeSet<SessionId>,
    /// The sessions whose leases have changed since they were last told, who are told at once or when they have answered.
    pub(super) pushes: BTreeSet<SessionId>,
    /// The sessions whose latest report calls for a decision.
    pub(super) undecided: BTreeSet<SessionId>,
    /// Welcomes that nobody has taken up yet.
    pub(super) offers: BTreeMap<SessionId, Offer>,
    /// Sessions whose latest report wants them emptied: they wait for the word that they are.
    pub(super) emptying: BTreeSet<SessionId>,
    /// Sessions whose latest report says, for the next leader too, that they moved state.
    pub(super) movers: BTreeSet<SessionId>,
}

/// A welcome that waits to be taken up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Offer {
    pub(super) id: Nonce,
    pub(super) name: OwnerName,
    pub(super) url: Url,
    pub(super) takes_over: bool,
    /// The session that the same process was before.
    pub(super) formerly: Option<SessionId>,
    /// Whoever takes it up was alive at this instant.
    pub(super) made_at: Instant,
}

impl Conversations {
    /// The latest report of a session.
    pub(super) fn report(&self, session: SessionId) -> Option<&Report> {
        self.open.get(&session)?.report.as_deref()
    }

    /// What the loads of the namespace are counted in; `None`: nobody has reported.
    pub(super) fn load_dimension(&self) -> Option<LoadDimension> {
        let reports = self.open.values().filter_map(|conversation| conversation.report.as_deref());
        common_dimension(reports.map(|report| &report.load_dimension)).cloned()
    }

    /// The keys of a range whose holder has said that it knows where they should go. It may know of some before it knows of
    /// the others, which are one piece of the table all the same.
    pub(super) fn known_to_go(&self, owner: SessionId, range: KeyRange, to: SessionId) -> RangeSet {
        let has_applied = |conversation: &&Conversation| {
            conversation.report.as_deref().is_some_and(|report| report.applied == conversation.side.seq)
        };
        let Some(conversation) = self.open.get(&owner).filter(has_applied) else { return RangeSet::new() };
        let names = |order: &&LeaseOrder| {
            let destination = order.recall.as_ref().and_then(|recall| recall.to.as_ref());
            destination.is_some_and(|destination| destination.session == to)
        };
        around(&conversation.last_sent, range)
            .filter(names)
            .filter_map(|order| order.range.intersection(range))
            .collect()
    }

    /// Whether state was moved with a lease that its session has not been seen to hold yet.
    pub(super) fn is_on_its_way(&self, range: KeyRange, entry: &Entry) -> bool {
        let conversation = entry.owner.and_then(|owner| self.open.get(&owner));
        let listed = || {
            conversation.is_some_and(|conversation| {
                conversation.offers.listed(range, entry.numbers()).overlaps(range)
            })
        };
        entry.source.is_some() && !listed()
    }

    /// What is remembered of the offers of a lease ends with it; `table` does not have the change yet.
    pub(super) fn follow_leases(&mut self, change: &Change, table: &Table) {
        match change {
            Change::Granted { range, .. }
            | Change::Claimed { range, .. }
            | Change::Released { range, .. } => {
                for (piece, entry) in table.overlapping(*range) {
                    if let Some(conversation) = entry.owner.and_then(|owner| self.open.get_mut(&owner)) {
                        conversation.offers.forget(piece);
                    }
                }
            }
            Change::Merged { range, generation } => {
                for (piece, entry) in table.overlapping(*range) {
                    if let Some(conversation) = entry.owner.and_then(|owner| self.open.get_mut(&owner)) {
                        conversation.offers.forget_all_but(piece, *generation);
                    }
                }
            }
            _ => {}
        }
    }

    /// Sessions that wait to be told that they are emptied, or that what they moved has arrived, may be told so now.
    pub(super) fn look_at_waiting(&mut self) {
        let waiting = self.emptying.union(&self.movers);
        self.pushes.extend(waiting.filter(|session| self.open.contains_key(session)));
    }

    /// Something about a session's leases is about to change: its next report is looked at in full.
    pub(super) fn disturb(&mut self, session: SessionId) {
        if let Some(conversation) = self.open.get_mut(&session) {
            conversation.at_rest = false;
        }
    }

    /// Whether a session that goes on was sent something after this message.
    pub(super) fn was_told(&self, session: SessionId, after: Seq) -> bool {
        let conversation = self.open.get(&session);
        // Whoever goes waits for the word that it has nothing left.
        let goes = |conversation: &Conversation| {
            conversation.report.as_deref().is_none_or(|report| report.draining || report.leaving)
        };
        conversation.is_some_and(|conversation| conversation.side.seq > after && !goes(conversation))
    }

    /// A session waits for an answer, whether or not there is news for it.
    pub(super) fn answer(&mut self, session: SessionId) {
        if self.open.contains_key(&session) {
            self.replies.insert(session);
        }
    }

    /// What a session should hold has changed since it was last told.
    pub(super) fn push(&mut self, session: SessionId) {
        if let Some(conversation) = self.open.get_mut(&session) {
            conversation.at_rest = false;
            self.pushes.insert(session);
        }
    }

    /// There is nothing that a session has to be sent.
    pub(super) fn nothing_due(&mut self, session: SessionId) {
        self.replies.remove(&session);
        self.pushes.remove(&session);
    }

    /// Forgets a session that is over.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.emptying.remove(&session);
        self.movers.remove(&session);
        self.open.remove(&session);
        self.nothing_due(session);
        self.undecided.remove(&session);
    }
}
