//! What readers see of Trim.

use centrifuge_core::key::Key;
use centrifuge_core::manager::{AdminCommand, ManagerAction};
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::record::Reason;
use centrifuge_core::settings::Settings;
use centrifuge_core::trim::{TrimSkip, TrimTokens};

use crate::load::{Load, configure, overview, recalls, settings, trim_overview, trimmed};
use crate::support::pool;

/// One key has almost twice what a quarter of the load is.
fn load() -> Load {
    Load { spread: 4_000_000, hot: vec![(Key(7), 3_000_000), (Key(u64::MAX / 3), 200_000)] }
}

#[test]
fn readers_see_how_even_load_is_and_how_even_it_can_be() {
    let mut cluster = trimmed(settings(PartitionerKind::Trim));
    let owners = cluster.owners(["a", "b", "c", "d"]);
    load().run(&mut cluster, &owners, 200);
    let trim = trim_overview(&mut cluster);
    let summary = trim.summary;
    assert_eq!(u64::from(summary.peak_of_share), load().peak(&cluster, &owners));
    // 3,000 of 1,800 requests a second: nothing makes that even.
    assert_eq!(summary.floor_of_share, 1_666);
    assert!(summary.peak_before < 1_080, "{summary:?}");
    assert_eq!((summary.owners, summary.ranges), (4, cluster.table().len()));
    let most = owners.iter().map(|owner| cluster.table().of_session(cluster.session(*owner)).count()).max();
    assert_eq!(Some(summary.most_ranges), most);
    assert_ne!((summary.calm, summary.relief), Default::default());
    let [hot] = trim.hot_keys[..] else { panic!("one key is larger than a share: {:?}", trim.hot_keys) };
    assert_eq!((hot.key, hot.load, hot.share, trim.hot_key_count), (Key(7), 3_000_000, 1_666, 1));
    assert_eq!(cluster.entry(Key(7)).owner, Some(hot.session));
    let (_, moved) = trim.latest_move.expect("the others have given their part");
    assert!(cluster.stored().sessions.contains_key(&moved.to));
}

#[test]
fn what_is_told_of_moves_is_what_moves() {
    let mut cluster = trimmed(settings(PartitionerKind::Trim));
    let owners = cluster.owners(["a", "b", "c", "d"]);
    let start = cluster.mark();
    load().run(&mut cluster, &owners, 200);
    let told =
        cluster.noted.iter().filter(|(at, ..)| *at >= start).filter_map(|(_, _, action)| match action {
            ManagerAction::Trimmed(news) => {
                Some(news.moves.values().map(|tally| tally.key_share_ppb).sum::<u64>())
            }
            _ => None,
        });
    let balanced = recalls(&cluster, start).into_iter().filter(|(_, why)| matches!(why, Reason::Balanced(_)));
    let moved: u128 = balanced.map(|(range, _)| range.key_count()).sum();
    let (told, moved) = (u128::from(told.sum::<u64>()), (moved * 1_000_000_000) >> 64);
    assert!(moved > 0 && told.abs_diff(moved) < 100, "{told} and {moved} parts per billion of the keys");
}

#[test]
fn readers_see_why_load_stays_where_it_is() {
    let mut cluster = trimmed(Settings { churn_budget: 0, ..settings(PartitionerKind::Trim) });
    let owners = cluster.owners(["a", "b"]);
    load().run(&mut cluster, &owners, 60);
    let trim = trim_overview(&mut cluster);
    assert_eq!(trim.latest_skip.map(|(_, why)| why), Some(TrimSkip::BalancingOff));
    assert_eq!((trim.summary.calm, trim.summary.relief), (TrimTokens::default(), TrimTokens::default()));
    cluster.admin(AdminCommand::Freeze { namespace: pool(), why: "".into() }).expect("it is there");
    load().run(&mut cluster, &owners, 30);
    assert_eq!(trim_overview(&mut cluster).latest_skip.map(|(_, why)| why), Some(TrimSkip::Frozen));
}

/// A reason that stays the same is told once, not with every decision.
#[test]
fn a_reason_is_told_when_it_changes() {
    let mut cluster = trimmed(Settings { churn_budget: 0, ..settings(PartitionerKind::Trim) });
    let owners = cluster.owners(["a", "b"]);
    load().run(&mut cluster, &owners, 60);
    let start = cluster.mark();
    load().run(&mut cluster, &owners, 120);
    let told = cluster
        .noted
        .iter()
        .filter(|(at, _, action)| *at >= start && matches!(action, ManagerAction::Trimmed(_)));
    assert_eq!(told.count(), 0);
}

#[test]
fn nothing_is_seen_of_trim_where_another_partitioner_divides_the_keys() {
    let mut cluster = trimmed(settings(PartitionerKind::Trim));
    let owners = cluster.owners(["a", "b"]);
    load().run(&mut cluster, &owners, 60);
    assert!(overview(&mut cluster).trim.is_some());
    configure(&mut cluster, settings(PartitionerKind::ConsistentHash));
    load().run(&mut cluster, &owners, 60);
    assert_eq!(overview(&mut cluster).trim, None);
    configure(&mut cluster, settings(PartitionerKind::Trim));
    load().run(&mut cluster, &owners, 10);
    let trim = trim_overview(&mut cluster);
    assert_eq!(trim.latest_move, None, "it remembers nothing of its former time");
}
