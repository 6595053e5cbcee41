//! What Trim made of the loads of a namespace, as JSON and as gauges.

use centrifuge_core::id::SessionId;
use centrifuge_core::manager::TrimOverview;
use centrifuge_core::manager_state::NamespaceState;
use centrifuge_core::time::Instant;
use centrifuge_core::trim::{TrimHotKey, TrimMove, TrimSkip, TrimTokens};
use serde::Serialize;

use crate::metrics::Metrics;

/// What Trim made of the loads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct TrimStatus {
    /// When the latest decision was made.
    pub decided_seconds_ago: u64,
    /// Whether enough Owners report load; ratios are of key space otherwise.
    pub loads_known: bool,
    /// The load of the fullest Owner to its even share by weight.
    pub peak: f64,
    /// The lowest that this can be: above 1 if one key is larger than a share.
    pub floor: f64,
    /// The load of the fullest Owner to the least that it can have.
    pub goal: f64,
    /// The same once all moves have ended.
    pub predicted: f64,
    /// The load of an Owner of weight 100 that has its share, per 1,000 seconds.
    pub level: u64,
    /// What may move now for small imbalances.
    pub calm: Tokens,
    /// What may move now for large ones.
    pub relief: Tokens,
    /// What is left of a new namespace's credit.
    pub credit: Tokens,
    /// Ranges for each Owner.
    pub mean_ranges: f64,
    /// Ranges of the Owner with the most.
    pub most_ranges: usize,
    /// How many ranges an Owner may have on average.
    pub max_ranges: u32,
    /// How many keys are larger than a share.
    pub hot_key_count: usize,
    /// The largest of them: candidates for read replicas.
    pub hot_keys: Vec<HotKey>,
    /// The most urgent of the latest moves.
    pub latest_move: Option<LatestMove>,
    /// Why load stayed where it was at the latest decision that left some.
    pub latest_skip: Option<LatestSkip>,
}

/// Parts of all load and of all keys, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Tokens {
    /// Of all load.
    pub load: f64,
    /// Of all keys.
    pub keys: f64,
}

/// A key that is larger than a share.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct HotKey {
    /// The key, in hexadecimal digits.
    pub key: String,
    /// Who has it.
    pub owner: String,
    /// Its load per 1,000 seconds.
    pub load: u64,
    /// Its load to an even share of its Owner.
    pub share: f64,
}

/// A move that was decided.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct LatestMove {
    /// When.
    pub seconds_ago: u64,
    /// The keys.
    pub range: String,
    /// Who has it; nothing if nobody.
    pub from: Option<String>,
    /// Who gets it.
    pub to: String,
    /// Why.
    pub reason: &'static str,
    /// Why, what it changes and what it costs, in words.
    pub words: String,
}

/// A reason that load stayed where it was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct LatestSkip {
    /// When.
    pub seconds_ago: u64,
    /// Why.
    pub reason: &'static str,
    /// The Owner whose load stays, if it is about one.
    pub owner: Option<String>,
    /// Its load to the least that it can have.
    pub ratio: Option<f64>,
}

impl TrimStatus {
    /// How it is now.
    pub(super) fn of(trim: &TrimOverview, stored: &NamespaceState, now: Instant) -> TrimStatus {
        let name = |session: SessionId| name_of(stored, session);
        let seconds = |at: Instant| now.since(at).as_secs();
        let summary = &trim.summary;
        TrimStatus {
            decided_seconds_ago: seconds(trim.decided_at),
            loads_known: summary.loads_known,
            peak: ratio(summary.peak_of_share),
            floor: ratio(summary.floor_of_share),
            goal: ratio(summary.peak_before),
            predicted: ratio(summary.peak_after),
            level: summary.level,
            calm: summary.calm.into(),
            relief: summary.relief.into(),
            credit: summary.credit.into(),
            mean_ranges: summary.ranges as f64 / summary.owners.max(1) as f64,
            most_ranges: summary.most_ranges,
            max_ranges: stored.settings.max_ranges_per_owner,
            hot_key_count: trim.hot_key_count,
            hot_keys: trim.hot_keys.iter().map(|hot| HotKey::of(hot, name)).collect(),
            latest_move: trim.latest_move.as_ref().map(|(at, m)| LatestMove::of(seconds(*at), m, name)),
            latest_skip: trim.latest_skip.map(|(at, skip)| LatestSkip::of(seconds(at), &skip, name)),
        }
    }

    /// Sets the gauges of a namespace.
    pub(super) fn show(&self, namespace: &str, metrics: &Metrics) {
        let ratios =
            [("peak", self.peak), ("floor", self.floor), ("goal", self.goal), ("predicted", self.predicted)];
        for (of, ratio) in ratios {
            metrics.trim_ratio.with([namespace, of]).set(ratio);
        }
        for (bucket, tokens) in [("calm", self.calm), ("relief", self.relief), ("credit", self.credit)] {
            metrics.trim_budget.with([namespace, bucket, "load"]).set(tokens.load);
            metrics.trim_budget.with([namespace, bucket, "keys"]).set(tokens.keys);
        }
        let ranges = [
            ("mean", self.mean_ranges),
            ("most", self.most_ranges as f64),
            ("limit", f64::from(self.max_ranges)),
        ];
        for (of, ranges) in ranges {
            metrics.trim_ranges_per_owner.with([namespace, of]).set(ranges);
        }
        metrics.trim_hot_keys.with([namespace]).set(super::number(self.hot_key_count));
    }
}

/// Forgets the gauges of all namespaces, before those of the present ones are set.
pub(super) fn clear(metrics: &Metrics) {
    metrics.trim_ratio.clear();
    metrics.trim_budget.clear();
    metrics.trim_ranges_per_owner.clear();
    metrics.trim_hot_keys.clear();
}

impl From<TrimTokens> for Tokens {
    fn from(tokens: TrimTokens) -> Tokens {
        let part = |ppb: u64| ppb as f64 / 1e9;
        Tokens { load: part(tokens.load_ppb), keys: part(tokens.keys_ppb) }
    }
}

impl HotKey {
    fn of(hot: &TrimHotKey, name: impl Fn(SessionId) -> String) -> HotKey {
        let TrimHotKey { key, session, load, share } = *hot;
        HotKey { key: key.to_string(), owner: name(session), load, share: ratio(share) }
    }
}

impl LatestMove {
    fn of(seconds_ago: u64, moved: &TrimMove, name: impl Fn(SessionId) -> String) -> LatestMove {
        LatestMove {
            seconds_ago,
            range: moved.range.to_string(),
            from: moved.from.map(&name),
            to: name(moved.to),
            reason: moved.reason.as_str(),
            words: moved.describe(),
        }
    }
}

impl LatestSkip {
    fn of(seconds_ago: u64, skip: &TrimSkip, name: impl Fn(SessionId) -> String) -> LatestSkip {
        let about = skip.about();
        LatestSkip {
            seconds_ago,
            reason: skip.as_str(),
            owner: about.map(|(session, _)| name(session)),
            ratio: about.map(|(_, permille)| ratio(permille)),
        }
    }
}

/// The name of a session's Owner, or the session if it is gone.
fn name_of(stored: &NamespaceState, session: SessionId) -> String {
    stored.sessions.get(&session).map_or_else(|| session.to_string(), |info| info.name.to_string())
}

fn ratio(permille: u32) -> f64 {
    f64::from(permille) / 1_000.0
}
