//! Packets as datagrams: each small enough for the network, each with a code that only peers can make.

use centrifuge_core::flease::{Packet, PeerId};
use prost::Message as _;
use prost::encoding::encoded_len_varint;

use crate::convert::{ConvertError, Problem, read_peer};
use crate::limits;
use crate::proto::{encode, v1};
use crate::secrets::{KeyRing, Purpose, Secrets};

/// The version that this build writes, and the only one that it reads.
const VERSION: u32 = 1;
/// What a datagram needs beside its messages, at most.
const AROUND: usize = 64 + Secrets::CODE_LEN;

/// A datagram that is what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The peer that it says it is from; only holders of the secret can say so.
    pub from: PeerId,
    /// What it says.
    pub packet: Packet,
}

/// Why a datagram is dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is no datagram of a holder of the secret.
    #[error(
        "its code is of no secret that we accept: look whether all peers have the same, and who else sends here"
    )]
    Code,
    /// It has a code, and is no message.
    #[error("it is no message: {0}")]
    Malformed(ConvertError),
    /// It is of a version that this build does not read.
    #[error("it has version {0}, and this build reads version 1: upgrade this peer")]
    Version(u32),
    /// It is for another peer.
    #[error("it is for {0}: look at the addresses in that sender's list of peers")]
    Elsewhere(PeerId),
}

/// The datagrams that bring a packet to a peer: one, or several where it would be too long.
#[must_use]
pub fn seal(keys: &KeyRing, from: PeerId, to: PeerId, packet: &Packet) -> Vec<Vec<u8>> {
    let secrets = keys.secrets();
    let mut whole = v1::FleasePacket::from(packet);
    let mut rest = std::mem::take(&mut whole.messages).into_iter().peekable();
    let mut datagrams = Vec::new();
    loop {
        let mut part = v1::FleasePacket { messages: Vec::new(), ..whole };
        // One answer is enough.
        part.probe &= datagrams.is_empty();
        let mut len = AROUND;
        while let Some(message) = rest.peek() {
            let more = message.encoded_len();
            len += 1 + encoded_len_varint(more as u64) + more;
            if len > limits::FLEASE_DATAGRAM && !part.messages.is_empty() {
                break;
            }
            part.messages.extend(rest.next());
        }
        datagrams.push(seal_part(&secrets, from, to, part));
        if rest.peek().is_none() {
            return datagrams;
        }
    }
}

fn seal_part(secrets: &Secrets, from: PeerId, to: PeerId, packet: v1::FleasePacket) -> Vec<u8> {
    let (from, to) = (u32::from(from.0), u32::from(to.0));
    let bytes = encode(&v1::FleaseDatagram { version: VERSION, from, to, packet: Some(packet) });
    [secrets.code(Purpose::Datagrams, &bytes).as_ref(), &bytes].concat()
}

/// What a datagram says to the peer `me`. Reads nothing before its code has been compared.
pub fn open(keys: &KeyRing, me: PeerId, datagram: &[u8]) -> Result<Opened, Refused> {
    let (code, bytes) = datagram.split_at_checked(Secrets::CODE_LEN).ok_or(Refused::Code)?;
    if !keys.secrets().fits(Purpose::Datagrams, code, bytes) {
        return Err(Refused::Code);
    }
    let wire = v1::FleaseDatagram::decode(bytes).map_err(|error| {
        malformed(ConvertError { field: "datagram".to_owned(), problem: Problem::Decode(error) })
    })?;
    if wire.version != VERSION {
        return Err(Refused::Version(wire.version));
    }
    let to = read_peer("to", wire.to).map_err(malformed)?;
    if to != me {
        return Err(Refused::Elsewhere(to));
    }
    let from = read_peer("from", wire.from).map_err(malformed)?;
    let packet = Packet::try_from(wire.packet.unwrap_or_default()).map_err(malformed)?;
    Ok(Opened { from, packet })
}

fn malformed(error: ConvertError) -> Refused {
    Refused::Malformed(error)
}

#[cfg(test)]
mod tests {
    use centrifuge_core::flease::{Ballot, Body, Cell, Message};
    use centrifuge_core::time::Instant;

    use super::*;

    const ME: PeerId = PeerId(1);
    const OTHER: PeerId = PeerId(2);

    fn keys(byte: u8) -> KeyRing {
        KeyRing::parse(&[byte; 16]).expect("long enough")
    }

