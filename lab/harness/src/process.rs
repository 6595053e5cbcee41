//! A real process: started, waited for until it serves, listened to, stopped, continued and ended by its own id.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::lock;
use crate::signals::{self, Signal};
use crate::wait::{POLL_INTERVAL, TIMEOUT, until};

/// What a process prints before the words that say where it serves.
const READY: &str = "ready ";

/// A command without input, which no setting in this process's environment reaches.
#[must_use]
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CENTRIFUGE_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// Appends what a command prints, on both of its outputs, to a file.
pub fn log_to<'a>(command: &'a mut Command, file: &Path) -> io::Result<&'a mut Command> {
    let log = File::options().create(true).append(true).open(file)?;
    Ok(command.stdout(log.try_clone()?).stderr(log))
}

/// Tells the process that started this one that this one serves, and where.
pub fn announce_ready(address: &str) {
    println!("{READY}{address}");
}

/// The lines of this process's own input: what the process that started it tells it.
#[must_use]
pub fn input_lines() -> UnboundedReceiver<String> {
    lines_of(io::stdin())
}

/// Reads lines on a thread of its own, so that the writer never waits for a full pipe.
fn lines_of(output: impl Read + Send + 'static) -> UnboundedReceiver<String> {
    let (sender, lines) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // Read on though nobody listens.
            let _ = sender.send(line);
        }
    });
    lines
}

/// A running process. It is killed when it is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    output: Mutex<Output>,
    /// Once the process has ended its id may be another's.
    status: Option<ExitStatus>,
}

#[derive(Debug)]
struct Output {
    incoming: UnboundedReceiver<String>,
    printed: Vec<String>,
}

impl Process {
    /// Starts a command. A piped input is written by `tell`; a piped output, the standard one first, is read line by
    /// line.
    pub fn start(command: &mut Command) -> io::Result<Process> {
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        let incoming = match child.stdout.take() {
            Some(output) => lines_of(output),
            None => child.stderr.take().map_or_else(|| mpsc::unbounded_channel().1, lines_of),
        };
        let output = Mutex::new(Output { incoming, printed: Vec::new() });
        Ok(Process { child, stdin, output, status: None })
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The bytes of memory that it has, by the kernel's books.
    pub fn resident_bytes(&self) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kibibytes.map(|count| count * 1024).ok_or_else(|| self.ended_early())
    }

