//! Starts the processes of a pool, and does to them what faults want.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::addresses::{Addresses, Node};
use super::namespaces;
use super::network::Network;
use super::node::Process;
use super::operator::Operator;
use crate::dice::Dice;
use crate::lines::{HarnessLine, Journal, true_now};
use crate::plan::{MOST_SKEW_PPM, Plant, Sizes, StoreKind, Times};
use crate::proxy::{Counts, Renewals, Weather};
use crate::roles::{CallerRole, EtcdRole, ManagerRole, ManagerStore, OwnerRole, Part, Role};

/// How long the pool has to come about.
const START: Duration = Duration::from_secs(60);
/// How long processes have to end when they are told to.
const END: Duration = Duration::from_secs(3);

/// What a pool is told at its start.
#[derive(Clone, Debug)]
pub(crate) struct PoolPlan {
    pub(crate) sizes: Sizes,
    pub(crate) times: Times,
    pub(crate) store: StoreKind,
    pub(crate) is_loopback: bool,
    /// Names the run among those of this machine.
    pub(crate) id: u32,
    pub(crate) directory: PathBuf,
    pub(crate) plant: Option<Plant>,
    /// Whether clocks are wrong.
    pub(crate) is_skewed: bool,
    pub(crate) weather: Weather,
    pub(crate) leader_lease: Option<String>,
    pub(crate) campaign_interval: Option<String>,
    /// What every second process is a build of.
    pub(crate) other_build: Option<PathBuf>,
    /// Whether clients reach Managers without links.
    pub(crate) is_direct: bool,
}

/// A pool of processes. They end with it.
pub(crate) struct Pool {
    pub(crate) plan: PoolPlan,
    pub(crate) addresses: Addresses,
    pub(crate) operator: Operator,
    processes: BTreeMap<Node, Process>,
    network: Network,
    journal: Journal,
    dice: Dice,
    cuts: BTreeMap<(Node, Node), u32>,
    /// How many processes had a clock that was wrong.
    pub(crate) skewed: u64,
}

impl Pool {
    /// Starts everything, and waits until every key has an owner.
    pub(crate) async fn start(plan: PoolPlan, mut dice: Dice) -> io::Result<Pool> {
        let addresses = Addresses::new(plan.is_loopback, plan.id);
        if !plan.is_loopback {
            namespaces::connect(plan.id, &addresses, plan.sizes)?;
        }
        let network = Network::start(addresses, plan.sizes, plan.weather, plan.is_direct, &mut dice).await?;
        let process = |node: Node| (node, Process::new(node.to_string()));
        let mut pool = Pool {
            operator: Operator::new(&addresses, plan.sizes.managers),
            processes: Node::all(plan.sizes).into_iter().map(process).collect(),
            journal: Journal::open(&plan.directory.join("harness.jsonl"))?,
            addresses,
            network,
            dice,
            cuts: BTreeMap::new(),
            skewed: 0,
            plan,
        };
        pool.come_up().await?;
        Ok(pool)
    }

