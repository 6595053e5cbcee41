//! Backups contain everything, and a store that was made of one never grants what was granted before.

mod store_support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use centrifuge_core::id::{Generation, Index, Namespace, Term};
use centrifuge_core::manager::{ElectionCommand, ElectionEvent};
use centrifuge_server::store::backup::{MARGIN, RestoreOptions, backup, migrate, read_backup, restore};
use centrifuge_server::store::{self, Answer, Backend, Contents, StoreError};
use store_support::machines::World;
use store_support::{Client, batch_of, drawn, strategies};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn store(&self, name: &str) -> Backend {
        Backend::File(self.path(name))
    }
}

fn open(file: &Path) -> Client {
    Client::open(|answers| store::open(file, answers))
}

/// A store with many batches, some of them compacted, that ended as it should.
fn filled(file: &Path) {
    let mut store = open(file);
    let term = store.campaign();
    for index in 1..=40 {
        store.appended(term, index, &batch_of(term, index));
    }
    let (index, group) = store.load();
    store.compact(index.0, (*group).clone());
    for index in 41..=50 {
        store.appended(term, index, &batch_of(term, index));
    }
    store.close();
}

/// Contents with namespaces, present and removed.
fn contents() -> Contents {
    let group = (0..).map(|seed| drawn(&strategies::group(), seed));
    let mut group = group
        .into_iter()
        .find(|group| !group.namespaces.is_empty() && !group.removed.is_empty())
        .expect("there is such a group");
    let generations = group.namespaces.values_mut().map(|stored| &mut stored.last_generation);
    generations.chain(group.removed.values_mut()).for_each(|last| last.0 %= 1000);
    group.term = Term(5);
    Contents { term: Term(7), not_before: None, index: Index(99), group, history: Vec::new() }
}

const AT_ONCE: RestoreOptions = RestoreOptions { generation_floor: None, leases_have_ended: true };

#[test]
fn a_backup_contains_everything_and_changes_nothing() {
    let folder = Folder::new();
    filled(&folder.path("store"));
    let before = fs::read(folder.path("store")).expect("readable");
    let summary = backup(&folder.store("store"), &folder.path("backup")).expect("a backup");
    assert_eq!(fs::read(folder.path("store")).expect("readable"), before);
    let (contents, taken_at) = read_backup(&folder.path("backup")).expect("readable");
    assert_eq!(contents, folder.store("store").read().expect("readable"));
    assert_eq!((summary.index, summary.batches), (Index(50), 50));
    assert_eq!(summary.namespaces, contents.group.namespaces.len());
    assert!(summary.taken_at.duration_since(taken_at).expect("rounded down") < Duration::from_millis(1));
}

#[test]
fn a_killed_store_can_be_backed_up() {
    let folder = Folder::new();
    let mut store = open(&folder.path("store"));
    let term = store.campaign();
    store.appended(term, 1, &batch_of(term, 1));
    // What the file is while its process has it: what a kill leaves.
    fs::copy(folder.path("store"), folder.path("killed")).expect("copied");
    store.close();
    let before = fs::read(folder.path("killed")).expect("readable");
    let summary = backup(&folder.store("killed"), &folder.path("backup")).expect("a backup");
    assert_eq!(summary.index, Index(1));
    assert_eq!(fs::read(folder.path("killed")).expect("readable"), before);
}

#[test]
fn a_store_in_use_is_not_backed_up_and_says_so() {
    let folder = Folder::new();
    let store = open(&folder.path("store"));
    let error = backup(&folder.store("store"), &folder.path("backup")).expect_err("in use");
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    assert!(error.to_string().contains("running Manager"), "{error}");
    assert!(!folder.path("backup").exists());
    store.close();
    backup(&folder.store("store"), &folder.path("backup")).expect("a backup");
}

