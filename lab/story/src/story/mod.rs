//! The story of Live Mesh (Centrifuge §4.1, figure 11): home PCs change their addresses, work PCs learn them,
//! while servers die.
//!
//! `device` is what runs at home and at work: the application, which has nothing but HTTP. `datacenter` has
//! device connectivity, which is the service of documents, publish-subscribe, queues, and frontends before
//! them. `scenes`, `crashes` and `reconnects` inject faults. `board` knows where every device is and what the
//! others believe, and `judge` looks at it all the time: `times` says for how long a device may be wrong.
//!
//! The checks are not blind: `--bug deaf-queues` and `--bug forgetful-clients` break something, and then they fail.

mod board;
mod checks;
mod crashes;
mod datacenter;
mod device;
mod devices;
mod judge;
mod narrator;
mod reconnects;
mod scenes;
pub use self::narrator::Summary;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use centrifuge_examples::Result;
use centrifuge_examples::shared::call::duration;
use centrifuge_harness::Rng;
use clap::{Args, ValueEnum};

use self::board::Board;
use self::checks::within;
use self::datacenter::{Datacenter, POOLS, SERVERS};
use self::devices::{Devices, PEOPLE};
use self::judge::Judge;
use self::narrator::{Narrator, words};

/// The pool of documents that say where devices are.
const CONNECTIVITY: &str = "connectivity";
/// The pool of subscriptions to them.
const PUBSUB: &str = "pubsub";
/// The pool of the devices' queues.
const QUEUES: &str = "queues";
/// How many lines of a process's complaints are shown when something failed.
const MAX_LOG_LINES: usize = 8;

/// What a story is told.
#[derive(Args, Clone, Debug)]
pub struct StoryArgs {
    /// Decides the order of the faults, whom they hit, and when devices get new addresses
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How long leases last; everything else is derived from it
    #[arg(long, value_parser = duration, default_value = "3s", value_name = "DURATION")]
    pub lease: Duration,
    /// Print nothing but one line of JSON at the end
    #[arg(long)]
    pub json: bool,
    /// Break something on purpose, to see the checks fail
    #[arg(long, value_enum, hide = true)]
    pub bug: Option<Bug>,
}

/// What can be wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bug {
    /// Queue servers do not listen for losses of the other pools, and devices do not ask them to.
    DeafQueues,
    /// Devices do not care that their queue is another.
    ForgetfulClients,
}

/// Everything that a scene needs.
struct Story {
    times: Times,
    rng: Rng,
    datacenter: Datacenter,
    devices: Arc<Devices>,
    board: Arc<Board>,
    judge: Arc<Judge>,
    narrator: Narrator,
    /// For those who look at what the datacenter has.
    http: reqwest::Client,
}

/// Tells the whole story.
pub async fn run(args: &StoryArgs) -> Result<Summary> {
    let times = Times::of(args.lease);
    let mut rng = Rng::new(args.seed);
    let mut narrator = Narrator::new(args.json);
    greet(args, times, &mut narrator);
    let datacenter = Datacenter::start(times, args.bug).await?;
    let (board, judge) = (Arc::<Board>::default(), Arc::<Judge>::default());
    let devices = Devices::start(&board, datacenter.frontends(), &mut rng, times, args.bug);
    tokio::spawn(Arc::clone(&judge).watch(Arc::clone(&board), times.bound));
    let http = reqwest::Client::new();
    let mut story = Story { times, rng, datacenter, devices, board, judge, narrator, http };
    if let Err(error) = story.play().await {
        story.narrator.check(&format!("the story goes on to its end ({error})"), false);
    }
    story.complain();
    Ok(story.summary(args.seed))
}

fn greet(args: &StoryArgs, times: Times, narrator: &mut Narrator) {
    narrator.tell(&format!(
        "Seed {}. A Manager, {SERVERS} frontends, and {SERVERS} servers each for {}, all of them processes.",
        args.seed,
        POOLS.join(", ")
    ));
    narrator.tell(&format!(
        "{PEOPLE} people have a PC at home and one at work, and each PC must know where the other is.",
    ));
    narrator.tell(&format!(
        "Leases last {}. Whoever is connected and believes an old address for more than {} is silently wrong.",
        words(times.lease),
        words(times.bound)
    ));
}

impl Story {
    async fn play(&mut self) -> Result<()> {
        self.begin().await;
        let restless = tokio::spawn(Arc::clone(&self.devices).restless(self.rng.fork()));
        let played = self.play_scenes().await;
        restless.abort();
        played?;
        self.end().await;
        Ok(())
    }

    /// Everybody publishes, subscribes, and learns where the others are.
    async fn begin(&mut self) {
        let known = within(self.times.bound, || self.everybody_knows()).await;
        self.narrator.check("every device knows its peer at the beginning", known.is_some());
        if let Some(time) = known {
            self.narrator.tell(&format!(
                "All {} know each other {} after they were switched on.",
                self.devices.names().len(),
                words(time)
            ));
        }
    }

    async fn end(&mut self) {
        self.narrator.scene("The end: nobody moves any more.");
        self.look_around().await;
        self.look_at_everybody();
        let (changes, longest) = (self.devices.changes(), words(self.judge.longest()));
        self.narrator.tell(&format!(
            "Devices had {changes} addresses. The longest that a connected one believed an old address: {longest}."
        ));
    }

    fn summary(&self, seed: u64) -> Summary {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let failures = self.narrator.failures.clone();
        Summary {
            seed,
            passed: self.narrator.passed,
            failed: failures.len() as u64,
            failures,
            seconds: self.narrator.began.elapsed().as_secs_f64(),
            longest_behind_ms: ms(self.judge.longest()),
            bound_ms: ms(self.times.bound),
            changes: self.devices.changes(),
            lease_ms: ms(self.times.lease),
        }
    }

    /// After a failure, what the processes had to say.
    fn complain(&self) {
        if self.narrator.failures.is_empty() {
            return;
        }
        for file in fs::read_dir(self.datacenter.logs()).into_iter().flatten().flatten() {
            let text = fs::read_to_string(file.path()).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            for line in &lines[lines.len().saturating_sub(MAX_LOG_LINES)..] {
                eprintln!("{}: {line}", file.file_name().to_string_lossy());
            }
        }
    }
}

/// The times of a run.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// How long leases last.
    pub(super) lease: Duration,
    /// How long a device's request for news waits for some.
    pub(super) long_poll: Duration,
    /// How long any other answer may take before a device looks for another frontend. A request that meets a
    /// dead server waits for the next owner: that must fit.
    pub(super) answer: Duration,
    /// How long a device may believe an old address, from when the new one was acknowledged.
    pub(super) bound: Duration,
}

impl Times {
    /// The times that fit leases of this length.
    ///
    /// The bound adds up what can come one after the other between an acknowledged change and a device that was
    /// connected all the time: a queue server that hears nothing knows after the contact timeout that it may
    /// have missed losses; the device may just then be waiting, for news and for an answer that never comes;
    /// and what it asks for after that may have to wait until the keys of a dead server have another, which
    /// takes a lease, its safety margin and a moment.
    pub(super) fn of(lease: Duration) -> Times {
        // What callers are told when a cluster starts them.
        let contact = lease * 3;
        let long_poll = lease * 2 / 3;
        let replacement = lease * 3 / 2;
        let answer = lease * 5 / 2;
        Times { lease, long_poll, answer, bound: contact + long_poll + answer + replacement }
    }
}
