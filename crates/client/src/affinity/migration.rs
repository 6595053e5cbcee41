//! Moving state between Owners in affinity mode.

use centrifuge_core::id::{Generation, Nonce, SessionId, Term, Url};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::owner::TransferId;

use crate::owner::{Import, ImportError, ImportOffer, MigrationOut, MigrationVoid};

/// A range that should move to its next owner with its state; see [`MigrationOut`].
#[derive(Debug)]
pub struct AffinityMigration {
    out: MigrationOut,
}

impl AffinityMigration {
    pub(super) fn new(out: MigrationOut) -> AffinityMigration {
        AffinityMigration { out }
    }

    /// The keys that move.
    #[must_use]
    pub fn range(&self) -> KeyRange {
        self.out.range()
    }

    /// Where the next owner is reached, as its application said.
    #[must_use]
    pub fn url(&self) -> &Url {
        self.out.url()
    }

    /// The very process that should get the state.
    #[must_use]
    pub fn destination(&self) -> SessionId {
        self.out.destination()
    }

    /// What the destination must be told with the state.
    #[must_use]
    pub fn offer(&self) -> AffinityOffer {
        AffinityOffer(self.out.offer())
    }

    /// Refuses new operations on the range from now on, and waits until those that hold a guard have ended.
    pub async fn freeze(&mut self) -> Result<(), MigrationVoid> {
        self.out.freeze().await
    }
}

/// What a source tells a destination about the state it sends. It travels as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AffinityOffer(pub(super) ImportOffer);

impl AffinityOffer {
    /// How many bytes it has.
    pub const LEN: usize = 56;

    /// The keys.
    #[must_use]
    pub fn range(&self) -> KeyRange {
        self.0.range
    }

    /// The bytes to send with the state.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; AffinityOffer::LEN] {
        let ImportOffer { range, source, from, transfer, term } = self.0;
        let mut bytes = [0; AffinityOffer::LEN];
        let numbers = [range.first().0, range.last().0, source.0, transfer.0, term.0];
        let (words, session) = bytes.split_at_mut(40);
        words
            .chunks_exact_mut(8)
            .zip(numbers)
            .for_each(|(at, number)| at.copy_from_slice(&number.to_be_bytes()));
        session.copy_from_slice(&from.0.0.to_be_bytes());
        bytes
    }

    /// What the bytes say, if they are those of an offer.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<AffinityOffer> {
        let bytes: &[u8; AffinityOffer::LEN] = bytes.try_into().ok()?;
        let number = |place: usize| {
            let word: [u8; 8] = bytes[place * 8..][..8].try_into().expect("eight bytes");
            u64::from_be_bytes(word)
        };
        let session: [u8; 16] = bytes[40..].try_into().expect("sixteen bytes");
        Some(AffinityOffer(ImportOffer {
            range: KeyRange::new(Key(number(0)), Key(number(1)))?,
            source: Generation(number(2)),
            from: SessionId(Nonce(u128::from_be_bytes(session))),
            transfer: TransferId(number(3)),
            term: Term(number(4)),
        }))
    }
}

/// A copy that is arriving. Say [`AffinityImport::complete`] when all of it is here.
#[derive(Debug)]
pub struct AffinityImport(pub(super) Import);

impl AffinityImport {
    /// The whole copy is here. Answers with the session to tell the source: only then may the source release.
    pub async fn complete(self) -> Result<SessionId, ImportError> {
        self.0.complete().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_arrives_as_it_was_sent() {
        let offer = AffinityOffer(ImportOffer {
            range: KeyRange::new(Key(7), Key(u64::MAX)).expect("in order"),
            source: Generation(5),
            from: SessionId(Nonce(1 << 100)),
            transfer: TransferId(3),
            term: Term(9),
        });
        assert_eq!(AffinityOffer::from_bytes(&offer.to_bytes()), Some(offer));
        assert_eq!(AffinityOffer::from_bytes(&offer.to_bytes()[1..]), None);
        let mut wrong = offer.to_bytes();
        wrong[..8].copy_from_slice(&u64::MAX.to_be_bytes());
        wrong[8..16].copy_from_slice(&1_u64.to_be_bytes());
        assert_eq!(AffinityOffer::from_bytes(&wrong), None, "its keys are not in order");
    }
}
