//! What operators see and want, over loopback.

mod support;

use centrifuge_net::proto::v1;
use centrifuge_server::Config;
use centrifuge_server::config::Limits;
use support::{TestOwner, admin, channel, config, create, eventually, page, start};
use tonic::Code;

#[tokio::test]
async fn namespaces_are_created_listed_configured_and_deleted() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let mut admin = admin(manager.grpc_addr()).await;
    create(manager.grpc_addr(), "presence").await;

    let all = admin.list_namespaces(v1::ListNamespacesRequest::default()).await.expect("listed").into_inner();
    assert_eq!(all.namespaces.len(), 1, "what was answered is seen by the next read");
    assert_eq!(all.namespaces[0].name, "presence");
    assert_eq!(all.namespaces[0].settings.expect("settings").lease_ms, Some(6_000));

    let again = v1::CreateNamespaceRequest { namespace: "presence".into(), settings: None, kind: None };
    assert_eq!(admin.create_namespace(again).await.expect_err("refused").code(), Code::AlreadyExists);

    let settings = v1::Settings { heartbeat_ms: Some(300), ..v1::Settings::default() };
    let change = v1::ConfigureNamespaceRequest {
        namespace: "presence".into(),
        settings: Some(settings),
        expected: None,
        kind: None,
    };
    admin.configure_namespace(change).await.expect("configured");
    let only = v1::ListNamespacesRequest { namespace: Some("presence".into()) };
    let shown = admin.list_namespaces(only).await.expect("listed").into_inner();
    let settings = shown.namespaces[0].settings.expect("settings");
    assert_eq!((settings.heartbeat_ms, settings.lease_ms), (Some(300), Some(6_000)));

    admin
        .delete_namespace(v1::DeleteNamespaceRequest { namespace: "presence".into() })
        .await
        .expect("deleted");
    let all = admin.list_namespaces(v1::ListNamespacesRequest::default()).await.expect("listed").into_inner();
    assert!(all.namespaces.is_empty());
    manager.shutdown().await;
}

#[tokio::test]
async fn operators_who_change_different_settings_at_once_do_not_undo_each_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let address = manager.grpc_addr();
    create(address, "presence").await;
    let change = |settings| v1::ConfigureNamespaceRequest {
        namespace: "presence".into(),
        settings: Some(settings),
        expected: None,
        kind: None,
    };
    for round in 1..=20 {
        let changes = [
            v1::Settings { max_moves: Some(round), ..v1::Settings::default() },
            v1::Settings { max_owners: Some(round), ..v1::Settings::default() },
            v1::Settings { heartbeat_ms: Some(round.into()), ..v1::Settings::default() },
            v1::Settings { log_span_ms: Some(round.into()), ..v1::Settings::default() },
        ];
        let requests = changes.map(|settings| {
            let request = change(settings);
            tokio::spawn(async move { admin(address).await.configure_namespace(request).await })
        });
        for request in requests {
            request.await.expect("an answer").expect("configured");
        }
        let settings = settings_of(address, "presence").await;
        let seen = (settings.max_moves, settings.max_owners, settings.heartbeat_ms, settings.log_span_ms);
        assert_eq!(seen, (Some(round), Some(round), Some(round.into()), Some(round.into())));
    }

    // Who says what the change was made from is refused if that is not so any more.
    let mut stale = change(v1::Settings { max_moves: Some(99), ..v1::Settings::default() });
    stale.expected = Some(v1::Settings { max_moves: Some(1), ..v1::Settings::default() });
    let status = admin(address).await.configure_namespace(stale.clone()).await.expect_err("refused");
    assert_eq!(status.code(), Code::Aborted);
    assert_eq!(settings_of(address, "presence").await.max_moves, Some(20));
    stale.expected = Some(v1::Settings { max_moves: Some(20), ..v1::Settings::default() });
    admin(address).await.configure_namespace(stale).await.expect("configured");
    assert_eq!(settings_of(address, "presence").await.max_moves, Some(99));
    manager.shutdown().await;
}

