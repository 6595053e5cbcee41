//! A process of the pool: started, killed, stopped, continued, each by its id.

use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus};

use centrifuge_harness::process::log_to;
use centrifuge_harness::signals::Signal;
use tokio::time::Instant;

use super::departures::Return;

/// A name whose processes come and go.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: String,
    /// How many there have been.
    pub(super) life: u32,
    child: Option<centrifuge_harness::Process>,
    /// It was told to end, and may not have yet.
    retiring: Option<centrifuge_harness::Process>,
    pub(super) is_stopped: bool,
    /// It was told to end, and this is what follows. Faults may still hit it.
    pub(super) departure: Option<Return>,
    pub(super) started_at: Option<Instant>,
}

impl Process {
    pub(super) fn new(name: String) -> Process {
        Process {
            name,
            life: 0,
            child: None,
            retiring: None,
            is_stopped: false,
            departure: None,
            started_at: None,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Starts the next life; what it prints goes to a file.
    ///
    /// To be called from the harness's main thread: the kernel ends a child with the thread that started it.
    pub(super) fn start(&mut self, mut command: Command, logs: &Path) -> io::Result<()> {
        let log = logs.join(format!("{}.log", self.name));
        self.child = Some(centrifuge_harness::Process::start(log_to(&mut command, &log)?)?);
        self.started_at = Some(Instant::now());
        (self.is_stopped, self.departure) = (false, None);
        Ok(())
    }

    /// `kill -9`, and waits until it is gone.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        (self.is_stopped, self.departure) = (false, None);
        self.child.take().map_or(Ok(()), centrifuge_harness::Process::kill)
    }

    /// Tells it to end, and does not wait for that.
    pub(super) fn retire(&mut self) -> io::Result<()> {
        self.terminate()?;
        self.retiring = self.child.take();
        Ok(())
    }

    /// Whether it has ended after it was told to.
    pub(super) fn has_retired(&mut self) -> io::Result<bool> {
        if let Some(child) = &mut self.retiring
            && child.ended()?.is_none()
        {
            return Ok(false);
        }
        self.retiring = None;
        Ok(true)
    }

    /// Stops it, and waits until it stands still.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        self.is_stopped = true;
        self.child.as_ref().map_or(Ok(()), centrifuge_harness::Process::pause)
    }

    pub(super) fn go_on(&mut self) -> io::Result<()> {
        self.is_stopped = false;
        self.child.as_ref().map_or(Ok(()), centrifuge_harness::Process::resume)
    }

    pub(super) fn terminate(&self) -> io::Result<()> {
        self.child.as_ref().map_or(Ok(()), |child| child.signal(Signal::TERM))
    }

    /// How it ended, if it did by itself.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        let status = child.ended()?;
        if status.is_some() {
            self.child = None;
        }
        Ok(status)
    }
}
