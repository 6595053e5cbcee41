//! The feeds' frontend: passes requests on, a few at a time to each server, and posts again what was lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use centrifuge::router::{Refusal, RouterError};
use centrifuge::{Key, Lookup};
use clap::Args;
use serde_json::{Value, json};

use super::admission::Admission;
use super::posts::{Post, Posts};
use super::routes::Event;
use crate::Result;
use crate::shared::call::{Answer, Call, CallerArgs, Unanswered, duration};
use crate::shared::http::{ListenArgs, Problem};
use crate::shared::stamp::wall_ms;

/// How long a post that is made again waits for a server that has enough to do.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// How often a post that went to the wrong server is sent again: for longer than a move takes.
const TRIES: u32 = 50;
/// How often posts are looked through for those that are too old.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// What a feeds' frontend is told.
#[derive(Args, Clone, Debug)]
pub struct FeedsFrontendArgs {
    #[command(flatten)]
    listen: ListenArgs,
    /// The pool
    #[arg(long, default_value = "feeds")]
    pool: String,
    /// The most requests that may be under way to any one server
    #[arg(long, default_value_t = 64)]
    cap: usize,
    /// How long posts are kept, to be made again if they are lost
    #[arg(long, value_parser = duration, default_value = "24h", value_name = "DURATION")]
    ttl: Duration,
    #[command(flatten)]
    caller: CallerArgs,
}

/// Serves until it is told to stop.
pub async fn run(args: FeedsFrontendArgs) -> Result<()> {
    let lookup = args.caller.lookup(&args.pool).await?;
    let frontend = Frontend {
        router: centrifuge::Router::new(lookup.clone()).patience(args.caller.times.patience),
        http: reqwest::Client::new(),
        admission: Admission::new(args.cap),
        posts: Arc::new(Mutex::new(Posts::new(args.ttl))),
        name: args.listen.name.clone(),
        events: Arc::default(),
    };
    tokio::spawn(frontend.clone().post_again(lookup));
    tokio::spawn(frontend.clone().sweep());
    args.listen.serve(frontend.routes(&args.pool)).await
}

#[derive(Clone)]
struct Frontend {
    router: centrifuge::Router,
    http: reqwest::Client,
    admission: Admission,
    posts: Arc<Mutex<Posts>>,
    name: String,
    events: Arc<AtomicU64>,
}

type Shared = State<Frontend>;

/// How a server answers, or why it does not.
type Sent = Result<Answer, Unanswered>;

impl Frontend {
    /// Below the pool's name, as at its servers.
    fn routes(self, pool: &str) -> Router {
        Router::new()
            .route(&format!("/{pool}/{{user}}"), get(read))
            .route(&format!("/{pool}/{{user}}/import"), post(import))
            .route(&format!("/{pool}/{{user}}/events"), post(event))
            .route("/admission", get(admission))
            .with_state(self)
    }

    /// Sends a request to the user's server, unless that has enough to do.
    async fn send(&self, user: &str, call: &Call) -> Sent {
        let attempt = async |route: centrifuge::Route| match self.admission.enter(route.url()) {
            Some(_admitted) => call.attempt(&self.http, route.url()).await,
            None => Err(Refusal::Failed("too many requests are waiting there".to_owned())),
        };
        self.router.send(Key::of(user.as_bytes()), attempt).await
    }

    /// Sends a post, and keeps it if it was taken.
    async fn post(&self, user: &str, post: Post) -> Sent {
        let sent = self.send(user, &Call::new(Method::POST, &post.path, post.body.clone())).await;
        if let Some(answer) = sent.as_ref().ok().filter(|answer| answer.status.is_success()) {
            self.posts.lock().unwrap_or_else(PoisonError::into_inner).keep(user, post.clone());
            if answer.lease.is_none() {
                let (frontend, user) = (self.clone(), user.to_owned());
                tokio::spawn(async move { frontend.bring_home(&user, post).await });
            }
        }
        sent
    }

    /// A post went to a server that does not own the user, and may be about to end: sends it again until the
    /// owner has it.
    async fn bring_home(&self, user: &str, post: Post) {
        let call = Call::new(Method::POST, post.path, post.body);
        for _ in 0..TRIES {
            tokio::time::sleep(RETRY_INTERVAL).await;
            if self.send(user, &call).await.is_ok_and(|answer| answer.lease.is_some()) {
                return;
            }
        }
    }

    /// Forgets what is too old.
    async fn sweep(self) {
        loop {
            tokio::time::sleep(SWEEP_INTERVAL).await;
            self.posts.lock().unwrap_or_else(PoisonError::into_inner).sweep();
        }
    }

    /// Makes the posts of users again whose feeds are lost. Items have ids: what is there after all does not
    /// come twice.
    async fn post_again(self, lookup: Lookup) {
        let mut losses = lookup.losses();
        while let Some(loss) = losses.next().await {
            let is_lost = |user: &str| loss.keys.contains(Key::of(user.as_bytes()));
            let lost = self.posts.lock().unwrap_or_else(PoisonError::into_inner).of(is_lost);
            for (user, posts) in lost {
                let frontend = self.clone();
                tokio::spawn(async move { frontend.rebuild(&user, posts).await });
            }
        }
    }

    async fn rebuild(&self, user: &str, posts: Vec<Post>) {
        for post in posts {
            let call = Call::new(Method::POST, post.path, post.body);
            while let Err(RouterError::Failed(_)) = self.send(user, &call).await {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
}

async fn read(State(frontend): Shared, Path(user): Path<String>, uri: Uri) -> Response {
    answer(frontend.send(&user, &Call::get(uri.path())).await)
}

async fn import(State(frontend): Shared, Path(user): Path<String>, uri: Uri, body: Bytes) -> Response {
    answer(frontend.post(&user, Post { path: uri.path().to_owned(), body }).await)
}

/// Says when it was and which it is, once: so it is one event however often it is posted.
async fn event(
    State(frontend): Shared,
    Path(user): Path<String>,
    uri: Uri,
    Json(mut event): Json<Event>,
) -> Response {
    let (at_ms, number) = (wall_ms(), frontend.events.fetch_add(1, Ordering::Relaxed));
    event.at_ms.get_or_insert(at_ms);
    event.id.get_or_insert_with(|| format!("{}/{at_ms}/{number}", frontend.name));
    let body = Bytes::from(json!(event).to_string());
    answer(frontend.post(&user, Post { path: uri.path().to_owned(), body }).await)
}

async fn admission(State(frontend): Shared) -> Json<Value> {
    let Frontend { admission, .. } = frontend;
    Json(json!({ "refused": admission.refused(), "under_way": admission.under_way() }))
}

fn answer(sent: Sent) -> Response {
    match sent {
        Ok(answer) => answer.into_response(),
        Err(RouterError::Failed(why)) => {
            ([("retry-after", "1")], Problem::new(StatusCode::SERVICE_UNAVAILABLE, why)).into_response()
        }
        Err(error) => Problem::new(StatusCode::GATEWAY_TIMEOUT, error).into_response(),
    }
}
