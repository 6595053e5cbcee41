//! Owners and Lookups over loopback, and a Manager that comes back.

mod support;

use centrifuge_core::message::{ManagerToLookup, RefusedWhy, Update, UpdateBody};
use centrifuge_net::proto::v1;
use centrifuge_server::Config;
use centrifuge_server::config::Limits;
use support::{Seen, TestOwner, config, create, eventually, lookup, metric, start, watch_request, within};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};

/// The next news on a watch.
async fn news(watch: &mut Streaming<v1::WatchReply>) -> Update {
    let reply = within(watch.message()).await.expect("a stream").expect("a reply");
    match ManagerToLookup::try_from(reply).expect("a message") {
        ManagerToLookup::Update(update) => update,
        other => panic!("{other:?}"),
    }
}

/// Reads until a snapshot or changes come, and gives their entries.
async fn entries(watch: &mut Streaming<v1::WatchReply>) -> Vec<centrifuge_core::table::PublishedEntry> {
    loop {
        match news(watch).await.body {
            UpdateBody::Snapshot { entries, .. } | UpdateBody::Changes { entries, .. } => {
                return entries.to_vec();
            }
            UpdateBody::Heartbeat { .. } | UpdateBody::Unchanged { .. } => {}
        }
    }
}

#[tokio::test]
async fn an_owner_gets_all_keys_and_every_watch_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let at = manager.grpc_addr();
    create(at, "presence").await;
    let mut watches = Vec::new();
    for number in 1..=3 {
        let mut watch =
            lookup(at).await.watch(watch_request("presence", number)).await.expect("watched").into_inner();
        let first = entries(&mut watch).await;
        assert!(first.iter().all(|entry| entry.owner.is_none()), "nobody has joined");
        watches.push(watch);
    }
    let mut owner = TestOwner::start(at, "presence", "alpha");
    let seen = owner.until(Seen::holds_everything).await;
    let highest = seen.held.iter().map(|(_, generation)| *generation).max().expect("leases");
    for watch in &mut watches {
        let told = entries(watch).await;
        assert!(
            told.iter().all(|entry| entry.owner.as_ref().is_some_and(|o| o.url.as_str() == "http://alpha"))
        );
        assert_eq!(told.iter().map(|entry| entry.generation).max(), Some(highest));
    }
    manager.shutdown().await;
}

#[tokio::test]
async fn two_owners_share_the_keys_and_one_that_falls_silent_loses_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let at = manager.grpc_addr();
    create(at, "presence").await;
    let mut alpha = TestOwner::start(at, "presence", "alpha");
    alpha.until(Seen::holds_everything).await;
    let mut beta = TestOwner::start(at, "presence", "beta");
    beta.until(|seen| !seen.held.is_empty()).await;
    alpha.until(|seen| !seen.holds_everything()).await;
    drop(beta);
    alpha.until(Seen::holds_everything).await;
    let losses = "centrifuge_lease_losses_total{namespace=\"presence\",reason=\"hold-expired\"}";
    assert!(metric(manager.http_addr(), losses).await > 0.0);
    manager.shutdown().await;
}

#[tokio::test]
async fn a_namespace_that_does_not_exist_is_refused_in_clear_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let at = manager.grpc_addr();
    let mut owner = TestOwner::start(at, "nowhere", "alpha");
    owner.until(|seen| seen.refused == Some(RefusedWhy::UnknownNamespace)).await;

    let mut watch = lookup(at).await.watch(watch_request("nowhere", 1)).await.expect("watched").into_inner();
    let reply = within(watch.message()).await.expect("a stream").expect("a reply");
    assert!(matches!(reply.kind, Some(v1::watch_reply::Kind::UnknownNamespace(_))), "{reply:?}");
    assert!(within(watch.message()).await.expect("a good end").is_none(), "the stream ends");

    // Once it exists the same Owner gets in by itself.
    create(at, "nowhere").await;
    owner.until(Seen::holds_everything).await;
    manager.shutdown().await;
}

/// Stops a Manager in some way, starts it again on the same store and address, and sees that nothing was lost.
async fn comes_back(crash: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let again = Config { grpc_listen: manager.grpc_addr(), ..config() };
    let at = manager.grpc_addr();
    create(at, "presence").await;
    let mut owner = TestOwner::start(at, "presence", "alpha");
    let before = owner.until(Seen::holds_everything).await;
    let mut watch = lookup(at).await.watch(watch_request("presence", 1)).await.expect("watched").into_inner();
    let table = entries(&mut watch).await;
    let term = manager.view().role().term;

    if crash {
        manager.crash().await
    } else {
        manager.shutdown().await
    }
    let end = loop {
        match within(watch.message()).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the end has a status"),
            Err(status) => break status,
        }
    };
    assert_eq!(end.code(), Code::Unavailable, "{end}");

    let manager = start(folder.path(), again).await;
    assert!(manager.view().role().term > term, "every leadership has a term of its own");
    owner.until(|seen| seen.joined >= 2).await;
    let mut watch = lookup(at).await.watch(watch_request("presence", 2)).await.expect("watched").into_inner();
    assert_eq!(entries(&mut watch).await, table, "same owners, generations and beginnings of state");
    let after = owner.seen.borrow().clone();
    assert_eq!((after.held, after.revoked), (before.held, 0), "the Owner noticed nothing");

    // What is granted next has a higher number than all before.
    let highest = table.iter().map(|entry| entry.generation).max().expect("leases");
    let told =
        support::admin(at).await.history(v1::HistoryRequest::default()).await.expect("told").into_inner();
    assert!(told.decisions.iter().any(|decision| decision.kind == "created"), "history survives");
    assert!(told.decisions.iter().filter_map(|d| d.generation).all(|generation| generation <= highest.0));
    let losses = metric(manager.http_addr(), "centrifuge_lease_losses_total").await;
    assert!(losses.abs() < f64::EPSILON);
    manager.shutdown().await;
}

