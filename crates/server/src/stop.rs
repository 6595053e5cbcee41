//! How a process is told to end, and when one that was stopped stands still.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use tokio::signal::unix::{SignalKind, signal};

/// Waits for the word to end: SIGTERM, or Ctrl-C.
pub async fn told_to_stop() {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signals) => drop(signals.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = terminated => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

/// Has the kernel kill this process when the one that started it ends, however that ends.
pub fn die_with(parent: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have ended before the kernel was told.
    let lives = getppid().is_some_and(|now| now.as_raw_nonzero().get().cast_unsigned() == parent);
    if lives { Ok(()) } else { Err(io::Error::other("the process that started this one is gone")) }
}

/// How often it is looked whether a process stands still.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// How long a process may take to stand still after SIGSTOP.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until a process that was sent SIGSTOP stands still: the signal stops one thread after the other, and on a busy machine the
/// others go on for a while. Returns at once if the process is gone.
pub fn await_stopped(process: u32) -> io::Result<()> {
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
pub fn is_stopped(process: u32) -> io::Result<bool> {
    let threads = match Path::new("/proc").join(process.to_string()).join("task").read_dir() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        threads => threads?,
    };
    for thread in threads {
        let stat = match std::fs::read_to_string(thread?.path().join("stat")) {
            // The thread ended meanwhile; the kernel tells so in either way.
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

/// ESRCH.
const NO_SUCH_PROCESS: i32 = 3;

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use rustix::process::{Pid, kill_process};

    use super::*;

    #[test]
    fn a_process_is_stopped_once_none_of_its_threads_runs() {
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("it starts");
        assert!(!is_stopped(child.id()).expect("it lives"));
        kill_process(Pid::from_child(&child), Signal::STOP).expect("it lives");
        await_stopped(child.id()).expect("it stops");
        assert!(is_stopped(child.id()).expect("it lives"));
        child.kill().expect("it lives");
        child.wait().expect("it ends");
        await_stopped(child.id()).expect("who is gone stands still");
    }
}
