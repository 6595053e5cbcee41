//! `centrifuge`: the one user-facing binary.

mod admin;
mod commands;
mod context;
mod dev;
mod failure;
mod keys;
mod logging;
mod output;
mod sources;
mod trim;
mod version;
mod words;

use std::process::ExitCode;

use centrifuge::Managers;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use commands::{
    certs, completions, flease, history, leases, lookup, manager, namespace, operate, owners, quarantine,
    status, store, watch,
};
use failure::Failure;
use output::Format;

/// Exclusive leases on ranges of keys: run a Manager, see who owns what, move things.
#[derive(Parser)]
#[command(name = "centrifuge", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  refused or failed: the message says why
  2  the command line is wrong
  3  no Manager could be reached, or none of them leads
  4  there is no such namespace or Owner, or the key has no owner
  5  timed out while waiting; the operation continues";

#[derive(Subcommand)]
enum Command {
    /// Run a demonstration: a Manager, servers and callers in one process, with a running commentary
    Dev(dev::DevArgs),
    /// Run a Manager
    Manager(Box<manager::ManagerArgs>),
    /// Show the role of each Manager, and which one leads
    Status(At),
    /// Create, list, show, change and delete namespaces
    #[command(subcommand)]
    Namespace(namespace::NamespaceCommand),
    /// List the Owners of a namespace
    Owners(owners::OwnersArgs),
    /// List the lease table of a namespace
    Leases(leases::LeasesArgs),
    /// Show the owner of a key
    Lookup(lookup::LookupArgs),
    /// Print table changes and losses of a namespace as they happen
    Watch(watch::WatchArgs),
    /// Show recent decisions and their reasons
    History(history::HistoryArgs),
    /// Empty an Owner by moving its state to other Owners
    Drain(operate::DrainArgs),
    /// End the drain of an Owner: it keeps its remaining ranges, and gets its share again
    Undrain(operate::OwnerArgs),
    /// Stop all moves in a namespace
    Freeze(operate::PoolArgs),
    /// Allow moves in a namespace again
    Unfreeze(operate::PoolArgs),
    /// Move a range to an Owner, or cancel an earlier move
    Move(operate::MoveArgs),
    /// Revoke all leases of an Owner at once and lock its process out; its state is lost
    Evict(operate::OwnerArgs),
    /// List and release ranges that are granted to nobody, because Owners that got them died
    #[command(subcommand)]
    Quarantine(quarantine::QuarantineCommand),
    /// Back up, restore and migrate the store of a Manager
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Leases among peers, with no Manager: run a peer, hold a cell while a command runs
    #[command(subcommand)]
    Flease(flease::FleaseCommand),
    /// Make a private CA, certificates and a policy, for trying TLS
    #[command(subcommand)]
    Certs(certs::CertsCommand),
    /// Print completions for a shell
    Completions(completions::CompletionsArgs),
}

/// Which Managers to ask, and how to print the answer.
#[derive(Args, Clone, Debug)]
pub(crate) struct At {
    #[command(flatten)]
    managers: context::ManagerArgs,
    #[command(flatten)]
    format: Format,
}

impl At {
    /// The Managers to ask.
    pub(crate) fn managers(&self) -> Result<Managers, Failure> {
        self.managers.resolve()
    }
}

/// Every command's help says what its exit codes mean.
fn with_exit_codes(command: clap::Command) -> clap::Command {
    command.after_help(EXIT_CODES).mut_subcommands(with_exit_codes)
}

fn main() -> ExitCode {
    let command = Cli::command().long_version(version::LONG.as_str());
    let matches = match with_exit_codes(command).try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return sources::refuse(&error),
    };
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => return sources::refuse(&error.format(&mut Cli::command())),
    };
    match run(cli.command, &matches) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_silent() {
                eprintln!("centrifuge: {failure}");
            }
            failure.exit_code()
        }
    }
}

