//! Sends a request to the owner of a key, wherever that is by the time it arrives.

mod visit;

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use centrifuge_core::id::SessionId;
use centrifuge_core::key::KeyRange;
use centrifuge_core::message::Position;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

pub use self::visit::VisitError;
use crate::hot::{HotRoutes, NoOwner, Route};
use crate::keys::{Hashed, KeyOrder};
use crate::lookup::{Lookup, Reach};

/// The first wait before another try; each is twice as long as the one before.
const FIRST_WAIT: Duration = Duration::from_millis(10);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// How long a request is tried unless told otherwise: longer than a lease and its hold.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(90);
/// How often a table without a Lookup is compared with the owner that is being asked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long an attempt may go on after its owner lost the key: an answer given before a planned move is on its way, and giving it up
/// would carry the request out twice.
const ANSWER_GRACE: Duration = Duration::from_millis(100);

/// Routes requests: looks the owner up, lets the application send, and on a stale route waits, looks again and retries.
///
/// Whatever an owner does, [`Router::send`] answers or fails within its patience: an attempt ends with it, and soon after the key
/// has another owner in the table. An attempt that ends so is dropped, and may have been carried out.
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
pub struct Router<K: KeyOrder = Hashed> {
    routes: HotRoutes,
    lookup: Option<Lookup<K>>,
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
    /// The owner lives, as far as the Manager knows, took the request and gave no answer.
    #[error(
        "the owner at {url} has not answered within {within:?}, after {attempts} attempts: see whether that process hangs, or be more patient"
    )]
    OwnerSilent {
        /// Where it should be.
        url: String,
        /// How often owners were tried.
        attempts: u32,
        /// How long it was waited for altogether.
        within: Duration,
    },
    /// No Manager says who owns the key now, and those whom the last table names did not answer for it.
    #[error(
        "no leading Manager answers this process, so that its table is out of date, and after {attempts} attempts nobody has answered for the key: check with `centrifuge status` that a Manager leads, and the network between this process and it"
    )]
    NoManager {
        /// How often it was tried.
        attempts: u32,
        /// The last failure, if a server could not be reached.
        last: Option<E>,
    },
    /// The Manager does not know the namespace, or not any more.
    #[error(
        "there is no namespace {namespace}: it was deleted, or these are other Managers; create it with `centrifuge namespace create {namespace}`"
    )]
    UnknownNamespace {
        /// The namespace.
        namespace: String,
        /// How often it was tried.
        attempts: u32,
    },
    /// The namespace is not of the kind that the Lookup is built for: another one has its name now.
    #[error(
        "the namespace {namespace} is not of the kind that this caller is built for: name another, or build the Lookup for this one"
    )]
    WrongKind {
        /// The namespace.
        namespace: String,
        /// How often it was tried.
        attempts: u32,
    },
    /// Nobody owned the key for as long as there was patience.
    #[error("the key has no owner after {attempts} attempts: {why}")]
    NoOwner {
        /// What the Lookup says.
        why: NoOwner,
        /// How often it was tried.
        attempts: u32,
    },
    /// Nobody was the preferred owner of the key for as long as there was patience (affinity mode).
    #[error("the key has no owner after {attempts} attempts: wait and try again, or ask any server")]
    NoPreferredOwner {
        /// How often it was tried.
        attempts: u32,
    },
    /// Nobody owns the key, and nobody will soon: servers that got it died, one after the other. Not tried until patience ends.
    #[error(
        "the key is in quarantine with {range}, because servers that got it died one after the other: `centrifuge quarantine list` \
         shows which and until when, `centrifuge quarantine release` ends it"
    )]
    Quarantined {
        /// The keys around it of which the same is true.
        range: KeyRange,
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
    /// Routes by a table alone.
    #[must_use]
    pub fn over(routes: HotRoutes) -> Router {
        Router::by_table(routes)
    }
}

impl<K: KeyOrder> Router<K> {
    pub(crate) fn by_table(routes: HotRoutes) -> Router<K> {
        Router { routes, lookup: None, patience: DEFAULT_TIMEOUT }
    }

    /// Routes by a Lookup: a changed table ends a wait early.
    #[must_use]
    pub fn new(lookup: Lookup<K>) -> Router<K> {
        Router { routes: lookup.hot(), lookup: Some(lookup), patience: DEFAULT_TIMEOUT }
    }

