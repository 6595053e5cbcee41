//! The operators' service: reads are answered from the view, commands go through the machine.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use centrifuge_core::id::{LoadDimension, Namespace};
use centrifuge_core::manager::{AdminCommand, AdminError, ManagerEvent};
use centrifuge_core::manager_state::{ManagerState, NamespaceState};
use centrifuge_core::namespace_kind::Mode;
use centrifuge_net::clock;
use centrifuge_net::convert::{
    ConvertError, HistoryQuery, LeaseQuery, admin_status, configure_command, named, not_leader_status,
    read_namespace, write_lease, write_namespace_status, write_owner_status, write_quarantine,
};
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::admin_server::{Admin, AdminServer};
use prost::bytes::Bytes;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};
use tracing::{info, warn};

use super::{Held, identity, remote};
use crate::access::{AUDIT, Access, Guarded, Identity, Permission};
use crate::inbox::Inbox;
use crate::shared::Shared;
use crate::store::backup::encode_backup;
use crate::store::{StoreCopier, StoreError};

/// The largest request of an operator: a name, settings and a few words.
const LARGEST_REQUEST: usize = 16 << 10;

/// How much of a backup is sent in one message.
const BACKUP_PART: usize = 256 << 10;

/// How often a change of settings is retried because other settings changed meanwhile, before the operator is told.
const CONFIGURE_TRIES: usize = 16;

/// How often it is looked at whether the store takes writes while an operator waits, and how often in a row it must not.
const COMMIT_LOOK: Duration = Duration::from_millis(250);
const COMMIT_LOOKS: u32 = 8;

/// How much of an operator's name the history keeps.
const LONGEST_NAME: usize = 256;

/// Where operators ask.
#[derive(Debug)]
pub(crate) struct AdminService {
    shared: Arc<Shared>,
    inbox: Inbox,
    room: Semaphore,
    /// One backup at a time.
    backups: Arc<Semaphore>,
}

impl AdminService {
    /// The service, with its limit on the size of requests.
    pub(crate) fn server(shared: Arc<Shared>, inbox: Inbox) -> AdminServer<AdminService> {
        let room = Semaphore::new(shared.limits.max_admin_requests);
        let backups = Arc::new(Semaphore::new(1));
        AdminServer::new(AdminService { shared, inbox, room, backups })
            .max_decoding_message_size(LARGEST_REQUEST)
    }

