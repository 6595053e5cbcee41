//! Sessions that prove themselves: a session's id follows from a secret that only its process and the Managers know.

use centrifuge_core::id::{Credential, Nonce, Secret, SessionId};
use ring::digest;

/// What the hash covers before the secret, so that it is of no use elsewhere.
const PURPOSE: &[u8] = b"centrifuge session v1";

/// A new session, from the operating system's randomness.
pub fn draw() -> Result<Credential, getrandom::Error> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret)?;
    let secret = Secret(secret);
    Ok(Credential { session: session_of(&secret), secret })
}

/// The session that a secret proves. Whoever knows the id, as every Lookup does, cannot find a secret for it.
#[must_use]
pub fn session_of(secret: &Secret) -> SessionId {
    let mut hash = digest::Context::new(&digest::SHA256);
    hash.update(PURPOSE);
    hash.update(&secret.0);
    let hash = hash.finish();
    let first = hash.as_ref().iter().take(16);
    SessionId(Nonce(first.fold(0, |bits, byte| bits << 8 | u128::from(*byte))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other languages compute the same.
    #[test]
    fn the_session_is_the_beginning_of_a_hash() {
        let session = session_of(&Secret([7; 32]));
        assert_eq!(format!("{:032x}", session.0.0), "6cf3bee896117ae1cbcbce42dfc66e1d");
        assert_ne!(session_of(&Secret([8; 32])), session);
    }

    #[test]
    fn every_draw_is_a_session_of_its_own_and_shows_no_secret() {
        let (one, other) = (draw().expect("random bits"), draw().expect("random bits"));
        assert_ne!(one.session, other.session);
        assert_eq!(session_of(&one.secret), one.session);
        let shown = format!("{one:?}");
        assert!(shown.contains("(secret)") && !shown.contains(&format!("{:?}", one.secret.0)), "{shown}");
    }
}
