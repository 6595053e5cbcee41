//! The faults, scene by scene: what happens to the devices and the datacenter.

use std::time::{Duration, Instant};

use centrifuge_examples::Result;

use super::Story;
use super::checks::within;
use super::datacenter::POOLS;
use super::devices::{is_home, peer};
use super::narrator::{count, words};

/// How long after another the moments of a scene are, at most.
const MOMENT: Duration = Duration::from_millis(400);

/// A fault.
#[derive(Clone, Debug)]
enum Scene {
    /// One server of each of these pools is killed, all at once.
    KillServers(Vec<&'static str>),
    KillFrontend,
    CutFrontend,
    RollPool,
}

impl Story {
    /// The paper's story first, then the faults in an order that the seed decides.
    pub(super) async fn play_scenes(&mut self) -> Result<()> {
        self.a_home_pc_moves().await;
        self.a_work_pc_is_away().await;
        let mut faults = vec![Scene::KillFrontend, Scene::CutFrontend, Scene::RollPool];
        faults.push(Scene::KillServers(POOLS.to_vec()));
        faults.extend(POOLS.map(|pool| Scene::KillServers(vec![pool])));
        let mut frontends = self.rng.shuffle(self.datacenter.frontend_names()).into_iter();
        let mut next_frontend = move || frontends.next().unwrap_or_default();
        for scene in self.rng.shuffle(faults) {
            if !self.narrator.failures.is_empty() {
                self.narrator.tell("The story ends early: after a failure nothing that follows says much.");
                break;
            }
            self.moment().await;
            match scene {
                Scene::KillServers(pools) => self.servers_are_killed(&pools).await?,
                Scene::KillFrontend => self.a_frontend_is_killed(&next_frontend()).await?,
                Scene::CutFrontend => self.a_frontend_is_cut_off(&next_frontend()).await?,
                Scene::RollPool => self.a_pool_is_restarted().await?,
            }
        }
        Ok(())
    }

    /// Some time passes.
    pub(super) async fn moment(&mut self) {
        let time = self.rng.between(Duration::ZERO, MOMENT);
        tokio::time::sleep(time).await;
    }

    pub(super) fn one_of(&mut self, names: &[String]) -> String {
        self.rng.pick(names.to_vec()).unwrap_or_default()
    }

    async fn a_home_pc_moves(&mut self) {
        let homes: Vec<String> = self.devices.names().iter().filter(|name| is_home(name)).cloned().collect();
        let home = self.one_of(&homes);
        let work = peer(&home);
        self.narrator.scene(&format!("{home} gets a new address, while {work} is connected."));
        let polls = self.board.of(&work, |sheet| sheet.polls);
        let address = self.devices.moves(&home);
        let known = within(self.patience(), || self.board.knows(&work, &home)).await;
        self.narrator.check(&format!("{work} learns where {home} is"), known.is_some());
        self.narrator.check(
            &format!("{work} learns it from its queue"),
            self.board.of(&work, |sheet| sheet.polls) == polls,
        );
        let known = known.map_or_else(|| "never".to_owned(), words);
        self.narrator.tell(&format!(
            "{home} tells a frontend that it is at {address}. Device connectivity keeps that, publish-subscribe finds who wants \
             to know, {work}'s queue delivers it: {known}."
        ));
    }

    async fn a_work_pc_is_away(&mut self) {
        let works: Vec<String> = self.devices.names().iter().filter(|name| !is_home(name)).cloned().collect();
        let work = self.one_of(&works);
        let home = peer(&work);
        self.narrator.scene(&format!("{work} is switched off, and {home} gets a new address meanwhile."));
        let address = self.moves_unseen(&home, &work).await;
        let (back, polls) = (Instant::now(), self.board.of(&work, |sheet| sheet.polls));
        self.devices.switch(&work, true);
        let known = within(self.patience(), || self.board.knows(&work, &home)).await;
        self.narrator.check(&format!("{work} learns where {home} is when it comes back"), known.is_some());
        let asked =
            self.board.of(&work, |sheet| sheet.polls) > polls || !self.board.told_since(back).is_empty();
        self.narrator.check(&format!("{work} has it from its queue and need not ask"), !asked);
        let known = known.map_or_else(|| "never".to_owned(), words);
        self.narrator
            .tell(&format!("{work} comes back, reads in its queue that {home} is at {address}: {known}."));
        self.look_around().await;
    }

    /// Switches `work` off, and has `home` publish a new address that waits in `work`'s queue.
    pub(super) async fn moves_unseen(&mut self, home: &str, work: &str) -> String {
        self.devices.switch(work, false);
        self.moment().await;
        let address = self.devices.moves(home);
        let published = within(self.patience(), || self.board.is_published(home)).await;
        self.narrator.check(&format!("{home} publishes where it is"), published.is_some());
        address
    }

    async fn a_pool_is_restarted(&mut self) -> Result<()> {
        let pool = self.one_of(&POOLS.map(str::to_owned));
        self.narrator.scene(&format!(
            "The pool {pool} is restarted server by server, each after it moved its state away."
        ));
        let (began, incarnations) = (Instant::now(), self.board.incarnations());
        for server in self.rng.shuffle(self.datacenter.server_names(&pool)) {
            self.datacenter.restart(&pool, &server).await?;
        }
        let took = words(began.elapsed());
        self.look_around().await;
        let told = self.board.told_since(began);
        self.narrator.check(&format!("nobody is told of a loss ({told:?})"), told.is_empty());
        let same = self.board.incarnations() == incarnations;
        self.narrator.check("every device reads the queue that it read before", same);
        let there = self.subscriptions_are_there().await;
        self.narrator.check("every subscription is there", there);
        let who = if told.is_empty() { "Nobody".to_owned() } else { count(told.len(), "device", "devices") };
        self.narrator.tell(&format!(
            "That took {took}. {who} was told of a loss: addresses, subscriptions and queues are where they belong."
        ));
        Ok(())
    }
}
