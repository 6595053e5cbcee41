//! What a person sees: the story line by line, and on a terminal who owns what, as it is now.

use std::collections::VecDeque;
use std::io::{IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::caller::Counts;
use super::pool::Sight;
use crate::words::show_share;

/// How many lines of the story stay on the screen.
const LINES: usize = 12;
/// How wide a bar is that stands for all keys.
const BAR: f64 = 60.0;

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
            View::Lines { began } => println!("{:>6.1}s  {words}", began.elapsed().as_secs_f64()),
            View::Screen { began, lines } => {
                if lines.len() == LINES {
                    lines.pop_front();
                }
                lines.push_back(format!("{:>6.1}s  {words}", began.elapsed().as_secs_f64()));
            }
        }
    }

    /// Shows the pool as it is.
    pub(super) fn show(&mut self, sight: &Sight, counts: &Counts) {
        let View::Screen { lines, .. } = self else { return };
        let mut screen = String::from("\x1b[H\x1b[J");
        screen.push_str("centrifuge dev: who owns what (stop with Ctrl-C)\n\n");
        for owner in &sight.owners {
            let bar = "#".repeat((owner.key_share * BAR).round() as usize);
            let state = if owner.draining { "draining" } else { "" };
            screen.push_str(&format!(
                "  {:<10} {:>6} of the keys in {:>3} ranges, {:>3} virtual nodes  {bar} {state}\n",
                owner.name,
                show_share(owner.key_share),
                owner.ranges,
                owner.virtual_nodes,
            ));
        }
        let number = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        screen.push_str(&format!(
            "\n  {} ranges without owner, {} moving, lease {} is the latest\n  {} requests, {} sent elsewhere, {} losses announced\n\n",
            sight.space.unowned_ranges,
            sight.space.moving_ranges,
            sight.space.last_generation,
            number(&counts.requests),
            number(&counts.rejected),
            number(&counts.losses),
        ));
        for line in lines {
            screen.push_str(line);
            screen.push('\n');
        }
        let mut out = std::io::stdout().lock();
        // A terminal that is gone ends the process by itself.
        let _ = out.write_all(screen.as_bytes()).and_then(|()| out.flush());
    }
}
