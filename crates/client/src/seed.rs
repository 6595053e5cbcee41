//! Chance for the machines, from the operating system.

/// The seed of a generator that nobody can predict.
pub(crate) fn os_seed() -> Result<[u8; 32], String> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| error.to_string())?;
    Ok(seed)
}
