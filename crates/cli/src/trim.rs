//! What Trim made of the loads of a namespace, in words and as JSON.

use centrifuge_net::proto::v1;
use serde_json::{Value, json};

use crate::words::{count, show_ms, show_range, show_share};

/// The rows of `namespace show`.
pub(crate) fn describe(trim: &v1::TrimStatus) -> Vec<(&'static str, String)> {
    let [calm, relief, credit] = [trim.calm, trim.relief, trim.credit].map(Option::unwrap_or_default);
    let of = if trim.loads_known { "load" } else { "keys" };
    let mut rows = vec![
        ("balance", balance(trim)),
        ("decided", format!("{} ago", seconds(trim.decided_ms_ago))),
        ("counted by", of.to_owned()),
        ("calm budget left", tokens(calm)),
        ("relief budget left", tokens(relief)),
    ];
    if credit != v1::TrimTokens::default() {
        rows.push(("credit left", tokens(credit)));
    }
    rows.push(("ranges/owner", format!("{:.1} on average, {} at most", trim.mean_ranges, trim.most_ranges)));
    rows.extend(trim.latest_move.as_ref().map(|latest| ("latest move", describe_move(latest))));
    rows.extend(trim.latest_skip.as_ref().map(|latest| ("latest skip", describe_skip(latest))));
    rows.extend(trim.hot_keys.iter().map(|hot| ("replica candidate", describe_hot_key(hot))));
    let left_out = (trim.hot_key_count as usize).saturating_sub(trim.hot_keys.len());
    if left_out > 0 {
        rows.push(("", format!("and {} more", count(left_out, "key"))));
    }
    rows
}

/// How even the load is, in a few words.
pub(crate) fn balance(trim: &v1::TrimStatus) -> String {
    let v1::TrimStatus { peak, floor, goal, predicted, .. } = trim;
    format!(
        "the fullest Owner has {peak:.3} of an even share (floor {floor:.3}), {goal:.3} of its goal, {predicted:.3} after the moves"
    )
}

/// What happened last, in a few words.
pub(crate) fn latest(trim: &v1::TrimStatus) -> String {
    let moved = trim.latest_move.as_ref().map(|latest| (latest.ms_ago, &latest.reason));
    let skipped = trim.latest_skip.as_ref().map(|latest| (latest.ms_ago, &latest.reason));
    let latest = moved.into_iter().chain(skipped).min_by_key(|(ms_ago, _)| *ms_ago);
    latest.map_or_else(String::new, |(ms_ago, reason)| format!("{reason}, {} ago", seconds(ms_ago)))
}

fn describe_move(latest: &v1::TrimMove) -> String {
    let from = latest.from.as_ref().map_or_else(String::new, |from| format!(" from {from}"));
    let range = show_range(latest.range);
    format!("{} ago, {range}{from} to {}: {}", seconds(latest.ms_ago), latest.to, latest.words)
}

fn describe_skip(latest: &v1::TrimSkip) -> String {
    let about = match (&latest.owner, latest.ratio) {
        (Some(owner), Some(ratio)) => format!(": {owner} stays at {ratio:.3} of its goal"),
        _ => String::new(),
    };
    format!("{} ago, {}{about}", seconds(latest.ms_ago), latest.reason)
}

fn describe_hot_key(hot: &v1::HotKey) -> String {
    format!(
        "{:016x} at {}: {:.3} of an even share, {} requests/s",
        hot.key,
        hot.owner,
        hot.share,
        hot.load / 1_000
    )
}

/// Parts of all load and of all keys.
pub(crate) fn tokens(tokens: v1::TrimTokens) -> String {
    format!("{} of the load, {} of the keys", show_share(tokens.load), show_share(tokens.keys))
}

fn seconds(ms: u64) -> String {
    show_ms(ms / 1_000 * 1_000)
}

