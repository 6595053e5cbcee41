//! Sectioned documents, in processes.

use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::http::{Method, StatusCode};
use centrifuge_examples::Failure;
use centrifuge_examples::shared::call::{Call, Pool};
use centrifuge_harness::managers::until;
use serde_json::{Value, json};

use crate::cluster::cluster;
use crate::mesh::{ask, await_losses, get, key, names, owned, start};
use crate::support::LossRecorder;

fn put(name: &str, section: &str, condition: &str, value: &Value) -> Call {
    Call::put(format!("/documents/{name}/sections/{section}{condition}"), value)
}

fn delete(path: &str) -> Call {
    Call::new(Method::DELETE, path, Bytes::new())
}

fn text(body: &Value, field: &str) -> String {
    body[field].as_str().unwrap_or_else(|| panic!("{field} of {body}")).to_owned()
}

/// What each document is.
async fn read_all(pool: &Pool, names: &[String]) -> Result<BTreeMap<String, Value>, Failure> {
    let mut all = BTreeMap::new();
    for name in names {
        all.insert(name.clone(), get(pool, name, Call::get(format!("/documents/{name}"))).await?);
    }
    Ok(all)
}

/// Centrifuge §4.2.
#[tokio::test]
async fn documents_survive_moves_and_are_rebuilt_by_their_writers_after_a_crash() -> Result<(), Failure> {
    let cluster = cluster(&["documents"]).await?;
    let first = start(&cluster, "documents server", "documents-1", &[]).await?;
    let second = start(&cluster, "documents server", "documents-2", &[]).await?;
    cluster.at_rest("documents", 2).await?;
    let pool = Pool::connect(&cluster.caller()?, "documents").await?;
    let losses = LossRecorder::new(&pool);
    conditions_are_kept(&pool).await?;

    let names = names("pc", 24);
    for name in &names {
        get(&pool, name, put(name, "address", "?if_version=none", &json!({ "of": name }))).await?;
    }
    let before = read_all(&pool, &names).await?;

    // One more server, then one less: everything moves, and nobody is told of a loss.
    let third = start(&cluster, "documents server", "documents-3", &[]).await?;
    cluster.at_rest("documents", 3).await?;
    assert!(first.stop().await?.success());
    cluster.at_rest("documents", 2).await?;
    assert_eq!(read_all(&pool, &names).await?, before);
    assert!(losses.take().is_empty(), "a move is no loss");
    let moved = &names[0];
    let condition = format!("?if_version={}", text(&before[moved], "version"));
    get(&pool, moved, put(moved, "address", &condition, &json!("a version from before the move"))).await?;

    // A crash: what was there is lost, its writers are told, and write it again.
    let before = read_all(&pool, &names).await?;
    let gone = owned(&pool, &second, &names);
    assert!(!gone.is_empty() && gone.len() < names.len(), "each server has some");
    second.kill().await?;
    let lost = await_losses(&losses, &gone).await?;
    for name in names.iter().filter(|name| lost.contains(key(name))) {
        let old = format!("?if_version={}", text(&before[name], "version"));
        let value = &before[name]["sections"]["address"]["value"];
        let (status, body) = ask(&pool, name, put(name, "address", &old, value)).await?;
        assert_eq!((status, &body["version"]), (StatusCode::PRECONDITION_FAILED, &Value::Null), "{body}");
        let written = get(&pool, name, put(name, "address", "?if_version=none", value)).await?;
        let (status, body) = ask(&pool, name, put(name, "address", &old, value)).await?;
        assert_eq!((status, &body["version"]), (StatusCode::PRECONDITION_FAILED, &written["version"]));
    }
    for (name, after) in read_all(&pool, &names).await? {
        let value = |document: &Value| document["sections"]["address"]["value"].clone();
        assert_eq!(value(&after), value(&before[&name]));
        let is_kept = text(&after, "version") == text(&before[&name], "version");
        assert_eq!(is_kept, !lost.contains(key(&name)), "only what was lost is another");
    }
    drop(third);
    Ok(())
}

