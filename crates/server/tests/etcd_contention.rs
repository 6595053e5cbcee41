//! Several processes fight over one store while etcd has troubles: what was answered stays, and nothing else is there.

mod etcd_support;
mod store_support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use centrifuge_core::id::{Index, Term};
use centrifuge_core::manager::{ElectionCommand, ElectionEvent, StoreCommand, StoreEvent};
use centrifuge_core::record::Batch;
use centrifuge_server::store::{Answer, EtcdOptions};
use etcd_support::{Etcd, backend, short_lived};
use store_support::{Client, batch_of, drawn, sum};

/// How long the fight goes on; `CENTRIFUGE_CONTENTION_SECONDS` makes it longer.
const SECONDS: u64 = 20;
const CONTENDERS: u64 = 3;

/// What all contenders know for certain.
#[derive(Default)]
struct Ledger {
    /// Batches whose append was answered well.
    appended: Mutex<BTreeMap<u64, Arc<Batch>>>,
    /// Terms that were won, and by whom.
    terms: Mutex<BTreeMap<Term, u64>>,
    /// What loads gave, by term.
    loads: Mutex<BTreeMap<Term, Index>>,
    unknown: AtomicU64,
    fenced: AtomicU64,
}

#[test]
fn what_was_answered_stays() {
    let seconds = std::env::var("CENTRIFUGE_CONTENTION_SECONDS")
        .map_or(SECONDS, |text| text.parse().expect("a number"));
    let etcd = Etcd::start(3);
    let options = etcd.options();
    let (ledger, stop) = (Ledger::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        for number in 0..CONTENDERS {
            let (ledger, stop, options) = (&ledger, &stop, &options);
            scope.spawn(move || contend(number, options, ledger, stop));
        }
        trouble(&etcd, &options, Duration::from_secs(seconds));
        stop.store(true, Ordering::Relaxed);
    });
    check(&ledger, &options);
}

/// Faults, one after the other, of a kind that is drawn.
fn trouble(etcd: &Etcd, options: &EtcdOptions, length: Duration) {
    let end = Instant::now() + length;
    let leader = format!("{}leader", options.prefix);
    let mut step = 0;
    while Instant::now() < end {
        step += 1;
        let (what, node, millis) = drawn(&(0..5u8, 0..3usize, 10..900u64), step);
        // Not to wait for anything: faults come at other moments of the work each time.
        thread::sleep(Duration::from_millis(millis));
        match what {
            0 | 1 => drop(etcd.etcdctl(&["del", &leader])),
            2 => {
                etcd.kill(node);
                thread::sleep(Duration::from_millis(millis));
                etcd.restart(node);
                etcd.wait_for(node);
            }
            3 => {
                etcd.pause(node);
                thread::sleep(Duration::from_millis(millis * 2));
                etcd.resume(node);
            }
            _ => {
                etcd.pause_all();
                thread::sleep(Duration::from_millis(millis));
                etcd.resume_all();
            }
        }
    }
}

/// Leads whenever it can, as a Manager does, without its clock: the fence alone must do.
fn contend(number: u64, options: &EtcdOptions, ledger: &Ledger, stop: &AtomicBool) {
    let name = format!("manager-{number}:1");
    let mut life = 0;
    while !stop.load(Ordering::Relaxed) {
        life += 1;
        let opened = Client::try_open(|answers| backend(options).open(&short_lived(&name), answers));
        let Ok(store) = opened else { continue };
        let crashes = drawn(&(0..2u8), number << 32 | life) == 0;
        for round in 0..4 {
            let request = life * 100 + round;
            if let Some(term) = win(&store, request, stop) {
                assert_eq!(
                    ledger.terms.lock().expect("whole").insert(term, number),
                    None,
                    "{term} was won twice"
                );
                lead(&store, term, request, ledger, stop);
            }
        }
        if crashes { store.crash() } else { store.close() }
    }
}

