//! `centrifuge store`.

use std::path::PathBuf;
use std::time::SystemTime;

use centrifuge_core::id::Generation;
use centrifuge_server::store::backup::{RestoreOptions, backup, migrate, restore};
use centrifuge_server::store::{Backend, StoreError};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::failure::Failure;
use crate::output::Output;

#[derive(Subcommand)]
pub(crate) enum StoreCommand {
    /// Copy a store that no Manager is using into one file
    Backup(BackupArgs),
    /// Make a new store of a backup; no lease number is ever granted twice
    Restore(RestoreArgs),
    /// Copy a store into a new one, perhaps of another kind
    Migrate(MigrateArgs),
}

#[derive(Args)]
pub(crate) struct BackupArgs {
    /// The store: file:PATH
    #[arg(long, default_value = "file:centrifuge.db")]
    store: Backend,
    /// The backup to write; it must not exist
    backup: PathBuf,
    #[command(flatten)]
    print: Print,
}

#[derive(Args)]
pub(crate) struct RestoreArgs {
    /// The backup to read
    backup: PathBuf,
    /// The store to make: file:PATH; it must not exist
    #[arg(long, default_value = "file:centrifuge.db")]
    store: Backend,
    /// Grant only generations above this one [default: the backup's last and 2^32]
    #[arg(long)]
    generation_floor: Option<u64>,
    /// No Manager has run for longer than the longest hold, so nobody has to wait for old leases
    #[arg(long)]
    leases_have_ended: bool,
    #[command(flatten)]
    print: Print,
}

#[derive(Args)]
pub(crate) struct MigrateArgs {
    /// The store to read: file:PATH. It must not be used afterwards
    #[arg(long)]
    from: Backend,
    /// The store to make: file:PATH; it must not exist
    #[arg(long)]
    to: Backend,
    #[command(flatten)]
    print: Print,
}

#[derive(Args)]
struct Print {
    /// How to print
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::failed(error.to_string())
    }
}

pub(crate) fn run(command: StoreCommand) -> Result<(), Failure> {
    match command {
        StoreCommand::Backup(args) => run_backup(&args),
        StoreCommand::Restore(args) => run_restore(&args),
        StoreCommand::Migrate(args) => run_migrate(&args),
    }
}

fn run_backup(args: &BackupArgs) -> Result<(), Failure> {
    let made = backup(&args.store, &args.backup)?;
    let json = json!({
        "backup": args.backup,
        "index": made.index.0,
        "namespaces": made.namespaces,
        "batches": made.batches,
    });
    args.print.output.print(&json, || {
        let (namespaces, index) = (made.namespaces, made.index);
        format!("{}: {namespaces} namespaces as of index {index}", args.backup.display())
    });
    Ok(())
}

fn run_restore(args: &RestoreArgs) -> Result<(), Failure> {
    let options = RestoreOptions {
        generation_floor: args.generation_floor.map(Generation),
        leases_have_ended: args.leases_have_ended,
    };
    let made = restore(&args.backup, &args.store, options)?;
    let wait = made.not_before.and_then(|at| at.duration_since(SystemTime::now()).ok());
    let json = json!({
        "store": args.store.to_string(),
        "index": made.backup.index.0,
        "namespaces": made.backup.namespaces,
        "generation_floor": made.generation_floor.map(|generation| generation.0),
        "term": made.term.0,
        "leads_in_seconds": wait.map(|wait| wait.as_secs()),
    });
    args.print.output.print(&json, || {
        let floor = made
            .generation_floor
            .map_or_else(String::new, |floor| format!("\nevery lease granted from now on is above {floor}"));
        let wait = wait.map_or_else(String::new, |wait| {
            let seconds = wait.as_secs();
            format!("\na Manager on it leads in {seconds} s, when every lease of the old store has ended")
        });
        format!("{} has {} namespaces{floor}{wait}", args.store, made.backup.namespaces)
    });
    Ok(())
}

fn run_migrate(args: &MigrateArgs) -> Result<(), Failure> {
    let made = migrate(&args.from, &args.to)?;
    let json = json!({
        "from": args.from.to_string(),
        "to": args.to.to_string(),
        "index": made.index.0,
        "namespaces": made.group.namespaces.len(),
    });
    args.print.output.print(&json, || {
        let namespaces = made.group.namespaces.len();
        format!("{} has all {namespaces} namespaces; never start a Manager on {} again", args.to, args.from)
    });
    Ok(())
}
