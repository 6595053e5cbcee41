//! A link between one client and one Manager under TLS: it cannot read what it carries, and so delays bytes, holds them
//! back while the way is cut, and breaks connections.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use super::link_faults::Way;

/// One client's way to one Manager. Lives as long as the harness.
#[derive(Clone, Debug)]
pub(crate) struct ByteLink {
    pub(crate) up: Way,
    pub(crate) down: Way,
    pub(crate) manager: SocketAddr,
}

impl ByteLink {
    /// Listens for the client.
    pub(crate) async fn listen(self, address: SocketAddr) -> io::Result<()> {
        let listener = TcpListener::bind(address).await?;
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let link = self.clone();
                tokio::spawn(async move {
                    // A connection that breaks is what this is about.
                    let _ = link.carry(stream).await;
                });
            }
        });
        Ok(())
    }

    async fn carry(&self, near: TcpStream) -> io::Result<()> {
        near.set_nodelay(true)?;
        let far = TcpStream::connect(self.manager).await?;
        far.set_nodelay(true)?;
        let (near_reads, near_writes) = near.into_split();
        let (far_reads, far_writes) = far.into_split();
        tokio::select! {
            ended = pump(near_reads, far_writes, &self.up) => ended,
            ended = pump(far_reads, near_writes, &self.down) => ended,
        }
    }
}

async fn pump(mut reads: OwnedReadHalf, mut writes: OwnedWriteHalf, way: &Way) -> io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let length = reads.read(&mut buffer).await?;
        if !way.lets_through().await || length == 0 {
            return Ok(());
        }
        writes.write_all(&buffer[..length]).await?;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use centrifuge_harness::Rng;

    use super::super::link_faults::{Counts, LinkFaults};
    use super::*;

    #[tokio::test]
    async fn a_cut_holds_bytes_back_and_a_loss_breaks_the_connection() {
        let server = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let manager = server.local_addr().expect("an address");
        let spare = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let listen = spare.local_addr().expect("an address");
        drop(spare);
        let way = || Way::new(Rng::new(1), LinkFaults::NONE, &Arc::<Counts>::default());
        let (up, down) = (way(), way());
        ByteLink { up: up.clone(), down, manager }.listen(listen).await.expect("it listens");
        let mut near = TcpStream::connect(listen).await.expect("connected");
        let (mut far, _) = server.accept().await.expect("a connection");
        up.set_cut(true);
        near.write_all(b"x").await.expect("sent");
        let nothing = tokio::time::timeout(Duration::from_millis(100), far.read_u8()).await;
        assert!(nothing.is_err(), "{nothing:?}");
        up.set_cut(false);
        assert_eq!(far.read_u8().await.expect("what was held back"), b'x');
        up.set_link_faults(LinkFaults { lost: 100, ..LinkFaults::NONE });
        near.write_all(b"y").await.expect("sent");
        assert!(far.read_u8().await.is_err() && near.read_u8().await.is_err());
    }
}
