//! The three processes, as the story sees them: started, asked, killed, stopped and watched.

use std::collections::BTreeMap;
use std::io::{BufReader, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use centrifuge_harness::Process;
use centrifuge_harness::ports::{free_addresses, numbered};
use centrifuge_harness::process::command;
use centrifuge_harness::signals::Signal;

use crate::Outcome;
use crate::server::{ask, connect, read_line};

/// How long the story waits for what must come, on a machine that does much else.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause before something is asked again.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A master, known by its epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Master {
    pub(crate) server: usize,
    pub(crate) epoch: String,
}

/// When each epoch's master was surely the master: not later than the first, not earlier than the second.
type Reigns = BTreeMap<String, (usize, u64, u64)>;

/// The three servers. They end with this.
pub(crate) struct Servers {
    peers: String,
    addresses: Vec<String>,
    processes: BTreeMap<usize, Process>,
    /// Of processes that were killed.
    reigns: Reigns,
    /// A write that its master has begun and not ended.
    late: Option<BufReader<TcpStream>>,
}

impl Servers {
    pub(crate) fn start() -> Outcome<Servers> {
        let (peers, addresses) = (free_addresses(3)?, free_addresses(3)?);
        let mut servers = Servers {
            peers: numbered(&peers),
            addresses: addresses.iter().map(ToString::to_string).collect(),
            processes: BTreeMap::new(),
            reigns: Reigns::new(),
            late: None,
        };
        for server in 1..=3 {
            servers.restart(server)?;
        }
        Ok(servers)
    }

    /// Starts a server's next process.
    pub(crate) fn restart(&mut self, server: usize) -> Outcome<()> {
        let mut command = command(std::env::current_exe()?);
        let parent = std::process::id().to_string();
        command.args(["server", &parent, &server.to_string(), &self.peers]).args(&self.addresses);
        self.processes.insert(server, Process::start(command.stdout(Stdio::piped()))?);
        Ok(())
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self, server: usize) -> Outcome<()> {
        if let Some(process) = self.processes.remove(&server) {
            process.signal(Signal::KILL)?;
            note(server, &process.await_end(WAIT_TIMEOUT)?.1, &mut self.reigns);
        }
        Ok(())
    }

    /// Lets a server stand still, as a virtual machine that is moved would.
    pub(crate) fn stop(&self, server: usize) -> Outcome<()> {
        Ok(self.process(server)?.pause()?)
    }

    pub(crate) fn go_on(&self, server: usize) -> Outcome<()> {
        Ok(self.process(server)?.resume()?)
    }

    fn process(&self, server: usize) -> Outcome<&Process> {
        Ok(self.processes.get(&server).ok_or("the server does not run")?)
    }

    /// Waits for a master, a later one than that if one is given.
    pub(crate) fn master_above(&self, earlier: Option<&Master>) -> Outcome<Master> {
        let is_later = |master: &Master| earlier.is_none_or(|earlier| master.epoch > earlier.epoch);
        wait_for("a master", || self.masters().into_iter().find(is_later))
    }

    /// Everybody who says that it is the master; one that does not answer is none.
    fn masters(&self) -> Vec<Master> {
        let ask_one = |(server, address): (usize, &String)| match ask(address, "who") {
            Ok(epoch) if epoch != "backup" => Some(Master { server, epoch }),
            _ => None,
        };
        (1..).zip(&self.addresses).filter_map(ask_one).collect()
    }

    /// Writes through whoever is the master, and says how many copies took it: a majority, or it is tried again.
    pub(crate) fn write(&self, value: &str) -> Outcome<(Master, usize)> {
        wait_for("a write that a majority took", || {
            let master = self.masters().pop()?;
            let (_, mut reader) = self.begin(master.server, value)?;
            let reply = end(&mut reader)?;
            (reply.0 >= 2).then_some((master, reply.0))
        })
    }

    /// Has a master look at its lease for a write, and leaves it there.
    pub(crate) fn begin_late_write(&mut self, value: &str) -> Outcome<Master> {
        let (master, reader) = wait_for("a master that begins to write", || {
            let server = self.masters().pop()?.server;
            let (epoch, reader) = self.begin(server, value)?;
            Some((Master { server, epoch }, reader))
        })?;
        self.late = Some(reader);
        Ok(master)
    }

    /// Lets that write go on, and says how many copies took it and how many refused it.
    pub(crate) fn end_of_late_write(&mut self) -> Outcome<(usize, usize)> {
        let mut reader = self.late.take().ok_or("no write was begun")?;
        Ok(end(&mut reader).ok_or("the late write came to no end")?)
    }

    fn begin(&self, server: usize, value: &str) -> Option<(String, BufReader<TcpStream>)> {
        let stream = connect(self.addresses.get(server - 1)?).ok()?;
        writeln!(&stream, "write {value}").ok()?;
        let mut reader = BufReader::new(stream);
        let reply = read_line(&mut reader).ok()?;
        Some((reply.strip_prefix("checked ")?.to_owned(), reader))
    }

    /// What each server has.
    pub(crate) fn copies(&self) -> Outcome<Vec<(usize, String)>> {
        let mut copies = Vec::new();
        for (server, address) in (1..).zip(&self.addresses) {
            copies.push((server, wait_for("an answer", || ask(address, "read").ok())?));
        }
        Ok(copies)
    }

    /// How many masters there were, if never two at a time.
    pub(crate) fn masters_one_after_the_other(&self) -> Outcome<usize> {
        let mut reigns = self.reigns.clone();
        self.processes.iter().for_each(|(server, process)| note(*server, &process.lines(), &mut reigns));
        let mut latest: Option<(&String, usize, u64)> = None;
        for (epoch, (server, first, last)) in &reigns {
            if let Some((lower, earlier, until)) = latest
                && until > *first
            {
                let micros = (until - first) / 1_000;
                return Err(format!(
                    "two masters: server {earlier} under {lower} for {micros} us after server {server} was under {epoch}"
                )
                .into());
            }
            let until = latest.map_or(0, |(.., until)| until).max(*last);
            latest = Some((epoch, *server, until));
        }
        Ok(reigns.len())
    }
}

/// Lets a write go on that was begun, and says how many copies took it and how many refused.
fn end(reader: &mut BufReader<TcpStream>) -> Option<(usize, usize)> {
    let stream = reader.get_ref();
    stream.set_read_timeout(Some(WAIT_TIMEOUT)).ok()?;
    writeln!(&*stream, "go").ok()?;
    let reply = read_line(reader).ok()?;
    let (accepted, refused) = reply.split_once(' ')?;
    Some((accepted.parse().ok()?, refused.parse().ok()?))
}

/// Notes when a server said that it was the master.
fn note(server: usize, lines: &[String], reigns: &mut Reigns) {
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        if let [epoch, first, last] = words[..]
            && let (Ok(first), Ok(last)) = (first.parse::<u64>(), last.parse::<u64>())
        {
            let reign = reigns.entry(epoch.to_owned()).or_insert((server, first, last));
            (reign.1, reign.2) = (reign.1.min(first), reign.2.max(last));
        }
    }
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Outcome<T> {
    let since = Instant::now();
    while since.elapsed() < WAIT_TIMEOUT {
        if let Some(found) = look() {
            return Ok(found);
        }
        thread::sleep(POLL_INTERVAL);
    }
    Err(format!("not within {WAIT_TIMEOUT:?}: {what}").into())
}
