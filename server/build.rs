//! Compiles the schemas of the store on etcd, without a compiler on the machine.

use std::error::Error;

/// Where the schemas are.
const SCHEMAS: &str = "proto";
/// What is compiled: etcd's own messages, as far as they are used, and what is kept in etcd.
const FILES: [&str; 2] = ["etcd/rpc.proto", "centrifuge/store/etcd/items.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SCHEMAS}");
    let descriptors = protox::compile(FILES, [SCHEMAS])?;
    tonic_prost_build::configure().build_server(false).compile_fds(descriptors)?;
    Ok(())
}
