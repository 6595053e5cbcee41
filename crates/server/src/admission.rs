//! How many connections and streams there may be, in all and from one address, and how fast they may begin.
//!
//! An address may open a connection while it has fewer than are left in total. Its share shrinks as the Manager fills up, and a new
//! client always finds room. The last eighth is for addresses from which a known session has reported. All addresses of an IPv6
//! network count as one, because one peer has them all. An address that has used its share closes the connection that has been idle
//! longest to open a new one, so that a flood of idle connections locks out only its own address.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::config::Limits;
use crate::rate::Bucket;

/// How many bytes of a table count as a watch of their own.
const BYTES_PER_WATCH: usize = 128 << 10;
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
pub(crate) struct Admission {
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
    /// How often a connection became idle: tells which has been so for longer.
    idle_turns: u64,
}

#[derive(Debug)]
struct Address {
    connections: usize,
    streams: usize,
    watches: Bucket,
    /// Connections without a request, by the turn in which they became idle. Dropping a sender closes its connection.
    idle: BTreeMap<u64, oneshot::Sender<()>>,
}

/// Why something may not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// As many connections as may be are open, in all or from this address.
    Connections,
    /// As many streams as may be are open, in all or from this address.
    Streams,
    /// Watches begin too fast from this address.
    WatchRate,
}

/// Room for one stream; given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    open: Arc<Mutex<Open>>,
    address: IpAddr,
}

/// Room for one connection; given back when dropped. Its clones belong to the same connection.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionPermit(Arc<Seat>);

#[derive(Debug)]
struct Seat {
    open: Arc<Mutex<Open>>,
    address: IpAddr,
    occupancy: Mutex<Occupancy>,
}

/// What a connection does. Lock [`Open`] before changing it.
#[derive(Debug)]
enum Occupancy {
    /// It has no request since this turn.
    Idle(u64),
    /// It has so many requests. The sender closes the connection.
    Busy(usize, oneshot::Sender<()>),
    /// Its room was given to another.
    Closed,
}

/// A request under way; its connection is not idle until this is dropped.
#[derive(Debug)]
pub(crate) struct RequestGuard(Arc<Seat>);

/// What came of asking for a connection.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// Its room.
    pub permit: ConnectionPermit,
    /// Ends when the connection must give way to another of its address.
    pub displaced: oneshot::Receiver<()>,
    /// Whether another had to give way.
    pub displaces: bool,
}

impl Admission {
    /// Nothing is open.
    #[must_use]
    pub(crate) fn new(limits: Limits) -> Admission {
        Admission { limits: Arc::new(limits), open: Arc::default() }
    }

    /// Room for a connection. Where its address has no more, the one of its connections that has been idle for longest is closed.
    pub(crate) fn connection(&self, address: IpAddr) -> Result<Admitted, Refused> {
        let address = origin(address);
        let mut open = lock(&self.open);
        let limits = &self.limits;
        let left = limits.max_connections.saturating_sub(open.connections);
        let known = open.knows(address);
        let own = open.address(address, limits);
        let room = Room { most: limits.max_connections, left, own: own.connections, known };
        let displaces = !room.has_place(limits.max_connections_per_address);
        if displaces {
            own.idle.pop_first().ok_or(Refused::Connections)?;
        } else {
            own.connections += 1;
            open.connections += 1;
        }
        let (close, displaced) = oneshot::channel();
        let turn = open.becomes_idle(address, close);
        let occupancy = Mutex::new(Occupancy::Idle(turn));
        let permit = ConnectionPermit(Arc::new(Seat { open: Arc::clone(&self.open), address, occupancy }));
        Ok(Admitted { permit, displaced, displaces })
    }

    /// Room for a stream.
    pub(crate) fn stream(&self, address: IpAddr) -> Result<Permit, Refused> {
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
        Ok(Permit { open: Arc::clone(&self.open), address })
    }

    /// Room for a stream of a Lookup, if its address does not begin too many.
    pub(crate) fn watch(&self, address: IpAddr) -> Result<Permit, Refused> {
        let permit = self.stream(address)?;
        let address = origin(address);
        let mut open = lock(&self.open);
        let taken = open.address(address, &self.limits).watches.take(Instant::now());
        drop(open);
        taken.map(|()| permit).map_err(|_| Refused::WatchRate)
    }

    /// A watch was answered with so many bytes. A large table counts as several watches: what is limited is work.
    pub(crate) fn watch_answered(&self, address: IpAddr, bytes: usize) {
        let watches = bytes / BYTES_PER_WATCH;
        if watches > 0 {
            lock(&self.open).address(origin(address), &self.limits).watches.charge(watches);
        }
    }
}

/// The address that a limit counts: for IPv6 the network, since a peer with one address of it has them all.
#[must_use]
pub(crate) fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}

/// How much room there is for one address.
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
    pub(crate) fn know(&self, address: IpAddr) {
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
            idle: BTreeMap::new(),
        })
    }

    /// Puts a connection behind all that are idle.
    fn becomes_idle(&mut self, address: IpAddr, close: oneshot::Sender<()>) -> u64 {
        self.idle_turns += 1;
        let turn = self.idle_turns;
        // An address stays while it has a connection.
        if let Some(own) = self.addresses.get_mut(&address) {
            own.idle.insert(turn, close);
        }
        turn
    }

    fn forget_addresses(&mut self) {
        // An address that goes while its bucket is not full is remembered, or reconnecting would fill it.
        let now = Instant::now();
        if self.connections == 0 || self.addresses.len() > 1024 {
            self.addresses.retain(|_, address| {
                address.connections > 0 || address.streams > 0 || !address.watches.is_full(now)
            });
        }
    }
}

