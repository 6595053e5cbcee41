//! How many connections and streams there may be, in all and from one address, and how fast they may begin.
//!
//! The rule: an address may open one more while it has fewer than there are left in all, so that its share shrinks as the whole fills
//! up, and somebody new always finds room. The last eighth is for addresses from which a session that is known has reported. Where
//! many addresses are one peer's, as those of an IPv6 network are, they count as one.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::config::Limits;
use crate::rate::Bucket;

/// How many watches of one address may begin at once, in seconds of the steady rate.
const WATCH_BURST_SECONDS: u32 = 10;

/// Which part of the room only addresses with known sessions get: the last of so many.
const RESERVE: usize = 8;
/// How long an address is known after a session's report.
const KNOWN_FOR: Duration = Duration::from_secs(600);
/// How many addresses are remembered as known.
const MOST_KNOWN: usize = 1 << 16;

/// Counts what is open by address. An address costs memory only while something of it is open or was lately.
#[derive(Clone, Debug)]
pub struct Admission {
    limits: Arc<Limits>,
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    connections: usize,
    streams: usize,
    addresses: HashMap<IpAddr, Address>,
    /// Addresses of sessions that reported, and when they last did.
    known: HashMap<IpAddr, Instant>,
}

#[derive(Debug)]
struct Address {
    connections: usize,
    streams: usize,
    watches: Bucket,
}

/// Why something may not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// As many connections as may be are open, in all or from this address.
    Connections,
    /// As many streams as may be are open, in all or from this address.
    Streams,
    /// Watches begin too fast from this address.
    WatchRate,
}

/// Room for one connection or stream; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    open: Arc<Mutex<Open>>,
    address: IpAddr,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Connection,
    Stream,
}

impl Admission {
    /// Nothing is open.
    #[must_use]
    pub fn new(limits: Limits) -> Admission {
        Admission { limits: Arc::new(limits), open: Arc::default() }
    }

    /// Room for a connection.
    pub fn connection(&self, address: IpAddr) -> Result<Permit, Refused> {
        let address = origin(address);
        let mut open = lock(&self.open);
        let limits = &self.limits;
        let left = limits.max_connections.saturating_sub(open.connections);
        let known = open.knows(address);
        let own = open.address(address, limits);
        let room = Room { most: limits.max_connections, left, own: own.connections, known };
        if !room.has_place(limits.max_connections_per_address) {
            return Err(Refused::Connections);
        }
        own.connections += 1;
        open.connections += 1;
        Ok(Permit { open: Arc::clone(&self.open), address, what: What::Connection })
    }

    /// Room for a stream.
    pub fn stream(&self, address: IpAddr) -> Result<Permit, Refused> {
        let address = origin(address);
        let mut open = lock(&self.open);
        let limits = &self.limits;
        let left = limits.max_streams.saturating_sub(open.streams);
        let known = open.knows(address);
        let own = open.address(address, limits);
        let room = Room { most: limits.max_streams, left, own: own.streams, known };
        if !room.has_place(limits.max_streams_per_address) {
            return Err(Refused::Streams);
        }
        own.streams += 1;
        open.streams += 1;
        Ok(Permit { open: Arc::clone(&self.open), address, what: What::Stream })
    }

    /// Room for a stream of a Lookup, if its address does not begin too many.
    pub fn watch(&self, address: IpAddr) -> Result<Permit, Refused> {
        let permit = self.stream(address)?;
        let address = origin(address);
        let mut open = lock(&self.open);
        let taken = open.address(address, &self.limits).watches.take(Instant::now());
        drop(open);
        taken.map(|()| permit).map_err(|_| Refused::WatchRate)
    }
}

/// The address that a limit counts: for IPv6 the network, since whoever has one address of it has them all.
#[must_use]
pub fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

/// How much room there is, as somebody from one address sees it.
struct Room {
    most: usize,
    left: usize,
    own: usize,
    known: bool,
}

impl Room {
    fn has_place(&self, most_of_one: usize) -> bool {
        let reserve = if self.known { 0 } else { self.most / RESERVE };
        self.own < most_of_one && self.own < self.left && self.left > reserve
    }
}

