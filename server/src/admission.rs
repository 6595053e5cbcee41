//! How many connections and streams there may be, in all and from one address, and how fast they may begin.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::config::Limits;
use crate::rate::Bucket;

/// How many watches of one address may begin at once, in seconds of the steady rate.
const WATCH_BURST_SECONDS: u32 = 10;

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
        let mut open = lock(&self.open);
        let limits = &self.limits;
        let all_taken = open.connections >= limits.max_connections;
        let own = open.address(address, limits);
        if all_taken || own.connections >= limits.max_connections_per_address {
            return Err(Refused::Connections);
        }
        own.connections += 1;
        open.connections += 1;
        Ok(Permit { open: Arc::clone(&self.open), address, what: What::Connection })
    }

    /// Room for a stream.
    pub fn stream(&self, address: IpAddr) -> Result<Permit, Refused> {
        let mut open = lock(&self.open);
        let limits = &self.limits;
        let all_taken = open.streams >= limits.max_streams;
        let own = open.address(address, limits);
        if all_taken || own.streams >= limits.max_streams_per_address {
            return Err(Refused::Streams);
        }
        own.streams += 1;
        open.streams += 1;
        Ok(Permit { open: Arc::clone(&self.open), address, what: What::Stream })
    }

    /// Room for a stream of a Lookup, if its address does not begin too many.
    pub fn watch(&self, address: IpAddr) -> Result<Permit, Refused> {
        let permit = self.stream(address)?;
        let mut open = lock(&self.open);
        let taken = open.address(address, &self.limits).watches.take(Instant::now());
        drop(open);
        taken.map(|()| permit).map_err(|_| Refused::WatchRate)
    }
}

impl Open {
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
        let limits = Limits { max_streams: 3, max_streams_per_address: 2, ..Limits::default() };
        let admission = Admission::new(limits);
        let first = admission.stream(HERE).expect("room");
        let _second = admission.stream(HERE).expect("room");
        assert_eq!(admission.stream(HERE).expect_err("full"), Refused::Streams);
        let _other = admission.stream(THERE).expect("room");
        assert_eq!(admission.stream(THERE).expect_err("full in all"), Refused::Streams);
        drop(first);
        assert!(admission.stream(HERE).is_ok());
    }

    #[test]
    fn watches_that_begin_too_fast_are_refused_and_leave_no_stream_behind() {
        let limits = Limits { watches_per_second: 1, max_streams: 11, ..Limits::default() };
        let admission = Admission::new(limits);
        let open: Vec<_> = (0..10).map(|_| admission.watch(HERE).expect("a burst")).collect();
        assert_eq!(admission.watch(HERE).expect_err("too fast"), Refused::WatchRate);
        assert!(admission.stream(HERE).is_ok(), "the refused watch holds no room");
        drop(open);
    }
}
