//! A Manager in a process of its own: this test program, started again.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use centrifuge_harness::Process;
use centrifuge_harness::process::{announce_ready, command};
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
        announce_ready(&format!("{} {}", manager.grpc_addr(), manager.http_addr()));
        let parent_is_gone = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
        parent_is_gone.await.expect("read").expect("an end");
        manager.shutdown().await;
    });
}

/// A Manager that ends with the test.
pub(crate) struct ManagerProcess {
    process: Process,
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
}

impl ManagerProcess {
    pub(crate) async fn start(folder: &Path) -> ManagerProcess {
        let log = std::fs::File::create(folder.join("log")).expect("a log");
        let mut command = command(std::env::current_exe().expect("this test"));
        command.args(["--exact", "process::a_manager_for_the_test", "--nocapture"]).env(FOLDER, folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut process = Process::start(&mut command).expect("started");
        let ready = process.ready().await.expect("it says where it serves");
        let (grpc, http) = ready.split_once(' ').expect("two addresses");
        let (grpc, http) = (grpc.parse().expect("an address"), http.parse().expect("an address"));
        ManagerProcess { process, grpc, http }
    }

    /// Bytes of memory that it has.
    pub(crate) fn memory(&self) -> u64 {
        self.process.resident_bytes().expect("it runs")
    }
}