    /// Takes a request of somebody who may ask that, and gives it room. There is no other way to what a request says.
    fn admit<T: Guarded>(&self, request: Request<T>) -> Result<Admitted<'_, T>, Status> {
        self.shared.metrics.messages_received.with(["admin"]).inc();
        let asker = Asker { who: identity(&request), from: remote(&request) };
        let message = request.into_inner();
        self.shared.authorize(asker.who.as_deref(), &asker.from, &message.access())?;
        let room = self.room.try_acquire().map_err(|_| {
            let words = "too many requests of operators wait: try again, or raise max_admin_requests";
            self.shared.refused_input("too-many-admin-requests", &asker.from, &words);
            Status::resource_exhausted(words)
        })?;
        Ok(Admitted { message, asker, _room: room })
    }

    /// Whether somebody may see a namespace in a list.
    fn shows(&self, asker: &Asker, namespace: &str) -> bool {
        let access = Access::In(Permission::View, namespace.to_owned());
        self.shared.authority.decide(asker.who.as_deref(), &access).is_ok()
    }

    /// What is committed; only a leader knows.
    fn group(&self) -> Result<Arc<ManagerState>, Status> {
        let role = self.shared.view.role();
        match self.shared.view.group() {
            Some(group) if role.is_leading() => Ok(group),
            _ => Err(not_leader_status(role.leader.as_ref())),
        }
    }

    /// What copies the store. Where there is none, every Manager says so, not the leader alone.
    fn copier(&self) -> Result<Arc<StoreCopier>, Status> {
        let copier = self.shared.copier.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let copier = copier.ok_or_else(|| Status::unavailable("the store is not open yet: ask again"))?;
        copier.check().map_err(|error| Status::failed_precondition(error.to_string()))?;
        Ok(copier)
    }

    /// The bytes of a backup of the store as it is now.
    async fn take_backup(&self, copier: Arc<StoreCopier>) -> Result<Bytes, Status> {
        let take = move || {
            let contents = copier.copy()?;
            Ok(Bytes::from(encode_backup(&contents, SystemTime::now())))
        };
        let taken: Result<Bytes, StoreError> = match tokio::task::spawn_blocking(take).await {
            Ok(taken) => taken,
            Err(_) => return Err(Status::unavailable("the Manager stops: ask another")),
        };
        taken.map_err(|error| Status::unavailable(error.to_string()))
    }

    /// The command for the settings in force, and whether what the operator expects was in force.
    fn configure_from_here(
        &self,
        request: v1::ConfigureNamespaceRequest,
    ) -> Result<(AdminCommand, bool), Status> {
        let group = self.group()?;
        let in_force = |namespace: &Namespace| {
            group.namespaces.get(namespace).map(|stored| (stored.kind.clone(), Arc::clone(&stored.settings)))
        };
        let command = configure_command(request, in_force)?;
        let was_in_force = match &command {
            AdminCommand::Configure { namespace, expected, .. } => {
                in_force(namespace).map(|(_, settings)| settings) == *expected
            }
            _ => false,
        };
        Ok((command, was_in_force))
    }

    /// Hands a command to the machine, and waits until it is committed or refused, or until the store is known not to commit.
    async fn perform<T>(&self, request: Request<T>) -> Result<(), Status>
    where
        T: Guarded,
        AdminCommand: TryFrom<T, Error = ConvertError>,
    {
        let Admitted { message, asker, _room } = self.admit(request)?;
        let command = asker.sign(message.try_into()?);
        let outcome = match self.check_target(&command) {
            Ok(()) => self.commit(command.clone()).await,
            refused => refused,
        };
        self.audit(&asker, &command, &outcome);
        outcome
    }

    /// Writes down who had what done.
    fn audit(&self, asker: &Asker, command: &AdminCommand, outcome: &Result<(), Status>) {
        let (who, from) = (asker.name(), asker.from);
        let (namespace, owner) = named(command);
        let owner = owner.map_or("", |owner| owner.as_str());
        let what = command.as_str();
        match outcome {
            Ok(()) => info!(target: AUDIT, who, %from, what, %namespace, owner, "done"),
            Err(status) => {
                if let Some(suppressed) = self.shared.audit.admit() {
                    let why = status.message();
                    warn!(target: AUDIT, who, %from, what, %namespace, owner, why, suppressed, "not done");
                }
            }
        }
    }

    /// Hands a command over unless the store is known not to commit.
    async fn commit(&self, command: AdminCommand) -> Result<(), Status> {
        if let Some(problem) = self.shared.view.cannot_commit() {
            return Err(Status::unavailable(format!("nothing was changed, because {problem}")));
        }
        let decided = tokio::select! {
            decided = self.decide(command.clone()) => decided,
            problem = self.cannot_commit() => {
                let words = format!("not committed, because {problem}; look whether it was done when there is");
                return Err(Status::unavailable(words));
            }
        };
        self.answer(&command, decided)
    }

    /// Waits until the store has not taken a write for a while, and says why.
    async fn cannot_commit(&self) -> String {
        let mut seen = 0;
        loop {
            tokio::time::sleep(COMMIT_LOOK).await;
            match self.shared.view.cannot_commit() {
                Some(problem) if seen >= COMMIT_LOOKS => return problem,
                Some(_) => seen += 1,
                None => seen = 0,
            }
        }
    }

    /// The machine's answer to a command, once it is committed or refused.
    async fn decide(&self, command: AdminCommand) -> Result<(), AdminError> {
        let (request, answered) = self.shared.replies.expect();
        let waiting = Forget { shared: &self.shared, request };
        let sent = self.inbox.request(ManagerEvent::Admin { request, command }).await;
        let result = match sent {
            Ok(()) => answered.await.unwrap_or(Err(AdminError::Unknown)),
            Err(_) => Err(AdminError::Unknown),
        };
        drop(waiting);
        result
    }

    fn answer(&self, command: &AdminCommand, result: Result<(), AdminError>) -> Result<(), Status> {
        self.shared.metrics.admin_requests.with([command.as_str(), AdminError::outcome(&result)]).inc();
        result.map_err(|error| admin_status(&error, named(command)))
    }

    /// Changes some of the settings in force. If another operator changes other settings meanwhile, those stay, and the change is
    /// retried.
    async fn configure(&self, asker: &Asker, request: &v1::ConfigureNamespaceRequest) -> Result<(), Status> {
        let mut tries = CONFIGURE_TRIES;
        loop {
            tries -= 1;
            let (command, was_in_force) = self.configure_from_here(request.clone())?;
            match self.decide(command.clone()).await {
                Err(AdminError::SettingsChanged) if was_in_force && tries > 0 => {}
                decided => {
                    let outcome = self.answer(&command, decided);
                    self.audit(asker, &command, &outcome);
                    return outcome;
                }
            }
        }
    }

    /// A range that is wanted at an Owner which gives everything away would stay where it is, and nobody would know why.
    fn check_target(&self, command: &AdminCommand) -> Result<(), Status> {
        let AdminCommand::Move { namespace, to: Some(to), .. } = command else { return Ok(()) };
        let group = self.group()?;
        let stored = group.namespaces.get(namespace);
        let info = stored.and_then(|stored| stored.sessions.get(&stored.session_named(to)?));
        match info {
            Some(info) if info.evicted => Err(Status::failed_precondition(format!(
                "`{to}` is evicted and gets nothing any more: name another Owner, or wait for a new process of it"
            ))),
            Some(info) if info.drain_ordered => Err(Status::failed_precondition(format!(
                "`{to}` is being emptied and gets nothing any more: name another Owner, or undrain it first"
            ))),
            Some(info) if info.drain_requested => Err(Status::failed_precondition(format!(
                "`{to}` is being emptied and gets nothing any more: name another Owner"
            ))),
            _ => Ok(()),
        }
    }
}

