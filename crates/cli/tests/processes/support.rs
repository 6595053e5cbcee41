//! Processes of the binary under test, each ended by its own id.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// How long anything may take on a machine that does much else.
const BOUND: Duration = Duration::from_secs(90);
/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(100);

pub(crate) fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_centrifuge"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CENTRIFUGE_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < BOUND, "not within {BOUND:?}: {what}");
        thread::sleep(LOOK);
    }
}

/// Runs a command to its end.
pub(crate) fn run_to_end(args: &[&str]) -> (ExitStatus, String) {
    let output = binary().args(args).output().expect("it runs");
    (output.status, String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The exit code of a command that fails, and what it says.
pub(crate) fn refusal(command: &mut Command) -> (i32, String) {
    let output = command.output().expect("it runs");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().expect("it was not killed"), message)
}

pub(crate) fn exit_code(args: &[&str]) -> i32 {
    run_to_end(args).0.code().expect("it was not killed")
}

/// A process whose output is collected line by line; it is killed when it is dropped.
pub(crate) struct Running {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let (output, collected) = (child.stdout.take().expect("a pipe"), Arc::clone(&lines));
        let reader = thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                collected.lock().expect("no reader panics").push(line);
            }
        });
        Running { child, lines, reader: Some(reader) }
    }

    /// What it has printed so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("no reader panics").clone()
    }

    pub(crate) fn await_line(&self, part: &str) {
        until(part, || self.lines().iter().any(|line| line.contains(part)));
    }

    /// The process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it without warning.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// How it ends by itself.
    pub(crate) fn ended(mut self) -> ExitStatus {
        self.await_end(BOUND)
    }

    fn await_end(&mut self, bound: Duration) -> ExitStatus {
        let since = Instant::now();
        loop {
            match self.child.try_wait().expect("it can be waited for") {
                Some(status) => return status,
                None => assert!(since.elapsed() < bound, "it does not stop"),
            }
            thread::sleep(LOOK);
        }
    }

    /// Tells it to stop, and waits until it has.
    pub(crate) fn terminate(mut self, bound: Duration) -> (ExitStatus, Vec<String>) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill runs").success());
        let status = self.await_end(bound);
        if let Some(reader) = self.reader.take() {
            reader.join().expect("no reader panics");
        }
        (status, self.lines())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Runs commands against some Managers.
pub(crate) trait Operator {
    /// The Managers, as a command is told.
    fn managers(&self) -> &str;

    fn command(&self, args: &[&str]) -> Command {
        let mut command = binary();
        command.args(args).env("CENTRIFUGE_MANAGERS", self.managers());
        command
    }

    /// Runs a command beside the Managers.
    fn run(&self, args: &[&str]) -> Running {
        Running::start(self.command(args))
    }

    /// What a command prints as JSON.
    fn ask(&self, args: &[&str]) -> Value {
        let output = self.command(args).args(["--output", "json"]).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {error}");
        serde_json::from_str(text.lines().last().unwrap_or_default())
            .unwrap_or_else(|wrong| panic!("{args:?} printed {text:?}: {wrong}"))
    }

    fn exit_code(&self, args: &[&str]) -> i32 {
        self.command(args).output().expect("it runs").status.code().expect("it was not killed")
    }
}

/// A Manager with a store of its own, and whatever else runs beside it.
pub(crate) struct Pool {
    directory: TempDir,
    grpc: String,
    http: String,
    leader_lease: &'static str,
    manager: Option<Running>,
}

impl Pool {
    pub(crate) fn start() -> Pool {
        Pool::with_leader_lease("2s")
    }

    pub(crate) fn with_leader_lease(leader_lease: &'static str) -> Pool {
        let directory = tempfile::tempdir().expect("a directory");
        let (grpc, http) = (free_address(), free_address());
        let mut pool = Pool { directory, grpc, http, leader_lease, manager: None };
        pool.start_manager();
        pool
    }

    /// A path in the pool's own directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Where the Manager is.
    pub(crate) fn address(&self) -> &str {
        &self.grpc
    }

    /// The next Manager listens elsewhere.
    pub(crate) fn move_elsewhere(&mut self) {
        (self.grpc, self.http) = (free_address(), free_address());
    }

    fn manager_command(&self) -> Command {
        let mut command = binary();
        command.current_dir(self.directory.path()).args(["manager"]).args([
            "--leader-lease",
            self.leader_lease,
            "--campaign-interval",
            "500ms",
            "--log-level",
            "warn",
        ]);
        command
    }

    fn listening_on(mut command: Command, grpc: &str, http: &str) -> Command {
        command.args(["--grpc-listen", grpc, "--http-listen", http]);
        command
    }

    /// Starts a Manager on the store and waits until it leads.
    pub(crate) fn start_manager(&mut self) {
        self.manager =
            Some(Running::start(Pool::listening_on(self.manager_command(), &self.grpc, &self.http)));
        until("the Manager leads", || exit_code(&["status", "--managers", &self.grpc]) == 0);
    }

    pub(crate) fn kill_manager(&mut self) {
        self.manager.take().expect("a Manager").kill();
    }

    pub(crate) fn stop_manager(&mut self) -> ExitStatus {
        self.manager.take().expect("a Manager").terminate(BOUND).0
    }

    /// A Manager on the same store, elsewhere.
    pub(crate) fn second_manager(&self) -> Command {
        Pool::listening_on(self.manager_command(), &free_address(), &free_address())
    }
}

impl Operator for Pool {
    fn managers(&self) -> &str {
        &self.grpc
    }
}

/// An address that nobody listens on at the moment.
pub(crate) fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").to_string()
}
