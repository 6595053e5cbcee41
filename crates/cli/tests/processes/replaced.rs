//! A group of Managers on etcd that is replaced by another, one Manager after the other, under load.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use centrifuge_harness::EtcdNodes;
use serde_json::Value;
use tempfile::TempDir;

use crate::sight::{are_served, has_heard, is_at_rest, leases, losses, of};
use crate::support::{Operator, Process, binary, free_address, start, until};

/// How long a Manager may take to resign and end.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Leases that outlast a takeover on a slow machine. No range moves before a hold has passed after the last one.
const LEASES: &str =
    "--lease 20s --hold 22s --renewal 1s --answer-allowance 2s --settle 500ms --virtual-nodes 16";

/// Managers on one etcd, in a file that clients follow.
struct Group {
    managers: Vec<(String, Process)>,
    etcd: EtcdNodes,
    directory: TempDir,
    /// The file, as a command is told.
    listed: String,
}

impl Operator for Group {
    fn managers(&self) -> &str {
        &self.listed
    }
}

impl Group {
    /// Three of them.
    fn start() -> Group {
        let directory = tempfile::tempdir().expect("a directory");
        let etcd = EtcdNodes::start(3, directory.path()).expect("an etcd");
        let listed = format!("@{}", directory.path().join("managers").display());
        let mut group = Group { managers: Vec::new(), etcd, directory, listed };
        for _ in 0..3 {
            group.add();
        }
        group
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("managers")
    }

    fn addresses(&self) -> Vec<String> {
        self.managers.iter().map(|(address, _)| address.clone()).collect()
    }

    fn write_file(&self) {
        // In one step, as it should be done: nobody reads half a file.
        let draft = self.file().with_extension("draft");
        fs::write(&draft, self.addresses().join("\n")).expect("written");
        fs::rename(draft, self.file()).expect("renamed");
    }

    /// Starts one more and waits until it leads, or knows who does.
    fn add(&mut self) {
        let address = free_address();
        let mut command = binary();
        command
            .args(["manager", "--store", "etcd", "--etcd-endpoints", &self.etcd.endpoints().join(",")])
            .args(["--grpc-listen", &address, "--http-listen", &free_address(), "--log-level", "warn"]);
        self.managers.push((address, start(command)));
        self.write_file();
        until("the group is whole", || self.is_whole());
    }

    /// Takes the oldest from the file, tells it to stop, and waits until it has ended and another leads.
    fn remove_oldest(&mut self) {
        let (address, manager) = self.managers.remove(0);
        self.write_file();
        let (status, _) = manager.stop(STOP_TIMEOUT).expect("it stops");
        assert!(status.success(), "{address} ended with {status}");
        until("the group is whole", || self.is_whole());
    }

    /// Whether these Managers and no others run, one of them leads, and the others know which.
    fn is_whole(&self) -> bool {
        let output = self.command(&["status", "--output", "json"]).output().expect("it runs");
        let Ok(status) = serde_json::from_slice::<Value>(&output.stdout) else { return false };
        let Some(managers) = status["managers"].as_array() else { return false };
        let all = |part: &str| -> Vec<&str> {
            managers.iter().map(|manager| manager[part].as_str().unwrap_or_default()).collect()
        };
        let (names, leaders, roles) = (all("manager"), all("leader"), all("role"));
        let mut expected = self.addresses();
        expected.sort();
        let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        names.sort();
        let leading = roles.iter().filter(|role| **role == "leader").count();
        let standing_by = roles.iter().filter(|role| **role == "standby").count();
        let one_leader = leaders.iter().all(|leader| *leader == leaders[0] && !leader.is_empty());
        names == expected && (leading, standing_by) == (1, expected.len() - 1) && one_leader
    }
}

#[test]
fn a_group_is_replaced_one_by_one_and_nobody_notices() {
    let mut group = Group::start();
    let old = group.addresses();
    group.create(LEASES);
    let start =
        |group: &Group, kind: &str, name: &str| group.run(&["dev", kind, "--name", name, "--output", "json"]);
    let mut servers: Vec<Process> =
        ["server-1", "server-2", "server-3"].iter().map(|name| start(&group, "server", name)).collect();
    servers.iter().for_each(|server| server.await_line("serving"));
    until("three servers share the keys", || is_at_rest(&group, 3));
    let watch = group.run(&["watch", "dev", "--output", "json"]);
    watch.await_line("change");
    let callers = ["caller-1", "caller-2"].map(|name| start(&group, "caller", name));
    until("requests are served", || are_served(&group));
    let before = leases(&group);

    for _ in 0..3 {
        group.add();
        group.remove_oldest();
        until("the leader has heard from all servers", || has_heard(&group, 3));
    }
    assert!(group.addresses().iter().all(|new| !old.contains(new)), "only new ones are left");
    assert_eq!(leases(&group), before, "no lease was lost and none has another number");

    // Whoever does not follow the file sees nothing of this.
    let changes = watch.lines().len();
    servers.push(start(&group, "server", "server-4"));
    until("a fourth server gets its share", || {
        of(&leases(&group), "server-4").count() > 0 && is_at_rest(&group, 4)
    });
    until("the watch has found the new group", || watch.lines().len() > changes);
    assert_eq!(losses(&watch), 0, "{:?}", watch.lines());
    for caller in callers {
        let (status, lines) = caller.stop(STOP_TIMEOUT).expect("it stops");
        let summary: Value = serde_json::from_str(lines.last().expect("a summary")).expect("JSON");
        assert!(status.success(), "{summary}");
        for count in ["losses", "violations", "failed"] {
            assert_eq!(summary[count], 0, "{summary}");
        }
        assert!(summary["requests"].as_u64().is_some_and(|requests| requests > 50), "{summary}");
    }
}
