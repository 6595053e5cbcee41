//! Feeds, in processes.

use axum::http::StatusCode;
use centrifuge::Key;
use centrifuge_examples::Failure;
use centrifuge_examples::shared::call::Pool;
use centrifuge_harness::Service;
use centrifuge_harness::managers::until;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::cluster::cluster;
use crate::support::LossRecorder;

const RSS: &str = include_str!("../../testdata/club.rss.xml");
const ATOM: &str = include_str!("../../testdata/harbour.atom.xml");
const USERS: u32 = 20;
/// The most posts of one poster, so that no feed has more items than it keeps.
const MOST_POSTS: u32 = 600;

fn users() -> Vec<String> {
    (0..USERS).map(|number| format!("user-{number}")).collect()
}

async fn post(
    at: &Service,
    path: &str,
    body: impl Into<reqwest::Body>,
) -> Result<reqwest::Response, Failure> {
    let request = reqwest::Client::new().post(format!("{}{path}", at.address()));
    Ok(request.header("content-type", "application/json").body(body).send().await?)
}

async fn post_all(frontend: &Service, user: &str) -> Result<(), Failure> {
    let event = json!({ "text": "is now online" }).to_string();
    for (what, body) in [("import", RSS), ("import", ATOM), ("events", &event), ("import", RSS)] {
        let answer = post(frontend, &format!("/feeds/{user}/{what}"), body.to_owned()).await?;
        assert_eq!(answer.status(), StatusCode::OK, "{}", answer.text().await?);
    }
    Ok(())
}

async fn feed(at: &Service, user: &str) -> Result<String, Failure> {
    let answer = reqwest::get(format!("{}/feeds/{user}", at.address())).await?.error_for_status()?;
    assert_eq!(answer.headers()["content-type"], "application/rss+xml");
    Ok(answer.text().await?)
}

