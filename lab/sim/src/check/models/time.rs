//! Worlds in which time decides: leases that run out at the bound of the clock rates, and beyond it.

use std::time::Duration;

use centrifuge_core::settings::Settings;

use crate::check::properties::{EXPIRED, HELD_AGAIN, MOVED};
use crate::check::scenario::Counted::Hellos;
use crate::check::scenario::{Boundary, Expect, Prelude, Scenario, configure, move_all, steady};
use crate::clock::Clock;

use super::{Model, pair};

pub(super) const ALL: &[Model] = &[expiry, recall, shortened];

/// A Manager's clock that is as fast, beside those of the Owners, as the drift bound allows: 65 to 60.
const AT_THE_BOUND: Clock = Clock { numerator: 13, denominator: 12, ..steady(100) };

/// Renewals, their answers and their resends are late or lost until leases end, at the very bound of the clock rates;
/// then everything arrives. A lease that ended is followed by another one of the same Owner, or of the other.
fn expiry() -> Scenario {
    let mut expiry = pair("expiry", "leases that run out at the drift bound, and what arrives afterwards");
    expiry.managers[0].clock = AT_THE_BOUND;
    expiry.boundary = Boundary::new(&[0, 3_000, 5_000, 15_000], 8, &[(Hellos, 1)]);
    expiry.milestones = &[MOVED, EXPIRED, HELD_AGAIN];
    expiry
}

/// A recall that its application has not answered when the lease is about to end, at the very bound of the clock
/// rates. The settings were confirmed before, which must not shorten a hold.
fn recall() -> Scenario {
    let mut recall = pair("recall", "a recall that takes longer than the lease");
    recall.managers[0].clock = AT_THE_BOUND;
    recall.slow_apps = true;
    recall.prelude.push(Prelude::Operate(configure(recall.settings.clone())));
    recall.commands = vec![move_all("b")];
    recall.boundary = Boundary::new(&[0, 6_000, 11_500, 12_000], 7, &[]);
    recall.milestones = &[MOVED, EXPIRED];
    recall
}

/// An operator halves the lease time while a lease runs, and then wants the range elsewhere.
fn shortened() -> Scenario {
    let mut shortened = pair("shortened", "a lease time that is shortened while leases run");
    let settings = Settings {
        lease: Duration::from_secs(6),
        hold: Duration::from_millis(6_500),
        renewal: Duration::from_secs(1),
        ..shortened.settings.clone()
    };
    shortened.commands = vec![configure(settings), move_all("b")];
    shortened.boundary = Boundary::new(&[0, 3_000, 7_000], 7, &[]);
    shortened.milestones = &[MOVED];
    shortened
}

/// The control: clocks that differ by 14 to 12, more than the bound of 13 to 12. Here leases must overlap, and the
/// checker must find it.
pub(super) fn drift() -> Scenario {
    let mut drift = pair("drift", "clock rates beyond the bound, where leases overlap");
    drift.expect = Expect::Violation;
    drift.managers[0].clock = Clock { numerator: 14, ..AT_THE_BOUND };
    drift.boundary = Boundary::new(&[0, 3_000, 11_500, 12_000], 5, &[]);
    drift
}
