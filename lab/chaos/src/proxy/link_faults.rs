//! What happens to single messages on a link: lost, delayed, doubled, overtaken, or nothing at all. Datagrams are carried
//! here, one by one; services carry the messages of streams.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use centrifuge_harness::{Rng, lock};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

/// How often bytes that wait look whether their way is still cut.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How often a message is lost, doubled or delayed, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkFaults {
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) delayed: u64,
    pub(crate) longest_delay: Duration,
}

impl LinkFaults {
    /// Nothing happens.
    pub(crate) const NONE: LinkFaults =
        LinkFaults { lost: 0, doubled: 0, delayed: 0, longest_delay: Duration::ZERO };
    /// Now and then something.
    pub(crate) const USUAL: LinkFaults =
        LinkFaults { lost: 1, doubled: 2, delayed: 5, longest_delay: Duration::from_millis(200) };
    /// The same for bytes: none are lost, for that would break a connection.
    pub(crate) const USUAL_FOR_BYTES: LinkFaults = LinkFaults { lost: 0, doubled: 0, ..LinkFaults::USUAL };
}

/// What happened to messages, over all links.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) carried: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) doubled: AtomicU64,
    pub(crate) delayed: AtomicU64,
    pub(crate) overtaken: AtomicU64,
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    state: Arc<Mutex<State>>,
    counts: Arc<Counts>,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    link_faults: LinkFaults,
    is_cut: bool,
    /// The number of the message that came last, and the highest that left.
    came: u64,
    left: u64,
}

impl Way {
    pub(crate) fn new(rng: Rng, link_faults: LinkFaults, counts: &Arc<Counts>) -> Way {
        let state = State { rng, link_faults, is_cut: false, came: 0, left: 0 };
        Way { state: Arc::new(Mutex::new(state)), counts: Arc::clone(counts) }
    }

    pub(crate) fn set_link_faults(&self, link_faults: LinkFaults) {
        lock(&self.state).link_faults = link_faults;
    }

    pub(crate) fn set_cut(&self, is_cut: bool) {
        lock(&self.state).is_cut = is_cut;
    }

