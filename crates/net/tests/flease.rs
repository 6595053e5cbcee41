//! Flease peers on the wire: packets there and back, and sockets that hostile datagrams cannot harm.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use centrifuge_core::flease::{Ballot, Body, Cell, Holder, Lease, Message, Packet, PeerId};
use centrifuge_core::id::Nonce;
use centrifuge_core::time::Instant;
use centrifuge_net::convert::Problem;
use centrifuge_net::flease::{PeerSocket, open, seal};
use centrifuge_net::proto::v1;
use centrifuge_net::secrets::KeyRing;
use proptest::collection::{btree_set, vec};
use proptest::option::of;
use proptest::prelude::*;
use prost::Message as _;
use tokio::sync::mpsc;

/// How long a test waits for what should come at once.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

fn ballot() -> impl Strategy<Value = Ballot> {
    (any::<u64>(), any::<u16>()).prop_map(|(time, peer)| Ballot { time: Instant(time), peer: PeerId(peer) })
}

fn lease() -> impl Strategy<Value = Lease> {
    (any::<u16>(), any::<u128>(), ballot(), any::<u64>()).prop_map(|(peer, nonce, epoch, until)| Lease {
        holder: Holder { peer: PeerId(peer), incarnation: Nonce(nonce) },
        epoch,
        until: Instant(until),
    })
}

fn cell() -> impl Strategy<Value = Cell> {
    ("[^\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}\\p{Cn}]{1,60}", btree_set(any::<u16>(), 0..8)).prop_map(
        |(name, members)| {
            let cell = Cell::new(&name).expect("a name");
            if members.is_empty() { cell } else { cell.among(members.into_iter().map(PeerId)) }
        },
    )
}

fn body() -> impl Strategy<Value = Body> {
    prop_oneof![
        Just(Body::Read),
        (ballot(), of(lease())).prop_map(|(written, lease)| Body::ReadAck { written, lease }),
        of(lease()).prop_map(Body::Write),
        Just(Body::WriteAck),
        ballot().prop_map(|promised| Body::Nack { promised }),
    ]
}

fn packet() -> impl Strategy<Value = Packet> {
    let message = (cell(), ballot(), body()).prop_map(|(cell, ballot, body)| Message { cell, ballot, body });
    (any::<u64>(), any::<u64>(), any::<u64>(), any::<bool>(), vec(message, 0..6)).prop_map(
        |(agreement, sent, echo, probe, messages)| {
            let (sent, echo) = (Instant(sent), Instant(echo));
            Packet { agreement, sent, echo, probe, messages }
        },
    )
}

proptest! {
    #[test]
    fn packets_come_back_as_they_were(packet in packet()) {
        let bytes = v1::FleasePacket::from(&packet).encode_to_vec();
        let wire = v1::FleasePacket::decode(bytes.as_slice()).expect("what was encoded decodes");
        prop_assert_eq!(Packet::try_from(wire), Ok(packet));
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_read_but_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = open(&keys(), PeerId(1), &bytes);
        let _ = v1::FleaseDatagram::decode(bytes.as_slice());
        let _ = v1::FleasePacket::decode(bytes.as_slice()).map(Packet::try_from);
    }

    #[test]
    fn damaged_packets_are_refused_or_read_but_never_panic(
        packet in packet(), damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)
    ) {
        let mut bytes = v1::FleasePacket::from(&packet).encode_to_vec();
        for (place, byte) in damage {
            let len = bytes.len();
            bytes[place.index(len)] ^= byte;
        }
        let _ = v1::FleasePacket::decode(bytes.as_slice()).map(Packet::try_from);
    }
}

#[test]
fn what_the_schema_does_not_allow_is_refused_by_its_field() {
    let whole = || {
        let body = Some(v1::flease_message::Body::Write(v1::FleaseWrite {
            lease: Some(v1::FleaseLease {
                peer: 1,
                incarnation: vec![0; 16].into(),
                epoch: Some(v1::FleaseBallot { time: 1, peer: 1 }),
                until: 9,
            }),
        }));
        let ballot = Some(v1::FleaseBallot { time: 1, peer: 1 });
        v1::FleaseMessage { cell: "a".to_owned(), members: vec![1, 2], ballot, body }
    };
    let lease = |message: &mut v1::FleaseMessage, damage: fn(&mut v1::FleaseLease)| {
        let Some(v1::flease_message::Body::Write(write)) = &mut message.body else { return };
        write.lease.iter_mut().for_each(damage);
    };
    type Damage = Box<dyn Fn(&mut v1::FleaseMessage)>;
    let cases: Vec<(&str, Damage)> = vec![
        ("cell", Box::new(|message| message.cell.clear())),
        ("cell", Box::new(|message| message.cell = "a".repeat(254))),
        ("cell", Box::new(|message| message.cell = "a\n".to_owned())),
        ("members", Box::new(|message| message.members = vec![2, 1])),
        ("members", Box::new(|message| message.members = vec![1, 1])),
        ("members", Box::new(|message| message.members = (0..200).collect())),
        ("members", Box::new(|message| message.members = vec![70_000])),
        ("ballot", Box::new(|message| message.ballot = None)),
        (
            "ballot.peer",
            Box::new(|message| message.ballot = Some(v1::FleaseBallot { time: 1, peer: 1 << 16 })),
        ),
        ("body", Box::new(|message| message.body = None)),
        (
            "write.lease.incarnation",
            Box::new(move |message| lease(message, |lease| lease.incarnation.clear())),
        ),
        ("write.lease.epoch", Box::new(move |message| lease(message, |lease| lease.epoch = None))),
        ("write.lease.peer", Box::new(move |message| lease(message, |lease| lease.peer = 1 << 20))),
    ];
    for (field, damage) in cases {
        let mut message = whole();
        assert!(Message::try_from(message.clone()).is_ok());
        damage(&mut message);
        let packet = v1::FleasePacket { messages: vec![whole(), message], ..v1::FleasePacket::default() };
        let error = Packet::try_from(packet).expect_err(field);
        assert_eq!(error.field, format!("messages[1].{field}"), "{error}");
    }
    let mut twice = whole();
    twice.members = vec![3, 3];
    assert_eq!(Message::try_from(twice).expect_err("twice").problem, Problem::OutOfOrder);
}

