//! What Flease peers say to each other, without the code around it.

use centrifuge_core::flease::{Ballot, Body, Cell, Holder, Lease, Message, Packet, PeerId};
use centrifuge_core::time::Instant;
use centrifuge_net::proto::v1;

use super::files::Golden;
use super::nonce;

pub(super) fn check(golden: &mut Golden) {
    let lease = Lease {
        holder: Holder { peer: PeerId(2), incarnation: nonce(5) },
        epoch: ballot(-3),
        until: Instant(TIME + 9),
    };
    let bodies = [
        ("read", Body::Read),
        ("read-ack", Body::ReadAck { written: ballot(-2), lease: Some(lease) }),
        ("read-ack-of-nothing", Body::ReadAck { written: Ballot::ZERO, lease: None }),
        ("write", Body::Write(Some(lease))),
        ("write-none", Body::Write(None)),
        ("write-ack", Body::WriteAck),
        ("nack", Body::Nack { promised: ballot(1) }),
    ];
    for (name, body) in bodies {
        packet(golden, &format!("flease-{name}"), vec![message(body)]);
    }
    packet(golden, "flease-clocks-only", Vec::new());
    let packet = packet_of(vec![message(Body::Read)]);
    let datagram = v1::FleaseDatagram { version: 1, from: 2, to: 65_535, packet: Some((&packet).into()) };
    super::check_wire(golden, "flease-datagram", &datagram);
}

const TIME: u64 = 1_790_000_000_000_000_000;

fn packet(golden: &mut Golden, name: &str, messages: Vec<Message>) {
    super::check::<Packet, v1::FleasePacket>(golden, name, &packet_of(messages));
}

fn packet_of(messages: Vec<Message>) -> Packet {
    Packet { agreement: 77, sent: Instant(TIME + 4), echo: Instant(TIME - 4), probe: true, messages }
}

fn message(body: Body) -> Message {
    let cell = Cell::new("primary of shard 7").expect("a name").among([PeerId(1), PeerId(2), PeerId(65_535)]);
    Message { cell, ballot: ballot(0), body }
}

fn ballot(later: i64) -> Ballot {
    Ballot { time: Instant(TIME.saturating_add_signed(later)), peer: PeerId(2) }
}