    fn packet(messages: u64) -> Packet {
        let message = |number| Message {
            cell: Cell::new(&format!("cell-{number}")).expect("a name"),
            ballot: Ballot { time: Instant(1_790_000_000_000_000_000 + number), peer: OTHER },
            body: Body::Read,
        };
        let messages = (0..messages).map(message).collect();
        Packet { agreement: u64::MAX, sent: Instant(7), echo: Instant(6), probe: true, messages }
    }

    #[test]
    fn a_packet_comes_back_as_it_was() {
        for messages in [0, 1, 3] {
            let packet = packet(messages);
            let datagrams = seal(&keys(1), OTHER, ME, &packet);
            assert_eq!(datagrams.len(), 1);
            let opened = open(&keys(1), ME, &datagrams[0]);
            assert_eq!(opened, Ok(Opened { from: OTHER, packet }));
        }
    }

    #[test]
    fn a_long_packet_goes_in_pieces_that_the_network_carries() {
        let packet = packet(1_000);
        let datagrams = seal(&keys(1), OTHER, ME, &packet);
        let is_next = cfg!(feature = "next-version");
        assert!(datagrams.iter().all(|datagram| is_next || datagram.len() <= limits::FLEASE_DATAGRAM));
        let most = 1_000 * 40 / limits::FLEASE_DATAGRAM;
        assert!(datagrams.len() <= most, "{} datagrams are not full", datagrams.len());
        let parts: Vec<Packet> =
            datagrams.iter().map(|datagram| open(&keys(1), ME, datagram).expect("ours").packet).collect();
        assert_eq!(parts.iter().filter(|part| part.probe).count(), 1, "one answer is enough");
        assert!(parts.iter().all(|part| (part.sent, part.echo) == (packet.sent, packet.echo)));
        let messages: Vec<Message> = parts.into_iter().flat_map(|part| part.messages).collect();
        assert_eq!(messages, packet.messages);
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        let datagram = seal(&keys(1), OTHER, ME, &packet(1)).remove(0);
        assert_eq!(open(&keys(2), ME, &datagram), Err(Refused::Code));
        assert_eq!(open(&keys(1), OTHER, &datagram), Err(Refused::Elsewhere(ME)));
        for len in 0..datagram.len() {
            assert_eq!(open(&keys(1), ME, &datagram[..len]), Err(Refused::Code), "cut at {len}");
        }
        for place in 0..datagram.len() {
            let mut damaged = datagram.clone();
            damaged[place] ^= 1;
            assert_eq!(open(&keys(1), ME, &damaged), Err(Refused::Code), "another byte at {place}");
        }
    }

    #[test]
    fn a_datagram_of_any_step_of_a_rotation_is_opened_one_step_later_and_earlier() {
        let (old, new) = ("the old secret of these tests", "the new secret of these tests");
        let steps = [old.to_owned(), format!("{old}\n{new}"), format!("{new}\n{old}"), new.to_owned()];
        let steps = steps.map(|text| KeyRing::parse(text.as_bytes()).expect("secrets"));
        for (at, from) in steps.iter().enumerate() {
            let datagram = seal(from, OTHER, ME, &packet(1)).remove(0);
            for (other, to) in steps.iter().enumerate() {
                let is_opened = open(to, ME, &datagram).is_ok();
                assert!(is_opened || at.abs_diff(other) > 1, "from step {at} to step {other}");
            }
        }
        let datagram = seal(&steps[0], OTHER, ME, &packet(1)).remove(0);
        assert_eq!(open(&steps[3], ME, &datagram), Err(Refused::Code), "the old secret is over");
    }

    fn sealed(bytes: &[u8]) -> Vec<u8> {
        [keys(1).secrets().code(Purpose::Datagrams, bytes).as_ref(), bytes].concat()
    }

    #[test]
    fn a_holder_of_the_secret_can_still_be_wrong() {
        let junk = open(&keys(1), ME, &sealed(b"\xff\xff\xff"));
        assert!(matches!(junk, Err(Refused::Malformed(_))), "{junk:?}");
        let later = v1::FleaseDatagram { version: 2, from: 2, to: 1, packet: None };
        assert_eq!(open(&keys(1), ME, &sealed(&later.encode_to_vec())), Err(Refused::Version(2)));
        let nobody = v1::FleaseDatagram { version: 1, from: 70_000, to: 1, packet: None };
        let nobody = open(&keys(1), ME, &sealed(&nobody.encode_to_vec()));
        assert!(matches!(&nobody, Err(Refused::Malformed(error)) if error.field == "from"), "{nobody:?}");
    }
}
