//! What Trim decides, in the log and in counts: a line for a decision, but no flood of them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use centrifuge_core::id::Namespace;
use centrifuge_core::manager::{TrimNews, TrimTally};
use centrifuge_core::trim::TrimSummary;
use tracing::info;

use crate::metrics::Metrics;

/// Lines about moves of one namespace are at least so far apart.
const MOVES_INTERVAL: Duration = Duration::from_secs(1);
/// Lines that only say why nothing moves are rarer: the reasons come and go.
const SKIPS_INTERVAL: Duration = Duration::from_secs(60);

/// The most namespaces that are remembered: when there are more, all of them may speak again.
const MAX_NAMESPACES: usize = 1_024;

/// Which lines are written.
#[derive(Debug, Default)]
pub(crate) struct TrimLog {
    said: BTreeMap<(Namespace, bool), Said>,
}

#[derive(Debug)]
struct Said {
    at: Instant,
    suppressed: u64,
}

impl TrimLog {
    /// Counts a decision, and logs it if it is time to.
    pub(crate) fn note(&mut self, news: &TrimNews, metrics: &Metrics) {
        let namespace = &news.namespace;
        for (reason, tally) in &news.moves {
            metrics.trim_moves.with([namespace.as_str(), reason.as_str()]).inc_by(tally.ranges);
        }
        let Some(suppressed) = self.admit(news, Instant::now()) else { return };
        let TrimSummary { peak_of_share, floor_of_share, calm, relief, .. } = news.summary;
        let [peak, floor, before, after] =
            [peak_of_share, floor_of_share, news.summary.peak_before, news.summary.peak_after]
                .map(|permille| f64::from(permille) / 1_000.0);
        let TrimTally { ranges, load, key_share_ppb } = total(news);
        let (requests, keys_percent) = (load / 1_000, key_share_ppb as f64 / 1e7);
        let (calm, relief) = (calm.describe(), relief.describe());
        let (why, skipped, merges) = (reasons(news), news.skipped.join(", "), news.merges);
        info!(
            %namespace, ranges, why, requests, keys_percent, before, after, peak, floor, calm, relief, merges,
            skipped, suppressed, "{}", if ranges > 0 { "Trim moves load" } else { "Trim leaves load where it is" }
        );
    }

    /// Whether to write a line now, and how many alike were left out since the last.
    fn admit(&mut self, news: &TrimNews, now: Instant) -> Option<u64> {
        let moves = !news.moves.is_empty();
        let interval = if moves { MOVES_INTERVAL } else { SKIPS_INTERVAL };
        if self.said.len() > MAX_NAMESPACES {
            self.said.clear();
        }
        let Some(said) = self.said.get_mut(&(news.namespace.clone(), moves)) else {
            self.said.insert((news.namespace.clone(), moves), Said { at: now, suppressed: 0 });
            return Some(0);
        };
        if now.duration_since(said.at) < interval {
            said.suppressed += 1;
            return None;
        }
        said.at = now;
        Some(std::mem::take(&mut said.suppressed))
    }
}

/// All moves of a decision together.
fn total(news: &TrimNews) -> TrimTally {
    news.moves.values().fold(TrimTally::default(), |sum, tally| TrimTally {
        ranges: sum.ranges + tally.ranges,
        load: sum.load.saturating_add(tally.load),
        key_share_ppb: sum.key_share_ppb.saturating_add(tally.key_share_ppb),
    })
}

fn reasons(news: &TrimNews) -> String {
    let reasons = news.moves.iter().map(|(reason, tally)| format!("{} {}", tally.ranges, reason.as_str()));
    reasons.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use centrifuge_core::trim::TrimReason;

    fn news(ranges: u64) -> TrimNews {
        let tally = TrimTally { ranges, load: 7_000, key_share_ppb: 10_000_000 };
        let moves = (ranges > 0).then_some((TrimReason::ShedPart, tally));
        TrimNews {
            namespace: Namespace::new("rooms").expect("a plain label"),
            moves: moves.into_iter().collect(),
            merges: 0,
            skipped: vec!["no-room"],
            summary: TrimSummary::default(),
        }
    }

    #[test]
    fn every_move_is_counted_and_lines_are_at_least_a_second_apart() {
        let (mut log, metrics, start) = (TrimLog::default(), Metrics::new(), Instant::now());
        (0..3).for_each(|_| log.note(&news(2), &metrics));
        assert_eq!(metrics.trim_moves.with(["rooms", "shed-part"]).get(), 6);
        assert!(log.admit(&news(2), start + MOVES_INTERVAL / 2).is_none());
        let suppressed = log.admit(&news(2), Instant::now() + MOVES_INTERVAL);
        assert_eq!(suppressed, Some(3));
    }

    #[test]
    fn reasons_against_moves_are_said_once_a_minute_and_do_not_keep_moves_from_being_said() {
        let (mut log, start) = (TrimLog::default(), Instant::now());
        assert_eq!(log.admit(&news(0), start), Some(0));
        assert_eq!(log.admit(&news(0), start + MOVES_INTERVAL), None);
        assert_eq!(log.admit(&news(1), start + MOVES_INTERVAL), Some(0));
        assert_eq!(log.admit(&news(0), start + SKIPS_INTERVAL), Some(1));
    }
}
