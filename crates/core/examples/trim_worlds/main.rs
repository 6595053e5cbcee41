//! Measures Trim in the worlds of its specification, each for one simulated hour after a quarter hour of settling.
//!
//! - `cargo run --release -p centrifuge-core --example trim_worlds -- [WORLD...] [SEED...] [detail]`
//! - `cargo run --release -p centrifuge-core --example trim_worlds -- timing DECISIONS`

mod timing;
mod world;

use std::collections::BTreeMap;

use centrifuge_core::trim::TrimReason;
use world::{RENEWAL, World};

/// The first seconds do not count.
const SETTLING: u64 = 900;
const HOUR: u64 = 3_600;
const STEP: u64 = 5;
/// Peaks below this are good.
const GOOD: f64 = 1.1;
/// Recoveries are watched for so many seconds.
const WATCHED: u64 = 300;
const WORLDS: [&str; 7] = ["static", "hot", "flash", "wave", "member", "mixed", "low"];

/// What happens in a world.
#[derive(Clone, Copy)]
struct Events {
    hot: bool,
    flash: bool,
    wave: bool,
    member: bool,
}

impl Events {
    fn of(name: &str) -> Events {
        let is = |event: &str| name == event || name == "mixed";
        Events { hot: is("hot"), flash: is("flash"), wave: is("wave"), member: is("member") }
    }
}

/// What is measured.
#[derive(Default)]
struct Figures {
    peaks: Vec<f64>,
    recoveries: Vec<u64>,
    /// When events happened from which the pool has not recovered.
    waiting: Vec<u64>,
    load_moved: f64,
    leases_moved: usize,
    reasons: BTreeMap<TrimReason, (usize, f64)>,
    most_ranges: f64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    if arguments.iter().any(|argument| argument == "timing") {
        return timing::run(numbers.first().copied().unwrap_or(1));
    }
    let seeds = if numbers.is_empty() { vec![1, 2, 3] } else { numbers };
    let named: Vec<&str> = WORLDS.into_iter().filter(|name| arguments.iter().any(|a| a == name)).collect();
    let is_detailed = arguments.iter().any(|argument| argument == "detail");
    println!("world   seed  peak   <1.1  recover med/p95  load %/h  leases/h  ranges/Owner");
    for name in if named.is_empty() { WORLDS.to_vec() } else { named } {
        for &seed in &seeds {
            measure(name, seed, is_detailed);
        }
    }
}

fn measure(name: &str, seed: u64, is_detailed: bool) {
    let requests = if name == "low" { 20.0 } else { 1_000.0 };
    let mut world = World::new(seed, 100, 1_000_000, requests);
    world.is_detailed = is_detailed;
    let mut play = Play { events: Events::of(name), flashes: Vec::new(), members: 0 };
    let mut figures = Figures::default();
    for now in (0..SETTLING + HOUR).step_by(STEP as usize) {
        world.now = now;
        world.end_moves();
        if now.is_multiple_of(RENEWAL) && now > 0 {
            world.report();
        }
        let happened = play.step(&mut world);
        if happened && now >= SETTLING {
            figures.waiting.push(now);
        }
        if now.is_multiple_of(RENEWAL) || world.membership_changed {
            let moves = world.decide();
            for (m, part) in moves.iter().filter(|_| now >= SETTLING) {
                figures.leases_moved += 1;
                figures.load_moved += part * 100.0;
                let reason = figures.reasons.entry(m.reason).or_default();
                *reason = (reason.0 + 1, reason.1 + part * 100.0);
            }
        }
        figures.note(&world, is_detailed);
    }
    figures.print(name, seed, is_detailed);
}

impl Figures {
    fn note(&mut self, world: &World, is_detailed: bool) {
        self.most_ranges = self.most_ranges.max(world.ranges_per_owner());
        if world.now < SETTLING {
            return;
        }
        let (peak, now) = (world.peak(), world.now);
        self.peaks.push(peak);
        let ended = |begun: &mut u64| peak < GOOD || now - *begun >= WATCHED;
        self.recoveries.extend(self.waiting.extract_if(.., ended).map(|begun| now - begun));
        if is_detailed && peak >= GOOD {
            println!("  {now} s: {peak:.3}, {}, events waiting {:?}", world.peak_owner(), self.waiting);
        }
    }