async fn settings_of(manager: std::net::SocketAddr, namespace: &str) -> v1::Settings {
    let only = v1::ListNamespacesRequest { namespace: Some(namespace.into()) };
    let shown = admin(manager).await.list_namespaces(only).await.expect("listed").into_inner();
    shown.namespaces[0].settings.expect("settings")
}

fn ordered(prefix: &[u8]) -> v1::NamespaceKind {
    let keys = Some(v1::KeyKind::Ordered.into());
    v1::NamespaceKind { keys, key_prefix: Some(prefix.to_vec().into()), mode: None }
}

#[tokio::test]
async fn what_a_namespace_is_is_chosen_once_and_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let mut admin = admin(manager.grpc_addr()).await;
    let create =
        |kind| v1::CreateNamespaceRequest { namespace: "users".into(), settings: None, kind: Some(kind) };
    let configure = |kind| v1::ConfigureNamespaceRequest {
        namespace: "users".into(),
        settings: Some(v1::Settings { heartbeat_ms: Some(300), ..v1::Settings::default() }),
        expected: None,
        kind: Some(kind),
    };
    admin.create_namespace(create(ordered(b"user/"))).await.expect("created");

    let status = admin.create_namespace(create(ordered(b"user/"))).await.expect_err("it exists");
    assert_eq!(status.code(), Code::AlreadyExists);
    for other in [ordered(b"account/"), v1::NamespaceKind::default()] {
        let status = admin.create_namespace(create(other.clone())).await.expect_err("it is another");
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        assert!(status.message().contains("ordered keys after 'user/', exclusive leases"), "{status}");
    }
    let hashed = v1::NamespaceKind { keys: Some(v1::KeyKind::Hashed.into()), ..Default::default() };
    for other in [ordered(b"account/"), hashed] {
        let status = admin.configure_namespace(configure(other)).await.expect_err("it is fixed");
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().ends_with("create another namespace"), "{status}");
    }
    admin.configure_namespace(configure(ordered(b"user/"))).await.expect("that is what it is");

    let all = admin.list_namespaces(v1::ListNamespacesRequest::default()).await.expect("listed").into_inner();
    let shown = all.namespaces[0].clone();
    let kind = shown.kind.expect("every namespace is something");
    let said = (kind.keys(), kind.key_prefix.as_deref(), kind.mode());
    assert_eq!(said, (v1::KeyKind::Ordered, Some(&b"user/"[..]), v1::Mode::Exclusive));
    assert_eq!(shown.settings.expect("settings").partitioner(), v1::Partitioner::Trim);
    let (_, page) = page(manager.http_addr(), "/status").await;
    assert!(page.contains(r#""keys":"ordered","key_prefix":"user/","mode":"exclusive""#), "{page}");
    manager.shutdown().await;

    let manager = start(folder.path(), config()).await;
    let status =
        support::admin(manager.grpc_addr()).await.create_namespace(create(ordered(b"account/"))).await;
    assert_eq!(status.expect_err("it is stored").code(), Code::FailedPrecondition);
    manager.shutdown().await;
}

#[tokio::test]
async fn kinds_that_cannot_be_are_refused_by_the_name_of_the_field() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let mut admin = admin(manager.grpc_addr()).await;
    let hash =
        v1::Settings { partitioner: Some(v1::Partitioner::ConsistentHash.into()), ..Default::default() };
    let affinity = v1::NamespaceKind { mode: Some(v1::Mode::Affinity.into()), ..Default::default() };
    let hold = v1::Settings { hold_ms: Some(70_000), ..Default::default() };
    let prefix_alone = v1::NamespaceKind { key_prefix: Some(b"user/".to_vec().into()), ..Default::default() };
    let unknown = v1::NamespaceKind { keys: Some(7), ..Default::default() };
    let refused = [
        (ordered(&[b'a'; 65]), None, Code::InvalidArgument, "kind.key_prefix: has 65 bytes"),
        (prefix_alone, None, Code::InvalidArgument, "kind.key_prefix: is for ordered keys alone"),
        (unknown, None, Code::InvalidArgument, "kind.keys: has the unknown value 7"),
        (ordered(b""), Some(hash), Code::InvalidArgument, "partitioner must not be consistent-hash"),
        (affinity, Some(hold), Code::InvalidArgument, "hold must not be set in affinity mode"),
    ];
    for (kind, settings, code, words) in refused {
        let request = v1::CreateNamespaceRequest { namespace: "users".into(), settings, kind: Some(kind) };
        let status = admin.create_namespace(request).await.expect_err("refused");
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(words), "{status}");
    }
    manager.shutdown().await;
}

