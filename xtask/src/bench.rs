//! Measurements: builds `centrifuge-bench` in release and becomes it.

use crate::tools;
use crate::workspace::{Result, Workspace, replace_process};

/// Runs a measurement with the arguments that were given. Comes back only if that cannot be done: otherwise this process is the
/// measurement from then on, so that signals and the exit status are its own.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    if wants_etcd(arguments) {
        tools::ensure()?;
    }
    let fixed = ["run", "--quiet", "--release", "--package", "centrifuge-bench", "--"];
    replace_process(workspace.cargo(fixed.into_iter().chain(arguments.iter().map(String::as_str))))
}

/// Whether etcd is measured too.
fn wants_etcd(arguments: &[String]) -> bool {
    let is = |wanted: &[&str]| arguments.iter().any(|argument| wanted.contains(&argument.as_str()));
    is(&["commit", "flease"]) && !is(&["--help", "-h"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcd_is_needed_where_it_is_measured() {
        let wants = |text: &str| wants_etcd(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert!(wants("commit --json") && wants("flease"));
        assert!(!wants("manager --owners 10") && !wants("flease --help") && !wants("hot-path"));
    }
}
