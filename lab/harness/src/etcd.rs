//! A real etcd on loopback: the system's own program, on free ports, with data of its own.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::lock;
use crate::ports::free_addresses_on;
use crate::process::{Process, command, log_to};

/// However slow the machine, all nodes answer by then.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Others may take a port between its choice and its use: then all are chosen anew.
const MAX_STARTS: usize = 5;
/// How long one health check may take.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the nodes are asked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Options of nodes beyond those that every node needs.
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
    folder: PathBuf,
}

/// One node, whose process may be dead.
#[derive(Debug)]
struct Node {
    arguments: Vec<String>,
    /// Where clients connect.
    endpoint: String,
    /// Says without TLS how the node is.
    health: SocketAddr,
    log: PathBuf,
    process: Mutex<Option<Process>>,
}

impl EtcdNodes {
    /// Starts so many nodes, with their data and logs in an existing folder, and waits until each of them answers.
    pub fn start(count: usize, folder: &Path) -> io::Result<EtcdNodes> {
        EtcdNodes::start_with(count, folder, &NodeOptions::default())
    }

    /// The same for a task: starting waits, which its thread must not.
    pub async fn launch(count: usize, folder: &Path) -> io::Result<EtcdNodes> {
        let folder = folder.to_owned();
        tokio::task::spawn_blocking(move || EtcdNodes::start(count, &folder)).await?
    }

    /// The same, with further options.
    pub fn start_with(count: usize, folder: &Path, options: &NodeOptions) -> io::Result<EtcdNodes> {
        let mut logs = folder.to_owned();
        for attempt in 0..MAX_STARTS {
            logs = folder.join(format!("etcd-{attempt}"));
            fs::create_dir(&logs)?;
            let cluster = EtcdNodes::new(count, &logs, options)?;
            cluster.nodes.iter().try_for_each(Node::start)?;
            let until = Instant::now() + START_TIMEOUT;
            if cluster.nodes.iter().all(|node| node.becomes_healthy(until)) {
                return Ok(cluster);
            }
        }
        Err(no_answer(&logs))
    }

    fn new(count: usize, folder: &Path, options: &NodeOptions) -> io::Result<EtcdNodes> {
        let scheme = if options.tls { "https" } else { "http" };
        // Certificates of tests name this address.
        let free = free_addresses_on(Ipv4Addr::LOCALHOST, count * 3)?;
        let (clients, free) = free.split_at(count);
        let (peers, health) = free.split_at(count);
        let name = |number: usize| format!("n{number}");
        let members: Vec<(String, SocketAddr)> =
            peers.iter().enumerate().map(|(number, peer)| (name(number), *peer)).collect();
        let node = |number: usize| {
            let endpoint = format!("{scheme}://{}", clients[number]);
            let data = folder.join(name(number));
            let mut arguments = node_arguments(&members, number, &endpoint, &data);
            arguments.push(format!("--listen-metrics-urls=http://{}", health[number]));
            arguments.extend(options.arguments.iter().cloned());
            let log = folder.join(format!("{}.log", name(number)));
            Node { arguments, endpoint, health: health[number], log, process: Mutex::new(None) }
        };
        Ok(EtcdNodes { nodes: (0..count).map(node).collect(), folder: folder.to_owned() })
    }

    /// Where clients connect.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.endpoint.clone()).collect()
    }

    /// Kills a node, as a failing machine would.
    pub fn kill(&self, number: usize) {
        lock(&self.nodes[number].process).take();
    }

    /// Starts a node that was killed, on its data, and does not wait for it. One that runs goes on.
    pub fn restart(&self, number: usize) -> io::Result<()> {
        self.nodes[number].start()
    }

    /// Stops a node where it is: connections stay open and nothing is answered.
    pub fn pause(&self, number: usize) -> io::Result<()> {
        lock(&self.nodes[number].process).as_ref().map_or_else(|| Err(dead(number)), Process::pause)
    }

    /// Lets a node that was stopped go on.
    pub fn resume(&self, number: usize) -> io::Result<()> {
        lock(&self.nodes[number].process).as_ref().map_or_else(|| Err(dead(number)), Process::resume)
    }

    /// Waits until a node that was started answers.
    pub fn await_node(&self, number: usize) -> io::Result<()> {
        let is_healthy = self.nodes[number].becomes_healthy(Instant::now() + START_TIMEOUT);
        if is_healthy { Ok(()) } else { Err(no_answer(&self.folder)) }
    }
}

impl Node {
    fn start(&self) -> io::Result<()> {
        let mut process = lock(&self.process);
        if process.as_mut().is_none_or(|process| process.check().is_err()) {
            let mut etcd = command("etcd");
            *process =
                Some(Process::start(log_to(etcd.args(&self.arguments), &self.log)?).map_err(explained)?);
        }
        Ok(())
    }

    /// Waits until it answers; false if it has ended or the time is up.
    fn becomes_healthy(&self, until: Instant) -> bool {
        while !self.is_healthy() {
            let has_ended = lock(&self.process).as_mut().is_none_or(|process| process.check().is_err());
            if has_ended || Instant::now() >= until {
                return false;
            }
            thread::sleep(POLL_INTERVAL);
        }
        true
    }

    /// A node that has a leader says so.
    fn is_healthy(&self) -> bool {
        let ask = || -> io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&self.health, HEALTH_TIMEOUT)?;
            stream.set_read_timeout(Some(HEALTH_TIMEOUT))?;
            stream.write_all(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        ask().is_ok_and(|answer| answer.contains("\"true\""))
    }
}

/// The arguments that every node needs: who its members are, by name and address, which of them it is, where its
/// clients connect and where its data is.
#[must_use]
pub fn node_arguments(
    members: &[(String, SocketAddr)],
    number: usize,
    endpoint: &str,
    data: &Path,
) -> Vec<String> {
    let (name, peer) = &members[number];
    let peer = format!("http://{peer}");
    let cluster: Vec<String> = members.iter().map(|(name, peer)| format!("{name}=http://{peer}")).collect();
    let options = [
        ("name", name.as_str()),
        ("data-dir", &data.display().to_string()),
        ("listen-client-urls", endpoint),
        ("advertise-client-urls", endpoint),
        ("listen-peer-urls", &peer),
        ("initial-advertise-peer-urls", &peer),
        ("initial-cluster", &cluster.join(",")),
        ("initial-cluster-state", "new"),
        // Nodes of another run that had the same ports are refused.
        ("initial-cluster-token", &data.with_file_name("").display().to_string()),
        ("logger", "zap"),
    ];
    options.into_iter().map(|(option, value)| format!("--{option}={value}")).collect()
}

/// What to do if etcd cannot be run.
#[must_use]
pub fn explained(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(
            io::ErrorKind::NotFound,
            "etcd is not installed: install it, on Debian with `apt-get install etcd-server`, and try again",
        ),
        kind => io::Error::new(kind, format!("etcd cannot be started: {error}")),
    }
}

fn no_answer(logs: &Path) -> io::Error {
    io::Error::other(format!(
        "etcd did not answer within {START_TIMEOUT:?}: see its logs in {}",
        logs.display()
    ))
}

fn dead(number: usize) -> io::Error {
    io::Error::other(format!("node {number} of etcd is dead: restart it first"))
}
