//! What `centrifuge --version` says: the version, and what is in the program that only tests may have.

use std::sync::LazyLock;

use centrifuge_core::injected_bug;
use centrifuge_net::clock;

/// What can be in it and must not be in the product.
const FOR_TESTS: [(&str, bool); 3] = [
    ("injected-bugs", injected_bug::COMPILED_IN),
    ("clock-rate", clock::CAN_BE_WRONG),
    ("next-version", centrifuge_net::IS_NEXT_VERSION),
];

/// The long version.
pub(crate) static LONG: LazyLock<String> = LazyLock::new(|| {
    let there: Vec<&str> =
        FOR_TESTS.iter().filter(|(_, is_there)| *is_there).map(|(name, _)| *name).collect();
    let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
    format!("{}\nfeatures for tests: {there}", env!("CARGO_PKG_VERSION"))
});
