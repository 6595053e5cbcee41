//! The form of a script: prose that begins with `#`, then commands, `----`, and the trace up to the next empty line.

use std::fmt;

use crate::stages::trace::Stage;

/// The last number of a counter, which scripts write as `max`.
const END_OF_COUNTER: &str = "18446744073709551615";

/// A script, with the traces it expects or those that playing it gave.
pub(crate) struct Script {
    parts: Vec<Part>,
}

enum Part {
    /// A line of prose, or an empty one.
    Prose(String),
    Block(Block),
}

struct Block {
    /// Where it begins.
    line: usize,
    commands: Vec<String>,
    trace: Vec<String>,
}

impl Script {
    pub(crate) fn parse(text: &str) -> Result<Script, String> {
        let mut parts = Vec::new();
        let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim_end()));
        while let Some((line, first)) = lines.next() {
            if first.is_empty() || first.starts_with('#') {
                parts.push(Part::Prose(first.to_owned()));
                continue;
            }
            let mut commands = vec![first.to_owned()];
            loop {
                match lines.next() {
                    Some((_, "----")) => break,
                    Some((_, command)) if !command.is_empty() => commands.push(command.to_owned()),
                    _ => return Err(format!("{line}: a block of commands ends with `----`")),
                }
            }
            let trace: Vec<String> =
                lines.by_ref().map(|(_, line)| line.to_owned()).take_while(|line| !line.is_empty()).collect();
            parts.push(Part::Block(Block { line, commands, trace }));
            parts.push(Part::Prose(String::new()));
        }
        Ok(Script { parts })
    }

    /// The script with the traces that its commands lead to on `stage`.
    pub(crate) fn play(&self, stage: &mut dyn Stage) -> Result<Script, String> {
        let parts = self.parts.iter().map(|part| match part {
            Part::Prose(text) => Ok(Part::Prose(text.clone())),
            Part::Block(block) => block.play(stage).map(Part::Block),
        });
        parts.collect::<Result<_, _>>().map(|parts| Script { parts })
    }

    /// Where this script's traces are not those of `played`.
    pub(crate) fn differences(&self, played: &Script) -> Vec<String> {
        let both = self.parts.iter().zip(&played.parts);
        both.filter_map(|parts| match parts {
            (Part::Block(expected), Part::Block(got)) if expected.trace != got.trace => Some(format!(
                "{}: {}\nshould be\n  {}\nbut is\n  {}\n",
                expected.line,
                expected.commands.join("; "),
                expected.trace.join("\n  "),
                got.trace.join("\n  ")
            )),
            _ => None,
        })
        .collect()
    }
}

impl Block {
    fn play(&self, stage: &mut dyn Stage) -> Result<Block, String> {
        let mut trace = Vec::new();
        for command in &self.commands {
            let lines =
                stage.play(command).map_err(|error| format!("{}: `{command}`: {error}", self.line))?;
            trace.extend(lines.into_iter().map(|line| line.replace(END_OF_COUNTER, "max")));
        }
        Ok(Block { line: self.line, commands: self.commands.clone(), trace })
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One empty line ends a block, and none ends the file.
        let last = self.parts.iter().rposition(|part| !matches!(part, Part::Prose(text) if text.is_empty()));
        for part in self.parts.iter().take(last.map_or(0, |last| last + 1)) {
            match part {
                Part::Prose(text) => writeln!(f, "{text}")?,
                Part::Block(block) => {
                    let lines = block.commands.iter().map(String::as_str).chain(["----"]);
                    for line in lines.chain(block.trace.iter().map(String::as_str)) {
                        writeln!(f, "{line}")?;
                    }
                }
            }
        }
        Ok(())
    }
}