    fn print(&mut self, name: &str, seed: u64, is_detailed: bool) {
        self.recoveries.sort_unstable();
        let quantile = |part: usize| match self.recoveries.len() {
            0 => 0,
            count => self.recoveries[(count * part / 100).min(count - 1)],
        };
        let count = self.peaks.len() as f64;
        let average = self.peaks.iter().sum::<f64>() / count;
        let good = self.peaks.iter().filter(|peak| **peak < GOOD).count() as f64 / count * 100.0;
        println!(
            "{name:7} {seed:4}  {average:.3}  {good:3.0} %  {:7}/{:3} s  {:10.1}  {:8}  {:12.1}",
            quantile(50),
            quantile(95),
            self.load_moved,
            self.leases_moved,
            self.most_ranges,
        );
        if is_detailed {
            self.reasons
                .iter()
                .for_each(|(reason, (count, load))| println!("  {reason:?}: {count}, {load:.1} %"));
        }
    }
}

/// The events of a world as they unfold.
struct Play {
    events: Events,
    /// Keys that have 2 % of the load each for a while.
    flashes: Vec<usize>,
    members: u64,
}

impl Play {
    /// Lets happen what happens now; says whether the pool has to recover from it.
    fn step(&mut self, world: &mut World) -> bool {
        let now = world.now;
        let due = |is_on: bool, every: u64| is_on && now > 0 && now.is_multiple_of(every);
        let (hot, flash, member) =
            (due(self.events.hot, 600), due(self.events.flash, 600), due(self.events.member, 450));
        if hot {
            change_hot_keys(world);
        }
        if flash && now.is_multiple_of(1_200) {
            self.flashes = (0..5).map(|_| world.random.below(world.keys.len())).collect();
        } else if flash {
            self.flashes.clear();
        }
        if member {
            match self.members % 4 {
                0 => world.crash(),
                2 => world.drain(),
                _ => world.join(),
            }
            self.members += 1;
        }
        if now == 0 || hot || flash || member || (self.events.wave && now.is_multiple_of(RENEWAL)) {
            self.set_load(world);
        }
        hot || flash || member
    }

    fn set_load(&self, world: &mut World) {
        world.rates.copy_from_slice(&world.base);
        let turn = world.now as f64 / (8.0 * HOUR as f64);
        if self.events.wave {
            raise_wave(world, turn);
        }
        let flash = world.rates.iter().sum::<f64>() * 0.02 / (1.0 - 0.02 * self.flashes.len() as f64);
        self.flashes.iter().for_each(|&place| world.rates[place] = flash);
        let swing = if self.events.wave { 0.3 * (std::f64::consts::TAU * turn).sin() } else { 0.0 };
        world.set_load(1.0 + swing);
    }
}

/// Ten of the hundred hottest keys change places with random ones.
fn change_hot_keys(world: &mut World) {
    let mut order: Vec<usize> = (0..world.base.len()).collect();
    order.select_nth_unstable_by(100, |&one, &other| world.base[other].total_cmp(&world.base[one]));
    let mut hottest: Vec<usize> = order[..100].to_vec();
    hottest.sort_unstable();
    for _ in 0..10 {
        let hot = hottest.swap_remove(world.random.below(hottest.len()));
        let cold = world.random.below(world.base.len());
        world.base.swap(hot, cold);
    }
}

/// A twentieth of the key space is up to five times as hot, most in its middle.
fn raise_wave(world: &mut World, turn: f64) {
    let middle = (turn.fract() * u64::MAX as f64) as u64;
    let reach = u64::MAX / 40;
    for (key, rate) in world.keys.iter().zip(&mut world.rates) {
        let distance = key.wrapping_sub(middle).min(middle.wrapping_sub(*key));
        if distance < reach {
            *rate *= 1.0 + 4.0 * (1.0 - distance as f64 / reach as f64);
        }
    }
}
