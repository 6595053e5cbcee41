//! Message queues, in processes.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use centrifuge::Generation;
use centrifuge_examples::Failure;
use centrifuge_examples::shared::call::{Call, Pool};
use centrifuge_harness::managers::until;
use serde_json::{Value, json};

use crate::cluster::cluster;
use crate::mesh::{ask, await_losses, get, key, names, owned, start};
use crate::support::LossRecorder;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(45);

/// A client of a queue, which knows what it has read.
#[derive(Clone)]
struct Client {
    pool: Pool,
    name: String,
    incarnation: Value,
    after: u64,
}

impl Client {
    fn new(pool: &Pool, name: &str) -> Client {
        Client { pool: pool.clone(), name: name.to_owned(), incarnation: Value::Null, after: 0 }
    }

    /// Opens the queue, and says whether something was missed.
    async fn open(&mut self, interests: Value) -> Result<bool, Failure> {
        let body = json!({ "interests": interests, "incarnation": self.incarnation });
        let call = Call::post(format!("/queues/{}/open", self.name), &body);
        let opened = get(&self.pool, &self.name, call).await?;
        if opened["missed"] == true {
            self.after = 0;
        }
        self.incarnation = opened["incarnation"].clone();
        Ok(opened["missed"] == true)
    }

    /// Everything that was not read yet; waits for it.
    async fn read(&mut self, wait: Duration) -> Result<Value, Failure> {
        let Client { name, incarnation, after, .. } = self;
        let incarnation = incarnation.as_str().ok_or("open the queue first")?;
        let wait_ms = wait.as_millis();
        let path =
            format!("/queues/{name}/messages?incarnation={incarnation}&after={after}&wait_ms={wait_ms}");
        let read = get(&self.pool, name, Call::get(path).wait(wait)).await?;
        let last = read["messages"].as_array().and_then(|entries| entries.last()?["number"].as_u64());
        *after = last.unwrap_or(*after);
        Ok(read)
    }

    /// The same, for a queue that is there.
    async fn entries(&mut self, wait: Duration) -> Result<Vec<Value>, Failure> {
        let read = self.read(wait).await?;
        assert_eq!(read["missed"], false, "{read}");
        Ok(read["messages"].as_array().cloned().unwrap_or_default())
    }

    /// The messages alone.
    async fn messages(&mut self) -> Result<Vec<Value>, Failure> {
        let entries = self.entries(Duration::ZERO).await?;
        Ok(entries.iter().map(|entry| entry["message"].clone()).collect())
    }
}

fn enqueue(queue: &str, lease: u64, message: impl Into<Value>) -> Call {
    let body = json!({ "topic": "home-pc", "message": message.into() });
    Call::post(format!("/queues/{queue}/enqueue"), &body).under(Generation(lease))
}

