//! Who leads: a key that goes away with an etcd lease, and a term that rises with every win.

use std::rc::Rc;
use std::time::SystemTime;

use centrifuge_core::id::{ManagerId, Term};
use centrifuge_core::manager::ElectionEvent;

use super::client::EtcdError;
use super::keys;
use super::proto::encode;
use super::proto::items::Leader;
use super::proto::rpc;
use super::read::{Led, Standing, Unreadable};
use super::{Leadership, Shared};
use crate::injected_bug::{self, DriverBug};
use crate::store::Answer;
use crate::store::decode::decode_time;

/// What came of a campaign.
enum Outcome {
    Won(Leadership),
    LedBy(Option<ManagerId>),
    /// The key went away meanwhile, or another try of this process has it.
    Changed,
}

impl Shared {
    /// Tries to lead. A standby's campaign stays open: it is tried again when the leader's key goes away.
    ///
    /// The machine may ask again while a try is under way, which answers the latest request then.
    pub(super) async fn campaign(self: Rc<Shared>) {
        while let Some(begun_for) = self.campaigning.get() {
            self.try_again.set(false);
            let outcome = self.try_campaign().await;
            let Some(request) = self.campaigning.get() else { return };
            match outcome {
                Ok(Outcome::Won(leadership)) => {
                    self.campaigning.set(None);
                    self.leadership.set(Some(leadership));
                    self.note_term(leadership.term);
                    return self
                        .answer(Answer::Election(ElectionEvent::Won { request, term: leadership.term }));
                }
                Ok(Outcome::LedBy(leader)) => {
                    self.answer(Answer::Election(ElectionEvent::LedBy { request, leader }));
                }
                Ok(Outcome::Changed) => self.try_again.set(true),
                // Who led before may still lead: the machine keeps what it knows and asks again. If it has, this is the answer.
                Err(error) => {
                    self.complain("campaign", &error);
                    self.try_again.set(self.try_again.get() || request != begun_for);
                }
            }
            if !self.try_again.get() {
                return;
            }
        }
    }

    async fn try_campaign(&self) -> Result<Outcome, Unreadable> {
        let (standing, led) = self.standing_and_leader().await?;
        self.note_term(Term(standing.content.term));
        if let Some(led) = led.as_ref().filter(|led| led.leader.process != self.process) {
            return Ok(Outcome::LedBy(self.other(led)));
        }
        let Some(term) = Term(standing.content.term).next() else { return Ok(Outcome::LedBy(None)) };
        if self.must_wait(&standing) || !self.readable.get() {
            return Ok(Outcome::LedBy(None));
        }
        let covered = self.campaigning.get();
        let lease = self.grant().await?;
        let outcome = match self.take_leadership(&standing, led.as_ref(), term, lease).await {
            Ok(Outcome::Won(leadership)) => {
                self.cover_latest(lease, covered).await.map(|()| Outcome::Won(leadership))
            }
            other => other,
        };
        if !matches!(outcome, Ok(Outcome::Won(_))) {
            // Not needed, unless the answer was lost: then the next campaign takes the key over, or it expires.
            let _ = self.client.revoke(lease).await;
        }
        outcome
    }

    /// The machine counts its leader lease from the send of the request that is answered, so that etcd's must begin later. It was granted
    /// for the request `covered`; if there is a later one, it is renewed first.
    async fn cover_latest(&self, lease: i64, mut covered: Option<u64>) -> Result<(), Unreadable> {
        while self.campaigning.get() != covered {
            covered = self.campaigning.get();
            self.client.keep_alive(lease).await?;
        }
        Ok(())
    }

    /// The leader, if it is another Manager. An earlier process of this Manager does not count: it is gone.
    fn other(&self, led: &Led) -> Option<ManagerId> {
        let leader = ManagerId::from(led.leader.manager.as_str());
        (leader != self.candidate.manager).then_some(leader)
    }

    fn note_term(&self, term: Term) {
        let mut facts = self.facts();
        facts.term = facts.term.max(term);
    }

    async fn standing_and_leader(&self) -> Result<(Standing, Option<Led>), Unreadable> {
        let ranges = [keys::one(self.keys.standing()), keys::one(self.keys.leader())];
        let success = ranges.into_iter().map(keys::get).collect();
        let answer = self.client.txn(rpc::TxnRequest { success, ..Default::default() }).await?;
        let mut found = keys::found(answer.responses);
        let (Some(standing), Some(leader)) = (found.next(), found.next()) else {
            return Err(Unreadable::Damaged("etcd left an answer out".to_owned()));
        };
        Ok((Standing::of(&standing)?.ok_or(Unreadable::Missing)?, Led::of(&leader)))
    }

    /// After a restore nobody leads until every lease of the time before has run out.
    fn must_wait(&self, standing: &Standing) -> bool {
        let until = standing.content.not_before_micros.map(decode_time);
        let left = until.and_then(|until| until.duration_since(SystemTime::now()).ok());
        if let Some(left) = left
            && !self.said_waiting.replace(true)
        {
            tracing::warn!(
                prefix = %self.options.prefix,
                seconds = left.as_secs(),
                "the store was restored: leases granted after the backup may still run, and nobody leads before \
                 they have ended"
            );
        }
        left.is_some()
    }

