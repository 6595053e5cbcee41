//! Tables for people and JSON for scripts.

use std::future::pending;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;

use centrifuge_core::text::Escaped;
use clap::{Args, ValueEnum};
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::Value;
use tokio::sync::oneshot;

/// How to print, as every command is told: `--json` is short for `--output json`.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Format {
    /// Output format: text and tables for people, lines of JSON for scripts
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// The same as --output json
    #[arg(long)]
    json: bool,
}

impl Format {
    pub(crate) fn output(self) -> Output {
        if self.json { Output::Json } else { self.output }
    }

    pub(crate) fn is_json(self) -> bool {
        self.output() == Output::Json
    }
}

use crate::logging::escape_json;

/// How a command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Table,
    /// One line of JSON.
    Json,
}

impl Output {
    /// Prints one object as JSON, or what `table` makes of it.
    pub(crate) fn print(self, json: &Value, table: impl FnOnce() -> String) {
        match self {
            Output::Json => json_line(json),
            Output::Table => line(table().trim_end()),
        }
    }
}

/// Prints a line of JSON.
pub(crate) fn json_line(json: &Value) {
    line(&escape_json(&json.to_string()));
}

/// A text of a peer as people may see it: one line, and nothing that a terminal would obey.
pub(crate) fn shown(text: &str) -> String {
    Escaped(text).to_string()
}

/// Several lines of our own text that may quote a peer's: every control character but a line break is escaped.
pub(crate) fn shown_lines(text: &str) -> String {
    text.split('\n').map(shown).collect::<Vec<_>>().join("\n")
}

/// Prints a line. A reader that has seen enough, as `head` does, ends the command without a fuss.
pub(crate) fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{}", shown_lines(text)).and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            eprintln!("centrifuge: cannot print: {error}");
            std::process::exit(1);
        }
    }
}

/// Waits until the reader of standard output is gone. Waits for ever if that cannot be known, as with a file.
pub(crate) async fn closed() {
    let (tell, told) = oneshot::channel();
    // The thread ends with the process at the latest.
    std::thread::spawn(move || {
        if await_closed(&std::io::stdout()).is_ok() {
            let _ = tell.send(());
        }
    });
    if told.await.is_err() {
        pending::<()>().await;
    }
}

/// Blocks until a pipe has no reader any more: a write would only find out when there is something to write.
fn await_closed(out: &impl AsFd) -> rustix::io::Result<()> {
    loop {
        // Errors and hang-ups are told without being asked for.
        let mut watched = [PollFd::new(out, PollFlags::empty())];
        match poll(&mut watched, None) {
            Ok(_) if !watched[0].revents().is_empty() => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A table, or `nothing` where it would have no rows.
pub(crate) fn table_or(nothing: &str, head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut rows = rows.into_iter().peekable();
    if rows.peek().is_some() { table(head, rows) } else { nothing.to_owned() }
}

/// A table without lines, its columns two spaces apart; numbers to the right.
pub(crate) fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(head.iter().map(|name| name.to_uppercase()));
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|row| row.iter().map(|cell| shown(cell)).collect()).collect();
    let is_number = |column: usize| {
        !rows.is_empty()
            && rows.iter().all(|row| row[column].chars().all(|c| c.is_ascii_digit() || ".,%-".contains(c)))
    };
    for column in (0..head.len()).filter(|column| is_number(*column)) {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.add_rows(rows);
    if let Some(first) = table.column_mut(0) {
        first.set_padding((0, 1));
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_one_line_and_holds_nothing_that_a_terminal_obeys() {
        let text =
            table(&["owner", "url"], [vec!["a\u{202e}b".to_owned(), "http://x\nforged\u{1b}[2J".to_owned()]]);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("a\\u{202e}b") && text.contains("http://x\\nforged\\u{1b}[2J"), "{text}");
        assert_eq!(shown_lines("one\n\u{9b}two"), "one\n\\u{9b}two");
    }
}
