//! Messages as bytes: large lists are encoded once, and sent again and again under new numbers.

use centrifuge_net::dial::Channel;
use centrifuge_net::limits;
use centrifuge_net::proto::v1;
use prost::Message;
use prost::bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Status, Streaming};

use crate::Result;

/// What stands before a report in an Owner's message: field 2, of a length that follows.
const REPORT_KEY: u8 = 2 << 3 | 2;

/// A message of two parts, one after the other: the second is shared by many messages.
pub(super) struct Frame {
    head: Bytes,
    tail: Bytes,
}

impl Frame {
    /// A message that has no part in common with others.
    pub(super) fn of(message: &impl Message) -> Frame {
        Frame { head: message.encode_to_vec().into(), tail: Bytes::new() }
    }

    /// An Owner's message with a report: its single fields, and its lists as they were encoded before. Fields of a
    /// message may come in any order and in parts, so that the bytes of both are the bytes of one report.
    pub(super) fn of_report(fields: &v1::Report, lists: &Bytes) -> Result<Frame> {
        let length = fields.encoded_len() + lists.len();
        let mut head = BytesMut::with_capacity(fields.encoded_len() + 16);
        head.put_u8(REPORT_KEY);
        let encoded =
            prost::encode_length_delimiter(length, &mut head).and_then(|()| fields.encode(&mut head));
        encoded?;
        Ok(Frame { head: head.freeze(), tail: lists.clone() })
    }
}

/// The part of a Manager's message that a hostile client needs: it skips what it is told to hold.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Heading {
    #[prost(message, optional, tag = "1")]
    pub(super) welcome: Option<v1::Welcome>,
    #[prost(message, optional, tag = "2")]
    pub(super) refused: Option<v1::Refused>,
    #[prost(message, optional, tag = "3")]
    pub(super) unknown_conversation: Option<v1::UnknownConversation>,
    #[prost(message, optional, tag = "5")]
    pub(super) assign: Option<AssignHeading>,
}

/// The numbers of an assignment.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct AssignHeading {
    #[prost(uint64, tag = "5")]
    pub(super) seq: u64,
    #[prost(uint64, tag = "6")]
    pub(super) heard: u64,
}

/// What the Manager answers, as bytes.
type Answers = Result<Streaming<Bytes>, Status>;

/// Opens an Owner's session.
pub(super) async fn open_session(channel: Channel, messages: ReceiverStream<Frame>) -> Answers {
    let mut client = ready(channel).await?;
    let path = PathAndQuery::from_static("/centrifuge.v1.Owner/Session");
    Ok(client.streaming(Request::new(messages), path, Raw).await?.into_inner())
}

/// Opens a Lookup's watch.
pub(super) async fn open_watch(channel: Channel, request: &v1::WatchRequest) -> Answers {
    let mut client = ready(channel).await?;
    let path = PathAndQuery::from_static("/centrifuge.v1.Lookup/Watch");
    Ok(client.server_streaming(Request::new(Frame::of(request)), path, Raw).await?.into_inner())
}

async fn ready(channel: Channel) -> Result<Grpc<Channel>, Status> {
    let mut client = Grpc::new(channel).max_decoding_message_size(limits::CLIENT_RECEIVES);
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    Ok(client)
}

/// Leaves bytes as they are.
struct Raw;

impl Codec for Raw {
    type Encode = Frame;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Frame;
    type Error = Status;

    fn encode(&mut self, frame: Frame, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(frame.head);
        buffer.put(frame.tail);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_lists_are_one_report() {
        let held =
            |first| v1::HeldLease { first, last: first + 9, generation: 7, state_since: 5, warrant: None };
        let fields = v1::Report { namespace: "loud".into(), seq: 300, weight: 100, ..v1::Report::default() };
        let lists = v1::Report { held: vec![held(0), held(10)], ..v1::Report::default() };
        let frame = Frame::of_report(&fields, &lists.encode_to_vec().into()).expect("encoded");
        let bytes = [frame.head, frame.tail].concat();
        let whole = v1::Report { held: lists.held, ..fields };
        let wanted = v1::OwnerMessage { kind: Some(v1::owner_message::Kind::Report(whole)) };
        assert_eq!(v1::OwnerMessage::decode(&*bytes).expect("a message"), wanted);
    }

    #[test]
    fn a_heading_is_read_without_the_orders() {
        let assign =
            v1::Assign { seq: 3, heard: 4, orders: vec![v1::LeaseOrder::default(); 9], ..Default::default() };
        let message = v1::ManagerMessage { kind: Some(v1::manager_message::Kind::Assign(assign)) };
        let heading = Heading::decode(&*message.encode_to_vec()).expect("a message");
        assert_eq!(heading.assign, Some(AssignHeading { seq: 3, heard: 4 }));
        assert_eq!(heading.welcome, None);
    }
}
