//! Which store there is, and what belongs to it.

use std::net::SocketAddr;
use std::path::Path;

use super::{ConfigArgs, ConfigError, EtcdArgs, Namespaces, file_path, namespaces, refuse};
use crate::store::Backend;

/// The name of no store.
const NO_STORE: &str = "none";

impl ConfigArgs {
    /// The store, and nothing that belongs to another.
    pub(super) fn backend(&self, default: Backend) -> Result<Backend, ConfigError> {
        let store = match &self.store {
            Some(name) if name == Path::new(NO_STORE) => {
                Backend::None(Box::new(self.flease.clone().check()?))
            }
            Some(name) => named_store("store", name, &self.etcd)?,
            None => default,
        };
        if !matches!(store, Backend::Etcd(_)) {
            self.etcd.check_unused()?;
        }
        if !matches!(store, Backend::None(_)) {
            self.flease.check_unused()?;
        }
        match &self.election {
            Some(election) if election != store.election() => {
                let (kind, allowed) = (store.kind(), store.election());
                let allowed =
                    format!("{allowed}, because the store is {kind}; flease goes with --store none");
                Err(refuse("election", election.clone(), &allowed))
            }
            _ => Ok(store),
        }
    }

    /// Without a store the others and the clients know this Manager by its address among the peers.
    pub(super) fn settle_addresses(&mut self, own: &str) -> Result<(), ConfigError> {
        if let Some(other) = self.advertise.as_ref().filter(|name| *name != own) {
            let allowed = format!("left out with store none, or {own}, as peers has it");
            return Err(refuse("advertise", other.clone(), &allowed));
        }
        self.advertise = Some(own.to_owned());
        if self.grpc_listen.is_none() {
            if own.parse::<SocketAddr>().is_err() {
                let allowed = format!(
                    "set, because {own} in peers is a name: the address behind it, or 0.0.0.0 and its port"
                );
                return Err(refuse("grpc_listen", "", &allowed));
            }
            self.grpc_listen = Some(own.to_owned());
        }
        Ok(())
    }

    pub(super) fn configured_namespaces(&mut self, store: &Backend) -> Result<Namespaces, ConfigError> {
        const UNUSED: &str =
            "left out, unless store is none: where there is a store, use `centrifuge namespace create`";
        let has_store = !matches!(store, Backend::None(_));
        if let Some(namespace) = self.namespaces.keys().next().filter(|_| has_store) {
            let why = format!("the section must be {UNUSED}");
            return Err(ConfigError::Namespace { namespace: namespace.clone(), why });
        }
        let namespaces = namespaces::check(std::mem::take(&mut self.namespaces), &self.namespace)?;
        match (store, namespaces.keys().next()) {
            (Backend::None(_), None) => Err(refuse(
                "namespace",
                "",
                "set with store none: name each with --namespace NAME, or in the file under [namespaces.NAME]",
            )),
            (Backend::File(_) | Backend::Etcd(_), Some(name)) => {
                Err(refuse("namespace", name.to_string(), UNUSED))
            }
            _ => Ok(namespaces),
        }
    }
}

/// What a store may be.
const STORES: &str = "file:PATH or a path with a / or a . in it, etcd or etcd:PREFIX with --etcd-endpoints, or none with --peers";

/// A store by its name: `file:PATH`, or `etcd`, perhaps with a prefix of its own, as `etcd:/centrifuge/`. A path alone is
/// a file, too, where it cannot be taken for anything else: a misspelt name would make an empty store, and lead on it.
pub fn named_store(setting: &'static str, name: &Path, etcd: &EtcdArgs) -> Result<Backend, ConfigError> {
    let text = name.to_str().unwrap_or_default();
    if text == NO_STORE {
        return Err(ConfigError::NoStore { setting });
    }
    let (path, prefix) = match text.split_once(':') {
        Some(("file", path)) => (Path::new(path), None),
        Some(("etcd", prefix)) => (name, Some(Some(prefix.to_owned()))),
        _ if text == "etcd" => (name, Some(None)),
        _ if is_path(name) => (name, None),
        _ => return Err(refuse(setting, name.display().to_string(), STORES)),
    };
    match prefix {
        Some(own) => {
            let mut etcd = etcd.clone();
            etcd.etcd_prefix = own.or(etcd.etcd_prefix);
            Ok(Backend::Etcd(Box::new(etcd.check()?)))
        }
        None => Ok(Backend::File(file_path(setting, path.to_owned())?)),
    }
}

/// Whether a name is clearly a path: it has a slash or a dot, and nothing before its first slash looks like a scheme.
fn is_path(name: &Path) -> bool {
    let Some(text) = name.to_str() else { return true };
    let first = text.split('/').next().unwrap_or_default();
    text.contains(['/', '.']) && !first.contains(':')
}
