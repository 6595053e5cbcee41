//! What the tests need beside Rust: Debian's etcd, installed where it is missing.

use std::process::{Command, Stdio};

use crate::workspace::Result;

/// Programs, and the packages of Debian that have them.
const TOOLS: &[(&str, &str)] = &[("etcd", "etcd-server"), ("etcdctl", "etcd-client")];

/// Installs what is missing, and says that it is there.
pub(crate) fn run() -> Result<()> {
    ensure()?;
    println!("etcd is there");
    Ok(())
}

/// Installs what is missing; what is there is left alone and not worth a line: the output may be for a program.
pub(crate) fn ensure() -> Result<()> {
    let missing: Vec<&str> =
        TOOLS.iter().filter(|(program, _)| !is_there(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    eprintln!("installing {}", missing.join(" "));
    apt(&["update"])?;
    apt(&[&["install", "--yes", "--no-install-recommends"], missing.as_slice()].concat())?;
    match TOOLS.iter().find(|(program, _)| !is_there(program)) {
        Some((program, package)) => Err(format!("{program} is missing: install Debian's package {package}")),
        None => Ok(()),
    }
}

fn apt(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    // The package would start a server of its own, which nobody needs.
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
    let words = "install Debian's packages etcd-server and etcd-client by hand";
    let status = command.status().map_err(|error| format!("cannot run apt-get: {error}; {words}"))?;
    if status.success() { Ok(()) } else { Err(format!("apt-get {}: {status}; {words}", arguments.join(" "))) }
}

fn is_there(program: &str) -> bool {
    let flag = if program == "etcdctl" { "version" } else { "--version" };
    let mut probe = Command::new(program);
    probe.arg(flag).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}
