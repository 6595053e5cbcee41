//! Work that takes long for one poll: the machine, and messages about many leases. It must not keep a thread that serves others.

use std::future::Future;
use std::num::NonZero;
use std::{env, io, thread};

use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::sync::oneshot;
use tokio::task::{self, JoinHandle};

/// A message about more leases than this is converted apart from the thread's other tasks. It takes some 100 us.
pub(crate) const MANY: usize = 1_000;

/// How many threads serve connections at least. One that decodes a large message does nothing else for some milliseconds;
/// where there are as many threads as a small machine has cores, others would wait for it.
const MIN_WORKERS: usize = 4;

/// The runtime for a Manager. `TOKIO_WORKER_THREADS` overrides how many threads it has.
pub fn runtime() -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if env::var_os("TOKIO_WORKER_THREADS").is_none() {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        builder.worker_threads(cores.max(MIN_WORKERS));
    }
    builder.enable_all().build()
}

/// Does something for a message about so many leases; what else waits for this thread goes on elsewhere meanwhile.
pub(crate) fn apart_if_many<T>(leases: usize, work: impl FnOnce() -> T) -> T {
    if leases > MANY && has_threads() { task::block_in_place(work) } else { work() }
}

/// Runs a future on a thread of its own, beside those that serve connections: the system divides the processors fairly among
/// them, and no connection's work comes first. Aborting the task drops the future.
pub(crate) fn on_its_own_thread(future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    if !has_threads() {
        return tokio::spawn(future);
    }
    let (alive, gone) = oneshot::channel::<()>();
    let (done, ended) = oneshot::channel::<()>();
    let runtime = Handle::current();
    let run = move || {
        runtime.block_on(async {
            tokio::select! {
                () = future => {}
                _ = gone => {}
            }
        });
        // Nobody may wait for it.
        let _ = done.send(());
    };
    match thread::Builder::new().name("centrifuge-manager".to_owned()).spawn(run) {
        Ok(_) => tokio::spawn(async move {
            // An error means that the thread panicked: the task ends as if it had.
            let ended = ended.await;
            drop(alive);
            assert!(ended.is_ok(), "the Manager's thread panicked");
        }),
        Err(error) => panic!("the system starts no thread for the Manager: {error}"),
    }
}

fn has_threads() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread
}
