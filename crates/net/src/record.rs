//! Writes down every step of a machine, so that the simulator can take it again.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::marker::PhantomData;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use centrifuge_core::machine::Output;
use centrifuge_core::recording::{Digest, FORMAT, Header, Recordable, Step};
use centrifuge_core::time::Instant;
use serde::Serialize;

use crate::driver::Tee;

/// What was written reaches the file at the latest with the first step after this long.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// What every recording begins with.
const BEGINNING: &[u8] = b"{\"format\":";

/// Why a recording cannot begin.
#[derive(Debug, thiserror::Error)]
#[error("cannot record to {}: {source}; choose another file or free some space", path.display())]
pub struct RecordError {
    /// The file.
    pub path: PathBuf,
    /// What happened.
    #[source]
    source: io::Error,
}

/// Records the steps of one machine, a line of JSON each, for `centrifuge-sim replay`.
///
/// A recording that cannot go on, as when the disk is full, ends and says so in the log; the machine goes on.
#[derive(Debug)]
pub struct Recorder<M, W: Write = BufWriter<File>> {
    /// `None` once a write failed.
    out: Option<W>,
    flushed_at: Instant,
    machine: PhantomData<fn() -> M>,
}

impl<M: Recordable> Recorder<M> {
    /// Begins a recording in a new file, or in place of an old one, readable by its owner alone: it has the machine's seed in it.
    /// A file with something else in it, as a store, is left as it is. `config` and `seed` are what the machine is built from.
    pub fn create(path: &Path, config: &M::Config, seed: [u8; 32]) -> Result<Recorder<M>, RecordError> {
        open(path)
            .and_then(|file| Recorder::new(BufWriter::new(file), config, seed))
            .map_err(|source| RecordError { path: path.to_owned(), source })
    }
}

impl<M: Recordable, W: Write> Recorder<M, W> {
    /// Begins a recording anywhere.
    pub fn new(mut out: W, config: &M::Config, seed: [u8; 32]) -> io::Result<Recorder<M, W>> {
        write_line(&mut out, &Header { format: FORMAT, machine: M::KIND, config, seed })?;
        out.flush()?;
        Ok(Recorder { out: Some(out), flushed_at: Instant::ZERO, machine: PhantomData })
    }

    fn write(&mut self, now: Instant, step: &Step<&M::Event>) -> io::Result<()> {
        let Some(out) = &mut self.out else { return Ok(()) };
        write_line(out, step)?;
        if now.since(self.flushed_at) >= FLUSH_EVERY {
            self.flushed_at = now;
            out.flush()?;
        }
        Ok(())
    }
}

impl<M: Recordable, W: Write + Send> Tee<M> for Recorder<M, W> {
    fn step(&mut self, now: Instant, event: Option<&M::Event>, output: &Output<M::Action>) {
        if self.out.is_none() {
            return;
        }
        let step = Step { at: now, event, digest: Digest::of(output) };
        if let Err(error) = self.write(now, &step) {
            tracing::error!(%error, "the recording ends here: it cannot be written");
            self.out = None;
        }
    }
}

impl<M, W: Write> Drop for Recorder<M, W> {
    fn drop(&mut self) {
        if let Some(out) = &mut self.out
            && let Err(error) = out.flush()
        {
            tracing::error!(%error, "the end of the recording cannot be written");
        }
    }
}

/// Makes a file, or empties an old recording.
fn open(path: &Path) -> io::Result<File> {
    if path.metadata().is_ok_and(|known| known.is_file()) && has_something_else(path)? {
        return Err(io::Error::other("it has something else in it and is left as it is"));
    }
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn has_something_else(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    File::open(path)?.take(BEGINNING.len() as u64).read_to_end(&mut start)?;
    Ok(!start.is_empty() && start != BEGINNING)
}

fn write_line(out: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}
