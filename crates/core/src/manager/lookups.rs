//! The leader's side of Lookups: answers to requests, pushes of changes, heartbeats.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::change_log::ChangeLog;
use crate::id::{Lsn, Namespace, Nonce, Seq, Term};
use crate::manager_state::NamespaceState;
use crate::message::{LookupRequest, ManagerToLookup, Update, UpdateBody};
use crate::namespace_kind::NamespaceKind;
use crate::table::PublishedEntry;
use crate::time::Instant;

use super::Context;
use super::event::{ManagerAction, MessageSkip, StreamId};
use super::leader::Leader;

/// A Lookup that has not asked for this long is gone, though nobody said so.
const GONE_AFTER: Duration = Duration::from_secs(120);

/// A Lookup that wants to hear of changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Subscriber {
    peer: StreamId,
    /// Its latest request, which every message to it echoes.
    echo: Seq,
    asked_at: Instant,
    /// Where the log ended when that request was answered.
    answered_to: Lsn,
}

/// The latest snapshot that a Lookup needed, for the others that need it: after a restart of callers it is the same for all.
///
/// It says nothing that the table does not, so that a leader with and one without it are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct LatestSnapshot(Option<(Lsn, Arc<[PublishedEntry]>)>);

impl LatestSnapshot {
    /// The table as Lookups see it. Whatever they see of it changes only with its position.
    fn of(&mut self, stored: &NamespaceState) -> Arc<[PublishedEntry]> {
        match &self.0 {
            Some((lsn, entries)) if *lsn == stored.lsn => Arc::clone(entries),
            _ => {
                let entries: Arc<[PublishedEntry]> = stored.publish_all().into();
                self.0 = Some((stored.lsn, Arc::clone(&entries)));
                entries
            }
        }
    }
}

impl PartialEq for LatestSnapshot {
    fn eq(&self, _other: &LatestSnapshot) -> bool {
        true
    }
}

impl Eq for LatestSnapshot {}

impl Hash for LatestSnapshot {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

impl Leader {
    /// Answers a request with what its sender lacks, and remembers to push to it.
    pub(super) fn on_lookup(&mut self, from: StreamId, request: &LookupRequest, context: &mut Context<'_>) {
        let term = self.lead.term;
        if request.term > term {
            return count(context, MessageSkip::StaleTerm);
        }
        let stored = self.committed.namespaces.get(&request.namespace);
        let (Some(stored), Some(runtime)) = (stored, self.runtimes.get_mut(&request.namespace)) else {
            let message =
                ManagerToLookup::UnknownNamespace { term, lookup: request.lookup, echo: request.seq };
            context.push(ManagerAction::ToLookup { to: from, message });
            return count(context, MessageSkip::UnknownNamespace);
        };
        if let Some(why) = stored.kind.mismatch(request.expects) {
            let (lookup, echo, namespace) = (request.lookup, request.seq, Some(request.namespace.clone()));
            let message = ManagerToLookup::WrongKind { term, lookup, echo, why, namespace };
            context.push(ManagerAction::ToLookup { to: from, message });
            return count(context, MessageSkip::WrongKind);
        }
        if runtime.audience.subscribers.get(&request.lookup).is_some_and(|known| known.echo >= request.seq) {
            return count(context, MessageSkip::Duplicate);
        }
        let (asked_at, answered_to) = (context.now, runtime.audience.log.end());
        let subscriber = Subscriber { peer: from, echo: request.seq, asked_at, answered_to };
        runtime.audience.subscribers.insert(request.lookup, subscriber.clone());
        runtime.audience.log.truncate(context.now, stored.settings.log_span);
        let body = runtime.rebuild_news().unwrap_or_else(|| {
            let snapshot = || runtime.audience.snapshot.of(stored);
            runtime.audience.log.answer(request.position, stored.table.len(), snapshot)
        });
        let namespace = &request.namespace;
        context.push(runtime.audience.update(namespace, request.lookup, term, &subscriber, body));
    }

