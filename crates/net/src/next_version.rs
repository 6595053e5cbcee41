//! A made-up next version of all that is sent and stored: every message, at any depth, has fields that this version does not know.
//!
//! It is compiled only with the feature `next-version`, for tests that mix it with the version that exists (ADR 12).

use std::marker::PhantomData;

use prost::bytes::{Buf, BufMut};
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};
use prost::{Message, Name};
use tonic::Status;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic_prost::ProstDecoder;

/// Which fields of which messages are messages, and of which type.
pub type Messages = &'static [(&'static str, u32, &'static str)];

static MESSAGES: Messages = include!(concat!(env!("OUT_DIR"), "/messages.rs"));

/// A field before all that are known.
const FIRST: u32 = 1_000;
/// A field after all that are known.
const LAST: u32 = 1_001;
/// What is in it.
const WORDS: &[u8] = b"next";

/// The bytes of a message, with more in it than its schema says.
#[must_use]
pub fn encode<M: Message + Name>(message: &M) -> Vec<u8> {
    encode_among(MESSAGES, message)
}

/// The same for a message of other schemas, with the table of theirs.
#[must_use]
pub fn encode_among<M: Message + Name>(messages: Messages, message: &M) -> Vec<u8> {
    extend(messages, &M::full_name(), &message.encode_to_vec())
}

/// The bytes of a message of a type, with more in them than the schema of the type says.
fn extend(messages: Messages, name: &str, mut bytes: &[u8]) -> Vec<u8> {
    let mut extended = Vec::with_capacity(bytes.len() * 2);
    encode_key(FIRST, WireType::Varint, &mut extended);
    encode_varint(2, &mut extended);
    while bytes.has_remaining() {
        let (number, wire) = decode_key(&mut bytes).expect("encoded a moment ago");
        encode_key(number, wire, &mut extended);
        match wire {
            WireType::Varint => {
                encode_varint(decode_varint(&mut bytes).expect("encoded a moment ago"), &mut extended);
            }
            WireType::ThirtyTwoBit => extended.put(bytes.copy_to_bytes(4)),
            WireType::SixtyFourBit => extended.put(bytes.copy_to_bytes(8)),
            _ => {
                let length = decode_varint(&mut bytes).expect("encoded a moment ago");
                let content = bytes.copy_to_bytes(usize::try_from(length).expect("it is in memory"));
                put_delimited(&inside(messages, name, number, &content), &mut extended);
            }
        }
    }
    encode_key(LAST, WireType::LengthDelimited, &mut extended);
    put_delimited(WORDS, &mut extended);
    extended
}

fn inside(messages: Messages, name: &str, number: u32, content: &[u8]) -> Vec<u8> {
    let inner = messages.iter().find(|(outer, field, _)| *field == number && *outer == name);
    inner.map_or_else(|| content.to_vec(), |(_, _, inner)| extend(messages, inner, content))
}

fn put_delimited(content: &[u8], to: &mut Vec<u8>) {
    encode_varint(content.len() as u64, to);
    to.extend_from_slice(content);
}

/// What the generated services write and read messages with: they write the next version.
#[derive(Debug)]
pub struct NextCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for NextCodec<T, U> {
    fn default() -> NextCodec<T, U> {
        NextCodec(PhantomData)
    }
}

impl<T, U> Codec for NextCodec<T, U>
where
    T: Message + Name + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = NextEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> NextEncoder<T> {
        NextEncoder(PhantomData)
    }

    fn decoder(&mut self) -> ProstDecoder<U> {
        ProstDecoder::default()
    }
}

/// Writes messages of the next version.
#[derive(Debug)]
pub struct NextEncoder<T>(PhantomData<T>);

impl<T: Message + Name> Encoder for NextEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&encode(&item));
        Ok(())
    }
}
