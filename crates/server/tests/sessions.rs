//! Owners and Lookups over loopback, and a Manager that comes back.

mod support;

use centrifuge_core::id::Secret;
use centrifuge_core::message::{ManagerToLookup, RefusedReason, Update, UpdateBody};
use centrifuge_net::convert::write_session;
use centrifuge_net::credential;
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
    owner.until(|seen| seen.refused == Some(RefusedReason::UnknownNamespace)).await;

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
    let request =
        v1::CreateNamespaceRequest { namespace: "presence".into(), settings: Some(fast), kind: None };
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
        session: write_session(credential::session_of(&Secret([9; 32]))),
        secret: vec![9; 32].into(),
        version: 2,
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

/// A stream on which a test speaks as an Owner does.
struct ByHand {
    sender: tokio::sync::mpsc::Sender<v1::OwnerMessage>,
    answers: Streaming<v1::ManagerMessage>,
}

impl ByHand {
    async fn open(at: std::net::SocketAddr, first: v1::owner_message::Kind) -> ByHand {
        let (sender, stream) = tokio::sync::mpsc::channel(4);
        sender.send(v1::OwnerMessage { kind: Some(first) }).await.expect("room");
        let answers = support::owner(at).await.session(ReceiverStream::new(stream)).await;
        ByHand { sender, answers: answers.expect("a session").into_inner() }
    }

    async fn say(&self, kind: v1::owner_message::Kind) {
        self.sender.send(v1::OwnerMessage { kind: Some(kind) }).await.expect("room");
    }

    async fn answer(&mut self) -> Result<v1::manager_message::Kind, tonic::Status> {
        let answer = within(self.answers.message()).await?;
        Ok(answer.and_then(|answer| answer.kind).expect("an answer of some kind"))
    }

    /// The conversation that the answer offers.
    async fn welcome(&mut self) -> v1::Welcome {
        match self.answer().await.expect("no end") {
            v1::manager_message::Kind::Welcome(welcome) => welcome,
            other => panic!("{other:?}"),
        }
    }
}

/// A hello of the process whose secret consists of this byte.
fn hello(secret: u8, number: u64) -> v1::Hello {
    v1::Hello {
        namespace: "presence".into(),
        session: write_session(credential::session_of(&Secret([secret; 32]))),
        secret: vec![secret; 32].into(),
        version: 2,
        number,
        name: format!("by-hand-{secret}"),
        url: "http://by-hand".into(),
        ..v1::Hello::default()
    }
}

fn report(welcome: &v1::Welcome, seq: u64) -> v1::owner_message::Kind {
    v1::owner_message::Kind::Report(v1::Report {
        namespace: "presence".into(),
        session: welcome.session.clone(),
        conversation: welcome.conversation.clone(),
        seq,
        weight: 100,
        ..v1::Report::default()
    })
}

/// Session ids are published to every Lookup; none of what they allow reaches the session.
#[tokio::test]
async fn who_knows_a_session_does_not_speak_for_it() {
    use v1::manager_message::Kind as Answer;
    use v1::owner_message::Kind;
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let at = manager.grpc_addr();
    create(at, "presence").await;
    let mut victim = ByHand::open(at, Kind::Hello(hello(1, 1))).await;
    let welcome = victim.welcome().await;
    // Neither without a secret, nor with another one, nor in an earlier version that had none.
    let without = v1::Hello { secret: Default::default(), ..hello(1, 9) };
    let with_another = v1::Hello { secret: vec![2; 32].into(), ..hello(1, 9) };
    let earlier = v1::Hello { version: 0, ..hello(1, 9) };
    for wrong in [without, with_another, earlier] {
        let refused = ByHand::open(at, Kind::Hello(wrong)).await.answer().await.expect_err("refused");
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    }
    // Nor by a report, even one that has the conversation: on another stream, or on that of another session.
    let mut stranger = ByHand::open(at, report(&welcome, 1)).await;
    assert!(matches!(stranger.answer().await.expect("no end"), Answer::UnknownConversation(_)));
    let mut mallory = ByHand::open(at, Kind::Hello(hello(2, 1))).await;
    mallory.welcome().await;
    mallory.say(report(&welcome, 1)).await;
    assert!(matches!(mallory.answer().await.expect("no end"), Answer::UnknownConversation(_)));
    // The process itself is heard.
    victim.say(report(&welcome, 1)).await;
    assert!(matches!(victim.answer().await.expect("no end"), Answer::Assign(_)));
    manager.shutdown().await;
}

#[tokio::test]
async fn a_process_and_its_copy_end_one_anothers_claim() {
    use v1::owner_message::Kind;
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let at = manager.grpc_addr();
    create(at, "presence").await;
    let mut process = ByHand::open(at, Kind::Hello(hello(1, 1))).await;
    process.welcome().await;
    let mut copy = ByHand::open(at, Kind::Hello(hello(1, 2))).await;
    copy.welcome().await;
    process.say(Kind::Hello(hello(1, 3))).await;
    for mut either in [process, copy] {
        let status = either.answer().await.expect_err("an end");
        assert_eq!(status.code(), Code::Aborted, "{status}");
    }
    assert!(
        metric(manager.http_addr(), "centrifuge_rejected_input_total{kind=\"cloned-session\"}").await > 0.0
    );
    manager.shutdown().await;
}

/// A process that was another session says so on the stream on which that session spoke; on any other it ends nobody.
#[tokio::test]
async fn nobody_ends_a_session_by_naming_it() {
    use v1::owner_message::Kind;
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let at = manager.grpc_addr();
    create(at, "presence").await;
    let mut owner = TestOwner::start(at, "presence", "alpha");
    owner.until(Seen::holds_everything).await;
    let watch = lookup(at).await.watch(watch_request("presence", 1)).await;
    let rows = entries(&mut watch.expect("watched").into_inner()).await;
    let session = rows[0].owner.as_ref().expect("alpha").session;
    let named = v1::Hello { name: "alpha".into(), formerly: Some(write_session(session)), ..hello(3, 1) };
    let mut mallory = ByHand::open(at, Kind::Hello(named)).await;
    let answer = mallory.answer().await.expect("no end");
    assert!(matches!(answer, v1::manager_message::Kind::Refused(_)), "{answer:?}");
    assert_eq!(owner.seen.borrow().revoked, 0);
    manager.shutdown().await;
}

/// A recording has nothing from which a secret follows.
#[tokio::test]
async fn a_recording_has_no_secret() {
    let folder = tempfile::tempdir().expect("a folder");
    let record = folder.path().join("record");
    let manager = start(folder.path(), Config { record: Some(record.clone()), ..config() }).await;
    let at = manager.grpc_addr();
    create(at, "presence").await;
    let mut process = ByHand::open(at, v1::owner_message::Kind::Hello(hello(0xab, 1))).await;
    process.welcome().await;
    manager.shutdown().await;
    let text = std::fs::read_to_string(record).expect("a recording");
    assert!(text.contains("by-hand-171") && text.contains("\"secret\":null"), "the hello is there");
    let secret = [0xab_u8; 32];
    let as_hex = "ab".repeat(8);
    let as_numbers = serde_json::to_string(&secret[..8]).expect("JSON");
    assert!(!text.contains(&as_hex) && !text.contains(as_numbers.trim_matches(['[', ']'])));
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
