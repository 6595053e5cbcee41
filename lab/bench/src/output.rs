//! Tables for people and JSON for scripts.

use clap::Args;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use serde_json::Value;

/// How to print.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Format {
    /// Print one line of JSON instead of words and tables
    #[arg(long)]
    json: bool,
}

impl Format {
    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// Prints one object as JSON, or what `words` makes of it.
    pub(crate) fn print(self, json: &Value, words: impl FnOnce() -> String) {
        if self.json { println!("{json}") } else { println!("{}", words().trim_end()) }
    }
}

/// A table without lines, its columns two spaces apart; numbers to the right.
pub(crate) fn table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows.into_iter().collect();
    let is_number = |text: &String| text.chars().all(|c| c.is_ascii_digit() || ".,%-".contains(c));
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(head.iter().map(|name| name.to_uppercase()));
    for (number, column) in table.column_iter_mut().enumerate() {
        if number == 0 {
            column.set_padding((0, 1));
        }
        if rows.iter().all(|row| is_number(&row[number])) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.add_rows(rows);
    table.trim_fmt()
}
