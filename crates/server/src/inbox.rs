//! The queues between the services and the driver: reports, which keep leases alive, never wait behind other requests, nor
//! behind those of other namespaces.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use centrifuge_core::id::Namespace;
use centrifuge_core::manager::ManagerEvent;
use centrifuge_core::message::OwnerToManager;
use tokio::sync::mpsc;

/// How many reports may wait. A stream waits with its next message until there is room, so this bounds memory and
/// nothing is dropped.
const REPORTS: usize = 1024;
/// How many reports about many leases may wait.
const LARGE_REPORTS: usize = 16;
/// How many hellos, watches, ends of watches and requests of operators may wait.
const REQUESTS: usize = 256;
/// How many reports in a row go before a large one and a request that wait: a flood of reports cannot shut others out either.
const REPORTS_PER_REQUEST: u32 = 16;

/// The senders' side. Four queues feed the driver, the first of them first:
///
/// 1. answers of the store and the election, of which there are no more than the machine asked for;
/// 2. reports of Owners, which renew leases, one namespace after the other;
/// 3. reports about many leases, each of which takes the machine milliseconds;
/// 4. hellos, watches and their ends, and requests of operators.
///
/// So a flood of the later kinds costs a report at most the one event that the driver is busy with.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    answers: mpsc::UnboundedSender<ManagerEvent>,
    reports: mpsc::Sender<ManagerEvent>,
    large_reports: mpsc::Sender<ManagerEvent>,
    requests: mpsc::Sender<ManagerEvent>,
}

/// The driver's side.
#[derive(Debug)]
pub(crate) struct Queues {
    answers: mpsc::UnboundedReceiver<ManagerEvent>,
    reports: mpsc::Receiver<ManagerEvent>,
    by_namespace: ByNamespace,
    large_reports: mpsc::Receiver<ManagerEvent>,
    requests: mpsc::Receiver<ManagerEvent>,
    reports_in_a_row: u32,
    /// Those that wait behind a long row, the next of them last.
    overdue: Vec<ManagerEvent>,
}

/// Reports, of which each namespace gets its turn: when all Owners of one report at once, those of another do not wait for them.
#[derive(Debug, Default)]
struct ByNamespace {
    waiting: BTreeMap<Option<Namespace>, VecDeque<ManagerEvent>>,
    count: usize,
    /// Whose turn it was last.
    last: Option<Namespace>,
}

impl ByNamespace {
    fn push(&mut self, event: ManagerEvent) {
        let namespace = match &event {
            ManagerEvent::FromOwner { message: OwnerToManager::Report(report), .. } => {
                Some(report.namespace.clone())
            }
            _ => None,
        };
        self.waiting.entry(namespace).or_default().push_back(event);
        self.count += 1;
    }

    fn pop(&mut self) -> Option<ManagerEvent> {
        let behind = (Bound::Excluded(&self.last), Bound::Unbounded);
        let next = self.waiting.range(behind).next().or_else(|| self.waiting.iter().next());
        let namespace = next?.0.clone();
        let queue = self.waiting.get_mut(&namespace)?;
        let event = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(&namespace);
        }
        self.count -= 1;
        self.last = namespace;
        event
    }
}

/// The driver has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the Manager is stopping")]
pub(crate) struct Stopped;

/// Both sides.
#[must_use]
pub(crate) fn inbox() -> (Inbox, Queues) {
    let (answers, answers_out) = mpsc::unbounded_channel();
    let (reports, reports_out) = mpsc::channel(REPORTS);
    let (large_reports, large_out) = mpsc::channel(LARGE_REPORTS);
    let (requests, requests_out) = mpsc::channel(REQUESTS);
    let queues = Queues {
        answers: answers_out,
        reports: reports_out,
        by_namespace: ByNamespace::default(),
        large_reports: large_out,
        requests: requests_out,
        reports_in_a_row: 0,
        overdue: Vec::new(),
    };
    (Inbox { answers, reports, large_reports, requests }, queues)
}

