//! Starts the processes of a pool, and does to them what faults want.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use centrifuge_harness::process;
use centrifuge_harness::signals::Signal;
use centrifuge_harness::{Rng, StoreKind};
use centrifuge_net::proto::v1;
use centrifuge_server::store::etcd::DEFAULT_PREFIX;

use super::addresses::{Addresses, Node, Part};
use super::certificates::{Certificates, OPERATOR};
use super::departures::Process;
use super::namespaces;
use super::network::Network;
use super::operator::Operator;
use super::parts::concerns;
use crate::bug::Bug;
use crate::lines::{HarnessLine, Journal, Nanos, Plan, nanos, true_now};
use crate::plan::{Sizes, Times, World};
use crate::proxy::{Counts, LinkFaults, Renewals};
use crate::roles;
use crate::run_environment::RunEnvironment;

/// How long the pool has to come about.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long processes have to end when they are told to.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// What a pool is told at its start.
#[derive(Clone, Debug)]
pub(crate) struct PoolPlan {
    pub(crate) world: World,
    /// What peers' wishes are drawn from.
    pub(crate) seed: u64,
    pub(crate) sizes: Sizes,
    pub(crate) times: Times,
    pub(crate) store: StoreKind,
    pub(crate) is_loopback: bool,
    /// Names the run among those of this machine.
    pub(crate) id: u32,
    pub(crate) directory: PathBuf,
    pub(crate) bug: Option<Bug>,
    /// Whether clocks are wrong.
    pub(crate) is_skewed: bool,
    pub(crate) link_faults: LinkFaults,
    /// What Managers are told of how they lead, beside the defaults.
    pub(crate) leadership: Vec<(&'static str, String)>,
    /// What every second process is a build of.
    pub(crate) other_build: Option<PathBuf>,
    /// Whether clients reach Managers without links.
    pub(crate) is_direct: bool,
    /// How many Lookups each fleet has.
    pub(crate) lookups_each: u32,
    /// The virtual nodes of an Owner.
    pub(crate) virtual_nodes: u32,
    /// Whether nothing happens but planned operations.
    pub(crate) is_planned_only: bool,
    /// Whether Managers and clients use TLS.
    pub(crate) is_secure: bool,
}

impl PoolPlan {
    /// A pool in which nothing goes wrong, unless somebody says otherwise.
    pub(crate) fn new(environment: &RunEnvironment, world: World, seed: u64) -> PoolPlan {
        PoolPlan {
            world,
            seed,
            sizes: Sizes::default(),
            times: world.times(),
            store: StoreKind::default(),
            is_loopback: environment.is_loopback,
            id: environment.id,
            directory: environment.directory().to_owned(),
            bug: None,
            is_skewed: false,
            link_faults: LinkFaults::NONE,
            leadership: Vec::new(),
            other_build: None,
            is_direct: false,
            lookups_each: 0,
            virtual_nodes: 8,
            is_planned_only: false,
            is_secure: false,
        }
    }
}

/// A pool of processes. They end with it.
pub(crate) struct Pool {
    pub(crate) plan: PoolPlan,
    pub(crate) addresses: Addresses,
    pub(crate) operator: Operator,
    /// Under TLS, the files of everybody.
    pub(crate) certificates: Option<Certificates>,
    pub(super) processes: BTreeMap<Node, Process>,
    /// Processes that ended in good order, and when the next of their name is started.
    pub(super) returns: Vec<(tokio::time::Instant, Node)>,
    pub(super) network: Network,
    journal: Journal,
    pub(super) rng: Rng,
    cuts: BTreeMap<(Node, Node), u32>,
    /// How many processes had a clock that was wrong.
    pub(crate) skewed: u64,
    /// Until when somebody's clock is astray: never two at a time.
    pub(super) astray_until: Nanos,
}

impl Pool {
    /// Starts everything, and waits until every key has an owner.
    pub(crate) async fn start(plan: PoolPlan, mut rng: Rng) -> io::Result<Pool> {
        let addresses = Addresses::new(plan.is_loopback, plan.id);
        if !plan.is_loopback {
            namespaces::connect(plan.id, &addresses, plan.sizes)?;
        }
        let PoolPlan { sizes, link_faults, is_direct, is_secure, .. } = plan;
        let network = Network::start(addresses, sizes, link_faults, is_direct, is_secure, &mut rng).await?;
        let make =
            |rng: &mut Rng| Certificates::new(&plan.directory, &addresses, sizes, plan.bug, rng.fork());
        let certificates = is_secure.then(|| make(&mut rng)).transpose()?;
        let security = certificates.as_ref().map(|all| all.files_of(OPERATOR).security()).unwrap_or_default();
        let process = |node: Node| (node, Process::new(node.to_string()));
        let mut pool = Pool {
            operator: Operator::new(&addresses, sizes.managers, security),
            certificates,
            processes: Node::all(sizes).into_iter().map(process).collect(),
            journal: Journal::open(&plan.directory.join("harness.jsonl"))?,
            addresses,
            network,
            rng,
            returns: Vec::new(),
            cuts: BTreeMap::new(),
            skewed: 0,
            astray_until: 0,
            plan,
        };
        pool.come_up().await?;
        Ok(pool)
    }

