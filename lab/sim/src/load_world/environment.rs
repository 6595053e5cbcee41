//! What happens to every partitioner alike: the load as it changes, and Owners that crash, join and drain.

use std::rc::Rc;

use centrifuge_core::id::OwnerName;
#[cfg(test)]
use centrifuge_core::key::KeyRange;
use clap::ValueEnum;

use crate::world::rng::{Rng, mix};

use super::keys::{Keys, Popularity};
use super::load::{Load, LoadHistory, Shape, Wave};
use super::ordered::ApplicationKeys;
use super::{SECOND, WARM_UP};

/// Which disturbances happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// Nothing changes.
    Static,
    /// Every 600 s, 10 of the 100 hottest keys change places with random others.
    Hot,
    /// Every 1,200 s, five random keys get 2 % of all load each, for 600 s.
    Flash,
    /// The load rises and falls by 30 %, and a twentieth of the key space, up to five times as hot, goes round in 8 hours.
    Wave,
    /// Every 450 s, in turn: an Owner crashes, one joins, one drains, one joins.
    Member,
    /// All of these at once.
    Mixed,
}

impl Scenario {
    fn has(self, part: Scenario) -> bool {
        self == part || self == Scenario::Mixed
    }
}

/// How large the world is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// How many keys.
    pub(super) keys: usize,
    /// How many Owners at the start.
    pub(super) owners: usize,
    /// The exponent of Zipf's law.
    pub(super) zipf: f64,
    /// Requests per second and unit of weight.
    pub(super) rate: f64,
    /// What the application calls its keys.
    pub(super) application_keys: ApplicationKeys,
}

/// Something that a partitioner, or the time to recover, has to do with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Incident {
    /// The load is suddenly another.
    LoadChanged,
    /// An Owner's process is gone.
    Crashed(usize),
    /// A new Owner is here.
    Joined(usize),
    /// An Owner wants to be emptied.
    Draining(usize),
}

/// An Owner.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) name: OwnerName,
    /// In percent of the usual.
    pub(super) weight: u32,
    pub(super) standing: Standing,
}

/// Whether an Owner serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It may have keys.
    Serving,
    /// It serves what it has and gets nothing new.
    Draining,
    /// It is gone.
    Crashed,
}

impl Member {
    pub(super) fn new(number: usize) -> Member {
        let name = OwnerName::new(&format!("owner-{number:05}")).expect("a plain name");
        Member { name, weight: WEIGHTS[number % WEIGHTS.len()], standing: Standing::Serving }
    }

    /// Its weight, one being the usual.
    pub(super) fn weight(&self) -> f64 {
        f64::from(self.weight) / 100.0
    }

    pub(super) fn may_have_keys(&self) -> bool {
        self.standing == Standing::Serving
    }

    pub(super) fn is_alive(&self) -> bool {
        self.standing != Standing::Crashed
    }
}

/// The weights that Owners have in turn, in percent.
const WEIGHTS: [u32; 4] = [50, 100, 100, 200];
/// How many hot keys change places at once.
const SWAPPED: usize = 10;
/// How many keys are hot in a flash, and how much of the load each has.
const FLASH: (usize, f64) = (5, 0.02);
/// How far the load rises and falls.
const SWING: f64 = 0.3;
/// How long the wave takes, in seconds.
const WAVE_PERIOD: f64 = 8.0 * 3_600.0;
/// How often the wave goes on: it moves by half a thousandth of the key space each time.
const WAVE_STEP: u64 = 15 * SECOND;
/// The wave's width and height.
const WAVE: (f64, f64) = (0.05, 5.0);
/// After the time that does not count, each kind of disturbance begins so many seconds later.
const HOT_EVERY: (u64, u64) = (150, 600);
const FLASH_EVERY: (u64, u64) = (300, 1_200);
const FLASH_LENGTH: u64 = 600;
const MEMBER_EVERY: (u64, u64) = (50, 450);

