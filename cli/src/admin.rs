//! How operators' requests find the leader.

use std::time::Duration;

use centrifuge_core::id::ManagerId;
use centrifuge_net::convert::leader_named;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1::admin_client::AdminClient;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use crate::failure::Failure;

/// How long a Manager may take to answer: a change waits for its commit.
const ANSWER: Duration = Duration::from_secs(15);
/// How many hints are followed.
const MOST_HINTS: usize = 3;

/// The Managers an operator named.
pub(crate) struct Admin<'a> {
    managers: &'a [String],
}

impl<'a> Admin<'a> {
    pub(crate) fn new(managers: &'a [String]) -> Admin<'a> {
        Admin { managers }
    }

    /// Asks one Manager after the other until the leader answers; a Manager that does not lead says who does.
    pub(crate) async fn ask<R>(
        &self,
        call: impl AsyncFn(AdminClient<Channel>) -> Result<Response<R>, Status>,
    ) -> Result<R, Failure> {
        let mut problems = Vec::new();
        for manager in self.managers {
            let mut target = manager.clone();
            for _ in 0..MOST_HINTS {
                match in_time(call(connect(&target)?)).await {
                    Ok(response) => return Ok(response.into_inner()),
                    Err(status) if is_silent(&status) => {
                        problems.push(format!("{target} cannot be reached ({})", reason(&status)));
                        break;
                    }
                    Err(status) => match leader_named(&status) {
                        Some(leader) if leader.as_str() != target => target = leader.as_str().to_owned(),
                        _ if status.code() == Code::FailedPrecondition
                            && status.message().contains("lead") =>
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

/// A way to a Manager, used when the first request goes.
pub(crate) fn connect(manager: &str) -> Result<AdminClient<Channel>, Failure> {
    Dialer::new().admin(&ManagerId::from(manager)).map_err(|error| Failure::usage(error.to_string()))
}

/// Waits for an answer, but not for ever.
pub(crate) async fn in_time<R>(
    answer: impl Future<Output = Result<Response<R>, Status>>,
) -> Result<Response<R>, Status> {
    let late = || Status::deadline_exceeded(format!("no answer within {ANSWER:?}"));
    tokio::time::timeout(ANSWER, answer).await.unwrap_or_else(|_| Err(late()))
}

/// Whether nobody answered at all: then another Manager may.
fn is_silent(status: &Status) -> bool {
    std::error::Error::source(status).is_some() && status.code() != Code::FailedPrecondition
}

/// The innermost cause of a failed connection: the outer ones only say that there was one.
fn reason(status: &Status) -> String {
    let mut error: &dyn std::error::Error = status;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