    async fn come_up(&mut self) -> io::Result<()> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (sizes, times) = (self.plan.sizes, self.plan.times);
        self.note(HarnessLine::Plan {
            keys: sizes.keys,
            contact_timeout: nanos(times.contact),
            notice_bound: nanos(times.notice_bound()),
        })?;
        let (servers, clients): (Vec<Node>, Vec<Node>) =
            Node::all(sizes).into_iter().partition(|node| matches!(node, Node::Etcd(_) | Node::Manager(_)));
        for node in servers {
            self.start_process(node)?;
        }
        let made = self.operator.create_namespace(&times.settings(), START).await;
        made.map_err(io::Error::other)?;
        for node in clients {
            self.start_process(node)?;
        }
        if self.operator.comes_to_rest(sizes.owners, START).await {
            return Ok(());
        }
        Err(io::Error::other(format!("the pool did not come to rest within {START:?}")))
    }

    /// Starts the next life of a process.
    pub(crate) fn start_process(&mut self, node: Node) -> io::Result<()> {
        let ppm = self.clock_of(node);
        let Some(process) = self.processes.get_mut(&node) else { return Ok(()) };
        process.life += 1;
        let life = process.life;
        let part = Part {
            parent: std::process::id(),
            ppm,
            times: self.plan.times,
            plant: self.plan.plant.filter(|plant| concerns(*plant, node)),
            role: self.role(node, life),
        };
        let text = serde_json::to_string(&part)?;
        let command = self.command(node, life, &text)?;
        let name = node.to_string();
        self.note(HarnessLine::Started { name, life, ppm, at: true_now() })?;
        self.skewed += u64::from(ppm != 0);
        match self.processes.get_mut(&node) {
            Some(process) => process.start(command, &self.plan.directory),
            None => Ok(()),
        }
    }

    fn command(&self, node: Node, life: u32, text: &str) -> io::Result<Command> {
        let is_other = (u32::from(node.index()) + life).is_multiple_of(2);
        let program = match &self.plan.other_build {
            Some(other) if is_other => other.clone(),
            _ => std::env::current_exe()?,
        };
        if self.plan.is_loopback {
            let mut command = Command::new(program);
            command.args(["play", text]);
            return Ok(command);
        }
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespaces::name_of(self.plan.id, node)]).arg(program);
        command.args(["play", text]);
        Ok(command)
    }

    /// How wrong the clock of a process's next life is.
    fn clock_of(&mut self, node: Node) -> i32 {
        let drawn = self.dice.skew(MOST_SKEW_PPM);
        match (self.plan.plant, node) {
            (_, Node::Etcd(_)) => 0,
            (Some(Plant::SlowOwnerClock), Node::Owner(_)) => -500_000,
            (Some(Plant::FastManagerClock), Node::Manager(_)) => 1_000_000,
            (Some(Plant::OutlivedLeader), Node::Manager(0)) => -700_000,
            _ if self.plan.is_skewed => drawn,
            _ => 0,
        }
    }

    fn role(&self, node: Node, life: u32) -> Role {
        let plan = &self.plan;
        let journal = plan.directory.join(format!("{node}.{life}.jsonl"));
        match node {
            Node::Etcd(index) => Role::Etcd(EtcdRole { arguments: self.etcd_arguments(index) }),
            Node::Manager(index) => Role::Manager(ManagerRole {
                grpc: self.addresses.grpc(index).to_string(),
                http: self.addresses.http(index).to_string(),
                store: self.store_of(index),
                leader_lease: plan.leader_lease.clone(),
                campaign_interval: plan.campaign_interval.clone(),
            }),
            Node::Owner(index) => Role::Owner(OwnerRole {
                name: node.to_string(),
                managers: self.network.managers_of(node, plan.sizes),
                listen: self.addresses.application(index).to_string(),
                url: self.addresses.url(index).to_string(),
                keys: plan.sizes.keys,
                migrates: index % 3 != 2,
                // The harness waits for the end of a process before it starts the next.
                takes_over: index % 2 == 0 && life > 1,
                journal,
            }),
            Node::Caller(index) => {
                let is_mine = |key: &u32| key % u32::from(plan.sizes.callers) == u32::from(index);
                Role::Caller(CallerRole {
                    name: node.to_string(),
                    managers: self.network.managers_of(node, plan.sizes),
                    keys: plan.sizes.keys,
                    writes: (0..plan.sizes.keys).filter(is_mine).collect(),
                    journal,
                })
            }
        }
    }

    fn store_of(&self, manager: u8) -> ManagerStore {
        match self.plan.store {
            StoreKind::File => ManagerStore::File(self.plan.directory.join("centrifuge.db")),
            StoreKind::Etcd => {
                let endpoint = |etcd| format!("http://{}", self.addresses.etcd_for(manager, etcd));
                ManagerStore::Etcd((0..self.plan.sizes.etcd).map(endpoint).collect())
            }
        }
    }

    fn etcd_arguments(&self, index: u8) -> Vec<String> {
        let url = |address: SocketAddr| format!("http://{address}");
        let (client, peer) = (url(self.addresses.etcd(index)), url(self.addresses.etcd_peer(index)));
        let member = |etcd: u8| format!("{}={}", Node::Etcd(etcd), url(self.addresses.etcd_peer(etcd)));
        let cluster: Vec<String> = (0..self.plan.sizes.etcd).map(member).collect();
        let name = Node::Etcd(index).to_string();
        let data = self.plan.directory.join(format!("{name}.data")).display().to_string();
        let options: [(&str, &str); 9] = [
            ("name", &name),
            ("data-dir", &data),
            ("listen-client-urls", &client),
            ("advertise-client-urls", &client),
            ("listen-peer-urls", &peer),
            ("initial-advertise-peer-urls", &peer),
            ("initial-cluster", &cluster.join(",")),
            ("initial-cluster-state", "new"),
            ("log-level", "error"),
        ];
        options.into_iter().map(|(option, value)| format!("--{option}={value}")).collect()
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self, node: Node) -> io::Result<()> {
        let Some(process) = self.processes.get_mut(&node) else { return Ok(()) };
        let (name, life, at) = (process.name.clone(), process.life, true_now());
        process.kill()?;
        self.note(HarnessLine::Killed { name, life, at })
    }

    /// SIGSTOP.
    pub(crate) fn stop(&mut self, node: Node) -> io::Result<()> {
        let Some(process) = self.processes.get_mut(&node) else { return Ok(()) };
        let (name, at) = (process.name.clone(), true_now());
        process.stop()?;
        self.note(HarnessLine::Stopped { name, at })
    }

    /// SIGCONT.
    pub(crate) fn go_on(&mut self, node: Node) -> io::Result<()> {
        let Some(process) = self.processes.get_mut(&node).filter(|process| process.is_stopped) else {
            return Ok(());
        };
        process.go_on()?;
        let name = process.name.clone();
        self.note(HarnessLine::Continued { name, at: true_now() })
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

    /// Bad weather between a client and a Manager, or the usual again.
    pub(crate) fn set_weather(
        &self,
        client: Node,
        manager: u8,
        weather: Option<Weather>,
        length: Duration,
    ) -> io::Result<()> {
        self.network.set_weather(client, manager, weather);
        if weather.is_none() {
            return Ok(());
        }
        let at = true_now();
        let until = at + u64::try_from(length.as_nanos()).unwrap_or(0);
        let (client, manager) = (client.to_string(), Node::Manager(manager).to_string());
        self.note(HarnessLine::Storm { client, manager, at, until })
    }

    /// Every process that runs and is not stopped.
    pub(crate) fn available(&self) -> Vec<Node> {
        let is_well = |process: &Process| process.is_running() && !process.is_stopped;
        self.processes.iter().filter(|(_, process)| is_well(process)).map(|(node, _)| *node).collect()
    }

    /// Notes processes that ended though nobody told them to, and starts them again.
    pub(crate) fn revive(&mut self) -> io::Result<()> {
        let mut died = Vec::new();
        for (node, process) in &mut self.processes {
            if let Some(status) = process.ended()? {
                died.push((*node, process.life, status.to_string()));
            }
        }
        for (node, life, status) in died {
            self.note(HarnessLine::Died { name: node.to_string(), life, status, at: true_now() })?;
            self.start_process(node)?;
        }
        Ok(())
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
        self.processes.retain(|node, _| matches!(node, Node::Caller(_)));
        for process in self.processes.values() {
            process.terminate()?;
        }
        let since = tokio::time::Instant::now();
        while !self.processes.is_empty() && since.elapsed() < END {
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.processes.retain(|_, process| process.is_running() && matches!(process.ended(), Ok(None)));
        }
        self.processes.clear();
        Ok(())
    }
}

/// Whether a plant changes what a process does. Clocks are another matter.
fn concerns(plant: Plant, node: Node) -> bool {
    match plant {
        Plant::UncheckedOwner | Plant::ForgetfulOwner | Plant::BackwardOwner => {
            matches!(node, Node::Owner(_))
        }
        Plant::DeafCaller | Plant::CryingCaller => node == Node::Caller(0),
        Plant::SlowOwnerClock | Plant::FastManagerClock | Plant::OutlivedLeader => false,
    }
}
