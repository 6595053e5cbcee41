//! Where a run takes place: a directory for what it writes, and network namespaces where the machine allows them.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use centrifuge_harness::Process;
use centrifuge_harness::signals::end_with;
use centrifuge_harness::wait::POLL_INTERVAL;
use centrifuge_server::stop::told_to_stop;
use serde_json::Value;
use tempfile::TempDir;

use crate::plan::NetworkKind;
use crate::pool::namespaces::Namespaces;
use crate::run::PlaceArgs;

/// How long the inner process may take to end when it is told to.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// A run happens here, or has happened in a process inside namespaces.
enum Place {
    Here(RunEnvironment),
    Done(bool),
}

/// The place of a run.
pub(crate) struct RunEnvironment {
    pub(crate) is_loopback: bool,
    /// Names the run among those of this machine: the process that cleans up after it.
    pub(crate) id: u32,
    directory: PathBuf,
    temporary: Option<TempDir>,
}

impl RunEnvironment {
    /// Finds a place. If that is inside namespaces, runs this very command there and cleans up after it.
    fn find(args: &PlaceArgs) -> io::Result<Place> {
        let id = std::process::id();
        if let Some(outer) = args.inside {
            end_with(outer)?;
            return Ok(Place::Here(RunEnvironment::new(args, false, outer)?));
        }
        let inside = match args.network {
            NetworkKind::Loopback => false,
            NetworkKind::Namespaces => true,
            NetworkKind::Auto => Namespaces::are_allowed(id),
        };
        if !inside {
            return Ok(Place::Here(RunEnvironment::new(args, true, id)?));
        }
        let namespaces = Namespaces::new(id)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let is_good = runtime.block_on(run_inside(&namespaces, id))?;
        Ok(Place::Done(is_good))
    }

    fn new(args: &PlaceArgs, is_loopback: bool, id: u32) -> io::Result<RunEnvironment> {
        if let Some(directory) = &args.keep {
            std::fs::create_dir_all(directory)?;
            if std::fs::read_dir(directory)?.next().is_some() {
                let words = format!("{} is not empty: name a new directory", directory.display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, words));
            }
            let directory = directory.canonicalize()?;
            return Ok(RunEnvironment { is_loopback, id, directory, temporary: None });
        }
        let temporary = tempfile::Builder::new().prefix("centrifuge-chaos-").tempdir()?;
        let directory = temporary.path().to_owned();
        Ok(RunEnvironment { is_loopback, id, directory, temporary: Some(temporary) })
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Removes what nobody needs, and says where the rest is.
    fn close(self, is_good: bool) -> Option<PathBuf> {
        match self.temporary {
            Some(temporary) if !is_good => Some(temporary.keep()),
            Some(_) => None,
            None => Some(self.directory),
        }
    }
}

/// What came out of a run.
pub(crate) struct Outcome {
    pub(crate) is_good: bool,
    pub(crate) json: Value,
    pub(crate) words: String,
}

/// Performs a run where it takes place, prints what came out, and says whether that is good.
pub(crate) fn conduct(
    args: &PlaceArgs,
    perform: impl AsyncFnOnce(&RunEnvironment) -> Result<Outcome, Box<dyn Error>>,
) -> Result<bool, Box<dyn Error>> {
    let environment = match RunEnvironment::find(args)? {
        Place::Here(environment) => environment,
        Place::Done(is_good) => return Ok(is_good),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(perform(&environment));
    let kept = environment.close(outcome.as_ref().is_ok_and(|outcome| outcome.is_good));
    let place = kept.as_ref().map(|kept| format!("journals and logs: {}", kept.display()));
    let mut outcome = match (outcome, place.as_ref()) {
        (Err(error), Some(place)) => return Err(format!("{error}; {place}").into()),
        (outcome, _) => outcome?,
    };
    if let Some(kept) = kept.filter(|_| args.json) {
        outcome.json["kept"] = serde_json::json!(kept);
    }
    match place {
        _ if args.json => println!("{}", outcome.json),
        Some(place) => println!("{}{place}", outcome.words),
        None => print!("{}", outcome.words),
    }
    Ok(outcome.is_good)
}

/// Runs this command again, inside. Ends it when told to, and in any case with this process.
async fn run_inside(namespaces: &Namespaces, id: u32) -> io::Result<bool> {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &namespaces.hub()]).arg(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).args(["--inside", &id.to_string()]);
    let mut inner = Process::start(&mut command)?;
    tokio::select! {
        is_good = ended(&mut inner) => return is_good,
        () = told_to_stop() => {}
    }
    // One that does not end in time is killed when it is dropped.
    Ok(inner.stop_and_wait(END_TIMEOUT).await.is_ok_and(|status| status.success()))
}

async fn ended(inner: &mut Process) -> io::Result<bool> {
    loop {
        if let Some(status) = inner.ended()? {
            return Ok(status.success());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
