//! Everything that is stored, as version 2 writes it: it is read for ever, and so is a next version with more in it.

#[path = "../../../net/tests/golden/files.rs"]
mod files;
mod values;

use std::fmt::Debug;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use centrifuge_core::id::{Index, Term};
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::record::Batch;
use centrifuge_net::proto::store::v1 as stored;
use centrifuge_server::store::backup::{read_backup, write_backup};
use centrifuge_server::store::{
    Contents, Kind, StoredBatch, decode_batch, decode_group, encode_batch, encode_group, seal, unseal,
};
use prost::{Message, Name};

use self::files::Golden;

/// What is kept in etcd around all that, as the store sees it.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
mod items {
    tonic::include_proto!("centrifuge.store.etcd");
}

#[test]
fn every_version_of_everything_stored_is_read() {
    let mut golden = Golden::default();
    for (name, record) in values::records() {
        let batch = Batch { term: Term(11), records: vec![record] };
        check_batch(&mut golden, &format!("batch-{name}"), &batch);
    }
    check_batch(&mut golden, "batch", &values::batch());
    check_snapshot(&mut golden, "snapshot", &values::group());
    check_snapshot(&mut golden, "snapshot-of-kinds", &values::group_of_kinds());
    check_snapshot(&mut golden, "snapshot-quarantined", &values::quarantined_group());
    check_standing(&mut golden);
    check_backup(&mut golden);
    check_items(&mut golden);
    golden.are_all();
}

fn check_batch(golden: &mut Golden, name: &str, batch: &Batch) {
    let (index, written_at_micros) = (77, 1_700_000_000_123_456);
    let message = stored::StoredBatch { index, written_at_micros, batch: Some(encode_batch(batch)) };
    let read = |bytes: &[u8]| -> Batch {
        let read: stored::StoredBatch = unseal(Kind::Batch, bytes).expect("readable for ever");
        assert_eq!((read.index, read.written_at_micros), (index, written_at_micros));
        decode_batch(read.batch.expect("a batch")).expect("understood for ever")
    };
    golden.check(name, batch, &seal(Kind::Batch, &message), read);
}

fn check_snapshot(golden: &mut Golden, name: &str, group: &ManagerState) {
    let message = stored::Snapshot { index: 78, group: Some(encode_group(group)) };
    let read = |bytes: &[u8]| -> ManagerState {
        let read: stored::Snapshot = unseal(Kind::Snapshot, bytes).expect("readable for ever");
        assert_eq!(read.index, 78);
        decode_group(read.group.expect("a group")).expect("understood for ever")
    };
    golden.check(name, group, &seal(Kind::Snapshot, &message), read);
}

fn check_standing(golden: &mut Golden) {
    let standing =
        stored::Standing { term: 12, commits: 345, not_before_micros: Some(1_700_000_000_123_456) };
    let read = |bytes: &[u8]| unseal(Kind::Standing, bytes).expect("readable for ever");
    golden.check("standing", &standing, &seal(Kind::Standing, &standing), read);
}

fn check_backup(golden: &mut Golden) {
    let folder = tempfile::tempdir().expect("a folder");
    let read = |bytes: &[u8]| -> (Contents, SystemTime) {
        let file = folder.path().join("read");
        fs::write(&file, bytes).expect("writable");
        read_backup(&file).expect("readable for ever")
    };
    let contents = contents();
    let taken_at = values::time(values::BACKUP_TAKEN_AT_MICROS);
    let written = write(&contents, taken_at, &folder.path().join("written"));
    golden.check("backup", &(contents, taken_at), &written, read);
}

fn write(contents: &Contents, taken_at: SystemTime, file: &Path) -> Vec<u8> {
    write_backup(contents, taken_at, file).expect("a backup");
    fs::read(file).expect("a backup")
}

fn contents() -> Contents {
    let written_at = |index| values::time((1_700_000_000 + index) * 1_000_000);
    let batch =
        |index| StoredBatch { index: Index(index), written_at: written_at(index), batch: values::batch() };
    Contents {
        term: Term(12),
        not_before: Some(written_at(99)),
        index: Index(3),
        group: values::group(),
        history: vec![batch(2), batch(3)],
    }
}

fn check_items(golden: &mut Golden) {
    let parts = || items::Parts { folder: "parts/00000000000000000077/7-00/".to_owned(), count: 3 };
    let whole = items::Item { place: Some(items::item::Place::Whole(vec![1, 2, 3])) };
    check_item(golden, "etcd-item-whole", &whole);
    check_item(golden, "etcd-item-parts", &items::Item { place: Some(items::item::Place::Parts(parts())) });
    check_item(golden, "etcd-snapshot-pointer", &items::SnapshotPointer { index: 78, parts: Some(parts()) });
    let leader =
        items::Leader { manager: "manager-1.example:7001".to_owned(), term: 12, process: (0..16).collect() };
    check_item(golden, "etcd-leader", &leader);
    let registered =
        items::Registered { manager: "manager-1.example:7001".to_owned(), version: "0.1.0".to_owned() };
    check_item(golden, "etcd-registered", &registered);
}

fn check_item<M: Message + Name + Default + PartialEq + Debug>(golden: &mut Golden, name: &str, item: &M) {
    #[cfg(not(feature = "next-version"))]
    let written = item.encode_to_vec();
    #[cfg(feature = "next-version")]
    let written =
        centrifuge_net::next_version::encode_among(include!(concat!(env!("OUT_DIR"), "/messages.rs")), item);
    golden.check(name, item, &written, |bytes| M::decode(bytes).expect("decodes for ever"));
}