/// Who asks, and from where.
struct Asker {
    who: Option<Arc<Identity>>,
    from: SocketAddr,
}

/// A request of somebody who may ask it.
struct Admitted<'a, T> {
    message: T,
    asker: Asker,
    _room: SemaphorePermit<'a>,
}

impl Asker {
    fn name(&self) -> &str {
        self.who.as_ref().map_or("(nobody)", |who| who.name())
    }

    /// Adds to the reason of a command who gave it, for the history.
    fn sign(&self, mut command: AdminCommand) -> AdminCommand {
        let Some(who) = &self.who else { return command };
        let name: String = who.name().chars().take(LONGEST_NAME).collect();
        if let AdminCommand::Freeze { why, .. }
        | AdminCommand::Unfreeze { why, .. }
        | AdminCommand::Move { why, .. }
        | AdminCommand::Drain { why, .. }
        | AdminCommand::Undrain { why, .. }
        | AdminCommand::Unquarantine { why, .. }
        | AdminCommand::Evict { why, .. } = &mut command
        {
            *why = if why.is_empty() { format!("by {name}") } else { format!("{why} (by {name})") }.into();
        }
        command
    }
}

/// An operator who hangs up waits no more.
struct Forget<'a> {
    shared: &'a Shared,
    request: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.shared.replies.forget(self.request);
    }
}

/// The mode of a namespace, with which every answer about its leases is marked.
fn mode(stored: &NamespaceState) -> Option<i32> {
    Some(v1::Mode::from(stored.kind.mode).into())
}

fn stored<'a>(group: &'a ManagerState, namespace: &Namespace) -> Result<&'a NamespaceState, Status> {
    group
        .namespaces
        .get(namespace)
        .ok_or_else(|| admin_status(&AdminError::NoSuchNamespace, (namespace, None)))
}

#[tonic::async_trait]
impl Admin for AdminService {
    async fn status(&self, request: Request<v1::StatusRequest>) -> Result<Response<v1::StatusReply>, Status> {
        let _admitted = self.admit(request)?;
        let shared = &self.shared;
        let role = shared.view.role();
        let store = shared.view.store();
        let group = shared.view.group();
        let namespaces = group.as_ref().map(|group| group.namespaces.len());
        let affinity = group.as_ref().map_or(0, |group| {
            group.namespaces.values().filter(|stored| stored.kind.mode == Mode::Affinity).count()
        });
        Ok(Response::new(v1::StatusReply {
            manager: shared.manager.clone(),
            role: v1::Role::from(role.role).into(),
            term: role.term.max(store.term).0,
            leader: role.leader.map(|leader| leader.to_string()),
            uptime_ms: u64::try_from(shared.started_at.elapsed().as_millis()).unwrap_or(u64::MAX),
            store: Some(v1::StoreStatus {
                kind: store.kind.to_owned(),
                healthy: store.problem.is_none(),
                problem: store.problem.unwrap_or_default(),
            }),
            namespaces: namespaces.map(|count| u32::try_from(count).unwrap_or(u32::MAX)),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            managers: store.managers,
            election: store.election.to_owned(),
            affinity_namespaces: (affinity > 0).then(|| u32::try_from(affinity).unwrap_or(u32::MAX)),
        }))
    }

