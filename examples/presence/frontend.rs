//! A frontend of presence: users sign in here, and what they published is published again when it is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::{Path, State};
use axum::http::{Method, StatusCode};
use axum::routing::get;
use axum::{Json, Router};
use clap::Args;
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use super::republish::{Outcome, Publications, Sending, republish};
use super::{Numbered, Presence, Publication, SERVICE};
use crate::Result;
use crate::shared::call::{Answer, Call, CallerArgs, Pool, Tries, duration};
use crate::shared::http::{ListenArgs, Problem, check_name};

/// How many publications are made again at once.
const MAX_REPUBLISHING: usize = 16;
/// How long one of them is tried before it is another's turn.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
/// How often users who are gone are forgotten.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// How often a number is raised above what another frontend chose.
const MAX_RAISES: u32 = 8;

/// What a frontend of presence is told.
#[derive(Args, Clone, Debug)]
pub struct PresenceFrontendArgs {
    /// Its name and where it listens
    #[command(flatten)]
    pub listen: ListenArgs,
    /// The pool
    #[arg(long, default_value = SERVICE)]
    pub namespace: String,
    /// How long after a user's last word the user is forgotten; as long as at the servers
    #[arg(long, value_parser = duration, default_value = "1h", value_name = "DURATION")]
    pub ttl: Duration,
    /// How it finds the pool
    #[command(flatten)]
    pub caller: CallerArgs,
}

/// The users of one frontend, and its way to the servers.
pub struct Frontend {
    pool: Pool,
    publications: Arc<Publications>,
    last_number: AtomicU64,
    tasks: Vec<AbortHandle>,
}

/// Why a frontend cannot do what its user wants.
#[derive(Debug, thiserror::Error)]
pub enum FrontendError {
    /// It does not know where anything is, nor what was lost.
    #[error("this frontend has lost the Manager: go to another one, and publish your presence again there")]
    OutOfContact,
    /// The outcome is not known.
    #[error("it is not known whether that happened: try again ({0})")]
    Unanswered(String),
    /// Another frontend publishes for the same user.
    #[error("others publish for the same user at the same time: try again")]
    Contended,
}

impl Frontend {
    /// Learns where everything is, and publishes again from now on.
    pub async fn connect(args: &CallerArgs, namespace: &str, ttl: Duration) -> Result<Frontend> {
        let pool = Pool::connect(args, namespace).await?;
        let publications = Arc::new(Publications::new(ttl));
        let (mut losses, told) = (pool.lookup().losses(), Arc::clone(&publications));
        let listening = tokio::spawn(async move {
            while let Some(loss) = losses.next().await {
                told.lost(&loss);
            }
        });
        let mut tasks =
            vec![listening.abort_handle(), tokio::spawn(sweep(Arc::clone(&publications))).abort_handle()];
        for _ in 0..MAX_REPUBLISHING {
            let (pool, publications) = (pool.patience(ATTEMPT_TIMEOUT), Arc::clone(&publications));
            let publishing = async move {
                let send = |sending| async { send(&pool, sending).await.map(|(outcome, _)| outcome) };
                republish(&publications, send).await;
            };
            tasks.push(tokio::spawn(publishing).abort_handle());
        }
        Ok(Frontend { pool, publications, last_number: AtomicU64::new(0), tasks })
    }

    /// The pool, for whoever wants to hear of its losses too.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// What its users published.
    pub fn publications(&self) -> &Publications {
        &self.publications
    }

    /// A user of this frontend says how to be reached, or, with nothing, signs off.
    pub async fn publish(&self, user: &str, presence: Option<Presence>) -> Result<Tries, FrontendError> {
        self.check_contact()?;
        let mut above = 0;
        let mut all = Tries::default();
        for _ in 0..MAX_RAISES {
            let publication = Publication { number: self.next_number(above), presence: presence.clone() };
            let sending = self.publications.keep(user, publication);
            let (outcome, tries) = send(&self.pool, sending.clone()).await?;
            all.misrouted += tries.misrouted;
            all.unreachable += tries.unreachable;
            match outcome {
                Outcome::Arrived => {
                    // A sign-off is kept as well: an earlier frontend of the user may still have the last sign-in.
                    self.publications.arrived(&sending);
                    return Ok(all);
                }
                // The user has said more since, through this frontend: that is what counts.
                Outcome::Newer(_) if self.publications.has_newer(&sending) => return Ok(all),
                // The user was at another frontend, whose clock is ahead.
                Outcome::Newer(number) => above = number,
            }
        }
        Err(FrontendError::Contended)
    }

