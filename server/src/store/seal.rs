//! The envelope of everything that is stored: a format number, a checksum, and the content.

use centrifuge_net::proto::store::v1 as stored;
use prost::Message;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::error::DecodeError;

pub use centrifuge_net::proto::store::v1::Kind;

/// The format that this version writes, and the latest that it reads.
pub const FORMAT: u32 = 1;

/// Encodes a message and seals it.
#[must_use]
pub fn seal(kind: Kind, content: &impl Message) -> Vec<u8> {
    let content = content.encode_to_vec();
    let checksum = checksum(kind, FORMAT, &content);
    stored::Sealed { format: FORMAT, checksum, content }.encode_to_vec()
}

/// Opens what [`seal`] sealed, after it has checked that it is the same, and of this kind.
pub fn unseal<M: Message + Default>(kind: Kind, bytes: &[u8]) -> Result<M, DecodeError> {
    let sealed = stored::Sealed::decode(bytes)?;
    if checksum(kind, sealed.format, &sealed.content) != sealed.checksum {
        return Err(DecodeError::Checksum);
    }
    if sealed.format != FORMAT {
        return Err(DecodeError::Format(sealed.format));
    }
    Ok(M::decode(sealed.content.as_slice())?)
}

fn checksum(kind: Kind, format: u32, content: &[u8]) -> u64 {
    xxh3_64_with_seed(content, (kind as u64) << 32 | u64::from(format))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed() -> Vec<u8> {
        seal(Kind::Standing, &stored::Standing { term: 7, commits: 9, not_before_micros: None })
    }

    #[test]
    fn what_was_sealed_is_opened() {
        let standing: stored::Standing = unseal(Kind::Standing, &sealed()).expect("sealed by this version");
        assert_eq!((standing.term, standing.commits), (7, 9));
    }

    #[test]
    fn no_flipped_bit_is_accepted() {
        let good = sealed();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let opened: Result<stored::Standing, _> = unseal(Kind::Standing, &bad);
            assert!(opened.is_err(), "bit {bit} was flipped, and nobody saw it");
        }
    }

    #[test]
    fn another_kind_of_content_is_refused() {
        let opened: Result<stored::Snapshot, _> = unseal(Kind::Snapshot, &sealed());
        assert_eq!(opened, Err(DecodeError::Checksum));
    }

    #[test]
    fn a_later_format_is_refused_by_its_number() {
        let content = stored::Standing::default().encode_to_vec();
        let later = stored::Sealed { format: 2, checksum: checksum(Kind::Standing, 2, &content), content };
        let opened: Result<stored::Standing, _> = unseal(Kind::Standing, &later.encode_to_vec());
        assert_eq!(opened, Err(DecodeError::Format(2)));
    }
}