/// The load and the Owners of a seed, as they are now. The same for every partitioner.
#[derive(Debug)]
pub(super) struct Environment {
    /// What counts are drawn with.
    pub(super) seed: u64,
    pub(super) history: LoadHistory,
    pub(super) members: Vec<Member>,
    pub(super) application_keys: ApplicationKeys,
    scenario: Scenario,
    keys: Rc<Keys>,
    popularity: Popularity,
    /// Requests per second of all keys, before waves.
    usual: f64,
    /// The weight of the Owners at the start.
    weight: f64,
    flash: Vec<(usize, f64)>,
    rng: Rng,
    member_turn: usize,
}

impl Environment {
    pub(super) fn new(seed: u64, scenario: Scenario, size: Size) -> Environment {
        let mut rng = Rng::new(mix(seed ^ 0x10ad));
        let keys = Rc::new(size.application_keys.keys(size.keys, &mut rng));
        let popularity = size.application_keys.popularity(keys.len(), size.zipf, &mut rng);
        let members: Vec<Member> = (0..size.owners).map(Member::new).collect();
        let weight: f64 = members.iter().map(Member::weight).sum();
        let usual = weight * size.rate;
        let shape = shape_at(scenario, 0, usual, &[]);
        let load = Rc::new(Load::new(&keys, &popularity, &shape, weight));
        Environment {
            seed: rng.next(),
            history: LoadHistory::new(Rc::clone(&keys), load),
            members,
            application_keys: size.application_keys,
            scenario,
            keys,
            popularity,
            usual,
            weight,
            flash: Vec::new(),
            rng,
            member_turn: 0,
        }
    }

    /// Lets happen what is due at a time, which is a whole number of seconds.
    pub(super) fn step(&mut self, now: u64) -> Vec<Incident> {
        let second = now / SECOND;
        let mut incidents = Vec::new();
        let load_changed = self.disturb_load(second);
        if load_changed {
            incidents.push(Incident::LoadChanged);
        }
        let waves = self.scenario.has(Scenario::Wave) && now.is_multiple_of(WAVE_STEP);
        let moved_on = self.application_keys.at(now);
        let moves_on = moved_on.is_some();
        if let Some(popularity) = moved_on {
            self.popularity = popularity;
        }
        if load_changed || waves || moves_on {
            let shape = shape_at(self.scenario, second, self.usual, &self.flash);
            let load = Load::new(&self.keys, &self.popularity, &shape, self.weight);
            self.history.push(now, Rc::new(load));
        }
        if self.scenario.has(Scenario::Member) && is_due(second, MEMBER_EVERY) {
            incidents.push(self.change_members());
        }
        incidents
    }

    /// From the first to the last of the keys that have at least so much of what the hottest has.
    #[cfg(test)]
    pub(super) fn hot_keys(&self, part: f64) -> KeyRange {
        let shares = self.popularity.shares();
        let least = shares.iter().copied().fold(0.0, f64::max) * part;
        let is_hot = |place: &usize| shares[*place] >= least;
        let places = 0..shares.len();
        let (first, last) = (places.clone().find(is_hot), places.rev().find(is_hot));
        let key = |place: Option<usize>| self.keys.key(place.expect("the hottest"));
        KeyRange::new(key(first), key(last)).expect("in order")
    }

    /// All keys of each tenant.
    #[cfg(test)]
    pub(super) fn tenants(&self) -> Vec<KeyRange> {
        let each = super::ordered::things_of_each(self.keys.len());
        let last = |place: usize| (place + each).min(self.keys.len()) - 1;
        let keys = |place: usize| KeyRange::new(self.keys.key(place), self.keys.key(last(place)));
        (0..self.keys.len()).step_by(each).map(|place| keys(place).expect("in order")).collect()
    }

    fn disturb_load(&mut self, second: u64) -> bool {
        let swaps = self.scenario.has(Scenario::Hot) && is_due(second, HOT_EVERY);
        if swaps {
            match self.application_keys.disturbed(self.keys.len(), &mut self.rng) {
                Some(other) => self.popularity = other,
                None => self.popularity.swap_hottest(SWAPPED, &mut self.rng),
            }
        }
        let flashes = self.scenario.has(Scenario::Flash) && is_due(second, FLASH_EVERY);
        let ends = !self.flash.is_empty() && is_due(second - FLASH_LENGTH, FLASH_EVERY);
        if flashes {
            let (count, part) = FLASH;
            self.flash =
                (0..count).map(|_| (self.rng.below(self.keys.len() as u64) as usize, part)).collect();
        } else if ends {
            self.flash.clear();
        }
        swaps || flashes || ends
    }

