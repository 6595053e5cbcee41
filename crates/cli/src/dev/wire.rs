//! What callers and servers of the demonstration say to each other: frames with a kind, a length and a body.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The longest body: a range with its counters, many times over.
const LONGEST: usize = 16 << 20;

/// What is asked of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Add one to a counter.
    Add(String),
    /// A part of a range that moves here.
    Transfer(Vec<u8>),
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Response {
    /// The counter's new value and the lease under which it was served.
    Added {
        /// The value.
        value: u64,
        /// The lease.
        generation: u64,
    },
    /// The key is not this server's, or moves just now.
    NotOwner,
    /// What became of the part, for the sender's library to read.
    Transferred(Vec<u8>),
}

impl Request {
    pub(super) async fn send(&self, stream: &mut TcpStream) -> io::Result<()> {
        match self {
            Request::Add(key) => send(stream, b'a', key.as_bytes()).await,
            Request::Transfer(bytes) => send(stream, b't', bytes).await,
        }
    }

    pub(super) async fn receive(stream: &mut TcpStream) -> io::Result<Request> {
        match receive(stream).await? {
            (b'a', body) => String::from_utf8(body).map(Request::Add).map_err(|_| unreadable()),
            (b't', body) => Ok(Request::Transfer(body)),
            _ => Err(unreadable()),
        }
    }

    /// Sends a request and waits for its answer.
    pub(super) async fn ask(&self, stream: &mut TcpStream) -> io::Result<Response> {
        self.send(stream).await?;
        Response::receive(stream).await
    }
}

impl Response {
    pub(super) async fn send(&self, stream: &mut TcpStream) -> io::Result<()> {
        match self {
            Response::Added { value, generation } => {
                let body = [value.to_le_bytes(), generation.to_le_bytes()].concat();
                send(stream, b'v', &body).await
            }
            Response::NotOwner => send(stream, b'n', &[]).await,
            Response::Transferred(bytes) => send(stream, b'y', bytes).await,
        }
    }

    async fn receive(stream: &mut TcpStream) -> io::Result<Response> {
        match receive(stream).await? {
            (b'v', body) => {
                let number = |at: usize| {
                    let bytes = body.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
                    bytes.map(u64::from_le_bytes).ok_or_else(unreadable)
                };
                Ok(Response::Added { value: number(0)?, generation: number(8)? })
            }
            (b'n', _) => Ok(Response::NotOwner),
            (b'y', body) => Ok(Response::Transferred(body)),
            _ => Err(unreadable()),
        }
    }
}

async fn send(stream: &mut TcpStream, kind: u8, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(|_| unreadable())?;
    let mut frame = Vec::with_capacity(5 + body.len());
    frame.push(kind);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(body);
    stream.write_all(&frame).await
}

async fn receive(stream: &mut TcpStream) -> io::Result<(u8, Vec<u8>)> {
    let kind = stream.read_u8().await?;
    let length = stream.read_u32_le().await? as usize;
    if length > LONGEST {
        return Err(unreadable());
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok((kind, body))
}

fn unreadable() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not a frame of the demonstration")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn what_is_sent_arrives() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let responses = vec![
            Response::Added { value: 7, generation: u64::MAX },
            Response::NotOwner,
            Response::Transferred(vec![1, 2, 3]),
            Response::Transferred(Vec::new()),
        ];
        let answers = responses.clone();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a caller");
            let mut heard = Vec::new();
            for answer in answers {
                heard.push(Request::receive(&mut stream).await.expect("a request"));
                answer.send(&mut stream).await.expect("sent");
            }
            heard
        });
        let mut stream = TcpStream::connect(address).await.expect("connected");
        let requests = [
            Request::Add("x".into()),
            Request::Add(String::new()),
            Request::Transfer(vec![9]),
            Request::Transfer(vec![]),
        ];
        for (request, expected) in requests.iter().zip(&responses) {
            assert_eq!(request.ask(&mut stream).await.expect("an answer"), *expected);
        }
        assert_eq!(server.await.expect("no panic"), requests);
    }
}
