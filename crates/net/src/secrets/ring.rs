//! Secrets that can be changed while they are used.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use super::{SecretError, Secrets};

/// The secrets in force, for all who make and check codes in this process. Clones share them.
#[derive(Clone)]
pub struct KeyRing(Arc<RwLock<Arc<Secrets>>>);

/// Why other secrets are not put in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the first secret would sign, and was not accepted before, so that others may not accept it either: put it \
     second at every peer, and first when all have it there; or restart this process to use it at once"
)]
pub struct ChangeError;

impl KeyRing {
    /// A ring with these secrets.
    #[must_use]
    pub fn new(secrets: Secrets) -> KeyRing {
        KeyRing(Arc::new(RwLock::new(Arc::new(secrets))))
    }

    /// A ring with the secrets in a text: [`Secrets::parse`].
    pub fn parse(bytes: &[u8]) -> Result<KeyRing, SecretError> {
        Secrets::parse(bytes).map(KeyRing::new)
    }

    /// The secrets in force now. Costs little beside a code.
    #[must_use]
    pub fn secrets(&self) -> Arc<Secrets> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts other secrets in force, and says whether they are others. Only a secret that was accepted before can sign:
    /// a step of a rotation that was left out would cut this process off from the others, and make codes that they
    /// refuse.
    pub fn change(&self, secrets: Secrets) -> Result<bool, ChangeError> {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if !known.accept_signer_of(&secrets) {
            return Err(ChangeError);
        }
        let is_other = **known != secrets;
        *known = Arc::new(secrets);
        Ok(is_other)
    }
}

impl PartialEq for KeyRing {
    fn eq(&self, other: &KeyRing) -> bool {
        self.secrets() == other.secrets()
    }
}

impl Eq for KeyRing {}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyRing(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Purpose;
    use super::*;

    const A: &str = "the first secret of these tests";
    const B: &str = "the second secret of these tests";

    fn secrets(lines: &[&str]) -> Secrets {
        Secrets::parse(lines.join("\n").as_bytes()).expect("secrets")
    }

    fn understands(one: &[&str], other: &[&str]) -> bool {
        let code = secrets(one).code(Purpose::Datagrams, b"x");
        secrets(other).fits(Purpose::Datagrams, code.as_ref(), b"x")
    }

    #[test]
    fn processes_that_are_one_step_apart_understand_each_other() {
        let steps = [&[A][..], &[A, B], &[B, A], &[B]];
        for pair in steps.windows(2) {
            assert!(understands(pair[0], pair[1]) && understands(pair[1], pair[0]));
        }
        assert!(
            !understands(steps[2], steps[0]) && !understands(steps[0], steps[3]),
            "no step can be left out"
        );
    }

    #[test]
    fn every_clone_goes_through_the_steps_and_none_can_be_left_out() {
        let ring = KeyRing::new(secrets(&[A]));
        let clone = ring.clone();
        for skipped in [&[B][..], &[B, A]] {
            assert_eq!(ring.change(secrets(skipped)), Err(ChangeError));
            assert_eq!(*clone.secrets(), secrets(&[A]), "the old ones stay");
        }
        for step in [&[A, B][..], &[B, A], &[B]] {
            assert_eq!(ring.change(secrets(step)), Ok(true));
            assert_eq!(*clone.secrets(), secrets(step));
            assert_eq!(ring.change(secrets(step)), Ok(false), "nothing has changed");
        }
        assert_eq!(ring.change(secrets(&[A, B])), Err(ChangeError), "nor on the way back");
        assert_eq!(format!("{ring:?}"), "KeyRing(..)", "it is never printed");
    }
}
