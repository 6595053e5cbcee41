//! Asks the Managers as an operator would: who leads, and whether the pool is at rest.

use std::time::Duration;

use centrifuge_core::id::ManagerId;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use tonic::Status;

use super::addresses::Addresses;
use crate::plan::NAMESPACE;

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(2);
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// An operator who knows where the Managers really are.
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
                match self
                    .admin(manager, async |mut admin| admin.create_namespace(request.clone()).await)
                    .await
                {
                    Ok(_) => return Ok(()),
                    // An earlier try did it, though its answer was lost.
                    Err(status) if status.code() == tonic::Code::AlreadyExists => return Ok(()),
                    Err(status) => last = format!("{manager}: {status}"),
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(format!("no Manager made the namespace within {patience:?}: {last}"))
    }

    /// Which Manager leads, and its term.
    pub(crate) async fn leader(&self) -> Option<(u8, u64)> {
        for (index, manager) in (0_u8..).zip(&self.managers) {
            let status =
                self.admin(manager, async |mut admin| admin.status(v1::StatusRequest {}).await).await;
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
            tokio::time::sleep(PAUSE).await;
        }
        false
    }

    async fn is_at_rest(&self, owners: u8) -> bool {
        let request = v1::ListNamespacesRequest { namespace: Some(NAMESPACE.to_owned()) };
        for manager in &self.managers {
            let listed =
                self.admin(manager, async |mut admin| admin.list_namespaces(request.clone()).await).await;
            let space = listed.ok().and_then(|listed| listed.namespaces.into_iter().next());
            if let Some(space) = space {
                let is_whole = space.owners == u32::from(owners) && space.ranges > u32::from(owners);
                return is_whole && space.unowned_ranges == 0 && space.moving_ranges == 0;
            }
        }
        false
    }

    async fn admin<R>(
        &self,
        manager: &ManagerId,
        call: impl AsyncFn(
            v1::admin_client::AdminClient<tonic::transport::Channel>,
        ) -> Result<tonic::Response<R>, Status>,
    ) -> Result<R, Status> {
        // A connection of its own each time: the Manager may have been killed since the last.
        let admin = Dialer::new().admin(manager).map_err(|error| Status::internal(error.to_string()))?;
        let late = |_| Err(Status::deadline_exceeded("no answer in time"));
        let answer = tokio::time::timeout(ANSWER, call(admin)).await.unwrap_or_else(late)?;
        Ok(answer.into_inner())
    }
}
