//! Compiles the schemas, without a compiler on the machine.

#[path = "build/messages.rs"]
mod messages;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use prost::Message;
use tonic_prost_build::Config;

/// Where the schemas are.
const SCHEMAS: &str = "proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build/messages.rs");
    println!("cargo::rerun-if-changed={SCHEMAS}");
    let mut files = Vec::new();
    schemas_under(Path::new(SCHEMAS), &mut files)?;
    let descriptors = protox::compile(&files, [SCHEMAS])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Server reflection serves these bytes; the generator below writes no such file from compiled descriptors.
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    let mut builder = tonic_prost_build::configure().bytes(".centrifuge.v1");
    if env::var_os("CARGO_FEATURE_NEXT_VERSION").is_some() {
        fs::write(out.join("messages.rs"), messages::in_messages(&descriptors)?)?;
        builder = builder.codec_path("crate::next_version::NextCodec");
    }
    let mut config = Config::new();
    config.enable_type_names();
    builder.compile_fds_with_config(descriptors, config)?;
    Ok(())
}

/// Every schema below a folder, in the order of their names, so that the same sources give the same bytes.
fn schemas_under(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            schemas_under(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    Ok(())
}
