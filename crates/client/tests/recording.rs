//! What a real Owner, a real Lookup and a real Manager record of themselves can be replayed.

mod support;

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use centrifuge::lookup::ConnectError;
use centrifuge::owner::JoinError;
use centrifuge::{Key, Lookup, Managers, Owner};
use centrifuge_core::recording::MachineKind;
use centrifuge_harness::wait::{TIMEOUT, within};
use centrifuge_sim::replay::{Outcome, replay};

use support::POOL;

fn replayed(file: &Path) -> Outcome {
    let file = File::open(file).expect("a recording");
    replay(BufReader::new(file)).expect("a whole recording")
}

#[tokio::test]
async fn owner_lookup_and_manager_replay() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = support::start(folder.path(), Some(folder.path().join("manager.jsonl"))).await;
    let managers = Managers::list([manager.grpc_addr().to_string()]).expect("an address");
    let lookup = Lookup::builder(managers.clone(), POOL).record(folder.path().join("lookup.jsonl"));
    let lookup = within(lookup.connect()).await.expect("connected");
    let (mut seen, key) = (lookup.position(), Key::of(b"room-7"));
    let mut owners = Vec::new();
    for name in ["first", "second"] {
        let file = folder.path().join(format!("{name}.jsonl"));
        let owner = Owner::builder(managers.clone(), POOL).name(name).url(name).record(file);
        owners.push(within(owner.join()).await.expect("joined"));
        // The first has everything before the second comes: grants, recalls and changes of the table are in the recordings.
        while owners.iter().any(|owner| owner.leases().is_empty()) || lookup.lookup(key).is_err() {
            seen = within(lookup.changed_since(seen)).await;
        }
    }
    for owner in owners {
        within(owner.leave(TIMEOUT)).await.expect("confirmed");
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
