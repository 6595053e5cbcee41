//! The certificates and policies of a run under TLS: who has which, and how each is replaced.
//!
//! Every client has an identity of its own and a certificate with a short life. A Manager has its own certificate and
//! its own copy of the policy, so that Managers differ for a while after a change.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use centrifuge_harness::Rng;
use centrifuge_harness::pki::{Authority, Issued, replace};
use tokio::time::Instant;

use super::addresses::{Addresses, Node, Part};
use crate::bug::Bug;
use crate::plan::Sizes;
use crate::roles::TlsFiles;

/// The identities of those who are no part of the pool: who gives orders, and who reads metrics.
pub(crate) const OPERATOR: &str = "operator";
pub(crate) const OBSERVER: &str = "observer";

/// How long a client's certificate counts. Some seconds, so that many run out.
const SHORTEST_LIFE: Duration = Duration::from_secs(5);
const LONGEST_LIFE: Duration = Duration::from_secs(9);
/// How long before its end the next one is there. A certificate ends with a whole second, up to one earlier than asked.
const EARLIEST_RENEWAL: Duration = Duration::from_millis(4_000);
const LATEST_RENEWAL: Duration = Duration::from_millis(2_500);
/// How long a Manager's certificate counts, and since when every certificate has.
const HOUR: Duration = Duration::from_secs(3_600);
/// How often it is looked at whose certificate is due while the pool comes up.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What each needs, and nothing else. A placeholder ties an Owner's name to its identity.
const RULES: [&str; 5] = [
    "who = [\"spiffe://chaos/owner/{name}\"]\nmay = [\"own\"]\nnamespaces = [\"chaos\"]\nowner_names = [\"{name}\"]\n",
    "who = [\"spiffe://chaos/caller/*\"]\nmay = [\"lookup\"]\nnamespaces = [\"chaos\"]\n",
    "who = [\"spiffe://chaos/operator\"]\nmay = [\"view\", \"operate\"]\nnamespaces = [\"chaos\"]\n",
    "who = [\"spiffe://chaos/operator\"]\nmay = [\"administer\"]\nnamespaces = [\"chaos\"]\n",
    "who = [\"spiffe://chaos/observer\"]\nmay = [\"metrics\"]\nnamespaces = [\"*\"]\n",
];
/// A rule about somebody who does not exist.
const HARMLESS_RULE: &str = "who = [\"spiffe://chaos/auditor\"]\nmay = [\"view\"]\nnamespaces = [\"*\"]\n";
/// A rule that no policy can have.
const BROKEN_RULE: &str = "who = 7\n";

/// The files of a run.
pub(crate) struct Certificates {
    folder: PathBuf,
    rng: Rng,
    /// Who issues certificates.
    authority: Authority,
    /// Who is trusted as well: the next to issue, or the last who did.
    other: Option<Authority>,
    /// Under which addresses clients know each Manager.
    managers: BTreeMap<Node, Vec<String>>,
    /// When the certificate of each client is renewed.
    clients: BTreeMap<String, Instant>,
    /// Managers of whose files one is broken.
    broken: BTreeSet<Node>,
    /// How many certificates of clients were renewed.
    pub(super) renewed: u64,
    /// Whose certificate is never renewed, by mistake.
    forgotten: Option<String>,
}

impl Certificates {
    /// Makes the files of everybody, in a folder of their own.
    pub(super) fn new(
        directory: &Path,
        addresses: &Addresses,
        sizes: Sizes,
        bug: Option<Bug>,
        rng: Rng,
    ) -> io::Result<Certificates> {
        let folder = directory.join("tls");
        std::fs::create_dir_all(&folder)?;
        let hosts = |node: Node| {
            (node, vec![addresses.of(node).to_string(), addresses.stand_in(node.index).to_string()])
        };
        let clients =
            Node::all(sizes).into_iter().filter(|node| matches!(node.part, Part::Owner | Part::Caller));
        let names = clients.map(|node| node.to_string()).chain([OPERATOR, OBSERVER].map(str::to_owned));
        let mut certificates = Certificates {
            folder,
            rng,
            authority: Authority::new("chaos")?,
            other: None,
            managers: Part::Manager.nodes(sizes.managers).map(hosts).collect(),
            clients: names.map(|name| (name, Instant::now())).collect(),
            broken: BTreeSet::new(),
            renewed: 0,
            forgotten: (bug == Some(Bug::ForgottenCertificate)).then(|| Part::Owner.node(0).to_string()),
        };
        certificates.trust()?;
        for manager in Part::Manager.nodes(sizes.managers) {
            certificates.issue_to_manager(manager)?;
            certificates.write_policy(manager)?;
        }
        let names: Vec<String> = certificates.clients.keys().cloned().collect();
        names.iter().try_for_each(|name| certificates.issue_to_client(name))?;
        Ok(certificates)
    }

    fn path(&self, name: impl std::fmt::Display, kind: &str) -> PathBuf {
        self.folder.join(format!("{name}.{kind}"))
    }

    /// What a client uses.
    pub(crate) fn files_of(&self, client: impl std::fmt::Display) -> TlsFiles {
        let [cert, key] = ["pem", "key"].map(|kind| self.path(&client, kind));
        TlsFiles { ca: self.path("ca", "pem"), cert, key }
    }

