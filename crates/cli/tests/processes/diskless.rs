//! Managers that have no store, as processes.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use centrifuge_harness::ports::free_addresses;
use tempfile::TempDir;

use crate::sight::{is_at_rest, leases, losses};
use crate::support::{Operator, Process, binary, refusal, start, until};

/// What all three are told in their files: short leases, and times for a machine that does much else.
const SHARED: &str = "\
store = 'none'
election = 'flease'
log_level = 'warn'
[namespaces.dev]
lease = '12s'
hold = '13s'
renewal = '1s'
answer_allowance = '2s'
settle = '500ms'
heartbeat = '500ms'
load_policy = 'off'
";

/// Three Managers that know each other.
struct Three {
    directory: TempDir,
    managers: String,
    running: Vec<(String, Option<Process>)>,
}

impl Three {
    fn start() -> Three {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("key"), "a secret of these tests\n").expect("written");
        fs::write(directory.path().join("manager.toml"), SHARED).expect("written");
        let addresses = free_addresses(3).expect("free ports");
        let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        let managers = addresses.join(",");
        let running = addresses.into_iter().map(|address| (address, None)).collect();
        let mut three = Three { directory, managers, running };
        (0..3).for_each(|place| three.start_one(place));
        until("one of them leads", || three.exit_code(&["status"]) == 0);
        three
    }

    fn key(&self) -> PathBuf {
        self.directory.path().join("key")
    }

    fn command(&self, place: usize) -> Command {
        let peers: Vec<String> =
            (1..).zip(&self.running).map(|(peer, (address, _))| format!("{peer}={address}")).collect();
        let mut command = binary();
        command.args(["manager", "--http-listen", "127.0.0.1:0", "--peers", &peers.join(",")]);
        command.args(["--peer-id", &(place + 1).to_string(), "--flease-lease", "4s", "--peer-key-file"]);
        command.arg(self.key()).arg("--config").arg(self.directory.path().join("manager.toml"));
        command
    }

    fn start_one(&mut self, place: usize) {
        let started = start(self.command(place));
        self.running[place].1 = Some(started);
    }

    /// The place of the one that leads.
    fn leader(&self) -> usize {
        let mut leads = None;
        until("one of them leads", || {
            let (_, status) = self.status();
            leads = status.iter().position(|role| role == "leader");
            leads.is_some()
        });
        leads.expect("it was waited for")
    }

    /// What each says of its store, and what each is.
    fn status(&self) -> (Vec<String>, Vec<String>) {
        let output = Operator::command(self, &["status", "--output", "json"]).output().expect("it runs");
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let managers = status["managers"].as_array().expect("Managers").iter();
        let of =
            |manager: &serde_json::Value, field: &str| manager[field].as_str().unwrap_or_default().to_owned();
        let said = managers.map(|manager| {
            (format!("{}/{}", of(manager, "store"), of(manager, "election")), of(manager, "role"))
        });
        said.unzip()
    }

    fn take(&mut self, place: usize) -> Process {
        self.running[place].1.take().expect("it runs")
    }
}

impl Operator for Three {
    fn managers(&self) -> &str {
        &self.managers
    }
}

#[test]
fn three_managers_without_disk() {
    let mut three = Three::start();
    let first = three.leader();
    let (stores, roles) = three.status();
    assert_eq!(stores, ["none/flease"; 3]);
    assert_eq!(roles.iter().filter(|role| *role == "standby").count(), 2, "{roles:?}");
    let mut create = Operator::command(&three, &["namespace", "create", "leaderboard"]);
    let (code, message) = refusal(&mut create);
    assert!(code == 1 && message.contains("[namespaces.leaderboard]"), "{code}: {message}");
    let servers: Vec<Process> = ["server-1", "server-2"]
        .iter()
        .map(|name| three.run(&["dev", "server", "--name", name, "--output", "json"]))
        .collect();
    servers.iter().for_each(|server| server.await_line("serving"));
    until("two servers share the keys", || is_at_rest(&three, 2));
    let watch = three.run(&["watch", "dev", "--output", "json"]);
    watch.await_line("change");
    let before = leases(&three);

    // The leader dies, and another one that it told nothing goes on as if nothing had happened.
    three.take(first).kill().expect("it ends");
    let second = three.leader();
    assert_ne!(second, first);
    until("the new leader knows all leases", || is_at_rest(&three, 2));
    assert_eq!(leases(&three), before, "no lease has another number");
    let history = three.ask(&["history", "dev"]);
    let decisions = history["decisions"].as_array().expect("decisions");
    assert!(decisions.iter().any(|decision| decision["kind"] == "claimed"), "{history}");

    // The dead one comes back, and the leader is told to stop.
    three.start_one(first);
    until("three run", || three.status().1.iter().all(|role| role == "leader" || role == "standby"));
    let (status, _) = three.take(second).stop(Duration::from_secs(60)).expect("it stops");
    assert!(status.success());
    assert_ne!(three.leader(), second);
    until("the third leader knows all leases", || is_at_rest(&three, 2));
    assert_eq!(leases(&three), before, "no lease has another number");
    assert_eq!(losses(&watch), 0, "nothing was lost: {:?}", watch.lines());
}

#[test]
fn what_needs_a_store_is_refused_in_clear_words() {
    let directory = tempfile::tempdir().expect("a directory");
    let backup = directory.path().join("backup");
    let mut command = binary();
    command.args(["store", "backup", "--store", "none"]).arg(backup);
    let (code, message) = refusal(&mut command);
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("there is no store"), "{message}");
    let mut command = binary();
    command.args(["manager", "--store", "none", "--namespace", "dev"]);
    let (code, message) = refusal(&mut command);
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("peers") && message.contains("1=10.0.0.1:7600"), "{message}");
}
