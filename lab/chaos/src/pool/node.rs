//! A process of the pool: started, killed, stopped, continued, each by its id.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use centrifuge_server::stop::await_stopped;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

use super::departures::Return;

/// A name whose processes come and go.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: String,
    /// How many there have been.
    pub(super) life: u32,
    child: Option<Child>,
    /// It was told to end, and may not have yet.
    retiring: Option<Child>,
    pub(super) is_stopped: bool,
    /// It was told to end, and this is what follows. Faults may still befall it.
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
        let log = File::options().create(true).append(true).open(logs.join(format!("{}.log", self.name)))?;
        let (out, err) = (log.try_clone()?, log);
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn()?;
        self.child = Some(child);
        self.started_at = Some(Instant::now());
        (self.is_stopped, self.departure) = (false, None);
        Ok(())
    }

    /// `kill -9`, and waits until it is gone.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        (self.is_stopped, self.departure) = (false, None);
        Ok(())
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
            && child.try_wait()?.is_none()
        {
            return Ok(false);
        }
        self.retiring = None;
        Ok(true)
    }

    /// Stops it, and waits until it stands still.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        if let Some(child) = &self.child {
            await_stopped(child.id())?;
        }
        self.is_stopped = true;
        Ok(())
    }

    pub(super) fn go_on(&mut self) -> io::Result<()> {
        self.signal(Signal::CONT)?;
        self.is_stopped = false;
        Ok(())
    }

    pub(super) fn terminate(&self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    /// How it ended, if it did by itself.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        let status = child.try_wait()?;
        if status.is_some() {
            self.child = None;
        }
        Ok(status)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let id = self.child.as_ref().map(Child::id).and_then(|id| Pid::from_raw(id.cast_signed()));
        match id {
            // Not waited for yet, so that the id is still this process's and nobody else's.
            Some(id) => Ok(kill_process(id, signal)?),
            None => Ok(()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The kernel does it otherwise, when the harness ends.
        let _ = self.kill();
        self.child = self.retiring.take();
        let _ = self.kill();
    }
}
