//! Flease: packets between peers.

use centrifuge_core::flease::{Ballot, Body, Cell, Holder, Lease, Message, Packet, PeerId};
use centrifuge_core::id::NameError;
use centrifuge_core::time::Instant;

use super::error::{ConvertError, Converted, Problem, refuse};
use super::field::*;
use crate::limits;
use crate::proto::v1;

impl From<&Packet> for v1::FleasePacket {
    fn from(packet: &Packet) -> v1::FleasePacket {
        v1::FleasePacket {
            agreement: packet.agreement,
            sent: packet.sent.0,
            echo: packet.echo.0,
            probe: packet.probe,
            messages: packet.messages.iter().map(v1::FleaseMessage::from).collect(),
        }
    }
}

impl TryFrom<v1::FleasePacket> for Packet {
    type Error = ConvertError;

    fn try_from(wire: v1::FleasePacket) -> Converted<Packet> {
        Ok(Packet {
            agreement: wire.agreement,
            sent: Instant(wire.sent),
            echo: Instant(wire.echo),
            probe: wire.probe,
            messages: read_list("messages", wire.messages, Message::try_from)?,
        })
    }
}

impl From<&Message> for v1::FleaseMessage {
    fn from(message: &Message) -> v1::FleaseMessage {
        let members = message.cell.named_members().unwrap_or_default();
        v1::FleaseMessage {
            cell: message.cell.name().to_owned(),
            members: members.iter().map(|peer| u32::from(peer.0)).collect(),
            ballot: Some(write_ballot(message.ballot)),
            body: Some(write_body(message.body)),
        }
    }
}

impl TryFrom<v1::FleaseMessage> for Message {
    type Error = ConvertError;

    fn try_from(wire: v1::FleaseMessage) -> Converted<Message> {
        let cell = read_cell(&wire.cell, &wire.members)?;
        let ballot = read_required("ballot", wire.ballot, read_ballot)?;
        let Some(body) = wire.body else { return refuse("body", Problem::NoKind) };
        Ok(Message { cell, ballot, body: read_body(body)? })
    }
}

/// The number of a peer.
pub(crate) fn read_peer(field: &str, wire: u32) -> Converted<PeerId> {
    let at_most = u64::from(u16::MAX);
    u16::try_from(wire)
        .map(PeerId)
        .or_else(|_| refuse(field, Problem::TooHigh { value: u64::from(wire), at_most }))
}

fn read_cell(name: &str, members: &[u32]) -> Converted<Cell> {
    let cell = Cell::new(name).or_else(|error| match error {
        _ if name.is_empty() => refuse("cell", Problem::Absent),
        NameError::Unprintable { character } => refuse("cell", Problem::Unprintable { character }),
        error => refuse("cell", Problem::Name(error)),
    })?;
    let at_most = limits::FLEASE_PEERS;
    match members.len() {
        0 => Ok(cell),
        len if len > at_most => refuse("members", Problem::TooMany { len, at_most }),
        _ if !members.is_sorted_by(|one, other| one < other) => refuse("members", Problem::OutOfOrder),
        _ => {
            let members: Vec<PeerId> =
                members.iter().map(|peer| read_peer("members", *peer)).collect::<Converted<_>>()?;
            Ok(cell.among(members))
        }
    }
}

fn write_body(body: Body) -> v1::flease_message::Body {
    use v1::flease_message::Body as Wire;
    match body {
        Body::Read => Wire::Read(v1::FleaseRead {}),
        Body::ReadAck { written, lease } => Wire::ReadAck(v1::FleaseReadAck {
            written: (written != Ballot::ZERO).then(|| write_ballot(written)),
            lease: lease.map(write_lease),
        }),
        Body::Write(lease) => Wire::Write(v1::FleaseWrite { lease: lease.map(write_lease) }),
        Body::WriteAck => Wire::WriteAck(v1::FleaseWriteAck {}),
        Body::Nack { promised } => Wire::Nack(v1::FleaseNack { promised: Some(write_ballot(promised)) }),
    }
}

fn read_body(wire: v1::flease_message::Body) -> Converted<Body> {
    use v1::flease_message::Body as Wire;
    Ok(match wire {
        Wire::Read(_) => Body::Read,
        Wire::ReadAck(ack) => read_in("read_ack", ack, read_read_ack)?,
        Wire::Write(write) => Body::Write(read_in("write", write, |write| read_lease_in(write.lease))?),
        Wire::WriteAck(_) => Body::WriteAck,
        Wire::Nack(nack) => {
            let promised =
                read_in("nack", nack, |nack| read_required("promised", nack.promised, read_ballot))?;
            Body::Nack { promised }
        }
    })
}

fn read_read_ack(wire: v1::FleaseReadAck) -> Converted<Body> {
    let written = read_optional("written", wire.written, read_ballot)?;
    Ok(Body::ReadAck { written: written.unwrap_or(Ballot::ZERO), lease: read_lease_in(wire.lease)? })
}

fn read_lease_in(wire: Option<v1::FleaseLease>) -> Converted<Option<Lease>> {
    read_optional("lease", wire, read_lease)
}

fn write_lease(lease: Lease) -> v1::FleaseLease {
    v1::FleaseLease {
        peer: u32::from(lease.holder.peer.0),
        incarnation: write_nonce(lease.holder.incarnation),
        epoch: Some(write_ballot(lease.epoch)),
        until: lease.until.0,
    }
}

fn read_lease(wire: v1::FleaseLease) -> Converted<Lease> {
    let holder = Holder {
        peer: read_peer("peer", wire.peer)?,
        incarnation: read_nonce("incarnation", &wire.incarnation)?,
    };
    let epoch = read_required("epoch", wire.epoch, read_ballot)?;
    Ok(Lease { holder, epoch, until: Instant(wire.until) })
}

fn write_ballot(ballot: Ballot) -> v1::FleaseBallot {
    v1::FleaseBallot { time: ballot.time.0, peer: u32::from(ballot.peer.0) }
}

fn read_ballot(wire: v1::FleaseBallot) -> Converted<Ballot> {
    Ok(Ballot { time: Instant(wire.time), peer: read_peer("peer", wire.peer)? })
}
