//! L4: once faults end and load stays as it is, balancing comes to rest, and by then every Owner that may have keys has some.

use centrifuge_core::id::SessionId;
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::record::{Change, Reason, Record, SessionInfo};

use super::committed::Ledger;
use super::{At, Seen, TrueTime, Verdict, later, slot};

/// With a smaller budget balancing may take longer than the run does.
const AMPLE_CHURN: u32 = 1_000;
/// A smaller Owner may have a share that no part of a range fits.
const LEAST_WEIGHT: u32 = 50;

/// Guards L4, where the limits say that load becomes steady.
#[derive(Debug, Default)]
pub struct BalanceComesToRest {
    /// By namespace: when load last moved something, and in which words.
    latest: Vec<Option<(TrueTime, String)>>,
}

impl BalanceComesToRest {
    /// Judges an event.
    pub fn see(&mut self, seen: &Seen<'_>, facts: At) -> Verdict {
        match seen {
            Seen::Committed { batch, .. } => {
                for record in &batch.records {
                    self.note(record, facts);
                }
                Ok(())
            }
            Seen::Ended if facts.is_calm(facts.now) => self.judge(facts),
            _ => Ok(()),
        }
    }

    fn note(&mut self, record: &Record, facts: At) {
        let Record::Namespace { namespace, change: Change::Recalled { range, .. }, reason } = record else {
            return;
        };
        if let (Reason::Balanced(words), Some(space)) = (reason, facts.spaces.find(namespace)) {
            *slot(&mut self.latest, space) = Some((facts.now, format!("{range}, {words}")));
        }
    }

    fn judge(&self, facts: At) -> Verdict {
        let Some(rest) = facts.limits.balanced_for else { return Ok(()) };
        for (space, ledger) in facts.committed.ledgers().filter(|(_, ledger)| is_balanced(ledger)) {
            let latest = self.latest.get(space).and_then(Option::as_ref);
            if let Some((at, words)) = latest.filter(|(at, _)| later(*at, rest) > facts.now) {
                let what = format!("load does not change any more, and yet moves {words} at {at}");
                return Err(facts.violation("L4", space, Vec::new(), what));
            }
            if let Some((session, info)) = hungry(ledger) {
                let what = format!("{} ({session}) may have keys and has none", info.name);
                return Err(facts.violation("L4", space, Vec::new(), what));
            }
        }
        Ok(())
    }
}

/// Whether load decides, and can have decided enough.
fn is_balanced(ledger: &Ledger) -> bool {
    let settings = &ledger.settings;
    let is_trimmed = settings.partitioner == PartitionerKind::Trim && settings.churn_budget >= AMPLE_CHURN;
    ledger.exists && !ledger.frozen && is_trimmed
}

/// An Owner that may have keys and has none.
fn hungry(ledger: &Ledger) -> Option<(SessionId, &SessionInfo)> {
    let may_have_keys =
        |info: &SessionInfo| !info.is_draining() && !info.evicted && info.weight >= LEAST_WEIGHT;
    let has_any = |session: &SessionId| ledger.rows.iter().any(|(_, row)| row.owner == Some(*session));
    let mut members = ledger.sessions.iter().filter(|(_, info)| may_have_keys(info));
    members.find(|(session, _)| !has_any(session)).map(|(session, info)| (*session, info))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::testing::{Scene, at, grant, range, session, space_name, start_session};
    use centrifuge_core::id::{Generation, Index, Nonce, Term};
    use centrifuge_core::record::Batch;
    use centrifuge_core::settings::Settings;
    use std::time::Duration;

    fn scene(churn_budget: u32) -> Scene {
        let mut scene = Scene::new();
        scene.facts.limits.balanced_for = Some(Duration::from_secs(100));
        scene.facts.faults_ended = Some(at(0));
        let settings = Settings { partitioner: PartitionerKind::Trim, churn_budget, ..Settings::default() };
        let (log, floor, kind) = (Nonce(1), Generation::ZERO, Default::default());
        let created = Change::Created { settings: settings.into(), kind, log, floor };
        scene.commit(at(1), vec![created, start_session(1), start_session(2), grant(0, 9, 1, 1)]);
        scene
    }

    fn end(guard: &mut BalanceComesToRest, scene: &Scene) -> Result<(), &'static str> {
        guard.see(&Seen::Ended, scene.facts.at(at(900))).map_err(|violation| violation.invariant)
    }

    fn move_by_load(guard: &mut BalanceComesToRest, scene: &Scene, seconds: u64) {
        let change = Change::Recalled { range: range(0, 5), generation: Generation(1), to: Some(session(2)) };
        let reason = Reason::Balanced("swap".into());
        let records = vec![Record::Namespace { namespace: space_name(), change, reason }];
        let batch = Batch { term: Term(1), records };
        let seen = Seen::Committed { index: Index(1), batch: &batch, by: 0 };
        guard.see(&seen, scene.facts.at(at(seconds))).expect("it is judged in the end");
    }

    #[test]
    fn an_owner_without_keys_is_a_breach_if_the_budget_was_ample() {
        assert_eq!(end(&mut BalanceComesToRest::default(), &scene(1_000)), Err("L4"));
        assert_eq!(end(&mut BalanceComesToRest::default(), &scene(100)), Ok(()));
    }

    #[test]
    fn moves_must_have_ended_some_time_before() {
        let mut scene = scene(1_000);
        scene.commit(at(2), vec![grant(10, 19, 2, 2)]);
        let mut guard = BalanceComesToRest::default();
        move_by_load(&mut guard, &scene, 700);
        assert_eq!(end(&mut guard, &scene), Ok(()));
        move_by_load(&mut guard, &scene, 850);
        assert_eq!(end(&mut guard, &scene), Err("L4"));
    }
}
