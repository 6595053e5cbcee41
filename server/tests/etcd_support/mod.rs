//! A real etcd cluster on loopback: its own data, free ports, and processes that end with it.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::fs::File;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use centrifuge_core::id::ManagerId;
use centrifuge_server::store::{Backend, Candidate, EtcdOptions};
use rustix::process::{Pid, Signal, kill_process};

/// However slow the machine, a cluster is there by then.
const PATIENCE: Duration = Duration::from_secs(60);
/// Others may take a port between its choice and its use: then all are chosen anew.
const TRIES: usize = 5;

/// A cluster that ends when it is dropped, also when a test panics.
pub struct Etcd {
    /// Behind the processes, which are ended first.
    nodes: Vec<Mutex<Node>>,
    endpoints: Vec<String>,
    /// What etcdctl needs besides.
    control: Vec<String>,
    _folder: tempfile::TempDir,
}

struct Node {
    arguments: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
}

impl Etcd {
    /// A cluster of so many nodes that answers.
    pub fn start(nodes: usize) -> Etcd {
        Etcd::start_with(nodes, &[])
    }

    /// The same, with further arguments for each node.
    pub fn start_with(nodes: usize, extra: &[&str]) -> Etcd {
        let extra: Vec<String> = extra.iter().map(|extra| (*extra).to_owned()).collect();
        Etcd::try_start(|| Etcd::spawn(nodes, "http", &extra, Vec::new()))
    }

    /// One node that speaks TLS and asks for a certificate.
    pub fn start_secure(certificates: &Certificates) -> Etcd {
        let path = |name: &str| certificates.path(name).display().to_string();
        let node = [
            ("--cert-file", path("server.pem")),
            ("--key-file", path("server.key")),
            ("--trusted-ca-file", path("ca.pem")),
        ];
        let node = node.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        let node: Vec<String> = node.chain(["--client-cert-auth".to_owned()]).collect();
        let control = vec![
            format!("--cacert={}", path("ca.pem")),
            format!("--cert={}", path("client.pem")),
            format!("--key={}", path("client.key")),
        ];
        Etcd::try_start(|| Etcd::spawn(1, "https", &node, control.clone()))
    }

    fn try_start(spawn: impl Fn() -> Etcd) -> Etcd {
        for _ in 0..TRIES {
            let etcd = spawn();
            if etcd.wait_until_healthy() {
                return etcd;
            }
        }
        panic!("no etcd cluster in {TRIES} tries");
    }

