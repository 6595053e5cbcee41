//! Real processes under faults: builds `centrifuge-chaos` and becomes it.

use crate::tools;
use crate::workspace::{Result, Workspace, replace_process};

/// Runs one of its commands with the arguments that were given. Comes back only if that cannot be done: otherwise this process
/// is the harness from then on, so that signals and the exit status are its own.
pub(crate) fn run(workspace: &Workspace, command: &str, arguments: &[String]) -> Result<()> {
    if wants_etcd(arguments) {
        tools::ensure()?;
    }
    let fixed = ["run", "--quiet", "--release", "--package", "centrifuge-chaos", "--", command];
    let given = arguments.iter().map(String::as_str);
    replace_process(workspace.cargo(fixed.into_iter().chain(given)))
}

/// What a run without etcd is asked for by: one on a file, one of another world, and whoever asks for help.
const WITHOUT_ETCD: &[&str] =
    &["--store=file", "--store=none", "--world=flease", "--world=diskless", "--help", "-h"];

fn wants_etcd(arguments: &[String]) -> bool {
    let joined = arguments.windows(2).map(|pair| pair.join("="));
    !joined.chain(arguments.iter().cloned()).any(|argument| WITHOUT_ETCD.contains(&argument.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcd_is_needed_unless_the_run_has_none() {
        let wants = |text: &str| wants_etcd(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert!(wants("--for 2m --json") && wants("--store etcd"));
        assert!(wants("--world managers --json"));
        assert!(!wants("--store file --json") && !wants("--store=file") && !wants("--help"));
        assert!(!wants("--world diskless --planned-only") && !wants("--store none --times 5"));
        assert!(!wants("--world flease --for 2m") && !wants("--json --world=flease"));
    }
}
