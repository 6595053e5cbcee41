//! How operators' requests find the leader.

use std::sync::Arc;
use std::time::Duration;

use centrifuge::Managers;
use centrifuge_core::id::ManagerId;
use centrifuge_net::convert::leader_named;
use centrifuge_net::dial::{Channel, Dialer, Security};
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::admin_client::AdminClient;
use tokio::time::Instant;
use tonic::{Code, Response, Status};

use crate::At;
use crate::failure::Failure;

/// How long a Manager may take to report its role before the next one is asked.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a Manager that does so may take to answer: a change waits for its commit.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// No other Manager is asked after this time.
const OVERALL_TIMEOUT: Duration = Duration::from_secs(20);
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

    /// Asks one Manager after the other until the leader answers; a Manager that does not lead says who does. One that hangs is left
    /// for the next before it was asked for anything that it might still carry out.
    pub(crate) async fn ask<R>(
        &self,
        call: impl AsyncFn(AdminClient<Channel>) -> Result<Response<R>, Status>,
    ) -> Result<R, Failure> {
        self.ask_within(ANSWER_TIMEOUT, call).await
    }

    /// The same, for what takes longer than others.
    pub(crate) async fn ask_within<R>(
        &self,
        answer_timeout: Duration,
        call: impl AsyncFn(AdminClient<Channel>) -> Result<Response<R>, Status>,
    ) -> Result<R, Failure> {
        let give_up_at = Instant::now() + OVERALL_TIMEOUT;
        let mut problems: Vec<(ManagerId, String)> = Vec::new();
        for manager in read(self.managers)?.iter() {
            let mut target = manager.clone();
            for _ in 0..MOST_HINTS {
                if problems.iter().any(|(known, _)| *known == target) || give_up_at <= Instant::now() {
                    break;
                }
                match ask_one(self.managers, &target, answer_timeout, &call).await? {
                    Answer::Given(answer) => return Ok(answer),
                    Answer::LedBy(leader) => {
                        problems.push((target, format!("says that {leader} leads")));
                        target = leader;
                    }
                    Answer::None(problem) => {
                        problems.push((target, problem));
                        break;
                    }
                }
            }
        }
        let problems: Vec<String> =
            problems.iter().map(|(manager, what)| format!("{manager} {what}")).collect();
        Err(Failure::no_manager(format!(
            "{}; start one with `centrifuge manager`, or name others with --managers",
            problems.join("; ")
        )))
    }
}

/// What became of asking one Manager.
enum Answer<R> {
    /// It leads, and answered.
    Given(R),
    /// It does not lead, and named who does.
    LedBy(ManagerId),
    /// Why it is of no use.
    None(String),
}

/// Asks a Manager for its role, and sends it the request if it may lead.
async fn ask_one<R>(
    managers: &Managers,
    target: &ManagerId,
    answer_timeout: Duration,
    call: impl AsyncFn(AdminClient<Channel>) -> Result<Response<R>, Status>,
) -> Result<Answer<R>, Failure> {
    let status = match probe(managers, target).await? {
        Ok(status) => status,
        Err(problem) => return Ok(Answer::None(problem)),
    };
    let other = |leader: &ManagerId| leader != target && leader.as_str() != status.manager;
    if status.role() == v1::Role::Standby
        && let Some(leader) = status.leader.as_deref().map(ManagerId::from).filter(other)
    {
        return Ok(Answer::LedBy(leader));
    }
    match in_time(answer_timeout, call(connect(managers, target)?)).await {
        Ok(response) => Ok(Answer::Given(response.into_inner())),
        Err(status) if is_silent(&status) => Ok(Answer::None(unreachable(managers.security(), &status))),
        Err(status) => match leader_named(&status) {
            Some(leader) if leader != *target => Ok(Answer::LedBy(leader)),
            _ if status.code() == Code::FailedPrecondition && status.message().contains("does not lead") => {
                Ok(Answer::None("does not lead and knows no leader".to_owned()))
            }
            _ => Err(status.into()),
        },
    }
}

/// The role of a Manager, or why it is unknown.
pub(crate) async fn probe(
    managers: &Managers,
    manager: &ManagerId,
) -> Result<Result<v1::StatusReply, String>, Failure> {
    let mut admin = connect(managers, manager)?;
    let reply = in_time(PROBE_TIMEOUT, admin.status(v1::StatusRequest {})).await;
    Ok(reply.map(Response::into_inner).map_err(|status| unreachable(managers.security(), &status)))
}

fn unreachable(security: &Security, status: &Status) -> String {
    let why = security.explain(status);
    match status.code() {
        Code::DeadlineExceeded => format!("does not answer ({why})"),
        Code::Unauthenticated | Code::PermissionDenied => format!("refuses to answer ({why})"),
        _ => format!("cannot be reached ({why})"),
    }
}

/// The namespace that was named, or else the only one there is.
pub(crate) async fn namespace(at: &At, named: Option<String>) -> Result<String, Failure> {
    if let Some(named) = named {
        return Ok(named);
    }
    let request = v1::ListNamespacesRequest { namespace: None };
    let reply = Admin::new(&at.managers()?)
        .ask(async |mut admin| admin.list_namespaces(request.clone()).await)
        .await?;
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
pub(crate) fn connect(managers: &Managers, manager: &ManagerId) -> Result<AdminClient<Channel>, Failure> {
    let dialer = Dialer::secured(managers.security().clone());
    dialer.admin(manager).map_err(|error| Failure::usage(error.to_string()))
}

/// Waits for an answer, but not for ever.
async fn in_time<R>(
    longest: Duration,
    answer: impl Future<Output = Result<Response<R>, Status>>,
) -> Result<Response<R>, Status> {
    let late = || Status::deadline_exceeded(format!("no answer within {longest:?}"));
    tokio::time::timeout(longest, answer).await.unwrap_or_else(|_| Err(late()))
}

/// Whether nobody answered at all: then another Manager may.
fn is_silent(status: &Status) -> bool {
    std::error::Error::source(status).is_some() && status.code() != Code::FailedPrecondition
}
