//! How settings are written and laid over each other.

use std::time::Duration;

use super::{ConfigError, refuse};

/// Fills what `$to` lacks from `$from`, field by field.
macro_rules! merge {
    ($to:ident, $from:ident; $($field:ident),* $(,)?) => {
        $($to.$field = $to.$field.take().or($from.$field);)*
    };
}
pub(super) use merge;

/// A length of time with its unit, as `500ms`, `10s` or `2m`; never zero.
pub(super) fn duration(
    setting: &'static str,
    text: Option<String>,
    default: Duration,
) -> Result<Duration, ConfigError> {
    let Some(text) = text else { return Ok(default) };
    read_duration(&text)
        .filter(|length| !length.is_zero())
        .ok_or_else(|| refuse(setting, text, "a number above zero with a unit, as 500ms, 10s, 2m or 1h"))
}

/// A length of time with its unit: a whole number and `ms`, `s`, `m` or `h`.
#[must_use]
pub fn read_duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit_at);
    let number: u64 = number.parse().ok()?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.checked_mul(millis).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_units() {
        assert_eq!(read_duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(read_duration("10s"), Some(Duration::from_secs(10)));
        assert_eq!(read_duration("2m"), Some(Duration::from_secs(120)));
        assert_eq!(read_duration("10"), None);
        assert_eq!(read_duration("s"), None);
        assert_eq!(read_duration("99999999999999999999h"), None);
        assert!(duration("leader_lease", Some("0s".into()), Duration::ZERO).is_err());
    }
}
