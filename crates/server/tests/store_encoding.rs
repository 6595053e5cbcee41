//! Whatever the machine knows is stored and comes back the same.

mod store_support;

use std::sync::Arc;

use centrifuge_core::id::{Generation, Namespace, Nonce, SessionId, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::namespace_kind::{Mode, NamespaceKind};
use centrifuge_core::record::{Batch, Change, Reason, Record};
use centrifuge_net::proto::store::v1 as stored;
use centrifuge_server::store::{
    DecodeError, Kind, decode_batch, decode_group, encode_batch, encode_group, seal, unseal,
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
    let good = encode_group(&group_with_two_ranges());
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

/// A namespace whose mode is not understood is not loaded at all: taken for exclusive, or for affinity, it would be another.
#[test]
fn a_mode_that_is_not_known_is_refused_and_never_guessed() {
    let kind = |mode| {
        Some(stored::NamespaceKind { keys: stored::KeyKind::Hashed.into(), mode, ..Default::default() })
    };
    for mode in [stored::Mode::Unspecified.into(), 3, -1] {
        let mut group = encode_group(&group_with_two_ranges());
        group.namespaces[0].kind = kind(mode);
        assert_eq!(decode_group(group), Err(DecodeError::UnknownChoice { field: "mode", value: mode }));
        let batch = Batch { term: Term(1), records: vec![created("rooms", Default::default())] };
        let mut batch = encode_batch(&batch);
        let Some(stored::record::Kind::Namespace(record)) = &mut batch.records[0].kind else {
            panic!("it is one")
        };
        let Some(stored::change::Kind::Created(created)) =
            record.change.as_mut().and_then(|change| change.kind.as_mut())
        else {
            panic!("it is one")
        };
        created.kind = kind(mode);
        assert_eq!(decode_batch(batch), Err(DecodeError::UnknownChoice { field: "mode", value: mode }));
    }
    let affinity = NamespaceKind { mode: Mode::Affinity, ..NamespaceKind::default() };
    let batch = Batch { term: Term(1), records: vec![created("rooms", affinity)] };
    assert_eq!(decode_batch(encode_batch(&batch)), Ok(batch), "what is known comes back");
}

fn created(namespace: &str, kind: NamespaceKind) -> Record {
    let (settings, log, floor) = (Arc::default(), Nonce(7), Generation::ZERO);
    Record::Namespace {
        namespace: Namespace::new(namespace).expect("a label"),
        change: Change::Created { kind, settings, log, floor },
        reason: Reason::Joined,
    }
}

fn group_with_two_ranges() -> ManagerState {
    let granted = Change::Granted {
        range: KeyRange::new(Key(0), Key(99)).expect("in order"),
        generation: Generation(1),
        session: SessionId(Nonce(1)),
        source: None,
        state_since: None,
    };
    let created = Change::Created {
        kind: Default::default(),
        settings: Arc::default(),
        log: Nonce(7),
        floor: Generation::ZERO,
    };
    let record = |change| Record::Namespace {
        namespace: Namespace::new("rooms").expect("a label"),
        change,
        reason: Reason::Joined,
    };
    let mut group = ManagerState::default();
    group.apply(&Batch { term: Term(1), records: vec![record(created), record(granted)] });
    group
}