    /// What a Manager is told.
    pub(super) fn manager_options(&self, manager: Node) -> Vec<(&'static str, String)> {
        let TlsFiles { ca, cert, key } = self.files_of(manager);
        let files = [
            ("tls-cert", cert),
            ("tls-key", key),
            ("tls-client-ca", ca),
            ("policy", self.path(manager, "toml")),
        ];
        files.map(|(name, path)| (name, path.display().to_string())).into()
    }

    /// Renews what runs out soon. Whoever is starting may be between two files, and waits.
    pub(super) fn renew_due(&mut self, starting: &BTreeSet<String>) -> io::Result<()> {
        let now = Instant::now();
        let is_due = |(name, at): &(&String, &Instant)| {
            **at <= now && !starting.contains(*name) && self.forgotten.as_ref() != Some(*name)
        };
        let due: Vec<String> = self.clients.iter().filter(is_due).map(|(name, _)| name.clone()).collect();
        self.renewed += due.len() as u64;
        due.iter().try_for_each(|name| self.issue_to_client(name))
    }

    /// Renews what runs out, for as long as nobody else does. Ends only if it fails.
    pub(super) async fn keep_renewed(&mut self) -> io::Error {
        loop {
            if let Err(error) = self.renew_due(&BTreeSet::new()) {
                return error;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn issue(&self, names: &[String], life: Duration) -> io::Result<Issued> {
        let now = SystemTime::now();
        self.authority.issue(names, "chaos", now - HOUR, now + life)
    }

    fn issue_to_client(&mut self, name: &str) -> io::Result<()> {
        let life = self.rng.between(SHORTEST_LIFE, LONGEST_LIFE);
        let TlsFiles { cert, key, .. } = self.files_of(name);
        self.issue(&[identity(name)], life)?.replace(&cert, &key)?;
        let renewal = life - self.rng.between(LATEST_RENEWAL, EARLIEST_RENEWAL);
        self.clients.insert(name.to_owned(), Instant::now() + renewal);
        Ok(())
    }

    /// A new certificate for a Manager.
    pub(super) fn issue_to_manager(&self, manager: Node) -> io::Result<()> {
        let TlsFiles { cert, key, .. } = self.files_of(manager);
        self.issue(&self.managers[&manager], HOUR)?.replace(&cert, &key)
    }

    /// Other words for the same policy.
    pub(super) fn write_policy(&mut self, manager: Node) -> io::Result<()> {
        let is_longer = self.rng.percent(50);
        let rules = RULES.into_iter().chain(Some(HARMLESS_RULE).filter(|_| is_longer)).collect();
        let text = policy(&self.rng.shuffle(rules));
        replace(&self.path(manager, "toml"), &text)
    }

    /// Breaks the policy of a Manager, if none of its files is broken; says whether it could.
    pub(super) fn break_policy(&mut self, manager: Node) -> io::Result<bool> {
        let is_whole = self.broken.insert(manager);
        if is_whole {
            replace(&self.path(manager, "toml"), &policy(&[RULES[0], BROKEN_RULE]))?;
        }
        Ok(is_whole)
    }

    /// Puts half a certificate in the place of a Manager's, or a key that fits no certificate; says whether it could.
    pub(super) fn break_certificate(&mut self, manager: Node) -> io::Result<bool> {
        if !self.broken.insert(manager) {
            return Ok(false);
        }
        let (issued, files) = (self.issue(&self.managers[&manager], HOUR)?, self.files_of(manager));
        if self.rng.percent(50) {
            replace(&files.cert, &issued.cert[..issued.cert.len() / 2])?;
        } else {
            replace(&files.key, &issued.key)?;
        }
        Ok(true)
    }

    pub(super) fn is_broken(&self, manager: Node) -> bool {
        self.broken.contains(&manager)
    }

    /// Makes the files of a Manager whole.
    pub(super) fn mend(&mut self, manager: Node) -> io::Result<()> {
        if self.broken.remove(&manager) {
            self.issue_to_manager(manager)?;
            self.write_policy(manager)?;
        }
        Ok(())
    }

    /// Has everybody trust another authority beside the one that issues.
    pub(super) fn introduce_authority(&mut self) -> io::Result<()> {
        self.other = Some(Authority::new("chaos")?);
        self.trust()
    }

    /// The other authority issues from now on.
    pub(super) fn hand_over(&mut self) -> io::Result<()> {
        if let Some(other) = &mut self.other {
            std::mem::swap(other, &mut self.authority);
        }
        self.managers.keys().try_for_each(|manager| self.issue_to_manager(*manager))
    }

    /// The authority that issues is the only one again.
    pub(super) fn retire_authority(&mut self) -> io::Result<()> {
        self.other = None;
        self.trust()
    }

    /// Writes down who is trusted.
    fn trust(&self) -> io::Result<()> {
        let other = self.other.as_ref().map_or("", Authority::pem);
        replace(&self.path("ca", "pem"), &format!("{}{other}", self.authority.pem()))
    }
}

/// Who a client is.
fn identity(name: &str) -> String {
    match name.rsplit_once('-') {
        Some((kind, _)) => format!("spiffe://chaos/{kind}/{name}"),
        None => format!("spiffe://chaos/{name}"),
    }
}

fn policy(rules: &[&str]) -> String {
    rules.iter().map(|rule| format!("[[allow]]\n{rule}")).collect()
}
