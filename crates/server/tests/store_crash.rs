//! A process that appends is killed at random moments, again and again, and nothing that it was answered is ever lost.
//!
//! The test starts itself anew as the process to be killed, and reads from a pipe what that one sends to its store and
//! what it is answered. After each kill it reads the file: every answered batch is there, equal, and in order; nothing
//! is there that was never sent; terms rise. Fifteen kills by default. The long form is
//!
//! ```text
//! CENTRIFUGE_CRASH_KILLS=200 cargo test -p centrifuge-server --test store_crash -- --nocapture
//! ```

mod store_support;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use centrifuge_core::id::{Index, Term};
use centrifuge_core::manager::{StoreCommand, StoreEvent};
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::record::Batch;
use centrifuge_server::store::{self, Answer, Backend};
use store_support::{Client, batch_of, drawn};

const KILLS: &str = "CENTRIFUGE_CRASH_KILLS";
const STORE: &str = "CENTRIFUGE_CRASH_STORE";
const SEED: &str = "CENTRIFUGE_CRASH_SEED";

/// What the parent knows for certain, over all lives of the child.
#[derive(Default)]
struct Ledger {
    /// Every batch that is in the log.
    log: Vec<Arc<Batch>>,
    group: ManagerState,
    highest_term: u64,
    killed_while_open: u64,
}

/// What one life of the child said.
#[derive(Default)]
struct Said {
    term: Option<u64>,
    loaded: Option<u64>,
    sent: u64,
    answered: Vec<u64>,
}

#[test]
fn kill_at_any_moment_loses_nothing_that_was_answered() {
    if std::env::var_os(STORE).is_some() {
        return;
    }
    let kills: u64 = std::env::var(KILLS).map_or(15, |kills| kills.parse().expect("a number of kills"));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("manager.store");
    let mut ledger = Ledger::default();
    for kill in 0..kills {
        let said = one_life(&file, kill);
        ledger.check(&file, &said, kill);
    }
    assert!(ledger.killed_while_open > 0, "some life must reach its store");
    println!(
        "{kills} kills, {} of them with the store open: {} batches, {} terms, nothing lost",
        ledger.killed_while_open,
        ledger.log.len(),
        ledger.highest_term
    );
}