    async fn come_up(&mut self) -> io::Result<()> {
        let (sizes, times) = (self.plan.sizes, self.plan.times);
        self.note(HarnessLine::Plan(Plan {
            world: self.plan.world,
            keys: sizes.keys,
            contact_timeout: nanos(times.contact),
            notice_bound: nanos(self.plan.world.notice_bound(&times)),
            aftermath: nanos(times.aftermath()),
            harmless_pause: nanos(times.harmless_pause()),
            is_planned_only: self.plan.is_planned_only,
        }))?;
        match self.plan.world {
            World::Managers | World::Diskless => self.managers_come_up().await,
            World::Flease => self.peers_come_up(START_TIMEOUT).await,
        }
    }

    async fn managers_come_up(&mut self) -> io::Result<()> {
        let (sizes, times) = (self.plan.sizes, self.plan.times);
        let (servers, clients): (Vec<Node>, Vec<Node>) =
            Node::all(sizes).into_iter().partition(|node| matches!(node.part, Part::Etcd | Part::Manager));
        std::fs::write(self.key_file(), "the secret of this run")?;
        for node in servers {
            self.start_process(node)?;
        }
        if self.plan.store != StoreKind::None {
            let virtual_nodes = Some(self.plan.virtual_nodes);
            let settings = v1::Settings { virtual_nodes, ..times.settings() };
            let operator = self.operator.clone();
            let made = self.meanwhile_renewed(operator.create_namespace(&settings, START_TIMEOUT)).await?;
            made.map_err(io::Error::other)?;
        }
        for node in clients {
            if !self.is_joiner(node) {
                self.start_process(node)?;
            }
        }
        let operator = self.operator.clone();
        if self.meanwhile_renewed(operator.comes_to_rest(sizes.owners, START_TIMEOUT)).await? {
            return Ok(());
        }
        Err(io::Error::other(format!("the pool did not come to rest within {START_TIMEOUT:?}")))
    }

    /// Waits for something, and renews certificates meanwhile.
    async fn meanwhile_renewed<T>(&mut self, wait: impl Future<Output = T>) -> io::Result<T> {
        let Some(certificates) = &mut self.certificates else { return Ok(wait.await) };
        tokio::select! {
            outcome = wait => Ok(outcome),
            error = certificates.keep_renewed() => Err(error),
        }
    }

