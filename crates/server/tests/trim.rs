//! What readers see of a namespace whose load Trim balances, and what it refuses, over loopback.

mod support;

use std::net::SocketAddr;

use centrifuge_core::key::Key;
use centrifuge_core::load::RangeLoad;
use centrifuge_core::owner::OwnerEvent;
use centrifuge_net::proto::v1;
use serde_json::Value;
use support::{TestOwner, admin, config, eventually, metric, page, short_leases, start};
use tonic::Code;

/// A key with three times the load of all others together.
const HOT: Key = Key(7);

async fn create(at: SocketAddr, settings: v1::Settings) -> Result<(), tonic::Status> {
    let request =
        v1::CreateNamespaceRequest { namespace: "rooms".into(), settings: Some(settings), kind: None };
    admin(at).await.create_namespace(request).await.map(|_| ())
}

fn trim() -> v1::Settings {
    v1::Settings { partitioner: Some(v1::Partitioner::Trim.into()), ..short_leases() }
}

/// Tells the Owner's library what its application counted.
async fn count(owner: &TestOwner) {
    let held = owner.seen.borrow().held.clone();
    let load = |(range, _): &(centrifuge_core::key::KeyRange, _)| {
        let spread = u64::try_from((1_000_000_u128 * range.key_count()) >> 64).expect("less than all");
        let heavy: Vec<(Key, u64)> = range.contains(HOT).then_some((HOT, 3_000_000)).into_iter().collect();
        let load = spread + heavy.iter().map(|(_, load)| load).sum::<u64>();
        RangeLoad { range: *range, load, heavy, quantiles: Vec::new() }
    };
    let loads: Vec<RangeLoad> = held.iter().map(load).collect();
    owner.events.send(OwnerEvent::Load(loads.into())).await.expect("it runs");
}

/// What `/status` says of Trim.
async fn status(http: SocketAddr) -> Value {
    let (_, body) = page(http, "/status").await;
    let status: Value = serde_json::from_str(&body).expect("JSON");
    status["namespaces"][0]["trim"].clone()
}

#[tokio::test]
async fn the_pages_the_metrics_and_the_api_say_how_even_the_load_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let (at, http) = (manager.grpc_addr(), manager.http_addr());
    create(at, trim()).await.expect("created");
    let mut first = TestOwner::start(at, "rooms", "alpha");
    first.until(support::Seen::holds_everything).await;
    let mut second = TestOwner::start(at, "rooms", "beta");
    second.until(|seen| !seen.held.is_empty()).await;
    let known = eventually(|| async {
        count(&first).await;
        count(&second).await;
        let trim = status(http).await;
        (trim["hot_key_count"] == 1).then_some(trim)
    })
    .await;

    assert_eq!(known["loads_known"], true, "{known}");
    assert_eq!(known["hot_keys"][0]["key"], HOT.to_string(), "{known}");
    assert_eq!(known["hot_keys"][0]["load"], 3_000_000, "{known}");
    assert_eq!(known["floor"], 1.5, "the key has 3 of 2 million: {known}");
    assert!(
        known["latest_move"]["words"].as_str().is_some_and(|words| words.contains("of its share")),
        "{known}"
    );
    let only = v1::ListNamespacesRequest { namespace: Some("rooms".into()) };
    let listed = admin(at).await.list_namespaces(only).await.expect("listed").into_inner();
    let trim = listed.namespaces[0].trim.clone().expect("Trim has decided");
    assert_eq!((trim.hot_key_count, trim.hot_keys[0].key, trim.floor), (1, HOT.0, 1.5));
    assert!(["alpha", "beta"].contains(&trim.hot_keys[0].owner.as_str()), "{trim:?}");

    assert_eq!(metric(http, "centrifuge_trim_hot_keys{namespace=\"rooms\"}").await, 1.0);
    assert_eq!(metric(http, "centrifuge_trim_ratio{namespace=\"rooms\",of=\"floor\"}").await, 1.5);
    assert_eq!(
        metric(http, "centrifuge_trim_ranges_per_owner{namespace=\"rooms\",of=\"limit\"}").await,
        64.0
    );
    assert!(
        metric(http, "centrifuge_trim_moves_total{namespace=\"rooms\",reason=\"feed-new\"}").await >= 1.0
    );
    let (_, text) = page(http, "/metrics").await;
    for bucket in ["calm", "relief", "credit"] {
        assert!(text.contains(&format!(
            "centrifuge_trim_budget{{namespace=\"rooms\",bucket=\"{bucket}\",of=\"load\"}}"
        )));
    }
    manager.shutdown().await;
}

#[tokio::test]
async fn settings_of_trim_that_make_no_sense_are_refused_by_field() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let wrong = [
        ("imbalance", v1::Settings { imbalance: Some(1_009), ..trim() }),
        ("imbalance", v1::Settings { imbalance: Some(u32::MAX), ..trim() }),
        ("churn_budget", v1::Settings { churn_budget: Some(10_001), ..trim() }),
        ("max_ranges_per_owner", v1::Settings { max_ranges_per_owner: Some(0), ..trim() }),
        ("max_ranges_per_owner", v1::Settings { max_ranges_per_owner: Some(u32::MAX), ..trim() }),
        ("virtual_nodes", v1::Settings { virtual_nodes: Some(65_536), max_moves: Some(u32::MAX), ..trim() }),
        ("partitioner", v1::Settings { partitioner: Some(77), ..trim() }),
        ("partitioner", v1::Settings { partitioner: Some(-1), ..trim() }),
        ("partitioner", v1::Settings { partitioner: Some(0), ..trim() }),
    ];
    for (field, settings) in wrong {
        let status = create(manager.grpc_addr(), settings).await.expect_err("refused");
        assert_eq!(status.code(), Code::InvalidArgument, "{field}: {status}");
        assert!(status.message().contains(field), "{field}: {status}");
    }
    create(manager.grpc_addr(), v1::Settings { churn_budget: Some(0), ..trim() })
        .await
        .expect("0 is allowed");
    manager.shutdown().await;
}
