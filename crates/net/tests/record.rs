//! What is recorded of real machines replays, and what was changed afterwards is found.

#[path = "support/trio.rs"]
mod trio;

use std::fs;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use centrifuge_core::id::{ManagerId, Namespace};
use centrifuge_core::key::Key;
use centrifuge_core::lookup::{LookupConfig, LookupEvent, LookupMachine};
use centrifuge_core::machine::Machine;
use centrifuge_core::recording::{MachineKind, Recordable};
use centrifuge_core::time::Instant;
use centrifuge_net::driver::Tee;
use centrifuge_net::record::Recorder;
use centrifuge_sim::replay::{Outcome, ReplayError, replay};
use tempfile::TempDir;
use trio::Trio;

/// The recordings of a short life of three machines, and how many steps each took.
struct Recordings {
    manager: (String, u64),
    owner: (String, u64),
    lookup: (String, u64),
}

fn record() -> Recordings {
    let folder = TempDir::new().expect("a folder");
    let mut trio = Trio::new(folder.path());
    trio.run_for(Duration::from_secs(100));
    assert!(!trio.owner.machine.leases().is_empty(), "the Owner was granted something");
    assert!(trio.lookup.machine.lookup(Key(7)).is_some_and(|route| route.owner.is_some()));
    trio.lead_anew();
    trio.run_for(Duration::from_secs(100));
    assert_eq!(
        trio.manager.machine.counters().terms,
        2,
        "it led twice, the second time from what was stored"
    );
    let steps = (trio.manager.steps, trio.owner.steps, trio.lookup.steps);
    drop(trio);
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).expect("a recording");
    Recordings {
        manager: (read("manager"), steps.0),
        owner: (read("owner"), steps.1),
        lookup: (read("lookup"), steps.2),
    }
}

fn replayed(text: &str) -> Outcome {
    replay(text.as_bytes()).expect("a recording")
}

#[test]
fn recordings_of_every_machine_replay() {
    let recordings = record();
    let expected = [
        (MachineKind::Manager, recordings.manager, ["\"Loaded\"", "\"FromOwner\"", "\"Create\""]),
        (MachineKind::Owner, recordings.owner, ["\"Welcome\"", "\"Grant\"", "\"Renewal\""]),
        (MachineKind::Lookup, recordings.lookup, ["\"Heartbeat\"", "\"Changes\"", "\"Start\""]),
    ];
    for (machine, (text, steps), contents) in expected {
        assert_eq!(replayed(&text), Outcome { machine, agreed: steps, difference: None, cut: false });
        assert_eq!(text.lines().count() as u64, steps + 1, "a header and a line for each step");
        for content in contents {
            assert!(text.contains(content), "the {machine} met {content}");
        }
    }
}

#[test]
fn a_line_that_was_changed_taken_out_or_added_is_found() {
    let Recordings { manager: (text, _), .. } = record();
    let lines: Vec<&str> = text.lines().collect();
    let report = lines.iter().position(|line| line.contains("\"Report\"")).expect("the Owner reported");

    // Another event: what follows from it is another answer, there or later.
    let mut changed = lines.clone();
    let other = changed[report].replace("\"weight\":100", "\"weight\":50");
    assert_ne!(other, changed[report]);
    changed[report] = &other;
    let difference = replayed(&join(&changed)).difference.expect("another weight is another decision");
    assert!(difference.line > report as u64, "found at line {}", difference.line);

    // Another digest: the answer is not the one that was recorded.
    let mut changed = lines.clone();
    let digest = changed[report].find("\"digest\":\"").expect("every step has one") + 10;
    let digit = if changed[report].as_bytes()[digest] == b'0' { "1" } else { "0" };
    let mut other = changed[report].to_owned();
    other.replace_range(digest..=digest, digit);
    changed[report] = &other;
    let difference = replayed(&join(&changed)).difference.expect("the digest is another");
    assert_eq!(difference.line, report as u64 + 1);
    assert!(difference.event.contains("Report"), "{}", difference.event);
    assert_ne!(difference.recorded, difference.replayed);

    let mut without = lines.clone();
    without.remove(report);
    assert!(replayed(&join(&without)).difference.is_some(), "an event is missing");
    let mut again = lines.clone();
    again.insert(report, lines[report]);
    assert!(replayed(&join(&again)).difference.is_some(), "an event came twice");
}

