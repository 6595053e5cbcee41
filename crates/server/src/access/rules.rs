//! What each request needs. A method without a rule is denied.

use centrifuge_net::proto::v1;

use super::policy::{Access, Permission};

/// What is asked of a caller before a request is even read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Nothing: whether a Manager works is no secret.
    Public,
    /// This, at least. What the request says is checked when it has been read.
    Needs(Access),
}

/// The rule of a gRPC method or of a page, by its path; `None`: nobody may.
pub(crate) fn gate(path: &str) -> Option<Gate> {
    use Permission::{Administer, Lookup, Metrics, Operate, Own, View};
    let somewhere = |permission| Some(Gate::Needs(Access::Somewhere(permission)));
    match path {
        "/health" | "/ready" | "/grpc.health.v1.Health/Check" | "/grpc.health.v1.Health/Watch" => {
            Some(Gate::Public)
        }
        "/metrics" => Some(Gate::Needs(Access::Everywhere(Metrics))),
        "/status" => Some(Gate::Needs(Access::Everywhere(View))),
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo" | "/centrifuge.v1.Admin/Status" => {
            Some(Gate::Needs(Access::Anything))
        }
        "/centrifuge.v1.Owner/Session" => somewhere(Own),
        "/centrifuge.v1.Lookup/Watch" => somewhere(Lookup),
        "/centrifuge.v1.Admin/ListNamespaces"
        | "/centrifuge.v1.Admin/ListOwners"
        | "/centrifuge.v1.Admin/ListLeases"
        | "/centrifuge.v1.Admin/ListQuarantines"
        | "/centrifuge.v1.Admin/History" => somewhere(View),
        "/centrifuge.v1.Admin/Freeze"
        | "/centrifuge.v1.Admin/Unfreeze"
        | "/centrifuge.v1.Admin/Move"
        | "/centrifuge.v1.Admin/Drain"
        | "/centrifuge.v1.Admin/Undrain"
        | "/centrifuge.v1.Admin/ReleaseQuarantine" => somewhere(Operate),
        "/centrifuge.v1.Admin/CreateNamespace"
        | "/centrifuge.v1.Admin/ConfigureNamespace"
        | "/centrifuge.v1.Admin/DeleteNamespace"
        | "/centrifuge.v1.Admin/Evict" => somewhere(Administer),
        "/centrifuge.v1.Admin/Backup" => Some(Gate::Needs(Access::Everywhere(Administer))),
        _ => None,
    }
}

/// A request that says what it needs.
pub(crate) trait Guarded {
    /// What has to be allowed.
    fn access(&self) -> Access;
}

macro_rules! guarded {
    ($($permission:ident: $($request:ident),+;)+) => {$($(
        impl Guarded for v1::$request {
            fn access(&self) -> Access {
                Access::In(Permission::$permission, self.namespace.clone())
            }
        }
    )+)+};
}

guarded! {
    Lookup: WatchRequest;
    View: ListOwnersRequest, ListLeasesRequest, ListQuarantinesRequest;
    Operate: FreezeRequest, UnfreezeRequest, MoveRequest, DrainRequest, UndrainRequest, ReleaseQuarantineRequest;
    Administer: CreateNamespaceRequest, ConfigureNamespaceRequest, DeleteNamespaceRequest, EvictRequest;
}

/// Lists are of what their reader may see.
fn view(namespace: Option<&String>) -> Access {
    match namespace {
        Some(namespace) => Access::In(Permission::View, namespace.clone()),
        None => Access::Somewhere(Permission::View),
    }
}

impl Guarded for v1::ListNamespacesRequest {
    fn access(&self) -> Access {
        view(self.namespace.as_ref())
    }
}

impl Guarded for v1::HistoryRequest {
    fn access(&self) -> Access {
        view(self.namespace.as_ref())
    }
}

impl Guarded for v1::StatusRequest {
    fn access(&self) -> Access {
        Access::Anything
    }
}

impl Guarded for v1::BackupRequest {
    fn access(&self) -> Access {
        Access::Everywhere(Permission::Administer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use centrifuge_net::proto::FILE_DESCRIPTOR_SET;
    use prost::Message;

    #[test]
    fn every_method_has_a_rule_and_none_of_ours_is_public() {
        let sets = [FILE_DESCRIPTOR_SET, tonic_health::pb::FILE_DESCRIPTOR_SET];
        let files = sets
            .into_iter()
            .flat_map(|set| prost_types::FileDescriptorSet::decode(set).expect("descriptors").file);
        let mut paths = Vec::new();
        for file in files {
            for service in &file.service {
                for method in &service.method {
                    paths.push(format!("/{}.{}/{}", file.package(), service.name(), method.name()));
                }
            }
        }
        assert!(paths.len() >= 19, "{paths:?}");
        for path in paths {
            let rule = gate(&path);
            assert!(rule.is_some(), "{path} has no rule");
            assert_eq!(rule == Some(Gate::Public), path.starts_with("/grpc.health."), "{path}");
        }
    }
}
