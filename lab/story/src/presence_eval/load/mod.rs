//! Load on a presence pool: frontends with users who sign in, change their status and look for others'
//! presence, and a check of everything that is read.

mod measured;
mod person;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use centrifuge::Key;
use centrifuge_core::range_set::RangeSet;
use centrifuge_examples::Failure;
use centrifuge_examples::presence::frontend::{Frontend, FrontendError};
use centrifuge_examples::shared::call::{CallerArgs, Tries};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

pub(crate) use self::measured::{Counts, Distribution, Measured, Reading};
pub(crate) use self::person::{Begun, Person};

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
    /// What they do.
    pub(crate) mix: Mix,
    /// Another one draws other users.
    pub(crate) seed: u64,
}

/// What users do, in parts of a hundred; the rest are reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    /// A user signs in for the first time.
    pub(crate) inserts: u64,
    /// A user's status is another.
    pub(crate) updates: u64,
}

impl Default for Mix {
    fn default() -> Mix {
        Mix { inserts: 10, updates: 20 }
    }
}

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
    phase: Mutex<Arc<Measured>>,
    stops: AtomicBool,
}

impl Load {
    /// Connects the frontends, and signs their users in.
    pub(crate) async fn prepare(caller: &CallerArgs, pool: &str, amount: Amount) -> Result<Load, Failure> {
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
        let phase = Mutex::new(Arc::new(Measured::new()?));
        let shared = Arc::new(Shared { amount, phase, stops: AtomicBool::new(false) });
        Ok(Load { stations, shared, drivers: JoinSet::new() })
    }

    /// Begins.
    pub(crate) fn start(&mut self) {
        for station in &self.stations {
            self.drivers.spawn(drive(Arc::clone(&self.shared), Arc::clone(station)));
        }
    }

    /// What begins from now on is measured apart from what began before.
    pub(crate) fn turn_to(&self) -> Result<Arc<Measured>, Failure> {
        let measured = Arc::new(Measured::new()?);
        *lock(&self.shared.phase) = Arc::clone(&measured);
        Ok(measured)
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
    pub(crate) async fn finish(&mut self) -> Result<(), Failure> {
        self.shared.stops.store(true, Ordering::Relaxed);
        while let Some(driven) = self.drivers.join_next().await {
            driven?;
        }
        Ok(())
    }
}

impl Station {
    async fn connect(caller: &CallerArgs, pool: &str, number: usize) -> Result<Station, Failure> {
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

    fn person(&self, draw: u64) -> Option<Arc<Person>> {
        let people = lock(&self.people);
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
        let (phase, station) = (lock(&shared.phase).clone(), Arc::clone(&station));
        let draw = Key::of(format!("{} {} {number}", shared.amount.seed, station.number).as_bytes()).0;
        under_way.spawn(operate(phase, station, shared.amount.mix, number, draw, due));
        while under_way.try_join_next().is_some() {}
    }
    while under_way.join_next().await.is_some() {}
}

async fn operate(
    phase: Arc<Measured>,
    station: Arc<Station>,
    mix: Mix,
    number: u64,
    draw: u64,
    due: Instant,
) {
    let (what, who) = (draw % 100, draw / 100);
    if what < mix.inserts {
        let person = Person::new(format!("guest-{}-{number}", station.number));
        phase.note(due, station.insert(person).await.as_ref().copied());
        return;
    }
    let Some(person) = station.person(who) else { return };
    if what < mix.inserts + mix.updates {
        phase.note(due, person.write(&station.frontend).await.as_ref().copied());
        return;
    }
    let begun = person.begin(&station.frontend);
    let read = station.frontend.read(&person.name).await;
    phase.note(due, read.as_ref().map(|(_, tries)| *tries));
    if let Ok((presence, _)) = read {
        phase.saw(&person.judge(&station.frontend, begun, presence.as_ref()).await);
    }
}

/// As many as `number` has of `all`, so that all together have all.
fn share(all: usize, among: usize, number: usize) -> usize {
    all / among + usize::from(number < all % among)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
