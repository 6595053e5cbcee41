//! Calls of every method, whatever it is called: bytes go, and what matters is whether they were let in.

use std::time::Duration;

use centrifuge::Security;
use centrifuge_core::id::{ManagerId, Namespace, OwnerName};
use centrifuge_core::machine::Machine;
use centrifuge_core::message::{Hello, OwnerToManager};
use centrifuge_core::owner::{OwnerAction, OwnerConfig, OwnerEvent, OwnerMachine};
use centrifuge_core::random::Random;
use centrifuge_core::time::Instant;
use centrifuge_harness::http::page_by;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use prost::Message;
use prost::bytes::{Buf, BufMut, Bytes};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Status};

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    LetIn,
    Denied,
    /// No connection came about.
    NoConnection,
}

/// Calls a method with the bytes of a request; every method is called as one with streams both ways, which all of them can be.
pub(crate) async fn call(dialer: &Dialer, manager: &ManagerId, path: &str, message: Vec<u8>) -> Outcome {
    match ask(dialer, manager, path, message).await {
        Ok(_) => Outcome::LetIn,
        Err(status) => outcome(&status),
    }
}

/// Calls a method with the bytes of a request; gives the first reply.
pub(crate) async fn ask(
    dialer: &Dialer,
    manager: &ManagerId,
    path: &str,
    message: Vec<u8>,
) -> Result<Option<Bytes>, Status> {
    let channel = dialer.channel(manager).expect("an address");
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
    let path: PathAndQuery = path.parse().expect("a path");
    let request = Request::new(tokio_stream::once(Bytes::from(message)));
    let answered = async {
        let mut replies = client.streaming(request, path, RawCodec).await?.into_inner();
        replies.message().await
    };
    tokio::time::timeout(Duration::from_secs(20), answered).await.expect("an answer in time")
}

fn outcome(status: &Status) -> Outcome {
    match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => Outcome::Denied,
        _ if std::error::Error::source(status).is_some() => Outcome::NoConnection,
        _ => Outcome::LetIn,
    }
}

/// The status of a page; `None`: no connection came about.
pub(crate) async fn get(security: &Security, address: std::net::SocketAddr, path: &str) -> Option<u16> {
    page_by(security, address, path).await.ok()?.0.split(' ').nth(1)?.parse().ok()
}

/// The first message of an Owner.
pub(crate) fn hello(namespace: &str, name: &str) -> Vec<u8> {
    v1::OwnerMessage::from(&OwnerToManager::Hello(hello_of(namespace, name))).encode_to_vec()
}

fn hello_of(namespace: &str, name: &str) -> Hello {
    let config = OwnerConfig {
        namespace: Namespace::new(namespace).expect("a label"),
        name: OwnerName::new(name).expect("a name"),
        url: "http://owner".into(),
        managers: ["m:1".into()].into(),
        takes_over_previous: false,
        weight: 100,
        load_dimension: Default::default(),
        migrates: false,
        credential: Some(centrifuge_net::credential::draw().expect("random bits")),
        expects: Default::default(),
    };
    let mut machine = OwnerMachine::new(config, Random::from_number(7));
    let actions = machine.on_event(Instant(1), OwnerEvent::Start).actions;
    let said = actions.into_iter().find_map(|action| match action {
        OwnerAction::ToManager { message: OwnerToManager::Hello(hello), .. } => Some(hello),
        _ => None,
    });
    said.expect("an Owner begins with a hello")
}

#[derive(Clone, Copy, Debug)]
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = RawCodec;
    type Decoder = RawCodec;

    fn encoder(&mut self) -> RawCodec {
        RawCodec
    }

    fn decoder(&mut self) -> RawCodec {
        RawCodec
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
