//! The pages of a Manager's HTTP port, and what its metrics say.

use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use centrifuge_net::tls::ClientTls;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A page: its status line and its body.
pub async fn page(at: SocketAddr, path: &str) -> io::Result<(String, String)> {
    fetch(TcpStream::connect(at).await?, at, path).await
}

/// A page of a Manager inside TLS, whose certificate is for its address.
pub async fn secure_page(tls: &ClientTls, at: SocketAddr, path: &str) -> io::Result<(String, String)> {
    let mut config = (*tls.config().map_err(io::Error::other)?).clone();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let stream = TcpStream::connect(at).await?;
    let stream = TlsConnector::from(Arc::new(config)).connect(at.ip().into(), stream).await?;
    fetch(stream, at, path).await
}

async fn fetch(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    at: SocketAddr,
    path: &str,
) -> io::Result<(String, String)> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer).await;
    if answer.is_empty() {
        // Inside TLS, a connection may end without a word once the answer is there.
        read?;
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    Ok((head.lines().next().unwrap_or_default().to_owned(), body.to_owned()))
}

/// The value of a metric, by its name with labels, in the text of all metrics.
#[must_use]
pub fn metric<T: FromStr>(text: &str, name: &str) -> Option<T> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    value.trim().parse().ok()
}
