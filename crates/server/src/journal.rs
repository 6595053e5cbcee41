//! What a committed batch means to people: log lines with reasons, and counts.

use std::collections::BTreeMap;

use centrifuge_core::id::{Generation, Namespace, OwnerName, SessionId};
use centrifuge_core::key::KeyRange;
use centrifuge_core::manager_state::{ManagerState, NamespaceState};
use centrifuge_core::namespace_kind::Mode;
use centrifuge_core::record::{Batch, Change, DeathEvidence, Reason, Record, SessionInfo};
use tracing::{debug, info, warn};

use crate::metrics::Metrics;

/// The names of sessions.
pub(crate) type Names = BTreeMap<SessionId, OwnerName>;

/// Adds the names that a batch introduces, and those of `before` that it speaks of.
pub(crate) fn learn_names(names: &mut Names, batch: &Batch, before: Option<&ManagerState>) {
    for record in &batch.records {
        let Record::Namespace { namespace, change, .. } = record else { continue };
        match change {
            Change::SessionStarted { session, info } | Change::SessionChanged { session, info } => {
                names.insert(*session, info.name.clone());
            }
            Change::SessionEnded { session }
            | Change::Granted { session, .. }
            | Change::Claimed { session, .. }
            | Change::Recalled { to: Some(session), .. } => {
                let stored = before.and_then(|group| group.namespaces.get(namespace));
                if let Some(info) = stored.and_then(|stored| stored.sessions.get(session)) {
                    names.insert(*session, info.name.clone());
                }
            }
            _ => {}
        }
    }
}

/// Forgets the names of sessions that a batch ended.
pub(crate) fn forget_names(names: &mut Names, batch: &Batch) {
    for record in &batch.records {
        if let Record::Namespace { change: Change::SessionEnded { session }, .. } = record {
            names.remove(session);
        }
    }
}

/// Logs and counts a committed batch, given what was committed before it.
pub(crate) fn note(batch: &Batch, before: Option<&ManagerState>, names: &Names, metrics: &Metrics) {
    let mut many = Many::default();
    for record in &batch.records {
        match record {
            Record::LeaderStarted { .. } | Record::LeaderSettled | Record::LeaderResigned => {
                debug!(term = batch.term.0, ?record, "committed");
            }
            Record::Namespace { namespace, change, reason } => {
                let stored = before.and_then(|group| group.namespaces.get(namespace));
                count(namespace, change, reason, metrics);
                if !many.add(namespace, change, reason, stored, names) {
                    log_one(namespace, change, reason, names);
                }
            }
        }
    }
    many.log();
}

fn count(namespace: &Namespace, change: &Change, reason: &Reason, metrics: &Metrics) {
    let by = [namespace.as_str(), reason.as_str()];
    match change {
        Change::SessionStarted { .. } => {
            metrics.sessions_started.with([namespace.as_str()]).inc();
        }
        Change::SessionEnded { .. } => {
            metrics.sessions_ended.with(by).inc();
        }
        Change::Granted { source, .. } => {
            metrics.grants.with(by).inc();
            if source.is_some() {
                metrics.clean_moves.with([namespace.as_str()]).inc();
            }
        }
        Change::Claimed { .. } => {
            metrics.claims.with([namespace.as_str()]).inc();
        }
        Change::Released { .. } => {
            metrics.lease_losses.with(by).inc();
        }
        Change::Recalled { .. } => {
            metrics.recalls.with(by).inc();
        }
        Change::Quarantined { .. } => {
            metrics.quarantines.with([namespace.as_str()]).inc();
        }
        _ => {}
    }
}

