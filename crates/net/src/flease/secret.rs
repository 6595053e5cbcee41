//! The secret that peers share, and the codes by which they know each other's datagrams.

use std::fmt;

use ring::hmac;

/// The fewest bytes of a secret.
const SHORTEST: usize = 16;
/// What makes the key of the codes from the secret: whatever else the secret is used for has other keys.
const PURPOSE: &[u8] = b"centrifuge flease v1";

/// A secret that all peers share and nobody else knows. Whoever has it can speak as any of them.
#[derive(Clone)]
pub struct Secret {
    key: hmac::Key,
}

/// Why a secret is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// It could be guessed.
    #[error(
        "the secret has {len} bytes and needs at least 16: make one with `head -c 32 /dev/urandom | base64` and give it to every peer"
    )]
    TooShort {
        /// The bytes it has.
        len: usize,
    },
}

impl Secret {
    /// The bytes of a code.
    pub(super) const CODE_LEN: usize = 32;

    /// A secret of at least 16 bytes; they should be random.
    pub fn new(bytes: &[u8]) -> Result<Secret, SecretError> {
        derive_key(bytes, PURPOSE).map(|key| Secret { key })
    }

    /// The code of some bytes.
    pub(super) fn code(&self, bytes: &[u8]) -> hmac::Tag {
        hmac::sign(&self.key, bytes)
    }

    /// Whether this is the code of these bytes. Takes as long for a code that is almost right as for any other.
    pub(super) fn fits(&self, code: &[u8], bytes: &[u8]) -> bool {
        hmac::verify(&self.key, bytes, code).is_ok()
    }
}

/// The key that a secret of at least 16 bytes gives for a purpose. Keys for different purposes tell nothing of each other.
pub(crate) fn derive_key(secret: &[u8], purpose: &[u8]) -> Result<hmac::Key, SecretError> {
    match secret.len() {
        len if len < SHORTEST => Err(SecretError::TooShort { len }),
        _ => {
            let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
            let key = hmac::sign(&secret, purpose);
            Ok(hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()))
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
