//! Asks an Owner for every key, again and again, and writes down when it said yes.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use centrifuge::hot::HotLeases;
use centrifuge::{Generation, Key};

use super::stretch::{Stretch, Stretches};
use crate::bug::Bug;
use crate::lines::{Journal, Nanos, OwnerLine, Span, true_now};
use crate::plan::key_name;

/// The pause between two rounds.
pub(super) const PROBE_INTERVAL: Duration = Duration::from_millis(10);
/// With the bug: a pause that makes the Owner careless, for as long again.
const LONG_PAUSE: Nanos = 1_000_000_000;

/// The prober: a thread of its own, so that a busy runtime does not hide what the checks would say.
pub(super) struct Probe {
    leases: HotLeases,
    keys: Vec<Key>,
    journal: Arc<Journal>,
    bug: Option<Bug>,
    stretches: Stretches<u64>,
}

impl Probe {
    pub(super) fn new(leases: HotLeases, keys: u32, journal: Arc<Journal>, bug: Option<Bug>) -> Probe {
        let keys = (0..keys).map(|key| Key::of(key_name(key).as_bytes())).collect();
        Probe { leases, keys, journal, bug, stretches: Stretches::new() }
    }

    /// Probes as long as the process lives.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut round_at = true_now();
        let mut careless_until = 0;
        loop {
            let now = true_now();
            if self.bug == Some(Bug::UncheckedOwner) && now - round_at > LONG_PAUSE {
                careless_until = now + LONG_PAUSE;
            }
            round_at = now;
            let lines = self.round(now < careless_until);
            self.journal.write(&lines)?;
            thread::sleep(PROBE_INTERVAL);
        }
    }

    /// Asks for every key once, and gives what is worth writing.
    fn round(&mut self, is_careless: bool) -> Vec<OwnerLine> {
        let mut written = Vec::new();
        for (key, place) in (0_u32..).zip(&self.keys) {
            let before = self.stretches.lease_of(key);
            let (at, answer) = Span::of(|| match before {
                Some(generation) if is_careless => Some(Generation(generation)),
                _ => self.leases.check_lease_now(*place).ok(),
            });
            match answer {
                Some(Generation(generation)) => {
                    self.stretches.said_yes(key, generation, at, &mut written);
                }
                None => self.stretches.said_no(key, &mut written),
            }
        }
        written.into_iter().map(line).collect()
    }
}

fn line(stretch: Stretch<u64>) -> OwnerLine {
    let Stretch { key, lease, first, last, checks } = stretch;
    OwnerLine::Held { key, generation: lease, first, last, checks }
}