    /// The lines that it has printed so far.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut output = lock(&self.output);
        while let Ok(line) = output.incoming.try_recv() {
            output.printed.push(line);
        }
        output.printed.clone()
    }

    /// Waits until it has printed a line that contains `part`; panics if it does not.
    pub fn await_line(&self, part: &str) {
        until(part, || self.lines().iter().any(|line| line.contains(part)));
    }

    /// The next line that it prints; fails if it ends before.
    pub async fn next_line(&mut self) -> io::Result<String> {
        let output = self.output.get_mut().unwrap_or_else(PoisonError::into_inner);
        match output.incoming.recv().await {
            Some(line) => {
                output.printed.push(line.clone());
                Ok(line)
            }
            None => Err(self.ended_early()),
        }
    }

    /// Waits until it announces that it serves, and returns where.
    pub async fn ready(&mut self) -> io::Result<String> {
        let announced = async {
            loop {
                // Test programs print something else before it on the same line.
                if let Some((_, address)) = self.next_line().await?.split_once(READY) {
                    return Ok(address.to_owned());
                }
            }
        };
        let late = |_| Err(io::Error::other(format!("it is not ready within {TIMEOUT:?}")));
        tokio::time::timeout(TIMEOUT, announced).await.unwrap_or_else(late)
    }

    /// Writes a line to its input.
    pub fn tell(&mut self, line: &str) -> io::Result<()> {
        let told = self.stdin.as_mut().map(|stdin| writeln!(stdin, "{line}").and_then(|()| stdin.flush()));
        told.and_then(Result::ok).ok_or_else(|| self.ended_early())
    }

    /// Fails if it has ended by itself.
    pub fn check(&mut self) -> io::Result<()> {
        match self.ended()? {
            None => Ok(()),
            Some(_) => Err(self.ended_early()),
        }
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.status = self.child.try_wait()?;
        Ok(self.status)
    }

    /// Waits until it ends by itself, and returns all that it printed.
    pub fn await_end(mut self, timeout: Duration) -> io::Result<(ExitStatus, Vec<String>)> {
        let since = Instant::now();
        let status = loop {
            match self.ended()? {
                Some(status) => break status,
                None if since.elapsed() > timeout => return Err(self.does_not_end(timeout)),
                None => thread::sleep(POLL_INTERVAL),
            }
        };
        // Its own children may have the output open.
        while !lock(&self.output).incoming.is_closed() && since.elapsed() < timeout {
            thread::sleep(Duration::from_millis(1));
        }
        Ok((status, self.lines()))
    }

    /// Sends SIGTERM, waits until it has ended, and returns all that it printed.
    pub fn stop(self, timeout: Duration) -> io::Result<(ExitStatus, Vec<String>)> {
        self.signal(Signal::TERM)?;
        self.await_end(timeout)
    }

    /// The same without blocking its thread, and without the lines: a server may take long to move its state away.
    pub async fn stop_and_wait(mut self, timeout: Duration) -> io::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        let since = Instant::now();
        loop {
            match self.ended()? {
                Some(status) => return Ok(status),
                None if since.elapsed() > timeout => return Err(self.does_not_end(timeout)),
                None => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
    }

    /// Sends SIGSTOP and waits until it has taken effect.
    pub fn pause(&self) -> io::Result<()> {
        self.check_id().and_then(signals::pause)
    }

    /// Sends SIGCONT.
    pub fn resume(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        self.check_id().and_then(|id| signals::send(id, signal))
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        // It may have ended by itself; one that was stopped ends as well.
        let _ = self.child.kill();
        self.status = Some(self.child.wait()?);
        Ok(())
    }

    fn check_id(&self) -> io::Result<u32> {
        if self.status.is_some() { Err(self.ended_early()) } else { Ok(self.id()) }
    }

    fn ended_early(&self) -> io::Error {
        let last = self.lines().pop().unwrap_or_default();
        io::Error::other(format!("process {} ended too early: {last}", self.id()))
    }

    fn does_not_end(&self, timeout: Duration) -> io::Error {
        io::Error::other(format!("process {} does not end within {timeout:?}", self.id()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = command("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        Process::start(&mut command).expect("a shell")
    }

    #[tokio::test]
    async fn a_process_is_told_lines_and_says_where_it_serves() {
        let mut process = shell("read address; echo noise ready $address; exec sleep 60");
        process.tell("127.0.0.1:80").expect("it listens");
        assert_eq!(process.ready().await.expect("it is ready"), "127.0.0.1:80");
        assert_eq!(process.lines(), ["noise ready 127.0.0.1:80"]);
        process.check().expect("it runs");
        process.pause().expect("it stops");
        process.resume().expect("it goes on");
        process.signal(Signal::TERM).expect("it runs");
        until("it has ended", || process.ended().expect("it can be waited for").is_some());
        let refused = process.signal(Signal::TERM).expect_err("the id may be another's");
        assert!(refused.to_string().contains("ended too early: noise ready"), "{refused}");
    }

    #[tokio::test]
    async fn a_process_ends_when_it_is_told_to() {
        let status = shell("exec sleep 60").stop_and_wait(TIMEOUT).await.expect("it ends");
        assert!(!status.success());
    }

    #[test]
    fn all_that_a_process_printed_is_there_when_it_has_ended() {
        let process = shell("trap 'echo last; exit 7' TERM; echo first; while :; do sleep 0.05; done");
        process.await_line("first");
        let (status, lines) = process.stop(TIMEOUT).expect("it ends");
        assert_eq!(
            (status.code(), lines.as_slice()),
            (Some(7), &["first".to_owned(), "last".to_owned()][..])
        );
    }
}
