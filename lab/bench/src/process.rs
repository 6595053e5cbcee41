//! The processes of a measurement: this program again in another role, ended whatever happens.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use centrifuge_harness::process::{announce_ready, command};
use centrifuge_harness::{EtcdNodes, Process};
use centrifuge_server::config::ConfigArgs;
use centrifuge_server::{Manager, stop};
use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use tracing_subscriber::EnvFilter;

use crate::Failure;

/// Starts this program in another role, with lines to it and from it.
pub(crate) fn start(arguments: &[&str]) -> Result<Process, Failure> {
    let mut command = command(std::env::current_exe()?);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    Ok(Process::start(&mut command)?)
}

/// Starts this program in another role as [`start`] does, with whatever processor time others leave.
pub(crate) fn start_behind_others(arguments: &[&str]) -> Result<Process, Failure> {
    let mut command = command("nice");
    command.args(["-n", "19"]).arg(std::env::current_exe()?);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    Ok(Process::start(&mut command)?)
}

/// Gives a process an order.
pub(crate) fn tell(process: &mut Process, order: &impl Serialize) -> Result<(), Failure> {
    Ok(process.tell(&serde_json::to_string(order)?)?)
}

/// Waits for the answer of a process.
pub(crate) async fn hear<A: DeserializeOwned>(process: &mut Process) -> Result<A, Failure> {
    let line = process.next_line().await?;
    serde_json::from_str(&line).map_err(|error| format!("a process said {line:?}: {error}").into())
}

/// Says something to the process that started this one.
pub(crate) fn say(answer: &impl Serialize) {
    println!("{}", serde_json::to_string(answer).unwrap_or_default());
}

/// Starts a Manager on a store, waits until it leads, and returns where it serves gRPC and HTTP.
pub(crate) async fn start_manager(store: &[&str]) -> Result<(Process, String, SocketAddr), Failure> {
    let fixed = ["manager-process", "--grpc-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
    let mut manager = start(&[&fixed, store].concat())?;
    let ready = manager.ready().await?;
    let (grpc, http) = ready.split_once(' ').ok_or("a Manager has two addresses")?;
    Ok((manager, grpc.to_owned(), http.parse()?))
}

#[derive(Args)]
pub(crate) struct ManagerProcessArgs {
    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs a Manager, as `centrifuge manager` does. It logs to its standard output: the last line says why it ended.
pub(crate) async fn run_manager(args: ManagerProcessArgs) -> Result<(), Failure> {
    tracing_subscriber::fmt().with_env_filter(EnvFilter::new("warn")).with_ansi(false).init();
    let config = args.config.resolve()?;
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
pub(crate) async fn start_etcd(
    nodes: usize,
    directory: Option<&Path>,
) -> Result<(EtcdNodes, TempDir), Failure> {
    let folder = directory.map_or_else(tempfile::tempdir, tempfile::tempdir_in)?;
    Ok((EtcdNodes::launch(nodes, folder.path()).await?, folder))
}