/// Centrifuge §4.3.
#[tokio::test]
async fn queues_survive_moves_and_a_crash_is_known_by_their_clients() -> Result<(), Failure> {
    let cluster = cluster(&["queues"]).await?;
    let first = start(&cluster, "queues server", "queues-1", &[]).await?;
    let second = start(&cluster, "queues server", "queues-2", &[]).await?;
    cluster.at_rest("queues", 2).await?;
    let pool = Pool::connect(&cluster.caller()?, "queues").await?;
    let losses = LossRecorder::new(&pool);
    let names = names("pc", 16);
    let mut clients: Vec<Client> = names.iter().map(|name| Client::new(&pool, name)).collect();
    for client in &mut clients {
        let name = client.name.clone();
        assert_eq!(ask(&pool, &name, enqueue(&name, 10, 0)).await?.0, StatusCode::NOT_FOUND);
        assert!(client.open(json!({})).await?, "it knew none");
        get(&pool, &name, enqueue(&name, 10, 1)).await?;
    }

    // Readers wait while a server joins, to which some of their queues move: what comes there reaches them,
    // long before they would have asked again.
    let mut waiting = Vec::new();
    for client in &mut clients {
        assert_eq!(client.messages().await?, [1]);
        let mut reader = client.clone();
        waiting.push(tokio::spawn(async move { reader.entries(LONG).await }));
    }
    let began = Instant::now();
    let third = start(&cluster, "queues server", "queues-3", &[]).await?;
    cluster.at_rest("queues", 3).await?;
    assert!(waiting.iter().all(|reader| !reader.is_finished()), "nothing has come yet");
    for name in &names {
        get(&pool, name, enqueue(name, 10, 2)).await?;
    }
    assert!(!owned(&pool, &third, &names).is_empty(), "some have moved");
    for reader in waiting {
        assert_eq!(reader.await??[0]["message"], 2);
    }
    assert!(began.elapsed() < LONG - LONG / 10, "they were told to look elsewhere");

    // A server goes. Everything moves along: messages, incarnations, and what the fences know.
    assert!(first.stop().await?.success());
    cluster.at_rest("queues", 2).await?;
    for client in &mut clients {
        let name = client.name.clone();
        assert!(!client.open(json!({})).await?, "it is the same queue");
        let (status, body) = ask(&pool, &name, enqueue(&name, 9, "stale")).await?;
        assert_eq!(status, StatusCode::CONFLICT, "{body}");
        get(&pool, &name, enqueue(&name, 11, 3)).await?;
        assert_eq!(client.messages().await?, [2, 3]);
    }
    assert!(losses.take().is_empty(), "a move is no loss");

    // A crash: who was away learns it when it comes back, and who waits learns it at once.
    let gone = owned(&pool, &second, &names);
    assert!(!gone.is_empty() && gone.len() < names.len(), "each server has some");
    let mut reader = clients.iter().find(|client| client.name == gone[0]).cloned().ok_or("one of them")?;
    let waiting = tokio::spawn(async move { reader.read(LONG).await });
    second.kill().await?;
    let lost = await_losses(&losses, &gone).await?;
    assert_eq!(waiting.await??, json!({ "incarnation": null, "missed": true, "messages": [] }));
    for client in &mut clients {
        let is_lost = lost.contains(key(&client.name));
        assert_eq!(client.open(json!({})).await?, is_lost, "{}", client.name);
        get(&pool, &client.name, enqueue(&client.name, 12, 4)).await?;
        assert_eq!(client.messages().await?, [4]);
    }
    Ok(())
}

#[tokio::test]
async fn a_reader_wakes_for_a_message_and_is_told_what_was_dropped() -> Result<(), Failure> {
    let cluster = cluster(&["queues"]).await?;
    let arguments = ["--most", "3", "--message-ttl", "5s", "--ttl", "6s"];
    let _server = start(&cluster, "queues server", "queues-1", &arguments).await?;
    cluster.at_rest("queues", 1).await?;
    let pool = Pool::connect(&cluster.caller()?, "queues").await?;
    let mut client = Client::new(&pool, "work-pc");
    client.open(json!({})).await?;
    let mut reader = client.clone();
    let waiting = tokio::spawn(async move { (reader.entries(LONG).await, reader) });
    // By then it waits; if it does not, it has nothing to wake from, and finds the message all the same.
    tokio::time::sleep(Duration::from_millis(500)).await;
    get(&pool, "work-pc", enqueue("work-pc", 1, "hello")).await?;
    let (entries, mut client) = waiting.await?;
    assert_eq!(entries?[0]["message"], "hello", "it was woken before the message was too old");

    for message in 1..=5 {
        get(&pool, "work-pc", enqueue("work-pc", 1, message)).await?;
    }
    let (entries, read) = (client.clone().entries(Duration::ZERO).await?, client.after);
    assert_eq!((&entries[0]["dropped"], &entries[0]["number"]), (&json!(3), &json!(read + 2)));
    assert_eq!(entries.len(), 4, "a word of what was dropped, and the most that a queue holds");
    until("what nobody read for too long is dropped, and that is told", async || {
        let entries = client.clone().entries(Duration::ZERO).await?;
        Ok(entries.len() == 1 && entries[0]["number"] == json!(read + 5))
    })
    .await?;
    client.entries(Duration::ZERO).await?;
    assert!(client.entries(Duration::from_millis(300)).await?.is_empty(), "told until it was read");

    let (status, body) =
        ask(&pool, "work-pc", Call::post("/queues/work-pc/open", &interest("pubsub"))).await?;
    assert_eq!(status, StatusCode::BAD_REQUEST, "nobody watches that pool here: {body}");
    // A queue that nobody asks for ends; made anew under the same lease it is another.
    until("a queue ends", async || {
        tokio::time::sleep(Duration::from_secs(7)).await;
        Ok(client.read(Duration::ZERO).await?["incarnation"] == Value::Null)
    })
    .await?;
    assert!(client.open(json!({})).await?);
    Ok(())
}

