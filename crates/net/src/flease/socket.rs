//! A peer's socket: datagrams to the other peers and from them.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use centrifuge_core::flease::{Packet, PeerId};
use rustix::net::sockopt;
use tokio::net::{UdpSocket, lookup_host};
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;

use super::datagram::{Opened, Refused, open, seal};
use crate::log_throttle::LogThrottle;
use crate::secrets::{KeyFile, KeyRing};

/// How many messages wait to be sent to a peer before the next packet is dropped, as a network would.
const MOST_WAITING: usize = 1 << 16;
/// How many bytes the system should keep until they are received: what many cells have to say comes in bursts.
const RECEIVE_BUFFER: usize = 4 << 20;
/// The longest datagram there is.
const LONGEST: usize = 1 << 16;
/// How often the names of peers are looked up again: a peer may move.
const RESOLVE_EVERY: Duration = Duration::from_secs(5);
/// A socket that does not receive is tried again after this long.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Why a peer has no socket.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen for datagrams on {address}: {source}; choose another address with bind, or stop who has it"
)]
pub struct SocketError {
    /// The address.
    pub address: String,
    /// What happened.
    #[source]
    source: io::Error,
}

/// What has passed a socket so far. Each refused datagram is counted under the one reason it was refused for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SocketCounters {
    /// Datagrams sent.
    pub sent: u64,
    /// Bytes in them.
    pub sent_bytes: u64,
    /// Packets not sent: the queue was full, the peer's name has no address, or the system refused.
    pub unsent: u64,
    /// Datagrams that arrived and are what they should be.
    pub received: u64,
    /// Bytes in them.
    pub received_bytes: u64,
    /// Refused: not of a holder of the secret.
    pub wrong_code: u64,
    /// Refused: of a holder of the secret, and no message, or of an unknown version.
    pub malformed: u64,
    /// Refused: for another peer, or of somebody who is not on the list.
    pub strangers: u64,
}

#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    sent_bytes: AtomicU64,
    unsent: AtomicU64,
    received: AtomicU64,
    received_bytes: AtomicU64,
    wrong_code: AtomicU64,
    malformed: AtomicU64,
    strangers: AtomicU64,
}

fn add(count: &AtomicU64, more: usize) {
    count.fetch_add(more as u64, Ordering::Relaxed);
}

/// The socket of one peer, and the tasks that serve it until it is dropped.
#[derive(Debug)]
pub struct PeerSocket {
    outbox: Arc<Outbox>,
    counts: Arc<Counts>,
    keys: KeyRing,
    address: SocketAddr,
    tasks: Vec<AbortHandle>,
}

impl Drop for PeerSocket {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// What waits to be sent. What waits for the same peer goes together, so that many cells need few datagrams.
#[derive(Debug, Default)]
struct Outbox {
    packets: Mutex<BTreeMap<PeerId, Packet>>,
    filled: Notify,
}

impl Outbox {
    /// Whether there was room.
    fn put(&self, to: PeerId, packet: Packet) -> bool {
        let mut packets = self.packets.lock().unwrap_or_else(PoisonError::into_inner);
        match packets.get_mut(&to) {
            Some(waiting) if waiting.messages.len() + packet.messages.len() > MOST_WAITING => return false,
            Some(waiting) => join(waiting, packet),
            None => drop(packets.insert(to, packet)),
        }
        self.filled.notify_one();
        true
    }

