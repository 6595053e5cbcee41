//! Chance for the machines, from the operating system.

use centrifuge_core::random::Random;

/// A generator that nobody can predict.
pub(crate) fn random() -> Result<Random, String> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| error.to_string())?;
    Ok(Random::from_seed(seed))
}
