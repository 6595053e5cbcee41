//! A file that is not as it was written is refused and left as it is, or it does not matter.

mod store_support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use centrifuge_core::id::Index;
use centrifuge_core::manager_state::ManagerState;
use centrifuge_server::store::{self, Answer, Backend, StoreError, StoreHandle};
use proptest::prelude::any;
use proptest::sample::Index as Place;
use store_support::{Client, batch_of, drawn, sum};

struct Sample {
    folder: tempfile::TempDir,
    file: PathBuf,
    /// The bytes of a store whose process ended as it should.
    closed: Vec<u8>,
    /// The bytes of the same store while its process had it open: what a kill leaves.
    killed: Vec<u8>,
    group: Arc<ManagerState>,
}

const BATCHES: u64 = 60;

fn sample() -> Sample {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("manager.store");
    let mut store = Client::open(|answers| store::open(&file, answers));
    let term = store.campaign();
    let all: Vec<_> = (1..=BATCHES).map(|index| batch_of(term, index)).collect();
    for (index, batch) in (1..).zip(&all) {
        store.appended(term, index, batch);
        if index == BATCHES / 2 {
            store.compact(index, sum(&all[..usize::try_from(index).expect("small")]));
        }
    }
    let killed = fs::read(&file).expect("readable");
    store.close();
    let closed = fs::read(&file).expect("readable");
    Sample { folder, file, closed, killed, group: Arc::new(sum(&all)) }
}

fn open(file: &Path) -> Result<StoreHandle, StoreError> {
    store::open(file, Box::new(|_: Answer| {}))
}

fn refused(file: &Path) -> StoreError {
    match open(file) {
        Ok(_) => panic!("the file was accepted"),
        Err(error) => error,
    }
}

impl Sample {
    /// Whether a file with these bytes is refused. If not it must be as good as the original.
    fn is_refused(&self, bytes: &[u8], why: &str) -> bool {
        let file = self.folder.path().join("damaged.store");
        fs::write(&file, bytes).expect("writable");
        let opened = Client::try_open(|answers| store::open(&file, answers));
        let refused = opened.is_err();
        match opened {
            Ok(mut store) => {
                assert_eq!(store.load(), (Index(BATCHES), Arc::clone(&self.group)), "{why}");
                assert_eq!(store.recent(usize::MAX).len() as u64, BATCHES, "{why}");
                store.close();
            }
            Err(error) => {
                let text = error.to_string();
                assert!(
                    text.contains("damaged.store") && text.contains("Nothing was changed"),
                    "{why}: {text}"
                );
                assert_eq!(fs::read(&file).expect("readable"), bytes, "{why}: a refused file was changed");
                assert!(Backend::File(file.clone()).read().is_err(), "{why}: refused, and yet read");
            }
        }
        fs::remove_file(&file).expect("removable");
        refused
    }
}

#[test]
fn a_flipped_bit_is_seen_or_does_not_matter() {
    let sample = sample();
    let mut seen = 0;
    for seed in 0..400 {
        let (from_killed, place, bit) = drawn(&(any::<bool>(), any::<Place>(), 0..8u8), seed);
        let mut bytes = if from_killed { sample.killed.clone() } else { sample.closed.clone() };
        let at = place.index(bytes.len());
        bytes[at] ^= 1 << bit;
        seen += u64::from(sample.is_refused(&bytes, &format!("bit {bit} of byte {at} flipped")));
    }
    assert!(seen > 10, "only {seen} of 400 flipped bits were in use");
}

#[test]
fn a_flipped_bit_at_the_beginning_is_seen_or_does_not_matter() {
    let sample = sample();
    // Our own head and its two counts, and the database's head with its two latest transactions.
    let database = (4096..4160).chain((4160..4416).step_by(3));
    for at in (0..32).chain(512..528).chain(1024..1040).chain(database) {
        let mut bytes = if at % 2 == 0 { sample.killed.clone() } else { sample.closed.clone() };
        let bit = at / 2 % 8;
        bytes[at] ^= 1 << bit;
        sample.is_refused(&bytes, &format!("bit {bit} of byte {at} flipped"));
    }
}

#[test]
fn the_database_cannot_go_back_to_an_earlier_transaction() {
    let sample = sample();
    // The byte after the database's magic number says which of two transactions is the latest.
    let mut bytes = sample.killed.clone();
    bytes[4096 + 9] ^= 1;
    assert!(sample.is_refused(&bytes, "the other transaction is said to be the latest"));
}

#[test]
fn a_page_of_zeros_is_seen_or_does_not_matter() {
    let sample = sample();
    let mut seen = 0;
    for page in 0..sample.killed.len() / 4096 {
        let mut bytes = sample.killed.clone();
        bytes[page * 4096..(page + 1) * 4096].fill(0);
        seen += u64::from(sample.is_refused(&bytes, &format!("page {page} is gone")));
    }
    assert!(seen > 5, "only {seen} pages were in use");
}

#[test]
fn a_cut_file_is_seen() {
    let sample = sample();
    for bytes in [&sample.killed, &sample.closed] {
        for part in 0..40 {
            let length = bytes.len() * part / 40;
            assert!(sample.is_refused(&bytes[..length], &format!("cut at {length} of {}", bytes.len())));
        }
        assert!(sample.is_refused(&bytes[..bytes.len() - 1], "cut by one byte"));
        assert!(sample.is_refused(&bytes[..bytes.len() - 4096], "cut by one page"));
    }
}

#[test]
fn a_killed_store_opens_without_a_repair() {
    let sample = sample();
    assert!(!sample.is_refused(&sample.killed, "killed"));
    assert!(!sample.is_refused(&sample.closed, "closed"));
}

#[test]
fn other_files_are_refused_by_what_they_are() {
    let sample = sample();
    let file = sample.folder.path().join("other");
    for bytes in [&b""[..], b"hello", &[0; 10_000], &sample.closed[4096..]] {
        fs::write(&file, bytes).expect("writable");
        let error = refused(&file);
        assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
        assert_eq!(fs::read(&file).expect("readable"), bytes);
    }
    assert!(refused(sample.folder.path()).to_string().contains("cannot open"));
    let nowhere = sample.folder.path().join("no/such/folder/store");
    assert!(refused(&nowhere).to_string().contains("no/such/folder does not exist"));
    // A folder that is there and takes no files.
    let system = refused(Path::new("/proc/x.db")).to_string();
    assert!(system.contains("cannot create /proc/x.db"), "{system}");
}

#[test]
fn a_later_format_is_refused_by_its_number() {
    let sample = sample();
    let mut bytes = sample.closed.clone();
    bytes[16..20].copy_from_slice(&7u32.to_le_bytes());
    let checksum = xxhash_rust::xxh3::xxh3_64(&bytes[..20]);
    bytes[24..32].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&sample.file, &bytes).expect("writable");
    let error = refused(&sample.file);
    assert!(matches!(error, StoreError::Newer { found: 7, .. }), "{error}");
    assert!(error.to_string().contains("run the version that wrote it"));
    assert_eq!(fs::read(&sample.file).expect("readable"), bytes);
}

#[test]
fn a_second_process_is_refused_and_told_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("manager.store");
    let mut store = Client::open(|answers| store::open(&file, answers));
    let error = refused(&file);
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    assert!(error.to_string().contains("manager.store") && error.to_string().contains("stop that Manager"));
    assert!(matches!(Backend::File(file.clone()).read(), Err(StoreError::Locked { .. })));
    let term = store.campaign();
    store.appended(term, 1, &batch_of(term, 1));
    store.close();
    assert_eq!(Client::open(|answers| store::open(&file, answers)).load().0, Index(1));
}
