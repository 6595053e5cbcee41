//! The secrets that peers or Managers share: one signs, up to two are accepted, and they change while a process runs.
//!
//! A rotation has three steps, each done everywhere before the next: the new secret becomes the second, then the first,
//! and then the old one goes. Processes that are one step apart understand each other.

mod file;
mod ring;

pub use file::{KeyFile, KeyFileError};
pub use ring::{ChangeError, KeyRing};

use std::fmt;

use ::ring::hmac;

/// The fewest bytes of a secret.
const MIN_LEN: usize = 16;
/// How many secrets are accepted at once: the old and the new one of a rotation.
const MAX_SECRETS: usize = 2;
/// What makes the identity of a secret from it. Two secrets are compared by that, so that their bytes need not be kept.
const IDENTITY: &[u8] = b"centrifuge secret identity v1";

/// What a key is for. Keys of one secret for different purposes tell nothing of each other: no datagram can be taken
/// for a warrant, and no warrant for a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The codes of datagrams between Flease peers.
    Datagrams,
    /// The codes of the warrants that Owners keep.
    Warrants,
}

impl Purpose {
    fn label(self) -> &'static [u8] {
        match self {
            Purpose::Datagrams => b"centrifuge flease v1",
            Purpose::Warrants => b"centrifuge warrants v1",
        }
    }
}

/// Why secrets are refused. It never says what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// There is none.
    #[error(
        "there is no secret, only blank lines and comments, which begin with #: make one with \
         `head -c 32 /dev/urandom | base64` and give it to every peer"
    )]
    Missing,
    /// One could be guessed.
    #[error(
        "line {line}: the secret has {len} bytes and needs at least 16: make one with \
         `head -c 32 /dev/urandom | base64` and give it to every peer"
    )]
    TooShort {
        /// Its line, from 1.
        line: usize,
        /// The bytes it has.
        len: usize,
    },
    /// One too many.
    #[error(
        "line {line}: this is the third secret, and at most two are accepted: remove those that no peer uses any more"
    )]
    TooMany {
        /// Its line, from 1.
        line: usize,
    },
    /// One is there twice.
    #[error("line {line}: this is the secret of line {first} again: remove one of the two lines")]
    Repeated {
        /// Its line, from 1.
        line: usize,
        /// The line where it was first.
        first: usize,
    },
}

/// The keys that one secret gives.
#[derive(Clone)]
struct Secret {
    datagrams: hmac::Key,
    warrants: hmac::Key,
    identity: [u8; 32],
}

impl Secret {
    fn new(bytes: &[u8]) -> Secret {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, bytes);
        let derive = |purpose: Purpose| {
            let key = hmac::sign(&secret, purpose.label());
            hmac::Key::new(hmac::HMAC_SHA256, key.as_ref())
        };
        let mut identity = [0; 32];
        identity.copy_from_slice(hmac::sign(&secret, IDENTITY).as_ref());
        Secret { datagrams: derive(Purpose::Datagrams), warrants: derive(Purpose::Warrants), identity }
    }

    fn key(&self, purpose: Purpose) -> &hmac::Key {
        match purpose {
            Purpose::Datagrams => &self.datagrams,
            Purpose::Warrants => &self.warrants,
        }
    }
}

/// One or two secrets that all peers share and nobody else knows. The first signs, and all are accepted. Whoever has
/// one of them can speak as any peer.
#[derive(Clone)]
pub struct Secrets(Vec<Secret>);

impl Secrets {
    /// The bytes of a code.
    pub(crate) const CODE_LEN: usize = 32;

    /// Reads secrets of at least 16 bytes; they should be random. Each has a line. White space around it, blank lines,
    /// and lines that begin with `#` do not count. Bytes that are not text are one secret, whatever is in them.
    pub fn parse(bytes: &[u8]) -> Result<Secrets, SecretError> {
        let mut found: Vec<(usize, Secret)> = Vec::new();
        for (line, text) in secret_lines(bytes) {
            if text.len() < MIN_LEN {
                return Err(SecretError::TooShort { line, len: text.len() });
            }
            let secret = Secret::new(text);
            if let Some((first, _)) = found.iter().find(|(_, known)| known.identity == secret.identity) {
                return Err(SecretError::Repeated { line, first: *first });
            }
            if found.len() == MAX_SECRETS {
                return Err(SecretError::TooMany { line });
            }
            found.push((line, secret));
        }
        if found.is_empty() {
            return Err(SecretError::Missing);
        }
        Ok(Secrets(found.into_iter().map(|(_, secret)| secret).collect()))
    }

    /// How many are accepted.
    #[must_use]
    pub fn accepted(&self) -> usize {
        self.0.len()
    }

    /// The code of some bytes.
    pub(crate) fn code(&self, purpose: Purpose, bytes: &[u8]) -> hmac::Tag {
        // There is always a first.
        hmac::sign(self.0[0].key(purpose), bytes)
    }

