//! Programs of the lab: builds one in release and becomes it.

use crate::tools;
use crate::workspace::{Result, Workspace, replace_process};

/// Measures with the arguments that were given.
pub(crate) fn bench(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    become_program(workspace, "centrifuge-bench", arguments, measures_etcd(arguments))
}

/// Runs a command of real processes under faults with the arguments that were given.
pub(crate) fn chaos(workspace: &Workspace, command: &str, arguments: &[String]) -> Result<()> {
    let words = [&[command.to_owned()], arguments].concat();
    become_program(workspace, "centrifuge-chaos", &words, wants_etcd(arguments))
}

/// Runs the tests that make up their own input, with so many cases each.
pub(crate) fn fuzz(workspace: &Workspace, cases: u32) -> Result<()> {
    let words = "test --release -p centrifuge-server --lib -- access::fuzz --nocapture";
    let mut command = workspace.cargo(words.split(' '));
    command.env("PROPTEST_CASES", cases.to_string());
    replace_process(command)
}

/// Comes back only if that cannot be done: otherwise this process is the program from then on, so that signals and the exit
/// status are its own.
fn become_program(
    workspace: &Workspace,
    package: &str,
    arguments: &[String],
    needs_etcd: bool,
) -> Result<()> {
    if needs_etcd {
        tools::ensure()?;
    }
    let fixed = ["run", "--quiet", "--release", "--package", package, "--"];
    replace_process(workspace.cargo(fixed.into_iter().chain(arguments.iter().map(String::as_str))))
}

/// Whether etcd is measured too.
fn measures_etcd(arguments: &[String]) -> bool {
    let is = |wanted: &[&str]| arguments.iter().any(|argument| wanted.contains(&argument.as_str()));
    is(&["commit", "flease"]) && !is(&["--help", "-h"])
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

    #[test]
    fn etcd_is_needed_where_it_is_measured() {
        let wants = |text: &str| measures_etcd(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert!(wants("commit --json") && wants("flease"));
        assert!(!wants("manager --owners 10") && !wants("flease --help") && !wants("hot-path"));
    }
}