    fn take(&self) -> BTreeMap<PeerId, Packet> {
        std::mem::take(&mut self.packets.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Says the messages of both as if they had been said with the later one.
fn join(packet: &mut Packet, mut later: Packet) {
    let mut messages = std::mem::take(&mut packet.messages);
    messages.append(&mut later.messages);
    let probe = packet.probe || later.probe;
    *packet = Packet { messages, probe, ..later };
}

/// What the tasks of a socket share.
struct Shared {
    socket: UdpSocket,
    outbox: Arc<Outbox>,
    keys: KeyRing,
    me: PeerId,
    names: BTreeMap<PeerId, String>,
    addresses: RwLock<BTreeMap<PeerId, SocketAddr>>,
    counts: Arc<Counts>,
    log: LogThrottle,
}

impl PeerSocket {
    /// Listens on an address, and hands every packet of a peer on as an event. `names` has the other peers, as `host:port`; a name
    /// that has no address yet is looked up again and again. While the queue of events is full nothing is read, and what comes
    /// is lost in the system's own buffer, where that is cheapest.
    pub async fn start<E: Send + 'static>(
        bind: &str,
        keys: KeyRing,
        me: PeerId,
        names: BTreeMap<PeerId, String>,
        events: mpsc::Sender<E>,
        event: impl Fn(PeerId, Packet) -> E + Send + 'static,
    ) -> Result<PeerSocket, SocketError> {
        let failed = |source| SocketError { address: bind.to_owned(), source };
        let socket = UdpSocket::bind(bind).await.map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let counts = Arc::<Counts>::default();
        // As much as the system allows.
        if sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER);
        }
        let outbox = Arc::<Outbox>::default();
        let shared = Arc::new(Shared {
            socket,
            outbox: Arc::clone(&outbox),
            keys: keys.clone(),
            me,
            names,
            addresses: RwLock::default(),
            counts: Arc::clone(&counts),
            log: LogThrottle::default(),
        });
        shared.resolve_literals();
        let tasks = [
            tokio::spawn(send_all(Arc::clone(&shared))).abort_handle(),
            tokio::spawn(receive_all(Arc::clone(&shared), events, event)).abort_handle(),
            tokio::spawn(resolve_names(shared)).abort_handle(),
        ];
        Ok(PeerSocket { outbox, counts, keys, address, tasks: tasks.into() })
    }

    /// Has a file of secrets looked at for as long as the socket lives: its ring follows it.
    pub fn watch(&mut self, file: KeyFile) {
        self.tasks.push(tokio::spawn(file.watch()).abort_handle());
    }

    /// Sends a packet without waiting; one that cannot be sent is lost.
    pub fn send(&self, to: PeerId, packet: Packet) {
        if !self.outbox.put(to, packet) {
            add(&self.counts.unsent, 1);
        }
    }

    /// The secrets of its datagrams.
    #[must_use]
    pub fn keys(&self) -> &KeyRing {
        &self.keys
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What has passed so far.
    #[must_use]
    pub fn counters(&self) -> SocketCounters {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        SocketCounters {
            sent: read(&counts.sent),
            sent_bytes: read(&counts.sent_bytes),
            unsent: read(&counts.unsent),
            received: read(&counts.received),
            received_bytes: read(&counts.received_bytes),
            wrong_code: read(&counts.wrong_code),
            malformed: read(&counts.malformed),
            strangers: read(&counts.strangers),
        }
    }
}

impl Shared {
    fn address_of(&self, peer: PeerId) -> Option<SocketAddr> {
        self.addresses.read().unwrap_or_else(PoisonError::into_inner).get(&peer).copied()
    }

    fn is_at(&self, peer: PeerId, address: SocketAddr) {
        self.addresses.write().unwrap_or_else(PoisonError::into_inner).insert(peer, address);
    }

    fn resolve_literals(&self) {
        for (peer, name) in &self.names {
            if let Ok(address) = name.parse() {
                self.is_at(*peer, address);
            }
        }
    }

    async fn send(&self, to: PeerId, packet: &Packet) {
        let Some(address) = self.address_of(to) else {
            add(&self.counts.unsent, 1);
            return;
        };
        for datagram in seal(&self.keys, self.me, to, packet) {
            match self.socket.send_to(&datagram, address).await {
                Ok(_) => {
                    add(&self.counts.sent, 1);
                    add(&self.counts.sent_bytes, datagram.len());
                }
                Err(error) => {
                    add(&self.counts.unsent, 1);
                    if let Some(suppressed) = self.log.admit("a datagram cannot be sent") {
                        tracing::warn!(%to, %address, %error, suppressed, "a datagram cannot be sent");
                    }
                }
            }
        }
    }

    /// What a datagram says, if a peer sent it.
    fn admit(&self, datagram: &[u8], sender: SocketAddr) -> Option<Opened> {
        let refused = match open(&self.keys, self.me, datagram) {
            Ok(opened) if self.names.contains_key(&opened.from) => {
                add(&self.counts.received, 1);
                add(&self.counts.received_bytes, datagram.len());
                return Some(opened);
            }
            Ok(opened) => {
                format!("{} is not on the list of peers: give all peers the same list", opened.from)
            }
            Err(refused) => {
                let count = match refused {
                    Refused::Code => &self.counts.wrong_code,
                    Refused::Malformed(_) | Refused::Version(_) => &self.counts.malformed,
                    Refused::Elsewhere(_) => &self.counts.strangers,
                };
                add(count, 1);
                if let Refused::Code = refused {
                    self.complain("a datagram with a wrong code was dropped", sender, || refused.to_string());
                } else {
                    self.complain("a datagram of a peer was dropped", sender, || refused.to_string());
                }
                return None;
            }
        };
        add(&self.counts.strangers, 1);
        self.complain("a datagram of a stranger was dropped", sender, || refused);
        None
    }

