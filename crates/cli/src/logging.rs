//! Log lines on standard error. Whatever a peer supplies, a line stays one line and a terminal obeys none of it.

use std::fmt::{self, Debug};
use std::io::{self, IsTerminal, Write};

use centrifuge_core::text::{Escaped, is_unprintable};
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

/// Starts to write log lines for people.
pub(crate) fn text(filter: EnvFilter) {
    let fields = debug_fn(write_field).delimited(" ");
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .fmt_fields(fields)
        .init();
}

/// Starts to write log lines for programs, a JSON object each.
pub(crate) fn json(filter: EnvFilter) {
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(filter)
        .with_writer(|| EscapedJson(io::stderr()))
        .with_ansi(false)
        .init();
}

fn write_field(line: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    let text = format!("{value:?}");
    let text = Escaped(&text);
    match field.name() {
        "message" => write!(line, "{text}"),
        name => write!(line, "{name}={text}"),
    }
}

/// Takes whole lines of JSON and escapes in them what JSON itself would let through: it knows control characters only up to U+001F.
struct EscapedJson<W>(W);

impl<W: Write> Write for EscapedJson<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(escape_json(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// JSON with every unprintable character as `\uXXXX`. Those that JSON allows stand only inside of strings.
pub(crate) fn escape_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        if character != '\n' && is_unprintable(character) {
            let units = &mut [0; 2];
            character.encode_utf16(units).iter().for_each(|unit| escaped.push_str(&format!("\\u{unit:04x}")));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_stays_the_same_to_a_reader() {
        let value = serde_json::json!({ "url": "a\n\u{1b}\u{202e}\u{9b}\u{e0001}é" });
        let text = escape_json(&value.to_string());
        assert!(text.chars().all(|character| !is_unprintable(character)), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).expect("JSON"), value);
    }
}
