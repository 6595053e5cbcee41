//! Child processes: the same binary with other arguments, ended by their id whatever happens.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;

use serde_json::Value;
use tokio::sync::mpsc;

use crate::failure::Failure;

/// A child; it is killed when it is dropped.
pub(super) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::UnboundedReceiver<String>,
    /// The latest line, for whoever asks why it ended.
    last: String,
}

/// Which of its outputs is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// What it prints.
    Stdout,
    /// What it logs.
    Stderr,
}

impl Process {
    /// Starts this binary with other arguments, deaf to settings in the environment.
    pub(super) fn start(args: &[String], reads: Reads) -> Result<Process, Failure> {
        let itself = std::env::current_exe()
            .map_err(|error| Failure::failed(format!("cannot find this program: {error}")))?;
        let mut command = Command::new(itself);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CENTRIFUGE_") {
                command.env_remove(name);
            }
        }
        command.args(args).stdin(Stdio::piped());
        match reads {
            Reads::Stdout => command.stdout(Stdio::piped()),
            Reads::Stderr => command.stdout(Stdio::null()).stderr(Stdio::piped()),
        };
        let mut child =
            command.spawn().map_err(|error| Failure::failed(format!("cannot start a process: {error}")))?;
        let stdin = child.stdin.take();
        let lines = match (child.stdout.take(), child.stderr.take()) {
            (Some(output), _) => read(output),
            (None, Some(output)) => read(output),
            (None, None) => mpsc::unbounded_channel().1,
        };
        Ok(Process { child, stdin, lines, last: String::new() })
    }

    /// Its id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Gives it a line.
    pub(super) fn tell(&mut self, line: &str) -> Result<(), Failure> {
        let sent = self.stdin.as_mut().map(|stdin| writeln!(stdin, "{line}").and_then(|()| stdin.flush()));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(self.ended()),
        }
    }

    /// The next line it gives.
    pub(super) async fn next_line(&mut self) -> Result<String, Failure> {
        match self.lines.recv().await {
            Some(line) => {
                self.last.clone_from(&line);
                Ok(line)
            }
            None => Err(self.ended()),
        }
    }

    /// Fails if it has ended by itself.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        while let Ok(line) = self.lines.try_recv() {
            self.last = line;
        }
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            _ => Err(self.ended()),
        }
    }

    fn ended(&self) -> Failure {
        Failure::failed(format!("process {} ended too early: {}", self.id(), self.last))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines on a thread of its own, so that the child never waits for a full pipe.
fn read(output: impl Read + Send + 'static) -> mpsc::UnboundedReceiver<String> {
    let (sender, lines) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // Read on though nobody listens.
            let _ = sender.send(line);
        }
    });
    lines
}

/// The lines of this process's own input: what a child is told.
pub(super) fn orders() -> mpsc::UnboundedReceiver<String> {
    let (sender, lines) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Starts a Manager on a store, and says where it serves gRPC and HTTP.
pub(super) async fn start_manager(store: &[&str]) -> Result<(Process, String, SocketAddr), Failure> {
    let mut manager = Process::start(&manager_arguments(store), Reads::Stderr)?;
    let (grpc, http) = addresses(&mut manager).await?;
    Ok((manager, grpc, http))
}

/// Free ports, which the Manager logs, and nothing else but what is wrong.
fn manager_arguments(store: &[&str]) -> Vec<String> {
    let words = [
        "manager",
        "--grpc-listen",
        "127.0.0.1:0",
        "--http-listen",
        "127.0.0.1:0",
        "--log-format",
        "json",
        "--log-level",
        "warn,centrifuge_server::manager=info",
    ];
    words.iter().chain(store).map(|word| (*word).to_owned()).collect()
}

/// Where the Manager says it listens.
async fn addresses(manager: &mut Process) -> Result<(String, SocketAddr), Failure> {
    loop {
        let line = manager.next_line().await?;
        let fields = serde_json::from_str::<Value>(&line).map(|mut line| line["fields"].take());
        let Ok(fields) = fields else { continue };
        let http = fields["http_addr"].as_str().and_then(|http| http.parse().ok());
        if let (Some(grpc), Some(http)) = (fields["grpc_addr"].as_str(), http) {
            return Ok((grpc.to_owned(), http));
        }
    }
}
