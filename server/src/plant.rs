//! Deliberate breaks of a real Manager, which tests with real processes must find. Without the feature `plants` none exists.

#[cfg(feature = "plants")]
mod late;

#[cfg(feature = "plants")]
use std::sync::OnceLock;

use centrifuge_core::plant::Plants;

/// A break of what is around the machine: how it keeps its leader lease, and how it commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverPlant {
    /// A keep-alive that etcd did not answer counts as a renewal of the leader lease.
    SilenceRenews,
    /// The leader lease counts from the answer to a keep-alive, and answers come later and later.
    LeaseFromAnswer,
    /// A commit compares neither the leader's key nor its place in the log.
    UncomparedCommit,
}

#[cfg(feature = "plants")]
static PLANTED: OnceLock<(Plants, Option<DriverPlant>)> = OnceLock::new();

/// From now on this process's Managers are wrong in this way. To be called once, before any of them starts; says whether it took
/// effect.
#[cfg(feature = "plants")]
pub fn set(machine: Plants, driver: Option<DriverPlant>) -> bool {
    PLANTED.set((machine, driver)).is_ok()
}

/// What is wrong in the machine.
pub(crate) fn machine() -> Plants {
    #[cfg(feature = "plants")]
    return PLANTED.get().map_or(Plants::NONE, |(machine, _)| *machine);
    #[cfg(not(feature = "plants"))]
    Plants::NONE
}

/// Whether the driver is wrong in this way; constantly false without the feature.
pub(crate) fn has(plant: DriverPlant) -> bool {
    #[cfg(feature = "plants")]
    return PLANTED.get().is_some_and(|(_, driver)| *driver == Some(plant));
    #[cfg(not(feature = "plants"))]
    {
        let _ = plant;
        false
    }
}

/// Notes that a renewal of the leader lease of a term is sent.
pub(crate) fn renewal_sent(term: u64, request: u64) {
    #[cfg(feature = "plants")]
    late::renewal_sent(term, request);
    #[cfg(not(feature = "plants"))]
    let _ = (term, request);
}

/// The renewal that the answer to one is taken for: that one itself.
pub(crate) async fn renewal_answered(request: u64) -> u64 {
    #[cfg(feature = "plants")]
    match PLANTED.get() {
        Some((_, Some(DriverPlant::LeaseFromAnswer))) => return late::held_back().await,
        Some((_, Some(DriverPlant::SilenceRenews))) => return late::latest(),
        _ => {}
    }
    request
}
