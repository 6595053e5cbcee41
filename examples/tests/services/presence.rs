//! Presence, in processes: state that moves, state that is lost and published again, frontends that are cut off.

use axum::http::StatusCode;
use centrifuge::Key;
use centrifuge_examples::Failure;
use centrifuge_examples::shared::call::{Call, Pool};
use centrifuge_harness::managers::until;
use centrifuge_harness::{Cluster, Link, LinkMode, Service};
use reqwest::{Client, Method};
use serde_json::{Value, json};

use crate::cluster::cluster;
use crate::support::LossRecorder;

const USERS: u32 = 40;

fn user(number: u32) -> String {
    format!("user-{number}")
}

fn presence(user: &str, status: &str) -> Value {
    json!({ "status": status, "address": format!("im:{user}"), "ip": "127.0.0.1" })
}

/// A frontend as its users see it.
struct Desk {
    process: Service,
    http: Client,
}

impl Desk {
    async fn start(cluster: &Cluster, name: &str) -> Result<Desk, Failure> {
        let process = cluster.call("presence frontend", name, cluster.managers(), &[]).await?;
        Ok(Desk { process, http: Client::new() })
    }

    fn url(&self, user: &str) -> String {
        format!("{}/presence/{user}", self.process.address())
    }

    async fn publish(&self, user: &str, status: &str) -> Result<(), Failure> {
        let body = presence(user, status);
        self.http.put(self.url(user)).json(&body).send().await?.error_for_status()?;
        Ok(())
    }

    async fn sign_off(&self, user: &str) -> Result<(), Failure> {
        self.http.delete(self.url(user)).send().await?.error_for_status()?;
        Ok(())
    }

    async fn read(&self, user: &str) -> Result<Option<Value>, Failure> {
        let answer = self.http.get(self.url(user)).send().await?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        Ok(Some(answer.error_for_status()?.json().await?))
    }

    /// A number of `/status`.
    async fn count(&self, what: &str) -> Result<u64, Failure> {
        let url = format!("{}/status", self.process.address());
        let status: Value = self.http.get(url).send().await?.json().await?;
        status["publications"][what].as_u64().ok_or_else(|| format!("no {what} in {status}").into())
    }

