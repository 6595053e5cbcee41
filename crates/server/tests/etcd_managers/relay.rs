//! Relays between a Manager and the nodes of etcd, which hold back or delay what goes one way.
//!
//! Nothing is dropped: TCP sends again what a cut swallowed, so that it arrives late, when the cut has healed. A
//! connection that one side has given up meanwhile delivers what was sent on it all the same.

use std::net::SocketAddr;
use std::time::Duration;

use centrifuge_server::store::EtcdOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::etcd_support::Etcd;

/// How it goes one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// At once.
    Open,
    /// Not at all, until it is open again.
    Cut,
    /// So much later.
    Slow(Duration),
}

/// A relay to every node; they end when this is dropped.
pub(crate) struct Relays {
    /// To etcd.
    pub(crate) there: watch::Sender<Way>,
    /// From etcd.
    pub(crate) back: watch::Sender<Way>,
    endpoints: Vec<String>,
    listening: Vec<JoinHandle<()>>,
}

impl Relays {
    pub(crate) async fn to(etcd: &Etcd) -> Relays {
        let mut relays = Relays {
            there: watch::Sender::new(Way::Open),
            back: watch::Sender::new(Way::Open),
            endpoints: Vec::new(),
            listening: Vec::new(),
        };
        for endpoint in etcd.endpoints() {
            let node = endpoint.trim_start_matches("http://").parse().expect("an address");
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            relays.endpoints.push(format!("http://{}", listener.local_addr().expect("bound")));
            let ways = (relays.there.subscribe(), relays.back.subscribe());
            relays.listening.push(tokio::spawn(listen(listener, node, ways)));
        }
        relays
    }

    /// The same store, reached through the relays.
    pub(crate) fn through(&self, options: &EtcdOptions) -> EtcdOptions {
        EtcdOptions { endpoints: self.endpoints.clone(), ..options.clone() }
    }
}

impl Drop for Relays {
    fn drop(&mut self) {
        self.listening.iter().for_each(JoinHandle::abort);
    }
}

type Ways = (watch::Receiver<Way>, watch::Receiver<Way>);

async fn listen(listener: TcpListener, node: SocketAddr, ways: Ways) {
    while let Ok((near, _)) = listener.accept().await {
        tokio::spawn(carry(near, node, ways.clone()));
    }
}

async fn carry(near: TcpStream, node: SocketAddr, (mut there, back): Ways) {
    // A connection cannot be made through a cut.
    if there.wait_for(|way| *way != Way::Cut).await.is_err() {
        return;
    }
    let Ok(far) = TcpStream::connect(node).await else { return };
    for stream in [&near, &far] {
        // What is small goes at once.
        let _ = stream.set_nodelay(true);
    }
    let (near_reads, near_writes) = near.into_split();
    let (far_reads, far_writes) = far.into_split();
    tokio::join!(pump(near_reads, far_writes, there), pump(far_reads, near_writes, back));
}

/// Carries everything one way, up to its end.
async fn pump(reads: OwnedReadHalf, writes: OwnedWriteHalf, way: watch::Receiver<Way>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::join!(take(reads, sender, way.clone()), deliver(writes, receiver, way));
}

type Held = (Instant, Vec<u8>);

async fn take(mut reads: OwnedReadHalf, held: mpsc::UnboundedSender<Held>, way: watch::Receiver<Way>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length @ 1..) = reads.read(&mut buffer).await {
        let delay = match *way.borrow() {
            Way::Slow(delay) => delay,
            Way::Open | Way::Cut => Duration::ZERO,
        };
        if held.send((Instant::now() + delay, buffer[..length].to_vec())).is_err() {
            return;
        }
    }
}

async fn deliver(
    mut writes: OwnedWriteHalf,
    mut held: mpsc::UnboundedReceiver<Held>,
    mut way: watch::Receiver<Way>,
) {
    while let Some((due, bytes)) = held.recv().await {
        sleep_until(due).await;
        let open = way.wait_for(|way| *way != Way::Cut).await.is_ok();
        if !open || writes.write_all(&bytes).await.is_err() {
            return;
        }
    }
    let _ = writes.shutdown().await;
}
