//! The store on a disk that fails: at every single step of a write, and for good.

use std::sync::mpsc;
use std::time::Instant;

use centrifuge_core::manager::{ElectionCommand, StoreCommand};
use centrifuge_core::record::Record;

use super::*;

const PATIENCE: Duration = Duration::from_secs(60);

struct Store {
    _folder: tempfile::TempDir,
    handle: StoreHandle,
    answers: Receiver<Answer>,
    trouble: Arc<crate::store::disk::tests::Trouble>,
}

impl Store {
    fn new() -> Store {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = create_empty(&folder.path().join("manager.store")).expect("a store");
        let trouble = Arc::clone(&disk.trouble);
        let (sender, answers) = mpsc::channel();
        let handle = run(disk, Box::new(move |answer| drop(sender.send(answer)))).expect("a store");
        Store { _folder: folder, handle, answers, trouble }
    }

    fn ask(&self, command: impl Into<Command>) -> Answer {
        self.handle.send(command);
        self.answers.recv_timeout(PATIENCE).expect("the store answers")
    }

    fn append(&self, term: Term, index: u64) -> StoreEvent {
        match self.ask(StoreCommand::Append { term, index: Index(index), batch: batch(term, index) }) {
            Answer::Store(event) => event,
            other => panic!("no answer to an append: {other:?}"),
        }
    }

    /// Repeats an append, as a leader does, until it is settled.
    fn settle(&self, term: Term, index: u64) {
        let end = Instant::now() + PATIENCE;
        while self.append(term, index) != (StoreEvent::Appended { index: Index(index) }) {
            assert!(Instant::now() < end, "the store does not recover");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Campaigns until it is won.
    fn lead(&self) -> Term {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Answer::Election(ElectionEvent::Won { term, .. }) =
                self.ask(ElectionCommand::Campaign { request: 1 })
            {
                return term;
            }
            assert!(Instant::now() < end, "the store does not recover");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn load(&self) -> (Index, Arc<ManagerState>) {
        match self.ask(StoreCommand::Load { request: 1 }) {
            Answer::Store(StoreEvent::Loaded { index, group, .. }) => (index, group),
            other => panic!("not loaded: {other:?}"),
        }
    }
}

fn batch(term: Term, index: u64) -> Arc<Batch> {
    let records = vec![Record::LeaderStarted { leader_hold: Duration::from_nanos(index) }];
    Arc::new(Batch { term, records })
}

fn sum(terms: &[Term]) -> Arc<ManagerState> {
    let mut group = ManagerState::default();
    for (index, term) in (1..).zip(terms) {
        group.apply(&batch(*term, index));
    }
    Arc::new(group)
}

#[test]
fn an_append_that_fails_at_any_step_is_never_answered_and_is_settled_by_repeating_it() {
    let store = Store::new();
    let term = store.lead();
    let mut index = 0;
    let mut unsure = 0;
    for step in 0.. {
        index += 1;
        store.trouble.after(step);
        let event = store.append(term, index);
        let failed = event != StoreEvent::Appended { index: Index(index) };
        store.trouble.after(u64::MAX);
        if !failed {
            assert!(step > 3, "a write has several steps");
            break;
        }
        unsure += u64::from(event == StoreEvent::Unknown { index: Index(index) });
        // The leader leads on: nobody else can have the file.
        let renewed = Answer::Election(ElectionEvent::Renewed { request: 9 });
        assert_eq!(store.ask(ElectionCommand::Renew { request: 9, term }), renewed);
        store.settle(term, index);
    }
    assert!(unsure > 0, "some failures leave the outcome open");
    let terms = vec![term; usize::try_from(index).expect("small")];
    assert_eq!(store.load(), (Index(index), sum(&terms)));
    store.handle.join();
}

#[test]
fn a_disk_that_stays_broken_is_said_to_be_unknown_and_unreadable_and_not_led() {
    let store = Store::new();
    let term = store.lead();
    assert_eq!(store.append(term, 1), StoreEvent::Appended { index: Index(1) });
    store.trouble.after(0);
    for _ in 0..3 {
        let event = store.append(term, 2);
        assert!(
            matches!(event, StoreEvent::Unknown { .. } | StoreEvent::NotAppended { .. }),
            "{event:?} from a broken disk"
        );
    }
    let failed = Answer::Store(StoreEvent::LoadFailed { request: 5 });
    assert_eq!(store.ask(StoreCommand::Load { request: 5 }), failed);
    let not_won = Answer::Election(ElectionEvent::LedBy { request: 6, leader: None });
    assert_eq!(store.ask(ElectionCommand::Campaign { request: 6 }), not_won);
    assert!(matches!(store.handle.recent(1), Err(StoreError::Broken { .. })));
    store.trouble.after(u64::MAX);
    store.settle(term, 2);
    assert_eq!(store.load(), (Index(2), sum(&[term, term])));
    store.handle.join();
}

#[test]
fn a_term_whose_write_failed_is_never_used() {
    let store = Store::new();
    let first = store.lead();
    for step in 0..4 {
        store.trouble.after(step);
        let answer = store.ask(ElectionCommand::Campaign { request: 2 });
        let won = matches!(answer, Answer::Election(ElectionEvent::Won { .. }));
        store.trouble.after(u64::MAX);
        if won {
            break;
        }
        // Who campaigned anew gave up what it led before.
        assert_eq!(store.append(first, 1), StoreEvent::Unknown { index: Index(1) });
        let term = store.lead();
        assert!(term.0 > first.0 + 1, "{term} may be on the disk already");
    }
    store.handle.join();
}

#[test]
fn several_appends_share_the_fate_of_their_transaction() {
    let store = Store::new();
    let term = store.lead();
    store.trouble.after(1);
    for index in 1..=5 {
        store.handle.send(StoreCommand::Append { term, index: Index(index), batch: batch(term, index) });
    }
    for _ in 1..=5 {
        let answer = store.answers.recv_timeout(PATIENCE).expect("an answer");
        assert!(
            matches!(answer, Answer::Store(StoreEvent::Unknown { .. } | StoreEvent::NotAppended { .. })),
            "{answer:?} from a broken disk"
        );
    }
    store.trouble.after(u64::MAX);
    for index in 1..=5 {
        store.settle(term, index);
    }
    assert_eq!(store.load(), (Index(5), sum(&[term; 5])));
    store.handle.join();
}

#[test]
fn a_full_disk_says_so_and_is_forgotten_when_there_is_room() {
    let store = Store::new();
    let term = store.lead();
    store.settle(term, 1);
    let problem = || store.handle.facts().lock().expect("no panic").problem.clone();
    assert_eq!(problem(), None);
    store.trouble.for_lack_of_room();
    for operations in 0..6 {
        store.trouble.after(operations);
        let index = operations + 2;
        while store.append(term, index) == (StoreEvent::Appended { index: Index(index) }) {
            // The witness comes after the commit, and its failure costs nothing.
            store.trouble.after(0);
        }
        let words = problem().expect("a problem");
        assert!(words.contains("no room is left on the disk") && words.contains("manager.store"), "{words}");
        store.trouble.after(u64::MAX);
        store.settle(term, index);
        assert_eq!(problem(), None, "there is room again");
    }
}