    fn change_members(&mut self) -> Incident {
        self.member_turn += 1;
        match self.member_turn % 4 {
            1 => {
                let owner = self.pick_serving();
                self.members[owner].standing = Standing::Crashed;
                Incident::Crashed(owner)
            }
            3 => {
                let owner = self.pick_serving();
                self.members[owner].standing = Standing::Draining;
                Incident::Draining(owner)
            }
            _ => {
                self.members.push(Member::new(self.members.len()));
                Incident::Joined(self.members.len() - 1)
            }
        }
    }

    fn pick_serving(&mut self) -> usize {
        let serving: Vec<usize> =
            (0..self.members.len()).filter(|number| self.members[*number].may_have_keys()).collect();
        self.rng.pick(&serving)
    }
}

fn is_due(second: u64, (first, every): (u64, u64)) -> bool {
    let begin = WARM_UP / SECOND + first;
    second >= begin && (second - begin).is_multiple_of(every)
}

fn shape_at(scenario: Scenario, second: u64, usual: f64, flash: &[(usize, f64)]) -> Shape {
    let flash = flash.to_vec();
    if !scenario.has(Scenario::Wave) {
        return Shape { total: usual, wave: None, flash };
    }
    let phase = (second as f64 / WAVE_PERIOD).fract();
    let (width, height) = WAVE;
    let total = usual * (1.0 + SWING * (std::f64::consts::TAU * phase).sin());
    Shape { total, wave: Some(Wave { centre: phase, width, height }), flash }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Size =
        Size { keys: 2_000, owners: 8, zipf: 0.99, rate: 100.0, application_keys: ApplicationKeys::Hashed };

    /// What happens in the first simulated hour after the time that does not count.
    fn incidents(scenario: Scenario) -> Vec<(u64, Incident)> {
        let mut environment = Environment::new(1, scenario, SMALL);
        let seconds = (0..WARM_UP / SECOND + 3_600).step_by(5);
        let mut found = Vec::new();
        for second in seconds.skip(1) {
            found.extend(environment.step(second * SECOND).into_iter().map(|incident| (second, incident)));
        }
        found
    }

    #[test]
    fn each_scenario_disturbs_as_often_as_it_says() {
        assert!(incidents(Scenario::Static).is_empty());
        assert!(incidents(Scenario::Wave).is_empty());
        assert_eq!(incidents(Scenario::Hot).len(), 6);
        assert_eq!(incidents(Scenario::Flash).len(), 6);
        let kinds: Vec<_> = incidents(Scenario::Member).into_iter().map(|(_, kind)| kind).take(4).collect();
        assert!(matches!(
            kinds[..],
            [Incident::Crashed(_), Incident::Joined(8), Incident::Draining(_), Incident::Joined(9)]
        ));
        assert_eq!(incidents(Scenario::Mixed).len(), 6 + 6 + 8);
        assert!(incidents(Scenario::Mixed).iter().all(|(second, _)| *second >= 900));
    }

    #[test]
    fn the_same_seed_has_the_same_incidents() {
        assert_eq!(incidents(Scenario::Mixed), incidents(Scenario::Mixed));
    }

    #[test]
    fn a_flash_has_a_tenth_of_the_load_while_it_lasts() {
        let mut environment = Environment::new(1, Scenario::Flash, SMALL);
        let begin = WARM_UP / SECOND + FLASH_EVERY.0;
        environment.step(begin * SECOND);
        let hottest: Vec<f64> = environment.history.now().hottest().iter().map(|(_, rate)| *rate).collect();
        let flashing = hottest.iter().filter(|rate| (**rate / environment.usual - 0.02).abs() < 1e-9);
        assert_eq!(flashing.count(), 5);
        environment.step((begin + FLASH_LENGTH) * SECOND);
        assert!((environment.history.now().total() / environment.usual - 1.0).abs() < 1e-9);
    }
}
