//! Load on a presence pool: frontends with users who sign in, change their status and look for others'
//! presence, and a check of everything that is read.

mod measured;
mod person;
mod popularity;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use centrifuge::Key;
use centrifuge_core::range_set::RangeSet;
use centrifuge_examples::Result;
use centrifuge_examples::presence::frontend::{Frontend, FrontendError};
use centrifuge_examples::shared::call::{CallerArgs, Tries};
use centrifuge_harness::lock;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

pub(crate) use self::measured::{Counts, Measured, Reading, quantile_ms};
pub(crate) use self::person::{Begun, Person};
use self::popularity::Popularity;

/// Longer than any measurement.
const TTL: Duration = Duration::from_secs(24 * 3600);

/// How much load there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amount {
    /// Frontends, each with a Lookup, connections and users of its own.
    pub(crate) frontends: usize,
    /// Users in all who are signed in before it begins.
    pub(crate) users: usize,
    /// What each frontend's users do in a second.
    pub(crate) rate: f64,
    /// Another one draws other users.
    pub(crate) seed: u64,
    /// The exponent of Zipf's law, if some users are asked for more often than others. Then nobody signs in for the first time.
    pub(crate) skew: Option<f64>,
}

/// What users do, in parts of a hundred: so many sign in for the first time; the rest are reads.
const INSERTS: u64 = 10;
/// So many change their status.
const UPDATES: u64 = 20;

/// A frontend and its users.
pub(crate) struct Station {
    number: usize,
    frontend: Frontend,
    people: Mutex<Vec<Arc<Person>>>,
    told: Arc<Mutex<RangeSet>>,
}

/// Load that goes on until it is told to stop.
pub(crate) struct Load {
    stations: Vec<Arc<Station>>,
    shared: Arc<Shared>,
    drivers: JoinSet<()>,
}

struct Shared {
    amount: Amount,
    phase: Mutex<Arc<Mutex<Measured>>>,
    stops: AtomicBool,
    /// Who is asked for more often than others.
    popularity: Option<Popularity>,
}

impl Load {
    /// Connects the frontends, and signs their users in.
    pub(crate) async fn prepare(caller: &CallerArgs, pool: &str, amount: Amount) -> Result<Load> {
        let mut stations = Vec::new();
        for number in 0..amount.frontends {
            stations.push(Arc::new(Station::connect(caller, pool, number).await?));
        }
        let mut signing_in = JoinSet::new();
        for station in &stations {
            let count = share(amount.users, amount.frontends, station.number);
            signing_in.spawn(sign_in(Arc::clone(station), count));
        }
        while let Some(signed_in) = signing_in.join_next().await {
            signed_in??;
        }
        let (phase, stops) = Default::default();
        stations.iter().for_each(|station| station.sort());
        let most = amount.users.div_ceil(amount.frontends);
        let popularity = amount.skew.map(|exponent| Popularity::new(most, exponent));
        let shared = Arc::new(Shared { amount, phase, stops, popularity });
        Ok(Load { stations, shared, drivers: JoinSet::new() })
    }

    /// Begins.
    pub(crate) fn start(&mut self) {
        for station in &self.stations {
            self.drivers.spawn(drive(Arc::clone(&self.shared), Arc::clone(station)));
        }
    }

    /// What begins from now on is measured apart from what began before.
    pub(crate) fn turn_to(&self) -> Arc<Mutex<Measured>> {
        let measured: Arc<Mutex<Measured>> = Arc::default();
        *lock(&self.shared.phase) = Arc::clone(&measured);
        measured
    }

    /// The users behind this point of the key space are popular from now on.
    pub(crate) fn shift_to(&self, hot: Key) {
        if let Some(popularity) = &self.shared.popularity {
            popularity.shift_to(hot);
        }
    }

    /// The frontends.
    pub(crate) fn stations(&self) -> &[Arc<Station>] {
        &self.stations
    }

    /// How many losses were told, and how many publications were made again, at all frontends.
    pub(crate) fn told(&self) -> (u64, u64) {
        let counts = self.stations.iter().map(|station| station.frontend.publications().counts());
        counts.fold((0, 0), |(losses, again), counts| (losses + counts.losses, again + counts.again))
    }

    /// Begins nothing any more, and waits until all that began has ended.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        self.shared.stops.store(true, Ordering::Relaxed);
        while let Some(driven) = self.drivers.join_next().await {
            driven?;
        }
        Ok(())
    }
}

