//! A cache over a database, in processes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use axum::http::{Method, StatusCode};
use centrifuge::Key;
use centrifuge_examples::Failure;
use centrifuge_examples::shared::call::{Answer, Call, Pool};
use centrifuge_harness::managers::until;
use centrifuge_harness::{Cluster, Service};
use serde_json::{Value, json};

use crate::cluster::cluster;
use crate::support::LossRecorder;

const ITEMS: u64 = 60;

async fn serve(cluster: &Cluster, name: &str, more: &[&str]) -> Result<Service, Failure> {
    let database = cluster.directory().join("items.db");
    let database = database.to_str().ok_or("a strange directory")?;
    cluster.serve("cache server", name, &[&["--database", database], more].concat()).await
}

fn item(number: u64) -> String {
    format!("item-{number}")
}

async fn get(pool: &Pool, name: &str) -> Result<Answer, Failure> {
    Ok(pool.ask(name, &Call::get(format!("/cache/{name}"))).await?)
}

async fn put(pool: &Pool, name: &str, value: &Value) -> Result<(), Failure> {
    let answer = pool.ask(name, &Call::put(format!("/cache/{name}"), value)).await?;
    answer.read::<Value>().map(|_| ())
}

/// Every item is what was written, and comes from memory.
async fn all_are_warm(pool: &Pool) -> Result<(), Failure> {
    for number in 0..ITEMS {
        let found: Value = get(pool, &item(number)).await?.read()?;
        assert_eq!(found, json!({ "value": number, "from": "memory" }), "{}", item(number));
    }
    Ok(())
}

async fn count(server: &Service, what: &str) -> Result<u64, Failure> {
    let url = format!("{}/cache-stats", server.address());
    let counts: Value = reqwest::get(url).await?.json().await?;
    counts[what].as_u64().ok_or_else(|| format!("no {what} in {counts}").into())
}

/// PRS §2.4.
#[tokio::test]
async fn a_drained_cache_stays_warm_and_a_crashed_one_is_prefetched() -> Result<(), Failure> {
    let cluster = cluster(&["cache"]).await?;
    let first = serve(&cluster, "first", &[]).await?;
    cluster.at_rest("cache", 1).await?;
    let pool = Pool::connect(&cluster.caller()?, "cache").await?;
    let losses = LossRecorder::new(&pool);

    assert_eq!(get(&pool, "nothing").await?.status, StatusCode::NOT_FOUND);
    for number in 0..ITEMS {
        put(&pool, &item(number), &json!(number)).await?;
    }
    put(&pool, "gone", &json!("soon")).await?;
    let delete = Call::new(Method::DELETE, "/cache/gone", Vec::new().into());
    assert_eq!(pool.ask("gone", &delete).await?.read::<Value>()?, json!({ "deleted": true }));
    assert_eq!(get(&pool, "gone").await?.status, StatusCode::NOT_FOUND);

    let second = serve(&cluster, "second", &[]).await?;
    cluster.at_rest("cache", 2).await?;
    all_are_warm(&pool).await?;
    first.stop().await?;
    cluster.at_rest("cache", 1).await?;
    all_are_warm(&pool).await?;
    assert_eq!(count(&second, "prefetched").await?, 0, "everything came along with its range");
    assert_eq!(count(&second, "misses").await?, 0);
    assert_eq!(losses.take(), [], "what moved is not lost");

    let third = serve(&cluster, "third", &[]).await?;
    cluster.at_rest("cache", 2).await?;
    second.kill().await?;
    cluster.at_rest("cache", 1).await?;
    all_are_warm(&pool).await?;
    assert!(
        count(&third, "prefetched").await? > 0,
        "what the other had in memory was read before anyone asked"
    );
    assert_eq!(count(&third, "misses").await?, 0);
    until("callers are told of the crash", async || Ok(!losses.take().is_empty())).await?;
    assert_eq!(get(&pool, "gone").await?.status, StatusCode::NOT_FOUND);
    Ok(())
}

