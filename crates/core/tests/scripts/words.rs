//! The words of a command, and how keys, times and names are written in scripts.

use std::collections::BTreeMap;
use std::time::Duration;

use centrifuge_core::id::{Nonce, SessionId};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::namespace_kind::{ExpectedKind, KeyKind, KeyPrefix, Keys, Mode, NamespaceKind};
use centrifuge_core::time::Instant;

/// The words of a command that are not understood yet: `name=value` pairs, flags, and words in their order.
pub(crate) struct Words {
    rest: Vec<String>,
}

impl Words {
    pub(crate) fn of(command: &str) -> Words {
        Words { rest: command.split_whitespace().map(str::to_owned).collect() }
    }

    /// The next word.
    pub(crate) fn word(&mut self) -> Result<String, String> {
        if self.rest.is_empty() { Err("a word is missing".into()) } else { Ok(self.rest.remove(0)) }
    }

    /// Whether the next word is this.
    pub(crate) fn begins_with(&self, word: &str) -> bool {
        self.rest.first().is_some_and(|first| first == word)
    }

    /// The words that are left, and none after them.
    pub(crate) fn all(&mut self) -> Vec<String> {
        std::mem::take(&mut self.rest)
    }

    /// What is said of `name`, as `name=value`, if anything.
    pub(crate) fn value(&mut self, name: &str) -> Option<String> {
        let named = |word: &String| word.split_once('=').is_some_and(|(left, _)| left == name);
        let place = self.rest.iter().position(named)?;
        self.rest.remove(place).split_once('=').map(|(_, value)| value.to_owned())
    }

    /// The number that is said of `name`, or `usual`. `max` is the end of the counter.
    pub(crate) fn number(&mut self, name: &str, usual: u64) -> Result<u64, String> {
        match self.value(name).as_deref() {
            None => Ok(usual),
            Some("max") => Ok(u64::MAX),
            Some(text) => text.parse().map_err(|_| format!("{name}={text} is not a number")),
        }
    }

    /// The length of time that is said of `name`, or `usual`.
    pub(crate) fn time(&mut self, name: &str, usual: Duration) -> Result<Duration, String> {
        self.value(name).map_or(Ok(usual), |text| duration(&text))
    }

    /// Whether `word` is said.
    pub(crate) fn flag(&mut self, word: &str) -> bool {
        let place = self.rest.iter().position(|said| said == word);
        place.map(|place| self.rest.remove(place)).is_some()
    }

    /// Takes the clauses that begin with one of `heads`, each with its own words; what comes before them stays.
    pub(crate) fn clauses(&mut self, heads: &[&str]) -> Vec<Words> {
        let is_head = |word: &String| heads.contains(&word.as_str());
        let Some(first) = self.rest.iter().position(is_head) else { return Vec::new() };
        let mut clauses: Vec<Words> = Vec::new();
        for word in self.rest.split_off(first) {
            match clauses.last_mut() {
                Some(clause) if !is_head(&word) => clause.rest.push(word),
                _ => clauses.push(Words { rest: vec![word] }),
            }
        }
        clauses
    }

    /// Takes everything after `because` as the words of an operator.
    pub(crate) fn because(&mut self) -> String {
        let Some(place) = self.rest.iter().position(|word| word == "because") else { return String::new() };
        self.rest.split_off(place)[1..].join(" ")
    }

    /// The kind of namespace that a client is built for: `ordered`, `affinity`.
    pub(crate) fn expected(&mut self) -> ExpectedKind {
        let keys = if self.flag("ordered") { KeyKind::Ordered } else { KeyKind::Hashed };
        let mode = if self.flag("affinity") { Mode::Affinity } else { Mode::Exclusive };
        ExpectedKind { keys, mode }
    }

    /// What a namespace is: `ordered prefix=user/`, `affinity`.
    pub(crate) fn kind(&mut self) -> Result<NamespaceKind, String> {
        let ExpectedKind { keys, mode } = self.expected();
        let prefix = self.value("prefix").unwrap_or_default();
        let prefix = prefix.parse::<KeyPrefix>().map_err(|error| error.to_string())?;
        let keys = match keys {
            KeyKind::Hashed => Keys::Hashed,
            KeyKind::Ordered => Keys::Ordered(prefix),
        };
        Ok(NamespaceKind { keys, mode })
    }

    /// Every word must have been understood.
    pub(crate) fn end(self) -> Result<(), String> {
        if self.rest.is_empty() { Ok(()) } else { Err(format!("what is `{}`?", self.rest.join(" "))) }
    }
}

/// `15s`, `0.25s`, `1h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text} is not a time");
    let (number, unit) = text.split_at(text.len().saturating_sub(1));
    let millis = match number.split_once('.') {
        Some((whole, part)) => format!("{whole}{part:0<3}"),
        None => format!("{number}000"),
    };
    let millis: u64 = millis.parse().map_err(|_| wrong())?;
    match unit {
        "s" => Ok(Duration::from_millis(millis)),
        "h" => Ok(Duration::from_millis(millis * 3600)),
        _ => Err(wrong()),
    }
}

