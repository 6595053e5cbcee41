//! File descriptors: every connection needs one, and the usual limit is below what a Manager serves.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{debug, warn};

/// Raises this process's limit as far as it may by itself, and says so if that is little.
pub fn raise_limit(connections: usize) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
            Ok(()) => debug!(?current, ?maximum, "raised the limit of open files"),
            Err(error) => warn!(%error, ?current, "cannot raise the limit of open files"),
        }
    }
    let allowed = getrlimit(Resource::Nofile).current;
    if allowed.is_some_and(|allowed| allowed < connections as u64) {
        warn!(
            allowed,
            max_connections = connections,
            "fewer files may be open than connections are allowed: raise the system's limit (ulimit -n), or lower max_connections"
        );
    }
}
