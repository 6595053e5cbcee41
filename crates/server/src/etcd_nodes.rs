//! A real etcd on loopback, for measurements and tests: the system's own, on free ports, with data of its own.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::stop::await_stopped;

/// However slow the machine, all nodes answer by then.
const PATIENCE: Duration = Duration::from_secs(60);
/// Others may take a port between its choice and its use: then all are chosen anew.
const TRIES: usize = 5;
/// How long one question may take.
const ANSWER: Duration = Duration::from_secs(1);
/// How often the nodes are asked.
const LOOK: Duration = Duration::from_millis(50);

/// Why there is no etcd.
#[derive(Debug, thiserror::Error)]
pub enum NodesError {
    /// There is no such program.
    #[error("etcd is not installed: install it, on Debian with `apt-get install etcd-server`, and try again")]
    NotInstalled,
    /// The operating system refused.
    #[error("etcd cannot be started: {0}")]
    Io(#[from] io::Error),
    /// The nodes run and do not answer.
    #[error("etcd did not answer within {PATIENCE:?}: see its logs in {}", logs.display())]
    Silent {
        /// Where its logs are.
        logs: PathBuf,
    },
    /// A dead node was to be stopped or continued.
    #[error("node {number} of etcd is dead: restart it first")]
    Dead {
        /// The node.
        number: usize,
    },
}

impl NodesError {
    fn of(error: io::Error) -> NodesError {
        match error.kind() {
            io::ErrorKind::NotFound => NodesError::NotInstalled,
            _ => NodesError::Io(error),
        }
    }
}

/// What nodes are told beyond what every node needs.
#[derive(Clone, Debug, Default)]
pub struct NodeOptions {
    /// Further arguments of each node.
    pub arguments: Vec<String>,
    /// Whether clients must speak TLS. The certificates are among the arguments.
    pub tls: bool,
}

/// A cluster of nodes; they are killed when it is dropped.
#[derive(Debug)]
pub struct EtcdNodes {
    nodes: Vec<Node>,
    options: NodeOptions,
    folder: PathBuf,
}

/// One process, or none while it is dead.
#[derive(Debug)]
struct Node {
    arguments: Vec<String>,
    addresses: Addresses,
    log: PathBuf,
    running: Mutex<Option<Child>>,
}

/// Where a node listens.
#[derive(Clone, Copy, Debug)]
struct Addresses {
    client: SocketAddr,
    peer: SocketAddr,
    /// Says without TLS how the node is.
    health: SocketAddr,
}

impl EtcdNodes {
    /// Starts so many nodes, with their data and logs in an existing folder, and waits until each of them answers.
    pub fn start(count: usize, folder: &Path) -> Result<EtcdNodes, NodesError> {
        EtcdNodes::start_with(count, folder, &NodeOptions::default())
    }

    /// The same, with nodes that are told something more.
    pub fn start_with(count: usize, folder: &Path, options: &NodeOptions) -> Result<EtcdNodes, NodesError> {
        let mut logs = folder.to_owned();
        for attempt in 0..TRIES {
            logs = folder.join(format!("etcd-{attempt}"));
            fs::create_dir(&logs)?;
            let cluster = EtcdNodes::new(count, &logs, options.clone())?;
            cluster.nodes.iter().try_for_each(Node::start)?;
            if cluster.become_healthy() {
                return Ok(cluster);
            }
        }
        Err(NodesError::Silent { logs })
    }

    /// Where clients connect.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        let scheme = if self.options.tls { "https" } else { "http" };
        self.nodes.iter().map(|node| format!("{scheme}://{}", node.addresses.client)).collect()
    }

    /// Kills a node, as a failing machine would.
    pub fn kill(&self, number: usize) {
        self.nodes[number].kill();
    }

    /// Starts a node that was killed, on its data, and does not wait for it. One that runs goes on.
    pub fn restart(&self, number: usize) -> Result<(), NodesError> {
        self.nodes[number].start()
    }

    /// Stops a node where it is: connections stay open and nothing is answered.
    pub fn pause(&self, number: usize) -> Result<(), NodesError> {
        self.signal(number, Signal::STOP)?;
        match &*self.nodes[number].running() {
            Some(child) => Ok(await_stopped(child.id())?),
            None => Err(NodesError::Dead { number }),
        }
    }