    /// Forgets a Lookup, if the way that is gone is still the one it asked by: nobody else's word ends its subscription.
    pub(super) fn on_lookup_gone(&mut self, from: StreamId, namespace: &Namespace, lookup: Nonce) {
        if let Some(runtime) = self.runtimes.get_mut(namespace)
            && runtime.audience.subscribers.get(&lookup).is_some_and(|known| known.peer == from)
        {
            runtime.audience.subscribers.remove(&lookup);
        }
    }
}

/// The Lookups of a namespace, and what they are told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Audience {
    /// The Lookups that want to hear of changes.
    pub(super) subscribers: BTreeMap<Nonce, Subscriber>,
    pub(super) log: ChangeLog,
    snapshot: LatestSnapshot,
    /// What the namespace is, as every message says.
    kind: NamespaceKind,
}

impl Audience {
    /// Nobody, at the end of the log.
    pub(super) fn new(stored: &NamespaceState) -> Audience {
        let log = ChangeLog::new(stored.log, stored.lsn);
        let (snapshot, kind) = (LatestSnapshot::default(), stored.kind.clone());
        Audience { subscribers: BTreeMap::new(), log, snapshot, kind }
    }

    /// Pushes a committed change to every subscriber; the entries are shared by all of them.
    pub(super) fn publish(
        &mut self,
        namespace: &Namespace,
        term: Term,
        lsn: Lsn,
        entries: Arc<[PublishedEntry]>,
        span: Duration,
        context: &mut Context<'_>,
    ) {
        let from = self.log.end();
        self.log.push(context.now, lsn, Arc::clone(&entries), span);
        let body = UpdateBody::Changes { from, to: lsn, entries };
        self.tell_subscribers(namespace, term, &body, |_| true, context);
    }

    /// Tells subscribers that the leader lives and where the log ends, or that the table is being rebuilt. Whoever asked within the interval and heard just that in
    /// the answer is not told again.
    pub(super) fn heartbeat(
        &mut self,
        namespace: &Namespace,
        term: Term,
        interval: Duration,
        rebuild: Option<UpdateBody>,
        context: &mut Context<'_>,
    ) {
        let (now, lsn) = (context.now, self.log.end());
        self.subscribers.retain(|_, subscriber| now.since(subscriber.asked_at) < GONE_AFTER);
        let knows = |subscriber: &Subscriber| {
            subscriber.answered_to == lsn && now.since(subscriber.asked_at) < interval
        };
        let body = rebuild.unwrap_or(UpdateBody::Heartbeat { lsn });
        self.tell_subscribers(namespace, term, &body, |known| !knows(known), context);
    }

    /// Tells every subscriber the whole table, once it is learned.
    pub(super) fn publish_all(
        &mut self,
        namespace: &Namespace,
        term: Term,
        stored: &NamespaceState,
        context: &mut Context<'_>,
    ) {
        self.log = ChangeLog::new(stored.log, stored.lsn);
        let body = UpdateBody::Snapshot { lsn: stored.lsn, entries: self.snapshot.of(stored) };
        self.tell_subscribers(namespace, term, &body, |_| true, context);
    }

    fn tell_subscribers(
        &self,
        namespace: &Namespace,
        term: Term,
        body: &UpdateBody,
        whom: impl Fn(&Subscriber) -> bool,
        context: &mut Context<'_>,
    ) {
        for (lookup, subscriber) in self.subscribers.iter().filter(|(_, subscriber)| whom(subscriber)) {
            context.push(self.update(namespace, *lookup, term, subscriber, body.clone()));
        }
    }

    fn update(
        &self,
        namespace: &Namespace,
        lookup: Nonce,
        term: Term,
        subscriber: &Subscriber,
        body: UpdateBody,
    ) -> ManagerAction {
        let (namespace, kind) = (namespace.clone(), self.kind.clone());
        let (echo, log) = (subscriber.echo, self.log.id());
        let update = Update { namespace, lookup, term, echo, log, kind, body };
        ManagerAction::ToLookup { to: subscriber.peer, message: ManagerToLookup::Update(update) }
    }
}

/// Counts a message that changed nothing.
pub(super) fn count(context: &mut Context<'_>, why: MessageSkip) {
    *context.counters.skipped.entry(why).or_default() += 1;
}