    /// The cluster that the tests of one process share; it ends with the last of them.
    pub fn shared() -> Arc<Etcd> {
        static SHARED: Mutex<Weak<Etcd>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let etcd = Arc::new(Etcd::start(3));
            *shared = Arc::downgrade(&etcd);
            etcd
        })
    }

    fn spawn(count: usize, scheme: &str, extra: &[String], control: Vec<String>) -> Etcd {
        // Memory, where there is such a folder: a test need not wait for a disk.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
        let ports = free_ports(count * 2);
        let (clients, peers) = ports.split_at(count);
        let url = |port: &u16| format!("http://127.0.0.1:{port}");
        let client_url = |port: &u16| format!("{scheme}://127.0.0.1:{port}");
        let cluster: Vec<String> =
            peers.iter().enumerate().map(|(number, port)| format!("n{number}={}", url(port))).collect();
        let nodes = (0..count)
            .map(|number| {
                let pairs = [
                    ("--name", format!("n{number}")),
                    ("--data-dir", folder.path().join(format!("n{number}")).display().to_string()),
                    ("--listen-client-urls", client_url(&clients[number])),
                    ("--advertise-client-urls", client_url(&clients[number])),
                    ("--listen-peer-urls", url(&peers[number])),
                    ("--initial-advertise-peer-urls", url(&peers[number])),
                    ("--initial-cluster", cluster.join(",")),
                    ("--initial-cluster-token", folder.path().display().to_string()),
                    ("--logger", "zap".to_owned()),
                ];
                let arguments = pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
                let arguments = arguments.chain(extra.iter().cloned()).collect();
                let log = folder.path().join(format!("n{number}.log"));
                let mut node = Node { arguments, log, child: None };
                node.start();
                Mutex::new(node)
            })
            .collect();
        Etcd { nodes, endpoints: clients.iter().map(client_url).collect(), control, _folder: folder }
    }

    fn wait_until_healthy(&self) -> bool {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if self.etcdctl(&["endpoint", "health"]).status.success() {
                return true;
            }
            let ended = |node: &Mutex<Node>| lock(node).has_ended();
            if self.nodes.iter().any(ended) {
                return false;
            }
            thread::sleep(Duration::from_millis(50));
        }
        false
    }

    /// Where the nodes are.
    pub fn endpoints(&self) -> &[String] {
        &self.endpoints
    }

    /// A store under a prefix of its own.
    pub fn options(&self) -> EtcdOptions {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        EtcdOptions { prefix: format!("/test-{number}/"), ..EtcdOptions::new(self.endpoints.clone()) }
    }

    /// Runs etcdctl against all nodes.
    pub fn etcdctl(&self, arguments: &[&str]) -> Output {
        Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints={}", self.endpoints.join(",")))
            .args(&self.control)
            .args(arguments)
            .output()
            .expect(INSTALL)
    }

    /// Runs etcdctl, which must succeed, and gives what it prints.
    pub fn control(&self, arguments: &[&str]) -> String {
        let output = self.etcdctl(arguments);
        assert!(
            output.status.success(),
            "etcdctl {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Kills a node, as a failing machine would.
    pub fn kill(&self, number: usize) {
        lock(&self.nodes[number]).kill();
    }

    /// Starts a node that was killed, on its data.
    pub fn restart(&self, number: usize) {
        lock(&self.nodes[number]).start();
    }

    /// Stops a node where it is: connections stay open and nothing is answered.
    pub fn pause(&self, number: usize) {
        lock(&self.nodes[number]).signal(Signal::STOP);
    }

    /// Lets a node that was stopped go on.
    pub fn resume(&self, number: usize) {
        lock(&self.nodes[number]).signal(Signal::CONT);
    }

    /// Waits until a node that was started answers.
    pub fn wait_for(&self, number: usize) {
        let until = Instant::now() + PATIENCE;
        let endpoint = format!("--endpoints={}", self.endpoints[number]);
        let healthy = || {
            let mut health = Command::new("etcdctl");
            health.env("ETCDCTL_API", "3").args([&endpoint, "endpoint", "health"]);
            health.output().expect(INSTALL).status.success()
        };
        while !healthy() {
            assert!(Instant::now() < until, "the node does not come back");
            thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn pause_all(&self) {
        (0..self.nodes.len()).for_each(|number| self.pause(number));
    }

    pub fn resume_all(&self) {
        (0..self.nodes.len()).for_each(|number| self.resume(number));
    }
}

const INSTALL: &str = "etcd is not installed: run `cargo xtask tools`";

impl Node {
    fn start(&mut self) {
        assert!(self.child.is_none(), "the node runs");
        let log = File::options().create(true).append(true).open(&self.log).expect("a log");
        let child = Command::new("etcd")
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect(INSTALL);
        self.child = Some(child);
    }

    fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| child.try_wait().is_ok_and(|status| status.is_some()))
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("the node runs");
        kill_process(Pid::from_child(child), signal).expect("the node runs");
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // One that was stopped ends as well.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

fn lock(node: &Mutex<Node>) -> MutexGuard<'_, Node> {
    node.lock().unwrap_or_else(PoisonError::into_inner)
}

fn free_ports(count: usize) -> Vec<u16> {
    // All at once, so that none is given twice.
    let listeners: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
    listeners.iter().map(|listener| listener.local_addr().expect("bound").port()).collect()
}

/// A Manager whose etcd lease does not end by itself while a test runs.
pub fn candidate(name: &str) -> Candidate {
    Candidate { manager: ManagerId::from(name), leader_hold: Duration::from_secs(600) }
}

/// A Manager with etcd's shortest lease, two seconds, which nobody renews.
pub fn short_lived(name: &str) -> Candidate {
    Candidate { leader_hold: Duration::from_millis(1_900), ..candidate(name) }
}

/// The store as a backend.
pub fn backend(options: &EtcdOptions) -> Backend {
    Backend::Etcd(Box::new(options.clone()))
}

/// An authority, and certificates of it for a node and for a client, as files.
pub struct Certificates {
    folder: tempfile::TempDir,
}

impl Certificates {
    pub fn new() -> Certificates {
        use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
        let certificates = Certificates { folder: tempfile::tempdir().expect("a folder") };
        let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer =
            CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a key")).expect("signed");
        certificates.write("ca.pem", &issuer.pem());
        for (name, subject) in [("server", "127.0.0.1"), ("client", "manager")] {
            let key = KeyPair::generate().expect("a key");
            let parameters = CertificateParams::new(vec![subject.to_owned()]).expect("parameters");
            let certificate = parameters.signed_by(&key, &issuer).expect("signed");
            certificates.write(&format!("{name}.pem"), &certificate.pem());
            certificates.write(&format!("{name}.key"), &key.serialize_pem());
        }
        certificates
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("written");
    }
}
