//! An Owner's session spoken by hand, so that every report and its answer can be timed and made as large as is legal.

use std::time::{Duration, Instant};

use centrifuge_core::id::{Credential, ManagerId};
use centrifuge_core::key::KeyRange;
use centrifuge_net::convert::write_session;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use centrifuge_net::{credential, limits};
use prost::Message;
use prost::bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::lists::{Lease, division, parts, renewal};
use super::wire::{AssignHeading, Frame, Heading, open_session};
use crate::{Failure, Result};

/// How long an Owner waits to be granted something before it asks.
pub(super) const GRANT_TIMEOUT: Duration = Duration::from_millis(500);
/// How long it may take to get the leases that are wanted.
const DIVIDE_TIMEOUT: Duration = Duration::from_secs(120);

/// A session with a conversation that has begun.
pub(super) struct Session {
    fields: v1::Report,
    began: Instant,
    sender: mpsc::Sender<Frame>,
    answers: Streaming<Bytes>,
    leases: Vec<Lease>,
}

impl Session {
    /// Joins a namespace on a connection of its own.
    pub(super) async fn join(dialer: &Dialer, manager: &str, namespace: &str, name: &str) -> Result<Session> {
        let credential = credential::draw()?;
        let channel = dialer.channel(&ManagerId::from(manager))?;
        let (sender, messages) = mpsc::channel(1);
        let fields = v1::Report {
            namespace: namespace.to_owned(),
            session: write_session(credential.session),
            weight: 100,
            ..v1::Report::default()
        };
        // The Manager answers a stream that begins with a message.
        let _ = sender.try_send(hello(&credential, namespace, name));
        let answers = open_session(channel, ReceiverStream::new(messages)).await?;
        let mut session = Session { fields, began: Instant::now(), sender, answers, leases: Vec::new() };
        let welcome = Heading::decode(session.next().await?).map_err(unreadable)?.welcome;
        let welcome = welcome.ok_or_else(|| Failure::from(format!("{name} is not welcome")))?;
        session.fields.conversation = welcome.conversation;
        Ok(session)
    }

    /// What the Manager's latest message that was read in full lists.
    pub(super) fn leases(&self) -> &[Lease] {
        &self.leases
    }

    /// The lists of a report that renews all leases.
    pub(super) fn renewal(&self) -> Bytes {
        encode(&renewal(&self.leases))
    }

    /// Sends a report with these lists, once the stream takes it, and gives its number.
    async fn send(&mut self, lists: &Bytes) -> Result<u64> {
        let frame = self.frame(lists)?;
        self.sender.send(frame).await.map_err(|_| ended())?;
        Ok(self.fields.seq)
    }

    /// Sends a report with these lists until it is answered, and does not look at what the Owner should hold. A
    /// report that crosses a message does not count, and the Manager waits some time for another: like every Owner,
    /// this one sends it at once.
    pub(super) async fn report(&mut self, lists: &Bytes) -> Result<()> {
        loop {
            let number = self.send(lists).await?;
            if self.receive().await?.heard >= number {
                return Ok(());
            }
        }
    }

    /// Sends a report with these lists, and takes note of what the Manager's next message lists: that is its answer,
    /// or crossed it.
    pub(super) async fn report_once(&mut self, lists: &Bytes) -> Result<()> {
        self.send(lists).await?;
        self.receive_leases().await?;
        Ok(())
    }

    /// The next message; gives its numbers.
    async fn receive(&mut self) -> Result<AssignHeading> {
        loop {
            let heading = Heading::decode(self.next().await?).map_err(unreadable)?;
            if heading.refused.is_some() || heading.unknown_conversation.is_some() {
                return Err(Failure::from(format!(
                    "the Manager does not know the conversation any more: {heading:?}"
                )));
            }
            let Some(assign) = heading.assign else { continue };
            self.note(assign.seq);
            return Ok(assign);
        }
    }