    async fn sees_everyone(&self, status: &str) -> Result<bool, Failure> {
        for user in (0..USERS).map(user) {
            if self.read(&user).await? != Some(presence(&user, status)) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[tokio::test]
async fn what_users_published_moves_with_its_server_and_nothing_is_told_as_lost() -> Result<(), Failure> {
    let cluster = cluster(&["presence"]).await?;
    let first = cluster.serve("presence server", "a", &[]).await?;
    let _second = cluster.serve("presence server", "b", &[]).await?;
    cluster.at_rest("presence", 2).await?;
    let pool = Pool::connect(&cluster.caller()?, "presence").await?;
    let (losses, desk) = (LossRecorder::new(&pool), Desk::start(&cluster, "desk").await?);
    for user in (0..USERS).map(user) {
        desk.publish(&user, "online").await?;
    }

    let _third = cluster.serve("presence server", "c", &[]).await?;
    cluster.at_rest("presence", 3).await?;
    assert!(desk.sees_everyone("online").await?, "after a server joined");
    assert!(first.stop().await?.success());
    cluster.at_rest("presence", 2).await?;
    assert!(desk.sees_everyone("online").await?, "after a server was drained");
    let _first = cluster.serve("presence server", "a", &[]).await?;
    cluster.at_rest("presence", 3).await?;
    assert!(desk.sees_everyone("online").await?, "after it came back");

    assert_eq!(losses.take(), []);
    assert_eq!((desk.count("losses").await?, desk.count("again").await?), (0, 0));
    Ok(())
}

#[tokio::test]
async fn what_died_with_a_server_is_told_and_published_again_and_nothing_else_is() -> Result<(), Failure> {
    let cluster = cluster(&["presence"]).await?;
    let dying = cluster.serve("presence server", "a", &[]).await?;
    let _other = cluster.serve("presence server", "b", &[]).await?;
    cluster.at_rest("presence", 2).await?;
    let pool = Pool::connect(&cluster.caller()?, "presence").await?;
    let (losses, desk) = (LossRecorder::new(&pool), Desk::start(&cluster, "desk-1").await?);
    let elsewhere = Desk::start(&cluster, "desk-2").await?;
    for user in (0..USERS).map(user) {
        desk.publish(&user, "online").await?;
    }
    let key = |user: &String| Key::of(user.as_bytes());
    let is_there =
        |user: &String| pool.lookup().lookup(key(user)).is_ok_and(|at| at.url() == dying.address());
    let (lost, spared): (Vec<String>, Vec<String>) = (0..USERS).map(user).partition(is_there);
    let [goes_on, moves_on, goes_off, ..] = lost.as_slice() else {
        return Err("the server has no users".into());
    };
    elsewhere.publish(moves_on, "at the other frontend").await?;
    elsewhere.sign_off(goes_off).await?;

    dying.kill().await?;
    // Whoever publishes meanwhile must not be overwritten by what is published again.
    desk.publish(goes_on, "changed meanwhile").await?;

    until("the frontends published again", async || {
        // Who moved on is published again by the other frontend, and so is a sign-off; by this one too, if it
        // is the first.
        let (again, there) = (desk.count("again").await?, elsewhere.count("again").await?);
        let is_all = again + there >= lost.len() as u64 && there == 2;
        Ok(is_all && desk.count("lost").await? == 0)
    })
    .await?;
    let told = losses.take();
    let is_told = |user: &String| told.iter().any(|loss| loss.keys.contains(key(user)));
    assert!(lost.iter().all(is_told), "{told:?}");
    assert!(!spared.iter().any(is_told), "{told:?}");
    for user in &lost {
        let status = match user {
            user if user == goes_on => "changed meanwhile",
            user if user == moves_on => "at the other frontend",
            _ => "online",
        };
        let expected = (user != goes_off).then(|| presence(user, status));
        assert_eq!(desk.read(user).await?, expected, "{user}");
    }
    for user in &spared {
        assert_eq!(desk.read(user).await?, Some(presence(user, "online")));
    }
    Ok(())
}

#[tokio::test]
async fn a_server_answers_for_its_own_users_and_keeps_what_is_newest() -> Result<(), Failure> {
    let cluster = cluster(&["presence"]).await?;
    let servers = [
        cluster.serve("presence server", "a", &["--ttl", "6s"]).await?,
        cluster.serve("presence server", "b", &["--ttl", "6s"]).await?,
    ];
    cluster.at_rest("presence", 2).await?;
    let pool = Pool::connect(&cluster.caller()?, "presence").await?;
    let owner = pool.lookup().lookup(Key::of(b"ada"))?.url().to_owned();
    let http = Client::new();
    for server in servers.iter().filter(|server| server.address() != owner) {
        let answer = http.get(format!("{}/presence/ada", server.address())).send().await?;
        assert_eq!(answer.status(), StatusCode::MISDIRECTED_REQUEST);
    }

    let publish = |number: u64, status: &str| {
        Call::put("/presence/ada", &json!({ "number": number, "presence": presence("ada", status) }))
    };
    let answer = pool.ask("ada", &publish(5, "online")).await?;
    assert!(answer.lease.is_some());
    assert_eq!(answer.read::<Value>()?, json!({ "number": 5 }));
    let late = pool.ask("ada", &publish(4, "busy")).await?;
    assert_eq!(late.status, StatusCode::CONFLICT);
    assert_eq!(serde_json::from_slice::<Value>(&late.body)?["number"], 5);
    let shown: Value = pool.ask("ada", &Call::get("/presence/ada")).await?.read()?;
    assert_eq!(shown, json!({ "number": 5, "presence": presence("ada", "online") }));

    let sign_off = Call::new(Method::DELETE, "/presence/ada?number=6", Default::default());
    assert_eq!(pool.ask("ada", &sign_off).await?.status, StatusCode::OK);
    assert_eq!(pool.ask("ada", &Call::get("/presence/ada")).await?.status, StatusCode::NOT_FOUND);
    assert_eq!(pool.ask("ada", &publish(5, "online")).await?.status, StatusCode::CONFLICT);

    assert_eq!(pool.ask("ada", &publish(7, "online")).await?.status, StatusCode::OK);
    until("a user who says nothing more is forgotten", async || {
        Ok(pool.ask("ada", &Call::get("/presence/ada")).await?.status == StatusCode::NOT_FOUND)
    })
    .await
}

/// PRS §2.1.
#[tokio::test]
async fn a_frontend_that_is_cut_off_sends_its_users_elsewhere() -> Result<(), Failure> {
    let cluster = cluster(&["presence"]).await?;
    let _server = cluster.serve("presence server", "a", &[]).await?;
    cluster.at_rest("presence", 1).await?;
    let link = Link::to(cluster.managers().to_owned()).await?;
    let at = link.address();
    let flags = "--poll 500ms --contact-timeout 2s --silence 500ms --unowned-delay 4s --patience 20s";
    let arguments: Vec<&str> = ["--managers", &at].into_iter().chain(flags.split(' ')).collect();
    let process = cluster.run("presence frontend", "cut-off", &arguments).await?;
    let (cut_off, other) = (Desk { process, http: Client::new() }, Desk::start(&cluster, "other").await?);
    cut_off.publish("ada", "online").await?;
    link.set(LinkMode::Refuses);

    let answer = || cut_off.http.get(cut_off.url("ada")).send();
    until("it knows that it is cut off", async || {
        Ok(answer().await?.status() == StatusCode::SERVICE_UNAVAILABLE)
    })
    .await?;
    let words: Value = answer().await?.json().await?;
    assert!(words["error"].as_str().is_some_and(|words| words.contains("go to another")), "{words}");
    other.publish("ada", "at the other frontend").await?;

    // It hears now and then that everything may be lost, and publishes it again; but what users said elsewhere
    // since is newer.
    until("it has forgotten who is elsewhere", async || Ok(cut_off.count("users").await? == 0)).await?;
    link.set(LinkMode::Open);
    until("it serves again", async || Ok(answer().await?.status() == StatusCode::OK)).await?;
    assert_eq!(cut_off.read("ada").await?, Some(presence("ada", "at the other frontend")));
    Ok(())
}
