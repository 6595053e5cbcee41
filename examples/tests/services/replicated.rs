//! A replicated store, in processes.

use axum::http::StatusCode;
use centrifuge::leased_map::LeasedKey;
use centrifuge_examples::Failure;
use centrifuge_examples::replicated::{CopyName, Versioned};
use centrifuge_examples::shared::call::{Call, Pool};
use centrifuge_harness::Service;
use centrifuge_harness::managers::until;
use serde_json::{Value, json};

use crate::cluster::cluster;
use crate::support::LossRecorder;

const COPIES: u32 = 3;
const NAMES: u32 = 30;

fn copies_of(name: &str) -> impl Iterator<Item = CopyName> {
    (0..COPIES).map(|number| CopyName { name: name.to_owned(), number })
}

/// How many copies of a name are at a server.
fn copies_at(pool: &Pool, server: &Service, name: &str) -> usize {
    let is_there =
        |copy: &CopyName| pool.lookup().lookup(copy.key()).is_ok_and(|route| route.url() == server.address());
    copies_of(name).filter(is_there).count()
}

/// The values that the copies of a name have, asked for one by one.
async fn values(pool: &Pool, name: &str) -> Result<Vec<Option<Value>>, Failure> {
    let mut values = Vec::new();
    for copy in copies_of(name) {
        let call = Call::get(format!("/replicated/{name}/copies/{}", copy.number));
        let found: Option<Versioned> = pool.ask_for(copy.key(), &call).await?.read()?;
        values.push(found.map(|copy| copy.value));
    }
    Ok(values)
}

async fn put(gateway: &Service, name: &str, value: &Value) -> Result<(), Failure> {
    let url = format!("{}/replicated/{name}", gateway.address());
    let answer = reqwest::Client::new().put(url).json(value).send().await?;
    assert_eq!(answer.status(), StatusCode::OK, "{}", answer.text().await?);
    Ok(())
}

async fn get(gateway: &Service, name: &str) -> Result<Value, Failure> {
    let answer = reqwest::get(format!("{}/replicated/{name}", gateway.address())).await?;
    Ok(answer.error_for_status()?.json::<Versioned>().await?.value)
}

/// PRS §2.4.
#[tokio::test]
async fn no_value_is_lost_with_one_of_its_servers() -> Result<(), Failure> {
    let cluster = cluster(&["replicated"]).await?;
    let mut servers = Vec::new();
    for name in ["a", "b", "c", "d"] {
        servers.push(cluster.serve("replicated server", name, &[]).await?);
    }
    cluster.at_rest("replicated", 4).await?;
    let gateway = cluster.call("replicated frontend", "gateway", cluster.managers(), &[]).await?;
    let pool = Pool::connect(&cluster.caller()?, "replicated").await?;
    let losses = LossRecorder::new(&pool);

    let victim = servers.pop().ok_or("four were started")?;
    let all = (0..NAMES).map(|number| format!("value-{number}"));
    // One server may have all copies of a name: then there is nothing to repair it from.
    let names: Vec<String> = all.filter(|name| copies_at(&pool, &victim, name) < COPIES as usize).collect();
    for name in &names {
        put(&gateway, name, &json!({ "first of": name })).await?;
        put(&gateway, name, &json!({ "value of": name })).await?;
        assert_eq!(get(&gateway, name).await?, json!({ "value of": name }));
    }
    let missing = reqwest::get(format!("{}/replicated/nothing", gateway.address())).await?;
    assert_eq!(missing.status(), StatusCode::NOT_FOUND);

    let one = |name: &&String| copies_at(&pool, &victim, name) == 1;
    let available = names.iter().find(one).ok_or("some name has one copy there")?.clone();
    victim.kill().await?;
    assert_eq!(get(&gateway, &available).await?, json!({ "value of": available }), "a quorum is enough");
    cluster.at_rest("replicated", 3).await?;
    until("the loss is told and every copy is repaired, although nobody asks for it", async || {
        for name in &names {
            if values(&pool, name).await? != vec![Some(json!({ "value of": name })); COPIES as usize] {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await?;
    until("callers are told", async || Ok(!losses.take().is_empty())).await?;

    // A new caller has not heard of the crash.
    let pool = Pool::connect(&cluster.caller()?, "replicated").await?;
    let losses = LossRecorder::new(&pool);
    let _joins = cluster.serve("replicated server", "e", &[]).await?;
    cluster.at_rest("replicated", 4).await?;
    let drained = servers.pop().ok_or("three are left")?;
    drained.stop().await?;
    cluster.at_rest("replicated", 3).await?;
    for name in &names {
        assert_eq!(values(&pool, name).await?, vec![Some(json!({ "value of": name })); COPIES as usize]);
    }
    assert_eq!(losses.take(), [], "what moved is not lost");
    Ok(())
}
