//! How operators' requests find the leader.

use std::sync::Arc;
use std::time::Duration;

use centrifuge::Managers;
use centrifuge_core::id::ManagerId;
use centrifuge_net::convert::leader_named;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::admin_client::AdminClient;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use crate::At;
use crate::failure::Failure;

/// How long a Manager may take to answer: a change waits for its commit.
const ANSWER: Duration = Duration::from_secs(15);
/// How many hints are followed.
const MOST_HINTS: usize = 3;

/// The Managers an operator named.
pub(crate) struct Admin<'a> {
    managers: &'a Managers,
}

impl<'a> Admin<'a> {
    pub(crate) fn new(managers: &'a Managers) -> Admin<'a> {
        Admin { managers }
    }

    /// Asks one Manager after the other until the leader answers; a Manager that does not lead says who does.
    pub(crate) async fn ask<R>(
        &self,
        call: impl AsyncFn(AdminClient<Channel>) -> Result<Response<R>, Status>,
    ) -> Result<R, Failure> {
        self.ask_within(ANSWER, call).await
    }

    /// The same, for what takes longer than others.
    pub(crate) async fn ask_within<R>(
        &self,
        patience: Duration,
        call: impl AsyncFn(AdminClient<Channel>) -> Result<Response<R>, Status>,
    ) -> Result<R, Failure> {
        let mut problems = Vec::new();
        for manager in read(self.managers)?.iter() {
            let mut target = manager.clone();
            for _ in 0..MOST_HINTS {
                match within(patience, call(connect(&target)?)).await {
                    Ok(response) => return Ok(response.into_inner()),
                    Err(status) if is_silent(&status) => {
                        problems.push(format!("{target} cannot be reached ({})", reason(&status)));
                        break;
                    }
                    Err(status) => match leader_named(&status) {
                        Some(leader) if leader != target => target = leader,
                        _ if status.code() == Code::FailedPrecondition
                            && status.message().contains("does not lead") =>
                        {
                            problems.push(format!("{target} does not lead and knows no leader"));
                            break;
                        }
                        _ => return Err(status.into()),
                    },
                }
            }
        }
        Err(Failure::no_manager(format!(
            "{}; start one with `centrifuge manager`, or name others with --managers",
            problems.join("; ")
        )))
    }
}

/// The namespace that was named, or else the only one there is.
pub(crate) async fn namespace(at: &At, named: Option<String>) -> Result<String, Failure> {
    if let Some(named) = named {
        return Ok(named);
    }
    let request = v1::ListNamespacesRequest { namespace: None };
    let reply =
        Admin::new(&at.managers).ask(async |mut admin| admin.list_namespaces(request.clone()).await).await?;
    let names: Vec<String> = reply.namespaces.into_iter().map(|space| space.name).collect();
    match names.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Failure::not_found(
            "there is no namespace yet: create one with `centrifuge namespace create NAME`",
        )),
        many => Err(Failure::usage(format!("say which namespace: {}", many.join(", ")))),
    }
}

/// The Managers as they are listed now.
pub(crate) fn read(managers: &Managers) -> Result<Arc<[ManagerId]>, Failure> {
    managers.read().map_err(|error| Failure::usage(error.to_string()))
}

/// A way to a Manager, used when the first request goes.
pub(crate) fn connect(manager: &ManagerId) -> Result<AdminClient<Channel>, Failure> {
    Dialer::new().admin(manager).map_err(|error| Failure::usage(error.to_string()))
}

/// Waits for an answer, but not for ever.
pub(crate) async fn in_time<R>(
    answer: impl Future<Output = Result<Response<R>, Status>>,
) -> Result<Response<R>, Status> {
    within(ANSWER, answer).await
}

async fn within<R>(
    patience: Duration,
    answer: impl Future<Output = Result<Response<R>, Status>>,
) -> Result<Response<R>, Status> {
    let late = || Status::deadline_exceeded(format!("no answer within {patience:?}"));
    tokio::time::timeout(patience, answer).await.unwrap_or_else(|_| Err(late()))
}

/// Whether nobody answered at all: then another Manager may.
fn is_silent(status: &Status) -> bool {
    std::error::Error::source(status).is_some() && status.code() != Code::FailedPrecondition
}

/// The innermost cause of a failed connection: the outer ones only say that there was one.
pub(crate) fn reason(status: &Status) -> String {
    let mut error: &dyn std::error::Error = status;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
