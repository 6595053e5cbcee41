//! The small worlds of Flease that are exhausted.

use crate::check::scenario::Expect;

use super::world::{HELD, HELD_BY_ANOTHER, RECOVERED};
use super::{EPSILON, LEASE, ROUND, Scenario};

/// How long a peer takes no part after its start.
const RECOVERY: u64 = LEASE + 3 * EPSILON + ROUND;

/// All of them.
pub(in crate::check) fn all() -> Vec<Scenario> {
    vec![
        contention(),
        expiry(),
        release(),
        recovery(),
        two_crashes(),
        old_rounds(),
        ranges(),
        quorum(),
        apart(),
    ]
}

/// All three peers want the cell at about the same time, and whoever has it renews it.
fn contention() -> Scenario {
    Scenario {
        instants: &[0, 1],
        rounds: 2,
        milestones: &[HELD],
        ..Scenario::new("f-contend", "three peers that want a cell, their rounds interleaved")
    }
}

/// A lease runs out and another peer takes the cell; what was sent before arrives afterwards.
fn expiry() -> Scenario {
    Scenario {
        wanting: &[0, 1],
        instants: &[0, LEASE - 1, LEASE, LEASE + 1],
        rounds: 2,
        milestones: &[HELD, HELD_BY_ANOTHER],
        ..Scenario::new("f-expiry", "a lease that runs out, and clocks that slew meanwhile")
    }
}

/// The holder gives the cell up, and wants it again.
fn release() -> Scenario {
    Scenario {
        wanting: &[0, 1],
        releases: true,
        instants: &[0, 1, 2],
        ahead: 0,
        rounds: 3,
        milestones: &[HELD, HELD_BY_ANOTHER],
        ..Scenario::new("f-release", "a cell that is released and taken by another")
    }
}

/// A voter dies and comes back while a lease that it voted for is valid.
fn recovery() -> Scenario {
    Scenario {
        wanting: &[0, 1],
        instants: &[0, LEASE - 1],
        crashes: 1,
        milestones: &[HELD],
        ..Scenario::new("f-recover", "a voter that dies while what it voted for is valid, as clocks slew")
    }
}

/// Two of three die, in turn or at once, and take part again.
fn two_crashes() -> Scenario {
    Scenario {
        wanting: &[0, 1],
        instants: &[0, RECOVERY - 1],
        crashes: 2,
        milestones: &[HELD, HELD_BY_ANOTHER, RECOVERED],
        ..Scenario::new("f-crashes", "two of three peers die, whoever they are, and recover as clocks slew")
    }
}

/// Rounds begin, are abandoned, and their messages arrive when voters have died and recovered.
fn old_rounds() -> Scenario {
    Scenario {
        wanting: &[0, 1],
        instants: &[0, RECOVERY],
        ahead: 0,
        rounds: 3,
        crashes: 2,
        milestones: &[HELD, RECOVERED],
        ..Scenario::new("f-old", "messages of abandoned rounds, after a recovery")
    }
}

/// Three rounds whose times are so that each would be below the next if times within epsilon were equal.
fn ranges() -> Scenario {
    Scenario {
        instants: &[0, 1],
        fixed_clocks: Some(&[0b010, 0b011]),
        rounds: 3,
        milestones: &[HELD],
        ..Scenario::new("f-ranges", "three rounds whose times are within epsilon of each other")
    }
}

/// Four peers, of which three are a majority.
fn quorum() -> Scenario {
    Scenario {
        peers: 4,
        wanting: &[0, 1],
        ahead: 0,
        milestones: &[HELD],
        ..Scenario::new("f-quorum", "four peers, and replies that arrive twice")
    }
}

/// The control: clocks that are twice as far apart as they may be. Here leases must overlap, and the checker must find it.
fn apart() -> Scenario {
    Scenario {
        expect: Expect::Violation,
        wanting: &[0, 1],
        instants: &[0, LEASE - 1, LEASE],
        ahead: 2 * EPSILON + 1,
        ..Scenario::new("f-apart", "clocks further apart than epsilon, where leases overlap")
    }
}
