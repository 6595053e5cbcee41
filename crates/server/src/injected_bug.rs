//! Deliberate breaks of a real Manager, which tests with real processes must find. Without the feature `injected-bugs` none exists.

#[cfg(feature = "injected-bugs")]
mod late;

#[cfg(feature = "injected-bugs")]
use std::sync::OnceLock;

/// A break of what is around the machine: how it keeps its leader lease, and how it commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverBug {
    /// A keep-alive that etcd did not answer counts as a renewal of the leader lease.
    SilenceRenews,
    /// The leader lease counts from the answer to a keep-alive, and answers come later and later.
    LeaseFromAnswer,
    /// A commit compares neither the leader's key nor its place in the log.
    UncomparedCommit,
}

#[cfg(feature = "injected-bugs")]
static INJECTED: OnceLock<DriverBug> = OnceLock::new();

/// From now on this process's Managers are wrong in this way. To be called once, before any of them starts; says whether it took
/// effect.
#[cfg(feature = "injected-bugs")]
pub fn set(driver: DriverBug) -> bool {
    INJECTED.set(driver).is_ok()
}

/// Whether the driver is wrong in this way; constantly false without the feature.
pub(crate) fn has(bug: DriverBug) -> bool {
    #[cfg(feature = "injected-bugs")]
    return INJECTED.get() == Some(&bug);
    #[cfg(not(feature = "injected-bugs"))]
    {
        let _ = bug;
        false
    }
}

/// Notes that a renewal of the leader lease of a term is sent.
pub(crate) fn renewal_sent(term: u64, request: u64) {
    #[cfg(feature = "injected-bugs")]
    late::renewal_sent(term, request);
    #[cfg(not(feature = "injected-bugs"))]
    let _ = (term, request);
}

/// The renewal that the answer to one is taken for: that one itself.
pub(crate) async fn renewal_answered(request: u64) -> u64 {
    #[cfg(feature = "injected-bugs")]
    match INJECTED.get() {
        Some(DriverBug::LeaseFromAnswer) => return late::held_back().await,
        Some(DriverBug::SilenceRenews) => return late::latest(),
        _ => {}
    }
    request
}
