//! Sends a request to the owner of a key, wherever that is by the time it arrives.

use std::future::Future;
use std::time::Duration;

use centrifuge_core::id::SessionId;
use centrifuge_core::key::Key;
use tokio::time::Instant;

use crate::hot::{HotRoutes, NoOwner, Route};
use crate::lookup::Lookup;

/// The first wait before another try; each is twice as long as the one before.
const FIRST_WAIT: Duration = Duration::from_millis(10);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// How long a request is tried unless told otherwise: longer than a lease and its hold.
const PATIENCE: Duration = Duration::from_secs(90);

/// Routes requests: looks the owner up, lets the application send, and on a stale route waits, looks again and retries.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use centrifuge::hot::HotRoutes;
/// use centrifuge::router::{Refusal, Router};
/// use centrifuge::Key;
///
/// // Usually `Router::new(lookup)`; here a table of one range and one owner.
/// let router = Router::over(HotRoutes::evenly(1, 1));
/// let answer = router
///     .send(Key::of(b"room-7"), |route| async move {
///         // Send the request to `route.url()` with the lease `route.generation()` and say how it went.
///         Ok::<_, Refusal<std::io::Error>>(format!("asked {}", route.url()))
///     })
///     .await;
/// assert_eq!(answer.unwrap(), "asked http://10.0.0.0:8080");
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct Router {
    routes: HotRoutes,
    lookup: Option<Lookup>,
    patience: Duration,
}

/// How an attempt failed, in the application's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal<E> {
    /// The server says that the key is not its own: look again and retry.
    NotOwner,
    /// The server could not be reached, or it is not known whether it was: retry. Requests that must not be carried out
    /// twice need an identity of their own.
    Unreachable(E),
    /// The request itself failed: trying again would not help.
    Failed(E),
}

/// Why a request was not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouterError<E> {
    /// The owner lives, as far as the Manager knows, and cannot be reached from here.
    #[error(
        "the owner at {url} cannot be reached after {attempts} attempts ({last}): check the network between this process and it"
    )]
    OwnerUnreachable {
        /// Where it should be.
        url: String,
        /// How often it was tried.
        attempts: u32,
        /// The last failure.
        last: E,
    },
    /// Nobody owned the key for as long as there was patience.
    #[error("the key has no owner after {attempts} attempts: {why}")]
    NoOwner {
        /// What the Lookup says.
        why: NoOwner,
        /// How often it was tried.
        attempts: u32,
    },
    /// Every server asked said that it is not the owner.
    #[error(
        "after {attempts} attempts no server took the key for its own: check that callers and servers use the same Managers and namespace"
    )]
    NotOwner {
        /// How often it was tried.
        attempts: u32,
    },
    /// The request itself failed.
    #[error("the request failed: {0}")]
    Failed(E),
}

impl Router {
    /// Routes by a Lookup: a changed table ends a wait early.
    #[must_use]
    pub fn new(lookup: Lookup) -> Router {
        Router { routes: lookup.routes(), lookup: Some(lookup), patience: PATIENCE }
    }

    /// Routes by a table alone.
    #[must_use]
    pub fn over(routes: HotRoutes) -> Router {
        Router { routes, lookup: None, patience: PATIENCE }
    }

    /// How long a request is tried; 90 s unless set, which outlasts an owner's death under the default settings.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Router {
        self.patience = patience;
        self
    }

    /// Sends a request for `key`: calls `attempt` with a route until it succeeds, fails for good, or patience ends.
    pub async fn send<T, E, F, R>(&self, key: Key, mut attempt: F) -> Result<T, RouterError<E>>
    where
        F: FnMut(Route) -> R,
        R: Future<Output = Result<T, Refusal<E>>>,
    {
        let give_up_at = Instant::now() + self.patience;
        let mut wait = FIRST_WAIT;
        let mut attempts: u32 = 0;
        let mut last_tried: Option<SessionId> = None;
        loop {
            attempts = attempts.saturating_add(1);
            let seen = self.lookup.as_ref().and_then(Lookup::position);
            let error = match self.routes.lookup(key) {
                Err(why) => RouterError::NoOwner { why, attempts },
                Ok(route) => {
                    // A new owner is asked at once, and patience with it begins anew.
                    if last_tried.replace(route.session()) != Some(route.session()) {
                        wait = FIRST_WAIT;
                    }
                    let url = route.url().to_owned();
                    match attempt(route).await {
                        Ok(answer) => return Ok(answer),
                        Err(Refusal::Failed(error)) => return Err(RouterError::Failed(error)),
                        Err(Refusal::NotOwner) => RouterError::NotOwner { attempts },
                        Err(Refusal::Unreachable(last)) => {
                            RouterError::OwnerUnreachable { url, attempts, last }
                        }
                    }
                }
            };
            if Instant::now() + wait > give_up_at {
                return Err(error);
            }
            self.pause(wait, seen).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Waits, but not for longer than until the table is another.
    async fn pause(&self, wait: Duration, seen: Option<centrifuge_core::message::Position>) {
        match &self.lookup {
            Some(lookup) => {
                // Whichever comes first is reason enough to try again.
                let _ = tokio::time::timeout(wait, lookup.changed_since(seen)).await;
            }
            None => tokio::time::sleep(wait).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stale_route_is_tried_again_and_a_failure_is_not() {
        let router = Router::over(HotRoutes::evenly(4, 2));
        let tries = Cell::new(0);
        let answer = router
            .send(Key(1), |_| {
                tries.set(tries.get() + 1);
                let tries = tries.get();
                async move {
                    match tries {
                        1 => Err(Refusal::NotOwner),
                        2 => Err(Refusal::Unreachable("no route to host")),
                        _ => Ok(tries),
                    }
                }
            })
            .await;
        assert_eq!(answer, Ok(3));
        let failed = router.send(Key(1), |_| async { Err::<(), _>(Refusal::Failed("bad request")) }).await;
        assert_eq!(failed, Err(RouterError::Failed("bad request")));
    }

    #[tokio::test(start_paused = true)]
    async fn patience_ends_with_what_was_wrong_last() {
        let began = Instant::now();
        let router = Router::over(HotRoutes::evenly(4, 2)).patience(Duration::from_secs(5));
        let cut = router.send(Key(1), |_| async { Err::<(), _>(Refusal::Unreachable("cut")) }).await;
        assert!(
            matches!(cut, Err(RouterError::OwnerUnreachable { last: "cut", attempts: 2.., .. })),
            "{cut:?}"
        );
        assert!(began.elapsed() <= Duration::from_secs(5));
        let unknown = Router::over(HotRoutes::new()).patience(Duration::from_secs(1));
        let none = unknown.send(Key(1), |_| async { Ok::<(), Refusal<&str>>(()) }).await;
        assert!(matches!(none, Err(RouterError::NoOwner { why: NoOwner::NoTable, .. })), "{none:?}");
    }
}