    /// Starts the next life of a process.
    pub(crate) fn start_process(&mut self, node: Node) -> io::Result<()> {
        let (ppm, wander) = (self.clock_of(node), self.wander_of(node));
        let life = self.processes[&node].life + 1;
        let tls = match &mut self.certificates {
            Some(certificates) => {
                certificates.mend(node)?;
                Some(certificates.files_of(node))
            }
            None => None,
        };
        let part = roles::Part {
            parent: std::process::id(),
            name: node.to_string(),
            managers: self.network.managers_of(node, self.plan.sizes),
            tls,
            keys: self.plan.sizes.keys,
            journal: self.plan.directory.join(format!("{node}.{life}.jsonl")),
            ppm,
            wander,
            times: self.plan.times,
            bug: self.plan.bug.filter(|bug| concerns(*bug, node)),
            role: self.role(node, life),
        };
        let command = self.command(node, life, &serde_json::to_string(&part)?)?;
        let name = node.to_string();
        self.note(HarnessLine::Started { name: name.clone(), life, ppm, at: true_now() })?;
        if let Some(astray) = wander.and_then(|wander| wander.astray) {
            let (from, until, over, ahead) = (astray.from, astray.until, astray.over_at(), astray.ahead);
            self.note(HarnessLine::Astray { name, life, from, until, over, ahead })?;
        }
        self.skewed += u64::from(ppm != 0 || wander.is_some());
        let directory = self.plan.directory.clone();
        self.process(node).start(command, &directory)
    }

    pub(super) fn process(&mut self, node: Node) -> &mut Process {
        self.processes.get_mut(&node).expect("every node of a pool has its processes")
    }

    fn command(&self, node: Node, life: u32, text: &str) -> io::Result<Command> {
        let is_other = (u32::from(node.index) + life).is_multiple_of(2);
        let program = match &self.plan.other_build {
            Some(other) if is_other => other.clone(),
            _ => std::env::current_exe()?,
        };
        let mut command = if self.plan.is_loopback {
            process::command(program)
        } else {
            let mut command = process::command("ip");
            command.args(["netns", "exec", &namespaces::name_of(self.plan.id, node)]).arg(program);
            command
        };
        command.args(["play", text]);
        Ok(command)
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self, node: Node) -> io::Result<()> {
        let (at, process) = (true_now(), self.process(node));
        let life = process.life;
        process.kill()?;
        self.note(HarnessLine::Killed { name: node.to_string(), life, at })
    }

    /// SIGSTOP.
    pub(crate) fn stop(&mut self, node: Node) -> io::Result<()> {
        let at = true_now();
        self.process(node).stop()?;
        self.note(HarnessLine::Stopped { name: node.to_string(), at })
    }

    /// SIGCONT.
    pub(crate) fn go_on(&mut self, node: Node) -> io::Result<()> {
        if !self.process(node).is_stopped {
            return Ok(());
        }
        self.process(node).go_on()?;
        self.note(HarnessLine::Continued { name: node.to_string(), at: true_now() })
    }

    /// Cuts a way, however many faults want it cut.
    pub(crate) fn cut(&mut self, from: Node, to: Node) -> io::Result<()> {
        let wanted = self.cuts.entry((from, to)).or_default();
        *wanted += 1;
        if *wanted > 1 {
            return Ok(());
        }
        self.network.set_cut(from, to, true)?;
        self.note(HarnessLine::Cut { from: from.to_string(), to: to.to_string(), at: true_now() })
    }

    /// Heals a way, once no fault wants it cut any more.
    pub(crate) fn heal(&mut self, from: Node, to: Node) -> io::Result<()> {
        let Some(wanted) = self.cuts.get_mut(&(from, to)).filter(|wanted| **wanted > 0) else {
            return Ok(());
        };
        *wanted -= 1;
        if *wanted > 0 {
            return Ok(());
        }
        self.network.set_cut(from, to, false)?;
        self.note(HarnessLine::Healed { from: from.to_string(), to: to.to_string(), at: true_now() })
    }

    /// Has etcd forget the leader's key, as somebody with `etcdctl` might: the next leads at once. Does not wait for
    /// it.
    pub(crate) fn depose(&self) -> io::Result<()> {
        let endpoints: Vec<String> =
            (0..self.plan.sizes.etcd).map(|etcd| self.addresses.etcd(etcd).to_string()).collect();
        let mut command = process::command("etcdctl");
        command.args(["--command-timeout=2s", &format!("--endpoints={}", endpoints.join(","))]);
        command.args(["del", &format!("{DEFAULT_PREFIX}leader")]).env("ETCDCTL_API", "3");
        // A group that is without a majority just now refuses, which is no harm.
        tokio::task::spawn_blocking(move || command.output());
        self.note(HarnessLine::Deposed { at: true_now() })
    }

