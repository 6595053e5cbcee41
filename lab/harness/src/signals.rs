//! Signals by process id: SIGSTOP that has taken effect, and processes that end with the one that started them.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, getppid, kill_process, set_parent_process_death_signal};

pub use rustix::process::Signal;

/// How often it is checked whether a process has stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// How long a process may take to stop after SIGSTOP.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// ESRCH.
const NO_SUCH_PROCESS: i32 = 3;

/// Has the kernel kill this process when the one that started it ends, however that ends. Parents start such children
/// from a thread that lives as long as they do: to the kernel that thread is the parent.
pub fn end_with(parent: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have ended before the kernel was told.
    let lives = getppid().is_some_and(|now| now.as_raw_nonzero().get().cast_unsigned() == parent);
    if lives { Ok(()) } else { Err(io::Error::other("the process that started this one is gone")) }
}

/// Sends a signal to a process. Whoever calls this knows that the id is still that process's.
pub fn send(process: u32, signal: Signal) -> io::Result<()> {
    let id = Pid::from_raw(process.cast_signed()).ok_or(ErrorKind::InvalidInput)?;
    Ok(kill_process(id, signal)?)
}

/// Sends SIGSTOP and waits until it has taken effect.
pub fn pause(process: u32) -> io::Result<()> {
    send(process, Signal::STOP)?;
    await_stopped(process)
}

/// Waits until a process that was sent SIGSTOP has stopped: the signal stops one thread after the other, and on a
/// busy machine the others go on for a while. Returns at once if the process is gone.
fn await_stopped(process: u32) -> io::Result<()> {
    let since = Instant::now();
    while !is_stopped(process)? {
        if since.elapsed() > STOP_TIMEOUT {
            return Err(io::Error::other(format!("process {process} goes on, although it was sent SIGSTOP")));
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Whether every thread of a process is stopped, or has ended.
fn is_stopped(process: u32) -> io::Result<bool> {
    let threads = match Path::new("/proc").join(process.to_string()).join("task").read_dir() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        threads => threads?,
    };
    for thread in threads {
        let stat = match std::fs::read_to_string(thread?.path().join("stat")) {
            // The thread ended meanwhile; the kernel says so in either way.
            Err(error)
                if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(NO_SUCH_PROCESS) =>
            {
                continue;
            }
            stat => stat?,
        };
        // The state follows the name, which is in brackets and may have any characters.
        if !stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['T', 't', 'Z', 'X'])) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_stopped_once_none_of_its_threads_runs() {
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("it starts");
        assert!(!is_stopped(child.id()).expect("it lives"));
        pause(child.id()).expect("it stops");
        assert!(is_stopped(child.id()).expect("it lives"));
        child.kill().expect("it lives");
        child.wait().expect("it ends");
        await_stopped(child.id()).expect("a process that is gone has stopped");
    }
}
