//! What callers and servers of a run say to each other: a line that names the sender, then frames of JSON.

use std::io;
use std::net::SocketAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The longest frame.
const MAX_FRAME_LEN: usize = 16 << 20;

/// What is asked of a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Count one more under a key.
    Add { key: u32 },
    /// A part of a range that moves here.
    Transfer(Vec<u8>),
    /// Carry so much, in percent of the usual.
    Weigh { percent: u32 },
    /// Whoever serves the key dies of this.
    Abort { key: u32 },
}

/// What it answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Response {
    /// Which state, how far it has counted, and under which lease.
    Added { state_id: String, value: u64, generation: u64 },
    /// The key is not this server's, or moves just now.
    NotOwner,
    /// What became of the part, for the sender's library to read.
    Transferred(Vec<u8>),
    /// The Owner has another weight.
    Weighed,
}

/// Tells an Owner how much it carries from now on.
pub(crate) async fn set_weight(owner: SocketAddr, percent: u32) -> io::Result<()> {
    let mut stream = connect("operator", &owner.to_string()).await?;
    match ask(&mut stream, &Request::Weigh { percent }).await? {
        Response::Weighed => Ok(()),
        _ => Err(unreadable()),
    }
}

/// Sends a server a request that it dies of if it serves the key. It answers only if it does not.
pub(crate) async fn abort_server(owner: SocketAddr, key: u32) -> io::Result<()> {
    let mut stream = connect("operator", &owner.to_string()).await?;
    match ask(&mut stream, &Request::Abort { key }).await? {
        Response::NotOwner => Ok(()),
        _ => Err(unreadable()),
    }
}

/// Connects, and says who does: a relay on the way must know whom it lets through.
pub(super) async fn connect(me: &str, url: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(url).await?;
    stream.set_nodelay(true)?;
    stream.write_all(format!("{me}\n").as_bytes()).await?;
    Ok(stream)
}

/// Reads who connected, byte by byte, so that nothing of what follows is taken.
pub(crate) async fn read_name(stream: &mut TcpStream) -> io::Result<String> {
    let mut name = Vec::new();
    loop {
        match stream.read_u8().await? {
            b'\n' => return String::from_utf8(name).map_err(|_| unreadable()),
            byte if name.len() < 64 => name.push(byte),
            _ => return Err(unreadable()),
        }
    }
}

/// Asks, and waits for the answer.
pub(super) async fn ask(stream: &mut TcpStream, request: &Request) -> io::Result<Response> {
    send(stream, request).await?;
    receive(stream).await
}

pub(super) async fn send<T: Serialize>(stream: &mut TcpStream, message: &T) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).map_err(|_| unreadable())?;
    stream.write_all(&[&length.to_le_bytes()[..], &body].concat()).await
}

pub(super) async fn receive<T: DeserializeOwned>(stream: &mut TcpStream) -> io::Result<T> {
    let length = stream.read_u32_le().await? as usize;
    if length > MAX_FRAME_LEN {
        return Err(unreadable());
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    serde_json::from_slice(&body).map_err(|_| unreadable())
}

fn unreadable() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not a frame of a chaos run")
}
