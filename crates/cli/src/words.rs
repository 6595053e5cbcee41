//! What users write and read: keys, ranges, durations, shares.

use std::time::Duration;

use centrifuge::Managers;
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::namespace_kind::Mode;
use centrifuge_net::proto::v1;
use centrifuge_server::config::read_duration;

/// A range: FIRST-LAST in hexadecimal, as tables show it, or "all".
pub(crate) fn range(text: &str) -> Result<KeyRange, String> {
    if text == "all" {
        return Ok(KeyRange::ALL);
    }
    let wrong = || "write FIRST-LAST, two hexadecimal numbers with the lower one first, or all".to_owned();
    let (first, last) = text.split_once('-').ok_or_else(wrong)?;
    let point = |digits: &str| u64::from_str_radix(digits.trim_start_matches("0x"), 16).map_err(|_| wrong());
    KeyRange::new(Key(point(first)?), Key(point(last)?)).ok_or_else(wrong)
}

/// Managers: addresses separated by commas, or `@` and a file that lists them.
pub(crate) fn managers(text: &str) -> Result<Managers, String> {
    match text.strip_prefix('@') {
        Some(path) => Ok(Managers::file(path)),
        None => Managers::list(text.split(',').map(str::trim)).map_err(|error| error.to_string()),
    }
}

/// A duration: a whole number with ms, s, m or h.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    read_duration(text)
        .ok_or_else(|| "write a whole number with ms, s, m or h, such as 500ms or 60s".to_owned())
}

/// A duration in whole milliseconds.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds as people write them.
pub(crate) fn show_ms(ms: u64) -> String {
    match ms {
        ms if ms.is_multiple_of(3_600_000) && ms > 0 => format!("{}h", ms / 3_600_000),
        ms if ms.is_multiple_of(60_000) && ms > 60_000 => format!("{}m", ms / 60_000),
        ms if ms.is_multiple_of(1_000) => format!("{}s", ms / 1_000),
        ms => format!("{ms}ms"),
    }
}

/// The mode that an answer is marked with; a Manager of a version that knows of no modes says none.
pub(crate) fn mode(said: Option<i32>) -> Mode {
    let said = said.and_then(|mode| v1::Mode::try_from(mode).ok()).and_then(|mode| Mode::try_from(mode).ok());
    said.unwrap_or_default()
}

/// What stands above a table about a namespace in affinity mode; nothing above one about exclusive leases.
pub(crate) fn show_mode(namespace: &str, mode: Mode) -> String {
    match mode {
        Mode::Exclusive => String::new(),
        Mode::Affinity => format!(
            "{} is in affinity mode: a key may have two owners for a short time, and lease numbers fence nothing\n",
            crate::output::shown(namespace)
        ),
    }
}

/// A range as tables show it.
pub(crate) fn show_range(range: Option<v1::KeyRange>) -> String {
    range.map_or_else(String::new, |range| format!("{:016x}-{:016x}", range.first, range.last))
}

/// A count with its noun, in the plural where needed.
pub(crate) fn count(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

/// A share of the whole, in percent.
pub(crate) fn show_share(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// A process by the first digits of its nonce.
pub(crate) fn show_session(session: &[u8]) -> String {
    session.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// A process by its whole nonce.
pub(crate) fn session_in_full(session: &[u8]) -> String {
    session.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_the_lower_end_first() {
        assert_eq!(range("00-ff").map(|range| range.last()), Ok(Key(255)));
        assert_eq!(range("all"), Ok(KeyRange::ALL));
        assert!(range("ff-00").is_err() && range("ff").is_err());
    }

    #[test]
    fn managers_are_listed_or_in_a_file() {
        let listed = managers("a:1, b:2").and_then(|managers| managers.read().map_err(|e| e.to_string()));
        assert_eq!(listed.map(|list| list.len()), Ok(2));
        assert_eq!(managers("@/etc/managers"), Ok(Managers::file("/etc/managers")));
        assert!(managers("a:1,").is_err() && managers("").is_err() && managers("http://a:1").is_err());
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("1500ms"), Ok(Duration::from_millis(1_500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert!(
            duration("60").is_err() && duration("s").is_err() && duration("99999999999999999999h").is_err()
        );
        assert_eq!(show_ms(60_000), "60s");
        assert_eq!(show_ms(300_000), "5m");
        assert_eq!(show_ms(1_500), "1500ms");
    }
}
