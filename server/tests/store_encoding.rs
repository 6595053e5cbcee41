//! Whatever the machine knows is stored and comes back the same, and what was stored once is readable for ever.

mod store_support;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use centrifuge_core::group::Group;
use centrifuge_core::id::{Generation, Index, Namespace, Nonce, OwnerName, SessionId, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::LoadPolicyKind;
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::plant::Plants;
use centrifuge_core::record::{Batch, Change, Reason, Record, SessionInfo};
use centrifuge_core::settings::Settings;
use centrifuge_net::proto::store::v1 as stored;
use centrifuge_server::store::backup::read_backup;
use centrifuge_server::store::{
    Contents, DecodeError, Kind, StoredBatch, decode_batch, decode_group, encode_batch, encode_group, seal,
    unseal,
};
use proptest::prelude::*;
use prost::Message;
use store_support::strategies;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_batch_comes_back_the_same(batch in strategies::batch()) {
        let bytes = seal(Kind::Batch, &encode_batch(&batch));
        let message = unseal(Kind::Batch, &bytes).expect("sealed a moment ago");
        prop_assert_eq!(decode_batch(message), Ok(batch));
    }

    #[test]
    fn a_record_comes_back_the_same(record in strategies::record()) {
        let batch = Batch { term: Term(1), records: vec![record] };
        prop_assert_eq!(decode_batch(encode_batch(&batch)), Ok(batch));
    }

    #[test]
    fn a_group_comes_back_the_same(group in strategies::group()) {
        let bytes = seal(Kind::Snapshot, &encode_group(&group));
        let message = unseal(Kind::Snapshot, &bytes).expect("sealed a moment ago");
        prop_assert_eq!(decode_group(message), Ok(group));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(batch) = stored::Batch::decode(bytes.as_slice()) {
            let _ = decode_batch(batch);
        }
        if let Ok(group) = stored::Group::decode(bytes.as_slice()) {
            let _ = decode_group(group);
        }
    }

    #[test]
    fn a_changed_byte_of_a_message_is_decoded_or_refused(
        group in strategies::group(),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = encode_group(&group).encode_to_vec();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        if let Ok(group) = stored::Group::decode(bytes.as_slice()) {
            let _ = decode_group(group);
        }
    }
}

#[test]
fn a_table_with_a_hole_or_an_overlap_is_refused() {
    let good = encode_group(&golden_group());
    let refused = |break_it: &dyn Fn(&mut Vec<stored::TableEntry>)| {
        let mut group = good.clone();
        break_it(&mut group.namespaces[0].table);
        let name = group.namespaces[0].name.clone();
        assert_eq!(decode_group(group), Err(DecodeError::TableNotWhole(name)));
    };
    assert!(good.namespaces[0].table.len() > 1, "the table has several entries");
    refused(&|table| table.truncate(table.len() - 1));
    refused(&Vec::clear);
    refused(&|table| table.swap(0, 1));
    refused(&|table| table.push(table[0]));
}

#[test]
fn what_is_missing_or_unknown_is_refused_by_the_name_of_its_field() {
    let decode = |kind| decode_batch(stored::Batch { term: 1, records: vec![stored::Record { kind }] });
    assert_eq!(decode(None), Err(DecodeError::Missing("record")));
    let namespace = stored::NamespaceRecord { namespace: "No Label".to_owned(), change: None, reason: None };
    let error = decode(Some(stored::record::Kind::Namespace(namespace.clone()))).expect_err("no label");
    assert!(error.to_string().contains("`namespace`"), "{error}");
    let change = stored::change::Kind::Released(stored::Lease {
        range: Some(stored::Range { first: 5, last: 4 }),
        generation: 1,
    });
    let namespace = stored::NamespaceRecord {
        namespace: "rooms".to_owned(),
        change: Some(stored::Change { kind: Some(change) }),
        reason: Some(stored::Reason { kind: 99, words: String::new() }),
    };
    let decoded = decode(Some(stored::record::Kind::Namespace(namespace.clone())));
    assert_eq!(decoded, Err(DecodeError::EmptyRange("released.range")));
    let frozen = stored::Change { kind: Some(stored::change::Kind::Frozen(stored::Nothing {})) };
    let namespace = stored::NamespaceRecord { change: Some(frozen), ..namespace };
    let decoded = decode(Some(stored::record::Kind::Namespace(namespace)));
    assert_eq!(decoded, Err(DecodeError::UnknownChoice { field: "reason", value: 99 }));
}

