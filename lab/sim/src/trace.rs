//! A readable line for everything that happens in a run, if somebody wants to read it.

use std::fmt;
use std::io::Write as _;

use crate::seen::TrueTime;

/// Where the lines go.
#[derive(Debug, Default)]
pub enum Trace {
    /// Nowhere: nothing is even formatted.
    #[default]
    Off,
    /// To standard output, as they come.
    Print,
    /// Into memory, to be compared.
    Keep(String),
}

impl Trace {
    /// Writes one line, if somebody reads it: an untraced run formats nothing.
    pub fn line(&mut self, at: TrueTime, text: fmt::Arguments<'_>) {
        match self {
            Trace::Off => {}
            // A reader that has gone away, as `head` does, ends the trace and not the run.
            Trace::Print => {
                if writeln!(std::io::stdout().lock(), "{at} {text}").is_err() {
                    *self = Trace::Off;
                }
            }
            Trace::Keep(lines) => {
                use fmt::Write as _;
                writeln!(lines, "{at} {text}").expect("a string takes every line");
            }
        }
    }
}
