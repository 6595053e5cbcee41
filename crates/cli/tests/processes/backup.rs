//! Backups of a Manager that runs, and what comes of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::sight::{is_at_rest, leases};
use crate::support::{
    Operator, Pool, Process, binary, exit_code, free_address, refusal, run_to_end, start, until,
};

/// Leases that outlast the test on a slow machine.
const LONG: &str = "--lease 60s --hold 70s --renewal 1s --settle 500ms --virtual-nodes 16";

/// A Manager on a store that was restored.
struct Restored {
    address: String,
    _manager: Process,
}

impl Restored {
    fn start(store: &str) -> Restored {
        let (address, http) = (free_address(), free_address());
        let mut command = binary();
        command.args(["manager", "--store", store, "--grpc-listen", &address, "--http-listen", &http]);
        let manager = start(command);
        until("the Manager leads", || exit_code(&["status", "--managers", &address]) == 0);
        Restored { address, _manager: manager }
    }
}

impl Operator for Restored {
    fn managers(&self) -> &str {
        &self.address
    }
}

fn last_generation(at: &impl Operator) -> u64 {
    at.ask(&["namespace", "show", "dev"])["last_generation"].as_u64().expect("a number")
}

#[test]
fn a_running_manager_is_backed_up_under_load_and_restored_elsewhere() {
    let pool = Pool::start();
    pool.create(LONG);
    let servers = ["server-1", "server-2"].map(|name| pool.run(&["dev", "server", "--name", name]));
    until("two servers share the keys", || is_at_rest(&pool, 2));
    let before = leases(&pool);
    let generation = last_generation(&pool);

    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, address) = (Arc::clone(&stop), pool.address().to_owned());
    let load = thread::spawn(move || {
        let mut created = 0;
        while !stopped.load(Ordering::Relaxed) {
            created += 1;
            let name = format!("load-{created}");
            let (status, _) = run_to_end(&["namespace", "create", &name, "--managers", &address]);
            assert!(status.success(), "commits go on beside a backup");
        }
        created
    });
    let mut last = 0;
    for number in 0..5 {
        let file = pool.path(&format!("backup-{number}"));
        let file = file.to_str().expect("a plain path");
        let made = pool.ask(&["store", "backup", "--managers", pool.address(), file]);
        let index = made["index"].as_u64().expect("an index");
        assert!(index >= last && made["namespaces"].as_u64() >= Some(1), "{made}");
        last = index;
    }
    stop.store(true, Ordering::Relaxed);
    println!("{} namespaces were created meanwhile", load.join().expect("no panic"));
    assert_eq!(leases(&pool), before, "the servers kept their leases");

    let file = pool.path("backup-4");
    let file = file.to_str().expect("a plain path");
    let (code, message) = refusal(pool.command(&["store", "backup", "--managers", pool.address()]).arg(file));
    assert!(code == 1 && message.contains("never overwritten"), "{message}");
    // Its file alone cannot be read beside it, and the refusal says how else.
    let store = pool.path("centrifuge.db");
    let other = pool.path("other");
    let mut command = pool.command(&["store", "backup", "--store"]);
    let (code, message) = refusal(command.arg(&store).arg(&other));
    assert!(code == 1 && message.contains("store backup --managers"), "{message}");

    let restored = pool.path("restored.db");
    let restored = restored.to_str().expect("a plain path");
    let (status, _) = run_to_end(&["store", "restore", file, "--store", restored, "--leases-have-ended"]);
    assert!(status.success());
    let elsewhere = Restored::start(restored);
    assert_eq!(leases(&elsewhere), before, "the table is the same");
    assert!(last_generation(&elsewhere) > generation, "no generation comes again");
    drop(servers);
}