/// The bytes of version 1. They were written once and are never written again: a test that fails here has found a
/// change that makes existing stores unreadable.
///
/// A file that is missing is written if `CENTRIFUGE_WRITE_GOLDEN` is set, and never replaced.
fn golden(name: &str, write: impl FnOnce(&PathBuf)) -> PathBuf {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/store/v1").join(name);
    if !file.exists() && std::env::var_os("CENTRIFUGE_WRITE_GOLDEN").is_some() {
        fs::create_dir_all(file.parent().expect("a folder")).expect("writable");
        write(&file);
    }
    file
}

#[test]
fn version_1_of_a_batch_is_readable() {
    let batch = golden_batch();
    let message = stored::StoredBatch {
        index: 77,
        written_at_micros: 1_700_000_000_123_456,
        batch: Some(encode_batch(&batch)),
    };
    let sealed = seal(Kind::Batch, &message);
    let bytes =
        fs::read(golden("batch.bin", |file| fs::write(file, &sealed).expect("writable"))).expect("there");
    let read: stored::StoredBatch = unseal(Kind::Batch, &bytes).expect("readable for ever");
    assert_eq!((read.index, read.written_at_micros), (77, 1_700_000_000_123_456));
    assert_eq!(decode_batch(read.batch.expect("a batch")), Ok(batch));
    assert_eq!(bytes, sealed, "this version still writes version 1");
}

#[test]
fn version_1_of_a_snapshot_is_readable() {
    let group = golden_group();
    let sealed = seal(Kind::Snapshot, &stored::Snapshot { index: 78, group: Some(encode_group(&group)) });
    let bytes =
        fs::read(golden("snapshot.bin", |file| fs::write(file, &sealed).expect("writable"))).expect("there");
    let read: stored::Snapshot = unseal(Kind::Snapshot, &bytes).expect("readable for ever");
    assert_eq!(read.index, 78);
    assert_eq!(decode_group(read.group.expect("a group")), Ok(group));
    assert_eq!(bytes, sealed, "this version still writes version 1");
}

#[test]
fn version_1_of_a_backup_is_readable() {
    let contents = golden_contents();
    let file = golden("backup.bin", |file| {
        let folder = tempfile::tempdir().expect("a folder");
        let store = centrifuge_server::store::Backend::File(folder.path().join("store"));
        store.create(&contents).expect("a store");
        centrifuge_server::store::backup::backup(&store, file).expect("a backup");
    });
    let (read, taken_at) = read_backup(&file).expect("readable for ever");
    assert_eq!(read, contents);
    assert!(taken_at > SystemTime::UNIX_EPOCH);
}

fn golden_contents() -> Contents {
    let written_at = |index| SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + index);
    let batch =
        |index| StoredBatch { index: Index(index), written_at: written_at(index), batch: golden_batch() };
    Contents {
        term: Term(12),
        not_before: Some(written_at(99)),
        index: Index(3),
        group: golden_group(),
        history: vec![batch(2), batch(3)],
    }
}

fn golden_group() -> Group {
    let mut group = Group::default();
    group.apply(&golden_batch(), Plants::NONE);
    let gone = Record::Namespace {
        namespace: Namespace::new("gone").expect("a label"),
        change: Change::Removed,
        reason: Reason::Operator("no longer used".into()),
    };
    group.apply(&Batch { term: Term(12), records: vec![gone, Record::LeaderResigned] }, Plants::NONE);
    assert_eq!((group.namespaces.len(), group.removed.len()), (1, 1));
    group
}

