//! Identities that signed tokens prove (JWT, RFC 7519).

mod crypto;
mod keys;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, Header, Validation, decode, decode_header};
use serde::Deserialize;

use super::FileError;
use super::identity::Identity;
use super::pattern::TOKEN_PREFIX;
use keys::Key;

/// By how much the clocks of an issuer and of a Manager may differ.
const LEEWAY: Duration = Duration::from_secs(30);
/// The longest token that is read.
const MAX_TOKEN_BYTES: usize = 8 * 1024;
/// Algorithms that can be allowed. None is symmetric: whoever can check such a token could make one.
const ALGORITHMS: [(Algorithm, &str); 9] = [
    (Algorithm::ES256, "ES256"),
    (Algorithm::ES384, "ES384"),
    (Algorithm::EdDSA, "EdDSA"),
    (Algorithm::RS256, "RS256"),
    (Algorithm::RS384, "RS384"),
    (Algorithm::RS512, "RS512"),
    (Algorithm::PS256, "PS256"),
    (Algorithm::PS384, "PS384"),
    (Algorithm::PS512, "PS512"),
];

/// An algorithm by which tokens may be signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenAlgorithm(Algorithm);

impl TokenAlgorithm {
    /// Those that are allowed if nothing else is said.
    pub const USUAL: [TokenAlgorithm; 3] = [
        TokenAlgorithm(Algorithm::ES256),
        TokenAlgorithm(Algorithm::EdDSA),
        TokenAlgorithm(Algorithm::RS256),
    ];

    /// The algorithm with this name; an error says which there are.
    pub fn new(name: &str) -> Result<TokenAlgorithm, String> {
        let known = ALGORITHMS.iter().find(|(_, known)| *known == name);
        known.map(|(algorithm, _)| TokenAlgorithm(*algorithm)).ok_or_else(|| {
            let all = ALGORITHMS.map(|(_, name)| name).join(", ");
            format!("of {all}; `none` and symmetric ones are never allowed")
        })
    }
}

/// Which tokens count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSettings {
    /// The file with the issuer's public keys.
    pub keys: PathBuf,
    /// Who has to have made them.
    pub issuer: String,
    /// Whom they have to be meant for.
    pub audience: String,
    /// How they have to be signed.
    pub algorithms: Vec<TokenAlgorithm>,
}

/// Which tokens count, and the keys by which they are signed.
#[derive(Debug)]
pub(crate) struct Tokens {
    settings: TokenSettings,
    keys: Vec<Key>,
}

/// What a token says.
#[derive(Deserialize)]
struct Claims {
    sub: Option<String>,
    exp: Option<f64>,
}

impl Tokens {
    /// Takes the keys from the text of their file.
    pub(crate) fn parse(settings: TokenSettings, text: &str) -> Result<Tokens, FileError> {
        crypto::install();
        let allowed: Vec<Algorithm> = settings.algorithms.iter().map(|allowed| allowed.0).collect();
        let keys = keys::parse(&settings.keys, text, &allowed)?;
        Ok(Tokens { settings, keys })
    }

    /// Which tokens count, whatever the keys.
    pub(crate) fn settings(&self) -> &TokenSettings {
        &self.settings
    }

    /// Whether a key is one of these.
    pub(crate) fn has(&self, key: &Arc<str>) -> bool {
        self.keys.iter().any(|known| known.text == *key)
    }

    /// Whom a token proves; an error says what is wrong with it, and never what is in it.
    pub(crate) fn verify(&self, token: &str) -> Result<Identity, String> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(format!("it is longer than {MAX_TOKEN_BYTES} bytes"));
        }
        let header =
            decode_header(token).map_err(|error| format!("its header cannot be used: {}", plain(&error)))?;
        if header.crit.is_some() {
            return Err("its header demands what this Manager does not know (`crit`)".to_owned());
        }
        let key = self.key(&header)?;
        let mut validation = Validation::new(header.alg);
        validation.leeway = LEEWAY.as_secs();
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.settings.issuer]);
        validation.set_audience(&[&self.settings.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        let claims =
            decode::<Claims>(token, &key.key, &validation).map_err(|error| self.words(&error))?.claims;
        let subject = claims.sub.filter(|subject| subject.bytes().all(|byte| byte.is_ascii_graphic()));
        let subject = subject.filter(|subject| !subject.is_empty());
        let subject =
            subject.ok_or("its `sub` is not a name of printable ASCII characters without spaces")?;
        let expires_at = claims.exp.and_then(|exp| Duration::try_from_secs_f64(exp).ok());
        let expires_at = expires_at.and_then(|exp| SystemTime::UNIX_EPOCH.checked_add(exp + LEEWAY));
        let expires_at = expires_at.ok_or("its `exp` is no time")?;
        Ok(Identity::of_token(format!("{TOKEN_PREFIX}{subject}"), expires_at, Arc::clone(&key.text)))
    }

    /// The key that a header names, which has to be one for its algorithm.
    fn key(&self, header: &Header) -> Result<&Key, String> {
        let key = match (&header.kid, &self.keys[..]) {
            (Some(id), keys) => keys.iter().find(|key| key.id.as_ref() == Some(id)).ok_or_else(|| {
                let id: String = id.escape_debug().take(64).collect();
                format!("its key `{id}` is not among those of its issuer")
            })?,
            (None, [only]) => only,
            (None, _) => return Err("it does not say by which key it is signed (`kid`)".to_owned()),
        };
        match key.algorithms.contains(&header.alg) {
            true => Ok(key),
            false => Err(format!(
                "it is signed by {:?}, and its key may only be used with {}",
                header.alg,
                names(&key.algorithms)
            )),
        }
    }

    fn words(&self, error: &Error) -> String {
        let TokenSettings { issuer, audience, .. } = &self.settings;
        match error.kind() {
            ErrorKind::InvalidSignature => "its signature is wrong".to_owned(),
            ErrorKind::ExpiredSignature => "it has expired: get a new one".to_owned(),
            ErrorKind::ImmatureSignature => "it is not valid yet: check the clocks".to_owned(),
            ErrorKind::InvalidAudience => {
                format!("it is meant for others: its audience has to be {audience}")
            }
            ErrorKind::InvalidIssuer => format!("it is somebody else's: its issuer has to be {issuer}"),
            ErrorKind::MissingRequiredClaim(claim) => format!("it has no usable `{claim}`"),
            _ => format!("it cannot be used: {}", plain(error)),
        }
    }
}

/// What an error says, without what a terminal would act on.
fn plain(error: &Error) -> String {
    error.to_string().escape_debug().take(200).collect()
}

/// The names of algorithms, as a list.
fn names(algorithms: &[Algorithm]) -> String {
    let names = ALGORITHMS.iter().filter(|(algorithm, _)| algorithms.contains(algorithm));
    names.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