    /// Whether this is the code of these bytes by a secret that is accepted. Takes as long for a code that is almost
    /// right as for any other that is wrong.
    pub(crate) fn fits(&self, purpose: Purpose, code: &[u8], bytes: &[u8]) -> bool {
        self.0.iter().any(|secret| hmac::verify(secret.key(purpose), bytes, code).is_ok())
    }

    /// Whether these accept what others sign.
    fn accept_signer_of(&self, others: &Secrets) -> bool {
        self.0.iter().any(|secret| secret.identity == others.0[0].identity)
    }
}

/// The secrets in a text, with their lines.
fn secret_lines(bytes: &[u8]) -> Vec<(usize, &[u8])> {
    let is_binary =
        |text: &str| text.chars().any(|letter| letter.is_control() && !letter.is_ascii_whitespace());
    match std::str::from_utf8(bytes) {
        Ok(text) if !is_binary(text) => {
            let lines = (1..).zip(text.lines().map(|line| line.as_bytes().trim_ascii()));
            lines.filter(|(_, line)| !line.is_empty() && !line.starts_with(b"#")).collect()
        }
        _ => vec![(1, bytes.trim_ascii())],
    }
}

impl PartialEq for Secrets {
    fn eq(&self, other: &Secrets) -> bool {
        let identities =
            |secrets: &Secrets| secrets.0.iter().map(|secret| secret.identity).collect::<Vec<_>>();
        identities(self) == identities(other)
    }
}

impl Eq for Secrets {}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "the old secret of these tests";
    const NEW: &str = "the new secret of these tests";

    fn parse(text: &str) -> Result<Secrets, SecretError> {
        Secrets::parse(text.as_bytes())
    }

    #[test]
    fn the_first_line_signs_and_both_are_accepted() {
        let (old, new) = (parse(OLD).expect("one"), parse(NEW).expect("one"));
        let both = parse(&format!("# since May\n\n  {NEW}\t\r\n#\n{OLD}\n")).expect("two");
        assert_eq!((both.accepted(), old.accepted()), (2, 1));
        for purpose in [Purpose::Datagrams, Purpose::Warrants] {
            let fits = |by: &Secrets, to: &Secrets| to.fits(purpose, by.code(purpose, b"x").as_ref(), b"x");
            assert!(fits(&old, &both) && fits(&new, &both) && fits(&both, &new) && fits(&both, &both));
            assert!(!fits(&both, &old) && !fits(&old, &new));
        }
        let warrant = both.code(Purpose::Warrants, b"x");
        assert!(!both.fits(Purpose::Datagrams, warrant.as_ref(), b"x"), "each purpose has its own keys");
    }

    #[test]
    fn one_line_means_what_it_always_did() {
        let plain = parse(OLD).expect("one");
        for text in [format!("{OLD}\n"), format!("\n \t{OLD}\r\n\n"), format!("{OLD} ")] {
            assert!(parse(&text) == Ok(plain.clone()), "{text:?}");
        }
        let key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, OLD.as_bytes()), b"centrifuge flease v1");
        let code = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()), b"x");
        assert!(
            plain.fits(Purpose::Datagrams, code.as_ref(), b"x"),
            "peers of earlier versions are understood"
        );
    }

    #[test]
    fn bytes_that_are_no_text_are_one_secret() {
        let binary = b"\n0123456789\xff\n0123456789\n#\n0123456789 ";
        let trimmed = Secrets::parse(binary.trim_ascii()).expect("one");
        assert_eq!((Secrets::parse(binary).as_ref(), trimmed.accepted()), (Ok(&trimmed), 1));
        assert_eq!(Secrets::parse(b"0123456789\0\n0123456789").expect("one").accepted(), 1);
        assert_eq!(Secrets::parse(b"\xff\n"), Err(SecretError::TooShort { line: 1, len: 1 }));
    }

    #[test]
    fn what_is_refused_names_the_line_and_no_secret() {
        let refusals = [
            (String::new(), SecretError::Missing, "/dev/urandom"),
            (format!("\n# {OLD}\n"), SecretError::Missing, "begin with #"),
            ("short".to_owned(), SecretError::TooShort { line: 1, len: 5 }, "line 1: the secret has 5 bytes"),
            (format!("{OLD}\n\nshort\n"), SecretError::TooShort { line: 3, len: 5 }, "line 3"),
            (format!("{OLD}\n{NEW}\n{OLD}2"), SecretError::TooMany { line: 3 }, "at most two"),
            (format!("#\n{OLD}\n{OLD} \n"), SecretError::Repeated { line: 3, first: 2 }, "line 2 again"),
        ];
        for (text, expected, words) in refusals {
            let error = parse(&text).expect_err(words);
            assert_eq!(error, expected);
            assert!(error.to_string().contains(words), "{words:?} in {error}");
            assert!(!error.to_string().contains(OLD) && !error.to_string().contains("short"), "{error}");
        }
        assert_eq!(format!("{:?}", parse(OLD).expect("one")), "Secrets(..)", "it is never printed");
    }
}
