//! What all stages do alike: time that passes, and things that are told only when they change.

use std::collections::BTreeMap;
use std::fmt::Debug;

use centrifuge_core::machine::{Machine, Output};
use centrifuge_core::time::Instant;

use super::words::{Words, duration, is_drawn, spaced, time};

/// What plays a script's commands.
pub(crate) trait Stage {
    /// Plays one command and says what it led to, line by line.
    fn play(&mut self, command: &str) -> Result<Vec<String>, String>;
}

/// Where a stage's clock stands, when its machine wants to be woken, and what was told already.
#[derive(Default)]
pub(crate) struct Clock {
    pub(crate) now: Instant,
    wake: Option<Instant>,
    told: BTreeMap<&'static str, String>,
    counts: BTreeMap<String, u64>,
}

impl Clock {
    /// Takes the instant that a command begins with, as in `at 5s`, or `after 0.1s` from the last. A machine that wants to be woken before then is,
    /// unless the command only looks at it, or says `unwoken`.
    pub(crate) fn advance(&mut self, words: &mut Words) -> Result<(), String> {
        let from = if words.flag("at") {
            Instant::ZERO
        } else if words.flag("after") {
            self.now
        } else {
            return Ok(());
        };
        let at = from + duration(&words.word()?)?;
        if at < self.now {
            return Err(format!("it is {} already", time(self.now)));
        }
        let looks = ["check", "route", "table", "wake"].iter().any(|verb| words.begins_with(verb));
        if let Some(wake) = self.wake.filter(|wake| *wake < at && !looks && !words.flag("unwoken")) {
            return Err(format!("the machine wants to be woken at {} ({} ns)", time(wake), wake.0));
        }
        self.now = at;
        Ok(())
    }

    /// When the machine wants to be woken.
    pub(crate) fn wake(&self) -> Option<Instant> {
        self.wake
    }

    /// Notes when the machine wants to be woken.
    pub(crate) fn wants(&mut self, wake: Option<Instant>) {
        self.wake = wake;
    }

    /// Tells something unless it was told so before.
    pub(crate) fn tell(&mut self, what: &'static str, text: String, lines: &mut Vec<String>) {
        if self.told.get(what) != Some(&text) {
            lines.push(text.clone());
            self.told.insert(what, text);
        }
    }

    /// Tells the counters that have changed and, if it has, the next wake.
    pub(crate) fn tell_rest(&mut self, counters: &impl Debug, silent: &[&str], lines: &mut Vec<String>) {
        let counts = numbers(counters);
        let changed = counts.iter().filter(|(name, count)| {
            self.counts.get(*name).copied().unwrap_or_default() != **count && !silent.contains(&name.as_str())
        });
        lines.extend(changed.map(|(name, count)| format!("counted {name}={count}")));
        self.counts = counts;
        let wake = match self.wake {
            None | Some(Instant::NEVER) => "no wake".to_owned(),
            // How soon is drawn at random, by what the round trip is taken for: nothing to specify.
            Some(wake) if is_drawn(wake) => "wake soon".to_owned(),
            Some(wake) => format!("wake at {}", time(wake)),
        };
        self.tell("wake", wake, lines);
    }

    /// Forgets what was told: another machine is on stage, or the play begins only now.
    pub(crate) fn reset(&mut self, wake: Option<Instant>, counters: &impl Debug) {
        self.wake = wake;
        self.counts = numbers(counters);
        self.told.clear();
    }
}

/// A stage around one machine.
pub(crate) trait Around {
    type Machine: Machine;

    fn machine(&mut self) -> Result<&mut Self::Machine, String>;
    fn clock(&mut self) -> &mut Clock;
    fn tell(&mut self, output: Output<<Self::Machine as Machine>::Action>) -> Vec<String>;
    /// Performs a command whose instant is taken already.
    fn perform(&mut self, command: &str, words: &mut Words) -> Result<Vec<String>, String>;

    /// Feeds one event.
    fn feed(&mut self, event: <Self::Machine as Machine>::Event) -> Result<Vec<String>, String> {
        let now = self.clock().now;
        let output = self.machine()?.on_event(now, event);
        self.clock().wants(output.wake);
        Ok(self.tell(output))
    }

    /// Wakes the machine now, whatever it wants.
    fn wake(&mut self) -> Result<Vec<String>, String> {
        let now = self.clock().now;
        let output = self.machine()?.on_wake(now);
        self.clock().wants(output.wake);
        Ok(self.tell(output))
    }

    /// `at 60s wake` wakes the machine at that instant, early or late; `wake` lets time pass until the machine wants to
    /// be woken; `wake until 60s` wakes it whenever it wants until then.
    fn pass(&mut self, command: &str, words: &mut Words) -> Result<Vec<String>, String> {
        if command.starts_with("at ") || command.starts_with("after ") {
            return self.wake();
        }
        if !words.flag("until") {
            let wake = self.clock().wake.ok_or("nothing is awaited")?;
            return self.wake_at(wake);
        }
        let mut lines = Vec::new();
        let end = Instant::ZERO + duration(&words.word()?)?;
        while let Some(wake) = self.clock().wake.filter(|wake| *wake <= end) {
            lines.extend(self.wake_at(wake)?);
        }
        self.clock().now = end;
        Ok(lines)
    }

    fn wake_at(&mut self, wake: Instant) -> Result<Vec<String>, String> {
        let now = wake.max(self.clock().now);
        self.clock().now = now;
        let mut lines = vec![format!("at {}", time(now))];
        lines.extend(self.wake()?);
        Ok(lines)
    }
}

impl<A: Around> Stage for A {
    fn play(&mut self, command: &str) -> Result<Vec<String>, String> {
        let mut words = Words::of(command);
        self.clock().advance(&mut words)?;
        let lines = self.perform(command, &mut words)?;
        words.end()?;
        Ok(lines)
    }
}

/// The numbers in a thing's description, each by the name before it.
fn numbers(thing: &impl Debug) -> BTreeMap<String, u64> {
    let text = format!("{thing:?}");
    let words: Vec<&str> = text.split([' ', ',', '{', '}']).filter(|word| !word.is_empty()).collect();
    let pairs = words.windows(2).filter_map(|pair| {
        let name = pair[0].strip_suffix(':')?;
        pair[1].parse().ok().map(|number| (spaced_name(name), number))
    });
    pairs.collect()
}

fn spaced_name(name: &str) -> String {
    spaced(&format_args!("{name}")).replace([' ', '_'], "-")
}
