//! What is measured, as tables for people and as JSON for scripts.

use std::io::IsTerminal;
use std::time::Duration;

use centrifuge_harness::Samples;
use clap::Args;
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use serde_json::{Value, json};

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

    /// Whether somebody wants to see what is going on.
    pub(crate) fn speaks(self) -> bool {
        !self.json && std::io::stderr().is_terminal()
    }

    /// Says what is going on.
    pub(crate) fn say(self, what: &str) {
        if self.speaks() {
            eprintln!("{what}");
        }
    }

    /// Prints one object as JSON, or what `words` makes of it.
    pub(crate) fn print(self, json: &Value, words: impl FnOnce(&Value) -> String) {
        if self.json { println!("{json}") } else { println!("{}", words(json).trim_end()) }
    }
}

/// A table of objects. Each column has a heading, and where in an object its value is.
pub(crate) fn table_of(columns: &[(&str, &str)], objects: &[Value]) -> String {
    let head: Vec<&str> = columns.iter().map(|(heading, _)| *heading).collect();
    let row = |object: &Value| columns.iter().map(|(_, pointer)| cell(object.pointer(pointer))).collect();
    table(&head, objects.iter().map(row))
}

pub(crate) fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::Bool(is_so)) => if *is_so { "yes" } else { "no" }.to_owned(),
        Some(Value::String(text)) => text.clone(),
        // A float that is whole is shown without a fraction.
        Some(number) => number.as_f64().map_or_else(|| number.to_string(), |number| number.to_string()),
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

pub(crate) fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

/// How often something was done, how long that took in sum, and each time.
#[derive(Default)]
pub(crate) struct Rate {
    pub(crate) count: u64,
    pub(crate) time: Duration,
    pub(crate) samples: Samples,
}

impl Rate {
    pub(crate) fn note(&mut self, took: Duration) {
        self.count += 1;
        self.samples.add(took);
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.count as f64 / self.time.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// As JSON: `what` was done so often, in all and in a second, and how long each took.
    pub(crate) fn json(&self, what: &str) -> Value {
        json!({
            (what): self.count,
            (format!("{what}_per_second")): self.per_second().round(),
            "latency_us": micros(&self.samples),
        })
    }
}

/// The usual percentiles, in microseconds.
pub(crate) fn micros(samples: &Samples) -> Value {
    let times = samples.percentiles(Duration::from_micros(1));
    json!({ "p50": times.p50, "p99": times.p99, "max": times.max })
}