#[test]
fn nothing_is_overwritten_and_nothing_is_left_behind() {
    let folder = Folder::new();
    filled(&folder.path("store"));
    fs::write(folder.path("there"), "mine").expect("writable");
    backup(&folder.store("store"), &folder.path("backup")).expect("a backup");
    let there = folder.store("there");
    let refusals = [
        backup(&folder.store("store"), &folder.path("there")).expect_err("there"),
        restore(&folder.path("backup"), &there, AT_ONCE).expect_err("there"),
        migrate(&folder.store("store"), &there).expect_err("there"),
    ];
    for error in refusals {
        assert!(matches!(error, StoreError::Exists { .. }), "{error}");
    }
    assert_eq!(fs::read(folder.path("there")).expect("readable"), b"mine");
    let mut names: Vec<_> = fs::read_dir(folder.0.path())
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["backup", "store", "there"]);
    let error = backup(&folder.store("nowhere"), &folder.path("other")).expect_err("missing");
    assert!(matches!(error, StoreError::Missing { .. }), "{error}");
    let error = restore(&folder.path("nowhere"), &folder.store("other"), AT_ONCE).expect_err("missing");
    assert!(matches!(error, StoreError::Missing { .. }), "{error}");
}

#[test]
fn a_damaged_backup_is_refused() {
    let folder = Folder::new();
    filled(&folder.path("store"));
    backup(&folder.store("store"), &folder.path("backup")).expect("a backup");
    let good = fs::read(folder.path("backup")).expect("readable");
    let refused = |bytes: &[u8], why: &str| {
        fs::write(folder.path("bad"), bytes).expect("writable");
        let error = restore(&folder.path("bad"), &folder.store("new"), AT_ONCE).expect_err(why);
        let expected = matches!(error, StoreError::Damaged { .. } | StoreError::Foreign { .. });
        assert!(expected, "{why}: {error}");
        assert!(!folder.path("new").exists(), "{why}: a store was made of it");
    };
    for at in (0..good.len()).step_by(7) {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        refused(&bad, &format!("byte {at} changed"));
        refused(&good[..at], &format!("cut at {at}"));
    }
    refused(&[good.as_slice(), b"x"].concat(), "a byte too many");
    refused(b"something else", "another file");
    restore(&folder.path("backup"), &folder.store("new"), AT_ONCE).expect("the good one is restored");
}

#[test]
fn a_restore_raises_what_must_never_be_used_twice_and_keeps_the_rest() {
    let folder = Folder::new();
    let before = contents();
    folder.store("store").create(&before).expect("a store");
    backup(&folder.store("store"), &folder.path("backup")).expect("a backup");
    let restored = restore(&folder.path("backup"), &folder.store("new"), AT_ONCE).expect("restored");
    let after = folder.store("new").read().expect("readable");

    assert!(after.group.namespaces.keys().eq(before.group.namespaces.keys()), "no namespace is dropped");
    for (name, stored) in &before.group.namespaces {
        let raised = &after.group.namespaces[name];
        assert!(raised.last_generation.0 >= stored.last_generation.0 + MARGIN);
        assert_ne!(raised.log, stored.log, "Lookups must take the whole table anew");
        assert_eq!((&raised.table, &raised.sessions), (&stored.table, &stored.sessions));
        assert_eq!((&raised.settings, &raised.pins), (&stored.settings, &stored.pins));
    }
    assert!(after.group.removed.keys().eq(before.group.removed.keys()));
    for (name, last) in &before.group.removed {
        assert!(after.group.removed[name].0 >= last.0 + MARGIN);
    }
    assert!(after.term >= Term(7 + MARGIN));
    assert_eq!((restored.term, restored.not_before), (after.term, None));
    let lowest = after.group.namespaces.values().map(|stored| stored.last_generation).min();
    assert_eq!(restored.generation_floor, lowest);
    assert!(open(&folder.path("new")).campaign() > after.term);

    // The same backup once more, after some grants: none of them is granted again.
    let again = restore(&folder.path("backup"), &folder.store("again"), AT_ONCE).expect("restored");
    assert!(again.generation_floor > restored.generation_floor && again.term > restored.term);
}