#[tokio::test]
async fn a_paused_owner_that_goes_on_with_a_write_is_refused_by_the_database() -> Result<(), Failure> {
    let cluster = cluster(&["cache"]).await?;
    let paused = serve(&cluster, "paused", &["--stall", "4s"]).await?;
    let other = serve(&cluster, "other", &[]).await?;
    cluster.at_rest("cache", 2).await?;
    let pool = Pool::connect(&cluster.caller()?, "cache").await?;
    let lookup = pool.lookup().clone();
    let is_at_paused = |name: &String| {
        lookup.lookup(Key::of(name.as_bytes())).is_ok_and(|route| route.url() == paused.address())
    };
    let names: Vec<String> = (0..).map(item).filter(is_at_paused).take(2).collect();
    let slowly = |name: &str, value: &str| {
        let url = format!("{}/cache/{name}", paused.address());
        tokio::spawn(reqwest::Client::new().put(url).json(&json!(value)).send())
    };
    assert_eq!(slowly(&names[0], "before").await??.status(), StatusCode::OK);

    // An overwrite and an insert are past their last check when the server is paused.
    let writes: Vec<_> = names.iter().map(|name| slowly(name, "late")).collect();
    until("both writes are under way", async || Ok(count(&paused, "writes").await? == 3)).await?;
    paused.pause().await?;
    cluster.at_rest("cache", 1).await?;
    let found: Value = get(&pool, &names[0]).await?.read()?;
    assert_eq!(found["value"], "before");
    put(&pool, &names[0], &json!("after")).await?;
    paused.resume()?;

    for write in writes {
        let answer = write.await??;
        assert_eq!(answer.status(), StatusCode::MISDIRECTED_REQUEST);
        let words = answer.text().await?;
        assert!(words.contains("not the one that the database has a claim of"), "{words}");
    }
    let found: Value = get(&pool, &names[0]).await?.read()?;
    assert_eq!(found["value"], "after");
    assert_eq!(get(&pool, &names[1]).await?.status, StatusCode::NOT_FOUND, "nothing was inserted");
    drop(other);
    Ok(())
}

/// How far the writers are, and whether they should stop.
#[derive(Default)]
struct Progress {
    rounds: AtomicU64,
    stop: AtomicBool,
}

impl Progress {
    /// Waits until they have got on.
    async fn goes_on(&self) -> Result<(), Failure> {
        let before = self.rounds.load(Ordering::Relaxed);
        until("writers get on", async || Ok(self.rounds.load(Ordering::Relaxed) > before + 100)).await
    }
}

/// One writer of a few names, which it alone writes: reads back each time what it wrote last.
async fn write_and_read_back(pool: Pool, writer: u64, progress: Arc<Progress>) -> Result<(), Failure> {
    let mut rounds = 0;
    while !progress.stop.load(Ordering::Relaxed) {
        rounds += 1;
        progress.rounds.fetch_add(1, Ordering::Relaxed);
        let name = format!("{writer}-{}", rounds % 5);
        if rounds % 3 == 0 {
            let delete = Call::new(Method::DELETE, format!("/cache/{name}"), Vec::new().into());
            assert_eq!(done(&pool, &name, &delete).await?.status, StatusCode::OK);
            assert_eq!(
                done(&pool, &name, &Call::get(format!("/cache/{name}"))).await?.status,
                StatusCode::NOT_FOUND
            );
        } else {
            done(&pool, &name, &Call::put(format!("/cache/{name}"), &rounds)).await?.read::<Value>()?;
            let found: Value = done(&pool, &name, &Call::get(format!("/cache/{name}"))).await?.read()?;
            assert_eq!(found["value"], rounds, "{name}");
        }
    }
    Ok(())
}

/// Asks again while the database is busy.
async fn done(pool: &Pool, name: &str, call: &Call) -> Result<Answer, Failure> {
    loop {
        let answer = pool.ask(name, call).await?;
        if answer.status != StatusCode::SERVICE_UNAVAILABLE {
            return Ok(answer);
        }
    }
}

#[tokio::test]
async fn memory_and_database_agree_while_servers_come_and_go() -> Result<(), Failure> {
    const WRITERS: u64 = 6;
    let cluster = cluster(&["cache"]).await?;
    let first = serve(&cluster, "first", &[]).await?;
    cluster.at_rest("cache", 1).await?;
    let pool = Pool::connect(&cluster.caller()?, "cache").await?;
    let progress = Arc::<Progress>::default();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write_and_read_back(pool.clone(), writer, Arc::clone(&progress))))
        .collect();

    progress.goes_on().await?;
    let second = serve(&cluster, "second", &[]).await?;
    cluster.at_rest("cache", 2).await?;
    progress.goes_on().await?;
    first.stop().await?;
    progress.goes_on().await?;
    let _third = serve(&cluster, "third", &[]).await?;
    cluster.at_rest("cache", 2).await?;
    progress.goes_on().await?;
    second.kill().await?;
    cluster.at_rest("cache", 1).await?;
    progress.goes_on().await?;
    progress.stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await??;
    }

    let database = rusqlite::Connection::open(cluster.directory().join("items.db"))?;
    let mut select = database.prepare("SELECT name, value FROM items")?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let stored: BTreeMap<String, String> = rows.collect::<Result<_, _>>()?;
    for name in (0..WRITERS).flat_map(|writer| (0..5).map(move |number| format!("{writer}-{number}"))) {
        let answer = get(&pool, &name).await?;
        let cached = answer.read::<Value>().ok().map(|found| found["value"].to_string());
        assert_eq!(cached.as_ref(), stored.get(&name), "{name}");
    }
    Ok(())
}
