//! The messages and services generated from the schemas in `crates/server/proto`.

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

/// The bytes of what a key contains.
#[cfg(not(feature = "next-version"))]
pub(super) fn encode<M: prost::Message + prost::Name>(item: &M) -> Vec<u8> {
    item.encode_to_vec()
}

/// The bytes of what a key contains, with more in them than its schema says.
#[cfg(feature = "next-version")]
pub(super) fn encode<M: prost::Message + prost::Name>(item: &M) -> Vec<u8> {
    centrifuge_net::next_version::encode_among(include!(concat!(env!("OUT_DIR"), "/messages.rs")), item)
}