/// Campaigns until it wins, as a standby does.
fn win(store: &Client, request: u64, stop: &AtomicBool) -> Option<Term> {
    store.send(ElectionCommand::Campaign { request });
    while !stop.load(Ordering::Relaxed) {
        match store.answer_within(Duration::from_millis(700)) {
            Some(Answer::Election(ElectionEvent::Won { request: won, term })) => {
                assert_eq!(won, request);
                return Some(term);
            }
            Some(Answer::Election(_)) => {}
            // The answer to what the last term had sent.
            Some(Answer::Store(_)) => {}
            Some(Answer::Followed(_)) => unreachable!("left out"),
            None => store.send(ElectionCommand::Campaign { request }),
        }
    }
    None
}

/// Loads and appends until the term is over.
fn lead(store: &Client, term: Term, request: u64, ledger: &Ledger, stop: &AtomicBool) {
    let Some(mut index) = load(store, term, request, stop) else { return };
    assert_eq!(ledger.loads.lock().expect("whole").insert(term, Index(index)), None);
    for step in 0..200 {
        let batch = batch_of(term, step);
        let next = Index(index + 1);
        loop {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            store.send(StoreCommand::Append { term, index: next, batch: Arc::clone(&batch) });
            match appended(store, next) {
                StoreEvent::Appended { .. } => break,
                StoreEvent::Fenced { .. } => {
                    ledger.fenced.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                _ => drop(ledger.unknown.fetch_add(1, Ordering::Relaxed)),
            }
        }
        ledger.appended.lock().expect("whole").insert(next.0, batch);
        index += 1;
        if step % 50 == 20 {
            store.send(ElectionCommand::Renew { request: 1_000_000 + step, term });
        }
    }
    store.send(ElectionCommand::Resign { term });
}

fn load(store: &Client, term: Term, request: u64, stop: &AtomicBool) -> Option<u64> {
    store.send(StoreCommand::Load { request });
    while !stop.load(Ordering::Relaxed) {
        match store.answer() {
            Answer::Store(StoreEvent::Loaded { index, .. }) => return Some(index.0),
            Answer::Store(StoreEvent::LoadFailed { .. }) => store.send(StoreCommand::Load { request }),
            Answer::Election(ElectionEvent::Lost { term: lost }) if lost == term => return None,
            _ => {}
        }
    }
    None
}

/// What became of an append; what the election says meanwhile is of no concern.
fn appended(store: &Client, at: Index) -> StoreEvent {
    loop {
        if let Answer::Store(event) = store.answer() {
            let (StoreEvent::Appended { index }
            | StoreEvent::Fenced { index }
            | StoreEvent::NotAppended { index }
            | StoreEvent::Unknown { index }) = &event
            else {
                continue;
            };
            if *index == at {
                return event;
            }
        }
    }
}

fn check(ledger: &Ledger, options: &EtcdOptions) {
    let contents = backend(options).copy().expect("readable");
    let appended = ledger.appended.lock().expect("whole");
    let terms = ledger.terms.lock().expect("whole");
    println!(
        "{} terms, {} batches answered of {}, {} outcomes unknown, {} fenced",
        terms.len(),
        appended.len(),
        contents.index,
        ledger.unknown.load(Ordering::Relaxed),
        ledger.fenced.load(Ordering::Relaxed)
    );
    assert!(appended.len() > 50 && terms.len() > 5, "somebody led and wrote");
    assert!(contents.term >= *terms.keys().next_back().expect("some"));
    let log: BTreeMap<u64, &Batch> =
        contents.history.iter().map(|stored| (stored.index.0, &stored.batch)).collect();
    assert!(log.keys().copied().eq(1..=contents.index.0), "the log has no hole");
    for (index, batch) in appended.iter() {
        assert_eq!(log[index], &**batch, "the batch at {index} was answered and is another one");
    }
    let in_order: Vec<Term> = log.values().map(|batch| batch.term).collect();
    assert!(in_order.is_sorted(), "an earlier term wrote after a later one");
    for (term, index) in ledger.loads.lock().expect("whole").iter() {
        let before = log.values().take_while(|batch| batch.term < *term).count() as u64;
        assert_eq!(index.0, before, "term {term} loaded another log than it went on with");
    }
    let all: Vec<Arc<Batch>> = log.values().map(|batch| Arc::new((*batch).clone())).collect();
    assert_eq!(contents.group, sum(&all));
}
