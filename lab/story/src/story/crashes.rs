//! Servers are killed, and with them the state that they had.

use std::time::{Duration, Instant};

use centrifuge_examples::Result;

use super::checks::within;
use super::devices::{is_home, peer};
use super::narrator::{count, words};
use super::{CONNECTIVITY, PUBSUB, QUEUES, Story};

/// How long before its server's death a home PC gets a new address, at most.
const JUST_BEFORE: Duration = Duration::from_millis(20);

/// A server that is about to be killed.
struct Victim {
    pool: &'static str,
    server: String,
    /// The devices whose state it has.
    concerned: Vec<String>,
    /// The one of them whose story is told: a work PC if it is about queues, a home PC if not.
    featured: Option<String>,
}

impl Victim {
    fn had(&self) -> String {
        let number = self.concerned.len();
        match self.pool {
            CONNECTIVITY => count(number, "device's address", "devices' addresses"),
            PUBSUB => count(number, "list of subscribers", "lists of subscribers"),
            _ => count(number, "queue", "queues"),
        }
    }

    /// Who must be told that whose state is gone: those whose it was, and those who followed them.
    fn to_be_told(&self) -> Vec<(String, &'static str, String)> {
        let mut all = Vec::new();
        for name in &self.concerned {
            if self.pool != PUBSUB {
                all.push((name.clone(), self.pool, name.clone()));
            }
            if self.pool != QUEUES {
                all.push((peer(name), self.pool, name.clone()));
            }
        }
        all
    }
}

impl Story {
    /// Kills a server of each of these pools at once. They come back under their names, at once or when all is
    /// well again.
    pub(super) async fn servers_are_killed(&mut self, pools: &[&'static str]) -> Result<()> {
        let victims: Vec<Victim> = pools.iter().map(|pool| self.victim(pool)).collect();
        let names: Vec<String> = victims.iter().map(|victim| victim.server.clone()).collect();
        let had: Vec<String> = victims.iter().map(Victim::had).collect();
        let (names, had) = (and(&names), and(&had));
        let at_once = if victims.len() > 1 { "are killed, all at once. They" } else { "is killed. It" };
        self.narrator.scene(&format!("{names} {at_once} had {had}."));
        self.things_happen_before(&victims).await;
        let killed = Instant::now();
        for victim in &victims {
            self.datacenter.kill_server(&victim.server).await?;
        }
        self.things_happen_after(&victims).await;
        let come_back_at_once = self.rng.percent(50);
        if come_back_at_once {
            self.come_back(&victims).await?;
        }
        for victim in &victims {
            self.the_concerned_are_told(victim, killed).await;
        }
        let known = self.look_around().await.map(|()| words(killed.elapsed()));
        self.devices.rests(None);
        if !come_back_at_once {
            self.come_back(&victims).await?;
        }
        let known = known.map_or_else(
            || "Not everybody knows".to_owned(),
            |time| format!("{time} after the kill everybody knows"),
        );
        let (back, order) = (words(killed.elapsed()), if come_back_at_once { "before" } else { "after" });
        self.narrator.tell(&format!(
            "{known} where the others are. {names} came back {order} that; {back} after the kill all is as it was."
        ));
        self.look_around().await;
        Ok(())
    }

    /// A server of a pool to kill: one with a device whose story can be told, if there is one.
    fn victim(&mut self, pool: &'static str) -> Victim {
        let mut victims = Vec::new();
        for server in self.rng.shuffle(self.datacenter.server_names(pool)) {
            let concerned = self.datacenter.owned(pool, &server, self.devices.names());
            let suits = |name: &&String| is_home(name) != (pool == QUEUES);
            let candidates: Vec<String> = concerned.iter().filter(suits).cloned().collect();
            let featured = self.rng.pick(candidates);
            victims.push(Victim { pool, server, concerned, featured });
        }
        let suits = victims.iter().position(|victim| victim.featured.is_some());
        victims.swap_remove(suits.unwrap_or(0))
    }

    /// The worst moment is drawn on purpose: a message waits in a queue, an address is just being published.
    async fn things_happen_before(&mut self, victims: &[Victim]) {
        for victim in victims {
            let Some(work) = victim.featured.as_ref().filter(|_| victim.pool == QUEUES) else { continue };
            let home = peer(work);
            self.devices.rests(Some(&home));
            let address = self.moves_unseen(&home, work).await;
            self.narrator.tell(&format!(
                "Just before, {work} is switched off, and in its queue there a message waits: {home} is at {address} now."
            ));
        }
        for victim in victims {
            let Some(home) = victim.featured.as_ref().filter(|_| victim.pool == CONNECTIVITY) else {
                continue;
            };
            // Whether this is acknowledged before the server dies, or by the next owner, depends on the moment.
            self.devices.moves(home);
            let moment = self.rng.between(Duration::ZERO, JUST_BEFORE);
            tokio::time::sleep(moment).await;
        }
    }

    async fn things_happen_after(&mut self, victims: &[Victim]) {
        for victim in victims {
            let Some(featured) = &victim.featured else { continue };
            match victim.pool {
                // The next owner accepts this, and knows of no subscriber.
                PUBSUB => drop(self.devices.moves(featured)),
                QUEUES => {
                    self.moment().await;
                    self.devices.switch(featured, true);
                }
                _ => {}
            }
        }
    }

    async fn come_back(&mut self, victims: &[Victim]) -> Result<()> {
        for victim in victims {
            self.datacenter.bring_back(victim.pool, &victim.server).await?;
        }
        Ok(())
    }

    async fn the_concerned_are_told(&mut self, victim: &Victim, killed: Instant) {
        let to_be_told = victim.to_be_told();
        let told_at = || -> Option<Vec<Instant>> {
            let told = self.board.told_since(killed);
            to_be_told.iter().map(|one| Story::told_at(&told, one)).collect()
        };
        let told = within(self.patience(), || told_at().is_some()).await.and_then(|_| told_at());
        let must = format!("all {} whom the end of {} concerns are told", to_be_told.len(), victim.server);
        self.narrator.check(&must, told.is_some());
        let Some(last) = told.and_then(|told| told.into_iter().max()) else { return };
        let told = format!("told {} after the kill", words(last.saturating_duration_since(killed)));
        self.narrator.tell(&match victim.pool {
            CONNECTIVITY => {
                format!("The devices were {told}, and published again; their peers too, and asked again.")
            }
            PUBSUB => {
                format!("The subscribers were {told}, subscribed again, and asked what they had missed.")
            }
            _ => format!(
                "The queues' devices were {told} that they missed something, and did everything again."
            ),
        });
    }
}

/// Some words as one.
fn and(words: &[String]) -> String {
    match words {
        [all @ .., last] if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        _ => words.concat(),
    }
}
