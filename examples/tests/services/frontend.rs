//! A frontend, in processes.

use axum::http::StatusCode;
use centrifuge_examples::Failure;

use crate::cluster::cluster;

#[tokio::test]
async fn a_pool_that_a_frontend_does_not_know_is_not_found() -> Result<(), Failure> {
    let cluster = cluster(&["presence"]).await?;
    let frontend = cluster
        .call("documents frontend", "frontend-1", cluster.managers(), &["--pools", "presence"])
        .await?;
    let answer = reqwest::get(format!("{}/rooms/room-7", frontend.address())).await?;
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    assert!(answer.text().await?.contains("there is no pool rooms here"));
    Ok(())
}
