//! What must be true after every scene.

use std::time::{Duration, Instant};

use centrifuge_harness::wait::poll;
use serde_json::Value;

use super::board::Told;
use super::device::Belief;
use super::devices::peer;
use super::narrator::words;
use super::{CONNECTIVITY, QUEUES, Story};

/// How often a condition is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How long those who look at the datacenter wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until a condition holds, and says how long that took; `None` if it did not within the bound.
pub(super) async fn within(bound: Duration, mut condition: impl FnMut() -> bool) -> Option<Duration> {
    let since = Instant::now();
    poll(POLL_INTERVAL, bound, async || condition().then(|| since.elapsed())).await
}

impl Story {
    /// Whether all devices that are on have published where they are, and know where their peers are.
    pub(super) fn everybody_knows(&self) -> bool {
        let is_published = |name: &String| self.board.is_published(name);
        self.devices.names().iter().all(|name| is_published(name) && self.board.knows(name, &peer(name)))
    }

    /// How long to wait for what must come true: not at all once something failed, because then it may never.
    pub(super) fn patience(&self) -> Duration {
        if self.narrator.failures.is_empty() { self.times.bound } else { Duration::ZERO }
    }

    /// The checks after a scene: whoever can know does, nobody is silently wrong, and every address is where it
    /// should be. Nothing if it took too long.
    pub(super) async fn look_around(&mut self) -> Option<()> {
        let known = within(self.patience(), || self.everybody_knows()).await;
        let unsure = self.board.unsure().join(", ");
        let must = format!("every device knows its peer again (unsure: {unsure:?})");
        self.narrator.check(&must, known.is_some());
        self.nobody_is_silently_wrong();
        self.addresses_are_at_their_owners().await;
        known.map(drop)
    }

    fn nobody_is_silently_wrong(&mut self) {
        let wrong: Vec<String> = self
            .judge
            .take_silently_wrong()
            .iter()
            .map(|wrong| {
                let lasts = words(wrong.lasts);
                format!("{} believed for {lasts} that {} is at {}", wrong.device, wrong.peer, wrong.believes)
            })
            .collect();
        self.narrator.check(&format!("no client is silently wrong ({})", wrong.join("; ")), wrong.is_empty());
    }

    /// Every address that was acknowledged is in the datacenter, or its device was told and published it again.
    async fn addresses_are_at_their_owners(&mut self) {
        let until = Instant::now() + self.patience();
        let mut missing = Vec::new();
        for name in self.devices.names().to_vec() {
            while !self.address_is_at_its_owner(&name).await {
                if Instant::now() > until {
                    missing.push(name);
                    break;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        }
        let must = format!("every address is at its owner (not so: {:?})", missing.join(", "));
        self.narrator.check(&must, missing.is_empty());
    }

    async fn address_is_at_its_owner(&mut self, name: &str) -> bool {
        let answer = self.look(&format!("/{CONNECTIVITY}/{name}/sections/address")).await;
        let there = answer.as_ref().and_then(|answer| answer.get("value")?.as_str());
        there.is_some() && there.map(str::to_owned) == self.board.address(name)
    }

    /// At the end, device by device: it knows, or it knows that it must ask.
    pub(super) fn look_at_everybody(&mut self) {
        for device in self.devices.names().to_vec() {
            let peer = peer(&device);
            let belief = self.board.belief(&device, &peer).unwrap_or(Belief::MustPoll);
            let address = self.board.address(&peer).unwrap_or_default();
            let is_right = belief == Belief::MustPoll || belief == Belief::Known(address.clone());
            let must =
                format!("{device} is right about {peer}, which is at {address} ({device} says: {belief})");
            self.narrator.check(&must, is_right);
        }
    }

    /// Whether every device's subscription is there: renewing it does not make it anew.
    pub(super) async fn subscriptions_are_there(&self) -> bool {
        let (then, names) = (Instant::now(), self.devices.names());
        self.devices.renew();
        let answers = || names.iter().map(|name| self.board.subscribed_since(name, then));
        let answered = within(self.patience(), || answers().all(|renewed| renewed.is_some())).await;
        answered.is_some() && answers().all(|renewed| renewed == Some(true))
    }

    /// When a device was first told that what a pool had of a name is gone, or that it may have missed being told.
    pub(super) fn told_at(told: &[Told], (device, pool, name): &(String, &str, String)) -> Option<Instant> {
        let is_of = |told: &Told| (told.pool == *pool && told.name == *name) || told.pool == QUEUES;
        let is_it = |told: &&Told| told.device == *device && is_of(told);
        told.iter().find(is_it).map(|told| told.at)
    }

    /// Asks the first frontend: after a scene all of them work.
    async fn look(&self, path: &str) -> Option<Value> {
        let first = self.datacenter.frontend_names().remove(0);
        let url = format!("{}{path}", self.datacenter.frontends().url(&first));
        let answer = self.http.get(url).timeout(ANSWER_TIMEOUT).send().await.ok()?.error_for_status().ok()?;
        answer.json().await.ok()
    }
}