fn keys() -> KeyRing {
    KeyRing::parse(b"a secret of these tests").expect("long enough")
}

fn some_packet(number: u64) -> Packet {
    Packet { agreement: number, sent: Instant(1), echo: Instant::ZERO, probe: false, messages: Vec::new() }
}

async fn listen(me: u16, others: &[(u16, SocketAddr)]) -> (PeerSocket, mpsc::Receiver<(PeerId, Packet)>) {
    let (events, received) = mpsc::channel(64);
    let others: BTreeMap<PeerId, String> =
        others.iter().map(|(peer, address)| (PeerId(*peer), address.to_string())).collect();
    let event = |from, packet| (from, packet);
    let socket = PeerSocket::start("127.0.0.1:0", keys(), PeerId(me), others, events, event).await;
    (socket.expect("a free port"), received)
}

async fn next(received: &mut mpsc::Receiver<(PeerId, Packet)>) -> (PeerId, Packet) {
    tokio::time::timeout(TEST_TIMEOUT, received.recv()).await.expect("in time").expect("the socket lives")
}

#[tokio::test]
async fn packets_arrive_and_everything_else_is_counted() {
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let (socket, mut received) = listen(1, &[(2, stranger.local_addr().expect("an address"))]).await;
    let send = |bytes: &[u8]| {
        assert_eq!(stranger.send_to(bytes, socket.address()).expect("it is sent"), bytes.len());
    };

    send(&[]);
    send(b"junk");
    send(&[0; 60_000]);
    let other = KeyRing::parse(b"another secret, as long").expect("long enough");
    send(&seal(&other, PeerId(2), PeerId(1), &some_packet(1))[0]);
    send(&seal(&keys(), PeerId(2), PeerId(3), &some_packet(2))[0]);
    send(&seal(&keys(), PeerId(9), PeerId(1), &some_packet(3))[0]);
    send(&seal(&keys(), PeerId(1), PeerId(1), &some_packet(4))[0]);
    // What is in order arrives after all that.
    send(&seal(&keys(), PeerId(2), PeerId(1), &some_packet(5))[0]);
    assert_eq!(next(&mut received).await, (PeerId(2), some_packet(5)));
    let counters = socket.counters();
    assert_eq!((counters.wrong_code, counters.strangers, counters.malformed), (4, 3, 0));
    assert_eq!(counters.received, 1);
}

#[tokio::test]
async fn a_packet_goes_to_its_peer_and_an_unknown_peer_is_no_harm() {
    let (two, mut received) = listen(2, &[(1, "127.0.0.1:1".parse().expect("an address"))]).await;
    let (one, _) = listen(1, &[(2, two.address())]).await;
    one.send(PeerId(3), some_packet(1));
    let packet = Packet {
        messages: (0..500)
            .map(|number| Message {
                cell: Cell::new(&format!("cell-{number}")).expect("a name"),
                ballot: Ballot { time: Instant(number), peer: PeerId(1) },
                body: Body::Read,
            })
            .collect(),
        ..some_packet(2)
    };
    one.send(PeerId(2), packet.clone());
    let mut messages = Vec::new();
    while messages.len() < packet.messages.len() {
        let (from, part) = next(&mut received).await;
        assert_eq!((from, part.agreement), (PeerId(1), 2));
        messages.extend(part.messages);
    }
    assert_eq!(messages, packet.messages);
    assert!(one.counters().sent > 1 && one.counters().unsent == 1, "{:?}", one.counters());
    assert_eq!(one.counters().sent_bytes, two.counters().received_bytes);
}

#[tokio::test]
async fn a_name_is_looked_up() {
    let (two, mut received) = listen(2, &[(1, "127.0.0.1:1".parse().expect("an address"))]).await;
    let (events, _received) = mpsc::channel(1);
    let others = BTreeMap::from([(PeerId(2), format!("localhost:{}", two.address().port()))]);
    let event = |from, packet| (from, packet);
    let one =
        PeerSocket::start("127.0.0.1:0", keys(), PeerId(1), others, events, event).await.expect("a port");
    let arrives = async {
        loop {
            // Lost until the name is known.
            one.send(PeerId(2), some_packet(1));
            if let Ok(Some(first)) = tokio::time::timeout(Duration::from_millis(50), received.recv()).await {
                return first;
            }
        }
    };
    assert_eq!(tokio::time::timeout(TEST_TIMEOUT, arrives).await.expect("in time").0, PeerId(1));
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let (events, _received) = mpsc::channel(1);
    let event = |from: PeerId, packet: Packet| (from, packet);
    let error = PeerSocket::start(&address, keys(), PeerId(1), BTreeMap::new(), events, event).await;
    let error = error.expect_err("it is taken").to_string();
    assert!(error.contains(&address) && error.contains("bind"), "{error}");
}
