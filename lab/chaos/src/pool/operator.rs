//! Asks the Managers as an operator would: who leads, whether the pool is at rest, and for what operators can have.

use std::fmt;
use std::time::Duration;

use centrifuge_core::id::ManagerId;
use centrifuge_harness::wait::poll;
use centrifuge_net::dial::{Channel, Dialer, Security};
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::admin_client::AdminClient;
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
    security: Security,
}

impl Operator {
    pub(crate) fn new(addresses: &Addresses, managers: u8, security: Security) -> Operator {
        let id = |manager| ManagerId::from(addresses.grpc(manager).to_string().as_str());
        Operator { managers: (0..managers).map(id).collect(), security }
    }

    /// Each Manager in turn, over a connection of its own each time: it may have been killed since the last.
    fn admins(&self) -> impl Iterator<Item = AdminClient<Channel>> {
        self.managers.iter().flat_map(|manager| Dialer::secured(self.security.clone()).admin(manager))
    }

    /// Makes the namespace, as soon as somebody leads.
    pub(crate) async fn create_namespace(
        &self,
        settings: &v1::Settings,
        patience: Duration,
    ) -> Result<(), String> {
        let request = v1::CreateNamespaceRequest {
            namespace: NAMESPACE.to_owned(),
            settings: Some(*settings),
            kind: None,
        };
        let mut last = String::from("nobody was asked");
        let make = async || {
            for mut admin in self.admins() {
                match answer(admin.create_namespace(request.clone())).await {
                    Ok(_) => return Some(()),
                    // An earlier try did it, though its answer was lost.
                    Err(status) if status.code() == tonic::Code::AlreadyExists => return Some(()),
                    Err(status) => last = status.to_string(),
                }
            }
            None
        };
        let made = poll(POLL_INTERVAL, patience, make).await;
        made.ok_or_else(|| format!("no Manager made the namespace within {patience:?}: {last}"))
    }

    /// Asks for something until a Manager does it; says whether that came.
    pub(super) async fn perform(&self, wish: &Wish, patience: Duration) -> bool {
        let since = tokio::time::Instant::now();
        while since.elapsed() < patience {
            for admin in self.admins() {
                match tell(admin, wish.clone()).await {
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

    /// Which Manager leads, and its term.
    pub(crate) async fn leader(&self) -> Option<(u8, u64)> {
        for (index, mut admin) in (0_u8..).zip(self.admins()) {
            if let Ok(status) = answer(admin.status(v1::StatusRequest {})).await
                && status.role() == v1::Role::Leader
            {
                return Some((index, status.term));
            }
        }
        None
    }

    /// Waits until every key has an owner, so many Owners are there, and nothing moves; says whether that came.
    pub(crate) async fn comes_to_rest(&self, owners: u8, patience: Duration) -> bool {
        let rests = async || self.is_at_rest(owners).await.then_some(());
        poll(POLL_INTERVAL, patience, rests).await.is_some()
    }

    /// The ranges that are kept from everybody.
    pub(crate) async fn quarantines(&self) -> Vec<v1::Quarantine> {
        let request = v1::ListQuarantinesRequest { namespace: NAMESPACE.to_owned() };
        for mut admin in self.admins() {
            if let Ok(listed) = answer(admin.list_quarantines(request.clone())).await {
                return listed.quarantines;
            }
        }
        Vec::new()
    }

    /// Ends them all.
    pub(crate) async fn release_quarantines(&self) -> Result<(), String> {
        let range = Some(v1::KeyRange { first: 0, last: u64::MAX });
        let (namespace, why) = (NAMESPACE.to_owned(), "it is fixed".to_owned());
        let request = v1::ReleaseQuarantineRequest { namespace, range, why };
        let mut last = String::from("nobody was asked");
        for mut admin in self.admins() {
            match answer(admin.release_quarantine(request.clone())).await {
                Ok(_) => return Ok(()),
                Err(status) => last = status.to_string(),
            }
        }
        Err(format!("no Manager ended the quarantine: {last}"))
    }

    async fn is_at_rest(&self, owners: u8) -> bool {
        let request = v1::ListNamespacesRequest { namespace: Some(NAMESPACE.to_owned()) };
        for mut admin in self.admins() {
            let listed = answer(admin.list_namespaces(request.clone())).await;
            let space = listed.ok().and_then(|listed| listed.namespaces.into_iter().next());
            if let Some(space) = space {
                let is_whole = space.owners == u32::from(owners) && space.ranges > u32::from(owners);
                return is_whole && space.unowned_ranges == 0 && space.moving_ranges == 0;
            }
        }
        false
    }
}

async fn tell(mut admin: AdminClient<Channel>, wish: Wish) -> Result<(), Status> {
    let (namespace, why) = (NAMESPACE.to_owned(), "chaos".to_owned());
    match wish {
        Wish::Drain(owner) => answer(admin.drain(v1::DrainRequest { namespace, owner, why })).await.map(drop),
        Wish::Move { first, last, to } => {
            let range = Some(v1::KeyRange { first, last });
            answer(admin.r#move(v1::MoveRequest { namespace, range, to, why })).await.map(drop)
        }
        Wish::Freeze => answer(admin.freeze(v1::FreezeRequest { namespace, why })).await.map(drop),
        Wish::Unfreeze => answer(admin.unfreeze(v1::UnfreezeRequest { namespace, why })).await.map(drop),
    }
}

async fn answer<R>(call: impl Future<Output = Result<Response<R>, Status>>) -> Result<R, Status> {
    let late = |_| Err(Status::deadline_exceeded("no answer in time"));
    Ok(tokio::time::timeout(ANSWER_TIMEOUT, call).await.unwrap_or_else(late)?.into_inner())
}
