//! Frontends fail, and their clients go elsewhere.

use std::time::Instant;

use centrifuge_examples::Result;
use centrifuge_harness::LinkMode;

use super::checks::within;
use super::narrator::{count, words};
use super::{QUEUES, Story};

impl Story {
    /// A frontend has no state: its clients find another, and come back to it or not when it is there again.
    pub(super) async fn a_frontend_is_killed(&mut self, frontend: &str) -> Result<()> {
        let clients = self.board.at(frontend);
        self.narrator.scene(&format!("{frontend} is killed. {} connected to it.", were(clients.len())));
        let killed = Instant::now();
        self.datacenter.kill_frontend(frontend).await?;
        self.clients_go_elsewhere(frontend, &clients, killed).await;
        self.datacenter.start_frontend(frontend).await?;
        self.look_around().await;
        Ok(())
    }

    /// A frontend that hears nothing from the Manager routes by what it knew, and at last sends its clients
    /// away. In half of the stories what it knows becomes wrong meanwhile.
    pub(super) async fn a_frontend_is_cut_off(&mut self, frontend: &str) -> Result<()> {
        let clients = self.board.at(frontend);
        let mode = if self.rng.percent(50) { LinkMode::Refuses } else { LinkMode::Swallows };
        let how = if mode == LinkMode::Refuses { "refused" } else { "swallowed" };
        self.narrator.scene(&format!(
            "{frontend} is cut off from the Manager: what it sends is {how}. {} connected to it.",
            were(clients.len())
        ));
        let cut = Instant::now();
        self.datacenter.link(frontend, mode);
        if self.rng.percent(50) {
            let servers = self.datacenter.server_names(QUEUES);
            let server = self.one_of(&servers);
            self.datacenter.restart(QUEUES, &server).await?;
            self.narrator.tell(&format!(
                "Meanwhile {server} is restarted, and its queues move: {frontend} does not hear of it."
            ));
        }
        self.clients_go_elsewhere(frontend, &clients, cut).await;
        self.datacenter.link(frontend, LinkMode::Open);
        self.look_around().await;
        Ok(())
    }

    async fn clients_go_elsewhere(&mut self, frontend: &str, clients: &[String], since: Instant) {
        let has_published =
            |name: &String| self.board.of(name, |sheet| sheet.published_at >= Some(since)) == Some(true);
        let is_gone = |name: &String| has_published(name) && !self.board.at(frontend).contains(name);
        let gone = within(self.patience(), || clients.iter().all(is_gone)).await;
        self.narrator.check(&format!("the clients of {frontend} publish again elsewhere"), gone.is_some());
        if gone.is_some() {
            let after = words(since.elapsed());
            self.narrator.tell(&format!(
                "After {after} all of them were connected elsewhere, and had published and subscribed again."
            ));
        }
    }
}

fn were(number: usize) -> String {
    count(number, "device was", "devices were")
}
