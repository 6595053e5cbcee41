//! What one server sends another to move entries: a short header and the entries, and back a word.

use std::time::Duration;

use centrifuge_core::id::{Generation, Nonce, SessionId, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::owner::TransferId;

use crate::owner::ImportOffer;

/// The first byte: the version of what follows.
const VERSION: u8 = 1;
/// Says that an entry has no end of life.
const FOR_EVER: u64 = u64::MAX;
/// The first byte of an answer that the part is here.
const TAKEN: u8 = 1;
/// The first byte of an answer that it is not.
const REFUSED: u8 = 0;

/// One part of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) offer: ImportOffer,
    /// Which part of its transfer it is, from 0.
    pub(super) number: u32,
    /// Whether the range is frozen and nothing follows.
    pub(super) is_last: bool,
    /// Entries as the codec wrote them, with what is left of their lives.
    pub(super) entries: Vec<(Option<Duration>, Vec<u8>)>,
}

impl Part {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, u8::from(self.is_last)];
        let ImportOffer { range, source, from, transfer, term } = self.offer;
        bytes.extend(from.0.0.to_le_bytes());
        for number in [transfer.0, range.first().0, range.last().0, source.0, term.0] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.number.to_le_bytes());
        for (left, entry) in &self.entries {
            let left = left.map_or(FOR_EVER, |left| u64::try_from(left.as_millis()).unwrap_or(FOR_EVER));
            bytes.extend(left.to_le_bytes());
            bytes.extend((entry.len() as u64).to_le_bytes());
            bytes.extend(entry);
        }
        bytes
    }

    /// `None` if the bytes are no such part. Nothing is allocated that is not there.
    pub(super) fn read(mut bytes: &[u8]) -> Option<Part> {
        let [VERSION, is_last] = take(&mut bytes)? else { return None };
        let from = SessionId(Nonce(u128::from_le_bytes(take(&mut bytes)?)));
        let transfer = TransferId(number(&mut bytes)?);
        let range = KeyRange::new(Key(number(&mut bytes)?), Key(number(&mut bytes)?))?;
        let source = Generation(number(&mut bytes)?);
        let term = Term(number(&mut bytes)?);
        let part = u32::from_le_bytes(take(&mut bytes)?);
        let mut entries = Vec::new();
        while !bytes.is_empty() {
            let left = number(&mut bytes)?;
            let left = (left != FOR_EVER).then(|| Duration::from_millis(left));
            let length = usize::try_from(number(&mut bytes)?).ok()?;
            let (entry, rest) = bytes.split_at_checked(length)?;
            entries.push((left, entry.to_vec()));
            bytes = rest;
        }
        let offer = ImportOffer { range, source, from, transfer, term };
        Some(Part { offer, number: part, is_last: is_last != 0, entries })
    }
}

/// The destination's word about a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is here, at this process.
    Taken(SessionId),
    /// It is not, and why.
    Refused(String),
}

impl Answer {
    pub(super) fn write(&self) -> Vec<u8> {
        match self {
            Answer::Taken(session) => {
                let mut bytes = vec![TAKEN];
                bytes.extend(session.0.0.to_le_bytes());
                bytes
            }
            Answer::Refused(why) => {
                let mut bytes = vec![REFUSED];
                bytes.extend(why.as_bytes());
                bytes
            }
        }
    }

    pub(super) fn read(mut bytes: &[u8]) -> Option<Answer> {
        match take(&mut bytes)? {
            [TAKEN] => Some(Answer::Taken(SessionId(Nonce(u128::from_le_bytes(bytes.try_into().ok()?))))),
            [REFUSED] => Some(Answer::Refused(String::from_utf8_lossy(bytes).into_owned())),
            _ => None,
        }
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*taken)
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(take(bytes)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part() -> Part {
        let offer = ImportOffer {
            range: KeyRange::new(Key(5), Key(9)).expect("in order"),
            source: Generation(7),
            from: SessionId(Nonce(1 << 100)),
            transfer: TransferId(3),
            term: Term(4),
        };
        let entries = vec![(None, b"one".to_vec()), (Some(Duration::from_secs(4)), Vec::new())];
        Part { offer, number: 2, is_last: true, entries }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(Part::read(&part().write()), Some(part()));
        for answer in [Answer::Taken(SessionId(Nonce(9))), Answer::Refused("no".to_owned())] {
            assert_eq!(Answer::read(&answer.write()), Some(answer));
        }
    }

    #[test]
    fn a_part_that_is_cut_short_is_none() {
        let whole = part().write();
        let whole_entries = [whole.len(), whole.len() - 16, whole.len() - 16 - 19];
        for length in (0..whole.len()).filter(|length| !whole_entries.contains(length)) {
            assert_eq!(Part::read(&whole[..length]), None, "{length}");
        }
    }

    proptest! {
        #[test]
        fn anything_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (Part::read(&bytes), Answer::read(&bytes));
        }
    }
}
