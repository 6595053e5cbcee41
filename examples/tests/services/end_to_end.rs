//! Documents, publish-subscribe and queues together, behind a frontend.

use std::time::Duration;

use axum::http::StatusCode;
use centrifuge_examples::Failure;
use centrifuge_examples::call::{Call, Pool};
use centrifuge_examples::launch::{Process, until};
use serde_json::{Value, json};

use crate::mesh::{owned, start};
use crate::support::cluster;

/// As long as a reader waits at a time.
const WAIT: Duration = Duration::from_secs(40);

/// Asks through a frontend.
async fn ask(frontend: &Process, call: Call) -> Result<(StatusCode, Value), Failure> {
    let answer = call.wait(WAIT * 2).attempt(&reqwest::Client::new(), frontend.address()).await;
    let answer = answer.map_err(|refusal| format!("{refusal:?}"))?;
    Ok((answer.status, serde_json::from_slice(&answer.body)?))
}

async fn get(frontend: &Process, call: Call) -> Result<Value, Failure> {
    let (status, body) = ask(frontend, call).await?;
    assert_eq!(status, StatusCode::OK, "{body}");
    Ok(body)
}

/// Publishes the home PC's address, as often as it takes, and says at which version.
async fn publish(frontend: &Process, address: &str) -> Result<Value, Failure> {
    let mut version = Value::Null;
    until("the address is published", async || {
        let call = Call::put("/connectivity/home-pc/sections/address", &json!(address));
        let (status, body) = ask(frontend, call).await?;
        assert!([StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE].contains(&status), "{status} {body}");
        version = body["version"].clone();
        Ok(status == StatusCode::OK)
    })
    .await?;
    Ok(version)
}

/// The work PC: what it has read, and what it knows.
struct WorkPc {
    frontend: Process,
    incarnation: Value,
    subscription: Value,
    after: u64,
}

impl WorkPc {
    async fn open(&mut self) -> Result<bool, Failure> {
        let interests = json!({ "connectivity": ["home-pc"], "pubsub": ["home-pc"] });
        let body = json!({ "interests": interests, "incarnation": self.incarnation });
        let opened = get(&self.frontend, Call::post("/queues/work-pc/open", &body)).await?;
        self.incarnation = opened["incarnation"].clone();
        Ok(opened["missed"] == true)
    }

    /// Subscribes, and says whether it had subscribed all along.
    async fn subscribe(&mut self) -> Result<bool, Failure> {
        let body = json!({ "queue": "work-pc", "subscription": self.subscription });
        let subscribed = get(&self.frontend, Call::post("/pubsub/home-pc/subscribe", &body)).await?;
        self.subscription = subscribed["subscription"].clone();
        Ok(subscribed["renewed"] == true)
    }

    /// Waits for an entry of a kind, and passes over others.
    async fn wait_for(&mut self, kind: &str) -> Result<Value, Failure> {
        loop {
            let incarnation = self.incarnation.as_str().ok_or("opened")?;
            let query =
                format!("incarnation={incarnation}&after={}&wait_ms={}", self.after, WAIT.as_millis());
            let read = get(&self.frontend, Call::get(format!("/queues/work-pc/messages?{query}"))).await?;
            assert_eq!(read["missed"], false);
            let entries = read["messages"].as_array().cloned().unwrap_or_default();
            let entry = entries.iter().find(|entry| !entry[kind].is_null());
            let seen = entry.or(entries.last()).ok_or_else(|| format!("no {kind} came"))?;
            self.after = seen["number"].as_u64().ok_or("a number")?;
            if let Some(entry) = entry {
                return Ok(entry[kind].clone());
            }
        }
    }
}

#[tokio::test]
async fn an_address_reaches_a_subscriber_or_it_knows_that_it_must_look() -> Result<(), Failure> {
    let cluster = cluster(&["connectivity", "pubsub", "queues"]).await?;
    // Impatient, so that a publish that is not accepted comes to light.
    let connectivity = ["--namespace", "connectivity", "--pubsub", "pubsub", "--patience", "2s"];
    let first = cluster.serve("documents", "connectivity-1", &connectivity).await?;
    let second = cluster.serve("documents", "connectivity-2", &connectivity).await?;
    cluster.at_rest("connectivity", 2).await?;
    let pools = ["--pools", "connectivity,pubsub,queues"];
    let frontend = start(&cluster, "frontend", "frontend-1", &pools).await?;
    let call = Call::put("/connectivity/home-pc/sections/address", &json!("10.0.0.1"));
    let (status, body) = ask(&frontend, call).await?;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "there is nobody to publish to");
    assert!(body["error"].as_str().is_some_and(|words| words.contains("write it again")), "{body}");

    let _queues = start(&cluster, "queues", "queues-1", &["--watches", "connectivity,pubsub"]).await?;
    let topics = [
        start(&cluster, "pub-sub", "pubsub-1", &[]).await?,
        start(&cluster, "pub-sub", "pubsub-2", &[]).await?,
    ];
    cluster.at_rest("queues", 1).await?;
    cluster.at_rest("pubsub", 2).await?;
    let (incarnation, subscription) = (Value::Null, Value::Null);
    let other = start(&cluster, "frontend", "frontend-2", &pools).await?;
    let mut work_pc = WorkPc { frontend: other, incarnation, subscription, after: 0 };
    assert!(work_pc.open().await?, "it knew of no queue");
    assert!(!work_pc.subscribe().await?);

    // The usual way.
    let version = publish(&frontend, "10.0.0.2").await?;
    let message = work_pc.wait_for("message").await?;
    let expected = json!({
        "document": "home-pc", "section": "address", "version": version, "value": "10.0.0.2"
    });
    assert_eq!(message, expected);

    // The topic's server is killed, and the address changes before anyone has subscribed again: the publish is accepted, and
    // the work PC, which did not get it, knows that it must look.
    let pool = Pool::connect(&cluster.caller()?, "pubsub").await?;
    let [one, two] = topics;
    let is_one = !owned(&pool, &one, &["home-pc".to_owned()]).is_empty();
    let (killed, _stays) = if is_one { (one, two) } else { (two, one) };
    killed.kill().await?;
    let version = publish(&frontend, "10.0.0.3").await?;
    assert_eq!(work_pc.wait_for("lost").await?, json!({ "pool": "pubsub", "names": ["home-pc"] }));
    assert!(!work_pc.subscribe().await?, "messages may have been missed");
    let section = Call::get("/connectivity/home-pc/sections/address");
    let read = get(&work_pc.frontend, section).await?;
    assert_eq!(read, json!({ "version": version, "value": "10.0.0.3" }));

    // The document's server is killed: the work PC knows that what it knows is lost, until the home PC publishes it again.
    let pool = Pool::connect(&cluster.caller()?, "connectivity").await?;
    let is_first = !owned(&pool, &first, &["home-pc".to_owned()]).is_empty();
    let (killed, _stays) = if is_first { (first, second) } else { (second, first) };
    killed.kill().await?;
    assert_eq!(work_pc.wait_for("lost").await?, json!({ "pool": "connectivity", "names": ["home-pc"] }));
    let version = publish(&frontend, "10.0.0.3").await?;
    let message = work_pc.wait_for("message").await?;
    assert_eq!((&message["version"], &message["value"]), (&version, &json!("10.0.0.3")));
    Ok(())
}