    /// An etcd lease that outlasts the leader's own by the drift bound.
    async fn grant(&self) -> Result<i64, Unreadable> {
        let seconds = self.lease_seconds();
        let granted = self.client.grant(seconds).await?;
        if granted.ttl < seconds {
            let _ = self.client.revoke(granted.id).await;
            let words = format!("it grants leases of {} s where {seconds} s were asked for", granted.ttl);
            return Err(EtcdError::Refused(words).into());
        }
        Ok(granted.id)
    }

    /// Takes the key, if nobody has it or this process has, and if nobody has won since the term was read.
    async fn take_leadership(
        &self,
        standing: &Standing,
        own: Option<&Led>,
        term: Term,
        lease: i64,
    ) -> Result<Outcome, Unreadable> {
        let leader = Leader {
            manager: self.candidate.manager.to_string(),
            term: term.0,
            process: self.process.clone(),
        };
        let request = rpc::TxnRequest {
            compare: vec![
                keys::written_at(self.keys.leader(), own.map_or(0, |led| led.written_at)),
                keys::written_at(self.keys.standing(), standing.written_at),
            ],
            success: vec![
                keys::put_with(self.keys.leader(), encode(&leader), lease),
                keys::put(self.keys.standing(), Standing::sealed(term, None)),
            ],
            failure: vec![keys::get(keys::one(self.keys.leader()))],
        };
        let answer = self.client.txn(request).await?;
        if answer.succeeded {
            let revision = keys::revision(answer.header.as_ref());
            return Ok(Outcome::Won(Leadership { term, revision, lease }));
        }
        let led = keys::found(answer.responses).next().and_then(|found| Led::of(&found));
        Ok(match led {
            // An earlier try of this request was done and its answer lost.
            Some(led) if led.lease == lease => {
                Outcome::Won(Leadership { term, revision: led.written_at, lease })
            }
            Some(led) if led.leader.process != self.process => Outcome::LedBy(self.other(&led)),
            _ => Outcome::Changed,
        })
    }

    /// Renews the leader lease: etcd's lease lives, and after that the key is still ours. Somebody may have deleted the
    /// key while the lease went on.
    pub(super) async fn renew(self: Rc<Shared>, request: u64, leadership: Leadership) {
        injected_bug::renewal_sent(leadership.term.0, request);
        let renewed = self.try_renew(leadership).await;
        let request = injected_bug::renewal_answered(request).await;
        match renewed {
            Ok(false) => return self.lost(leadership),
            Ok(true) => {}
            Err(error) => {
                self.complain("renew the leader lease", &error.into());
                if !injected_bug::has(DriverBug::SilenceRenews) {
                    return;
                }
            }
        }
        self.answer(Answer::Election(ElectionEvent::Renewed { request }));
    }

    async fn try_renew(&self, leadership: Leadership) -> Result<bool, EtcdError> {
        match self.client.keep_alive(leadership.lease).await {
            Ok(()) => {}
            Err(EtcdError::NoLease) => return Ok(false),
            Err(error) => return Err(error),
        }
        let found = self.client.range(keys::one(self.keys.leader())).await?;
        Ok(Led::of(&found).is_some_and(|led| led.written_at == leadership.revision))
    }

    /// The key is gone, or another Manager has it.
    fn lost(&self, leadership: Leadership) {
        if self.leadership.get() == Some(leadership) {
            self.leadership.set(None);
            self.answer(Answer::Election(ElectionEvent::Lost { term: leadership.term }));
        }
    }

    /// Gives leadership up because the log says nothing to this version.
    pub(super) async fn step_aside(self: Rc<Shared>) {
        if let Some(leadership) = self.leadership.get() {
            self.lost(leadership);
            self.resign(leadership).await;
        }
    }

    /// Gives leadership up: the key goes away with its lease, if it is still attached to it.
    pub(super) async fn resign(self: Rc<Shared>, leadership: Leadership) {
        if let Err(error) = self.client.revoke(leadership.lease).await {
            self.complain("resign", &error.into());
        }
    }

    /// What became of the leader's key: `None` if it is gone as of `revision`.
    pub(super) fn leader_seen(self: &Rc<Shared>, led: Option<&Led>, revision: i64) {
        if let Some(led) = led {
            self.note_term(Term(led.leader.term));
        }
        if let Some(leadership) = self.leadership.get() {
            if revision > leadership.revision && led.is_none_or(|led| led.written_at != leadership.revision) {
                self.lost(leadership);
            }
            return;
        }
        let Some(request) = self.campaigning.get() else { return };
        match led {
            None if self.is_campaigning() => self.try_again.set(true),
            None => self.start_campaign(),
            Some(led) if led.leader.process != self.process => {
                let leader = self.other(led);
                self.answer(Answer::Election(ElectionEvent::LedBy { request, leader }));
            }
            Some(_) => {}
        }
    }
}
