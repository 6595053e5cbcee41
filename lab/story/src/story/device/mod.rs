//! A device, which publishes where it is and follows others: all that it has is HTTP to a frontend.

mod connection;
mod memory;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use centrifuge_examples::shared::stamp::Stamp;
use centrifuge_harness::Rng;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;

use self::connection::{Connection, Trouble};
use self::memory::{ADDRESS, Entry, Memory};
use super::board::Board;
use super::datacenter::Frontends;
use super::{Bug, CONNECTIVITY, PUBSUB, QUEUES, Times};

pub(super) use self::memory::Belief;

/// How often a write is tried again because the document was another.
const MAX_WRITES: usize = 3;
/// How long a device waits before it asks again for what is not there yet.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// What the world does with a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Circumstances {
    /// Where it is.
    pub(super) address: String,
    /// Whether it is switched on.
    pub(super) is_on: bool,
    /// How often it was asked to renew its subscriptions early.
    pub(super) renewals: u64,
}

/// A device of the story.
pub(super) struct Device {
    memory: Memory,
    connection: Connection,
    circumstances: watch::Receiver<Circumstances>,
    board: Arc<Board>,
    times: Times,
    /// When subscriptions and the document are to be refreshed.
    refresh_at: Option<Instant>,
    /// How often it renewed its subscriptions early.
    renewals: u64,
    /// What is wrong with it on purpose.
    bug: Option<Bug>,
}

#[derive(Deserialize)]
struct Opened {
    incarnation: Stamp,
    missed: bool,
}

#[derive(Deserialize)]
struct Messages {
    missed: bool,
    #[serde(default)]
    messages: Vec<Entry>,
}

#[derive(Deserialize)]
struct Subscribed {
    subscription: Stamp,
    renewed: bool,
    ttl_ms: u64,
}

#[derive(Deserialize)]
struct Section {
    version: Stamp,
    value: String,
}

impl Device {
    /// A device that has done nothing yet.
    pub(super) fn new(
        name: &str,
        peers: &[String],
        circumstances: watch::Receiver<Circumstances>,
        (frontends, rng): (Frontends, Rng),
        board: Arc<Board>,
        times: Times,
    ) -> Device {
        let connection = Connection::new(frontends, rng, times.answer);
        let memory = Memory::new(name, peers);
        Device { memory, connection, circumstances, board, times, refresh_at: None, renewals: 0, bug: None }
    }

    /// Breaks it on purpose, to see whether anybody notices.
    pub(super) fn bug(mut self, bug: Option<Bug>) -> Device {
        self.bug = bug;
        self
    }

    /// Lives until the story ends. A change of circumstances ends whatever it is doing; it takes that up again.
    pub(super) async fn live(mut self) {
        let mut circumstances = self.circumstances.clone();
        loop {
            let now = circumstances.borrow_and_update().clone();
            self.memory.moves_to(&now.address);
            if std::mem::replace(&mut self.renewals, now.renewals) != now.renewals {
                self.memory.renew();
            }
            let changed = if now.is_on {
                self.show();
                tokio::select! {
                    changed = circumstances.changed() => changed,
                    never = self.work() => never,
                }
            } else {
                circumstances.changed().await
            };
            if changed.is_err() {
                return;
            }
        }
    }

    async fn work(&mut self) -> ! {
        loop {
            if let Err(trouble) = self.turn().await {
                self.go_elsewhere(&trouble).await;
            }
            self.show();
        }
    }

    /// Whatever is to be done, in an order that leaves no gap: whoever subscribes before asking misses no change.
    async fn turn(&mut self) -> Result<(), Trouble> {
        self.refresh_in_time();
        if self.memory.must_open {
            self.open().await?;
        }
        if self.memory.must_publish {
            self.publish().await?;
        }
        for peer in self.memory.peers.keys().cloned().collect::<Vec<_>>() {
            if self.memory.peers[&peer].must_subscribe {
                self.subscribe(&peer).await?;
            }
            if self.memory.peers[&peer].must_poll {
                self.poll(&peer).await?;
            }
        }
        self.show();
        self.listen().await
    }

    /// Another frontend knows nothing of this device, and what the last one knew may be lost: publish and ask
    /// again (PRS §2.1).
    async fn go_elsewhere(&mut self, trouble: &Trouble) {
        tracing::debug!(device = self.memory.name, "goes elsewhere: {}", trouble.0);
        self.memory.begin_anew();
        self.connection.go_elsewhere();
        self.show();
        tokio::time::sleep(RETRY_INTERVAL).await;
    }