#[tokio::test]
async fn affinity_mode_is_marked_in_every_answer_and_page_and_is_never_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let mut admin = admin(manager.grpc_addr()).await;
    create(manager.grpc_addr(), "presence").await;
    let kind = |mode: v1::Mode| Some(v1::NamespaceKind { mode: Some(mode.into()), ..Default::default() });
    let feeds = || "feeds".to_owned();
    let request = v1::CreateNamespaceRequest {
        namespace: feeds(),
        settings: Some(v1::Settings { lease_ms: Some(120_000), ..Default::default() }),
        kind: kind(v1::Mode::Affinity),
    };
    admin.create_namespace(request).await.expect("its hold need not outlast its lease");

    let only = v1::ListNamespacesRequest { namespace: Some(feeds()) };
    let shown = admin.list_namespaces(only).await.expect("listed").into_inner();
    assert_eq!(shown.namespaces[0].kind.as_ref().expect("a kind").mode(), v1::Mode::Affinity);
    for (namespace, mode) in [("feeds", v1::Mode::Affinity), ("presence", v1::Mode::Exclusive)] {
        let namespace = || namespace.to_owned();
        let request = v1::ListOwnersRequest { namespace: namespace() };
        assert_eq!(admin.list_owners(request).await.expect("listed").into_inner().mode(), mode);
        let request = v1::ListLeasesRequest { namespace: namespace(), ..Default::default() };
        assert_eq!(admin.list_leases(request).await.expect("listed").into_inner().mode(), mode);
        let request = v1::HistoryRequest { namespace: Some(namespace()), ..Default::default() };
        let decisions = admin.history(request).await.expect("told").into_inner().decisions;
        assert!(!decisions.is_empty() && decisions.iter().all(|decision| decision.mode() == mode));
    }
    let status = admin.status(v1::StatusRequest {}).await.expect("told").into_inner();
    assert_eq!((status.namespaces, status.affinity_namespaces), (Some(2), Some(1)));
    let (_, status) = page(manager.http_addr(), "/status").await;
    assert!(
        status.contains(r#""name":"feeds","keys":"hashed","key_prefix":null,"mode":"affinity""#),
        "{status}"
    );
    let (_, metrics) = page(manager.http_addr(), "/metrics").await;
    for line in
        [r#"centrifuge_affinity{namespace="feeds"} 1"#, r#"centrifuge_affinity{namespace="presence"} 0"#]
    {
        assert!(metrics.contains(line), "{metrics}");
    }

    for (namespace, other) in [("feeds", v1::Mode::Exclusive), ("presence", v1::Mode::Affinity)] {
        let change = v1::ConfigureNamespaceRequest {
            namespace: namespace.to_owned(),
            settings: Some(v1::Settings::default()),
            expected: None,
            kind: kind(other),
        };
        let status = admin.configure_namespace(change).await.expect_err("it is fixed");
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        let again =
            v1::CreateNamespaceRequest { namespace: namespace.to_owned(), settings: None, kind: kind(other) };
        let status = admin.create_namespace(again).await.expect_err("it is another");
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    }
    manager.shutdown().await;
}

#[tokio::test]
async fn refusals_name_what_is_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let mut admin = admin(manager.grpc_addr()).await;

    let bad_name = v1::CreateNamespaceRequest { namespace: "No Label".into(), settings: None, kind: None };
    let status = admin.create_namespace(bad_name).await.expect_err("refused");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("namespace"), "{status}");

    let hasty = v1::Settings { renewal_ms: Some(60_000), ..v1::Settings::default() };
    let bad_settings =
        v1::CreateNamespaceRequest { namespace: "presence".into(), settings: Some(hasty), kind: None };
    let status = admin.create_namespace(bad_settings).await.expect_err("refused");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("renewal"), "{status}");

    let zero = v1::Settings { max_owners: Some(0), ..v1::Settings::default() };
    let bad_settings =
        v1::CreateNamespaceRequest { namespace: "presence".into(), settings: Some(zero), kind: None };
    let status = admin.create_namespace(bad_settings).await.expect_err("refused");
    assert_eq!(status.message(), "settings: max_owners must not be zero");

    let missing = v1::DeleteNamespaceRequest { namespace: "nowhere".into() };
    let status = admin.delete_namespace(missing).await.expect_err("refused");
    assert_eq!(status.code(), Code::NotFound);
    assert!(status.message().contains("`nowhere`"), "{status}");
    let missing = v1::ListOwnersRequest { namespace: "nowhere".into() };
    let status = admin.list_owners(missing).await.expect_err("refused");
    assert_eq!(status.code(), Code::NotFound);
    assert!(status.message().contains("`nowhere`"), "{status}");
    create(manager.grpc_addr(), "presence").await;
    let missing =
        v1::DrainRequest { namespace: "presence".into(), owner: "nobody".into(), why: String::new() };
    let status = admin.drain(missing).await.expect_err("refused");
    assert_eq!(status.code(), Code::NotFound);
    assert!(status.message().contains("`nobody`") && status.message().contains("`presence`"), "{status}");
    manager.shutdown().await;
}