/// Logs what happens rarely, a line each.
fn log_one(namespace: &Namespace, change: &Change, reason: &Reason, names: &Names) {
    let why = reason.as_str();
    let operator = match reason {
        Reason::Operator(words) => Some(tracing::field::display(words)),
        _ => None,
    };
    match change {
        Change::SessionStarted { session, info: SessionInfo { name, url, .. } } => {
            info!(%namespace, owner = %name, %session, %url, why, "an Owner joined");
        }
        Change::SessionChanged { info, .. } => {
            let SessionInfo { name, weight, virtual_nodes, evicted, .. } = info;
            let draining = info.is_draining();
            info!(%namespace, owner = %name, weight, virtual_nodes, draining, evicted, why, operator,
                "an Owner changed");
        }
        Change::SessionEnded { session } => {
            let owner = names.get(session).map(tracing::field::display);
            info!(%namespace, owner, %session, why, "an Owner is gone");
        }
        Change::Created { kind, .. } if kind.mode == Mode::Affinity => {
            warn!(%namespace, mode = kind.mode.as_str(), %kind,
                "namespace created in affinity mode: keys may have two owners for a short time, and lease numbers fence nothing");
        }
        Change::Created { kind, .. } => {
            info!(%namespace, mode = kind.mode.as_str(), %kind, "namespace created");
        }
        Change::Removed => info!(%namespace, "namespace removed"),
        Change::Configured { .. } => info!(%namespace, "namespace configured"),
        Change::Frozen => info!(%namespace, operator, "namespace frozen: no range moves"),
        Change::Unfrozen => info!(%namespace, operator, "namespace unfrozen"),
        Change::Pinned { range, to } => {
            let owner = to.as_ref().map(tracing::field::display);
            info!(%namespace, %range, owner, operator, "range pinned");
        }
        Change::Quarantined { range, evidence } => {
            let died: Vec<String> = evidence.iter().map(describe_death).collect();
            warn!(%namespace, %range, died = died.join(", "),
                "a range is quarantined: Owners that got it died, one after the other");
        }
        Change::Unquarantined { range } => {
            info!(%namespace, %range, why, operator, "a quarantine is over");
        }
        other => debug!(%namespace, change = ?other, why, "committed"),
    }
}

/// Who died, and how soon after the grant.
fn describe_death(death: &DeathEvidence) -> String {
    let DeathEvidence { name, session, generation, held, .. } = death;
    format!("{name} ({session}, lease {}) after {:.1} s", generation.0, held.as_secs_f64())
}

/// What happens to many ranges at once, added up: a line for each Owner and reason.
#[derive(Debug, Default)]
struct Many(BTreeMap<Line, Leases>);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    what: What,
    namespace: Namespace,
    owner: Option<OwnerName>,
    why: &'static str,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Lost,
    Granted,
    GrantedWithState,
    Claimed,
    Recalled,
}

#[derive(Debug, Default)]
struct Leases {
    ranges: u64,
    highest: Generation,
}

impl Many {
    /// Takes a change that many may be like; says whether it was one.
    fn add(
        &mut self,
        namespace: &Namespace,
        change: &Change,
        reason: &Reason,
        before: Option<&NamespaceState>,
        names: &Names,
    ) -> bool {
        let holder = |range: KeyRange| {
            let stored = before?;
            let session = stored.table.get(range.first()).1.owner?;
            stored.sessions.get(&session).map(|info| info.name.clone())
        };
        let (what, owner, generation) = match change {
            Change::Granted { session, generation, source, .. } => {
                let what = if source.is_some() { What::GrantedWithState } else { What::Granted };
                (what, names.get(session).cloned(), *generation)
            }
            Change::Claimed { session, generation, .. } => {
                (What::Claimed, names.get(session).cloned(), *generation)
            }
            Change::Released { range, generation } => (What::Lost, holder(*range), *generation),
            Change::Recalled { range, generation, .. } => (What::Recalled, holder(*range), *generation),
            _ => return false,
        };
        let line = Line { what, namespace: namespace.clone(), owner, why: reason.as_str() };
        let leases = self.0.entry(line).or_default();
        leases.ranges += 1;
        leases.highest = leases.highest.max(generation);
        true
    }

    fn log(&self) {
        for (Line { what, namespace, owner, why }, Leases { ranges, highest }) in &self.0 {
            let owner = owner.as_ref().map(tracing::field::display);
            let generation = highest.0;
            match what {
                What::Lost => {
                    info!(%namespace, owner, ranges, generation, why, "leases lost with their state")
                }
                What::Granted => info!(%namespace, owner, ranges, generation, why, "leases granted"),
                What::GrantedWithState => {
                    info!(%namespace, owner, ranges, generation, why, "leases granted with their state");
                }
                What::Claimed => {
                    info!(%namespace, owner, ranges, generation, why, "leases claimed: they go on as they were");
                }
                What::Recalled => info!(%namespace, owner, ranges, generation, why, "leases recalled"),
            }
        }
    }
}