    /// How any user can be reached.
    pub async fn read(&self, user: &str) -> Result<(Option<Presence>, Tries), FrontendError> {
        self.check_contact()?;
        let answer = ask(&self.pool, user, &Call::get(self.pool.path_of(user))).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok((None, answer.tries));
        }
        let found: Publication =
            answer.read().map_err(|error| FrontendError::Unanswered(error.to_string()))?;
        Ok((found.presence, answer.tries))
    }

    /// Whoever cannot hear of losses must not have users who rely on hearing of them (PRS §2.1).
    fn check_contact(&self) -> Result<(), FrontendError> {
        if self.pool.lookup().in_contact() { Ok(()) } else { Err(FrontendError::OutOfContact) }
    }

    /// A number above all that were given here and, if the clocks are right, anywhere.
    fn next_number(&self, above: u64) -> u64 {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock = u64::try_from(clock.as_micros()).unwrap_or(u64::MAX);
        let next = |last: u64| last.max(above).saturating_add(1).max(clock);
        let last = self.last_number.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |last| Some(next(last)));
        next(last.unwrap_or_else(|last| last))
    }
}

impl Drop for Frontend {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

async fn sweep(publications: Arc<Publications>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        publications.sweep();
    }
}

/// Sends a publication to the owner of its user's name.
async fn send(pool: &Pool, sending: Sending) -> Result<(Outcome, Tries), FrontendError> {
    let Sending { user, publication, .. } = sending;
    let path = pool.path_of(&user);
    let call = match publication.presence {
        Some(_) => Call::put(path, &publication),
        None => {
            Call::new(Method::DELETE, format!("{path}?number={}", publication.number), Default::default())
        }
    };
    let answer = ask(pool, &user, &call).await?;
    match answer.status {
        StatusCode::CONFLICT => {
            let newer: Numbered = serde_json::from_slice(&answer.body)
                .map_err(|error| FrontendError::Unanswered(error.to_string()))?;
            Ok((Outcome::Newer(newer.number), answer.tries))
        }
        status if status.is_success() => Ok((Outcome::Arrived, answer.tries)),
        status => Err(FrontendError::Unanswered(format!("the server answered {status}"))),
    }
}

async fn ask(pool: &Pool, user: &str, call: &Call) -> Result<Answer, FrontendError> {
    pool.ask(user, call).await.map_err(|error| FrontendError::Unanswered(error.to_string()))
}

/// Serves until it is told to stop.
pub async fn run(args: PresenceFrontendArgs) -> Result<()> {
    let frontend = Frontend::connect(&args.caller, &args.namespace, args.ttl).await?;
    let routes = Router::new()
        .route("/status", get(status))
        .route(&format!("/{}/{{user}}", args.namespace), get(show).put(sign_in).delete(sign_off))
        .with_state(Arc::new(frontend));
    args.listen.serve(routes).await
}

impl From<FrontendError> for Problem {
    fn from(error: FrontendError) -> Problem {
        let status = match error {
            FrontendError::OutOfContact => StatusCode::SERVICE_UNAVAILABLE,
            FrontendError::Unanswered(_) => StatusCode::GATEWAY_TIMEOUT,
            FrontendError::Contended => StatusCode::CONFLICT,
        };
        Problem::new(status, error)
    }
}

type Here = State<Arc<Frontend>>;

async fn sign_in(
    State(frontend): Here,
    Path(user): Path<String>,
    Json(presence): Json<Presence>,
) -> Result<Json<Value>, Problem> {
    check_name(&user)?;
    frontend.publish(&user, Some(presence)).await?;
    Ok(Json(json!({})))
}

async fn sign_off(State(frontend): Here, Path(user): Path<String>) -> Result<Json<Value>, Problem> {
    frontend.publish(&user, None).await?;
    Ok(Json(json!({})))
}

async fn show(State(frontend): Here, Path(user): Path<String>) -> Result<Json<Presence>, Problem> {
    let (presence, _) = frontend.read(&user).await?;
    let absent = || Problem::new(StatusCode::NOT_FOUND, format!("{user} is not signed in"));
    presence.map(Json).ok_or_else(absent)
}

async fn status(State(frontend): Here) -> Json<Value> {
    Json(
        json!({ "in_contact": frontend.pool.lookup().in_contact(), "publications": frontend.publications.counts() }),
    )
}