    /// How long a request is tried; 90 s unless set, which outlasts an owner's death under the default settings.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Router<K> {
        self.patience = patience;
        self
    }

    /// Sends a request for `key`: calls `attempt` with a route until it succeeds, fails for good, or patience ends.
    pub async fn send<T, E, F, R>(&self, key: K::Key, mut attempt: F) -> Result<T, RouterError<E>>
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
            let error = match K::route(&self.routes, key) {
                // Waiting would not help: it takes an operator, or longer than anybody is patient.
                Err(NoOwner::Quarantined { range, .. }) => return Err(RouterError::Quarantined { range }),
                Err(NoOwner::Replaced) => {
                    return Err(RouterError::NoOwner { why: NoOwner::Replaced, attempts });
                }
                Err(why) => RouterError::NoOwner { why, attempts },
                Ok(route) => {
                    let (session, url) = (route.session(), route.url().to_owned());
                    // A new owner is asked at once, and patience with it begins anew.
                    if last_tried.replace(session) != Some(session) {
                        wait = FIRST_WAIT;
                    }
                    let silent =
                        RouterError::OwnerSilent { url: url.clone(), attempts, within: self.patience };
                    match self.bounded(attempt(route), key, session, seen, give_up_at).await {
                        Attempt::Answered(Ok(answer)) => return Ok(answer),
                        Attempt::Answered(Err(Refusal::Failed(error))) => {
                            return Err(RouterError::Failed(error));
                        }
                        Attempt::Answered(Err(Refusal::NotOwner)) => RouterError::NotOwner { attempts },
                        Attempt::Answered(Err(Refusal::Unreachable(last))) => {
                            RouterError::OwnerUnreachable { url, attempts, last }
                        }
                        Attempt::Moved if Instant::now() < give_up_at => continue,
                        Attempt::Moved | Attempt::OutOfTime => return Err(self.explained(silent, attempts)),
                    }
                }
            };
            if Instant::now() + wait > give_up_at || self.is_refused() {
                return Err(self.explained(error, attempts));
            }
            self.pause(wait, seen).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// Whether trying again is of no use, because the Lookup asks no more.
    fn is_refused(&self) -> bool {
        self.lookup.as_ref().is_some_and(|lookup| lookup.reach() == Reach::WrongKind)
    }

    /// Awaits an attempt until patience ends, or the key has left the owner that is being asked.
    async fn bounded<T>(
        &self,
        attempt: impl Future<Output = T>,
        key: K::Key,
        session: SessionId,
        seen: Option<Position>,
        give_up_at: Instant,
    ) -> Attempt<T> {
        let mut attempt = pin!(attempt);
        tokio::select! {
            biased;
            answer = &mut attempt => return Attempt::Answered(answer),
            () = sleep_until(give_up_at) => return Attempt::OutOfTime,
            () = self.has_left(key, session, seen) => {}
        }
        let grace = give_up_at.min(Instant::now() + ANSWER_GRACE);
        timeout_at(grace, attempt).await.map_or(Attempt::Moved, Attempt::Answered)
    }

    /// Waits until the table has another owner for the key, or none.
    async fn has_left(&self, key: K::Key, session: SessionId, mut seen: Option<Position>) {
        while K::route(&self.routes, key).is_ok_and(|route| route.session() == session) {
            match &self.lookup {
                Some(lookup) => match lookup.changed_since(seen).await {
                    position @ Some(_) => seen = position,
                    // It has ended and its table stays as it is.
                    None => sleep(POLL_INTERVAL).await,
                },
                None => sleep(POLL_INTERVAL).await,
            }
        }
    }

    /// A failure while no Manager answers says little about owners: who owns the key is not known.
    fn explained<E>(&self, error: RouterError<E>, attempts: u32) -> RouterError<E> {
        let Some(lookup) = &self.lookup else { return error };
        match lookup.reach() {
            Reach::Leader => error,
            Reach::UnknownNamespace => {
                RouterError::UnknownNamespace { namespace: lookup.namespace().to_string(), attempts }
            }
            Reach::WrongKind => {
                RouterError::WrongKind { namespace: lookup.namespace().to_string(), attempts }
            }
            Reach::NoLeader => {
                let last = match error {
                    RouterError::OwnerUnreachable { last, .. } => Some(last),
                    _ => None,
                };
                RouterError::NoManager { attempts, last }
            }
        }
    }

    /// Waits, but not for longer than until the table changed.
    async fn pause(&self, wait: Duration, seen: Option<Position>) {
        match &self.lookup {
            Some(lookup) => {
                // Whichever comes first is reason enough to try again.
                let _ = timeout(wait, lookup.changed_since(seen)).await;
            }
            None => sleep(wait).await,
        }
    }
}

