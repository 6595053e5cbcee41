//! The exhaustive check of small worlds over the real machines.

mod app;
mod driver;
mod explain;
mod memo;
mod models;
mod nodes;
mod print;
mod properties;
mod scenario;
mod store;
mod world;

use std::process::ExitCode;

use centrifuge_core::plant::{Plant, Plants};
use stateright::{Checker, Model, HasDiscoveries};

/// Runs.
pub fn run(json: bool, plant: Option<Plant>) -> ExitCode {
    let only = std::env::var("MODEL").ok();
    for mut scenario in models::all() {
        if only.as_deref().is_some_and(|only| only != scenario.name) { continue; }
        if let Some(plant) = plant {
            scenario.plants = Plants::only(plant);
        }
        let name = scenario.name;
        let world = world::World::new(scenario);
        if plant.is_none() { eprintln!("start network {} breach {:?}", world.start.network.len(), world.start.breach); }
        if std::env::var("DEEP").is_ok() {
            let (mut at, mut seen) = (vec![(world.start.clone(), vec![])], std::collections::HashSet::new());
            let mut last = vec![];
            while !at.is_empty() { let mut next = vec![];
                for (s, path) in at { let mut acts = vec![]; world.actions(&s, &mut acts);
                    for a in acts { if let Some(n) = world.next_state(&s, a.clone()) { if world.within_boundary(&n) && seen.insert(self::print::print(&n)) { let mut p: Vec<(world::State, Option<world::Action>)> = path.clone(); p.push((s.clone(), Some(a))); last = p.clone(); last.push((n.clone(), None)); next.push((n, p)); } } } }
                at = next; }
            eprintln!("{}", explain::story(&world, &last));
        }
        let begin = std::time::Instant::now();
        let max: usize = std::env::var("MAX").ok().and_then(|m| m.parse().ok()).unwrap_or(30_000_000);
        let mut builder = world.clone().checker().threads(if plant.is_some() {1} else {2}).target_state_count(max);
        if plant.is_some() || !json { builder = builder.finish_when(HasDiscoveries::AnyFailures); }
        let checker = builder.spawn_bfs().join();
        let found: Vec<_> = checker.discoveries().into_iter().collect();
        if plant.is_none() { eprintln!("{name}: {} unique, {} generated, depth {}, done {}, {:.1}s", checker.unique_state_count(), checker.state_count(), checker.max_depth(), checker.is_done(), begin.elapsed().as_secs_f64()); }
        let done = checker.unique_state_count();
        let full = checker.state_count() < max;
        let mut hit = String::new();
        for (name, path) in found {
            let path = path.into_vec();
            if plant.is_none() { eprintln!("  {name}: {} steps", path.len() - 1); }
            if name.len() == 2 {
                hit += &format!("{name} in {} ", path.len()-1);
                if std::env::var("STORY").is_ok() || plant.is_none() { eprintln!("{}", explain::story(&world, &path)); }
            }
        }
        if let Some(plant) = plant { eprintln!("{:<30} {:<10} {}  ({done}{}, {:.1}s)", plant.name(), name, if hit.is_empty() {"-"} else {&hit}, if full {""} else {" CUT"}, begin.elapsed().as_secs_f64()); }
    }
    ExitCode::SUCCESS
}
