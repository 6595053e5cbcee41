//! What a person sees: the story line by line, and on a terminal who owns what, as it is now.

use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use centrifuge_net::proto::v1;

use super::caller::Counts;
use super::pool::Sight;
use crate::output::line;
use crate::words::show_share;

/// How many sentences of the story are kept to be shown.
const LINES: usize = 40;
/// How wide the time before a sentence is.
const INDENT: usize = 9;
/// A terminal that does not say how large it is.
const USUAL: Size = Size { columns: 80, rows: 24 };

/// How much a terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    columns: usize,
    rows: usize,
}

/// Where the story goes.
pub(super) enum View {
    /// Nobody looks.
    Quiet,
    /// Line by line.
    Lines {
        /// When the story began.
        began: Instant,
    },
    /// The whole screen, drawn again and again.
    Screen {
        /// When the story began.
        began: Instant,
        /// The latest lines.
        lines: VecDeque<String>,
    },
}

impl View {
    pub(super) fn new(is_quiet: bool) -> View {
        let began = Instant::now();
        match is_quiet {
            true => View::Quiet,
            false if std::io::stdout().is_terminal() => View::Screen { began, lines: VecDeque::new() },
            false => View::Lines { began },
        }
    }

    /// Tells what happens.
    pub(super) fn say(&mut self, words: &str) {
        match self {
            View::Quiet => {}
            View::Lines { began } => line(&format!("{}{words}", time(*began))),
            View::Screen { began, lines } => {
                if lines.len() == LINES {
                    lines.pop_front();
                }
                lines.push_back(format!("{}{words}", time(*began)));
            }
        }
    }

    /// Shows the pool as it is.
    pub(super) fn show(&mut self, sight: &Sight, counts: &Counts) {
        let View::Screen { lines, .. } = self else { return };
        let screen = format!("\x1b[H\x1b[J{}\n", screen(sight, counts, lines, size()).join("\n"));
        let mut out = std::io::stdout().lock();
        // A terminal that is gone ends the process by itself.
        let _ = out.write_all(screen.as_bytes()).and_then(|()| out.flush());
    }
}

fn time(began: Instant) -> String {
    format!("{:>6.1}s  ", began.elapsed().as_secs_f64())
}

fn size() -> Size {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            Size { columns: usize::from(size.ws_col), rows: usize::from(size.ws_row) }
        }
        _ => USUAL,
    }
}

/// The rows of the screen: the pool above, and as much of the story's end as there is room for below.
fn screen(sight: &Sight, counts: &Counts, lines: &VecDeque<String>, size: Size) -> Vec<String> {
    let number = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (requests, rejected, losses) =
        (number(&counts.requests), number(&counts.rejected), number(&counts.losses));
    let v1::NamespaceStatus { unowned_ranges, moving_ranges, last_generation, .. } = &sight.space;
    let mut rows = vec!["centrifuge dev: who owns what (stop with Ctrl-C)".to_owned(), String::new()];
    rows.extend(sight.owners.iter().map(|owner| row(owner, size.columns)));
    rows.push(String::new());
    rows.push(format!(
        "  {unowned_ranges} ranges without owner, {moving_ranges} moving, {last_generation} leases granted"
    ));
    rows.push(format!(
        "  {requests} requests, {rejected} sent to the wrong server, {losses} losses announced"
    ));
    rows.push(String::new());
    let mut rows: Vec<String> =
        rows.into_iter().map(|row| row.chars().take(size.columns).collect()).collect();
    // The cursor needs a row of its own.
    let room = size.rows.saturating_sub(rows.len() + 1);
    let story: Vec<String> = lines.iter().flat_map(|line| wrap(line, size.columns)).collect();
    rows.extend(story.into_iter().rev().take(room).rev());
    rows
}

/// An Owner with a bar that stands for its share of the keys.
fn row(owner: &v1::OwnerStatus, columns: usize) -> String {
    let (name, share) = (&owner.name, show_share(owner.key_share));
    let state = if owner.draining { "draining " } else { "" };
    let text = format!(
        "  {name:<10} {share:>6}  {:>3} ranges  {:>3} virtual nodes  {state}",
        owner.ranges, owner.virtual_nodes
    );
    let room = columns.saturating_sub(text.chars().count());
    let bar = (owner.key_share * room as f64).round() as usize;
    format!("{text}{}", "#".repeat(bar.min(room)))
}

/// A sentence in rows of the screen, broken between words.
fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut rows = vec![String::new()];
    let mut length = 0;
    for word in text.split_inclusive(' ') {
        let word_length = word.trim_end().chars().count();
        if length + word_length > columns && length > INDENT {
            rows.push(" ".repeat(INDENT));
            length = INDENT;
        }
        if let Some(row) = rows.last_mut() {
            row.push_str(word);
        }
        length += word.chars().count();
    }
    rows.iter().map(|row| row.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_fits_the_terminal() {
        let owner = |name: &str, share| v1::OwnerStatus {
            name: name.to_owned(),
            key_share: share,
            draining: true,
            ..v1::OwnerStatus::default()
        };
        let owners = vec![owner("server-1", 1.0), owner("server-2", 0.5), owner("server-3", 0.0)];
        let sight = Sight { owners, ..Sight::default() };
        let sentence = format!("   1.0s  {}", "a sentence of many words ".repeat(9).trim_end());
        let lines: VecDeque<String> = std::iter::repeat_n(sentence, LINES).collect();
        for (columns, rows) in [(80, 24), (40, 12), (200, 60), (20, 5)] {
            let screen = screen(&sight, &Counts::default(), &lines, Size { columns, rows });
            assert!(screen.len() < rows.max(11), "{columns} x {rows}: {} rows", screen.len());
            assert!(screen.iter().all(|row| row.chars().count() <= columns), "{columns} x {rows}");
        }
    }

    #[test]
    fn sentences_break_between_words() {
        assert_eq!(wrap("   1.0s  one two three", 16), ["   1.0s  one two", "         three"]);
        assert_eq!(wrap("   1.0s  one", 80), ["   1.0s  one"]);
    }
}
