//! A node of etcd, from the system's package.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use centrifuge_harness::etcd::explained;

use super::EtcdRole;

/// Becomes etcd: the process stays the same, and with it the wish to die with its parent. Returns only if that fails.
pub(super) fn become_etcd(role: &EtcdRole) -> io::Error {
    explained(Command::new("etcd").args(&role.arguments).exec())
}