fn join(lines: &[&str]) -> String {
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

#[test]
fn a_damaged_recording_is_refused_with_its_line() {
    let Recordings { owner: (text, steps), .. } = record();
    let lines: Vec<&str> = text.lines().collect();
    let refusal = |lines: &[&str]| replay(join(lines).as_bytes()).expect_err("damaged").to_string();

    let mut damaged = lines.clone();
    damaged[3] = "{\"at\":12,";
    assert!(
        refusal(&damaged).starts_with("line 4 is damaged, after 2 steps that agreed:"),
        "{}",
        refusal(&damaged)
    );
    damaged[3] = lines[1];
    assert!(refusal(&damaged).starts_with("line 4 is damaged: it is at"), "{}", refusal(&damaged));
    let mut damaged = lines.clone();
    let other = lines[0].replace("\"format\":1", "\"format\":2");
    damaged[0] = &other;
    assert!(refusal(&damaged).starts_with("has format 2, and this version reads format 1"));
    damaged[0] = "[]";
    assert!(refusal(&damaged).starts_with("line 1 is damaged"));
    assert!(matches!(replay(&b""[..]), Err(ReplayError::Empty)));

    // A process that was killed leaves half a line behind: everything before it still counts.
    let cut = replayed(&text[..text.len() - 3]);
    assert_eq!((cut.agreed, cut.cut, cut.difference), (steps - 1, true, None));
}

fn lookup_config() -> LookupConfig {
    let namespace = Namespace::new("chat").expect("a label");
    LookupConfig::new(namespace, Arc::from([ManagerId::from("manager:7600")]))
}

/// Counts what reaches it, and fails after a while.
struct Sink {
    flushes: Arc<AtomicUsize>,
    writes_left: usize,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writes_left = self.writes_left.checked_sub(1).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

fn steps_into(sink: Sink, seconds: u64) -> Recorder<LookupMachine, Sink> {
    let mut machine = LookupMachine::build(lookup_config(), [4; 32]);
    let mut recorder = Recorder::new(sink, &lookup_config(), [4; 32]).expect("a header");
    for tenth in 10..seconds * 10 + 10 {
        let now = Instant(tenth * 100_000_000);
        let output = machine.on_event(now, LookupEvent::Start);
        recorder.step(now, Some(&LookupEvent::Start), &output);
    }
    recorder
}

#[test]
fn a_recording_is_flushed_every_second_and_at_its_end() {
    let flushes = Arc::new(AtomicUsize::new(0));
    let recorder = steps_into(Sink { flushes: Arc::clone(&flushes), writes_left: usize::MAX }, 10);
    let so_far = flushes.load(Ordering::Relaxed);
    assert_eq!(so_far, 11, "the header, and each of ten seconds of a hundred steps");
    drop(recorder);
    assert_eq!(flushes.load(Ordering::Relaxed), 12);
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_machine() {
    let flushes = Arc::new(AtomicUsize::new(0));
    let recorder = steps_into(Sink { flushes: Arc::clone(&flushes), writes_left: 300 }, 100);
    let so_far = flushes.load(Ordering::Relaxed);
    drop(recorder);
    assert_eq!(flushes.load(Ordering::Relaxed), so_far, "nothing is written after a failure");
}

#[test]
fn a_file_that_cannot_be_made_is_named() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("none").join("recording");
    let error =
        Recorder::<LookupMachine>::create(&path, &lookup_config(), [0; 32]).expect_err("no such folder");
    assert!(error.to_string().contains("none/recording"), "{error}");
}

#[test]
fn a_recording_takes_the_place_of_another_and_of_nothing_else() {
    let folder = TempDir::new().expect("a folder");
    let begin =
        |name: &str| Recorder::<LookupMachine>::create(&folder.path().join(name), &lookup_config(), [4; 32]);
    drop(begin("recording").expect("a new file"));
    drop(begin("recording").expect("an old recording"));
    let store = folder.path().join("store");
    fs::write(&store, "not to be lost").expect("written");
    let refused = begin("store").expect_err("something else").to_string();
    assert!(refused.contains("left as it is"), "{refused}");
    assert_eq!(fs::read_to_string(&store).expect("read"), "not to be lost");
}
