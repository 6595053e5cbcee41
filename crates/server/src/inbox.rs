//! The queues between the services and the driver: reports, which keep leases alive, never wait behind other requests.

use centrifuge_core::manager::ManagerEvent;
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
/// 2. reports of Owners, which renew leases;
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
    large_reports: mpsc::Receiver<ManagerEvent>,
    requests: mpsc::Receiver<ManagerEvent>,
    reports_in_a_row: u32,
    /// Those that wait behind a long row, the next of them last.
    overdue: Vec<ManagerEvent>,
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
    use super::*;

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