impl Station {
    async fn connect(caller: &CallerArgs, pool: &str, number: usize) -> Result<Station> {
        let frontend = Frontend::connect(caller, pool, TTL).await?;
        let told: Arc<Mutex<RangeSet>> = Arc::default();
        let (mut losses, noted) = (frontend.pool().lookup().losses(), Arc::clone(&told));
        tokio::spawn(async move {
            while let Some(loss) = losses.next().await {
                let mut told = lock(&noted);
                loss.keys.iter().for_each(|range| told.insert(range));
            }
        });
        Ok(Station { number, frontend, people: Mutex::default(), told })
    }

    /// The frontend.
    pub(crate) fn frontend(&self) -> &Frontend {
        &self.frontend
    }

    /// The users who are signed in.
    pub(crate) fn people(&self) -> Vec<Arc<Person>> {
        lock(&self.people).clone()
    }

    /// Every key that this frontend was told is lost.
    pub(crate) fn told(&self) -> RangeSet {
        lock(&self.told).clone()
    }

    async fn insert(&self, person: Person) -> Result<Tries, FrontendError> {
        let tries = person.write(&self.frontend).await?;
        lock(&self.people).push(Arc::new(person));
        Ok(tries)
    }

    /// Brings the users in the order of their keys.
    fn sort(&self) {
        lock(&self.people).sort_by_key(|person| person.key);
    }

    fn person(&self, draw: u64, popularity: Option<&Popularity>) -> Option<Arc<Person>> {
        let people = lock(&self.people);
        if let Some(popularity) = popularity {
            let behind = |hot: Key| people.partition_point(|person| person.key < hot);
            return people.get(popularity.place(people.len(), behind, draw)?).cloned();
        }
        let count = u64::try_from(people.len()).ok()?;
        let chosen = usize::try_from(draw.checked_rem(count)?).ok()?;
        people.get(chosen).cloned()
    }
}

async fn sign_in(station: Arc<Station>, count: usize) -> Result<(), FrontendError> {
    for number in 0..count {
        station.insert(Person::new(format!("user-{}-{number}", station.number))).await?;
    }
    Ok(())
}

/// Does things at their times, however long they take: a server that is slow is not spared for it.
async fn drive(shared: Arc<Shared>, station: Arc<Station>) {
    let between = Duration::from_secs_f64(1.0 / shared.amount.rate);
    let first = between.mul_f64(station.number as f64 / shared.amount.frontends as f64);
    let mut ticks = tokio::time::interval_at(Instant::now() + first, between);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut under_way = JoinSet::new();
    for number in 0_u64.. {
        let due = ticks.tick().await;
        if shared.stops.load(Ordering::Relaxed) {
            break;
        }
        let (shared, station) = (Arc::clone(&shared), Arc::clone(&station));
        let draw = Key::of(format!("{} {} {number}", shared.amount.seed, station.number).as_bytes()).0;
        under_way.spawn(operate(shared, station, number, draw, due));
        while under_way.try_join_next().is_some() {}
    }
    while under_way.join_next().await.is_some() {}
}

async fn operate(shared: Arc<Shared>, station: Arc<Station>, number: u64, draw: u64, due: Instant) {
    let phase = lock(&shared.phase).clone();
    let popularity = shared.popularity.as_ref();
    let (what, who) = (draw % 100, draw / 100);
    if what < INSERTS && popularity.is_none() {
        let person = Person::new(format!("guest-{}-{number}", station.number));
        let inserted = station.insert(person).await;
        lock(&phase).note(due, inserted.as_ref().copied());
        return;
    }
    // What chooses the user must not depend on what is done to it.
    let who = if popularity.is_some() { Key::of(&draw.to_le_bytes()).0 } else { who };
    let Some(person) = station.person(who, popularity) else { return };
    if what < INSERTS + UPDATES {
        let written = person.write(&station.frontend).await;
        lock(&phase).note(due, written.as_ref().copied());
        return;
    }
    let begun = person.begin(&station.frontend);
    let read = station.frontend.read(&person.name).await;
    lock(&phase).note(due, read.as_ref().map(|(_, tries)| *tries));
    if let Ok((presence, _)) = read {
        let seen = person.judge(&station.frontend, begun, presence.as_ref()).await;
        lock(&phase).saw(&seen);
    }
}

/// As many as `number` has of `all`, so that all together have all.
fn share(all: usize, among: usize, number: usize) -> usize {
    all / among + usize::from(number < all % among)
}