/// Waits until every user's feed is as it was. A caller with an old table is answered by a server that has no feed.
async fn are_as_they_were(frontend: &Service, feeds: &[(String, String)]) -> Result<(), Failure> {
    until("every feed is as it was", async || {
        for (user, before) in feeds {
            if feed(frontend, user).await? != *before {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await
}

#[tokio::test]
async fn feeds_move_with_a_drain_and_are_posted_again_after_a_crash() -> Result<(), Failure> {
    let cluster = cluster(&["feeds"]).await?;
    let first = cluster.serve("feeds server", "first", &[]).await?;
    cluster.at_rest("feeds", 1).await?;
    let frontend = cluster.call("feeds frontend", "frontend", cluster.managers(), &[]).await?;
    let pool = Pool::connect(&cluster.caller()?, "feeds").await?;
    let losses = LossRecorder::new(&pool);

    let answer = post(&frontend, "/feeds/user-0/import", "<html></html>").await?;
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    assert!(answer.text().await?.contains("send a feed"));
    let mut feeds = Vec::new();
    for user in users() {
        post_all(&frontend, &user).await?;
        let text = feed(&frontend, &user).await?;
        assert!(
            text.contains("<title>Alice updated her profile and added Bob as a friend</title>"),
            "{text}"
        );
        assert!(text.contains(&format!("<title>{user} is now online</title>")), "{text}");
        assert_eq!(text.matches("<item>").count(), 6, "what came twice is here once: {text}");
        feeds.push((user, text));
    }

    let second = cluster.serve("feeds server", "second", &[]).await?;
    cluster.at_rest("feeds", 2).await?;
    are_as_they_were(&frontend, &feeds).await?;
    first.stop().await?;
    cluster.at_rest("feeds", 1).await?;
    are_as_they_were(&frontend, &feeds).await?;
    assert_eq!(losses.take(), [], "what moved is not lost");

    let third = cluster.serve("feeds server", "third", &[]).await?;
    cluster.at_rest("feeds", 2).await?;
    second.kill().await?;
    cluster.at_rest("feeds", 1).await?;
    until("callers are told", async || Ok(!losses.take().is_empty())).await?;
    are_as_they_were(&frontend, &feeds).await?;
    drop(third);
    Ok(())
}

/// Posts events for many users until it is told to stop, and says which were accepted: the user and the words.
async fn keep_posting(
    url: String,
    poster: u32,
    stop: watch::Receiver<bool>,
) -> Result<Vec<(String, String)>, Failure> {
    let (http, mut accepted) = (reqwest::Client::new(), Vec::new());
    for number in 0..MOST_POSTS {
        if *stop.borrow() {
            break;
        }
        let (user, text) = (format!("user-{}", number % USERS), format!("said {poster}x{number}y"));
        let request = http.post(format!("{url}/feeds/{user}/events")).json(&json!({ "text": text }));
        if request.send().await?.status().is_success() {
            accepted.push((user, text));
        }
    }
    Ok(accepted)
}

#[tokio::test]
async fn what_was_accepted_while_a_server_left_is_there_in_the_end() -> Result<(), Failure> {
    let cluster = cluster(&["feeds"]).await?;
    let leaving = cluster.serve("feeds server", "leaving", &[]).await?;
    let _staying = cluster.serve("feeds server", "staying", &[]).await?;
    cluster.at_rest("feeds", 2).await?;
    let frontend = cluster.call("feeds frontend", "frontend", cluster.managers(), &[]).await?;
    let (stop, stopped) = watch::channel(false);
    let post = |poster| tokio::spawn(keep_posting(frontend.address().to_owned(), poster, stopped.clone()));
    let posters: Vec<_> = (0..4).map(post).collect();
    leaving.stop().await?;
    cluster.at_rest("feeds", 1).await?;
    stop.send(true)?;
    let mut accepted = Vec::new();
    for poster in posters {
        accepted.extend(poster.await??);
    }
    assert!(!accepted.is_empty());
    // What went to a server that did not own its user was answered all the same, and is sent again until the
    // owner has it.
    for (user, text) in accepted {
        until(&format!("{user} {text}"), async || Ok(feed(&frontend, &user).await?.contains(&text))).await?;
    }
    Ok(())
}

/// PRS §3.1.
#[tokio::test]
async fn a_server_answers_for_users_it_does_not_own() -> Result<(), Failure> {
    let cluster = cluster(&["feeds"]).await?;
    let servers =
        [cluster.serve("feeds server", "a", &[]).await?, cluster.serve("feeds server", "b", &[]).await?];
    cluster.at_rest("feeds", 2).await?;
    let mut leases = 0;
    for server in &servers {
        let answer = post(server, "/feeds/frank/import", RSS).await?;
        assert_eq!(answer.status(), StatusCode::OK);
        leases += usize::from(answer.headers().contains_key("centrifuge-lease"));
        assert!(feed(server, "frank").await?.contains("Alice updated her profile"));
    }
    assert_eq!(leases, 1, "one of them is the owner, and says so");
    let [one, other] = servers;
    let event = json!({ "text": "came astray" }).to_string();
    let pool = Pool::connect(&cluster.caller()?, "feeds").await?;
    let owner = pool.lookup().lookup(Key::of(b"frank"))?;
    let (owner, stray) = if owner.url() == one.address() { (one, other) } else { (other, one) };
    post(&stray, "/feeds/frank/events", event).await?.error_for_status()?;
    assert!(!feed(&owner, "frank").await?.contains("frank came astray"), "the owner does not know");
    owner.stop().await?;
    cluster.at_rest("feeds", 1).await?;
    let text = feed(&stray, "frank").await?;
    assert!(text.contains("frank came astray"), "it was kept until the user became its own");
    assert_eq!(text.matches("Alice updated her profile").count(), 1, "and what both had is here once");
    Ok(())
}

/// PRS §3.3.
#[tokio::test]
async fn a_paused_server_does_not_take_requests_to_the_others_with_it() -> Result<(), Failure> {
    const CAP: usize = 4;
    const REQUESTS: usize = 20;
    let cluster = cluster(&["feeds"]).await?;
    let paused = cluster.serve("feeds server", "paused", &[]).await?;
    let other = cluster.serve("feeds server", "other", &[]).await?;
    cluster.at_rest("feeds", 2).await?;
    let cap = CAP.to_string();
    let frontend = cluster.call("feeds frontend", "frontend", cluster.managers(), &["--cap", &cap]).await?;
    let pool = Pool::connect(&cluster.caller()?, "feeds").await?;
    let is_at = |server: &Service, user: &String| {
        pool.lookup().lookup(Key::of(user.as_bytes())).is_ok_and(|route| route.url() == server.address())
    };
    let at_paused = users().into_iter().find(|user| is_at(&paused, user)).ok_or("it has some user")?;
    let at_other: Vec<String> = users().into_iter().filter(|user| is_at(&other, user)).collect();
    assert!(!at_other.is_empty());

    paused.pause().await?;
    let url = format!("{}/feeds/{at_paused}", frontend.address());
    let requests: Vec<_> = (0..REQUESTS).map(|_| tokio::spawn(reqwest::get(url.clone()))).collect();
    until("those above the cap are refused", async || {
        let seen: Value = reqwest::get(format!("{}/admission", frontend.address())).await?.json().await?;
        let under_way = seen["under_way"][paused.address()].as_u64().unwrap_or_default();
        assert!(under_way <= CAP as u64, "{seen}");
        Ok(seen["refused"].as_u64() >= Some((REQUESTS - CAP) as u64))
    })
    .await?;
    for user in &at_other {
        feed(&frontend, user).await?;
    }
    paused.resume()?;

    let mut refused = 0;
    for request in requests {
        let answer = request.await??;
        if answer.status() == StatusCode::SERVICE_UNAVAILABLE {
            assert_eq!(answer.headers()["retry-after"], "1");
            refused += 1;
        } else {
            assert_eq!(answer.status(), StatusCode::OK, "it was answered in the end");
        }
    }
    assert_eq!(refused, REQUESTS - CAP);
    feed(&frontend, &at_paused).await?;
    Ok(())
}