impl Inbox {
    /// Puts in an answer of the store or the election, or an order of this process. Never waits.
    pub(crate) fn answer(&self, event: ManagerEvent) {
        // Without a driver the answer is not needed.
        let _ = self.answers.send(event);
    }

    /// Puts in a report, once there is room.
    pub(crate) async fn report(&self, event: ManagerEvent) -> Result<(), Stopped> {
        self.reports.send(event).await.map_err(|_| Stopped)
    }

    /// Puts in a report about many leases, once there is room. It may be overtaken by a later one of its session, which is complete.
    pub(crate) async fn large_report(&self, event: ManagerEvent) -> Result<(), Stopped> {
        self.large_reports.send(event).await.map_err(|_| Stopped)
    }

    /// Puts in a hello, a watch or a request of an operator, once there is room.
    pub(crate) async fn request(&self, event: ManagerEvent) -> Result<(), Stopped> {
        self.requests.send(event).await.map_err(|_| Stopped)
    }

    /// Puts in a request for a caller that cannot wait, behind all earlier requests. `until_then` is dropped once there was
    /// room for it.
    pub(crate) fn later(&self, event: ManagerEvent, until_then: impl Send + 'static) {
        let Err(mpsc::error::TrySendError::Full(event)) = self.requests.try_send(event) else { return };
        // Outside a runtime the Manager has stopped.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let requests = self.requests.clone();
        runtime.spawn(async move {
            let _ = requests.send(event).await;
            drop(until_then);
        });
    }
}

impl Queues {
    /// Feeds the driver until it is gone. Its own queue should have room for one.
    pub(crate) async fn feed(mut self, driver: mpsc::Sender<ManagerEvent>) {
        while let Some(event) = self.next().await {
            if driver.send(event).await.is_err() {
                return;
            }
        }
    }