async fn conditions_are_kept(pool: &Pool) -> Result<(), Failure> {
    let (name, other) = ("home-pc", "no-pc");
    let (status, body) = ask(pool, other, Call::get("/documents/no-pc")).await?;
    assert_eq!(status, StatusCode::NOT_FOUND, "{body}");
    let first = get(pool, name, put(name, "address", "", &json!("10.0.0.1"))).await?;
    let condition = format!("?if_version={}", text(&first, "version"));
    let second = get(pool, name, put(name, "load", &condition, &json!({ "cpu": 7 }))).await?;
    for condition in [&condition, "?if_version=none"] {
        let (status, body) = ask(pool, name, put(name, "load", condition, &json!(8))).await?;
        assert_eq!((status, &body["version"]), (StatusCode::PRECONDITION_FAILED, &second["version"]));
    }
    let (status, _) = ask(pool, name, put(name, "load", "?if_version=latest", &json!(8))).await?;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let document = get(pool, name, Call::get("/documents/home-pc")).await?;
    let address = json!({ "version": first["version"], "value": "10.0.0.1" });
    let load = json!({ "version": second["version"], "value": { "cpu": 7 } });
    let expected = json!({ "version": second["version"], "sections": { "address": address, "load": load } });
    assert_eq!(document, expected);
    assert_eq!(get(pool, name, Call::get("/documents/home-pc/sections/load")).await?, load);

    let third = get(pool, name, delete("/documents/home-pc/sections/load")).await?;
    let (status, _) = ask(pool, name, Call::get("/documents/home-pc/sections/load")).await?;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, _) = ask(pool, name, delete(&format!("/documents/home-pc{condition}"))).await?;
    assert_eq!(status, StatusCode::PRECONDITION_FAILED);
    get(pool, name, delete(&format!("/documents/home-pc?if_version={}", text(&third, "version")))).await?;
    let (status, _) = ask(pool, name, Call::get("/documents/home-pc")).await?;
    assert_eq!(status, StatusCode::NOT_FOUND);
    // Written anew under the same lease: no version of the removed document matches.
    get(pool, name, put(name, "address", "", &json!("10.0.0.1"))).await?;
    let (status, _) = ask(pool, name, put(name, "address", &condition, &json!("10.0.0.2"))).await?;
    assert_eq!(status, StatusCode::PRECONDITION_FAILED);
    Ok(())
}

/// PRS §3.
#[tokio::test]
async fn a_document_ends_unless_it_is_refreshed_and_an_instance_has_a_name() -> Result<(), Failure> {
    let cluster = cluster(&["activity"]).await?;
    let arguments = ["--namespace", "activity", "--ttl", "4s"];
    let _server = start(&cluster, "documents server", "activity-1", &arguments).await?;
    cluster.at_rest("activity", 1).await?;
    let pool = Pool::connect(&cluster.caller()?, "activity").await?;
    let write = |name: &str| Call::put(format!("/activity/{name}/sections/recent"), &json!([1, 2]));
    let kept = get(&pool, "kept", write("kept")).await?;
    get(&pool, "left", write("left")).await?;
    until("a document that nobody refreshes ends", async || {
        let refreshed = get(&pool, "kept", Call::post("/activity/kept/refresh", &json!({}))).await?;
        assert_eq!(refreshed, kept, "a refresh is no write");
        let (status, _) = ask(&pool, "left", Call::get("/activity/left")).await?;
        Ok(status == StatusCode::NOT_FOUND)
    })
    .await?;
    let (status, _) = ask(&pool, "left", Call::post("/activity/left/refresh", &json!({}))).await?;
    assert_eq!(status, StatusCode::NOT_FOUND, "its client publishes it again");
    until("reading alone does not keep a document", async || {
        let (status, _) = ask(&pool, "kept", Call::get("/activity/kept")).await?;
        Ok(status == StatusCode::NOT_FOUND)
    })
    .await
}
