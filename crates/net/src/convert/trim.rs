//! What Trim made of the loads of a namespace, as operators see it.

use centrifuge_core::id::SessionId;
use centrifuge_core::manager::TrimOverview;
use centrifuge_core::manager_state::NamespaceState;
use centrifuge_core::time::Instant;
use centrifuge_core::trim::{TrimHotKey, TrimMove, TrimSkip, TrimTokens};

use super::field::*;
use crate::proto::v1;

/// What Trim made of the loads, as of an instant.
pub(super) fn write_trim_status(
    trim: &TrimOverview,
    stored: &NamespaceState,
    now: Instant,
) -> v1::TrimStatus {
    let name = |session: SessionId| name_of(stored, session);
    let ms_ago = |at: Instant| write_millis(now.since(at));
    let summary = &trim.summary;
    v1::TrimStatus {
        decided_ms_ago: ms_ago(trim.decided_at),
        loads_known: summary.loads_known,
        peak: ratio(summary.peak_of_share),
        floor: ratio(summary.floor_of_share),
        goal: ratio(summary.peak_before),
        predicted: ratio(summary.peak_after),
        level: summary.level,
        calm: Some(summary.calm.into()),
        relief: Some(summary.relief.into()),
        credit: Some(summary.credit.into()),
        mean_ranges: summary.ranges as f64 / summary.owners.max(1) as f64,
        most_ranges: write_count(summary.most_ranges),
        hot_key_count: write_count(trim.hot_key_count),
        hot_keys: trim.hot_keys.iter().map(|hot| write_hot_key(hot, name)).collect(),
        latest_move: trim.latest_move.as_ref().map(|(at, moved)| write_move(ms_ago(*at), moved, name)),
        latest_skip: trim.latest_skip.map(|(at, skip)| write_skip(ms_ago(at), &skip, name)),
    }
}

impl From<TrimTokens> for v1::TrimTokens {
    fn from(tokens: TrimTokens) -> v1::TrimTokens {
        let part = |ppb: u64| ppb as f64 / 1e9;
        v1::TrimTokens { load: part(tokens.load_ppb), keys: part(tokens.keys_ppb) }
    }
}

fn write_hot_key(hot: &TrimHotKey, name: impl Fn(SessionId) -> String) -> v1::HotKey {
    let TrimHotKey { key, session, load, share } = *hot;
    v1::HotKey { key: key.0, owner: name(session), load, share: ratio(share) }
}

fn write_move(ms_ago: u64, moved: &TrimMove, name: impl Fn(SessionId) -> String) -> v1::TrimMove {
    v1::TrimMove {
        ms_ago,
        range: Some(moved.range.into()),
        from: moved.from.map(&name),
        to: name(moved.to),
        reason: moved.reason.as_str().to_owned(),
        words: moved.describe(),
    }
}

fn write_skip(ms_ago: u64, skip: &TrimSkip, name: impl Fn(SessionId) -> String) -> v1::TrimSkip {
    let about = skip.about();
    v1::TrimSkip {
        ms_ago,
        reason: skip.as_str().to_owned(),
        owner: about.map(|(session, _)| name(session)),
        ratio: about.map(|(_, permille)| ratio(permille)),
    }
}

/// The name of a session's Owner, or the session if it is gone.
fn name_of(stored: &NamespaceState, session: SessionId) -> String {
    stored.sessions.get(&session).map_or_else(|| session.to_string(), |info| info.name.to_string())
}

fn ratio(permille: u32) -> f64 {
    f64::from(permille) / 1_000.0
}
