//! Where a setting comes from: a flag, the environment or a file. A refusal that does not say so is hard to act on.

use std::path::Path;
use std::process::ExitCode;

use clap::ArgMatches;
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;

/// Where the setting comes from, in words that end a message.
pub(crate) fn of(setting: &str, matches: Option<&ArgMatches>, file: Option<&Path>) -> String {
    // Asking for the source of a name that is no argument would be a bug, and not every setting need be one.
    let is_given = |matches: &&ArgMatches| matches.ids().any(|id| id.as_str() == setting);
    let source = matches.filter(is_given).and_then(|matches| matches.value_source(setting));
    match (source, file) {
        (Some(ValueSource::CommandLine), _) => format!(" (set by --{})", setting.replace('_', "-")),
        (Some(ValueSource::EnvVariable), _) => format!(" (set by {} in the environment)", variable(setting)),
        (_, Some(file)) if is_in(file, setting) => format!(" (set in {})", file.display()),
        // What is no section of the file is from a flag with another name.
        _ if setting.starts_with("namespaces.") => of("namespace", matches, None),
        _ => " (the default)".to_owned(),
    }
}

/// Prints why a command line is refused. If the value is from the environment, says so, as the parser does not.
pub(crate) fn refuse(error: &clap::Error) -> ExitCode {
    // Nobody reads it if it cannot be printed.
    let _ = error.print();
    if let (true, Some(ContextValue::String(argument))) =
        (error.use_stderr(), error.get(ContextKind::InvalidArg))
        && let Some(flag) = argument.split(' ').next().filter(|flag| flag.starts_with("--"))
        && let name = variable(flag.trim_start_matches('-'))
        && std::env::var_os(&name).is_some()
        && !is_given(flag)
    {
        eprintln!("\nThe value is set by {name} in the environment.");
    }
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Whether a configuration file sets it.
fn is_in(file: &Path, setting: &str) -> bool {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let section = format!("[{setting}]");
    let sets = |line: &str| line.split_once('=').is_some_and(|(name, _)| name.trim() == setting);
    text.lines().any(|line| sets(line) || line.trim() == section)
}

/// The variable of a setting or a flag.
fn variable(name: &str) -> String {
    format!("CENTRIFUGE_{}", name.replace('-', "_").to_uppercase())
}

fn is_given(flag: &str) -> bool {
    std::env::args().any(|given| given.split('=').next() == Some(flag))
}
