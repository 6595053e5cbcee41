//! Managers as processes on every store, which are this program again: each is restarted, and one leads afterwards.

use std::error::Error;

use centrifuge_harness::managers::{Failure, until};
use centrifuge_harness::process::announce_ready;
use centrifuge_harness::signals::end_with;
use centrifuge_harness::{ManagerProcesses, Program, StoreKind};
use centrifuge_net::proto::v1;
use centrifuge_server::Manager;
use centrifuge_server::config::ConfigArgs;
use centrifuge_server::stop::told_to_stop;
use clap::Parser;

const POOL: &str = "rooms";

/// What a Manager is told.
#[derive(Parser)]
struct Told {
    #[command(flatten)]
    config: ConfigArgs,
    #[arg(long)]
    parent: u32,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("manager") {
        return run(Told::parse_from(["manager".to_owned()].into_iter().chain(arguments))).await;
    }
    for store in [StoreKind::File, StoreKind::Etcd, StoreKind::None] {
        each_is_restarted(store).await?;
        println!("test {store:?} ... ok");
    }
    Ok(())
}

async fn run(told: Told) -> Result<(), Failure> {
    end_with(told.parent)?;
    let config = told.config.resolve()?;
    let store = config.store.clone();
    let manager = Manager::start(config, store).await?;
    let _ = manager.view().roles().wait_for(|role| role.is_ready()).await;
    announce_ready(&manager.grpc_addr().to_string());
    told_to_stop().await;
    manager.shutdown().await;
    Ok(())
}

async fn each_is_restarted(store: StoreKind) -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let program = Program::new(std::env::current_exe()?);
    let settings = v1::Settings { lease_ms: Some(6_000), hold_ms: Some(6_600), ..short_times() };
    let managers = ManagerProcesses::start(&program, store, &[POOL], &settings, directory.path()).await?;
    if store != StoreKind::None {
        let request =
            v1::CreateNamespaceRequest { namespace: POOL.to_owned(), settings: Some(settings), kind: None };
        managers.ask("create", async |mut admin| admin.create_namespace(request.clone()).await).await?;
    }
    // Without a store a restart waits until every range has an owner again, and here nobody owns any.
    let restarted = if store == StoreKind::None { 0 } else { managers.count() };
    for number in 0..restarted {
        managers.restart(number).await?;
    }
    until("the pool is known", async || {
        let request = v1::ListNamespacesRequest { namespace: None };
        let list =
            managers.ask("list", async |mut admin| admin.list_namespaces(request.clone()).await).await?;
        Ok(list.namespaces.iter().any(|known| known.name == POOL))
    })
    .await
}

fn short_times() -> v1::Settings {
    v1::Settings { renewal_ms: Some(500), answer_allowance_ms: Some(1_000), ..v1::Settings::default() }
}