fn run(command: Command, matches: &ArgMatches) -> Result<(), Failure> {
    let runtime =
        centrifuge_server::runtime().map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
    runtime.block_on(async {
        match command {
            Command::Dev(args) => dev::run(args).await,
            Command::Manager(args) => manager::run(*args, matches.subcommand_matches("manager")).await,
            Command::Status(at) => status::run(&at).await,
            Command::Namespace(command) => namespace::run(command).await,
            Command::Owners(args) => owners::run(args).await,
            Command::Leases(args) => leases::run(args).await,
            Command::Lookup(args) => lookup::run(args).await,
            Command::Watch(args) => watch::run(args).await,
            Command::History(args) => history::run(args).await,
            Command::Drain(args) => operate::drain(args).await,
            Command::Undrain(args) => operate::undrain(args).await,
            Command::Freeze(args) => operate::freeze(args).await,
            Command::Unfreeze(args) => operate::unfreeze(args).await,
            Command::Move(args) => operate::move_range(args).await,
            Command::Evict(args) => operate::evict(args).await,
            Command::Quarantine(command) => quarantine::run(command).await,
            Command::Store(command) => store::run(command).await,
            Command::Flease(command) => flease::run(command).await,
            Command::Certs(command) => certs::run(command),
            Command::Completions(args) => completions::run::<Cli>(&args),
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    /// Every command that does something, by its whole name.
    fn commands(command: &clap::Command, path: &str, found: &mut Vec<(String, clap::Command)>) {
        let path = format!("{path} {}", command.get_name()).trim_start().to_owned();
        if !command.is_subcommand_required_set() {
            found.push((path.clone(), command.clone()));
        }
        for part in command.get_subcommands().filter(|part| !part.is_hide_set()) {
            commands(part, &path, found);
        }
    }

    #[test]
    fn every_command_takes_json_and_output_json() {
        let mut found = Vec::new();
        commands(&Cli::command(), "", &mut found);
        assert!(found.len() > 25, "{found:?}");
        for (path, command) in found {
            let named =
                |name: &str| command.get_arguments().find(|argument| argument.get_long() == Some(name));
            let json = named("json").unwrap_or_else(|| panic!("{path} has no --json"));
            assert!(!json.get_action().takes_values(), "{path}: --json is a flag");
            let output = named("output").unwrap_or_else(|| panic!("{path} has no --output"));
            let values = output.get_possible_values();
            assert!(values.iter().any(|value| value.matches("json", false)), "{path}: --output json");
        }
    }

    /// The lines of code blocks that call `centrifuge`, without comments, continued lines joined.
    fn documented_lines(page: &str) -> Vec<String> {
        let page = page.replace("\\\n", " ");
        let blocks = page.split("\n```").skip(1).step_by(2).filter(|block| !block.starts_with("toml"));
        let lines = blocks.flat_map(str::lines).map(|line| line.split(" #").next().unwrap_or_default());
        lines.map(str::trim).filter(|line| line.starts_with("centrifuge ")).map(str::to_owned).collect()
    }

    #[test]
    fn every_command_of_the_documents_exists() {
        let documents = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let directories = ["guide", "operations"].map(|name| std::fs::read_dir(documents.join(name)));
        let pages = directories.into_iter().flat_map(|pages| pages.expect("a directory of pages"));
        let pages = pages.map(|page| std::fs::read_to_string(page.expect("a page").path()).expect("text"));
        let lines: Vec<String> = pages.flat_map(|page| documented_lines(&page)).collect();
        assert!(lines.len() > 15, "{lines:?}");
        for line in lines {
            let parsed = Cli::command().try_get_matches_from(line.split_whitespace());
            // Pages set some options in the environment first.
            let kind = parsed.err().map(|error| error.kind());
            assert!(matches!(kind, None | Some(ErrorKind::MissingRequiredArgument)), "`{line}`: {kind:?}");
        }
    }

    #[test]
    fn json_is_short_for_output_json() {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            format: Format,
        }
        let is_json = |words: &[&str]| {
            let line = [&["line"], words].concat();
            Line::try_parse_from(line).expect("a line").format.is_json()
        };
        assert!(!is_json(&[]) && !is_json(&["--output", "table"]));
        assert!(is_json(&["--json"]) && is_json(&["--output", "json"]) && is_json(&["-o", "json", "--json"]));
    }
}
