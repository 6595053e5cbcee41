//! Whether the peers' clocks are as close as Flease assumes: what packets prove about them (protocol §9.6).

use std::collections::BTreeMap;
use std::time::Duration;

use super::message::PeerId;
use super::{FleaseAction, FleaseMachine, Step};
use crate::time::Instant;

/// What is known of the other peers' clocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Clocks {
    peers: BTreeMap<PeerId, Heard>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Heard {
    /// The latest reading of that peer's clock.
    reading: Instant,
    /// Whether that clock was proven to be too far away, and nothing recent says otherwise.
    is_apart: bool,
}

impl Clocks {
    /// Takes the readings of a packet: the sender's at its send, and this peer's at the send of the packet that the
    /// sender had by then. True if they prove that the clocks are more than epsilon apart.
    ///
    /// The packet was sent before `now` and after `echo`, so the sender's clock was ahead by at least `sent - now` and
    /// by at most `sent - echo`. That is a proof of agreement only if the two are recent.
    pub(super) fn on_packet(
        &mut self,
        now: Instant,
        from: PeerId,
        (sent, echo): (Instant, Instant),
        epsilon: Duration,
        recent: Duration,
    ) -> bool {
        let mut heard = self.peers.get(&from).copied().unwrap_or_default();
        heard.reading = heard.reading.max(sent);
        let echoes = echo != Instant::ZERO && echo <= now;
        let is_apart = now + epsilon < sent || echoes && sent + epsilon < echo;
        if is_apart || echoes && now.since(echo) <= recent {
            heard.is_apart = is_apart;
        }
        if heard != Heard::default() {
            self.peers.insert(from, heard);
        }
        is_apart
    }

    /// The latest reading of a peer's clock; zero if there is none.
    pub(super) fn reading(&self, peer: PeerId) -> Instant {
        self.peers.get(&peer).map_or(Instant::ZERO, |heard| heard.reading)
    }

    /// The peers whose clocks are too far away.
    pub(super) fn apart(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.peers.iter().filter(|(_, heard)| heard.is_apart).map(|(peer, _)| *peer)
    }
}

impl FleaseMachine {
    /// Steps down if no majority of the peers is left that agrees with this peer's clock, itself included.
    pub(super) fn judge_clock(&mut self, step: &mut Step) {
        let all = self.config.peers.len();
        let is_apart = all - self.clocks.apart().count() < all / 2 + 1;
        if is_apart == self.is_apart {
            return;
        }
        self.is_apart = is_apart;
        if is_apart {
            step.actions.push(FleaseAction::ClockApart { from: self.clocks.apart().collect() });
            self.on_untrusted_clock(step);
            self.takes_part_from = Instant::NEVER;
            self.postpone_all();
            self.probe_at = step.now;
        } else {
            step.actions.push(FleaseAction::ClockAgrees);
            self.probe_at = Instant::NEVER;
            self.recover(step.now);
        }
    }

    /// Asks every other peer for its clock again and again.
    pub(super) fn probe(&mut self, step: &mut Step) {
        self.ask_clocks(step);
        self.probe_at = step.now + self.config.round;
    }

    /// Asks every other peer for its clock. Of two that are apart either may be wrong, and the rest can tell; but whoever has nothing
    /// to say is not heard by itself, and one that is behind gets no answers, because its requests look old.
    pub(super) fn ask_clocks(&self, step: &mut Step) {
        for peer in self.config.peers.iter().filter(|peer| **peer != self.config.me) {
            step.outbox.entry(*peer).or_default();
        }
        step.probes = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPSILON: Duration = Duration::from_nanos(10);
    const RECENT: Duration = Duration::from_nanos(50);
    const PEER: PeerId = PeerId(2);

    fn hear(clocks: &mut Clocks, now: u64, sent: u64, echo: u64) -> bool {
        clocks.on_packet(Instant(now), PEER, (Instant(sent), Instant(echo)), EPSILON, RECENT)
    }

    #[test]
    fn only_what_is_certain_counts() {
        let mut clocks = Clocks::default();
        assert!(!hear(&mut clocks, 100, 110, 0), "ahead by epsilon");
        assert!(hear(&mut clocks, 100, 111, 0), "ahead by more");
        assert!(!hear(&mut clocks, 200, 90, 0), "perhaps it was on its way for long");
        assert!(!hear(&mut clocks, 200, 90, 100), "behind by epsilon");
        assert!(hear(&mut clocks, 200, 89, 100), "behind by more");
    }

    #[test]
    fn only_what_is_recent_clears() {
        let mut clocks = Clocks::default();
        assert!(hear(&mut clocks, 100, 120, 0));
        assert!(!hear(&mut clocks, 300, 300, 0) && clocks.apart().eq([PEER]), "it echoes nothing");
        assert!(!hear(&mut clocks, 300, 300, 200) && clocks.apart().eq([PEER]), "it echoes something old");
        assert!(!hear(&mut clocks, 300, 300, 280) && clocks.apart().next().is_none());
        assert_eq!(clocks.reading(PEER), Instant(300));
    }
}
