//! Asks the Managers as an operator would: who leads, whether the pool is at rest, and for what operators can have.

use std::fmt;
use std::time::Duration;

use centrifuge_core::id::ManagerId;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::admin_client::AdminClient;
use tonic::transport::Channel;
use tonic::{Response, Status};

use super::addresses::Addresses;
use crate::plan::NAMESPACE;

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// The pause between two tries.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What an operator can want of a pool.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    /// This Owner is emptied.
    Drain(String),
    /// These keys belong at this Owner; or, without one, wherever the partitioner says.
    Move {
        first: u64,
        last: u64,
        to: Option<String>,
    },
    Freeze,
    Unfreeze,
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wish::Drain(owner) => write!(f, "drain {owner}"),
            Wish::Move { first, last, to: Some(owner) } => write!(f, "move {first:x}-{last:x} to {owner}"),
            Wish::Move { first, last, to: None } => write!(f, "cancel the move of {first:x}-{last:x}"),
            Wish::Freeze => write!(f, "freeze"),
            Wish::Unfreeze => write!(f, "unfreeze"),
        }
    }
}

/// An operator who knows where the Managers really are.
#[derive(Clone)]
pub(crate) struct Operator {
    managers: Vec<ManagerId>,
}

impl Operator {
    pub(crate) fn new(addresses: &Addresses, managers: u8) -> Operator {
        let id = |manager| ManagerId::from(addresses.grpc(manager).to_string().as_str());
        Operator { managers: (0..managers).map(id).collect() }
    }

    /// Makes the namespace, as soon as somebody leads.
    pub(crate) async fn create_namespace(
        &self,
        settings: &v1::Settings,
        patience: Duration,
    ) -> Result<(), String> {
        let request =
            v1::CreateNamespaceRequest { namespace: NAMESPACE.to_owned(), settings: Some(*settings) };
        let since = tokio::time::Instant::now();
        let mut last = String::from("nobody was asked");
        while since.elapsed() < patience {
            for manager in &self.managers {
                let request = request.clone();
                let made =
                    self.admin(manager, |mut admin| async move { admin.create_namespace(request).await });
                match made.await {
                    Ok(_) => return Ok(()),
                    // An earlier try did it, though its answer was lost.
                    Err(status) if status.code() == tonic::Code::AlreadyExists => return Ok(()),
                    Err(status) => last = format!("{manager}: {status}"),
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Err(format!("no Manager made the namespace within {patience:?}: {last}"))
    }

    /// Asks for something until a Manager does it; says whether that came.
    pub(super) async fn perform(&self, wish: &Wish, patience: Duration) -> bool {
        let since = tokio::time::Instant::now();
        while since.elapsed() < patience {
            for manager in &self.managers {
                match self.wish(manager, wish).await {
                    Ok(()) => return true,
                    // The Owner is not there just now.
                    Err(status) if status.code() == tonic::Code::NotFound => return false,
                    Err(_) => {}
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        false
    }

    async fn wish(&self, manager: &ManagerId, wish: &Wish) -> Result<(), Status> {
        let (namespace, why) = (NAMESPACE.to_owned(), "chaos".to_owned());
        match wish.clone() {
            Wish::Drain(owner) => {
                let request = v1::DrainRequest { namespace, owner, why };
                self.admin(manager, |mut admin| async move { admin.drain(request).await }).await.map(drop)
            }
            Wish::Move { first, last, to } => {
                let range = Some(v1::KeyRange { first, last });
                let request = v1::MoveRequest { namespace, range, to, why };
                self.admin(manager, |mut admin| async move { admin.r#move(request).await }).await.map(drop)
            }
            Wish::Freeze => {
                let request = v1::FreezeRequest { namespace, why };
                self.admin(manager, |mut admin| async move { admin.freeze(request).await }).await.map(drop)
            }
            Wish::Unfreeze => {
                let request = v1::UnfreezeRequest { namespace, why };
                self.admin(manager, |mut admin| async move { admin.unfreeze(request).await }).await.map(drop)
            }
        }
    }

    /// Which Manager leads, and its term.
    pub(crate) async fn leader(&self) -> Option<(u8, u64)> {
        for (index, manager) in (0_u8..).zip(&self.managers) {
            let asked = v1::StatusRequest {};
            let status = self.admin(manager, |mut admin| async move { admin.status(asked).await }).await;
            if let Ok(status) = status
                && status.role() == v1::Role::Leader
            {
                return Some((index, status.term));
            }
        }
        None
    }

    /// Waits until every key has an owner, so many Owners are there, and nothing moves; says whether that came.
    pub(crate) async fn comes_to_rest(&self, owners: u8, patience: Duration) -> bool {
        let since = tokio::time::Instant::now();
        while since.elapsed() < patience {
            if self.is_at_rest(owners).await {
                return true;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        false
    }

    async fn is_at_rest(&self, owners: u8) -> bool {
        let request = v1::ListNamespacesRequest { namespace: Some(NAMESPACE.to_owned()) };
        for manager in &self.managers {
            let request = request.clone();
            let listed = self.admin(manager, |mut admin| async move { admin.list_namespaces(request).await });
            let listed = listed.await;
            let space = listed.ok().and_then(|listed| listed.namespaces.into_iter().next());
            if let Some(space) = space {
                let is_whole = space.owners == u32::from(owners) && space.ranges > u32::from(owners);
                return is_whole && space.unowned_ranges == 0 && space.moving_ranges == 0;
            }
        }
        false
    }

    async fn admin<R, F>(
        &self,
        manager: &ManagerId,
        call: impl FnOnce(AdminClient<Channel>) -> F,
    ) -> Result<R, Status>
    where
        F: Future<Output = Result<Response<R>, Status>>,
    {
        // A connection of its own each time: the Manager may have been killed since the last.
        let admin = Dialer::new().admin(manager).map_err(|error| Status::internal(error.to_string()))?;
        let late = |_| Err(Status::deadline_exceeded("no answer in time"));
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, call(admin)).await.unwrap_or_else(late)?;
        Ok(answer.into_inner())
    }
}