    async fn open(&mut self) -> Result<(), Trouble> {
        let name = &self.memory.name;
        let peers: Vec<&String> = self.memory.peers.keys().collect();
        let documents: Vec<&String> = peers.iter().copied().chain([name]).collect();
        // Queues that watch nothing refuse every interest.
        let is_deaf = self.bug == Some(Bug::DeafQueues);
        let interests = if is_deaf { json!({}) } else { json!({CONNECTIVITY: documents, PUBSUB: peers}) };
        let body = json!({"interests": interests, "incarnation": self.memory.incarnation});
        let opened: Opened = self.connection.post(&format!("/{QUEUES}/{name}/open"), &body).await?.read()?;
        if opened.missed {
            self.miss();
        }
        self.memory.opened(opened.incarnation);
        Ok(())
    }

    /// It may have missed anything: whatever its queue would have told it, it does now.
    fn miss(&mut self) {
        self.board.told(&self.memory.name, QUEUES, &self.memory.name);
        if self.bug == Some(Bug::ForgetfulClients) {
            self.memory.must_open = true;
        } else {
            self.memory.begin_anew();
        }
    }

    async fn publish(&mut self) -> Result<(), Trouble> {
        for _ in 0..MAX_WRITES {
            let (name, address) = (self.memory.name.clone(), self.memory.address.clone());
            let seen = self.memory.document.map_or_else(|| "none".to_owned(), |version| version.to_string());
            let path = format!("/{CONNECTIVITY}/{name}/sections/{ADDRESS}?if_version={seen}");
            let answer = self.connection.put(&path, &address).await?;
            self.memory.document = answer.field("version");
            if answer.status != StatusCode::PRECONDITION_FAILED {
                answer.read::<serde_json::Value>()?;
                self.memory.must_publish = false;
                self.board.published(&name, &address);
                break;
            }
        }
        Ok(())
    }

    async fn subscribe(&mut self, peer: &str) -> Result<(), Trouble> {
        let known = self.memory.peers.get(peer).and_then(|peer| peer.subscription);
        let body = json!({"queue": self.memory.name, "subscription": known});
        let subscribed: Subscribed =
            self.connection.post(&format!("/{PUBSUB}/{peer}/subscribe"), &body).await?.read()?;
        let now = Instant::now();
        self.board.change(&self.memory.name, |sheet| sheet.subscribed = Some((now, subscribed.renewed)));
        let refresh_at = now + Duration::from_millis(subscribed.ttl_ms) / 3;
        self.refresh_at = Some(self.refresh_at.map_or(refresh_at, |earlier| earlier.min(refresh_at)));
        if let Some(peer) = self.memory.peers.get_mut(peer) {
            peer.must_subscribe = false;
            peer.subscription = Some(subscribed.subscription);
            peer.must_poll |= !subscribed.renewed;
        }
        Ok(())
    }

    /// Asks where a peer is. One that has not published again yet is asked for again later.
    async fn poll(&mut self, peer: &str) -> Result<(), Trouble> {
        let path = format!("/{CONNECTIVITY}/{peer}/sections/{ADDRESS}");
        let answer = self.connection.get(&path, Duration::ZERO).await?;
        self.board.change(&self.memory.name, |sheet| sheet.polls += 1);
        if answer.status != StatusCode::NOT_FOUND {
            let section: Section = answer.read()?;
            self.memory.polled(peer, section.version, &section.value);
        }
        Ok(())
    }

    /// Waits for news from its queue.
    async fn listen(&mut self) -> Result<(), Trouble> {
        let Some(incarnation) = self.memory.incarnation else { return Ok(()) };
        let wait = if self.memory.is_at_ease() { self.times.long_poll } else { RETRY_INTERVAL };
        let (name, after) = (&self.memory.name, self.memory.after);
        let path = format!(
            "/{QUEUES}/{name}/messages?incarnation={incarnation}&after={after}&wait_ms={}",
            wait.as_millis()
        );
        let news: Messages = self.connection.get(&path, wait).await?.read()?;
        if news.missed {
            self.miss();
            return Ok(());
        }
        for entry in &news.messages {
            self.memory.hear(entry);
            if let Entry::Lost { lost, .. } = entry {
                lost.names
                    .iter()
                    .for_each(|lost_name| self.board.told(&self.memory.name, &lost.pool, lost_name));
            }
        }
        Ok(())
    }

    /// Subscriptions end by themselves unless they are renewed, and documents too.
    fn refresh_in_time(&mut self) {
        if self.refresh_at.is_some_and(|at| at <= Instant::now()) {
            self.refresh_at = None;
            self.memory.must_publish = true;
            self.memory.renew();
        }
    }

    /// Shows everybody what it believes.
    fn show(&self) {
        let beliefs = self.memory.peers.iter().map(|(name, peer)| (name.clone(), peer.belief())).collect();
        self.board.change(&self.memory.name, |sheet| {
            sheet.beliefs = beliefs;
            self.connection.frontend().clone_into(&mut sheet.frontend);
            sheet.incarnation = self.memory.incarnation;
        });
    }
}
