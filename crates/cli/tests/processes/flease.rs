//! Flease peers as processes: a command that runs only while its cell is held.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use centrifuge_harness::ports::{free_addresses, numbered};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Process, TIMEOUT, binary, exit_code, refusal, run_to_end, start, until};

/// Short, and long enough for a machine that does much else.
const TIMES: [&str; 6] = ["--lease", "3s", "--epsilon", "300ms", "--round", "1s"];

/// Some peers, a secret, and their sockets.
struct Peers {
    directory: TempDir,
    peers: String,
}

impl Peers {
    fn new(number: usize) -> Peers {
        let peers = numbered(&free_addresses(number).expect("free ports"));
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("key"), "a secret of these tests\n").expect("written");
        Peers { directory, peers }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, what: &str, peer: u16) -> Command {
        let mut command = binary();
        command.args(["flease", what, "--peers", &self.peers, "--peer-id", &peer.to_string(), "--key-file"]);
        command.arg(self.path("key")).args(TIMES).args(["--output", "json", "--control"]);
        command.arg(self.path(&format!("control-{peer}")));
        command
    }

    fn peer(&self, peer: u16) -> Process {
        start(self.command("peer", peer))
    }

    /// Holds the cell while a script runs.
    fn hold(&self, peer: u16, options: &[&str], script: &str) -> Command {
        let mut command = self.command("hold", peer);
        command.args(options).args(["primary", "--", "sh", "-c", script]).current_dir(self.directory.path());
        command
    }

    /// What a peer says of itself.
    fn status(&self, peer: u16) -> Option<Value> {
        let control = self.path(&format!("control-{peer}"));
        let control = control.to_str().expect("a plain path");
        let (status, text) = run_to_end(&["flease", "status", "--control", control, "--output", "json"]);
        status.success().then(|| serde_json::from_str(&text).expect("JSON"))
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

#[test]
fn a_command_runs_while_its_cell_is_held() {
    let peers = Peers::new(3);
    let (first, second) = (peers.peer(1), peers.peer(2));
    first.await_line("ready");
    second.await_line("ready");

    // It has the epoch, and its exit code is passed on.
    let done =
        peers.hold(3, &[], "echo \"$CENTRIFUGE_CELL $CENTRIFUGE_EPOCH\"; exit 7").output().expect("it runs");
    assert_eq!(done.status.code(), Some(7), "{done:?}");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let epoch = said.trim().strip_prefix("primary ").expect("cell and epoch").to_owned();
    assert_eq!(epoch.len(), 20, "{epoch}");
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(told.contains("\"acquired\"") && told.contains("\"released\""), "{told}");

    // The next process of that peer holds it under a higher epoch; a third peer's wish ends in time.
    let held = start(peers.hold(3, &[], "echo held $CENTRIFUGE_EPOCH; exec sleep 600"));
    held.await_line("held ");
    let next = held.lines()[0].trim_start_matches("held ").to_owned();
    assert!(next > epoch, "{next} follows {epoch}");
    until("peer 1 knows who holds the cell", || {
        peers.status(1).is_some_and(|status| {
            status["cells"].as_array().is_some_and(|cells| {
                cells
                    .iter()
                    .any(|cell| cell["cell"] == "primary" && cell["holder"] == 3 && cell["epoch"] == next)
            })
        })
    });
    let mut watch = binary();
    watch.args(["flease", "watch", "primary", "--output", "json", "--control"]).arg(peers.path("control-1"));
    let watch = start(watch);
    watch.await_line(&next);
    drop(second);
    let waited = peers.hold(2, &["--wait", "9s"], "exit 0").output().expect("it runs");
    assert_eq!(waited.status.code(), Some(121), "{waited:?}");

    // Told to stop, it stops its command and gives the cell back.
    let (status, _) = held.stop(std::time::Duration::from_secs(60)).expect("it stops");
    assert_eq!(status.code(), Some(128 + 15), "the command's own end");
    watch.await_line("\"holder\":null");
}

#[test]
fn a_command_is_stopped_when_its_lease_is_lost() {
    let peers = Peers::new(3);
    let others = [peers.peer(1), peers.peer(2)];
    others.iter().for_each(|peer| peer.await_line("ready"));
    // It tells when it is told to stop, and does not.
    let script = "trap 'echo told >> told' TERM; echo $$ > id; while :; do sleep 0.1; done";
    let held = start(peers.hold(3, &[], script));
    until("the command runs", || !peers.text("id").is_empty());
    let command: u32 = peers.text("id").trim().parse().expect("a number");
    others.iter().for_each(|peer| peer.pause().expect("it stops"));
    let status = held.await_end(TIMEOUT).expect("it ends").0;
    others.iter().for_each(|peer| peer.resume().expect("it goes on"));
    assert_eq!(status.code(), Some(120));
    assert_eq!(peers.text("told"), "told\n", "it was told before it was killed");
    assert!(!PathBuf::from(format!("/proc/{command}")).exists(), "the command is gone");
}

#[test]
fn a_killed_holder_takes_its_command_along_and_another_takes_over() {
    let peers = Peers::new(3);
    let voter = peers.peer(1);
    let first = start(peers.hold(2, &[], "echo $$ > id; echo held $CENTRIFUGE_EPOCH; exec sleep 600"));
    first.await_line("held ");
    let command: u32 = peers.text("id").trim().parse().expect("a number");
    let second = start(peers.hold(3, &[], "echo held $CENTRIFUGE_EPOCH; exec sleep 600"));
    until("the second peer takes part", || peers.status(3).is_some_and(|status| status["ready"] == true));
    let epoch = first.lines()[0].clone();
    first.kill().expect("it ends");
    until("the command is gone", || !PathBuf::from(format!("/proc/{command}")).exists());
    second.await_line("held ");
    assert!(second.lines()[0] > epoch, "{:?} follows {epoch}", second.lines());
    drop((second, voter));
}

#[test]
fn what_is_wrong_is_said_with_a_code() {
    let peers = Peers::new(3);
    let (code, message) =
        refusal(binary().args(["flease", "status", "--control"]).arg(peers.path("nowhere")));
    assert_eq!(code, 3, "{message}");
    assert!(message.contains("nowhere") && message.contains("--control"), "{message}");
    assert_eq!(exit_code(&["flease", "hold", "cell"]), 2);
    let refused = |command: &mut Command| refusal(command);
    let (code, message) = refused(peers.command("peer", 9).args(["--log-level", "warn"]));
    assert!(code == 2 && message.contains("not on the list"), "{code} {message}");
    let (code, message) = refused(&mut peers.hold(1, &["--grace", "2s"], "exit 0"));
    assert!(code == 2 && message.contains("grace"), "{code} {message}");
    fs::write(peers.path("key"), "short").expect("written");
    let (code, message) = refused(&mut peers.command("peer", 1));
    assert!(code == 2 && message.contains("at least 16"), "{code} {message}");
    fs::remove_file(peers.path("key")).expect("removed");
    let (code, message) = refused(&mut peers.command("peer", 1));
    assert!(code == 2 && message.contains("key: cannot be read"), "{code} {message}");
}