impl Admission {
    /// A session that is known has reported from there.
    pub fn know(&self, address: IpAddr) {
        let address = origin(address);
        let now = Instant::now();
        let mut open = lock(&self.open);
        if open.known.len() >= MOST_KNOWN && !open.known.contains_key(&address) {
            open.known.retain(|_, at| now.duration_since(*at) < KNOWN_FOR);
        }
        if open.known.len() < MOST_KNOWN || open.known.contains_key(&address) {
            open.known.insert(address, now);
        }
    }
}

impl Open {
    fn knows(&self, address: IpAddr) -> bool {
        self.known.get(&address).is_some_and(|at| at.elapsed() < KNOWN_FOR)
    }

    fn address(&mut self, address: IpAddr, limits: &Limits) -> &mut Address {
        let per_second = limits.watches_per_second;
        self.addresses.entry(address).or_insert_with(|| Address {
            connections: 0,
            streams: 0,
            watches: Bucket::new(per_second, per_second.saturating_mul(WATCH_BURST_SECONDS)),
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        match self.what {
            What::Connection => open.connections -= 1,
            What::Stream => open.streams -= 1,
        }
        let Some(own) = open.addresses.get_mut(&self.address) else { return };
        match self.what {
            What::Connection => own.connections -= 1,
            What::Stream => own.streams -= 1,
        }
        // An address that goes while its bucket is not full is remembered, or reconnecting would fill it.
        let now = Instant::now();
        if open.connections == 0 || open.addresses.len() > 1024 {
            open.addresses.retain(|_, address| {
                address.connections > 0 || address.streams > 0 || !address.watches.is_full(now)
            });
        }
    }
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn an_address_has_its_own_limit_and_gets_room_back() {
        let limits = Limits { max_streams: 4, max_streams_per_address: 2, ..Limits::default() };
        let admission = Admission::new(limits);
        let first = admission.stream(HERE).expect("room");
        let _second = admission.stream(HERE).expect("room");
        assert_eq!(admission.stream(HERE).expect_err("full"), Refused::Streams);
        let _other = admission.stream(THERE).expect("room");
        assert_eq!(admission.stream(THERE).expect_err("its share is taken"), Refused::Streams);
        drop(first);
        assert!(admission.stream(HERE).is_ok());
    }

    #[test]
    fn shares_shrink_as_the_whole_fills_up_and_a_newcomer_finds_room() {
        let limits = Limits { max_connections: 64, max_connections_per_address: 64, ..Limits::default() };
        let admission = Admission::new(limits);
        let fill = |last: u8| {
            let address = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, last));
            std::iter::from_fn(|| admission.connection(address).ok()).collect::<Vec<_>>()
        };
        let flood = [fill(1), fill(2), fill(3)];
        let shares = flood.each_ref().map(Vec::len);
        assert_eq!(shares, [32, 16, 8], "each gets half of what was left");
        assert_eq!(fill(4).len(), 0, "the last eighth is for those that are known");
        admission.know(HERE);
        let known: Vec<_> = std::iter::from_fn(|| admission.connection(HERE).ok()).collect();
        assert_eq!(known.len(), 4);
        drop(flood);
        assert_eq!(fill(4).len(), 30);
    }

    #[test]
    fn addresses_of_one_network_count_as_one() {
        let v6 = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert_eq!(origin(v6("2001:db8:1:2:3::4")), origin(v6("2001:db8:1:2:ffff::1")));
        assert_ne!(origin(v6("2001:db8:1:2::1")), origin(v6("2001:db8:1:3::1")));
        assert_eq!(origin(v6("::ffff:192.0.2.1")), THERE);
    }

    #[test]
    fn watches_that_begin_too_fast_are_refused_and_leave_no_stream_behind() {
        let limits = Limits { watches_per_second: 1, max_streams: 21, ..Limits::default() };
        let admission = Admission::new(limits);
        let open: Vec<_> = (0..10).map(|_| admission.watch(HERE).expect("a burst")).collect();
        assert_eq!(admission.watch(HERE).expect_err("too fast"), Refused::WatchRate);
        assert!(admission.stream(HERE).is_ok(), "the refused watch holds no room");
        drop(open);
    }
}
