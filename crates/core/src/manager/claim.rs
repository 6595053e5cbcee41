//! A leader that has no store: it learns the table from what Owners claim (ADR 15).

use std::time::Duration;

use crate::id::{Generation, Nonce, SessionId, Term};
use crate::injected_bug::{Bug, injected};
use crate::key::KeyRange;
use crate::manager_state::NamespaceState;
use crate::message::{HeldLease, Report, UpdateBody, Warrant};
use crate::namespace_kind::Mode;
use crate::range_set::RangeSet;
use crate::record::{Change, Reason, Record};
use crate::time::Instant;

use super::decide::Decision;
use super::event::{ClaimSkip, Skip};
use super::leader::Leader;
use super::namespace_runtime::{NamespaceRuntime, RuntimeTimer};
use super::{Context, DeclaredNamespace};

/// What a leader that has no store does not know yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rebuild {
    /// The keys that nobody has claimed: an earlier leader's lease may still run on them.
    unclaimed: RangeSet,
}

/// A lease of an earlier leader that a session holds, as far as its keys can be its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    range: KeyRange,
    generation: Generation,
    state_since: Generation,
    warrant: Warrant,
    /// Who claimed the keys before, under a lower number.
    outbids: Option<(SessionId, Generation)>,
}

impl Rebuild {
    /// How many keys nobody has claimed.
    pub(super) fn unclaimed_keys(&self) -> u128 {
        self.unclaimed.key_count()
    }

    /// Those of these keys that nobody has claimed.
    pub(super) fn unclaimed_of(&self, range: KeyRange) -> RangeSet {
        self.unclaimed.intersect_range(range)
    }

    pub(super) fn note_claimed(&mut self, range: KeyRange) {
        self.unclaimed.remove(range);
    }
}

/// The number before the term's first generation; `None` where a store knows the last one.
pub(super) fn floor(term: Term, context: &Context<'_>) -> Option<Generation> {
    context.config.diskless.as_ref()?;
    if injected(Bug::GenerationFromOwnClock) {
        return Generation::before(Term(context.now.0 >> 24));
    }
    Generation::before(term)
}

/// The namespaces that every term begins with where there is no store.
pub(super) fn configured_namespaces(floor: Option<Generation>, context: &mut Context<'_>) -> Vec<Record> {
    let (Some(floor), Some(namespaces)) = (floor, context.config.diskless.clone()) else { return Vec::new() };
    let log = |context: &mut Context<'_>| match injected(Bug::EarlierLogAccepted) {
        true => Nonce(1),
        false => context.random.nonce(),
    };
    namespaces
        .iter()
        .map(|(namespace, DeclaredNamespace { kind, settings })| Record::Namespace {
            namespace: namespace.clone(),
            change: Change::Created {
                kind: kind.clone(),
                settings: settings.clone(),
                log: log(context),
                floor,
            },
            reason: Reason::Operator("the Managers' configuration names it".into()),
        })
        .collect()
}

/// What a session can show to the next leader. Its code is added where it leaves the Manager.
pub(super) fn warrant(range: KeyRange, stored: &NamespaceState, session: SessionId) -> Option<Warrant> {
    let virtual_nodes = stored.sessions.get(&session)?.virtual_nodes;
    Some(Warrant { range, lease: stored.settings.lease, virtual_nodes, code: [0; 32] })
}

impl NamespaceRuntime {
    /// Nothing is known, not even whether earlier leases were exclusive: none of them runs on after a full hold. So claims are
    /// waited for as long as that also where silent sessions are not.
    pub(super) fn begin_rebuild(&mut self, silent_from: Instant, leases_end_within: Duration) {
        self.holds.silent_from = silent_from;
        self.rebuild = Some(Rebuild { unclaimed: RangeSet::all() });
        self.claims_end_after(leases_end_within.max(self.holds.longest));
    }

