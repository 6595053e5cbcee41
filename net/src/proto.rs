//! The messages and services of the wire, generated from the schemas in `net/proto`.

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
