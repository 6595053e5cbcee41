//! The messages and services generated from the schemas in `server/proto`.

/// The part of etcd's API that is used.
#[allow(missing_docs, unreachable_pub, dead_code, clippy::all, clippy::pedantic)]
pub(super) mod rpc {
    tonic::include_proto!("etcdserverpb");
}

/// What the keys of a store contain.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
pub(super) mod items {
    tonic::include_proto!("centrifuge.store.etcd");
}
