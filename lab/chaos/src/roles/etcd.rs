//! A node of etcd, from the system's package.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::EtcdRole;

/// Becomes etcd: the process stays the same, and with it the wish to die with its parent. Returns only if that fails.
pub(super) fn become_etcd(role: &EtcdRole) -> io::Error {
    let failed = Command::new("etcd").args(&role.arguments).exec();
    io::Error::new(
        failed.kind(),
        format!("etcd cannot be run ({failed}): install Debian's package etcd-server"),
    )
}
