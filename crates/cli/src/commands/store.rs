//! `centrifuge store`.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use centrifuge::Managers;
use centrifuge_core::id::Generation;
use centrifuge_net::dial::Channel;
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::admin_client::AdminClient;
use centrifuge_server::config::{EtcdArgs, named_store};
use centrifuge_server::store::backup::{RestoreOptions, backup, migrate, restore, write_received};
use centrifuge_server::store::{Backend, StoreError};
use clap::{Args, Subcommand};
use serde_json::json;
use tonic::{Response, Status};

use crate::admin::Admin;
use crate::context::TlsArgs;
use crate::failure::Failure;
use crate::output::Format;
use crate::words::{self, count};

/// How long a backup of a running Manager may take.
const BACKUP: Duration = Duration::from_secs(600);

/// Above it there must be room for every lease that is ever granted.
const HIGHEST_FLOOR: u64 = 1 << 63;

#[derive(Subcommand)]
pub(crate) enum StoreCommand {
    /// Back up a store into one file: from a running Manager with --managers, from etcd at any time, or from a file that no
    /// Manager is using
    Backup(BackupArgs),
    /// Create a new store from a backup; lease numbers are never reused
    Restore(RestoreArgs),
    /// Copy a store into a new store of the same kind or another kind
    Migrate(MigrateArgs),
}

#[derive(Args)]
pub(crate) struct BackupArgs {
    /// The store: file:PATH or etcd
    #[arg(long, default_value = "file:centrifuge.db")]
    store: PathBuf,
    /// Ask the leader among these running Managers for a backup of its store: host:port, separated by commas, or @FILE
    #[arg(long, value_parser = words::managers, conflicts_with = "store")]
    managers: Option<Managers>,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    etcd: EtcdArgs,
    /// The backup to write; it must not exist
    backup: PathBuf,
    #[command(flatten)]
    format: Format,
}

#[derive(Args)]
pub(crate) struct RestoreArgs {
    /// The backup to read
    backup: PathBuf,
    /// The store to create: file:PATH or etcd; it must not exist
    #[arg(long, default_value = "file:centrifuge.db")]
    store: PathBuf,
    #[command(flatten)]
    etcd: EtcdArgs,
    /// Grant only generations above this one [default: the backup's last + 2^32]
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=HIGHEST_FLOOR))]
    generation_floor: Option<u64>,
    /// Skip the wait for old leases, because no Manager has run for longer than the longest hold
    #[arg(long)]
    leases_have_ended: bool,
    #[command(flatten)]
    format: Format,
}

#[derive(Args)]
pub(crate) struct MigrateArgs {
    /// The store to read: file:PATH or etcd. It must not be used afterwards
    #[arg(long)]
    from: PathBuf,
    /// The store to create: file:PATH or etcd; it must not exist. For another prefix of the same etcd: etcd:PREFIX
    #[arg(long)]
    to: PathBuf,
    #[command(flatten)]
    etcd: EtcdArgs,
    #[command(flatten)]
    format: Format,
}

fn store(setting: &'static str, name: &Path, etcd: &EtcdArgs) -> Result<Backend, Failure> {
    named_store(setting, name, etcd).map_err(|error| Failure::usage(error.to_string()))
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::failed(error.to_string())
    }
}

pub(crate) async fn run(command: StoreCommand) -> Result<(), Failure> {
    match command {
        StoreCommand::Backup(args) => run_backup(&args).await,
        StoreCommand::Restore(args) => run_restore(&args),
        StoreCommand::Migrate(args) => run_migrate(&args),
    }
}

/// The parts of a backup that a running Manager takes.
async fn receive(mut admin: AdminClient<Channel>) -> Result<Response<Vec<u8>>, Status> {
    let mut parts = admin.backup(v1::BackupRequest {}).await?.into_inner();
    let mut bytes = Vec::new();
    while let Some(reply) = parts.message().await? {
        bytes.extend_from_slice(&reply.part);
    }
    Ok(Response::new(bytes))
}

async fn run_backup(args: &BackupArgs) -> Result<(), Failure> {
    let made = match &args.managers {
        Some(managers) => {
            if args.backup.exists() {
                return Err(StoreError::Exists { file: args.backup.clone() }.into());
            }
            let bytes =
                Admin::new(&args.tls.clone().secure(managers.clone())?).ask_within(BACKUP, receive).await?;
            write_received(&bytes, &args.backup)?
        }
        None => backup(&store("store", &args.store, &args.etcd)?, &args.backup)?,
    };
    let json = json!({
        "backup": args.backup,
        "index": made.index.0,
        "namespaces": made.namespaces,
        "batches": made.batches,
    });
    args.format.output().print(&json, || {
        let (namespaces, index) = (made.namespaces, made.index);
        format!("{}: {} as of index {index}", args.backup.display(), count(namespaces, "namespace"))
    });
    Ok(())
}

fn run_restore(args: &RestoreArgs) -> Result<(), Failure> {
    let options = RestoreOptions {
        generation_floor: args.generation_floor.map(Generation),
        leases_have_ended: args.leases_have_ended,
    };
    let to = store("store", &args.store, &args.etcd)?;
    let made = restore(&args.backup, &to, options)?;
    let wait = made.not_before.and_then(|at| at.duration_since(SystemTime::now()).ok());
    let json = json!({
        "store": to.to_string(),
        "index": made.backup.index.0,
        "namespaces": made.backup.namespaces,
        "generation_floor": made.generation_floor.map(|generation| generation.0),
        "term": made.term.0,
        "leads_in_seconds": wait.map(|wait| wait.as_secs()),
    });
    args.format.output().print(&json, || {
        let floor = made
            .generation_floor
            .map_or_else(String::new, |floor| format!("\nevery lease granted from now on is above {floor}"));
        let wait = wait.map_or_else(String::new, |wait| {
            let seconds = wait.as_secs();
            format!("\na Manager on it leads in {seconds} s, when every lease of the old store has ended")
        });
        format!("{to} has {}{floor}{wait}", count(made.backup.namespaces, "namespace"))
    });
    Ok(())
}

fn run_migrate(args: &MigrateArgs) -> Result<(), Failure> {
    let (from, to) = (store("from", &args.from, &args.etcd)?, store("to", &args.to, &args.etcd)?);
    let made = migrate(&from, &to)?;
    let json = json!({
        "from": from.to_string(),
        "to": to.to_string(),
        "index": made.index.0,
        "namespaces": made.group.namespaces.len(),
    });
    args.format.output().print(&json, || {
        let namespaces = count(made.group.namespaces.len(), "namespace");
        format!("{to} has all of it, {namespaces}; never start a Manager on {from} again")
    });
    Ok(())
}
