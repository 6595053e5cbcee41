//! How long things take in a story, all of it in leases.

use std::time::Duration;

/// The times of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// How long leases last.
    pub(super) lease: Duration,
    /// How long a device's request for news waits for some.
    pub(super) long_poll: Duration,
    /// How long any other answer may take before a device looks for another frontend. A request that meets a
    /// dead server waits for the next owner: that must fit.
    pub(super) answer: Duration,
    /// How long a device may believe an old address, from when the new one was acknowledged.
    pub(super) bound: Duration,
}

impl Times {
    /// The times that fit leases of this length.
    ///
    /// The bound adds up what can come one after the other between an acknowledged change and a device that was
    /// connected all the time: a queue server that hears nothing knows after the contact timeout that it may
    /// have missed losses; the device may just then be waiting, for news and for an answer that never comes;
    /// and what it asks for after that may have to wait until the keys of a dead server have another, which
    /// takes a lease, its safety margin and a moment.
    pub(super) fn of(lease: Duration) -> Times {
        // What callers are told when a cluster starts them.
        let contact = lease * 3;
        let long_poll = lease * 2 / 3;
        let replacement = lease * 3 / 2;
        let answer = lease * 5 / 2;
        Times { lease, long_poll, answer, bound: contact + long_poll + answer + replacement }
    }
}