impl ConnectionPermit {
    /// A request begins.
    #[must_use]
    pub(crate) fn request(&self) -> RequestGuard {
        let seat = &self.0;
        let mut open = lock(&seat.open);
        let mut occupancy = lock(&seat.occupancy);
        *occupancy = match std::mem::replace(&mut *occupancy, Occupancy::Closed) {
            Occupancy::Idle(turn) => {
                let own = open.addresses.get_mut(&seat.address);
                match own.and_then(|own| own.idle.remove(&turn)) {
                    Some(close) => Occupancy::Busy(1, close),
                    None => Occupancy::Closed,
                }
            }
            Occupancy::Busy(requests, close) => Occupancy::Busy(requests + 1, close),
            Occupancy::Closed => Occupancy::Closed,
        };
        RequestGuard(Arc::clone(seat))
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let seat = &self.0;
        let mut open = lock(&seat.open);
        let mut occupancy = lock(&seat.occupancy);
        *occupancy = match std::mem::replace(&mut *occupancy, Occupancy::Closed) {
            Occupancy::Busy(1, close) => Occupancy::Idle(open.becomes_idle(seat.address, close)),
            Occupancy::Busy(requests, close) => Occupancy::Busy(requests - 1, close),
            other => other,
        };
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        let occupancy = std::mem::replace(&mut *lock(&self.occupancy), Occupancy::Closed);
        let Some(own) = open.addresses.get_mut(&self.address) else { return };
        let has_room = match occupancy {
            Occupancy::Idle(turn) => own.idle.remove(&turn).is_some(),
            Occupancy::Busy(..) => true,
            Occupancy::Closed => false,
        };
        // Room that another connection has got is not free.
        if has_room {
            own.connections -= 1;
            open.connections -= 1;
        }
        open.forget_addresses();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        open.streams -= 1;
        if let Some(own) = open.addresses.get_mut(&self.address) {
            own.streams -= 1;
        }
        open.forget_addresses();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    /// As many connections from one address as it gets, each of them with a request.
    fn fill(admission: &Admission, address: IpAddr) -> Vec<(Admitted, RequestGuard)> {
        let mut open: Vec<(Admitted, RequestGuard)> = Vec::new();
        while let Ok(admitted) = admission.connection(address) {
            let request = admitted.permit.request();
            open.push((admitted, request));
        }
        open
    }

    fn gives_way(admitted: &mut Admitted) -> bool {
        admitted.displaced.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn a_full_address_gives_the_room_of_its_longest_idle_connection_to_a_newcomer() {
        let limits = Limits { max_connections: 8, max_connections_per_address: 3, ..Limits::default() };
        let admission = Admission::new(limits);
        let mut open: Vec<_> = (0..3).map(|_| admission.connection(HERE).expect("room")).collect();
        let busy = open[0].permit.request();
        drop(open[1].permit.request());
        let newcomer = admission.connection(HERE).expect("another gives way");
        assert!(newcomer.displaces);
        let gone: Vec<_> = open.iter_mut().map(gives_way).collect();
        assert_eq!(gone, [false, false, true], "one is busy, one was so after the third");
        // A request that came too late does not bring its connection back, and its end frees no room.
        drop(open[2].permit.request());
        open.truncate(2);
        let second = admission.connection(HERE).expect("another gives way");
        assert!(second.displaces && gives_way(&mut open[1]));
        let held = (newcomer.permit.request(), second.permit.request());
        assert_eq!(admission.connection(HERE).expect_err("all are busy"), Refused::Connections);
        drop((busy, held, newcomer, second, open));
        assert_eq!(fill(&admission, HERE).len(), 3, "all room is back");
    }

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
        let fill_from = |last: u8| {
            let address = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, last));
            fill(&admission, address)
        };
        let flood = [fill_from(1), fill_from(2), fill_from(3)];
        let shares = flood.each_ref().map(Vec::len);
        assert_eq!(shares, [32, 16, 8], "each gets half of what was left");
        assert_eq!(fill_from(4).len(), 0, "the last eighth is for those that are known");
        admission.know(HERE);
        let known = fill(&admission, HERE);
        assert_eq!(known.len(), 4);
        drop(flood);
        assert_eq!(fill_from(4).len(), 30);
    }

    #[test]
    fn addresses_of_one_network_count_as_one() {
        let v6 = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert_eq!(origin(v6("2001:db8:1:2:3::4")), origin(v6("2001:db8:1:2:ffff::1")));
        assert_ne!(origin(v6("2001:db8:1:2::1")), origin(v6("2001:db8:1:3::1")));
        assert_eq!(origin(v6("::ffff:192.0.2.1")), THERE);
    }

    #[test]
    fn a_large_table_counts_as_several_watches() {
        let limits = Limits { watches_per_second: 1, ..Limits::default() };
        let burst = usize::try_from(WATCH_BURST_SECONDS).expect("a number");
        let admission = Admission::new(limits);
        let _small = admission.watch(HERE).expect("the first");
        admission.watch_answered(HERE, BYTES_PER_WATCH - 1);
        let _large = admission.watch(HERE).expect("a small table costs nothing more");
        admission.watch_answered(HERE, burst * BYTES_PER_WATCH);
        assert_eq!(admission.watch(HERE).expect_err("a large one does"), Refused::WatchRate);
        assert!(admission.watch(THERE).is_ok(), "and its own address alone");
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
