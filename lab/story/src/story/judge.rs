//! Looks at every moment of the story whether a device is silently wrong.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use centrifuge_harness::lock;

use super::board::{Behind, Board};

/// How often it looks.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What it saw.
#[derive(Debug, Default)]
pub(super) struct Judge {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    longest: Duration,
    /// Devices that believed an old address for longer than the bound, each belief once.
    silently_wrong: BTreeMap<(String, String, String), Behind>,
}

impl Judge {
    /// Looks for as long as the story goes on.
    pub(super) async fn watch(self: Arc<Judge>, board: Arc<Board>, bound: Duration) {
        loop {
            self.look(board.behind(), bound);
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn look(&self, behind: Vec<Behind>, bound: Duration) {
        let mut seen = lock(&self.seen);
        for behind in behind {
            seen.longest = seen.longest.max(behind.lasts);
            if behind.lasts > bound {
                let belief = (behind.device.clone(), behind.peer.clone(), behind.believes.clone());
                seen.silently_wrong.insert(belief, behind);
            }
        }
    }

    /// The longest that a connected device believed an old address.
    pub(super) fn longest(&self) -> Duration {
        lock(&self.seen).longest
    }

    /// Who was silently wrong since this was last asked.
    pub(super) fn take_silently_wrong(&self) -> Vec<Behind> {
        std::mem::take(&mut lock(&self.seen).silently_wrong).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lasts_too_long_is_wrong() {
        let behind = |seconds| Behind {
            device: "work".to_owned(),
            peer: "home".to_owned(),
            believes: "a".to_owned(),
            lasts: Duration::from_secs(seconds),
        };
        let judge = Judge::default();
        let bound = Duration::from_secs(20);
        judge.look(vec![behind(19)], bound);
        assert!(judge.take_silently_wrong().is_empty());
        judge.look(vec![behind(21)], bound);
        judge.look(vec![behind(22)], bound);
        assert_eq!(judge.take_silently_wrong(), [behind(22)]);
        assert_eq!(judge.longest(), Duration::from_secs(22));
    }
}