#[tokio::test]
async fn an_owner_is_shown_with_its_leases_and_the_reasons_for_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    create(manager.grpc_addr(), "presence").await;
    let mut owner = TestOwner::start(manager.grpc_addr(), "presence", "alpha");
    owner.until(support::Seen::holds_everything).await;
    let mut admin = admin(manager.grpc_addr()).await;

    let owners = v1::ListOwnersRequest { namespace: "presence".into() };
    let owners = admin.list_owners(owners).await.expect("listed").into_inner().owners;
    assert_eq!(owners.len(), 1);
    assert_eq!((owners[0].name.as_str(), owners[0].url.as_str()), ("alpha", "http://alpha"));
    assert!((owners[0].key_share - 1.0).abs() < 1e-9);

    let leases =
        v1::ListLeasesRequest { namespace: "presence".into(), range: None, owner: Some("alpha".into()) };
    let leases = admin.list_leases(leases).await.expect("listed").into_inner().leases;
    assert!(!leases.is_empty());
    assert!(leases.iter().all(|lease| lease.owner.as_ref().is_some_and(|owner| owner.name == "alpha")));

    let history = v1::HistoryRequest { namespace: Some("presence".into()), key: None, limit: 0 };
    let decisions = admin.history(history).await.expect("told").into_inner().decisions;
    let kinds: Vec<&str> = decisions.iter().map(|decision| decision.kind.as_str()).collect();
    assert_eq!(&kinds[..2], ["created", "session-started"]);
    assert!(kinds[2..].iter().all(|kind| *kind == "granted"), "{kinds:?}");
    assert!(decisions[1..].iter().all(|decision| decision.owner.as_deref() == Some("alpha")));
    assert!(decisions[2..].iter().all(|decision| decision.reason == "unowned"));

    let delete = v1::DeleteNamespaceRequest { namespace: "presence".into() };
    let status = admin.delete_namespace(delete).await.expect_err("it has an Owner");
    assert_eq!(status.code(), Code::FailedPrecondition);
    let evict = v1::EvictRequest { namespace: "presence".into(), owner: "alpha".into(), why: "test".into() };
    admin.evict(evict).await.expect("evicted");
    owner.until(|seen| seen.held.is_empty()).await;
    manager.shutdown().await;
}