    async fn list_namespaces(
        &self,
        request: Request<v1::ListNamespacesRequest>,
    ) -> Result<Response<v1::ListNamespacesReply>, Status> {
        let Admitted { message, asker, _room } = self.admit(request)?;
        let group = self.group()?;
        let only = message.namespace;
        let only = only.map(|name| read_namespace("namespace", &name)).transpose()?;
        let overview = self.shared.view.overview();
        let now = clock::now();
        let write = |name: &Namespace, stored: &NamespaceState| {
            write_namespace_status(name, stored, overview.namespaces.get(name), now)
        };
        let namespaces = match only {
            Some(name) => vec![write(&name, stored(&group, &name)?)],
            None => {
                let shown = group.namespaces.iter().filter(|(name, _)| self.shows(&asker, name.as_str()));
                shown.map(|(name, stored)| write(name, stored)).collect()
            }
        };
        Ok(Response::new(v1::ListNamespacesReply { namespaces }))
    }

    async fn create_namespace(
        &self,
        request: Request<v1::CreateNamespaceRequest>,
    ) -> Result<Response<v1::CreateNamespaceReply>, Status> {
        self.perform(request).await?;
        Ok(Response::new(v1::CreateNamespaceReply {}))
    }

    async fn configure_namespace(
        &self,
        request: Request<v1::ConfigureNamespaceRequest>,
    ) -> Result<Response<v1::ConfigureNamespaceReply>, Status> {
        let Admitted { message, asker, _room } = self.admit(request)?;
        self.configure(&asker, &message).await?;
        Ok(Response::new(v1::ConfigureNamespaceReply {}))
    }

    async fn delete_namespace(
        &self,
        request: Request<v1::DeleteNamespaceRequest>,
    ) -> Result<Response<v1::DeleteNamespaceReply>, Status> {
        self.perform(request).await?;
        Ok(Response::new(v1::DeleteNamespaceReply {}))
    }

