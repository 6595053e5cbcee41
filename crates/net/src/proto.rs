//! The messages and services of the wire, generated from the schemas in `crates/net/proto`.

#[cfg(feature = "next-version")]
pub use crate::next_version::encode;

/// The bytes of a message.
#[cfg(not(feature = "next-version"))]
#[must_use]
pub fn encode<M: prost::Message + prost::Name>(message: &M) -> Vec<u8> {
    message.encode_to_vec()
}

/// The services that Owners, Lookups and operators use.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
pub mod v1 {
    tonic::include_proto!("centrifuge.v1");
}

/// What stores keep.
pub mod store {
    /// The first version of what stores keep.
    #[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
    pub mod v1 {
        tonic::include_proto!("centrifuge.store.v1");
    }
}

/// Every schema with what it imports, encoded, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
