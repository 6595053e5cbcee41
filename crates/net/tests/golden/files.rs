//! Files with the bytes of messages: `v2` is kept and read for ever, `next` is what the feature `next-version` makes of it.
//!
//! A file is written once, by a run with `CENTRIFUGE_WRITE_GOLDEN` set while it is missing, and never replaced.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The version that this build writes.
const WRITES: &str = if cfg!(feature = "next-version") { "next" } else { "v2" };

/// The files that were compared.
#[derive(Default)]
pub(crate) struct Golden {
    names: BTreeSet<String>,
}

impl Golden {
    /// Every version's file of this name says this value, and this build still writes what its version's file has.
    pub(crate) fn check<T: PartialEq + Debug>(
        &mut self,
        name: &str,
        value: &T,
        written: &[u8],
        read: impl Fn(&[u8]) -> T,
    ) {
        let name = format!("{name}.bin");
        if is_writing() {
            return write_once(&folder(WRITES).join(&name), written);
        }
        let [first, next] = ["v2", "next"].map(|version| {
            let file = folder(version).join(&name);
            let bytes = fs::read(&file).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
            assert_eq!(&read(&bytes), value, "{version}/{name} is read as something else");
            if version == WRITES {
                assert_eq!(bytes, written, "{version}/{name} is not what this build writes");
            }
            bytes
        });
        assert_ne!(first, next, "{name} has nothing in its next version that this one does not know");
        assert!(self.names.insert(name), "a name for each");
    }

    /// There are no other files: each is read.
    pub(crate) fn are_all(&self) {
        let versions = if is_writing() { &[][..] } else { &["v2", "next"] };
        for version in versions {
            let files = fs::read_dir(folder(version)).expect("a folder");
            let names: BTreeSet<String> = files
                .map(|file| file.expect("a file").file_name().into_string().expect("a plain name"))
                .collect();
            assert_eq!(names, self.names, "in {version}");
        }
    }
}

/// A run that writes compares nothing.
fn is_writing() -> bool {
    std::env::var_os("CENTRIFUGE_WRITE_GOLDEN").is_some()
}

fn write_once(file: &Path, bytes: &[u8]) {
    if !file.exists() {
        let made = File::create_new(file).and_then(|mut file| file.write_all(bytes));
        made.expect("the folder can be written");
    }
}

fn folder(version: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/golden").join(version)
}
