//! Compiles the schemas of the store on etcd, without a compiler on the machine.

#[path = "../net/build/messages.rs"]
mod messages;

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use tonic_prost_build::Config;

/// Where the schemas are.
const SCHEMAS: &str = "proto";
/// etcd's own messages, as far as they are used.
const API: &str = "etcd/rpc.proto";
/// What is kept in etcd.
const ITEMS: &str = "centrifuge/store/etcd/items.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../net/build/messages.rs");
    println!("cargo::rerun-if-changed={SCHEMAS}");
    let items = protox::compile([ITEMS], [SCHEMAS])?;
    if env::var_os("CARGO_FEATURE_NEXT_VERSION").is_some() {
        let out = PathBuf::from(env::var("OUT_DIR")?);
        fs::write(out.join("messages.rs"), messages::in_messages(&items)?)?;
    }
    let mut config = Config::new();
    config.enable_type_names();
    tonic_prost_build::configure().compile_fds_with_config(items, config)?;
    tonic_prost_build::configure().build_server(false).compile_fds(protox::compile([API], [SCHEMAS])?)?;
    Ok(())
}
