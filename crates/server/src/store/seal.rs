//! The envelope of everything that is stored: the format that was written, who can read it, a checksum, and the content.

use centrifuge_net::proto::encode;
use centrifuge_net::proto::store::v1 as stored;
use prost::{Message, Name};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::error::DecodeError;

pub use centrifuge_net::proto::store::v1::Kind;

/// The format that this version writes. It reads this one and all before it from [`OLDEST`] on, and of later ones what says that it
/// can.
pub const FORMAT: u32 = if cfg!(feature = "next-version") { 3 } else { 2 };

/// The earliest format whose readers understand what this version writes. See ADR 12 before it is raised.
pub const READABLE_FROM: u32 = 2;

/// The earliest format that is read. Format 1 was never released: it knew nothing of leases that become one.
pub const OLDEST: u32 = 2;

/// Encodes a message and seals it.
#[must_use]
pub fn seal<M: Message + Name>(kind: Kind, content: &M) -> Vec<u8> {
    let readable_from = if READABLE_FROM == FORMAT { 0 } else { READABLE_FROM };
    sealed(kind, FORMAT, readable_from, encode(content))
}

fn sealed(kind: Kind, format: u32, readable_from: u32, content: Vec<u8>) -> Vec<u8> {
    let mut sealed = stored::Sealed { format, checksum: 0, content, readable_from };
    sealed.checksum = checksum(kind, &sealed);
    sealed.encode_to_vec()
}

/// Opens what [`seal`] sealed, after it has checked that it is the same, and of this kind.
pub fn unseal<M: Message + Default>(kind: Kind, bytes: &[u8]) -> Result<M, DecodeError> {
    let sealed = stored::Sealed::decode(bytes)?;
    if sealed.readable_from > u32::from(u16::MAX) || checksum(kind, &sealed) != sealed.checksum {
        return Err(DecodeError::Checksum);
    }
    let known = OLDEST..=FORMAT;
    if !known.contains(&sealed.format) && !known.contains(&sealed.readable_from) {
        return Err(DecodeError::Format(sealed.format));
    }
    Ok(M::decode(sealed.content.as_slice())?)
}

fn checksum(kind: Kind, sealed: &stored::Sealed) -> u64 {
    let seed = u64::from(sealed.readable_from) << 48 | (kind as u64) << 32 | u64::from(sealed.format);
    xxh3_64_with_seed(&sealed.content, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Vec<u8> {
        seal(Kind::Standing, &stored::Standing { term: 7, commits: 9, not_before_micros: None })
    }

    #[test]
    fn what_was_sealed_is_opened() {
        let standing: stored::Standing = unseal(Kind::Standing, &example()).expect("sealed by this version");
        assert_eq!((standing.term, standing.commits), (7, 9));
    }

    #[test]
    fn no_flipped_bit_is_accepted() {
        let good = example();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let opened: Result<stored::Standing, _> = unseal(Kind::Standing, &bad);
            assert!(opened.is_err(), "bit {bit} was flipped, and nobody saw it");
        }
    }

    #[test]
    fn another_kind_of_content_is_refused() {
        let opened: Result<stored::Snapshot, _> = unseal(Kind::Snapshot, &example());
        assert_eq!(opened, Err(DecodeError::Checksum));
    }

    #[test]
    fn a_later_format_is_read_only_if_it_says_that_it_can_be() {
        let standing = stored::Standing { term: 7, ..Default::default() };
        let open = |format, readable_from| {
            let bytes = sealed(Kind::Standing, format, readable_from, standing.encode_to_vec());
            unseal::<stored::Standing>(Kind::Standing, &bytes)
        };
        for format in OLDEST..=FORMAT {
            assert_eq!(open(format, 0), Ok(standing));
        }
        for readable_from in OLDEST..=FORMAT {
            assert_eq!(open(FORMAT + 1, readable_from), Ok(standing));
            assert_eq!(open(u32::MAX, readable_from), Ok(standing));
        }
        assert_eq!(open(FORMAT + 1, 0), Err(DecodeError::Format(FORMAT + 1)));
        assert_eq!(open(FORMAT + 2, FORMAT + 1), Err(DecodeError::Format(FORMAT + 2)));
        assert_eq!(open(0, 0), Err(DecodeError::Format(0)), "no version writes format 0");
        assert_eq!(open(OLDEST - 1, 0), Err(DecodeError::Format(OLDEST - 1)), "it was never released");
    }

    #[test]
    fn who_can_read_it_is_under_the_checksum() {
        let bytes = sealed(Kind::Standing, FORMAT + 2, FORMAT + 1, Vec::new());
        let mut forged = stored::Sealed::decode(bytes.as_slice()).expect("sealed a moment ago");
        for readable_from in [1, 1 << 16 | (FORMAT + 1)] {
            forged.readable_from = readable_from;
            let opened: Result<stored::Standing, _> = unseal(Kind::Standing, &forged.encode_to_vec());
            assert_eq!(opened, Err(DecodeError::Checksum));
        }
    }
}
