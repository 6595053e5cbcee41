//! A Manager in a process of its own: this test program, started again.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use centrifuge_server::Manager;
use centrifuge_server::store::Backend;

use crate::support::config;

/// Names the folder of the child's store.
const FOLDER: &str = "CENTRIFUGE_TEST_FOLDER";

/// Not a test: the Manager that a test starts. It runs until its standard input ends.
#[test]
fn a_manager_for_the_test() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let store = Backend::File(Path::new(&folder).join("centrifuge.db"));
        let manager = Manager::start(config(), store).await.expect("it starts");
        manager.leads().await;
        println!("at {} {}", manager.grpc_addr(), manager.http_addr());
        let parent_is_gone = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
        parent_is_gone.await.expect("read").expect("an end");
        manager.shutdown().await;
    });
}

/// A Manager that ends with the test.
pub(crate) struct Process {
    child: Child,
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
}

impl Process {
    pub(crate) fn start(folder: &Path) -> Process {
        let log = std::fs::File::create(folder.join("log")).expect("a log");
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "process::a_manager_for_the_test", "--nocapture"])
            .env(FOLDER, folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("started");
        let out = BufReader::new(child.stdout.take().expect("its output"));
        let mut lines = out.lines().map(|line| line.expect("a line"));
        let line = lines.find_map(|line| line.split_once("at ").map(|(_, at)| at.to_owned()));
        let line = line.expect("it says where it serves");
        let (grpc, http) = line.split_once(' ').expect("two addresses");
        Process { child, grpc: grpc.parse().expect("an address"), http: http.parse().expect("an address") }
    }

    /// Bytes of memory that it has.
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
