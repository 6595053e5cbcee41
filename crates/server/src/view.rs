//! What readers outside the driver see of a Manager: its role, what is committed, and what it knows besides.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use centrifuge_core::id::{ManagerId, Namespace, Term};
use centrifuge_core::manager::{NamespaceOverview, RoleName};
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::record::Batch;
use centrifuge_core::time::Instant;
use tokio::sync::watch;

use crate::store::{Backend, StoreFacts};
use crate::term_watch::TermWatch;

/// The role of a Manager, and the leader it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleView {
    /// Its role.
    pub role: RoleName,
    /// The term it leads or led last.
    pub term: Term,
    /// Who leads, as far as it knows.
    pub leader: Option<ManagerId>,
}

impl RoleView {
    /// Whether it leads.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        matches!(self.role, RoleName::Leader { .. })
    }

    /// Whether asking it gets anywhere: it leads, or can say who does.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_leading() || (self.role == RoleName::Standby && self.leader.is_some())
    }
}

/// What a leader knows besides what is stored, as of an instant.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// When it was so, by the boot-time clock.
    pub at: Instant,
    /// By namespace.
    pub namespaces: BTreeMap<Namespace, NamespaceOverview>,
}

/// Which store there is, and whether it answers well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreHealth {
    /// What kind of store it is.
    pub kind: &'static str,
    /// How the leader is chosen.
    pub election: &'static str,
    /// Its latest problem.
    pub problem: Option<String>,
    /// The Managers that run on it, if it is for several.
    pub managers: Vec<String>,
    /// The highest term that it knows, if it knows more than its own Manager's.
    pub term: Term,
}

/// What there is to know of the store, and where.
#[derive(Debug, Default)]
struct StoreView {
    /// What its latest answer complained of.
    problem: Option<&'static str>,
    kind: &'static str,
    election: &'static str,
    facts: Arc<Mutex<StoreFacts>>,
}

/// The driver writes, everybody reads. Readers get shared snapshots and never hold up the driver.
#[derive(Debug)]
pub struct View {
    role: watch::Sender<RoleView>,
    group: Mutex<Option<Arc<ManagerState>>>,
    overview: Mutex<Arc<Overview>>,
    store: Mutex<StoreView>,
    /// Where terms come from a clock.
    terms: OnceLock<TermWatch>,
}

impl Default for View {
    fn default() -> View {
        let role = RoleView { role: RoleName::Standby, term: Term::ZERO, leader: None };
        View {
            role: watch::Sender::new(role),
            group: Mutex::default(),
            overview: Mutex::default(),
            store: Mutex::default(),
            terms: OnceLock::new(),
        }
    }
}

impl View {
    /// The Manager's role.
    #[must_use]
    pub fn role(&self) -> RoleView {
        self.role.borrow().clone()
    }

    /// The Manager's role, and every change of it.
    #[must_use]
    pub fn roles(&self) -> watch::Receiver<RoleView> {
        self.role.subscribe()
    }

    /// What is committed, if the Manager leads.
    #[must_use]
    pub fn group(&self) -> Option<Arc<ManagerState>> {
        lock(&self.group).clone()
    }

    /// What a leader knows besides; at most a second or so old.
    #[must_use]
    pub fn overview(&self) -> Arc<Overview> {
        lock(&self.overview).clone()
    }

    /// Whether the store answers well.
    #[must_use]
    pub fn store(&self) -> StoreHealth {
        let store = lock(&self.store);
        let StoreFacts { managers, term, problem } = lock(&store.facts).clone();
        // The store's own report is more exact than what its answers show.
        let problem = problem.or_else(|| store.problem.map(str::to_owned));
        let problem = problem.or_else(|| self.terms.get().and_then(TermWatch::problem));
        StoreHealth { kind: store.kind, election: store.election, problem, managers, term }
    }

    /// Why a leader cannot commit now; `None` if it can, or does not lead.
    #[must_use]
    pub fn cannot_commit(&self) -> Option<String> {
        lock(&self.store).problem?;
        self.role().is_leading().then(|| self.store().problem).flatten()
    }

    /// Whether asking this Manager gets anywhere: it can commit, or say who leads.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.role().is_ready() && self.cannot_commit().is_none()
    }

    pub(crate) fn show_role(&self, now: RoleView) {
        self.role.send_replace(now);
    }

    /// Shows what a new leader found, or that this Manager does not lead.
    pub(crate) fn show_group(&self, group: Option<Arc<ManagerState>>) {
        *lock(&self.group) = group;
    }

    /// Applies a committed batch to what is shown. Copies only while there are readers.
    pub(crate) fn commit(&self, batch: &Batch) {
        if let Some(group) = lock(&self.group).as_mut() {
            Arc::make_mut(group).apply(batch);
        }
    }

    pub(crate) fn show_overview(&self, overview: Overview) {
        *lock(&self.overview) = Arc::new(overview);
    }

    /// Shows which store there is, and what it knows as long as it runs.
    pub(crate) fn attach_store(&self, backend: &Backend, facts: Arc<Mutex<StoreFacts>>) {
        let mut store = lock(&self.store);
        store.kind = backend.kind();
        store.election = backend.election();
        store.facts = facts;
        if let Backend::None(options) = backend {
            self.terms.get_or_init(|| TermWatch::new(options.clock_ahead));
        }
    }

    /// Takes note of the highest term that a client has seen, and says what is wrong if no Manager can have won it yet.
    pub(crate) fn hear_term(&self, term: Term) -> Option<String> {
        self.terms.get()?.hear(term)
    }

    pub(crate) fn show_store(&self, problem: Option<&'static str>) {
        lock(&self.store).problem = problem;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
