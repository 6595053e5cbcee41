//! One server: a copy of the register, and the master while it holds the cell.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use centrifuge::flease::{Cell, Flease, Lease, Peers};
use centrifuge_harness::signals::end_with;
use rustix::time::{ClockId, clock_gettime};

use crate::{EPSILON, LEASE, Outcome, ROUND};

/// The secret that the three share. Yours comes from a file.
const KEY: &[u8] = b"known to these three alone";
/// How often a server looks whether it is the master, to tell whoever started it.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// How often it tells.
const REPORT_INTERVAL_NANOS: u64 = 50_000_000;

/// A server's copy of the register.
#[derive(Default)]
struct Register {
    /// The highest epoch that wrote here. Its text compares as the epoch does.
    epoch: String,
    value: String,
}

impl Register {
    /// The fence: a write under a lower epoch than any before is that of a former master.
    fn accept(&mut self, epoch: &str, value: &str) -> bool {
        if epoch < self.epoch.as_str() {
            return false;
        }
        (self.epoch, self.value) = (epoch.to_owned(), value.to_owned());
        true
    }
}

/// What the threads of a server share.
struct Server {
    others: Vec<String>,
    register: Mutex<Register>,
    lease: Mutex<Option<Arc<Lease>>>,
}

/// Serves until it is killed. Is told which process started it, its number, the peers, and where the servers listen.
pub(crate) fn run(arguments: &[String]) -> Outcome<()> {
    let [parent, id, peers, addresses @ ..] = arguments else {
        return Err("which server is this?".into());
    };
    end_with(parent.parse()?)?;
    let (id, peers): (u16, Peers) = (id.parse()?, peers.parse()?);
    let me = usize::from(id) - 1;
    let own = addresses.get(me).ok_or("there is no address for this server")?;
    let listener = TcpListener::bind(own)?;
    let others = addresses.iter().filter(|address| *address != own).cloned().collect();
    let server = Arc::new(Server { others, register: Mutex::default(), lease: Mutex::default() });

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let flease = runtime
        .block_on(Flease::builder(peers, id).key(KEY).lease(LEASE).epsilon(EPSILON).round(ROUND).start())?;
    runtime.spawn(seek(flease.cell("master")?, Arc::clone(&server)));
    let watched = Arc::clone(&server);
    thread::spawn(move || tell(&watched));
    for stream in listener.incoming() {
        let server = Arc::clone(&server);
        // Whoever asked may be gone.
        thread::spawn(move || stream.and_then(|stream| server.answer(stream)));
    }
    Ok(())
}

/// Wants to be the master for ever.
async fn seek(cell: Cell, server: Arc<Server>) {
    while let Ok(lease) = cell.acquire().await {
        let lease = Arc::new(lease);
        *lock(&server.lease) = Some(Arc::clone(&lease));
        lease.ended().await;
        *lock(&server.lease) = None;
    }
}

impl Server {
    /// Answers line by line until the other side goes away.
    fn answer(&self, stream: TcpStream) -> io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let mut stream = stream;
        while let Some(line) = lines.next() {
            let line = line?;
            let words: Vec<&str> = line.split(' ').collect();
            let reply = match words[..] {
                ["who"] => self.valid_lease().map_or("backup".to_owned(), |lease| lease.epoch().to_string()),
                ["read"] => lock(&self.register).value.clone(),
                ["copy", epoch, value] => self.copy(epoch, value).to_owned(),
                ["write", value] => match self.valid_lease() {
                    None => "not the master".to_owned(),
                    Some(lease) => {
                        // What happens between this look and the write is beyond a master's control, and may take for ever.
                        writeln!(stream, "checked {}", lease.epoch())?;
                        lines.next().transpose()?;
                        self.write(&lease.epoch().to_string(), value)
                    }
                },
                _ => "what?".to_owned(),
            };
            writeln!(stream, "{reply}")?;
        }
        Ok(())
    }

    fn valid_lease(&self) -> Option<Arc<Lease>> {
        lock(&self.lease).clone().filter(|lease| lease.is_valid())
    }

    fn copy(&self, epoch: &str, value: &str) -> &'static str {
        if lock(&self.register).accept(epoch, value) { "accepted" } else { "refused" }
    }

    /// Sends a write to the other copies, then makes it in its own, and says how many took it and how many refused it. After a
    /// refusal there is another master, and its own copy stays as it is.
    fn write(&self, epoch: &str, value: &str) -> String {
        let line = format!("copy {epoch} {value}");
        let mut replies: Vec<String> =
            self.others.iter().filter_map(|other| ask(other, &line).ok()).collect();
        if replies.iter().all(|reply| reply == "accepted") {
            replies.push(self.copy(epoch, value).to_owned());
        }
        let count = |word: &str| replies.iter().filter(|reply| *reply == word).count();
        format!("{} {}", count("accepted"), count("refused"))
    }
}

/// Asks a server something, and waits for its answer for a while.
pub(crate) fn ask(address: &str, line: &str) -> io::Result<String> {
    let stream = connect(address)?;
    writeln!(&stream, "{line}")?;
    read_line(&mut BufReader::new(stream))
}

pub(crate) fn connect(address: &str) -> io::Result<TcpStream> {
    let address = address.parse().map_err(io::Error::other)?;
    let stream = TcpStream::connect_timeout(&address, ROUND)?;
    stream.set_read_timeout(Some(ROUND))?;
    Ok(stream)
}

pub(crate) fn read_line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    match reader.read_line(&mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end().to_owned()),
    }
}

/// Tells whoever started the server when it was surely the master, by a clock that all processes share.
fn tell(server: &Server) {
    let mut run: Option<(String, u64, u64)> = None;
    let mut told = 0;
    loop {
        let lease = lock(&server.lease).clone();
        let before = now();
        let epoch = lease.filter(|lease| lease.is_valid()).map(|lease| lease.epoch().to_string());
        let after = now();
        let continues = run.as_ref().map(|(epoch, ..)| epoch) == epoch.as_ref();
        if !continues || after - told > REPORT_INTERVAL_NANOS {
            if let Some((epoch, first, last)) = &run {
                println!("{epoch} {first} {last}");
            }
            told = after;
        }
        run = match (epoch, run) {
            (Some(_), Some((epoch, first, _))) if continues => Some((epoch, first, before)),
            (Some(epoch), _) => Some((epoch, after, before)),
            (None, _) => None,
        };
        thread::sleep(POLL_INTERVAL);
    }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
