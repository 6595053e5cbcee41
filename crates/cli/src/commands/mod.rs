//! A module for each command.

pub(crate) mod certs;
pub(crate) mod completions;
pub(crate) mod flease;
pub(crate) mod history;
pub(crate) mod leases;
pub(crate) mod lookup;
pub(crate) mod manager;
pub(crate) mod namespace;
pub(crate) mod operate;
pub(crate) mod owners;
pub(crate) mod quarantine;
pub(crate) mod status;
pub(crate) mod store;
pub(crate) mod watch;
