//! Backups, restores and migrations from and to etcd.

mod etcd_support;
mod store_support;

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use centrifuge_core::id::{Generation, Index, Term};
use centrifuge_core::manager::{ElectionCommand, ElectionEvent, StoreCommand, StoreEvent};
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::record::Batch;
use centrifuge_server::store::backup::{RestoreOptions, backup, migrate, restore};
use centrifuge_server::store::{Answer, Backend, Contents, EtcdOptions, StoreError};
use etcd_support::{Etcd, backend, candidate};
use store_support::{Client, batch_of, sum};

fn open(backend: &Backend) -> Client {
    Client::open(|answers| backend.open(&candidate("manager:1"), answers))
}

/// A store with some batches, a snapshot in the middle of them, and nobody who leads.
fn fill(backend: &Backend) -> (Term, Vec<Arc<Batch>>) {
    let mut store = open(backend);
    let term = store.campaign();
    let all: Vec<_> = (1..=30).map(|index| batch_of(term, index)).collect();
    for (index, batch) in (1..).zip(&all) {
        store.appended(term, index, batch);
    }
    store.compact(20, sum(&all[..20]));
    store.close();
    (term, all)
}

fn file(folder: &Path, name: &str) -> Backend {
    Backend::File(folder.join(name))
}

/// Migrates from or to a file. A process that is being started, such as etcd's, holds every lock of its parent for a
/// moment: then once more.
fn moved(from: &Backend, to: &Backend) -> Result<Contents, StoreError> {
    loop {
        match migrate(from, to) {
            Err(StoreError::Locked { .. }) => {}
            done => return done,
        }
    }
}

#[test]
fn a_store_moves_to_etcd_and_back_as_it_is() {
    let etcd = Etcd::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let (old, on_etcd, new) =
        (file(folder.path(), "old"), backend(&etcd.options()), file(folder.path(), "new"));
    let (term, all) = fill(&old);
    moved(&old, &on_etcd).expect("migrated");
    let mut store = open(&on_etcd);
    assert_eq!(store.load(), (Index(30), Arc::new(sum(&all))));
    let expected: Vec<_> = (1..).zip(all.iter().cloned()).collect();
    assert_eq!(store.recent(100), expected);
    assert!(store.campaign() > term, "terms go on");
    store.close();
    let made = moved(&on_etcd, &new).expect("migrated");
    assert_eq!((made.index, &made.group), (Index(30), &sum(&all)));
    assert!(made.term > term);
    // And back again, as it was.
    let again = moved(&new, &backend(&etcd.options())).expect("migrated");
    assert_eq!(again, made);
}

#[test]
fn nothing_in_etcd_is_overwritten() {
    let etcd = Etcd::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let (from, to) = (file(folder.path(), "from"), backend(&etcd.options()));
    let (_, all) = fill(&from);
    moved(&from, &to).expect("migrated");
    assert!(matches!(moved(&from, &to), Err(StoreError::EtcdExists { .. })));
    assert_eq!(open(&to).load(), (Index(30), Arc::new(sum(&all))));
}

#[test]
fn a_store_that_is_led_is_backed_up_and_not_migrated() {
    let etcd = Etcd::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let from = backend(&etcd.options());
    let (_, all) = fill(&from);
    let mut store = open(&from);
    store.campaign();
    let refused = migrate(&from, &file(folder.path(), "to")).expect_err("refused");
    assert!(matches!(&refused, StoreError::EtcdLed { leader, .. } if leader == "manager:1"), "{refused}");
    let made = backup(&from, &folder.path().join("backup")).expect("backed up");
    assert_eq!((made.index, made.batches), (Index(30), all.len()));
    store.close();
}

#[test]
fn a_restored_store_grants_nothing_twice_and_nobody_leads_it_too_early() {
    let etcd = Etcd::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let (from, waits, at_once) =
        (backend(&etcd.options()), backend(&etcd.options()), backend(&etcd.options()));
    let (term, all) = fill(&from);
    let kept = folder.path().join("backup");
    backup(&from, &kept).expect("backed up");
    let made = restore(&kept, &waits, RestoreOptions::default()).expect("restored");
    assert!(made.not_before.is_some_and(|until| until > SystemTime::now()));
    let store = open(&waits);
    store.send(ElectionCommand::Campaign { request: 1 });
    let nobody = ElectionEvent::LedBy { request: 1, leader: None };
    assert_eq!(store.answer(), Answer::Election(nobody), "leases of the old store may still run");
    store.close();
    let options = RestoreOptions { generation_floor: Some(Generation(1 << 60)), leases_have_ended: true };
    restore(&kept, &at_once, options).expect("restored");
    let mut store = open(&at_once);
    assert!(store.campaign() > term);
    let (index, group) = store.load();
    assert_eq!(index, Index(30));
    assert!(above(&group, &sum(&all), Generation(1 << 60)));
    store.close();
}

fn above(restored: &ManagerState, before: &ManagerState, floor: Generation) -> bool {
    restored.namespaces.len() == before.namespaces.len()
        && restored.namespaces.values().all(|stored| stored.last_generation >= floor)
}

#[test]
fn a_restore_that_was_broken_off_is_no_store() {
    let etcd = Etcd::shared();
    let options: EtcdOptions = etcd.options();
    etcd.control(&["put", &format!("{}creating", options.prefix), "half"]);
    let opened = Client::try_open(|answers| backend(&options).open(&candidate("manager:1"), answers));
    let Err(error) = opened else { panic!("it opens") };
    assert!(matches!(error, StoreError::EtcdUnfinished { .. }), "{error}");
    let missing = backend(&etcd.options()).read().expect_err("nothing there");
    assert!(matches!(missing, StoreError::EtcdMissing { .. }), "{missing}");
}

#[test]
fn a_damaged_batch_is_reported_and_never_loaded() {
    let etcd = Etcd::shared();
    let options = etcd.options();
    let from = backend(&options);
    fill(&from);
    etcd.control(&["put", &format!("{}log/{:020}", options.prefix, 25), "nonsense"]);
    let error = from.read().expect_err("damaged");
    assert!(matches!(error, StoreError::EtcdDamaged { .. }), "{error}");
    let store = open(&from);
    // Whoever cannot read it does not keep it from others, and does not try again.
    for request in 1.. {
        store.send(ElectionCommand::Campaign { request });
        match store.answer() {
            Answer::Election(ElectionEvent::LedBy { leader: None, .. }) => break,
            Answer::Election(ElectionEvent::Won { term, .. }) => {
                store.send(StoreCommand::Load { request });
                assert_eq!(store.answer(), Answer::Election(ElectionEvent::Lost { term }));
                assert_eq!(store.answer(), Answer::Store(StoreEvent::LoadFailed { request }));
            }
            other => panic!("{other:?}"),
        }
        assert!(request < 5, "it leads again and again");
    }
    store.close();
}
