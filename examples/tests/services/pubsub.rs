//! Publish-subscribe, in processes.

use axum::http::StatusCode;
use centrifuge::Generation;
use centrifuge_examples::Failure;
use centrifuge_examples::shared::call::{Call, CallerArgs, Pool};
use centrifuge_harness::managers::until;
use serde_json::{Value, json};

use crate::cluster::cluster;
use crate::mesh::{ask, await_losses, get, key, names, owned, start};
use crate::support::LossRecorder;

fn open(queue: &str) -> Call {
    Call::post(format!("/queues/{queue}/open"), &json!({ "interests": {} }))
}

fn subscribe(topic: &str, known: &Value) -> Call {
    let body = json!({ "queue": "work-pc", "subscription": known["subscription"] });
    Call::post(format!("/pubsub/{topic}/subscribe"), &body)
}

fn publish(topic: &str, message: u32) -> Call {
    Call::post(format!("/pubsub/{topic}/publish"), &message)
}

fn publish_from(topic: &str, about: &str, lease: u64) -> Call {
    Call::post(format!("/pubsub/{topic}/publish?from={about}"), &lease).under(Generation(lease))
}

/// The messages in a queue that was just opened, from the beginning.
async fn messages(queues: &Pool, queue: &str, incarnation: &Value) -> Result<Vec<Value>, Failure> {
    let incarnation = incarnation.as_str().ok_or("a queue has an incarnation")?;
    let path = format!("/queues/{queue}/messages?incarnation={incarnation}&after=0");
    let read = get(queues, queue, Call::get(path)).await?;
    let entries = read["messages"].as_array().ok_or("entries")?;
    Ok(entries.iter().map(|entry| entry["message"].clone()).collect())
}

#[tokio::test]
async fn subscriptions_survive_moves_and_subscribers_subscribe_again_after_a_crash() -> Result<(), Failure> {
    let cluster = cluster(&["pubsub", "queues"]).await?;
    let _queue_server = start(&cluster, "queues server", "queues-1", &[]).await?;
    let first = start(&cluster, "pubsub server", "pubsub-1", &[]).await?;
    let second = start(&cluster, "pubsub server", "pubsub-2", &[]).await?;
    cluster.at_rest("queues", 1).await?;
    cluster.at_rest("pubsub", 2).await?;
    let (topics, queues) = connect(&cluster.caller()?).await?;
    let losses = LossRecorder::new(&topics);
    let incarnation = get(&queues, "work-pc", open("work-pc")).await?["incarnation"].clone();

    let names = names("pc", 16);
    let mut known = Vec::new();
    for topic in &names {
        let subscribed = get(&topics, topic, subscribe(topic, &Value::Null)).await?;
        assert_eq!(subscribed["renewed"], false);
        // The same request once more, as after a lost answer: it must not look like a renewal.
        assert_eq!(get(&topics, topic, subscribe(topic, &Value::Null)).await?["renewed"], false);
        get(&topics, topic, publish_from(topic, topic, 100)).await?;
        known.push(subscribed);
    }

    // One more server, then one less.
    let _third = start(&cluster, "pubsub server", "pubsub-3", &[]).await?;
    cluster.at_rest("pubsub", 3).await?;
    assert!(first.stop().await?.success());
    cluster.at_rest("pubsub", 2).await?;
    for (topic, known) in names.iter().zip(&known) {
        let (status, body) = ask(&topics, topic, publish_from(topic, topic, 99)).await?;
        assert_eq!(status, StatusCode::CONFLICT, "the fence moved along: {body}");
        let accepted = get(&topics, topic, publish(topic, 1)).await?;
        assert_eq!(accepted, json!({ "delivered": 1, "gone": 0 }));
        let renewed = get(&topics, topic, subscribe(topic, known)).await?;
        assert_eq!((&renewed["renewed"], &renewed["subscription"]), (&json!(true), &known["subscription"]));
    }
    assert!(losses.take().is_empty(), "a move is no loss");

    // A crash: whoever had subscribed there subscribes again, and learns that it missed something.
    let gone = owned(&topics, &second, &names);
    assert!(!gone.is_empty() && gone.len() < names.len(), "each server has some");
    second.kill().await?;
    let lost = await_losses(&losses, &gone).await?;
    for (topic, known) in names.iter().zip(&known) {
        let again = get(&topics, topic, subscribe(topic, known)).await?;
        assert_eq!(again["renewed"], !lost.contains(key(topic)), "only what was lost is new");
        let accepted = get(&topics, topic, publish(topic, 2)).await?;
        assert_eq!(accepted, json!({ "delivered": 1, "gone": 0 }));
    }
    // Everything that was accepted is in the queue: a hundred, one and two for each topic.
    let received = messages(&queues, "work-pc", &incarnation).await?;
    for message in [100, 1, 2] {
        assert!(received.iter().filter(|seen| **seen == json!(message)).count() >= names.len());
    }
    assert!(!received.contains(&json!(99)));
    Ok(())
}

async fn connect(caller: &CallerArgs) -> Result<(Pool, Pool), Failure> {
    Ok((Pool::connect(caller, "pubsub").await?, Pool::connect(caller, "queues").await?))
}

/// Centrifuge §4.4, PRS §3.1.
#[tokio::test]
async fn a_message_is_accepted_when_every_subscriber_has_it_or_will_know() -> Result<(), Failure> {
    let cluster = cluster(&["pubsub", "queues"]).await?;
    let queue_server = start(&cluster, "queues server", "queues-1", &[]).await?;
    // Impatient, with subscriptions that end soon.
    let arguments = ["--ttl", "6s", "--patience", "2s"];
    let _server = cluster.serve("pubsub server", "pubsub-1", &arguments).await?;
    cluster.at_rest("queues", 1).await?;
    cluster.at_rest("pubsub", 1).await?;
    let (topics, queues) = connect(&cluster.caller()?).await?;

    let topic = "home-pc";
    get(&queues, "work-pc", open("work-pc")).await?;
    let first = get(&topics, topic, subscribe(topic, &Value::Null)).await?;
    assert_eq!(first["ttl_ms"], 6000);
    let absent = json!({ "queue": "a queue/that is not there?" });
    get(&topics, "other-pc", Call::post("/pubsub/other-pc/subscribe", &absent)).await?;
    let accepted = get(&topics, "other-pc", publish("other-pc", 1)).await?;
    assert_eq!(accepted, json!({ "delivered": 0, "gone": 1 }), "its client knows when it comes back");
    until("a subscription that nobody renews ends", async || {
        assert_eq!(get(&topics, topic, subscribe(topic, &first)).await?["renewed"], true);
        Ok(get(&topics, "other-pc", publish("other-pc", 2)).await?["gone"] == 0)
    })
    .await?;
    get(&topics, topic, Call::post("/pubsub/home-pc/unsubscribe", &json!({ "queue": "work-pc" }))).await?;
    let accepted = get(&topics, topic, publish(topic, 3)).await?;
    assert_eq!(accepted, json!({ "delivered": 0, "gone": 0 }));

    // A queue that may be there and does not answer: the message is not accepted.
    queue_server.pause().await?;
    get(&topics, topic, subscribe(topic, &Value::Null)).await?;
    let (status, body) = ask(&topics, topic, publish(topic, 4).wait(cluster.lease() * 3)).await?;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{body}");
    assert!(body["error"].as_str().is_some_and(|words| words.contains("publish it again")), "{body}");
    Ok(())
}
