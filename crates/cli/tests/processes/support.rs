//! Processes of the binary under test, each ended by its own id.

use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use centrifuge_harness::process::command;
use serde_json::Value;
use tempfile::TempDir;

pub(crate) use centrifuge_harness::Process;
pub(crate) use centrifuge_harness::wait::{TIMEOUT, until};

pub(crate) fn binary() -> Command {
    command(env!("CARGO_BIN_EXE_centrifuge"))
}

/// Starts a process whose output is collected line by line.
pub(crate) fn start(mut command: Command) -> Process {
    Process::start(command.stdout(Stdio::piped())).expect("it starts")
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
    fn run(&self, args: &[&str]) -> Process {
        start(self.command(args))
    }

    /// Makes the namespace `dev` with these settings.
    fn create(&self, settings: &str) {
        let words: Vec<&str> =
            ["namespace", "create", "dev"].into_iter().chain(settings.split(' ')).collect();
        self.ask(&words);
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
    manager: Option<Process>,
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
        self.manager = Some(start(Pool::listening_on(self.manager_command(), &self.grpc, &self.http)));
        until("the Manager leads", || exit_code(&["status", "--managers", &self.grpc]) == 0);
    }

    pub(crate) fn kill_manager(&mut self) {
        self.manager.take().expect("a Manager").kill().expect("it ends");
    }

    pub(crate) fn stop_manager(&mut self) -> ExitStatus {
        self.manager.take().expect("a Manager").stop(TIMEOUT).expect("it stops").0
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

/// An address that nobody listens on.
pub(crate) fn free_address() -> String {
    centrifuge_harness::ports::free_address().expect("a free port").to_string()
}
