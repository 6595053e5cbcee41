//! Managers whose machine's wall clock is set: how far a leader lets it be, and what Managers without disk do (ADR 17).
//!
//! All Managers of a test are in this process, and so have one clock: the tests take turns.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use centrifuge_core::id::Namespace;
use centrifuge_core::manager::DeclaredNamespace;
use centrifuge_core::settings::Drift;
use centrifuge_harness::ports::{free_addresses, numbered};
use centrifuge_harness::wait::eventually;
use centrifuge_net::clock::step_wall;
use centrifuge_net::flease::Peers;
use centrifuge_net::proto::v1::CreateNamespaceRequest;
use centrifuge_net::proto::v1::admin_client::AdminClient;
use centrifuge_server::config::read_duration;
use centrifuge_server::store::{Backend, PeerKey, PeerOptions};
use centrifuge_server::{Config, Manager, RunningManager};
use tokio::sync::Mutex;
use tonic::transport::Endpoint;

const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3_600 * SECOND;

static CLOCK: Mutex<()> = Mutex::const_new(());

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Lets a leader decide something: whatever it decides, it has looked at its clocks before.
async fn decide(manager: &RunningManager, namespace: &str) {
    let endpoint = Endpoint::from_shared(format!("http://{}", manager.grpc_addr())).expect("an address");
    let mut admin = AdminClient::new(endpoint.connect().await.expect("connected"));
    let request = CreateNamespaceRequest { namespace: namespace.to_owned(), settings: None, kind: None };
    // A Manager that just ceased to lead refuses it.
    let _ = admin.create_namespace(request).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_gives_up_when_its_clocks_part_by_more_than_its_half_of_the_drift_bound() {
    let _clock = CLOCK.lock().await;
    let folder = tempfile::tempdir().expect("a folder");
    let leader_lease = Duration::from_secs(60);
    // Half of the bound is 2.4 s, and all of it 5 s: the other half belongs to whoever waits.
    assert_eq!(Drift::default().pause_for(leader_lease), Duration::from_millis(2_400));
    let config =
        Config { grpc_listen: any_port(), http_listen: any_port(), leader_lease, ..Config::default() };
    let store = Backend::File(folder.path().join("centrifuge.db"));
    let manager = Manager::start(config, store).await.expect("it starts");
    eventually(async || manager.view().role().is_leading().then_some(())).await;
    let term = manager.view().role().term;

    for (step, namespace) in [(2 * SECOND, "ahead"), (-2 * SECOND, "back"), (SECOND, "ahead-again")] {
        step_wall(step);
        decide(&manager, namespace).await;
        let role = manager.view().role();
        assert!(role.is_leading() && role.term == term, "{namespace}: {role:?}");
    }
    step_wall(5 * SECOND / 2);
    decide(&manager, "too-far").await;
    let role = eventually(async || Some(manager.view().role()).filter(|role| role.term > term)).await;
    assert!(role.is_leading(), "the clocks have not moved since: {role:?}");
    manager.shutdown().await;
}

/// Three Managers without a store.
struct Group(Peers);

impl Group {
    fn new() -> Group {
        let addresses = free_addresses(3).expect("free ports");
        Group(numbered(&addresses).parse().expect("a list"))
    }

    async fn start(&self, clock_ahead: Duration) -> Vec<RunningManager> {
        let mut managers = Vec::new();
        for (me, address) in self.0.iter() {
            let key = PeerKey::new(b"what only these Managers know").expect("long enough");
            let options = PeerOptions { clock_ahead, ..PeerOptions::new(self.0.clone(), me, key) };
            let config = Config {
                grpc_listen: address.parse().expect("an address"),
                http_listen: any_port(),
                leader_lease: options.election().leader_lease(Drift::default()),
                campaign_interval: Duration::from_secs(1),
                namespaces: BTreeMap::from([(
                    Namespace::new("pool").expect("a label"),
                    DeclaredNamespace::default(),
                )]),
                ..Config::default()
            };
            managers.push(Manager::start(config, Backend::None(Box::new(options))).await.expect("it starts"));
        }
        managers
    }
}

async fn leader(managers: &[RunningManager]) -> &RunningManager {
    eventually(async || managers.iter().find(|manager| manager.view().role().is_leading())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn managers_without_disk_whose_clocks_are_set_back_wait_and_say_how_to_go_on() {
    let _clock = CLOCK.lock().await;
    step_wall(2 * HOUR);
    let group = Group::new();
    let managers = group.start(Duration::ZERO).await;
    let term = leader(&managers).await.view().role().term;
    // The others have heard who leads, and must not say so for ever.
    for manager in &managers {
        eventually(async || manager.view().role().is_ready().then_some(())).await;
    }

    // They run on while their clocks are set right.
    step_wall(-2 * HOUR);
    let mut told = Vec::new();
    for manager in &managers {
        told.push(eventually(async || manager.view().store().problem).await);
        eventually(async || (!manager.view().role().is_leading()).then_some(())).await;
    }
    for words in &told {
        assert!(words.contains("set back by 120m"), "{words}");
    }
    // Longer than a recovery and an election take: none of them comes back by itself.
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert!(managers.iter().all(|manager| !manager.view().role().is_ready()));

    // Restarted as they say, they go on with higher terms.
    for manager in managers {
        manager.crash().await;
    }
    let (_, ahead) = told[0].split_once("--flease-clock-ahead ").expect("the setting is named");
    let managers = group.start(read_duration(ahead).expect("it can be given as it stands")).await;
    let leading = leader(&managers).await;
    assert!(leading.view().role().term > term);
    assert_eq!(leading.view().store().problem, None);
    for manager in managers {
        manager.shutdown().await;
    }
}
