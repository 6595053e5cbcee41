//! Addresses of this machine on which nothing listens.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU8, Ordering};

/// Addresses whose ports are free for streams and for datagrams. Each process has loopback addresses of its own, and
/// each call another one: nobody else takes the port before it is used.
pub fn free_addresses(count: usize) -> io::Result<Vec<SocketAddr>> {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let process = std::process::id();
    let part = |shift: u32| u8::try_from(process >> shift & 0x7f).unwrap_or_default() + 1;
    let last = NEXT.fetch_add(1, Ordering::Relaxed) % 254 + 1;
    free_addresses_on(Ipv4Addr::new(127, part(7), part(0), last), count)
}

/// One such address.
pub fn free_address() -> io::Result<SocketAddr> {
    Ok(free_addresses(1)?.remove(0))
}

/// The same on one address, on which others may take a port before it is used.
pub fn free_addresses_on(ip: Ipv4Addr, count: usize) -> io::Result<Vec<SocketAddr>> {
    // All at once, so that none is given twice.
    let mut bound = Vec::new();
    while bound.len() < count {
        let listener = TcpListener::bind((IpAddr::V4(ip), 0))?;
        if let Ok(socket) = UdpSocket::bind(listener.local_addr()?) {
            bound.push((listener, socket));
        }
    }
    bound.iter().map(|(listener, _)| listener.local_addr()).collect()
}

/// Peers as all of them are told of each other, numbered from one: `1=ADDRESS,2=ADDRESS`.
#[must_use]
pub fn numbered(addresses: &[SocketAddr]) -> String {
    let peers: Vec<String> =
        (1..).zip(addresses).map(|(number, address): (usize, _)| format!("{number}={address}")).collect();
    peers.join(",")
}
