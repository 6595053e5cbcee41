//! A link between two processes, which can be cut.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What a link does with connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkMode {
    /// Carries everything.
    Open,
    /// Ends every connection, as a machine does that is not there any more.
    Refuses,
    /// Keeps connections and carries nothing, as a broken switch does.
    Swallows,
}

/// Listens on loopback and carries bytes to one address and back.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    mode: watch::Sender<LinkMode>,
}

impl Link {
    /// A link to `to`, open.
    pub async fn to(to: String) -> io::Result<Link> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let link = Link { address: listener.local_addr()?, mode: watch::Sender::new(LinkMode::Open) };
        let mode = link.mode.subscribe();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (to, mode) = (to.clone(), mode.clone());
                tokio::spawn(async move {
                    // A connection that breaks is what this is about.
                    let _ = carry(near, &to, mode).await;
                });
            }
        });
        Ok(link)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// From now on it does this, also with the connections that it has.
    pub fn set(&self, mode: LinkMode) {
        self.mode.send_replace(mode);
    }
}

async fn carry(mut near: TcpStream, to: &str, mut mode: watch::Receiver<LinkMode>) -> io::Result<()> {
    let mut far = TcpStream::connect(to).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    tokio::select! {
        biased;
        _ = mode.wait_for(|mode| *mode != LinkMode::Open) => {}
        carried = tokio::io::copy_bidirectional(&mut near, &mut far) => return carried.map(drop),
    }
    // Both ends stay open while a link swallows, and what they send is read by nobody.
    let _ = mode.wait_for(|mode| *mode != LinkMode::Swallows).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_cut_link_ends_connections_or_keeps_them_silent() -> io::Result<()> {
        let far = TcpListener::bind("127.0.0.1:0").await?;
        let link = Link::to(far.local_addr()?.to_string()).await?;
        let mut near = TcpStream::connect(link.address()).await?;
        let (mut at_far, _) = far.accept().await?;
        near.write_all(b"a").await?;
        assert_eq!(at_far.read_u8().await?, b'a');

        link.set(LinkMode::Swallows);
        let silence = tokio::time::timeout(std::time::Duration::from_millis(50), near.read_u8()).await;
        assert!(silence.is_err(), "nobody is told");

        link.set(LinkMode::Refuses);
        let ended = near.read(&mut [0]).await;
        assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
        link.set(LinkMode::Open);
        let mut near = TcpStream::connect(link.address()).await?;
        near.write_all(b"c").await?;
        let (mut at_far, _) = far.accept().await?;
        assert_eq!(at_far.read_u8().await?, b'c');
        Ok(())
    }
}
