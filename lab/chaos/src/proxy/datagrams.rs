//! Carries datagrams from one process to another, one by one, with the link's faults.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use centrifuge_harness::Rng;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use super::link_faults::{Counts, LinkFaults, Way};

/// The longest datagram there is.
const MAX_DATAGRAM_LEN: usize = 1 << 16;
/// How many wait to be sent on; a network drops what is more, and so does the system's buffer before this.
const QUEUE: usize = 1_024;

/// The way from one process to another.
#[derive(Debug)]
pub(crate) struct DatagramWay {
    way: Way,
}

impl DatagramWay {
    /// Carries what arrives at `listen` to another address, for as long as the harness lives.
    pub(crate) async fn start(
        listen: SocketAddr,
        to: SocketAddr,
        link_faults: LinkFaults,
        rng: Rng,
        counts: &Arc<Counts>,
    ) -> io::Result<DatagramWay> {
        let socket = Arc::new(UdpSocket::bind(listen).await?);
        let way = Way::new(rng, link_faults, counts);
        let (sender, leaving) = mpsc::channel(QUEUE);
        tokio::spawn(send_on(Arc::clone(&socket), to, leaving));
        tokio::spawn(carry(socket, way.clone(), sender));
        Ok(DatagramWay { way })
    }

    pub(crate) fn set_link_faults(&self, link_faults: LinkFaults) {
        self.way.set_link_faults(link_faults);
    }

    pub(crate) fn set_cut(&self, is_cut: bool) {
        self.way.set_cut(is_cut);
    }
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
    use std::time::Duration;

    use super::*;

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
        let way = DatagramWay::start(listen, to, LinkFaults::NONE, Rng::new(1), &counts).await;
        let way = way.expect("it listens");
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
