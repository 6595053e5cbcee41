//! The exhaustive check of small worlds over the real machines.

mod app;
mod deeds;
mod feed;
mod explain;
mod memo;
mod models;
mod nodes;
mod print;
mod properties;
mod scenario;
mod stage;
mod step;
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
        if std::env::var("GOAL").is_ok() {
            use std::collections::HashSet;
            let mut at = vec![(world.start.clone(), Vec::<(world::State, Option<world::Action>)>::new())]; let mut seen = HashSet::new(); let mut best = None;
            'out: while !at.is_empty() { let mut next = vec![];
                for (s, path) in at { let mut acts = vec![]; world.actions(&s, &mut acts);
                    for a in acts { if let Some(n) = world.next_state(&s, a.clone()) { if world.within_boundary(&n) && seen.insert(self::print::print(&n)) {
                        let mut p = path.clone(); p.push((s.clone(), Some(a)));
                        if n.owners[0].life == 2 && n.memory.holds(0, 0).is_some() && n.spent.hellos == 2 { p.push((n.clone(), None)); best = Some(p); break 'out; }
                        next.push((n, p)); } } } }
                at = next; }
            if let Some(p) = best { eprintln!("{}", explain::story(&world, &p)); } else { eprintln!("unreachable"); }
            continue;
        }
        if let Ok(limit) = std::env::var("DEEP") {
            use std::collections::{HashSet, HashMap};
            let limit: usize = limit.parse().unwrap();
            let (mut at, mut seen) = (vec![world.start.clone()], HashSet::new());
            let mut parts: HashMap<String, HashSet<u64>> = HashMap::new();
            let mut acts_count: HashMap<String, usize> = HashMap::new();
            while !at.is_empty() && seen.len() < limit { let mut next = vec![];
                for s in at { let mut acts = vec![]; world.actions(&s, &mut acts);
                    for a in acts { let kind = format!("{a:?}").chars().take(7).collect::<String>(); if let Some(n) = world.next_state(&s, a) { if world.within_boundary(&n) && seen.insert(self::print::print(&n)) {
                        *acts_count.entry(kind).or_default() += 1;
                        for (i, m) in n.managers.iter().enumerate() { parts.entry(format!("m{i}")).or_default().insert(m.print()); }
                        for (i, o) in n.owners.iter().enumerate() { if let Some(p) = &o.process { parts.entry(format!("o{i}")).or_default().insert(p.print()); } }
                        parts.entry("net".into()).or_default().insert(self::print::print(&n.network));
                        parts.entry("store".into()).or_default().insert(n.store.print());
                        parts.entry("memory".into()).or_default().insert(n.memory.print());
                        parts.entry("apps".into()).or_default().insert(n.apps.print());
                        parts.entry("spent".into()).or_default().insert(self::print::print(&n.spent));
                        next.push(n); } } } }
                at = next; }
            eprintln!("{} states", seen.len());
            for (k, v) in parts { eprintln!("{k}: {}", v.len()); }
            eprintln!("{acts_count:?}");
            continue;
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