#[tokio::test]
async fn no_range_is_moved_to_an_owner_that_gives_everything_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    create(manager.grpc_addr(), "presence").await;
    let mut owner = TestOwner::start(manager.grpc_addr(), "presence", "alpha");
    owner.until(support::Seen::holds_everything).await;
    let mut admin = admin(manager.grpc_addr()).await;
    let to_alpha = v1::MoveRequest {
        namespace: "presence".into(),
        range: Some(v1::KeyRange { first: 0, last: 9 }),
        to: Some("alpha".into()),
        why: String::new(),
    };
    admin.r#move(to_alpha.clone()).await.expect("pinned");
    let drain = v1::DrainRequest { namespace: "presence".into(), owner: "alpha".into(), why: String::new() };
    admin.drain(drain).await.expect("drained");
    let status = admin.r#move(to_alpha.clone()).await.expect_err("it is being emptied");
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("`alpha` is being emptied"), "{status}");
    let anywhere = v1::MoveRequest { to: None, ..to_alpha };
    admin.r#move(anywhere).await.expect("unpinned");
    manager.shutdown().await;
}

#[tokio::test]
async fn a_drain_ends_when_an_operator_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    create(manager.grpc_addr(), "presence").await;
    let mut owner = TestOwner::start(manager.grpc_addr(), "presence", "alpha");
    owner.until(support::Seen::holds_everything).await;
    let mut admin = admin(manager.grpc_addr()).await;
    let (namespace, name) = ("presence".to_owned(), "alpha".to_owned());
    let drain = v1::DrainRequest { namespace: namespace.clone(), owner: name.clone(), why: String::new() };
    let undrain = v1::UndrainRequest { namespace: namespace.clone(), owner: name, why: "stays".into() };
    let owners = v1::ListOwnersRequest { namespace };
    for is_drained in [true, false] {
        if is_drained {
            admin.drain(drain.clone()).await.expect("drained");
        } else {
            admin.undrain(undrain.clone()).await.expect("undrained");
        }
        let listed = admin.list_owners(owners.clone()).await.expect("listed").into_inner().owners;
        assert_eq!((listed[0].draining, listed[0].drain_ordered), (is_drained, is_drained));
    }
    admin.undrain(undrain.clone()).await.expect("it is not drained, as was asked for");
    let missing = v1::UndrainRequest { owner: "nobody".into(), ..undrain };
    let status = admin.undrain(missing).await.expect_err("refused");
    assert_eq!(status.code(), Code::NotFound);
    manager.shutdown().await;

    let manager = start(folder.path(), config()).await;
    let mut admin = self::admin(manager.grpc_addr()).await;
    admin.drain(drain).await.expect("drained");
    manager.shutdown().await;
    let manager = start(folder.path(), config()).await;
    let mut admin = self::admin(manager.grpc_addr()).await;
    let listed = admin.list_owners(owners).await.expect("listed").into_inner().owners;
    assert!(listed[0].drain_ordered, "an operator's drain outlives a leader");
    manager.shutdown().await;
}

#[tokio::test]
async fn the_pages_tell_health_readiness_status_and_metrics() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    create(manager.grpc_addr(), "presence").await;
    let mut owner = TestOwner::start(manager.grpc_addr(), "presence", "alpha");
    owner.until(support::Seen::holds_everything).await;
    let http = manager.http_addr();

    assert!(page(http, "/health").await.0.contains("200"));
    let (line, body) = page(http, "/ready").await;
    assert!(line.contains("200") && body.contains("leader"), "{line} {body}");
    let (_, body) = page(http, "/status").await;
    let status: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(status["role"], "leader");
    assert_eq!(status["leader"], manager.grpc_addr().to_string());
    assert_eq!(status["store"]["healthy"], true);
    assert_eq!(status["namespaces"][0]["name"], "presence");
    assert_eq!(status["namespaces"][0]["owners"], 1);
    assert_eq!(status["namespaces"][0]["unowned_ranges"], 0);

    let (_, text) = page(http, "/metrics").await;
    assert!(text.contains("centrifuge_leading 1"), "{text}");
    assert!(text.contains("centrifuge_owners{namespace=\"presence\"} 1"), "{text}");
    assert!(text.contains("centrifuge_sessions_started_total{namespace=\"presence\"} 1"), "{text}");
    let reports = || async {
        let count = support::metric(http, "centrifuge_messages_received_total{kind=\"report\"}").await;
        (count >= 3.0).then_some(())
    };
    eventually(reports).await;
    manager.shutdown().await;
}

