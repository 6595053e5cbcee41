//! Somebody who signs tokens (JWT), for tests.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

/// Who makes the tokens of an issuer, and by which key.
#[derive(Debug)]
pub struct Issuer {
    kid: String,
    key: SigningKey,
}

#[derive(Debug)]
enum SigningKey {
    Es256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Issuer {
    /// A new key on the curve that most issuers use.
    #[must_use]
    pub fn new(kid: &str) -> Issuer {
        let random = SystemRandom::new();
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random);
        Issuer { kid: kid.to_owned(), key: SigningKey::Es256(key.expect("a key")) }
    }

    /// A new key on the other curve.
    #[must_use]
    pub fn ed25519(kid: &str) -> Issuer {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        let key = Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("a key");
        Issuer { kid: kid.to_owned(), key: SigningKey::Ed25519(key) }
    }

    /// The algorithm by which it signs.
    #[must_use]
    pub fn algorithm(&self) -> &'static str {
        match self.key {
            SigningKey::Es256(_) => "ES256",
            SigningKey::Ed25519(_) => "EdDSA",
        }
    }

    /// The public part of the key, as a JWK set has it.
    #[must_use]
    pub fn jwk(&self) -> Value {
        match &self.key {
            SigningKey::Es256(key) => {
                // A byte that says that both coordinates follow, and these.
                let point = &key.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                json!({"kty": "EC", "crv": "P-256", "kid": self.kid, "x": encode(x), "y": encode(y)})
            }
            SigningKey::Ed25519(key) => {
                let x = encode(key.public_key().as_ref());
                json!({"kty": "OKP", "crv": "Ed25519", "kid": self.kid, "x": x})
            }
        }
    }

    /// The JWK set of several issuers.
    #[must_use]
    pub fn key_set(issuers: &[&Issuer]) -> String {
        json!({"keys": issuers.iter().map(|issuer| issuer.jwk()).collect::<Vec<_>>()}).to_string()
    }

    /// A token that says this.
    #[must_use]
    pub fn sign(&self, claims: &Value) -> String {
        self.sign_under(&json!({"alg": self.algorithm(), "kid": self.kid}), claims)
    }

    /// A token that says this, whatever its header says.
    #[must_use]
    pub fn sign_under(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let signature = match &self.key {
            SigningKey::Es256(key) => {
                key.sign(&SystemRandom::new(), message.as_bytes()).expect("signed").as_ref().to_vec()
            }
            SigningKey::Ed25519(key) => key.sign(message.as_bytes()).as_ref().to_vec(),
        };
        format!("{message}.{}", encode(signature))
    }
}

/// Bytes as tokens have them.
pub fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