    async fn next(&mut self) -> Option<ManagerEvent> {
        if self.reports_in_a_row >= REPORTS_PER_REQUEST {
            self.reports_in_a_row = 0;
            self.overdue.extend(self.requests.try_recv());
            self.overdue.extend(self.large_reports.try_recv());
        }
        if let Some(event) = self.overdue.pop() {
            return Some(event);
        }
        while self.by_namespace.count < REPORTS
            && let Ok(report) = self.reports.try_recv()
        {
            self.by_namespace.push(report);
        }
        if self.by_namespace.count > 0 {
            self.reports_in_a_row += 1;
            return self.answers.try_recv().ok().or_else(|| self.by_namespace.pop());
        }
        tokio::select! {
            biased;
            Some(event) = self.answers.recv() => Some(event),
            Some(event) = self.reports.recv() => {
                self.reports_in_a_row += 1;
                Some(event)
            }
            Some(event) = self.large_reports.recv() => {
                // Whoever floods the Manager with these must not shut requests out.
                self.reports_in_a_row += REPORTS_PER_REQUEST / 4;
                Some(event)
            }
            Some(event) = self.requests.recv() => {
                self.reports_in_a_row = 0;
                Some(event)
            }
            else => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use centrifuge_core::id::{Nonce, Seq, SessionId};
    use centrifuge_core::manager::StreamId;
    use centrifuge_core::message::Report;

    /// Three events that can be told apart.
    const ANSWER: ManagerEvent = ManagerEvent::Start;
    const REPORT: ManagerEvent = ManagerEvent::Resign;
    const REQUEST: ManagerEvent = ManagerEvent::ClockJumped;

    #[tokio::test]
    async fn reports_come_before_requests_and_answers_before_both() {
        let (inbox, mut queues) = inbox();
        inbox.request(REQUEST).await.expect("room");
        inbox.report(REPORT).await.expect("room");
        inbox.answer(ANSWER);
        assert_eq!(queues.next().await, Some(ANSWER));
        assert_eq!(queues.next().await, Some(REPORT));
        assert_eq!(queues.next().await, Some(REQUEST));
        drop(inbox);
        assert_eq!(queues.next().await, None);
    }

    fn report_of(namespace: &str, stream: u64) -> ManagerEvent {
        let report = Report {
            namespace: Namespace::new(namespace).expect("a label"),
            session: SessionId(Nonce(1)),
            conversation: Nonce(1),
            seq: Seq(1),
            heard: Seq(0),
            applied: Seq(0),
            age: Duration::ZERO,
            held: Vec::new(),
            released: Vec::new(),
            refused: Vec::new(),
            imports: Vec::new(),
            loads: Vec::new(),
            load_dimension: Default::default(),
            load_span: Default::default(),
            weight: 100,
            draining: false,
            leaving: false,
        };
        ManagerEvent::FromOwner { from: StreamId(stream), message: OwnerToManager::Report(report) }
    }

    #[tokio::test]
    async fn a_namespace_whose_owners_all_report_at_once_does_not_hold_up_another() {
        let (inbox, mut queues) = inbox();
        for stream in 0..500 {
            inbox.report(report_of("many", stream)).await.expect("room");
        }
        inbox.report(report_of("few", 1_000)).await.expect("room");
        let first = [queues.next().await, queues.next().await];
        assert!(first.contains(&Some(report_of("few", 1_000))), "it is among the first two");
        for _ in 0..499 {
            let next = queues.next().await;
            assert!(matches!(next, Some(ManagerEvent::FromOwner { from: StreamId(0..500), .. })));
        }
        inbox.answer(ANSWER);
        inbox.report(report_of("many", 1)).await.expect("room");
        assert_eq!(queues.next().await, Some(ANSWER));
    }

    #[tokio::test]
    async fn large_reports_wait_for_others_but_not_for_ever() {
        let (inbox, mut queues) = inbox();
        inbox.large_report(REQUEST).await.expect("room");
        for _ in 0..2 * REPORTS_PER_REQUEST {
            inbox.report(REPORT).await.expect("room");
        }
        for _ in 0..REPORTS_PER_REQUEST {
            assert_eq!(queues.next().await, Some(REPORT));
        }
        assert_eq!(queues.next().await, Some(REQUEST), "it has waited for a long row");
        assert_eq!(queues.next().await, Some(REPORT));
    }

    #[tokio::test]
    async fn a_full_queue_of_requests_does_not_hold_up_a_report() {
        let (inbox, mut queues) = inbox();
        for _ in 0..REQUESTS {
            inbox.request(REQUEST).await.expect("room");
        }
        inbox.report(REPORT).await.expect("room");
        assert_eq!(queues.next().await, Some(REPORT));
    }

    #[tokio::test]
    async fn what_cannot_wait_comes_after_a_full_queue_and_holds_its_room_until_then() {
        let (inbox, mut queues) = inbox();
        for _ in 0..REQUESTS {
            inbox.request(REQUEST).await.expect("room");
        }
        let room = std::sync::Arc::new(());
        inbox.later(ANSWER, std::sync::Arc::clone(&room));
        tokio::task::yield_now().await;
        assert_eq!(std::sync::Arc::strong_count(&room), 2);
        for _ in 0..REQUESTS {
            assert_eq!(queues.next().await, Some(REQUEST));
        }
        assert_eq!(queues.next().await, Some(ANSWER));
        while std::sync::Arc::strong_count(&room) > 1 {
            tokio::task::yield_now().await;
        }
        inbox.later(ANSWER, ());
        assert_eq!(queues.next().await, Some(ANSWER));
    }

    #[tokio::test]
    async fn a_flood_of_reports_lets_a_request_through() {
        let (inbox, mut queues) = inbox();
        for _ in 0..REPORTS {
            inbox.report(REPORT).await.expect("room");
        }
        inbox.request(REQUEST).await.expect("room");
        let mut seen = 0;
        while queues.next().await != Some(REQUEST) {
            seen += 1;
        }
        assert_eq!(seen, REPORTS_PER_REQUEST);
    }
}