    fn claims_end_after(&mut self, wait: Duration) {
        self.placement.balance_from = self.placement.balance_from.max(self.holds.silent_from + wait);
        self.timers.set(RuntimeTimer::Balance, self.placement.balance_from);
    }

    /// What Lookups are told while the table is learned; `None` once it is known.
    pub(super) fn rebuild_news(&self) -> Option<UpdateBody> {
        let hold = self.placement.balance_from.since(self.holds.silent_from);
        self.rebuild.as_ref().map(|_| UpdateBody::Unchanged { hold })
    }

    /// The parts of a range on which no lease of an earlier leader can run that nobody has claimed.
    pub(super) fn free_of_earlier_leases(&self, range: KeyRange) -> Vec<KeyRange> {
        match &self.rebuild {
            Some(rebuild) if !injected(Bug::UnclaimedGrantedEarly) => {
                RangeSet::from_ranges([range]).difference(&rebuild.unclaimed).iter().collect()
            }
            _ => vec![range],
        }
    }

    /// Whoever claimed nothing waited until nothing was left to claim.
    fn let_others_join(&mut self, stored: &NamespaceState) {
        let waiting =
            self.conversations.open.iter_mut().filter(|(session, _)| !stored.sessions.contains_key(session));
        for (session, conversation) in waiting {
            conversation.undecided = true;
            self.conversations.undecided.insert(*session);
        }
    }
}

impl Leader {
    /// Tells Lookups the tables that are learned, once they are committed.
    pub(super) fn finish_rebuilds(&mut self, context: &mut Context<'_>) {
        if self.in_flight.is_some() {
            return;
        }
        for (namespace, runtime) in &mut self.runtimes {
            let learned = |rebuild: &mut Rebuild| rebuild.unclaimed.is_empty();
            let Some(stored) = self.committed.namespaces.get(namespace) else { continue };
            if runtime.rebuild.take_if(learned).is_some() {
                runtime.audience.publish_all(namespace, self.lead.term, stored, context);
                runtime.let_others_join(stored);
                runtime.dirty = true;
            }
        }
    }
}

