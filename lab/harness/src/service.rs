//! A process that serves: started, waited for until it says where, and looked after by its name.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::process::{Process, command};
use crate::signals;
use crate::wait::TIMEOUT;

/// How services are started.
#[derive(Clone, Debug)]
pub enum Program {
    /// A program, and the words before what each is told.
    One(PathBuf, Vec<String>),
    /// The programs in a directory: the first word of what each is told is the name of one.
    In(PathBuf),
}

impl Program {
    /// A program whose first word names the role.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Program {
        Program::One(path.into(), Vec::new())
    }

    /// This very program, which plays a role when it is started with this word before it.
    pub fn this(word: &str) -> io::Result<Program> {
        Ok(Program::One(std::env::current_exe()?, vec![word.to_owned()]))
    }

    /// This program and those beside it.
    #[must_use]
    pub fn beside(path: &str) -> Program {
        Program::In(Path::new(path).parent().unwrap_or(Path::new(".")).to_owned())
    }

    /// The command with these arguments.
    #[must_use]
    pub fn command<S: AsRef<str>>(&self, arguments: &[S]) -> Command {
        let mut arguments = arguments.iter().map(AsRef::as_ref);
        let mut command = match self {
            Program::One(path, words) => {
                let mut command = command(path);
                command.args(words);
                command
            }
            Program::In(directory) => command(directory.join(arguments.next().unwrap_or_default())),
        };
        command.args(arguments);
        command
    }
}

/// A running service. It is killed when it is dropped.
#[derive(Debug)]
pub struct Service {
    name: String,
    address: String,
    log: PathBuf,
    process: Process,
}

impl Service {
    /// Starts a service and waits until it serves. It is told which process started it, to end with that by
    /// `signals::end_with`. What it prints on its standard error goes to a file in `logs`.
    pub async fn start(mut command: Command, name: &str, logs: &Path) -> io::Result<Service> {
        let log = logs.join(format!("{name}.log"));
        let errors = File::options().create(true).append(true).open(&log)?;
        command.args(["--parent", &std::process::id().to_string()]);
        let process = Process::start(command.stdout(Stdio::piped()).stderr(errors))?;
        let mut service = Service { name: name.to_owned(), address: String::new(), log, process };
        match service.process.ready().await {
            // A name may stand before the address.
            Ok(said) => service.address = said.rsplit(' ').next().unwrap_or_default().to_owned(),
            Err(error) => {
                let stderr = service.stderr();
                return Err(io::Error::other(format!("{name} did not start: {error}: {stderr}")));
            }
        }
        Ok(service)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it serves.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What it printed on its standard error.
    #[must_use]
    pub fn stderr(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// `kill -9`.
    pub async fn kill(self) -> io::Result<()> {
        tokio::task::spawn_blocking(move || self.process.kill()).await?
    }

    /// Stops it where it is, as a long pause of its machine would, and waits until that has taken effect.
    pub async fn pause(&self) -> io::Result<()> {
        let process = self.process.id();
        tokio::task::spawn_blocking(move || signals::pause(process)).await?
    }

    /// It goes on after a pause.
    pub fn resume(&self) -> io::Result<()> {
        self.process.resume()
    }

    /// Tells it to stop, and waits until it has: a server moves its state away first.
    pub async fn stop(self) -> io::Result<ExitStatus> {
        let Service { name, process, .. } = self;
        let stopped = process.stop_and_wait(TIMEOUT).await;
        stopped.map_err(|error| io::Error::other(format!("{name}: {error}")))
    }
}
