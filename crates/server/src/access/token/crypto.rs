//! Signatures of tokens, checked by the library that also does TLS. Nothing is signed here.

use std::sync::Once;

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature as ring_signature;

/// Lets the crate that reads tokens use this library, once in a process.
pub(super) fn install() {
    static INSTALLED: Once = Once::new();
    static PROVIDER: CryptoProvider = CryptoProvider {
        signer_factory: |_, _| Err(Error::from(ErrorKind::UnsupportedAlgorithm)),
        verifier_factory: |algorithm, key| {
            is_supported(*algorithm)?;
            Ok(Box::new(RingVerifier { algorithm: *algorithm, key: key.clone() }))
        },
        key_utils: KeyUtils::new_unimplemented(),
    };
    INSTALLED.call_once(|| {
        // Whoever installed one before us did so on purpose.
        let _ = PROVIDER.install_default();
    });
}

/// A key of one algorithm.
struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let wrong = |_| signature::Error::new();
        match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                let parameters = rsa(self.algorithm).ok_or_else(signature::Error::new)?;
                let key = ring_signature::RsaPublicKeyComponents { n, e };
                key.verify(parameters, message, signature).map_err(wrong)
            }
            DecodingKeyKind::SecretOrDer(point) => {
                let algorithm = curve(self.algorithm).ok_or_else(signature::Error::new)?;
                let key = ring_signature::UnparsedPublicKey::new(algorithm, point);
                key.verify(message, signature).map_err(wrong)
            }
        }
    }
}

fn is_supported(algorithm: Algorithm) -> Result<(), Error> {
    match rsa(algorithm).is_some() || curve(algorithm).is_some() {
        true => Ok(()),
        false => Err(Error::from(ErrorKind::UnsupportedAlgorithm)),
    }
}

fn rsa(algorithm: Algorithm) -> Option<&'static ring_signature::RsaParameters> {
    match algorithm {
        Algorithm::RS256 => Some(&ring_signature::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Some(&ring_signature::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Some(&ring_signature::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Some(&ring_signature::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Some(&ring_signature::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Some(&ring_signature::RSA_PSS_2048_8192_SHA512),
        _ => None,
    }
}

fn curve(algorithm: Algorithm) -> Option<&'static dyn ring_signature::VerificationAlgorithm> {
    match algorithm {
        Algorithm::ES256 => Some(&ring_signature::ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Some(&ring_signature::ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Some(&ring_signature::ED25519),
        _ => None,
    }
}