/// Runs the child until it has said a random number of lines, and a random moment longer, and kills it.
fn one_life(file: &Path, kill: u64) -> Said {
    // One life in five is killed while it opens its store.
    let (early, lines, moment) = drawn(&(0..5u8, 1..400u64, 0..20_000u64), kill);
    let mut child = Process::new(std::env::current_exe().expect("this test's own file"))
        .args(["--exact", "the_process_that_is_killed", "--nocapture"])
        .env(STORE, file)
        .env(SEED, kill.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("the child starts");
    let mut said = Said::default();
    let mut pipe = BufReader::new(child.stdout.take().expect("a pipe"));
    if early > 0 {
        let mut heard = 0;
        let mut line = String::new();
        while heard < lines && pipe.read_line(&mut line).expect("the pipe is readable") > 0 {
            heard += u64::from(said.hear(&line));
            line.clear();
        }
    }
    // Not to wait for anything: to be at another place in the child's work each time.
    thread::sleep(Duration::from_micros(moment));
    child.kill().expect("the child can be killed");
    // What it had said before it was killed is still in the pipe, up to the middle of a line.
    for line in pipe.lines() {
        said.hear(&line.expect("the pipe is readable"));
    }
    let status = child.wait().expect("the child has ended");
    assert_eq!(status.code(), None, "the child ended by itself: {status}");
    said
}

impl Said {
    /// Notes one line; false if it is none of ours.
    fn hear(&mut self, line: &str) -> bool {
        // A line without its full stop was cut off by the kill.
        let Some(line) = line.trim_end().strip_suffix('.') else { return false };
        let Some((what, number)) = line.split_once(' ') else { return false };
        let Ok(number) = number.parse() else { return false };
        match what {
            "term" => self.term = Some(number),
            "loaded" => self.loaded = Some(number),
            "sent" => self.sent = number,
            "answered" => self.answered.push(number),
            _ => return false,
        }
        true
    }
}

impl Ledger {
    fn check(&mut self, file: &Path, said: &Said, kill: u64) {
        if !file.exists() {
            assert!(said.term.is_none(), "kill {kill}: a store that had a leader is gone");
            return;
        }
        let contents = Backend::File(file.to_owned())
            .read()
            .unwrap_or_else(|error| panic!("kill {kill}: the store is unreadable: {error}"));
        if let Some(term) = said.term {
            assert!(term > self.highest_term, "kill {kill}: term {term} after {}", self.highest_term);
            self.highest_term = term;
            self.killed_while_open += 1;
        }
        assert!(contents.term.0 >= self.highest_term, "kill {kill}: a term that was won is forgotten");
        self.highest_term = self.highest_term.max(contents.term.0);
        let before = self.log.len() as u64;
        if let Some(loaded) = said.loaded {
            assert_eq!(loaded, before, "kill {kill}: the next life found another log");
        }
        let last = contents.index.0;
        let answered = said.answered.last().copied().unwrap_or(before);
        assert!(said.answered.iter().copied().eq(before + 1..=answered), "kill {kill}: answers out of order");
        assert!(last >= answered, "kill {kill}: {answered} was answered and the log ends at {last}");
        // The line that says what is sent is written before it is sent, and may be cut off only at the very end.
        assert!(last <= said.sent.max(before), "kill {kill}: batch {last} was invented");
        self.take(&contents, said.term);
        assert_eq!(contents.group, self.group, "kill {kill}: the state is not what the batches add up to");
    }

    /// Compares the history with the batches that were sent, and adds what is new.
    fn take(&mut self, contents: &store::Contents, term: Option<u64>) {
        let indexes = contents.history.iter().map(|stored| stored.index.0);
        let first = contents.history.first().map_or(contents.index.0 + 1, |stored| stored.index.0);
        assert!(indexes.eq(first..=contents.index.0), "the history has gaps");
        for stored in &contents.history {
            let at = usize::try_from(stored.index.0 - 1).expect("small");
            if at == self.log.len() {
                let sent = batch_of(Term(term.expect("somebody led")), stored.index.0);
                self.group.apply(&sent);
                self.log.push(sent);
            }
            assert_eq!(stored.batch, *self.log[at], "batch {} is not the one that was sent", stored.index);
        }
        assert_eq!(self.log.len() as u64, contents.index.0);
    }
}

/// The child: campaigns, loads, and appends in bursts until it is killed. Does nothing unless it was started for that.
#[test]
fn the_process_that_is_killed() {
    let Some(file) = std::env::var_os(STORE).map(PathBuf::from) else { return };
    let seed: u64 = std::env::var(SEED).expect("a seed").parse().expect("a number");
    let mut store = Client::open(|answers| store::open(&file, answers));
    let term = store.campaign();
    say("term", term.0);
    let (Index(mut last), group) = store.load();
    say("loaded", last);
    let mut group = ManagerState::clone(&group);
    for round in 0.. {
        let burst = drawn(&(1..6u64), seed << 32 | round);
        for index in last + 1..=last + burst {
            let batch = batch_of(term, index);
            say("sent", index);
            group.apply(&batch);
            store.send(StoreCommand::Append { term, index: Index(index), batch });
        }
        for index in last + 1..=last + burst {
            assert_eq!(store.answer(), Answer::Store(StoreEvent::Appended { index: Index(index) }));
            say("answered", index);
        }
        last += burst;
        if round % 10 == 9 {
            store.send(StoreCommand::Compact { index: Index(last), group: Arc::new(group.clone()) });
        }
    }
}

/// One line to the parent, written at once.
fn say(what: &str, number: u64) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{what} {number}.\n").as_bytes()).and_then(|()| out.flush()).expect("a pipe");
}
