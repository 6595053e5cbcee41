//! A real etcd on loopback, for measurements and tests: the system's own, on free ports, with data of its own.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

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
}

/// A cluster of nodes; they are killed when it is dropped.
#[derive(Debug)]
pub struct EtcdNodes {
    nodes: Vec<Child>,
    clients: Vec<SocketAddr>,
}

impl EtcdNodes {
    /// Starts so many nodes, with their data and logs in an existing folder, and waits until each of them answers.
    pub fn start(count: usize, folder: &Path) -> Result<EtcdNodes, NodesError> {
        let mut logs = folder.to_owned();
        for attempt in 0..TRIES {
            logs = folder.join(format!("etcd-{attempt}"));
            fs::create_dir(&logs)?;
            let mut cluster = EtcdNodes::spawn(count, &logs)?;
            if cluster.become_healthy() {
                return Ok(cluster);
            }
        }
        Err(NodesError::Silent { logs })
    }

    /// Where clients connect.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        self.clients.iter().map(|address| format!("http://{address}")).collect()
    }

    fn spawn(count: usize, folder: &Path) -> Result<EtcdNodes, NodesError> {
        let addresses = free_addresses(count * 2)?;
        let (clients, peers) = addresses.split_at(count);
        let mut cluster = EtcdNodes { nodes: Vec::new(), clients: clients.to_vec() };
        for (number, (client, peer)) in clients.iter().zip(peers).enumerate() {
            let log = File::create(folder.join(format!("n{number}.log")))?;
            let node = Command::new("etcd")
                .args(arguments(number, *client, *peer, peers, folder))
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log)
                .spawn();
            cluster.nodes.push(node.map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => NodesError::NotInstalled,
                _ => NodesError::Io(error),
            })?);
        }
        Ok(cluster)
    }

    /// Waits for all nodes; false if one has ended or the time is up.
    fn become_healthy(&mut self) -> bool {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if self.clients.iter().all(is_healthy) {
                return true;
            }
            if self.nodes.iter_mut().any(|node| !matches!(node.try_wait(), Ok(None))) {
                return false;
            }
            thread::sleep(LOOK);
        }
        false
    }
}

impl Drop for EtcdNodes {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            // It may have ended by itself.
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

fn arguments(
    number: usize,
    client: SocketAddr,
    peer: SocketAddr,
    peers: &[SocketAddr],
    folder: &Path,
) -> Vec<String> {
    let url = |address: SocketAddr| format!("http://{address}");
    let member = |(number, peer): (usize, &SocketAddr)| format!("n{number}={}", url(*peer));
    let cluster: Vec<String> = peers.iter().enumerate().map(member).collect();
    let pairs = [
        ("--name", format!("n{number}")),
        ("--data-dir", folder.join(format!("n{number}")).display().to_string()),
        ("--listen-client-urls", url(client)),
        ("--advertise-client-urls", url(client)),
        ("--listen-peer-urls", url(peer)),
        ("--initial-advertise-peer-urls", url(peer)),
        ("--initial-cluster", cluster.join(",")),
        ("--initial-cluster-token", folder.display().to_string()),
        ("--logger", "zap".to_owned()),
    ];
    pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

/// A node that has a leader says so.
fn is_healthy(client: &SocketAddr) -> bool {
    let ask = || -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(client, ANSWER)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.write_all(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains("\"true\""))
}

fn free_addresses(count: usize) -> io::Result<Vec<SocketAddr>> {
    // All at once, so that none is given twice.
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<io::Result<_>>()?;
    listeners.iter().map(TcpListener::local_addr).collect()
}