    /// Carries a message, with the link's faults. False if the receiver is gone.
    pub(super) async fn carry<T: Clone + Send + 'static>(&self, message: T, to: &mpsc::Sender<T>) -> bool {
        let (number, fates) = self.draw();
        for delay in fates {
            if delay.is_zero() {
                self.leaves(number);
                if to.send(message.clone()).await.is_err() {
                    return false;
                }
                continue;
            }
            let (way, message, to) = (self.clone(), message.clone(), to.clone());
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                way.leaves(number);
                // Whoever is gone does not wait for it.
                let _ = to.send(message).await;
            });
        }
        !to.is_closed()
    }

    /// Lets bytes through that nobody can read: they wait while the way is cut, and may be late. False if the connection
    /// breaks: where bytes are missing or come twice, TLS ends it.
    pub(super) async fn lets_through(&self) -> bool {
        while lock(&self.state).is_cut {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let delay = self.draw().1.first().copied();
        tokio::time::sleep(delay.unwrap_or_default()).await;
        delay.is_some()
    }

    /// Numbers a message and decides how often it arrives, and how late.
    fn draw(&self) -> (u64, Vec<Duration>) {
        let mut state = lock(&self.state);
        state.came += 1;
        let (number, link_faults) = (state.came, state.link_faults);
        add(&self.counts.carried);
        if state.is_cut {
            return (number, Vec::new());
        }
        if state.rng.percent(link_faults.lost) {
            add(&self.counts.lost);
            return (number, Vec::new());
        }
        let copies = if state.rng.percent(link_faults.doubled) { 2 } else { 1 };
        if copies == 2 {
            add(&self.counts.doubled);
        }
        let fate = |_| {
            if !state.rng.percent(link_faults.delayed) {
                return Duration::ZERO;
            }
            add(&self.counts.delayed);
            state.rng.between(Duration::from_millis(1), link_faults.longest_delay)
        };
        (number, (0..copies).map(fate).collect())
    }

    fn leaves(&self, number: u64) {
        let mut state = lock(&self.state);
        if number < state.left {
            add(&self.counts.overtaken);
        }
        state.left = state.left.max(number);
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The longest datagram there is.
const MAX_DATAGRAM_LEN: usize = 1 << 16;
/// How many wait to be sent on; a network drops what is more, and so does the system's buffer before this.
const QUEUE: usize = 1_024;

/// Carries what arrives at `listen` to another address, for as long as the harness lives.
pub(crate) async fn carry_datagrams(listen: SocketAddr, to: SocketAddr, way: Way) -> io::Result<()> {
    let socket = Arc::new(UdpSocket::bind(listen).await?);
    let (sender, leaving) = mpsc::channel(QUEUE);
    tokio::spawn(send_on(Arc::clone(&socket), to, leaving));
    tokio::spawn(carry(socket, way, sender));
    Ok(())
}

async fn carry(socket: Arc<UdpSocket>, way: Way, to: mpsc::Sender<Vec<u8>>) {
    let mut buffer = vec![0; MAX_DATAGRAM_LEN];
    loop {
        // What cannot be received is lost, as datagrams are.
        let Ok((length, _)) = socket.recv_from(&mut buffer).await else { continue };
        if !way.carry(buffer[..length].to_vec(), &to).await {
            return;
        }
    }
}

async fn send_on(socket: Arc<UdpSocket>, to: SocketAddr, mut leaving: mpsc::Receiver<Vec<u8>>) {
    while let Some(datagram) = leaving.recv().await {
        // The receiver may be dead, or its network cut.
        let _ = socket.send_to(&datagram, to).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::link_faults::{Counts, LinkFaults};
    use super::*;
    use centrifuge_harness::Rng;
    use std::time::Duration;

    async fn carried(link_faults: LinkFaults, is_cut: bool) -> (Vec<u64>, Arc<Counts>) {
        let counts = Arc::new(Counts::default());
        let way = Way::new(Rng::new(1), link_faults, &counts);
        way.set_cut(is_cut);
        let (to, mut from) = mpsc::channel(1_000);
        for number in 0..100 {
            assert!(way.carry(number, &to).await);
        }
        drop(to);
        let mut arrived = Vec::new();
        while let Some(number) = from.recv().await {
            arrived.push(number);
        }
        (arrived, counts)
    }

    #[tokio::test(start_paused = true)]
    async fn without_faults_nothing_changes_and_a_cut_lets_nothing_through() {
        assert_eq!(carried(LinkFaults::NONE, false).await.0, (0..100).collect::<Vec<u64>>());
        assert!(carried(LinkFaults::NONE, true).await.0.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn faults_lose_double_and_reorder() {
        let link_faults =
            LinkFaults { lost: 20, doubled: 20, delayed: 20, longest_delay: Duration::from_millis(50) };
        let (arrived, counts) = carried(link_faults, false).await;
        let (lost, doubled) = (counts.lost.load(Ordering::Relaxed), counts.doubled.load(Ordering::Relaxed));
        assert!(lost > 5 && doubled > 5, "{counts:?}");
        assert_eq!(arrived.len() as u64, 100 - lost + doubled);
        assert!(!arrived.is_sorted() && counts.overtaken.load(Ordering::Relaxed) > 0);
    }

    async fn received(socket: &UdpSocket) -> Option<u8> {
        let mut buffer = [0; 16];
        let bound = Duration::from_secs(20);
        let (length, _) = tokio::time::timeout(bound, socket.recv_from(&mut buffer)).await.ok()?.ok()?;
        (length == 1).then_some(buffer[0])
    }

    #[tokio::test]
    async fn datagrams_get_through_unless_the_way_is_cut() {
        let receiver = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let to = receiver.local_addr().expect("an address");
        let spare = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let listen = spare.local_addr().expect("an address");
        drop(spare);
        let counts = Arc::<Counts>::default();
        let way = Way::new(Rng::new(1), LinkFaults::NONE, &counts);
        carry_datagrams(listen, to, way.clone()).await.expect("it listens");
        let sender = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let send = async |byte: u8| {
            sender.send_to(&[byte], listen).await.expect("sent");
        };
        send(1).await;
        assert_eq!(received(&receiver).await, Some(1));
        way.set_cut(true);
        send(2).await;
        while counts.carried.load(std::sync::atomic::Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
        way.set_cut(false);
        send(3).await;
        assert_eq!(received(&receiver).await, Some(3), "the second was lost");
        way.set_link_faults(LinkFaults { doubled: 100, ..LinkFaults::NONE });
        send(4).await;
        assert_eq!([received(&receiver).await, received(&receiver).await], [Some(4), Some(4)]);
    }
}
