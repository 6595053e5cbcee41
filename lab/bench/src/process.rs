//! The processes of a measurement: this program again in another part, ended whatever happens.
//!
//! The measuring process gives orders to the others, each a line of JSON that is answered by another.

use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use centrifuge_harness::process::{announce_ready, command, input_lines};
use centrifuge_harness::{EtcdNodes, Process};
use centrifuge_server::config::ConfigArgs;
use centrifuge_server::{Manager, stop};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::sync::mpsc::UnboundedReceiver;
use tracing_subscriber::EnvFilter;

use crate::Result;
use crate::flease::{self, PeerPart};
use crate::isolation::{self, HostilePart, QuietPart};
use crate::testbed::{self, ClientsPart};

/// What a process beside the measuring one is, as its one argument.
#[derive(Serialize, Deserialize)]
pub(crate) enum Part {
    FleasePeer(PeerPart),
    Quiet(QuietPart),
    Hostile(HostilePart),
    Clients(ClientsPart),
}

impl Part {
    /// Starts this program in this part, with lines to it and from it.
    pub(crate) fn start(&self) -> Result<Process> {
        self.start_by(command(std::env::current_exe()?))
    }

    /// The same with whatever processor time others leave.
    pub(crate) fn start_behind_others(&self) -> Result<Process> {
        let mut nice = command("nice");
        nice.args(["-n", "19"]).arg(std::env::current_exe()?);
        self.start_by(nice)
    }

    fn start_by(&self, mut command: Command) -> Result<Process> {
        command.args(["play", &serde_json::to_string(self)?]).stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Process::start(&mut command)?)
    }
}

/// Plays a part until its input ends.
pub(crate) async fn play(part: &str) -> Result<()> {
    match serde_json::from_str(part)? {
        Part::FleasePeer(part) => flease::run_peer(part).await,
        Part::Quiet(part) => isolation::run_quiet(part).await,
        Part::Hostile(part) => isolation::run_hostile(part).await,
        Part::Clients(part) => testbed::run_clients(part).await,
    }
}

/// What is sent back: the answer, or why the order cannot be obeyed.
type Reply<A> = Result<A, String>;

/// Gives a process an order, and waits for its answer.
pub(crate) async fn ask<A: DeserializeOwned>(process: &mut Process, order: &impl Serialize) -> Result<A> {
    tell(process, order)?;
    hear(process).await
}

/// Gives each of several an order, by its place, and waits for all answers.
pub(crate) async fn ask_all<O: Serialize, A: DeserializeOwned>(
    processes: &mut [Process],
    order: impl Fn(usize) -> O,
) -> Result<Vec<A>> {
    for (place, process) in processes.iter_mut().enumerate() {
        tell(process, &order(place))?;
    }
    let mut answers = Vec::new();
    for process in processes {
        answers.push(hear(process).await?);
    }
    Ok(answers)
}

fn tell(process: &mut Process, order: &impl Serialize) -> Result<()> {
    Ok(process.tell(&serde_json::to_string(order)?)?)
}

async fn hear<A: DeserializeOwned>(process: &mut Process) -> Result<A> {
    let line = process.next_line().await?;
    let reply: Reply<A> =
        serde_json::from_str(&line).map_err(|error| format!("a process said {line:?}: {error}"))?;
    Ok(reply?)
}

/// The orders that this process is given, each of which it answers.
pub(crate) struct Orders<O> {
    lines: UnboundedReceiver<String>,
    kind: PhantomData<O>,
}

impl<O: DeserializeOwned> Orders<O> {
    pub(crate) fn new() -> Orders<O> {
        Orders { lines: input_lines(), kind: PhantomData }
    }

    /// The next order, if there is another.
    pub(crate) async fn next(&mut self) -> Option<O> {
        loop {
            match serde_json::from_str(&self.lines.recv().await?) {
                Ok(order) => return Some(order),
                Err(error) => self.answer::<()>(Err(format!("not an order: {error}").into())),
            }
        }
    }

    pub(crate) fn answer<A: Serialize>(&self, answer: Result<A>) {
        let reply: Reply<A> = answer.map_err(|why| why.to_string());
        println!("{}", serde_json::to_string(&reply).unwrap_or_default());
    }
}

/// Starts a Manager, waits until it leads, and returns where it serves gRPC and HTTP.
pub(crate) async fn start_manager(arguments: &[String]) -> Result<(Process, String, SocketAddr)> {
    let mut command = command(std::env::current_exe()?);
    let mut manager = Process::start(command.arg("manager-process").args(arguments).stdout(Stdio::piped()))?;
    let ready = manager.ready().await?;
    let (grpc, http) = ready.split_once(' ').ok_or("a Manager has two addresses")?;
    Ok((manager, grpc.to_owned(), http.parse()?))
}

/// Runs a Manager, as `centrifuge manager` does. It logs to its standard output: the last line says why it ended.
pub(crate) async fn run_manager(args: ConfigArgs) -> Result<()> {
    tracing_subscriber::fmt().with_env_filter(EnvFilter::new("warn")).with_ansi(false).init();
    let config = args.resolve()?;
    let store = config.store.clone();
    let manager = Manager::start(config, store).await?;
    manager.leads().await;
    announce_ready(&format!("{} {}", manager.grpc_addr(), manager.http_addr()));
    stop::told_to_stop().await;
    manager.shutdown().await;
    Ok(())
}

/// Starts nodes of etcd with their data in a new folder in `directory`, or in the system's for such files. The nodes
/// go before the folder.
pub(crate) async fn start_etcd(nodes: usize, directory: Option<&Path>) -> Result<(EtcdNodes, TempDir)> {
    let folder = directory.map_or_else(tempfile::tempdir, tempfile::tempdir_in)?;
    Ok((EtcdNodes::launch(nodes, folder.path()).await?, folder))
}
