//! Carries bytes between processes on loopback, and holds them back where the network is cut.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::roles::read_name;

/// Who connects to a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// Always the same process.
    Known(String),
    /// Whoever the connection's first line names.
    Named,
}

/// The relays of a run, and the ways that are cut: from the first process to the second.
#[derive(Clone, Debug)]
pub(crate) struct Relay {
    cuts: Arc<watch::Sender<BTreeSet<(String, String)>>>,
}

impl Relay {
    pub(crate) fn new() -> Relay {
        Relay { cuts: Arc::new(watch::Sender::new(BTreeSet::new())) }
    }

    pub(crate) fn set_cut(&self, from: &str, to: &str, is_cut: bool) {
        self.cuts.send_modify(|cuts| {
            let way = (from.to_owned(), to.to_owned());
            if is_cut {
                cuts.insert(way)
            } else {
                cuts.remove(&way)
            };
        });
    }

    /// Listens for connections to a process, for as long as the harness lives.
    pub(crate) async fn listen(
        &self,
        listen: SocketAddr,
        sender: Sender,
        to: String,
        address: SocketAddr,
    ) -> io::Result<()> {
        let listener = TcpListener::bind(listen).await?;
        let relay = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (relay, sender, to) = (relay.clone(), sender.clone(), to.clone());
                tokio::spawn(async move {
                    // A connection that breaks is what this is about.
                    let _ = relay.carry(stream, sender, to, address).await;
                });
            }
        });
        Ok(())
    }

    async fn carry(
        &self,
        mut near: TcpStream,
        sender: Sender,
        to: String,
        address: SocketAddr,
    ) -> io::Result<()> {
        near.set_nodelay(true)?;
        let (from, head) = match sender {
            Sender::Known(from) => (from, Vec::new()),
            Sender::Named => {
                let from = read_name(&mut near).await?;
                let head = format!("{from}\n").into_bytes();
                (from, head)
            }
        };
        self.open(&from, &to).await;
        let mut far = TcpStream::connect(address).await?;
        far.set_nodelay(true)?;
        far.write_all(&head).await?;
        let (near_reads, near_writes) = near.into_split();
        let (far_reads, far_writes) = far.into_split();
        tokio::select! {
            ended = self.pump(near_reads, far_writes, &from, &to) => ended,
            ended = self.pump(far_reads, near_writes, &to, &from) => ended,
        }
    }

    async fn pump(
        &self,
        mut reads: OwnedReadHalf,
        mut writes: OwnedWriteHalf,
        from: &str,
        to: &str,
    ) -> io::Result<()> {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let length = reads.read(&mut buffer).await?;
            self.open(from, to).await;
            if length == 0 {
                return Ok(());
            }
            writes.write_all(&buffer[..length]).await?;
        }
    }

    /// Waits while the way is cut.
    async fn open(&self, from: &str, to: &str) {
        let way = (from.to_owned(), to.to_owned());
        let mut cuts = self.cuts.subscribe();
        // The sender lives as long as this does.
        let _ = cuts.wait_for(|cuts| !cuts.contains(&way)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_cut_holds_one_direction_back() {
        let server = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = server.local_addr().expect("an address");
        let spare = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let listen = spare.local_addr().expect("an address");
        drop(spare);
        let relay = Relay::new();
        relay.listen(listen, Sender::Known("a".into()), "b".into(), address).await.expect("listens");
        let mut near = TcpStream::connect(listen).await.expect("connected");
        near.write_all(b"x").await.expect("sent");
        let (mut far, _) = server.accept().await.expect("a connection");
        assert_eq!(far.read_u8().await.expect("a byte"), b'x');
        relay.set_cut("a", "b", true);
        near.write_all(b"y").await.expect("sent");
        far.write_all(b"z").await.expect("sent");
        assert_eq!(near.read_u8().await.expect("the other direction is open"), b'z');
        let nothing = tokio::time::timeout(Duration::from_millis(100), far.read_u8()).await;
        assert!(nothing.is_err(), "{nothing:?}");
        relay.set_cut("a", "b", false);
        assert_eq!(far.read_u8().await.expect("what was held back"), b'y');
    }
}