/// Every kind of record, change and reason at least once.
fn golden_batch() -> Batch {
    let session = |number: u128| SessionId(Nonce(number << 100 | number));
    let range = |first, last| KeyRange::new(Key(first), Key(last)).expect("in order");
    let half = u64::MAX / 2;
    let info = |name: &str, draining| SessionInfo {
        name: OwnerName::new(name).expect("a name"),
        url: "http://10.0.0.1:8080".into(),
        weight: 150,
        virtual_nodes: 64,
        draining,
        evicted: !draining,
    };
    let other_settings = Settings {
        lease: Duration::new(3, 500_000_001),
        hold: Duration::from_secs(4),
        min_owners: 3,
        partitioner: PartitionerKind::Fixed,
        load_policy: LoadPolicyKind::Off,
        ..Settings::default()
    };
    let granted = |first, last, generation, to, source: Option<u64>| Change::Granted {
        range: range(first, last),
        generation: Generation(generation),
        session: session(to),
        source: source.map(Generation),
    };
    let (low, high) = (range(0, half), range(half + 1, u64::MAX));
    let changes = vec![
        (Change::Created { settings: Arc::default(), log: Nonce(0xabcd << 96 | 1) }, Reason::Joined),
        (Change::Configured { settings: Arc::new(other_settings) }, Reason::Operator("kürzer".into())),
        (Change::HoldSettled, Reason::TimePassed),
        (Change::SessionStarted { session: session(1), info: info("server-1", false) }, Reason::Joined),
        (Change::SessionStarted { session: session(2), info: info("server-2", false) }, Reason::TakenOver),
        (Change::SessionStarted { session: session(3), info: info("server-3", true) }, Reason::LoadBalanced),
        (Change::SessionChanged { session: session(2), info: info("server-2", true) }, Reason::Reported),
        (Change::SessionEnded { session: session(3) }, Reason::Left),
        (granted(0, half, 1, 1, None), Reason::Unowned),
        (granted(half + 1, u64::MAX, 2, 1, None), Reason::Unowned),
        (Change::Recalled { range: low, generation: Generation(1), to: None }, Reason::Repartitioned),
        (Change::RecallCancelled { range: low, generation: Generation(1) }, Reason::NoLongerWanted),
        (Change::Recalled { range: high, generation: Generation(2), to: Some(session(2)) }, Reason::Draining),
        (granted(0, 9, 3, 2, Some(1)), Reason::Migrated),
        (Change::Released { range: range(100, 199), generation: Generation(1) }, Reason::HoldExpired),
        (Change::Released { range: range(300, 300), generation: Generation(1) }, Reason::Dropped),
        (Change::Released { range: range(400, 400), generation: Generation(9) }, Reason::RefusedByOwner),
        (Change::Released { range: range(500, 500), generation: Generation(9) }, Reason::GivenBack),
        (Change::Released { range: range(600, 600), generation: Generation(9) }, Reason::DestinationGone),
        (
            Change::Recalled { range: range(7, 8), generation: Generation(3), to: None },
            Reason::MigrationTimedOut,
        ),
        (Change::Unfrozen, Reason::Operator("go on".into())),
        (Change::Frozen, Reason::Operator("maintenance".into())),
        (
            Change::Pinned { range: range(0, 99), to: Some(info("server-1", true).name) },
            Reason::Operator("".into()),
        ),
        (Change::Pinned { range: range(50, 99), to: None }, Reason::Operator("as before".into())),
    ];
    let record = |(change, reason)| {
        let namespace = Namespace::new("presence").expect("a label");
        Record::Namespace { namespace, change, reason }
    };
    let gone = Record::Namespace {
        namespace: Namespace::new("gone").expect("a label"),
        change: Change::Created { settings: Arc::default(), log: Nonce(7) },
        reason: Reason::Operator("for a day".into()),
    };
    let mut records = vec![
        Record::LeaderStarted { leader_hold: Duration::from_millis(10_834) },
        Record::LeaderSettled,
        gone,
    ];
    records.extend(changes.into_iter().map(record));
    Batch { term: Term(11), records }
}
