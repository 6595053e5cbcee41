//! Documents, publish-subscribe and queues together, behind a frontend.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use centrifuge_examples::Failure;
use centrifuge_examples::shared::call::{Call, Pool};
use centrifuge_harness::Service;
use centrifuge_harness::managers::until;
use serde_json::{Value, json};

use crate::cluster::cluster;
use crate::mesh::{owned, start};

/// As long as a reader waits at a time.
const WAIT: Duration = Duration::from_secs(40);

/// Asks through a frontend.
async fn ask(frontend: &Service, call: Call) -> Result<(StatusCode, Value), Failure> {
    let answer = call.wait(WAIT * 2).attempt(&reqwest::Client::new(), frontend.address()).await;
    let answer = answer.map_err(|refusal| format!("{refusal:?}"))?;
    Ok((answer.status, serde_json::from_slice(&answer.body)?))
}

async fn get(frontend: &Service, call: Call) -> Result<Value, Failure> {
    let (status, body) = ask(frontend, call).await?;
    assert_eq!(status, StatusCode::OK, "{body}");
    Ok(body)
}

/// Publishes the home PC's address, as often as it takes, and says at which version.
async fn publish(frontend: &Service, address: &str) -> Result<Value, Failure> {
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
    frontend: Service,
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

    /// Everything that has come since.
    async fn read(&mut self) -> Result<Vec<Value>, Failure> {
        let incarnation = self.incarnation.as_str().ok_or("opened")?;
        let query = format!("incarnation={incarnation}&after={}&wait_ms={}", self.after, WAIT.as_millis());
        let read = get(&self.frontend, Call::get(format!("/queues/work-pc/messages?{query}"))).await?;
        assert_eq!(read["missed"], false);
        Ok(read["messages"].as_array().cloned().unwrap_or_default())
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

/// Centrifuge §4.1.
#[tokio::test]
async fn an_address_reaches_a_subscriber_or_it_knows_that_it_must_look() -> Result<(), Failure> {
    let cluster = cluster(&["connectivity", "pubsub", "queues"]).await?;
    // Impatient, so that a publish that is not accepted comes to light.
    let connectivity = ["--namespace", "connectivity", "--pubsub", "pubsub", "--patience", "2s"];
    let first = cluster.serve("documents server", "connectivity-1", &connectivity).await?;
    let second = cluster.serve("documents server", "connectivity-2", &connectivity).await?;
    cluster.at_rest("connectivity", 2).await?;
    let pools = ["--pools", "connectivity,pubsub,queues"];
    let frontend = start(&cluster, "documents frontend", "frontend-1", &pools).await?;
    let call = Call::put("/connectivity/home-pc/sections/address", &json!("10.0.0.1"));
    let (status, body) = ask(&frontend, call).await?;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "there is nobody to publish to");
    assert!(body["error"].as_str().is_some_and(|words| words.contains("write it again")), "{body}");

    let _queues = start(&cluster, "queues server", "queues-1", &["--watches", "connectivity,pubsub"]).await?;
    let topics = [
        start(&cluster, "pubsub server", "pubsub-1", &[]).await?,
        start(&cluster, "pubsub server", "pubsub-2", &[]).await?,
    ];
    cluster.at_rest("queues", 1).await?;
    cluster.at_rest("pubsub", 2).await?;
    let (incarnation, subscription) = (Value::Null, Value::Null);
    let other = start(&cluster, "documents frontend", "frontend-2", &pools).await?;
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

    // The topic's server is killed, and the address changes before anyone has subscribed again: the publish is
    // accepted, and the work PC, which did not get it, knows that it must look.
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

    // The document's server is killed: the work PC knows that what it knows is lost, until the home PC
    // publishes it again.
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

/// Publishes one address after the other, some at least, until it is told to stop, and says which versions were
/// accepted, the last one last.
async fn keep_publishing(frontend: Service, stop: &AtomicBool) -> Result<Vec<Value>, Failure> {
    let mut accepted = Vec::new();
    while !stop.load(Ordering::Relaxed) || accepted.len() < 50 {
        accepted.push(publish(&frontend, &format!("10.0.0.{}", accepted.len())).await?);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    accepted.push(publish(&frontend, "the last").await?);
    Ok(accepted)
}

/// Reads until the last address has come, and says which versions came.
async fn keep_reading(mut work_pc: WorkPc) -> Result<BTreeSet<String>, Failure> {
    let mut received = BTreeSet::new();
    loop {
        for entry in work_pc.read().await? {
            let version = entry["message"]["version"].as_str();
            received.insert(version.ok_or_else(|| format!("nothing was lost: {entry}"))?.to_owned());
            work_pc.after = entry["number"].as_u64().ok_or("a number")?;
            if entry["message"]["value"] == "the last" {
                return Ok(received);
            }
        }
    }
}

#[tokio::test]
async fn every_address_is_received_while_servers_are_replaced() -> Result<(), Failure> {
    let cluster = cluster(&["connectivity", "pubsub", "queues"]).await?;
    let pools: [(&str, &str, &[&str]); 3] = [
        ("connectivity", "documents server", &["--namespace", "connectivity", "--pubsub", "pubsub"]),
        ("pubsub", "pubsub server", &[]),
        ("queues", "queues server", &["--watches", "connectivity,pubsub"]),
    ];
    let mut servers = Vec::new();
    for (pool, role, arguments) in pools {
        let first = start(&cluster, role, &format!("{pool}-1"), arguments).await?;
        cluster.at_rest(pool, 1).await?;
        servers.push(first);
    }
    let arguments = ["--pools", "connectivity,pubsub,queues"];
    let frontend = start(&cluster, "documents frontend", "frontend-1", &arguments).await?;
    let other = start(&cluster, "documents frontend", "frontend-2", &arguments).await?;
    let (incarnation, subscription) = (Value::Null, Value::Null);
    let mut work_pc = WorkPc { frontend: other, incarnation, subscription, after: 0 };
    work_pc.open().await?;
    work_pc.subscribe().await?;

    // The only server of each pool goes, so that everything moves, while all of them are in use.
    let stop = AtomicBool::new(false);
    let replacing = async {
        let mut replaced = Vec::new();
        for ((pool, role, arguments), old) in pools.into_iter().zip(servers) {
            replaced.push(start(&cluster, role, &format!("{pool}-2"), arguments).await?);
            assert!(old.stop().await?.success());
            cluster.at_rest(pool, 1).await?;
        }
        stop.store(true, Ordering::Relaxed);
        Ok(replaced)
    };
    let publishing = keep_publishing(frontend, &stop);
    let (accepted, received, _replaced) = tokio::try_join!(publishing, keep_reading(work_pc), replacing)?;
    let is_missing = |version: &&Value| !version.as_str().is_some_and(|version| received.contains(version));
    assert_eq!(accepted.iter().filter(is_missing).collect::<Vec<_>>(), [] as [&Value; 0]);
    Ok(())
}