#[test]
fn a_given_floor_is_kept() {
    let folder = Folder::new();
    let before = contents();
    folder.store("store").create(&before).expect("a store");
    backup(&folder.store("store"), &folder.path("backup")).expect("a backup");
    for floor in [500, 5_000_000] {
        let name = floor.to_string();
        let options = RestoreOptions { generation_floor: Some(Generation(floor)), leases_have_ended: true };
        restore(&folder.path("backup"), &folder.store(&name), options).expect("restored");
        let after = folder.store(&name).read().expect("readable").group;
        for (name, stored) in &before.group.namespaces {
            let expected = stored.last_generation.0.max(floor);
            assert_eq!(after.namespaces[name].last_generation.0, expected);
        }
        for (name, last) in &before.group.removed {
            assert_eq!(after.removed[name].0, last.0.max(floor));
        }
    }
}

#[test]
fn a_restored_store_grants_above_everything_that_was_granted_before() {
    let folder = Folder::new();
    let namespace = Namespace::new("presence").expect("a label");
    let mut world = World::start(open(&folder.path("store")), &namespace, "server-1");
    world.create(&namespace);
    world.run_until(|world| !world.granted.is_empty());
    let first_term = world.term.expect("it leads");
    world.stop().close();
    backup(&folder.store("store"), &folder.path("backup")).expect("a backup");

    // Life goes on after the backup, and then the store is lost.
    let mut world = World::start(open(&folder.path("store")), &namespace, "server-2");
    world.run_until(|world| !world.granted.is_empty());
    let highest = world.granted.iter().max().copied().expect("granted");
    let second_term = world.term.expect("it leads");
    assert!(second_term > first_term);
    world.stop().close();

    let restored = restore(&folder.path("backup"), &folder.store("new"), AT_ONCE).expect("restored");
    let floor = restored.generation_floor.expect("a namespace");
    assert!(floor > highest);
    let mut world = World::start(open(&folder.path("new")), &namespace, "server-3");
    world.run_until(|world| !world.granted.is_empty());
    assert!(world.granted.iter().all(|generation| *generation > floor), "{:?}", world.granted);
    assert!(world.term.expect("it leads") > second_term);
    world.stop().close();
}

#[test]
fn nobody_leads_a_restored_store_while_earlier_leases_may_run() {
    let folder = Folder::new();
    folder.store("store").create(&contents()).expect("a store");
    backup(&folder.store("store"), &folder.path("backup")).expect("a backup");
    let restored = restore(&folder.path("backup"), &folder.store("new"), RestoreOptions::default());
    let until = restored.expect("restored").not_before.expect("a time to wait for");
    assert!(until > SystemTime::now() + Duration::from_secs(60), "longer than a lease");
    for _ in 0..2 {
        let store = open(&folder.path("new"));
        store.send(ElectionCommand::Campaign { request: 3 });
        let refused = Answer::Election(ElectionEvent::LedBy { request: 3, leader: None });
        assert_eq!(store.answer(), refused);
        store.close();
    }
    let passed = Contents { not_before: Some(SystemTime::now() - Duration::from_secs(1)), ..contents() };
    folder.store("later").create(&passed).expect("a store");
    let mut store = open(&folder.path("later"));
    store.campaign();
    store.close();
    assert_eq!(folder.store("later").read().expect("readable").not_before, None);
}

#[test]
fn a_migration_copies_everything() {
    let folder = Folder::new();
    filled(&folder.path("store"));
    let from = folder.store("store");
    let to: Backend = format!("file:{}", folder.path("new").display()).parse().expect("a backend");
    let contents = migrate(&from, &to).expect("migrated");
    assert_eq!(contents, from.read().expect("readable"));
    assert_eq!(contents, to.read().expect("readable"));
    let mut store = open(&folder.path("new"));
    let term = store.campaign();
    assert!(term > contents.term);
    store.appended(term, 51, &batch_of(term, 51));
    assert_eq!(store.recent(100).len(), 51);
    store.close();
}

#[test]
fn a_store_has_a_name() {
    let backend: Backend = "file:/var/lib/centrifuge/manager.store".parse().expect("a backend");
    assert_eq!(backend, Backend::File("/var/lib/centrifuge/manager.store".into()));
    assert_eq!(backend.to_string().parse::<Backend>().expect("the same"), backend);
    for wrong in ["", "file:", "manager.store", "etcd:host", "file"] {
        let error = wrong.parse::<Backend>().expect_err(wrong);
        assert!(error.to_string().contains("file:PATH"), "{error}");
    }
}
