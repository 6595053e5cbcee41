//! Rotations: certificates, authorities and policies are replaced while the pool runs under TLS, and some replacements
//! are broken for a moment. They cost no lease.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use centrifuge_harness::Rng;
use tokio::time::Instant;

use super::addresses::{Node, Part};
use super::faults::Schedule;
use super::launch::Pool;

/// A kind of rotation, beside the renewals of clients' certificates, which come by their age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rotation {
    /// A Manager gets a new certificate.
    ManagerCertificate,
    /// A Manager gets a policy of other words: in another order, or with a rule more.
    Policy,
    /// A Manager's policy is invalid for a moment.
    BrokenPolicy,
    /// A Manager's certificate is cut in half for a moment, or its key is of another.
    BrokenCertificate,
    /// Another authority issues.
    Authority,
}

/// How often each comes, on average, in milliseconds, and its name.
const TABLE: &[(Rotation, u64, &str)] = &[
    (Rotation::ManagerCertificate, 2_500, "manager-certificate"),
    (Rotation::Policy, 2_500, "policy"),
    (Rotation::BrokenPolicy, 6_000, "broken-policy"),
    (Rotation::BrokenCertificate, 6_000, "broken-certificate"),
    (Rotation::Authority, 20_000, "authority"),
];

/// What the report calls a new certificate of a client.
const CLIENT_CERTIFICATE: &str = "client-certificate";
/// How long a file is broken: a Manager looks once a second, and sees it.
const SHORTEST_BREAK: Duration = Duration::from_millis(1_300);
const LONGEST_BREAK: Duration = Duration::from_millis(2_500);
/// An authority is trusted for this long before it issues: every Manager has looked, also one with a broken file.
const INTRODUCED: Duration = Duration::from_secs(5);
/// ... and for this long after it issued last: longer than any client's certificate counts.
const HANDED_OVER: Duration = Duration::from_secs(13);
/// A process that was started this long ago has read its files.
const READ: Duration = Duration::from_millis(2_000);

/// What follows a rotation.
#[derive(Clone, Copy, Debug)]
enum Next {
    Mend(Node),
    HandOver,
    Retire,
}

/// The rotations of a run; none without TLS.
pub(crate) struct Rotations {
    rng: Rng,
    due: Schedule<Rotation>,
    next: Vec<(Instant, Next)>,
    counts: BTreeMap<String, u64>,
    is_handing_over: bool,
}

impl Rotations {
    pub(crate) fn new(mut rng: Rng) -> Rotations {
        let means = TABLE.iter().map(|(rotation, mean, _)| (*rotation, Duration::from_millis(*mean)));
        let names = TABLE.iter().map(|(_, _, name)| *name).chain([CLIENT_CERTIFICATE]);
        Rotations {
            counts: names.map(|name| (name.to_owned(), 0)).collect(),
            due: Schedule::new(means, &mut rng),
            rng,
            next: Vec::new(),
            is_handing_over: false,
        }
    }

    /// How many of each there were.
    pub(crate) fn counts(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }

    /// Does what is due.
    pub(crate) fn step(&mut self, pool: &mut Pool) -> io::Result<()> {
        let starting = pool.starting();
        let Some(certificates) = &mut pool.certificates else { return Ok(()) };
        certificates.renew_due(&starting)?;
        self.counts.insert(CLIENT_CERTIFICATE.to_owned(), certificates.renewed);
        let now = Instant::now();
        let next: Vec<(Instant, Next)> = self.next.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, next) in next {
            match next {
                Next::Mend(manager) => certificates.mend(manager)?,
                Next::HandOver => certificates.hand_over()?,
                Next::Retire => {
                    certificates.retire_authority()?;
                    self.is_handing_over = false;
                }
            }
        }
        for rotation in self.due.take_due(now, &mut self.rng) {
            if self.begin(pool, rotation, now)? {
                let name =
                    TABLE.iter().find(|(kind, _, _)| *kind == rotation).map_or("", |(_, _, name)| name);
                *self.counts.entry(name.to_owned()).or_default() += 1;
            }
        }
        Ok(())
    }

    /// Says whether it could be done.
    fn begin(&mut self, pool: &mut Pool, rotation: Rotation, now: Instant) -> io::Result<bool> {
        let settled = pool.staying(Part::Manager).into_iter().filter(|node| pool.has_run_for(*node, READ));
        let manager = self.rng.pick(settled.collect());
        let (Some(certificates), Some(manager)) = (&mut pool.certificates, manager) else { return Ok(false) };
        let is_broken = match rotation {
            Rotation::ManagerCertificate | Rotation::Policy if certificates.is_broken(manager) => {
                return Ok(false);
            }
            Rotation::ManagerCertificate => return certificates.issue_to_manager(manager).map(|()| true),
            Rotation::Policy => return certificates.write_policy(manager).map(|()| true),
            Rotation::Authority if self.is_handing_over => return Ok(false),
            Rotation::Authority => {
                self.is_handing_over = true;
                self.next.push((now + INTRODUCED, Next::HandOver));
                self.next.push((now + INTRODUCED + HANDED_OVER, Next::Retire));
                return certificates.introduce_authority().map(|()| true);
            }
            Rotation::BrokenPolicy => certificates.break_policy(manager)?,
            Rotation::BrokenCertificate => certificates.break_certificate(manager)?,
        };
        if is_broken {
            self.next.push((now + self.rng.between(SHORTEST_BREAK, LONGEST_BREAK), Next::Mend(manager)));
        }
        Ok(is_broken)
    }
}

impl Pool {
    /// Those who may be reading their files for the first time.
    fn starting(&self) -> BTreeSet<String> {
        let is_new = |node: &&Node| !self.has_run_for(**node, READ / 2);
        self.processes.keys().filter(is_new).map(Node::to_string).collect()
    }

    /// Whether a process was started so long ago, or does not run.
    fn has_run_for(&self, node: Node, time: Duration) -> bool {
        let process = &self.processes[&node];
        !process.is_running() || process.started_at.is_some_and(|at| at.elapsed() >= time)
    }
}