/// How an attempt ended.
enum Attempt<T> {
    /// By itself.
    Answered(T),
    /// The key has left the owner that was asked.
    Moved,
    /// With the patience.
    OutOfTime,
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use centrifuge_core::id::{Generation, Nonce};
    use centrifuge_core::key::Key;
    use centrifuge_core::lookup::Row;
    use centrifuge_core::table::PublishedOwner;

    use super::*;

    /// Gives every key to one owner.
    fn give(routes: &HotRoutes, url: &str, session: u128) {
        let owner = Some(PublishedOwner { session: SessionId(Nonce(session)), url: url.into() });
        let (generation, state_since) = (Generation(1), Generation(1));
        let row = Row { owner, generation, state_since, quarantined: false };
        routes.publish([(KeyRange::ALL, &row)]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_that_never_answers_holds_nobody_longer_than_patience() {
        let (began, patience) = (Instant::now(), Duration::from_secs(5));
        let router = Router::over(HotRoutes::evenly(4, 2)).patience(patience);
        let attempt = |_| std::future::pending::<Result<(), Refusal<&str>>>();
        let silent = timeout(patience * 4, router.send(Key(1), attempt)).await.expect("it ends by itself");
        assert!(matches!(silent, Err(RouterError::OwnerSilent { attempts: 1, .. })), "{silent:?}");
        assert_eq!(began.elapsed(), patience);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_owner_is_asked_while_the_old_one_is_silent() {
        let (began, routes) = (Instant::now(), HotRoutes::new());
        give(&routes, "http://stopped", 1);
        let moves = async {
            sleep(Duration::from_secs(3)).await;
            give(&routes, "http://next", 2);
        };
        let router = Router::over(routes.clone());
        let asked = router.send(Key(1), |route| async move {
            if route.url() == "http://stopped" {
                std::future::pending::<()>().await;
            }
            Ok::<_, Refusal<&str>>(route.url().to_owned())
        });
        let (answer, ()) = tokio::join!(asked, moves);
        assert_eq!(answer, Ok("http://next".to_owned()));
        assert!(began.elapsed() < Duration::from_secs(3) + POLL_INTERVAL * 2 + ANSWER_GRACE);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_under_way_during_a_move_is_taken() {
        let (routes, tries) = (HotRoutes::new(), Cell::new(0));
        give(&routes, "http://a", 1);
        let router = Router::over(routes.clone());
        let asked = router.send(Key(1), |route| {
            tries.set(tries.get() + 1);
            give(&routes, "http://b", 2);
            async move {
                sleep(ANSWER_GRACE / 2).await;
                Ok::<_, Refusal<&str>>(route.url().to_owned())
            }
        });
        assert_eq!(asked.await, Ok("http://a".to_owned()));
        assert_eq!(tries.get(), 1, "nothing is carried out twice by a planned move");
    }

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
    async fn a_key_in_quarantine_is_told_at_once_and_sent_again_when_that_ends() {
        let (began, routes) = (Instant::now(), HotRoutes::new());
        let (generation, state_since) = (Generation(4), Generation(4));
        let row = Row { owner: None, generation, state_since, quarantined: true };
        routes.publish([(KeyRange::ALL, &row)]);
        assert_eq!(routes.lookup(Key(1)), Err(NoOwner::Quarantined { range: KeyRange::ALL, generation }));
        let router = Router::over(routes.clone());
        let refused = router.send(Key(1), |_| async { Ok::<(), Refusal<&str>>(()) }).await;
        assert_eq!(refused, Err(RouterError::Quarantined { range: KeyRange::ALL }));
        assert_eq!(began.elapsed(), Duration::ZERO, "patience would not help");
        give(&routes, "http://next", 2);
        assert_eq!(router.send(Key(1), |_| async { Ok::<_, Refusal<&str>>(()) }).await, Ok(()));
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
