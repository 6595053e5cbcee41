//! Which characters a text may have that peers supply and people read, and how others are shown.
//!
//! Texts are refused where they come in and escaped where they go out: a store may have texts that an earlier version took.

use std::fmt::{self, Write as _};

/// Whether a character acts on the text around it instead of being read: control characters, separators of lines and paragraphs, marks
/// that change the direction of text, and marks that nobody sees. A terminal obeys them, and a log line ends at some of them.
#[must_use]
pub fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{061c}'
                | '\u{200b}'
                | '\u{200e}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// The first character of a text that it must not have.
#[must_use]
pub fn unprintable_in(text: &str) -> Option<char> {
    text.chars().find(|character| is_unprintable(*character))
}

/// A text as it may be printed: in one line, every unprintable character escaped as Rust would.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            if is_unprintable(character) {
                write_escape(f, character)?;
            } else {
                f.write_char(character)?;
            }
        }
        Ok(())
    }
}

fn write_escape(f: &mut fmt::Formatter<'_>, character: char) -> fmt::Result {
    match character {
        '\n' => f.write_str("\\n"),
        '\r' => f.write_str("\\r"),
        '\t' => f.write_str("\\t"),
        other => write!(f, "\\u{{{:x}}}", u32::from(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_stay_and_what_acts_on_a_terminal_is_escaped() {
        assert_eq!(
            unprintable_in("größe 東京 👩‍🚀 http://a/?b=c#d"),
            None,
            "letters, and emoji with their joiners"
        );
        assert_eq!(unprintable_in("a\u{202e}b"), Some('\u{202e}'));
        let shown = Escaped("a\nb\u{1b}[31m\u{202e}\u{9b}é").to_string();
        assert_eq!(shown, "a\\nb\\u{1b}[31m\\u{202e}\\u{9b}é");
    }
}
