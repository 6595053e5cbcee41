//! The keys by which tokens are signed: a JWK set (RFC 7517).

use std::path::Path;
use std::sync::Arc;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use serde::Deserialize;
use serde_json::Value;

use crate::access::FileError;

/// The smallest modulus that counts, in bytes.
const MIN_MODULUS: usize = 256;

/// A key that signs tokens.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) id: Option<String>,
    /// By which of the allowed algorithms it may sign.
    pub(super) algorithms: Vec<Algorithm>,
    pub(super) key: DecodingKey,
    /// What the file says of it: another key under the same name is another key.
    pub(super) text: Arc<str>,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

/// The keys of a file that may sign by one of the algorithms. At least one, and no two with the same name.
pub(super) fn parse(file: &Path, text: &str, allowed: &[Algorithm]) -> Result<Vec<Key>, FileError> {
    let refuse = |line, problem| FileError { file: file.to_owned(), line, problem };
    let set: KeySet = serde_json::from_str(text).map_err(|error| {
        refuse(Some(error.line()), format!("is no JWK set, which looks like {{\"keys\": [...]}}: {error}"))
    })?;
    let mut keys: Vec<Key> = Vec::new();
    for (place, value) in set.keys.iter().enumerate() {
        let number = place + 1;
        let Some(key) =
            key(value, allowed).map_err(|why| refuse(None, format!("its key number {number} {why}")))?
        else {
            continue;
        };
        if keys.iter().any(|known| known.id == key.id) {
            let problem = format!("its key number {number} has the same `kid` as another, or both have none");
            return Err(refuse(None, problem));
        }
        keys.push(key);
    }
    if keys.is_empty() {
        let problem = format!("has no key for any of the allowed algorithms ({})", super::names(allowed));
        return Err(refuse(None, problem));
    }
    Ok(keys)
}

/// The key, if it is of use. What was made for something else is none of our business, as the RFC has it.
fn key(value: &Value, allowed: &[Algorithm]) -> Result<Option<Key>, String> {
    let kind = value.get("kty").and_then(Value::as_str).ok_or("has no `kty`")?;
    match kind {
        "RSA" | "EC" | "OKP" => {}
        // Whoever can check such a token can make one.
        "oct" => {
            return Err("is symmetric (kty `oct`): tokens must be signed with RSA, EC or Ed25519".to_owned());
        }
        _ => return Ok(None),
    }
    if value.get("d").is_some() {
        return Err("is a private key: it has to stay with the issuer; give its public part".to_owned());
    }
    let jwk: Jwk =
        serde_json::from_value(value.clone()).map_err(|error| format!("cannot be read: {error}"))?;
    if jwk.common.public_key_use.as_ref().is_some_and(|purpose| *purpose != PublicKeyUse::Signature) {
        return Ok(None);
    }
    let fits: &[Algorithm] = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => &[
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ],
        AlgorithmParameters::EllipticCurve(curve) if curve.curve == EllipticCurve::P256 => {
            &[Algorithm::ES256]
        }
        AlgorithmParameters::EllipticCurve(curve) if curve.curve == EllipticCurve::P384 => {
            &[Algorithm::ES384]
        }
        AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
            &[Algorithm::EdDSA]
        }
        AlgorithmParameters::Other(_) => {
            return Err(format!("cannot be read: it lacks what a key with the `kty` {kind} has"));
        }
        _ => &[],
    };
    let is_its = |algorithm: &Algorithm| {
        jwk.common
            .key_algorithm
            .is_none_or(|only| Algorithm::try_from(only).is_ok_and(|only| only == *algorithm))
    };
    let algorithms: Vec<Algorithm> =
        fits.iter().filter(|algorithm| allowed.contains(algorithm) && is_its(algorithm)).copied().collect();
    if algorithms.is_empty() {
        return Ok(None);
    }
    let key = DecodingKey::from_jwk(&jwk).map_err(|error| format!("cannot be used: {error}"))?;
    if matches!(key.kind(), DecodingKeyKind::RsaModulusExponent { n, .. } if n.len() < MIN_MODULUS) {
        return Err("is too short: use RSA of at least 2048 bits".to_owned());
    }
    Ok(Some(Key { id: jwk.common.key_id, algorithms, key, text: value.to_string().into() }))
}