    /// The next message with what the Owner should hold; gives the number of the report that it answers.
    pub(super) async fn receive_leases(&mut self) -> Result<u64> {
        loop {
            let message = v1::ManagerMessage::decode(self.next().await?).map_err(unreadable)?;
            let Some(v1::manager_message::Kind::Assign(assign)) = message.kind else { continue };
            self.note(assign.seq);
            self.leases = assign.orders.iter().filter_map(Lease::of_order).collect();
            return Ok(assign.heard);
        }
    }

    /// Waits until it has every key, and gets that in so many leases of the same size. An odd number is rounded down.
    pub(super) async fn divide(&mut self, count: usize) -> Result<()> {
        let pieces = parts(KeyRange::ALL, (count / 2 * 2).max(1));
        let divided = tokio::time::timeout(DIVIDE_TIMEOUT, self.divide_into(&pieces)).await;
        divided.unwrap_or_else(|_| {
            let so_far = self.leases.len();
            Err(Failure::from(format!("an Owner has {so_far} of {count} leases after {DIVIDE_TIMEOUT:?}")))
        })
    }

    async fn divide_into(&mut self, pieces: &[KeyRange]) -> Result<()> {
        loop {
            let keys: u128 = self.leases.iter().map(|lease| lease.range.key_count()).sum();
            let has_all = keys == KeyRange::ALL.key_count();
            let has_new = self.leases.iter().any(|lease| lease.is_new);
            let is_settled = has_all && !has_new;
            let next = is_settled.then(|| division(&self.leases, pieces, limits::MOST_CHANGES)).flatten();
            if is_settled && next.is_none() {
                return Ok(());
            }
            // A report now would cross the grant, which costs more time than waiting for it.
            if !has_all && !has_new && self.fields.seq > 0 {
                let granted = tokio::time::timeout(GRANT_TIMEOUT, self.receive_leases()).await;
                if let Ok(granted) = granted {
                    granted?;
                    continue;
                }
            }
            self.report_once(&encode(&next.unwrap_or_else(|| renewal(&self.leases)))).await?;
        }
    }

    /// Sends a report if the stream takes it at once, else takes in the next message; says which.
    pub(super) async fn send_or_receive(&mut self, lists: &Bytes, in_full: bool) -> Result<Did> {
        let room = self.sender.clone();
        tokio::select! {
            room = room.reserve() => {
                let room = room.map_err(|_| ended())?;
                room.send(self.frame(lists)?);
                Ok(Did::Sent)
            }
            received = self.receive_either(in_full) => received.map(|()| Did::Received),
        }
    }

    async fn receive_either(&mut self, in_full: bool) -> Result<()> {
        if in_full { self.receive_leases().await.map(drop) } else { self.receive().await.map(drop) }
    }

    /// The next report.
    fn frame(&mut self, lists: &Bytes) -> Result<Frame> {
        self.fields.seq += 1;
        self.fields.age_nanos = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Frame::of_report(&self.fields, lists)
    }

    fn note(&mut self, seq: u64) {
        self.fields.heard = self.fields.heard.max(seq);
        self.fields.applied = self.fields.heard;
    }

    async fn next(&mut self) -> Result<Bytes> {
        self.answers.message().await?.ok_or_else(ended)
    }
}

/// What [`Session::send_or_receive`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Did {
    Sent,
    Received,
}

/// The bytes of a report that has nothing but lists.
pub(super) fn encode(lists: &v1::Report) -> Bytes {
    lists.encode_to_vec().into()
}

fn hello(credential: &Credential, namespace: &str, name: &str) -> Frame {
    let hello = v1::Hello {
        namespace: namespace.to_owned(),
        session: write_session(credential.session),
        secret: Bytes::copy_from_slice(&credential.secret.0),
        version: 2,
        number: 1,
        name: name.to_owned(),
        ..v1::Hello::default()
    };
    Frame::of(&v1::OwnerMessage { kind: Some(v1::owner_message::Kind::Hello(hello)) })
}

fn unreadable(error: prost::DecodeError) -> Failure {
    Failure::from(format!("the Manager sent what is no message: {error}"))
}

fn ended() -> Failure {
    Failure::from("the Manager ended a session")
}