/// An instant in seconds. What is no multiple of a tenth is rounded, and marked with `~`.
pub(crate) fn time(at: Instant) -> String {
    span(at.since(Instant::ZERO))
}

/// Whether an instant was drawn at random: scripts speak of tenths of seconds.
pub(crate) fn is_drawn(at: Instant) -> bool {
    !at.0.is_multiple_of(100_000_000)
}

/// A length of time, as [`time`] writes it.
pub(crate) fn span(length: Duration) -> String {
    let tenths = (length.as_nanos() + 50_000_000) / 100_000_000;
    let drawn = if length.as_nanos().is_multiple_of(100_000_000) { "" } else { "~" };
    let part = if tenths.is_multiple_of(10) { String::new() } else { format!(".{}", tenths % 10) };
    format!("{drawn}{}{part}s", tenths / 10)
}

/// `10`: the lowest key whose hexadecimal digits begin so.
pub(crate) fn key(text: &str) -> Result<Key, String> {
    digits(text, '0').map(Key)
}

/// `00-7f`: from the lowest key that begins with `00` to the highest that begins with `7f`.
pub(crate) fn range(text: &str) -> Result<KeyRange, String> {
    let (first, last) = text.split_once('-').ok_or_else(|| format!("{text} is not a range"))?;
    let range = KeyRange::new(key(first)?, Key(digits(last, 'f')?));
    range.ok_or_else(|| format!("{text} is empty"))
}

fn digits(text: &str, fill: char) -> Result<u64, String> {
    let mut all = text.to_owned();
    while all.len() < 16 {
        all.push(fill);
    }
    u64::from_str_radix(&all, 16).map_err(|_| format!("{text} is not a key"))
}

/// A range as scripts write it; keys that need more than four digits are cut, and marked with `~`.
pub(crate) fn show_range(range: KeyRange) -> String {
    format!("{}-{}", shortest(range.first(), '0'), shortest(range.last(), 'f'))
}

/// Ranges as scripts write them.
pub(crate) fn show_ranges(ranges: impl Iterator<Item = KeyRange>) -> String {
    ranges.map(show_range).collect::<Vec<_>>().join(" ")
}

fn shortest(key: Key, fill: char) -> String {
    let all = key.to_string();
    let needed = all.trim_end_matches(fill).len();
    match needed {
        0..=2 => all[..2].to_owned(),
        3..=4 => all[..4].to_owned(),
        _ => format!("{}~", &all[..4]),
    }
}

/// What something is called in the core, as words: `HoldExpired` is `hold expired`.
pub(crate) fn spaced(thing: &impl std::fmt::Debug) -> String {
    let mut text = String::new();
    for c in format!("{thing:?}").chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push(' ');
        }
        text.extend(c.to_lowercase());
    }
    text
}

/// Short names for nonces. Names that a script makes up stand for nonces made of their letters; nonces that a machine
/// drew are named in the order in which they are first seen.
#[derive(Default)]
pub(crate) struct Aliases {
    names: BTreeMap<Nonce, String>,
}

impl Aliases {
    /// The nonce of a name.
    pub(crate) fn nonce(&mut self, name: &str) -> Nonce {
        if let Some((nonce, _)) = self.names.iter().find(|(_, known)| *known == name) {
            return *nonce;
        }
        let mut letters = [0; 16];
        letters.iter_mut().zip(name.bytes()).for_each(|(place, letter)| *place = letter);
        let nonce = Nonce(u128::from_be_bytes(letters));
        self.names.insert(nonce, name.to_owned());
        nonce
    }

    /// The session of a name.
    pub(crate) fn session(&mut self, name: &str) -> SessionId {
        SessionId(self.nonce(name))
    }

    /// Calls a nonce by a name.
    pub(crate) fn call(&mut self, nonce: Nonce, name: &str) {
        self.names.insert(nonce, name.to_owned());
    }

    /// The name of a nonce; a new one with this letter and the next number if it has none.
    pub(crate) fn name(&mut self, nonce: Nonce, letter: char) -> String {
        if let Some(name) = self.names.get(&nonce) {
            return name.clone();
        }
        let numbered =
            |name: &&String| name.strip_prefix(letter).is_some_and(|number| number.parse::<u64>().is_ok());
        let name = format!("{letter}{}", self.names.values().filter(numbered).count() + 1);
        self.call(nonce, &name);
        name
    }

    /// The name of a session.
    pub(crate) fn of_session(&mut self, session: SessionId) -> String {
        self.name(session.0, 'x')
    }
}

/// What a client is built for, where it is not what most are.
pub(crate) fn show_expected(expected: ExpectedKind) -> String {
    let ExpectedKind { keys, mode } = expected;
    if expected == ExpectedKind::default() {
        return String::new();
    }
    format!(", for {} keys, {} leases", keys.as_str(), mode.as_str())
}

/// What a namespace is, where it is not what most are.
pub(crate) fn show_kind(kind: &NamespaceKind) -> String {
    if *kind == NamespaceKind::default() { String::new() } else { format!(", {kind}") }
}