    /// Sets the link faults between a client and a Manager or from one peer to another; without, the usual ones.
    pub(crate) fn set_link_faults(
        &self,
        from: Node,
        to: Node,
        link_faults: Option<LinkFaults>,
        length: Duration,
    ) -> io::Result<()> {
        self.network.set_link_faults(from, to, link_faults);
        if link_faults.is_none() {
            return Ok(());
        }
        let at = true_now();
        let until = at + nanos(length);
        let (from, to) = (from.to_string(), to.to_string());
        self.note(HarnessLine::Storm { from, to, at, until })
    }

    /// Sets what happens to messages where no fault says otherwise.
    pub(crate) fn set_usual_link_faults(&mut self, usual: LinkFaults) {
        self.network.set_usual(usual);
    }

    /// Every process that runs and is not stopped.
    pub(crate) fn available(&self) -> Vec<Node> {
        let is_well = |process: &Process| process.is_running() && !process.is_stopped;
        self.processes.iter().filter(|(_, process)| is_well(process)).map(|(node, _)| *node).collect()
    }

    /// Notes processes that ended, and starts them again: at once if nobody told them to end.
    pub(crate) fn revive(&mut self) -> io::Result<()> {
        let mut ended = Vec::new();
        for (node, process) in &mut self.processes {
            if let Some(status) = process.ended()? {
                ended.push((*node, process.life, status, process.departure.take()));
            }
        }
        for (node, life, status, departure) in ended {
            let (name, at) = (node.to_string(), true_now());
            // One that has only just begun does not know yet what to do when it is told to end.
            let is_orderly = status.success() || status.signal() == Some(Signal::TERM.as_raw());
            match departure.filter(|_| is_orderly) {
                Some(next) => {
                    self.note(HarnessLine::Gone { name, life, at })?;
                    self.comes_back(node, next);
                }
                None => {
                    self.note(HarnessLine::Died { name, life, status: status.to_string(), at })?;
                    self.start_process(node)?;
                }
            }
        }
        self.start_returned()
    }

    /// Notes processes that ended though nobody told them to, as they should here.
    pub(crate) fn bury(&mut self) -> io::Result<Vec<Node>> {
        let mut ended = Vec::new();
        for (node, process) in &mut self.processes {
            if process.ended()?.is_some() {
                ended.push((*node, process.life));
            }
        }
        for (node, life) in &ended {
            self.note(HarnessLine::Killed { name: node.to_string(), life: *life, at: true_now() })?;
        }
        Ok(ended.into_iter().map(|(node, _)| node).collect())
    }

    pub(crate) fn note(&self, line: HarnessLine) -> io::Result<()> {
        self.journal.write(&[line])
    }

    pub(crate) fn counts(&self) -> &Arc<Counts> {
        &self.network.counts
    }

    pub(crate) fn renewals(&self) -> &Renewals {
        &self.network.renewals
    }

    /// Where the Managers' metrics are.
    pub(crate) fn metrics(&self) -> Vec<SocketAddr> {
        (0..self.plan.sizes.managers).map(|manager| self.addresses.http(manager)).collect()
    }

    /// Ends everything; callers are told to, and end by themselves.
    pub(crate) async fn end(mut self) -> io::Result<()> {
        self.note(HarnessLine::Over { at: true_now() })?;
        self.processes.retain(|node, _| node.part == Part::Caller);
        for process in self.processes.values() {
            process.terminate()?;
        }
        let since = tokio::time::Instant::now();
        while !self.processes.is_empty() && since.elapsed() < END_TIMEOUT {
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.processes.retain(|_, process| process.is_running() && matches!(process.ended(), Ok(None)));
        }
        self.processes.clear();
        Ok(())
    }
}