#[tokio::test]
async fn a_manager_that_was_stopped_comes_back_and_nothing_is_lost() {
    comes_back(false).await;
}

#[tokio::test]
async fn a_manager_that_crashed_comes_back_and_nothing_is_lost() {
    comes_back(true).await;
}

#[tokio::test]
async fn a_second_manager_on_the_same_store_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let store = centrifuge_server::store::Backend::File(folder.path().join("centrifuge.db"));
    let error = centrifuge_server::Manager::start(config(), store).await.expect_err("locked").to_string();
    assert!(error.contains("in use by another process"), "{error}");
    manager.shutdown().await;
}

#[tokio::test]
async fn a_lookup_that_does_not_read_loses_its_stream_and_nobody_else_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = Limits { lookup_queue: 4, ..Limits::default() };
    let manager = start(folder.path(), Config { limits, ..config() }).await;
    let at = manager.grpc_addr();
    let fast = v1::Settings { heartbeat_ms: Some(1), ..support::short_leases() };
    let request = v1::CreateNamespaceRequest { namespace: "presence".into(), settings: Some(fast) };
    support::admin(at).await.create_namespace(request).await.expect("created");
    let mut slow = lookup(at).await.watch(watch_request("presence", 1)).await.expect("watched").into_inner();
    let mut quick = lookup(at).await.watch(watch_request("presence", 2)).await.expect("watched").into_inner();
    let http = manager.http_addr();
    let dropped = eventually(move || async move {
        (metric(http, "centrifuge_slow_lookups_total").await > 0.0).then_some(())
    });
    tokio::pin!(dropped);
    loop {
        tokio::select! {
            () = &mut dropped => break,
            reply = quick.message() => assert!(reply.expect("it reads, so it stays").is_some()),
        }
    }
    let end = loop {
        match within(slow.message()).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the end has a status"),
            Err(status) => break status,
        }
    };
    assert_eq!(end.code(), Code::ResourceExhausted, "{end}");
    news(&mut quick).await;
    manager.shutdown().await;
}

#[tokio::test]
async fn a_lookup_that_hangs_up_is_forgotten_and_one_that_asked_again_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let (at, pages) = (manager.grpc_addr(), manager.http_addr());
    create(at, "presence").await;
    let until = async |name: &str, wanted: f64| {
        eventually(async || (metric(pages, name).await == wanted).then_some(())).await;
    };
    let lookups = "centrifuge_lookups{namespace=\"presence\"}";
    let watch = async |number, seq| {
        let request = v1::WatchRequest { seq, ..watch_request("presence", number) };
        let mut watch = lookup(at).await.watch(request).await.expect("watched").into_inner();
        entries(&mut watch).await;
        watch
    };
    let first = watch(1, 1).await;
    let mut second = watch(1, 2).await;
    let other = watch(2, 1).await;
    until(lookups, 2.0).await;
    drop(first);
    drop(other);
    until("centrifuge_streams{kind=\"lookup\"}", 1.0).await;
    until(lookups, 1.0).await;
    let mut owner = TestOwner::start(at, "presence", "alpha");
    owner.until(Seen::holds_everything).await;
    assert!(
        entries(&mut second).await.iter().all(|entry| entry.owner.is_some()),
        "it still hears of changes"
    );
    drop(second);
    until(lookups, 0.0).await;
    manager.shutdown().await;
}

#[tokio::test]
async fn a_stream_by_hand_gets_a_welcome() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let at = manager.grpc_addr();
    create(at, "presence").await;
    let (sender, stream) = tokio::sync::mpsc::channel(4);
    let hello = v1::Hello {
        namespace: "presence".into(),
        session: vec![9; 16].into(),
        number: 1,
        name: "by-hand".into(),
        url: "http://by-hand".into(),
        ..v1::Hello::default()
    };
    let kind = Some(v1::owner_message::Kind::Hello(hello));
    sender.send(v1::OwnerMessage { kind }).await.expect("room");
    let mut answers =
        support::owner(at).await.session(ReceiverStream::new(stream)).await.expect("a session").into_inner();
    let answer = within(answers.message()).await.expect("a stream").expect("an answer");
    let Some(v1::manager_message::Kind::Welcome(welcome)) = answer.kind else { panic!("{answer:?}") };
    assert_eq!((welcome.number, welcome.term), (1, manager.view().role().term.0));
    drop(sender);
    assert!(within(answers.message()).await.expect("a good end").is_none());
    manager.shutdown().await;
}

#[tokio::test]
async fn a_recording_has_a_header_and_a_line_for_every_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let record = folder.path().join("record");
    let manager = start(folder.path(), Config { record: Some(record.clone()), ..config() }).await;
    create(manager.grpc_addr(), "presence").await;
    manager.shutdown().await;
    let text = std::fs::read_to_string(record).expect("a recording");
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines[0].get("seed").is_some(), "the first line says how to build the machine: {}", lines[0]);
    assert!(lines.len() > 5, "start, election, load, commits: {}", lines.len());
    assert!(lines[1..].iter().all(|line| line.get("at").is_some()));
}