    fn complain(&self, kind: &'static str, sender: SocketAddr, why: impl FnOnce() -> String) {
        if let Some(suppressed) = self.log.admit(kind) {
            tracing::warn!(%sender, suppressed, why = why(), "{kind}");
        }
    }
}

async fn send_all(shared: Arc<Shared>) {
    loop {
        let waiting = shared.outbox.take();
        if waiting.is_empty() {
            shared.outbox.filled.notified().await;
        }
        for (to, packet) in waiting {
            shared.send(to, &packet).await;
        }
    }
}

async fn receive_all<E>(
    shared: Arc<Shared>,
    events: mpsc::Sender<E>,
    event: impl Fn(PeerId, Packet) -> E + Send + 'static,
) {
    let mut buffer = vec![0; LONGEST];
    loop {
        match shared.socket.recv_from(&mut buffer).await {
            Ok((len, sender)) => {
                if let Some(Opened { from, packet }) = shared.admit(&buffer[..len], sender)
                    && events.send(event(from, packet)).await.is_err()
                {
                    return;
                }
            }
            Err(error) => {
                if let Some(suppressed) = shared.log.admit("the socket does not receive") {
                    tracing::warn!(%error, suppressed, "the socket does not receive");
                }
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
}

/// Keeps looking up the peers that are known by a name.
async fn resolve_names(shared: Arc<Shared>) {
    let is_name = |(_, name): &(&PeerId, &String)| name.parse::<SocketAddr>().is_err();
    let is_v4 = shared.socket.local_addr().is_ok_and(|address| address.is_ipv4());
    while shared.names.iter().any(|peer| is_name(&peer)) {
        for (peer, name) in shared.names.iter().filter(is_name) {
            match lookup_host(name.as_str()).await {
                Ok(mut found) => {
                    if let Some(address) = found.find(|address| address.is_ipv4() == is_v4) {
                        shared.is_at(*peer, address);
                    }
                }
                Err(error) => {
                    if let Some(suppressed) = shared.log.admit("a peer's name has no address") {
                        tracing::warn!(%peer, name, %error, suppressed, "a peer's name has no address");
                    }
                }
            }
        }
        tokio::time::sleep(RESOLVE_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use centrifuge_core::flease::{Ballot, Body, Cell, Message};
    use centrifuge_core::time::Instant;

    use super::*;

    fn packet(number: u64) -> Packet {
        let cell = Cell::new(&number.to_string()).expect("a name");
        let messages = vec![Message { cell, ballot: Ballot::ZERO, body: Body::Read }];
        Packet { agreement: 1, sent: Instant(number), echo: Instant(number), probe: number == 1, messages }
    }

    #[test]
    fn what_waits_goes_together_in_its_order_and_with_the_last_clocks() {
        let [one, two] = [PeerId(1), PeerId(2)];
        let outbox = Outbox::default();
        for (to, number) in [(one, 1), (two, 2), (one, 3), (one, 4)] {
            assert!(outbox.put(to, packet(number)));
        }
        let waiting = outbox.take();
        assert!(outbox.take().is_empty() && waiting.len() == 2 && waiting[&two] == packet(2));
        let together = &waiting[&one];
        assert_eq!((together.sent, together.echo, together.probe), (Instant(4), Instant(4), true));
        let cells: Vec<&str> = together.messages.iter().map(|message| message.cell.name()).collect();
        assert_eq!(cells, ["1", "3", "4"]);
    }

    #[test]
    fn what_waits_is_bounded() {
        let outbox = Outbox::default();
        let many = Packet { messages: vec![packet(1).messages.remove(0); MOST_WAITING], ..packet(1) };
        assert!(outbox.put(PeerId(1), many));
        assert!(!outbox.put(PeerId(1), packet(2)) && outbox.put(PeerId(2), packet(2)));
        assert_eq!(outbox.take()[&PeerId(1)].messages.len(), MOST_WAITING);
    }
}
