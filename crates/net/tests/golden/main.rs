//! Every message of the wire, as version 2 writes it: it is read for ever, and so is a next version with more in it.

mod admin;
mod files;
mod flease;
mod lookup;
mod owner;

use std::fmt::Debug;

use centrifuge_core::id::{Namespace, Nonce, OwnerName, SessionId};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_net::proto::encode;
use prost::{Message, Name};

use self::files::Golden;

#[test]
fn every_version_of_every_message_is_read() {
    let mut golden = Golden::default();
    owner::check(&mut golden);
    lookup::check(&mut golden);
    admin::check(&mut golden);
    flease::check(&mut golden);
    golden.are_all();
}

/// A message of the core that has a form on the wire.
fn check<C, W>(golden: &mut Golden, name: &str, value: &C)
where
    C: TryFrom<W, Error: Debug> + PartialEq + Debug,
    W: Message + Name + Default + for<'a> From<&'a C>,
{
    golden.check(name, value, &encode(&W::from(value)), read::<C, W>);
}

fn read<C, W>(bytes: &[u8]) -> C
where
    C: TryFrom<W, Error: Debug>,
    W: Message + Default,
{
    C::try_from(W::decode(bytes).expect("decodes for ever")).expect("converts for ever")
}

/// A message that exists on the wire only.
fn check_wire<W: Message + Name + Default + PartialEq + Debug>(golden: &mut Golden, name: &str, value: &W) {
    golden.check(name, value, &encode(value), |bytes| W::decode(bytes).expect("decodes for ever"));
}

fn namespace() -> Namespace {
    Namespace::new("presence").expect("a label")
}

fn name(name: &str) -> OwnerName {
    OwnerName::new(name).expect("a name")
}

fn nonce(number: u128) -> Nonce {
    Nonce(number << 100 | number)
}

fn session(number: u128) -> SessionId {
    SessionId(nonce(number))
}

fn range(first: u64, last: u64) -> KeyRange {
    KeyRange::new(Key(first), Key(last)).expect("in order")
}
