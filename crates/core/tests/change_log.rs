//! The change log answers with what is missing, by the shorter way.

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::change_log::ChangeLog;
use centrifuge_core::id::{Generation, Lsn, Nonce};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::message::{Position, UpdateBody};
use centrifuge_core::table::PublishedEntry;
use centrifuge_core::time::Instant;

const LOG: Nonce = Nonce(1);
const SPAN: Duration = Duration::from_secs(300);
/// A table so large that a snapshot is never the shorter way.
const LARGE: usize = 1000;

fn at(secs: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(secs)
}

/// An entry that tells the changes apart.
fn entry(number: u64) -> PublishedEntry {
    let range = KeyRange::one(Key(number));
    let number = Generation(number);
    PublishedEntry { range, owner: None, generation: number, state_since: number, quarantined: false }
}

fn entries(numbers: impl IntoIterator<Item = u64>) -> Arc<[PublishedEntry]> {
    numbers.into_iter().map(entry).collect()
}

/// A log that began at position 10 and has one change a minute, each with one entry: 11 at 1:00, 12 at 2:00, ...
fn log_with(changes: u64) -> ChangeLog {
    let mut log = ChangeLog::new(LOG, Lsn(10));
    for number in 1..=changes {
        log.push(at(60 * number), Lsn(10 + number), entries([10 + number]), SPAN);
    }
    log
}

fn ask(log: &ChangeLog, position: Option<(Nonce, u64)>, table_len: usize) -> UpdateBody {
    let position = position.map(|(log, lsn)| Position { log, lsn: Lsn(lsn) });
    log.answer(position, table_len, || entries([999]))
}

fn snapshot(lsn: u64) -> UpdateBody {
    UpdateBody::Snapshot { lsn: Lsn(lsn), entries: entries([999]) }
}

fn changes(from: u64, to: u64) -> UpdateBody {
    UpdateBody::Changes { from: Lsn(from), to: Lsn(to), entries: entries(from + 1..=to) }
}

#[test]
fn who_has_everything_gets_a_heartbeat() {
    assert_eq!(ask(&log_with(3), Some((LOG, 13)), LARGE), UpdateBody::Heartbeat { lsn: Lsn(13) });
    assert_eq!(ask(&log_with(0), Some((LOG, 10)), LARGE), UpdateBody::Heartbeat { lsn: Lsn(10) });
}

#[test]
fn centrifuge_2_2_1_who_is_behind_gets_the_changes_since() {
    let log = log_with(3);
    assert_eq!(ask(&log, Some((LOG, 12)), LARGE), changes(12, 13));
    assert_eq!(ask(&log, Some((LOG, 10)), LARGE), changes(10, 13));
}

#[test]
fn a_single_change_is_not_copied() {
    let mut log = ChangeLog::new(LOG, Lsn(10));
    let pushed = entries([11]);
    log.push(at(0), Lsn(11), Arc::clone(&pushed), SPAN);
    let UpdateBody::Changes { entries, .. } = ask(&log, Some((LOG, 10)), LARGE) else { panic!("changes") };
    assert!(Arc::ptr_eq(&entries, &pushed));
}

#[test]
fn who_has_nothing_gets_a_snapshot() {
    assert_eq!(ask(&log_with(3), None, LARGE), snapshot(13));
}

#[test]
fn centrifuge_2_2_1_who_is_behind_the_log_gets_a_snapshot() {
    assert_eq!(ask(&log_with(3), Some((LOG, 9)), LARGE), snapshot(13));
    assert_eq!(ask(&log_with(0), Some((LOG, 9)), LARGE), snapshot(10));
}

#[test]
fn changes_older_than_the_span_are_forgotten() {
    // 11 was made at 1:00 and is kept up to 6:00; 17 is made at 7:00 and drives it out.
    assert_eq!(log_with(6).len(), 6);
    let log = log_with(7);
    assert_eq!(log.len(), 6);
    assert_eq!(ask(&log, Some((LOG, 10)), LARGE), snapshot(17));
    assert_eq!(ask(&log, Some((LOG, 11)), LARGE), changes(11, 17));
}

#[test]
fn time_alone_truncates_when_asked_to() {
    let mut log = log_with(3);
    log.truncate(at(60) + SPAN, SPAN);
    assert_eq!(log.len(), 3);
    log.truncate(at(120) + SPAN, SPAN);
    assert_eq!(log.len(), 2);
    log.truncate(at(10_000), SPAN);
    assert!(log.is_empty());
    assert_eq!((log.id(), log.end()), (LOG, Lsn(13)));
    assert_eq!(ask(&log, Some((LOG, 13)), LARGE), UpdateBody::Heartbeat { lsn: Lsn(13) });
    assert_eq!(ask(&log, Some((LOG, 12)), LARGE), snapshot(13));
}

#[test]
fn centrifuge_2_2_1_a_snapshot_that_is_smaller_goes_instead_of_the_changes() {
    let log = log_with(3);
    assert_eq!(ask(&log, Some((LOG, 10)), 3), changes(10, 13));
    assert_eq!(ask(&log, Some((LOG, 10)), 2), snapshot(13));
    assert_eq!(ask(&log, Some((LOG, 11)), 2), changes(11, 13));
}

#[test]
fn a_position_from_the_future_or_of_another_log_gets_a_snapshot() {
    assert_eq!(ask(&log_with(3), Some((LOG, 14)), LARGE), snapshot(13));
    assert_eq!(ask(&log_with(3), Some((LOG, u64::MAX)), LARGE), snapshot(13));
    assert_eq!(ask(&log_with(3), Some((Nonce(2), 12)), LARGE), snapshot(13));
    assert_eq!(ask(&log_with(3), Some((Nonce(2), 13)), LARGE), snapshot(13));
}

#[test]
fn positions_near_the_end_of_the_counter_do_not_wrap() {
    let mut log = ChangeLog::new(LOG, Lsn(u64::MAX - 1));
    log.push(at(0), Lsn(u64::MAX), entries([1]), SPAN);
    assert_eq!(ask(&log, Some((LOG, 0)), LARGE), snapshot(u64::MAX));
    let UpdateBody::Changes { from, to, .. } = ask(&log, Some((LOG, u64::MAX - 1)), LARGE) else {
        panic!("changes")
    };
    assert_eq!((from, to), (Lsn(u64::MAX - 1), Lsn(u64::MAX)));
}