    /// Lets a node that was stopped go on.
    pub fn resume(&self, number: usize) -> Result<(), NodesError> {
        self.signal(number, Signal::CONT)
    }

    fn signal(&self, number: usize, signal: Signal) -> Result<(), NodesError> {
        match &*self.nodes[number].running() {
            Some(child) => Ok(kill_process(Pid::from_child(child), signal).map_err(io::Error::from)?),
            None => Err(NodesError::Dead { number }),
        }
    }

    /// Waits until a node answers that was started.
    pub fn await_node(&self, number: usize) -> Result<(), NodesError> {
        if self.nodes[number].becomes_healthy(Instant::now() + PATIENCE) {
            Ok(())
        } else {
            Err(NodesError::Silent { logs: self.folder.clone() })
        }
    }

    fn new(count: usize, folder: &Path, options: NodeOptions) -> Result<EtcdNodes, NodesError> {
        let addresses = free_addresses(count)?;
        let member = |(number, of): (usize, &Addresses)| format!("n{number}=http://{}", of.peer);
        let cluster: Vec<String> = addresses.iter().enumerate().map(member).collect();
        let node = |(number, addresses): (usize, &Addresses)| Node {
            arguments: arguments(number, addresses, &cluster.join(","), folder, &options),
            addresses: *addresses,
            log: folder.join(format!("n{number}.log")),
            running: Mutex::new(None),
        };
        let nodes = addresses.iter().enumerate().map(node).collect();
        Ok(EtcdNodes { nodes, options, folder: folder.to_owned() })
    }

    /// Waits for all nodes; false if one has ended or the time is up.
    fn become_healthy(&self) -> bool {
        let until = Instant::now() + PATIENCE;
        self.nodes.iter().all(|node| node.becomes_healthy(until))
    }
}

impl Node {
    fn start(&self) -> Result<(), NodesError> {
        let mut running = self.running();
        if running.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None))) {
            return Ok(());
        }
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new("etcd");
        command.args(&self.arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        *running = Some(command.spawn().map_err(NodesError::of)?);
        Ok(())
    }

    /// Waits until it answers; false if it has ended or the time is up.
    fn becomes_healthy(&self, until: Instant) -> bool {
        while !self.is_healthy() {
            if self.has_ended() || Instant::now() >= until {
                return false;
            }
            thread::sleep(LOOK);
        }
        true
    }

    /// A node that has a leader says so.
    fn is_healthy(&self) -> bool {
        let ask = || -> io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&self.addresses.health, ANSWER)?;
            stream.set_read_timeout(Some(ANSWER))?;
            stream.write_all(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        ask().is_ok_and(|answer| answer.contains("\"true\""))
    }

    fn has_ended(&self) -> bool {
        self.running().as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    fn kill(&self) {
        if let Some(mut child) = self.running().take() {
            // It may have ended by itself; one that was stopped ends as well.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<Child>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

fn arguments(
    number: usize,
    addresses: &Addresses,
    cluster: &str,
    folder: &Path,
    options: &NodeOptions,
) -> Vec<String> {
    let url = |address: SocketAddr| format!("http://{address}");
    let clients = if options.tls { format!("https://{}", addresses.client) } else { url(addresses.client) };
    let pairs = [
        ("--name", format!("n{number}")),
        ("--data-dir", folder.join(format!("n{number}")).display().to_string()),
        ("--listen-client-urls", clients.clone()),
        ("--advertise-client-urls", clients),
        ("--listen-metrics-urls", url(addresses.health)),
        ("--listen-peer-urls", url(addresses.peer)),
        ("--initial-advertise-peer-urls", url(addresses.peer)),
        ("--initial-cluster", cluster.to_owned()),
        ("--initial-cluster-token", folder.display().to_string()),
        ("--logger", "zap".to_owned()),
    ];
    let pairs = pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
    pairs.chain(options.arguments.iter().cloned()).collect()
}

fn free_addresses(count: usize) -> io::Result<Vec<Addresses>> {
    // All at once, so that none is given twice.
    let listeners: Vec<TcpListener> =
        (0..count * 3).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<io::Result<_>>()?;
    let free: Vec<SocketAddr> = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<_>>()?;
    let of = |three: &[SocketAddr]| Addresses { client: three[0], peer: three[1], health: three[2] };
    Ok(free.chunks_exact(3).map(of).collect())
}
