//! Feeds a recording of a real process to the same machine again and compares what it answers.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use centrifuge_core::lookup::LookupMachine;
use centrifuge_core::machine::Output;
use centrifuge_core::manager::ManagerMachine;
use centrifuge_core::owner::OwnerMachine;
use centrifuge_core::recording::{Digest, FORMAT, Header, MachineKind, Opening, Recordable, Step};
use centrifuge_core::time::Instant;
use serde_json::json;

/// What a replay found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Which machine was recorded.
    pub machine: MachineKind,
    /// How many steps the machine answered as it did.
    pub agreed: u64,
    /// The first step that it answered otherwise.
    pub difference: Option<Difference>,
    /// The last line is cut off, as when the process was killed while it wrote.
    pub cut: bool,
}

/// A step that the machine answers otherwise than it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The line of the recording, from 1.
    pub line: u64,
    /// The time the machine was told.
    pub at: Instant,
    /// What happened, in the words of the code; "wake" for a wake.
    pub event: String,
    /// The digest of the answer it gave then.
    pub recorded: Digest,
    /// The digest of the answer it gives now.
    pub replayed: Digest,
    /// The answer it gives now, an action each.
    pub actions: Vec<String>,
}

/// Why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// There is nothing in it.
    #[error("is empty: a recording begins with a header")]
    Empty,
    /// Another version wrote it.
    #[error(
        "has format {0}, and this version reads format {FORMAT}: replay it with the version that wrote it"
    )]
    Format(u32),
    /// A line is no part of a recording.
    #[error("line {line} is damaged, after {agreed} steps that agreed: {source}")]
    Damaged {
        /// The line, from 1.
        line: u64,
        /// How many steps before it agreed.
        agreed: u64,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Time goes backwards.
    #[error("line {line} is damaged: it is at {at}, before the line above it")]
    Backwards {
        /// The line, from 1.
        line: u64,
        /// The time it says.
        at: Instant,
    },
}

/// Replays a file and says how it went; fails if the file is damaged or a step differs.
pub fn run(file: &Path, as_json: bool) -> bool {
    let outcome = File::open(file).map_err(ReplayError::from).and_then(|file| replay(BufReader::new(file)));
    match &outcome {
        Ok(outcome) if as_json => println!("{}", outcome.to_json()),
        Ok(outcome) => println!("{outcome}"),
        Err(error) if as_json => println!("{}", json!({ "error": error.to_string() })),
        Err(error) => eprintln!("{} {error}", file.display()),
    }
    outcome.is_ok_and(|outcome| outcome.difference.is_none())
}

/// Replays a recording up to its end or to the first step that differs.
pub fn replay(input: impl BufRead) -> Result<Outcome, ReplayError> {
    let mut lines = Lines { input, read: 0 };
    let first = lines.next()?.ok_or(ReplayError::Empty)?;
    let opening: Opening = parse(&first, 0)?;
    if opening.format != FORMAT {
        return Err(ReplayError::Format(opening.format));
    }
    match opening.machine {
        MachineKind::Manager => replay_machine::<ManagerMachine>(&first, lines),
        MachineKind::Owner => replay_machine::<OwnerMachine>(&first, lines),
        MachineKind::Lookup => replay_machine::<LookupMachine>(&first, lines),
    }
}

fn replay_machine<M: Recordable>(
    first: &Line,
    mut lines: Lines<impl BufRead>,
) -> Result<Outcome, ReplayError> {
    let header: Header<M::Config> = parse(first, 0)?;
    let mut machine = M::build(header.config, header.seed);
    let mut outcome = Outcome { machine: M::KIND, agreed: 0, difference: None, cut: false };
    let mut now = Instant::ZERO;
    while let Some(line) = lines.next()? {
        let step: Step<M::Event> = match parse(&line, outcome.agreed) {
            Err(_) if !line.is_whole => {
                outcome.cut = true;
                break;
            }
            step => step?,
        };
        if step.at < now {
            return Err(ReplayError::Backwards { line: line.number, at: step.at });
        }
        now = step.at;
        outcome.difference = take(&mut machine, step, line.number);
        if outcome.difference.is_some() {
            break;
        }
        outcome.agreed += 1;
    }
    Ok(outcome)
}

/// Lets the machine take a step, and says how its answer differs if it does.
fn take<M: Recordable>(machine: &mut M, step: Step<M::Event>, line: u64) -> Option<Difference> {
    let event = step.event.as_ref().map_or_else(|| "wake".to_owned(), |event| format!("{event:?}"));
    let output: Output<M::Action> = match step.event {
        Some(event) => machine.on_event(step.at, event),
        None => machine.on_wake(step.at),
    };
    let replayed = Digest::of(&output);
    let actions = || output.actions.iter().map(|action| format!("{action:?}")).collect();
    (replayed != step.digest).then(|| Difference {
        line,
        at: step.at,
        event,
        recorded: step.digest,
        replayed,
        actions: actions(),
    })
}

fn parse<T: serde::de::DeserializeOwned>(line: &Line, agreed: u64) -> Result<T, ReplayError> {
    serde_json::from_str(&line.text).map_err(|source| ReplayError::Damaged {
        line: line.number,
        agreed,
        source,
    })
}

/// A line of the recording.
struct Line {
    number: u64,
    text: String,
    /// It ends as lines do.
    is_whole: bool,
}

struct Lines<R> {
    input: R,
    read: u64,
}

impl<R: BufRead> Lines<R> {
    fn next(&mut self) -> Result<Option<Line>, ReplayError> {
        let mut text = String::new();
        if self.input.read_line(&mut text)? == 0 {
            return Ok(None);
        }
        self.read += 1;
        let is_whole = text.ends_with('\n');
        Ok(Some(Line { number: self.read, text, is_whole }))
    }
}

impl Outcome {
    fn to_json(&self) -> serde_json::Value {
        let mut line = json!({ "machine": self.machine.to_string(), "agreed": self.agreed, "cut": self.cut });
        if let Some(difference) = &self.difference {
            line["difference"] = json!({
                "line": difference.line,
                "at_nanos": difference.at.0,
                "event": difference.event,
                "recorded": difference.recorded.to_string(),
                "replayed": difference.replayed.to_string(),
                "actions": difference.actions,
            });
        }
        line
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} steps agree", self.machine, self.agreed)?;
        if self.cut {
            write!(f, "; the last line is cut off")?;
        }
        let Some(difference) = &self.difference else { return Ok(()) };
        writeln!(f, ", line {} differs at {}", difference.line, difference.at)?;
        writeln!(f, "  event    {}", difference.event)?;
        writeln!(f, "  recorded {}, replayed {}", difference.recorded, difference.replayed)?;
        write!(f, "  the machine now answers:")?;
        difference.actions.iter().try_for_each(|action| write!(f, "\n    {action}"))
    }
}
