//! The list of peers: numbers and addresses.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::limits;

/// All peers, each with its number and its address. Every peer must be given the same numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peers {
    addresses: BTreeMap<u16, String>,
}

/// Why a list of peers is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeersError {
    /// There are no peers.
    #[error("there are no peers: give each as number=host:port, such as 1=10.0.0.1:7700")]
    Empty,
    /// Two peers have one number.
    #[error("two peers have the number {0}: give each its own")]
    Twice(u16),
    /// An address is none.
    #[error("{0:?} is not the address of a peer: give it as host:port, such as 10.0.0.1:7700")]
    Address(String),
    /// Something is no peer.
    #[error("{0:?} is no peer: give each as number=host:port, such as 1=10.0.0.1:7700, numbers up to 65535")]
    Peer(String),
    /// There are too many.
    #[error(
        "there are {0} peers, and at most 128 are allowed: use cells among some peers in groups of their own"
    )]
    TooMany(usize),
}

impl Peers {
    /// These peers, as numbers and `host:port`.
    pub fn list<A: Into<String>>(peers: impl IntoIterator<Item = (u16, A)>) -> Result<Peers, PeersError> {
        let mut addresses = BTreeMap::new();
        for (peer, address) in peers {
            let address = address.into();
            if !is_address(&address) {
                return Err(PeersError::Address(address));
            }
            if addresses.insert(peer, address).is_some() {
                return Err(PeersError::Twice(peer));
            }
        }
        match addresses.len() {
            0 => Err(PeersError::Empty),
            len if len > limits::FLEASE_PEERS => Err(PeersError::TooMany(len)),
            _ => Ok(Peers { addresses }),
        }
    }

    /// The numbers and addresses, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &str)> + '_ {
        self.addresses.iter().map(|(peer, address)| (*peer, address.as_str()))
    }

    /// The address of a peer.
    #[must_use]
    pub fn address(&self, peer: u16) -> Option<&str> {
        self.addresses.get(&peer).map(String::as_str)
    }
}

fn is_address(text: &str) -> bool {
    let is_plain = |c: char| !c.is_control() && !c.is_whitespace() && c != '/' && c != ',' && c != '=';
    let parts = text.rsplit_once(':');
    let is_whole = parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    is_whole && text.len() <= limits::ADDRESS_LEN && text.chars().all(is_plain)
}

impl FromStr for Peers {
    type Err = PeersError;

    /// `number=host:port`, with commas between them.
    fn from_str(text: &str) -> Result<Peers, PeersError> {
        let peer = |text: &str| {
            let parts = text.trim().split_once('=');
            let wrong = || PeersError::Peer(text.trim().to_owned());
            let (number, address) = parts.ok_or_else(wrong)?;
            Ok((number.trim().parse().map_err(|_| wrong())?, address.trim().to_owned()))
        };
        let parts = text.split(',').filter(|part| !part.trim().is_empty());
        Peers::list(parts.map(peer).collect::<Result<Vec<_>, _>>()?)
    }
}

impl fmt::Display for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peers: Vec<String> = self.iter().map(|(peer, address)| format!("{peer}={address}")).collect();
        f.write_str(&peers.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_numbers_and_addresses() {
        let peers: Peers = "2=b.example:7700, 1=10.0.0.1:7700".parse().expect("a list");
        assert_eq!(peers.to_string(), "1=10.0.0.1:7700,2=b.example:7700");
        assert_eq!(peers.address(2), Some("b.example:7700"));
        assert_eq!(peers.address(3), None);
        let brackets = Peers::list([(1, "[::1]:7700")]);
        assert!(brackets.is_ok(), "{brackets:?}");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let refused = |text: &str| text.parse::<Peers>().expect_err("refused");
        assert_eq!(refused(" "), PeersError::Empty);
        assert_eq!(refused("1=a:1,1=b:1"), PeersError::Twice(1));
        assert_eq!(refused("1=a"), PeersError::Address("a".to_owned()));
        assert_eq!(refused("1=http://a:1"), PeersError::Address("http://a:1".to_owned()));
        assert_eq!(refused("a:1"), PeersError::Peer("a:1".to_owned()));
        assert_eq!(refused("70000=a:1"), PeersError::Peer("70000=a:1".to_owned()));
        let many = Peers::list((1..=129).map(|peer| (peer, "a:1")));
        assert_eq!(many, Err(PeersError::TooMany(129)));
    }
}