fn interest(pool: &str) -> Value {
    json!({ "interests": { pool: ["home-pc"] } })
}

/// PRS §3.2.
#[tokio::test]
async fn losses_of_another_pool_are_in_the_queues_they_concern_and_only_there() -> Result<(), Failure> {
    let cluster = cluster(&["queues", "documents"]).await?;
    let kept = start(&cluster, "documents server", "documents-1", &[]).await?;
    let killed = start(&cluster, "documents server", "documents-2", &[]).await?;
    cluster.at_rest("documents", 2).await?;
    let watches = ["--watches", "documents"];
    let drained = start(&cluster, "queues server", "queues-1", &watches).await?;
    let _second = start(&cluster, "queues server", "queues-2", &watches).await?;
    cluster.at_rest("queues", 2).await?;
    let (documents, pool) = (
        Pool::connect(&cluster.caller()?, "documents").await?,
        Pool::connect(&cluster.caller()?, "queues").await?,
    );
    let losses = LossRecorder::new(&documents);
    let things = names("pc", 16);
    let gone = owned(&documents, &killed, &things);
    let safe = owned(&documents, &kept, &things);
    assert!(!gone.is_empty() && !safe.is_empty(), "each server has some");

    // Clients with one thing that will be lost and one that will not, and clients with nothing to lose.
    let mut clients: Vec<Client> = names("work-pc", 16).iter().map(|name| Client::new(&pool, name)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let interests = if number % 2 == 0 { json!([gone[0], safe[0]]) } else { json!([safe[0]]) };
        client.open(json!({ "documents": interests })).await?;
    }
    let mut reader = clients[0].clone();
    let waiting = tokio::spawn(async move { reader.entries(LONG).await });
    let began = Instant::now();

    // The loss is told, and at once the queues of one server move, most of them untouched since, some to a
    // server that was started after the loss and never heard of it.
    killed.kill().await?;
    await_losses(&losses, &gone).await?;
    let expected = json!({ "pool": "documents", "names": [gone[0]] });
    assert_eq!(waiting.await??[0]["lost"], expected);
    assert!(began.elapsed() < LONG - LONG / 10, "a waiting reader is woken");
    let stopped = tokio::spawn(drained.stop());
    let _third = start(&cluster, "queues server", "queues-3", &watches).await?;
    assert!(stopped.await??.success());
    cluster.at_rest("queues", 2).await?;

    for (number, client) in clients.iter_mut().enumerate() {
        if number % 2 == 0 {
            let entries = client.entries(LONG).await?;
            assert!(!entries.is_empty(), "{} was not told", client.name);
            assert!(entries.iter().all(|entry| entry["lost"] == expected), "{entries:?}");
        } else {
            assert_eq!(client.entries(Duration::ZERO).await?, [] as [Value; 0], "it has nothing to lose");
        }
    }
    // Moved once more, to yet another new server: what was told is not told again.
    let _fourth = start(&cluster, "queues server", "queues-4", &watches).await?;
    cluster.at_rest("queues", 3).await?;
    for client in &mut clients {
        assert_eq!(client.entries(Duration::ZERO).await?, [] as [Value; 0], "a move is no loss");
    }
    Ok(())
}
