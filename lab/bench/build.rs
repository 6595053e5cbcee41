//! Compiles the part of etcd's schema that the Manager's store uses: `flease` measures an etcd too.

use std::error::Error;

/// Where the schema is.
const SCHEMAS: &str = "../../crates/server/proto";
const API: &str = "etcd/rpc.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SCHEMAS}/{API}");
    tonic_prost_build::configure().build_server(false).compile_fds(protox::compile([API], [SCHEMAS])?)?;
    Ok(())
}