#[tokio::test]
async fn ordinary_tools_find_the_services_and_their_health() {
    use tonic_health::pb::health_client::HealthClient;
    use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", manager.grpc_addr()))
        .expect("an address")
        .connect_lazy();

    let health = || async {
        let request = HealthCheckRequest { service: "centrifuge.v1.Owner".into() };
        let reply = HealthClient::new(channel.clone()).check(request).await.expect("checked");
        (reply.into_inner().status() == ServingStatus::Serving).then_some(())
    };
    eventually(health).await;

    let ask = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut replies = ServerReflectionClient::new(channel.clone())
        .server_reflection_info(tokio_stream::once(ask))
        .await
        .expect("asked")
        .into_inner();
    let reply = replies.message().await.expect("answered").expect("a message");
    let Some(MessageResponse::ListServicesResponse(list)) = reply.message_response else {
        panic!("{reply:?}");
    };
    let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    for name in
        ["centrifuge.v1.Owner", "centrifuge.v1.Lookup", "centrifuge.v1.Admin", "grpc.health.v1.Health"]
    {
        assert!(names.contains(&name), "{names:?}");
    }
    manager.shutdown().await;
}

#[tokio::test]
async fn the_limit_of_namespaces_holds_however_many_are_created_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = Limits { max_namespaces: 10, ..Limits::default() };
    let manager = start(folder.path(), Config { limits, ..config() }).await;
    let at = manager.grpc_addr();
    let requests: Vec<_> = (0..60)
        .map(|number| {
            let request = v1::CreateNamespaceRequest {
                namespace: format!("pool-{number}"),
                settings: None,
                kind: None,
            };
            tokio::spawn(async move { admin(at).await.create_namespace(request).await })
        })
        .collect();
    let mut created = 0;
    for request in requests {
        match request.await.expect("an answer") {
            Ok(_) => created += 1,
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                assert!(status.message().contains("max_namespaces"), "{status}");
            }
        }
    }
    assert_eq!(created, 10);
    let all = admin(at).await.list_namespaces(v1::ListNamespacesRequest::default()).await;
    assert_eq!(all.expect("listed").into_inner().namespaces.len(), 10);
    // One that is gone makes room.
    let gone = v1::DeleteNamespaceRequest {
        namespace: manager
            .view()
            .group()
            .expect("it leads")
            .namespaces
            .keys()
            .next()
            .expect("one")
            .to_string(),
    };
    admin(at).await.delete_namespace(gone).await.expect("deleted");
    create(at, "another").await;
    manager.shutdown().await;
}

#[tokio::test]
async fn what_is_no_request_and_what_is_no_setting_is_the_operators_mistake() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let at = manager.grpc_addr();
    let mut grpc = tonic::client::Grpc::new(channel(at).await.expect("connected"));
    grpc.ready().await.expect("ready");
    let path = tonic::codegen::http::uri::PathAndQuery::from_static("/centrifuge.v1.Admin/CreateNamespace");
    // A WatchRequest says in its fields what no CreateNamespaceRequest can.
    let wrong =
        v1::WatchRequest { namespace: "a".into(), lookup: vec![0xff; 16].into(), ..Default::default() };
    let codec = tonic_prost::ProstCodec::<v1::WatchRequest, v1::CreateNamespaceReply>::default();
    let status = grpc.unary(tonic::Request::new(wrong), path, codec).await.expect_err("refused");
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    assert!(status.message().contains("decode"), "{status}");

    let hasty = v1::Settings { lease_ms: Some(5), hold_ms: Some(6), ..v1::Settings::default() };
    let request =
        v1::CreateNamespaceRequest { namespace: "presence".into(), settings: Some(hasty), kind: None };
    let status = admin(at).await.create_namespace(request).await.expect_err("refused");
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    assert!(status.message().contains("lease_ms"), "{status}");
    manager.shutdown().await;
}
