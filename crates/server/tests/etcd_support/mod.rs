//! A real etcd cluster on loopback: its own data, free ports, and processes that end with it.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use centrifuge_core::id::ManagerId;
use centrifuge_harness::pki::{Authority, replace};
use centrifuge_harness::{EtcdNodes, NodeOptions};
use centrifuge_server::store::{Backend, Candidate, EtcdOptions};

/// A cluster that ends when it is dropped, also when a test panics.
pub struct Etcd {
    nodes: EtcdNodes,
    endpoints: Vec<String>,
    /// What etcdctl needs besides.
    control: Vec<String>,
    /// Behind the nodes, which are ended first.
    _folder: tempfile::TempDir,
}

impl Etcd {
    /// A cluster of so many nodes that answers.
    pub fn start(nodes: usize) -> Etcd {
        Etcd::start_with(nodes, &[])
    }

    /// The same, with further arguments for each node.
    pub fn start_with(nodes: usize, extra: &[&str]) -> Etcd {
        let arguments = extra.iter().map(|extra| (*extra).to_owned()).collect();
        Etcd::started(nodes, &NodeOptions { arguments, tls: false }, Vec::new())
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
        let arguments = node.chain(["--client-cert-auth".to_owned()]).collect();
        let control = vec![
            format!("--cacert={}", path("ca.pem")),
            format!("--cert={}", path("client.pem")),
            format!("--key={}", path("client.key")),
        ];
        Etcd::started(1, &NodeOptions { arguments, tls: true }, control)
    }

    fn started(count: usize, options: &NodeOptions, control: Vec<String>) -> Etcd {
        // Memory, where there is such a folder: a test need not wait for a disk.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
        let nodes = EtcdNodes::start_with(count, folder.path(), options).expect("an etcd");
        Etcd { endpoints: nodes.endpoints(), nodes, control, _folder: folder }
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
            .expect("etcdctl is not installed: run `cargo xtask tools`")
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
        self.nodes.kill(number);
    }

    /// Starts a node that was killed, on its data.
    pub fn restart(&self, number: usize) {
        self.nodes.restart(number).expect("started");
    }

    /// Stops a node where it is: connections stay open and nothing is answered.
    pub fn pause(&self, number: usize) {
        self.nodes.pause(number).expect("the node runs");
    }

    /// Lets a node that was stopped go on.
    pub fn resume(&self, number: usize) {
        self.nodes.resume(number).expect("the node runs");
    }

    /// Waits until a node that was started answers.
    pub fn wait_for(&self, number: usize) {
        self.nodes.await_node(number).expect("the node comes back");
    }

    pub fn pause_all(&self) {
        (0..self.endpoints.len()).for_each(|number| self.pause(number));
    }

    pub fn resume_all(&self) {
        (0..self.endpoints.len()).for_each(|number| self.resume(number));
    }
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
        let certificates = Certificates { folder: tempfile::tempdir().expect("a folder") };
        let authority = Authority::new("test authority").expect("an authority");
        replace(&certificates.path("ca.pem"), authority.pem()).expect("written");
        let hour = Duration::from_secs(3600);
        let (from, to) = (SystemTime::now() - hour, SystemTime::now() + hour);
        for (name, subject) in [("server", "127.0.0.1"), ("client", "manager")] {
            let issued = authority.issue(&[subject.to_owned()], subject, from, to).expect("signed");
            let [cert, key] = ["pem", "key"].map(|kind| certificates.path(&format!("{name}.{kind}")));
            issued.replace(&cert, &key).expect("written");
        }
        certificates
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