impl Decision<'_> {
    /// A full hold has passed: what nobody claimed belongs to nobody, but for what is said to have been moved.
    pub(super) fn end_rebuild(&mut self) {
        if self.now >= self.runtime.placement.balance_from
            && let Some(rebuild) = &mut self.runtime.rebuild
        {
            let left = std::mem::take(&mut rebuild.unclaimed);
            self.runtime.awaited = self.runtime.awaited.union(&left);
            self.runtime.let_others_join(&self.draft.namespaces[self.namespace]);
            self.runtime.conversations.look_at_waiting();
        }
        self.await_copies();
    }

    /// During a rebuild only who claims something becomes a member: a namesake must not keep the holder out.
    pub(super) fn may_join(&self, session: SessionId, report: &Report, claims: &[Claim]) -> bool {
        let all_is_known = self.runtime.rebuild.as_ref().is_none_or(|rebuild| rebuild.unclaimed.is_empty());
        all_is_known
            || !claims.is_empty()
            || self.claims_moves(report)
            || self.stored().sessions.contains_key(&session)
    }

    /// What a session claims and can have. The rest is refused and reported.
    pub(super) fn claims(&mut self, session: SessionId, report: &Report) -> Vec<Claim> {
        let (Some(floor), true) = (self.floor, self.runtime.rebuild.is_some()) else { return Vec::new() };
        let mut claims = Vec::new();
        let mut taken =
            self.runtime.conversations.open.get(&session).map_or(0, |conversation| conversation.claims_taken);
        for held in report.held.get(taken..).unwrap_or_default() {
            if claims.len() > self.max_batch {
                // The others are found again by the next decision.
                break;
            }
            let parts: Vec<_> =
                self.stored().table.overlapping(held.range).map(|(part, entry)| (part, *entry)).collect();
            for (range, entry) in parts {
                if entry.owner == Some(session) && entry.is_under(held.generation) {
                    continue;
                }
                match self.judge_claim(range, held, (entry.owner, entry.generation), floor) {
                    Ok(claim) => claims.push(claim),
                    Err(why) => self.refuse_claim(session, range, held.generation, why),
                }
            }
            // A batch takes the first of them: the next need not look for their places again.
            taken += usize::from(claims.is_empty());
        }
        if let Some(conversation) = self.runtime.conversations.open.get_mut(&session) {
            conversation.claims_taken = taken;
        }
        claims
    }

    fn judge_claim(
        &self,
        range: KeyRange,
        held: &HeldLease,
        (owner, generation): (Option<SessionId>, Generation),
        floor: Generation,
    ) -> Result<Claim, ClaimSkip> {
        let warrant = held.warrant.filter(|warrant| warrant.range.contains_range(held.range));
        let warrant = warrant.ok_or(ClaimSkip::NoWarrant)?;
        if held.generation >= floor && !injected(Bug::GenerationFromOwnClock) {
            return Err(ClaimSkip::Impossible);
        }
        let unclaimed =
            self.runtime.rebuild.as_ref().is_some_and(|rebuild| rebuild.unclaimed.contains_range(range));
        let outbids = owner.map(|owner| (owner, generation));
        match outbids {
            None if !unclaimed => return Err(ClaimSkip::Decided),
            Some((_, generation)) if generation > floor => return Err(ClaimSkip::Decided),
            Some((_, generation)) if generation >= held.generation => return Err(ClaimSkip::Outbid),
            _ => {}
        }
        let HeldLease { generation, state_since, .. } = *held;
        let forgets = injected(Bug::ClaimForgetsStateSince);
        let state_since = if forgets { Generation::ZERO } else { state_since };
        Ok(Claim { range, generation, state_since, warrant, outbids })
    }

    /// The leases go on under their numbers, and those of whoever claimed the keys wrongly end.
    pub(super) fn take_claims(&mut self, session: SessionId, claims: &[Claim]) {
        for claim in claims {
            if self.is_full() {
                return;
            }
            if let Some((other, generation)) = claim.outbids {
                self.refuse_claim(other, claim.range, generation, ClaimSkip::Outbid);
            }
            let Claim { range, generation, state_since, warrant, .. } = *claim;
            self.emit(Change::Claimed { range, generation, state_since, session }, Reason::Claimed);
            if let Some(conversation) = self.runtime.conversations.open.get_mut(&session) {
                conversation.offers.note_listed(range, generation);
            }
            if let Some(rebuild) = &mut self.runtime.rebuild {
                rebuild.note_claimed(range);
            }
            self.note_lease_length(warrant.lease);
        }
    }

    /// Holds are never shorter than what a warrant shows, where leases are exclusive; nor is the wait for claims anywhere.
    pub(super) fn note_lease_length(&mut self, lease: Duration) {
        let hold = self.drift.hold_for(lease);
        if hold > self.runtime.holds.longest {
            if self.stored().kind.mode == Mode::Exclusive {
                self.runtime.holds.longest = hold;
            }
            self.runtime.claims_end_after(hold);
        }
    }

    fn refuse_claim(&mut self, session: SessionId, range: KeyRange, generation: Generation, why: ClaimSkip) {
        let namespace = self.namespace.clone();
        self.runtime.skips.push(Skip::Claim { namespace, session, range, generation, why });
    }

    /// The virtual nodes that an Owner had under an earlier leader, if it can show so.
    pub(super) fn virtual_nodes_of(&self, report: &Report) -> u32 {
        let held = report.held.iter().filter_map(|held| held.warrant);
        let released = report.released.iter().filter_map(|release| release.warrant);
        let shown = held.chain(released).map(|warrant| warrant.virtual_nodes).next();
        shown.filter(|_| self.floor.is_some()).unwrap_or(self.stored().settings.virtual_nodes)
    }
}