/// The same for programs, with the names that `/status` uses.
pub(crate) fn object(trim: &v1::TrimStatus) -> Value {
    let part = |tokens: Option<v1::TrimTokens>| {
        let tokens = tokens.unwrap_or_default();
        json!({ "load": tokens.load, "keys": tokens.keys })
    };
    json!({
        "decided_seconds_ago": trim.decided_ms_ago / 1_000,
        "loads_known": trim.loads_known,
        "peak": trim.peak,
        "floor": trim.floor,
        "goal": trim.goal,
        "predicted": trim.predicted,
        "level": trim.level,
        "calm": part(trim.calm),
        "relief": part(trim.relief),
        "credit": part(trim.credit),
        "mean_ranges": trim.mean_ranges,
        "most_ranges": trim.most_ranges,
        "hot_key_count": trim.hot_key_count,
        "hot_keys": trim.hot_keys.iter().map(hot_key_object).collect::<Vec<_>>(),
        "latest_move": trim.latest_move.as_ref().map(move_object),
        "latest_skip": trim.latest_skip.as_ref().map(skip_object),
    })
}

fn hot_key_object(hot: &v1::HotKey) -> Value {
    json!({ "key": format!("{:016x}", hot.key), "owner": hot.owner, "load": hot.load, "share": hot.share })
}

fn move_object(latest: &v1::TrimMove) -> Value {
    json!({
        "seconds_ago": latest.ms_ago / 1_000,
        "range": show_range(latest.range),
        "from": latest.from,
        "to": latest.to,
        "reason": latest.reason,
        "words": latest.words,
    })
}

fn skip_object(latest: &v1::TrimSkip) -> Value {
    json!({
        "seconds_ago": latest.ms_ago / 1_000,
        "reason": latest.reason,
        "owner": latest.owner,
        "ratio": latest.ratio,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trim() -> v1::TrimStatus {
        let skip = v1::TrimSkip {
            ms_ago: 4_400,
            reason: "churn-budget-spent".to_owned(),
            owner: Some("b".to_owned()),
            ratio: Some(1.31),
        };
        let hot = v1::HotKey { key: 0xab, owner: "a".to_owned(), load: 2_500_000, share: 1.5 };
        v1::TrimStatus {
            loads_known: true,
            peak: 1.5,
            floor: 1.25,
            goal: 1.2,
            predicted: 1.02,
            calm: Some(v1::TrimTokens { load: 0.1, keys: 0.05 }),
            mean_ranges: 20.5,
            most_ranges: 31,
            hot_key_count: 3,
            hot_keys: vec![hot],
            latest_skip: Some(skip),
            ..v1::TrimStatus::default()
        }
    }

    #[test]
    fn an_operator_reads_how_even_the_load_is_and_what_keeps_it_so() {
        let text: Vec<String> =
            describe(&trim()).iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let expected = [
            "balance: the fullest Owner has 1.500 of an even share (floor 1.250), 1.200 of its goal, 1.020 after the moves",
            "decided: 0s ago",
            "counted by: load",
            "calm budget left: 10.0% of the load, 5.0% of the keys",
            "relief budget left: 0.0% of the load, 0.0% of the keys",
            "ranges/owner: 20.5 on average, 31 at most",
            "latest skip: 4s ago, churn-budget-spent: b stays at 1.310 of its goal",
            "replica candidate: 00000000000000ab at a: 1.500 of an even share, 2500 requests/s",
            ": and 2 keys more",
        ];
        assert_eq!(text, expected);
        assert_eq!(latest(&trim()), "churn-budget-spent, 4s ago");
    }

    #[test]
    fn a_program_reads_numbers() {
        let object = object(&trim());
        assert_eq!(object["goal"], 1.2);
        assert_eq!(object["hot_keys"][0]["key"], "00000000000000ab");
        assert_eq!(object["latest_skip"]["owner"], "b");
        assert!(object["latest_move"].is_null());
    }
}
