//! A group of peers, each in a process of its own on loopback.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use super::order::{Answer, Counts, Order, Times};
use crate::bench::process::{Process, Reads};
use crate::failure::Failure;

/// Others may take a port between its choice and its use: then all are chosen anew.
const TRIES: usize = 5;
/// Replies on their way have arrived when nothing is sent for this long.
const SETTLED: Duration = Duration::from_millis(10);
/// What is held is renewed, so that the group is never silent for ever.
const LOOKS: usize = 100;

/// Peers that run; they end when this is dropped.
pub(super) struct Group {
    processes: Vec<Process>,
    times: Times,
}

impl Group {
    /// Starts so many peers. They take part after their recovery.
    pub(super) async fn start(peers: u16, times: Times) -> Result<Group, Failure> {
        let mut failed = Failure::failed("no peers");
        for _ in 0..TRIES {
            match Group::try_start(peers, times).await {
                Ok(group) => return Ok(group),
                Err(failure) => failed = failure,
            }
        }
        Err(failed)
    }

    async fn try_start(peers: u16, times: Times) -> Result<Group, Failure> {
        let list = list(&free_addresses(peers)?);
        let key = format!("the secret of measurement {}", std::process::id());
        let words = ["bench", "flease-peer"].map(str::to_owned);
        let start = |_| Process::start(&words, Reads::Stdout);
        let processes = (0..peers).map(start).collect::<Result<_, _>>()?;
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
            answers.push(hear(process).await?);
        }
        Ok(answers)
    }

    /// Gives one peer an order.
    pub(super) async fn order_one(&mut self, place: usize, order: &Order) -> Result<Answer, Failure> {
        tell(&mut self.processes[place], order)?;
        hear(&mut self.processes[place]).await
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
        for _ in 0..LOOKS {
            tokio::time::sleep(SETTLED).await;
            let later = self.count().await?;
            if later.datagrams == counts.datagrams {
                return Ok(later);
            }
            counts = later;
        }
        Ok(counts)
    }
}

fn tell(process: &mut Process, order: &Order) -> Result<(), Failure> {
    let line = serde_json::to_string(order).map_err(|error| Failure::failed(error.to_string()))?;
    process.tell(&line)
}

async fn hear(process: &mut Process) -> Result<Answer, Failure> {
    let line = process.next_line().await?;
    match serde_json::from_str(&line) {
        Ok(Answer::Failed { why }) => Err(Failure::failed(format!("a peer failed: {why}"))),
        Ok(answer) => Ok(answer),
        Err(error) => Err(Failure::failed(format!("a peer said {line:?}: {error}"))),
    }
}

/// Free ports, all at once, so that none is given twice.
fn free_addresses(count: u16) -> Result<Vec<SocketAddr>, Failure> {
    let sockets: Result<Vec<UdpSocket>, _> = (0..count).map(|_| UdpSocket::bind("127.0.0.1:0")).collect();
    let addresses = sockets.and_then(|sockets| sockets.iter().map(UdpSocket::local_addr).collect());
    addresses.map_err(|error| Failure::failed(format!("no free port on loopback: {error}")))
}

/// The peers as all of them are told of each other, numbered from one.
fn list(addresses: &[SocketAddr]) -> String {
    let peers = (1..).zip(addresses.iter().map(SocketAddr::to_string));
    let text: Vec<String> = peers.map(|(number, address)| format!("{number}={address}")).collect();
    text.join(",")
}
