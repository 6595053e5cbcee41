//! What a real Owner, a real Lookup and a real Manager record of themselves can be replayed.

use std::fs::File;
use std::io::BufReader;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use centrifuge::lookup::ConnectError;
use centrifuge::owner::JoinError;
use centrifuge::{Key, Lookup, Managers, Owner};
use centrifuge_core::recording::MachineKind;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use centrifuge_server::store::Backend;
use centrifuge_server::{Config, Manager, RunningManager};
use centrifuge_sim::replay::{Outcome, replay};

/// However slow the machine, what is waited for has happened by then.
const PATIENCE: Duration = Duration::from_secs(60);
const POOL: &str = "rooms";

async fn within<T>(wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, wait).await.expect("in time")
}

async fn start(folder: &Path) -> RunningManager {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let record = Some(folder.join("manager.jsonl"));
    let config = Config { grpc_listen: any, http_listen: any, record, ..Config::default() };
    let manager =
        Manager::start(config, Backend::File(folder.join("centrifuge.db"))).await.expect("it starts");
    within(manager.leads()).await;
    let settings = v1::Settings {
        lease_ms: Some(3_000),
        hold_ms: Some(3_300),
        renewal_ms: Some(500),
        answer_allowance_ms: Some(500),
        settle_ms: Some(50),
        ..v1::Settings::default()
    };
    let request = v1::CreateNamespaceRequest { namespace: POOL.to_owned(), settings: Some(settings) };
    let mut admin = Dialer::new().admin(&manager.id()).expect("an address");
    admin.create_namespace(request).await.expect("created");
    manager
}

fn replayed(file: &Path) -> Outcome {
    let file = File::open(file).expect("a recording");
    replay(BufReader::new(file)).expect("a whole recording")
}

#[tokio::test]
async fn owner_lookup_and_manager_replay() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path()).await;
    let managers = Managers::list([manager.grpc_addr().to_string()]).expect("an address");
    let lookup = Lookup::builder(managers.clone(), POOL).record(folder.path().join("lookup.jsonl"));
    let lookup = within(lookup.connect()).await.expect("connected");
    let mut owners = Vec::new();
    for name in ["first", "second"] {
        let file = folder.path().join(format!("{name}.jsonl"));
        let owner = Owner::builder(managers.clone(), POOL).name(name).url(name).record(file);
        owners.push(within(owner.join()).await.expect("joined"));
    }
    // Both own something, and the caller knows it: grants, a recall and changes of the table are in the recordings.
    let (mut seen, key) = (lookup.position(), Key::of(b"room-7"));
    while owners.iter().any(|owner| owner.leases().is_empty()) || lookup.lookup(key).is_err() {
        seen = within(lookup.changed_since(seen)).await;
    }
    for owner in owners {
        within(owner.leave(PATIENCE)).await.expect("confirmed");
    }
    drop(lookup);
    manager.shutdown().await;

    let expected = [
        ("manager", MachineKind::Manager),
        ("lookup", MachineKind::Lookup),
        ("first", MachineKind::Owner),
        ("second", MachineKind::Owner),
    ];
    for (name, machine) in expected {
        let file = folder.path().join(format!("{name}.jsonl"));
        // A recording ends with the task that writes it, which may take a moment after the handle is gone.
        let mut outcome = replayed(&file);
        while outcome.cut {
            tokio::time::sleep(Duration::from_millis(5)).await;
            outcome = replayed(&file);
        }
        assert_eq!((outcome.machine, &outcome.difference), (machine, &None), "{name}");
        assert!(outcome.agreed > 5, "{name}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_recording_that_cannot_begin_is_an_error_that_names_the_file() {
    let managers = Managers::list(["127.0.0.1:1"]).expect("an address");
    let nowhere = "/nowhere/at/all.jsonl";
    let owner = Owner::builder(managers.clone(), POOL).url("here").record(nowhere).join().await;
    let owner = owner.expect_err("there is no such folder");
    assert!(matches!(owner, JoinError::Record(_)) && owner.to_string().contains(nowhere), "{owner}");
    let lookup = Lookup::builder(managers, POOL).record(nowhere).connect().await;
    let lookup = lookup.expect_err("there is no such folder");
    assert!(matches!(lookup, ConnectError::Record(_)) && lookup.to_string().contains(nowhere), "{lookup}");
}