    async fn list_owners(
        &self,
        request: Request<v1::ListOwnersRequest>,
    ) -> Result<Response<v1::ListOwnersReply>, Status> {
        let Admitted { message, _room, .. } = self.admit(request)?;
        let group = self.group()?;
        let namespace = read_namespace("namespace", &message.namespace)?;
        let stored = stored(&group, &namespace)?;
        let overview = self.shared.view.overview();
        let heard = overview.namespaces.get(&namespace);
        let dimension = LoadDimension::default();
        let now = clock::now();
        let mut owners: Vec<_> = stored
            .sessions
            .iter()
            .map(|(session, info)| {
                let seen = heard.and_then(|heard| heard.sessions.get(session));
                let ago = seen.map(|seen| now.since(seen.heard));
                let load = seen.map_or((0, &dimension), |seen| (seen.load, &seen.load_dimension));
                write_owner_status(*session, info, stored, ago, load)
            })
            .collect();
        owners.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Response::new(v1::ListOwnersReply { owners, mode: mode(stored) }))
    }

    async fn list_leases(
        &self,
        request: Request<v1::ListLeasesRequest>,
    ) -> Result<Response<v1::ListLeasesReply>, Status> {
        let Admitted { message, _room, .. } = self.admit(request)?;
        let group = self.group()?;
        let query = LeaseQuery::try_from(message)?;
        let stored = stored(&group, &query.namespace)?;
        let session = match &query.owner {
            Some(name) => {
                let session = stored.session_named(name);
                let about = (&query.namespace, Some(name));
                Some(session.ok_or_else(|| admin_status(&AdminError::NoSuchOwner, about))?)
            }
            None => None,
        };
        let leases = stored
            .table
            .iter()
            .filter(|(range, _)| query.range.is_none_or(|wanted| wanted.overlaps(*range)))
            .filter(|(_, entry)| session.is_none_or(|session| entry.owner == Some(session)))
            .map(|(range, entry)| write_lease(range, entry, stored))
            .collect();
        Ok(Response::new(v1::ListLeasesReply { leases, mode: mode(stored) }))
    }

    async fn list_quarantines(
        &self,
        request: Request<v1::ListQuarantinesRequest>,
    ) -> Result<Response<v1::ListQuarantinesReply>, Status> {
        let Admitted { message, _room, .. } = self.admit(request)?;
        let group = self.group()?;
        let namespace = read_namespace("namespace", &message.namespace)?;
        let stored = stored(&group, &namespace)?;
        let overview = self.shared.view.overview();
        let seen = overview.namespaces.get(&namespace);
        let since = |range| seen.and_then(|seen| seen.quarantines.get(range));
        let (now, lasts) = (clock::now(), stored.settings.quarantine);
        let quarantines = stored
            .quarantines
            .iter()
            .map(|known| write_quarantine(known, since(&known.range).map(|since| now.since(*since)), lasts));
        Ok(Response::new(v1::ListQuarantinesReply { quarantines: quarantines.collect() }))
    }

    async fn release_quarantine(
        &self,
        request: Request<v1::ReleaseQuarantineRequest>,
    ) -> Result<Response<v1::ReleaseQuarantineReply>, Status> {
        self.perform(request).await?;
        Ok(Response::new(v1::ReleaseQuarantineReply {}))
    }

    async fn history(
        &self,
        request: Request<v1::HistoryRequest>,
    ) -> Result<Response<v1::HistoryReply>, Status> {
        let Admitted { message, asker, _room } = self.admit(request)?;
        let query = HistoryQuery::try_from(message)?;
        let group = self.group()?;
        // Decisions about the Managers themselves are for those who may see everything.
        let everything = Access::Everywhere(Permission::View);
        let sees_all = self.shared.authority.decide(asker.who.as_deref(), &everything).is_ok();
        let shown = |decision: &v1::Decision| {
            sees_all || decision.namespace.as_ref().is_some_and(|namespace| self.shows(&asker, namespace))
        };
        let mut decisions = self.shared.history.find(&query, shown);
        for decision in &mut decisions {
            let namespace = decision.namespace.as_deref().and_then(|name| Namespace::new(name).ok());
            decision.mode = namespace.and_then(|name| group.namespaces.get(&name)).and_then(mode);
        }
        Ok(Response::new(v1::HistoryReply { decisions }))
    }

    async fn freeze(&self, request: Request<v1::FreezeRequest>) -> Result<Response<v1::FreezeReply>, Status> {
        self.perform(request).await?;
        Ok(Response::new(v1::FreezeReply {}))
    }

    async fn unfreeze(
        &self,
        request: Request<v1::UnfreezeRequest>,
    ) -> Result<Response<v1::UnfreezeReply>, Status> {
        self.perform(request).await?;
        Ok(Response::new(v1::UnfreezeReply {}))
    }

    async fn r#move(&self, request: Request<v1::MoveRequest>) -> Result<Response<v1::MoveReply>, Status> {
        self.perform(request).await?;
        Ok(Response::new(v1::MoveReply {}))
    }

    async fn drain(&self, request: Request<v1::DrainRequest>) -> Result<Response<v1::DrainReply>, Status> {
        self.perform(request).await?;
        Ok(Response::new(v1::DrainReply {}))
    }

    async fn undrain(
        &self,
        request: Request<v1::UndrainRequest>,
    ) -> Result<Response<v1::UndrainReply>, Status> {
        self.perform(request).await?;
        Ok(Response::new(v1::UndrainReply {}))
    }

    type BackupStream = Pin<Box<dyn Stream<Item = Result<v1::BackupReply, Status>> + Send>>;

    async fn backup(
        &self,
        request: Request<v1::BackupRequest>,
    ) -> Result<Response<Self::BackupStream>, Status> {
        let Admitted { asker, _room, .. } = self.admit(request)?;
        let copier = self.copier()?;
        self.group()?;
        let under_way = Arc::clone(&self.backups).try_acquire_owned().map_err(|_| {
            Status::resource_exhausted("another backup is being taken: wait for it, and ask again")
        })?;
        let mut rest = self.take_backup(copier).await?;
        let (who, from, bytes) = (asker.name(), asker.from, rest.len());
        info!(target: AUDIT, who, %from, what = "backup", bytes, "done");
        let parts = std::iter::from_fn(move || {
            let part = rest.split_to(rest.len().min(BACKUP_PART));
            (!part.is_empty()).then(|| Ok(v1::BackupReply { part }))
        });
        Ok(Response::new(Box::pin(Held { stream: Box::pin(tokio_stream::iter(parts)), _guard: under_way })))
    }

    async fn evict(&self, request: Request<v1::EvictRequest>) -> Result<Response<v1::EvictReply>, Status> {
        self.perform(request).await?;
        Ok(Response::new(v1::EvictReply {}))
    }
}
