//! A group of peers, each in a process of its own on loopback.

use std::time::Duration;

use centrifuge_harness::Process;
use centrifuge_harness::ports::{free_addresses, numbered};

use super::order::{Answer, Counts, Order, Times};
use crate::Failure;
use crate::process::{hear, start, tell};

/// Replies on their way have arrived when nothing is sent for this long.
const SETTLE_TIME: Duration = Duration::from_millis(10);
/// What is held is renewed, so that the group is never silent for ever.
const MAX_POLLS: usize = 100;

/// Peers that run; they end when this is dropped.
pub(super) struct Group {
    processes: Vec<Process>,
    times: Times,
}

impl Group {
    /// Starts so many peers. They take part after their recovery.
    pub(super) async fn start(peers: u16, times: Times) -> Result<Group, Failure> {
        let list = numbered(&free_addresses(usize::from(peers))?);
        let key = format!("the secret of measurement {}", std::process::id());
        let processes = (0..peers).map(|_| start(&["flease-peer"])).collect::<Result<_, _>>()?;
        let mut group = Group { processes, times };
        let order = |me| Order::Start { peers: list.clone(), me: me as u16 + 1, key: key.clone(), times };
        group.order(order).await?;
        Ok(group)
    }

    pub(super) fn len(&self) -> usize {
        self.processes.len()
    }

    pub(super) fn times(&self) -> Times {
        self.times
    }

    /// Waits until all take part.
    pub(super) async fn ready(&mut self) -> Result<(), Failure> {
        self.order(|_| Order::Ready).await.map(drop)
    }

    /// Gives every peer an order, by its place, and waits for all answers.
    pub(super) async fn order(&mut self, order: impl Fn(usize) -> Order) -> Result<Vec<Answer>, Failure> {
        for (place, process) in self.processes.iter_mut().enumerate() {
            tell(process, &order(place))?;
        }
        let mut answers = Vec::new();
        for process in &mut self.processes {
            answers.push(answer(process).await?);
        }
        Ok(answers)
    }

    /// Gives one peer an order.
    pub(super) async fn order_one(&mut self, place: usize, order: &Order) -> Result<Answer, Failure> {
        tell(&mut self.processes[place], order)?;
        answer(&mut self.processes[place]).await
    }

    /// What all peers have counted.
    pub(super) async fn count(&mut self) -> Result<Counts, Failure> {
        let mut counts = Counts::default();
        for answer in self.order(|_| Order::Count).await? {
            if let Answer::Counted(more) = answer {
                counts.add(more);
            }
        }
        Ok(counts)
    }

    /// The same, once nothing is on its way any more.
    pub(super) async fn count_settled(&mut self) -> Result<Counts, Failure> {
        let mut counts = self.count().await?;
        for _ in 0..MAX_POLLS {
            tokio::time::sleep(SETTLE_TIME).await;
            let later = self.count().await?;
            if later.datagrams == counts.datagrams {
                return Ok(later);
            }
            counts = later;
        }
        Ok(counts)
    }
}

async fn answer(process: &mut Process) -> Result<Answer, Failure> {
    match hear(process).await? {
        Answer::Failed { why } => Err(format!("a peer failed: {why}").into()),
        answer => Ok(answer),
    }
}
