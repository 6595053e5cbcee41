//! A cache over a database, in processes.

use axum::http::StatusCode;
use centrifuge::Key;
use centrifuge_examples::Failure;
use centrifuge_examples::call::{Answer, Call, Pool};
use centrifuge_examples::launch::{Cluster, Process, until};
use serde_json::{Value, json};

use crate::support::{Ear, cluster};

const ITEMS: u64 = 60;

async fn serve(cluster: &Cluster, name: &str, more: &[&str]) -> Result<Process, Failure> {
    let database = cluster.directory().join("items.db");
    let database = database.to_str().ok_or("a strange directory")?;
    cluster.serve("cache", name, &[&["--database", database], more].concat()).await
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

async fn count(server: &Process, what: &str) -> Result<u64, Failure> {
    let url = format!("{}/cache-stats", server.address());
    let counts: Value = reqwest::get(url).await?.json().await?;
    counts[what].as_u64().ok_or_else(|| format!("no {what} in {counts}").into())
}

#[tokio::test]
async fn a_drained_cache_stays_warm_and_a_crashed_one_is_prefetched() -> Result<(), Failure> {
    let cluster = cluster(&["cache"]).await?;
    let first = serve(&cluster, "first", &[]).await?;
    cluster.at_rest("cache", 1).await?;
    let pool = Pool::connect(&cluster.caller()?, "cache").await?;
    let ear = Ear::new(&pool);

    assert_eq!(get(&pool, "nothing").await?.status, StatusCode::NOT_FOUND);
    for number in 0..ITEMS {
        put(&pool, &item(number), &json!(number)).await?;
    }
    put(&pool, "gone", &json!("soon")).await?;
    let delete = Call::new(axum::http::Method::DELETE, "/cache/gone", Vec::new().into());
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
    assert_eq!(ear.take(), [], "what moved is not lost");

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
    until("callers are told of the crash", async || Ok(!ear.take().is_empty())).await?;
    assert_eq!(get(&pool, "gone").await?.status, StatusCode::NOT_FOUND);
    Ok(())
}

#[tokio::test]
async fn a_paused_owner_that_goes_on_with_a_write_is_refused_by_the_database() -> Result<(), Failure> {
    let cluster = cluster(&["cache"]).await?;
    let paused = serve(&cluster, "paused", &["--stall", "5s"]).await?;
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
    paused.pause()?;
    cluster.at_rest("cache", 1).await?;
    let found: Value = get(&pool, &names[0]).await?.read()?;
    assert_eq!(found["value"], "before");
    put(&pool, &names[0], &json!("after")).await?;
    paused.go_on()?;

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
