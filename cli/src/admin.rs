//! How operators' requests find the leader.

use std::time::Duration;

use centrifuge_net::convert::leader_named;
use centrifuge_net::limits;
use centrifuge_net::proto::v1::admin_client::AdminClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};

use crate::failure::Failure;

/// How long a Manager may take to be reached.
const CONNECT: Duration = Duration::from_secs(3);
/// How long it may take to answer: a change waits for its commit.
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
                match call(connect(&target).await?).await {
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
pub(crate) async fn connect(manager: &str) -> Result<AdminClient<Channel>, Failure> {
    let endpoint = Endpoint::from_shared(format!("http://{manager}"))
        .map_err(|_| Failure::usage(format!("{manager:?} is no address; write HOST:PORT")))?;
    let channel = endpoint.connect_timeout(CONNECT).timeout(ANSWER).connect_lazy();
    Ok(AdminClient::new(channel).max_decoding_message_size(limits::CLIENT_RECEIVES))
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
